// SPDX-License-Identifier: Apache-2.0

package stages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"culvert/internal/lb/lbstage"
)

// TestPasswords wants the password of a BGP session to be in a file that only its owner can read.
func TestPasswords(t *testing.T) {
	const inline, file = `password = "s3cret"`, `password_file = "bgp.secret"`
	for _, c := range []struct {
		name, line         string
		mode, passwordMode os.FileMode
		want, refused      string
	}{
		{"inline, file readable by its owner", inline, 0o600, 0o600, "s3cret", ""},
		{"inline, file readable by all", inline, 0o644, 0o600, "", "culvert.toml:10:12: neighbor 10.0.0.254: password in a file that is not secret: others than its owner may use"},
		{"password file readable by its owner", file, 0o644, 0o600, "from file", ""},
		{"password file readable by its group", file, 0o644, 0o640, "", "culvert.toml:10:17: neighbor 10.0.0.254: reading the password: others than its owner may use"},
		{"no such password file", `password_file = "none"`, 0o644, 0o600, "", "none: no such file"},
		{"both", inline + "\n" + file, 0o600, 0o600, "", "give one of them"},
		{"neither", "", 0o644, 0o600, "", ""},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "culvert.toml")
		text := strings.Join([]string{
			`interfaces = ["eth1"]`, `[lb]`, `[lb.bgp]`, `asn = 65001`, `router_id = "10.0.0.1"`, ``,
			`[[lb.bgp.neighbor]]`, `address = "10.0.0.254"`, `asn = 65000`, c.line,
		}, "\n")
		for name, f := range map[string]struct {
			text string
			mode os.FileMode
		}{"culvert.toml": {text, c.mode}, "bgp.secret": {"from file\n", c.passwordMode}} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(f.text), f.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(dir, name), f.mode); err != nil { // WriteFile applies the umask
				t.Fatal(err)
			}
		}
		n, err := Load(path)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: error %v, want %q", c.name, err, c.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if got := n.Tables["lb"].(*lbstage.Table).BGP.Neighbor[0].Password; got != c.want {
			t.Errorf("%s: password %q, want %q", c.name, got, c.want)
		}
	}
}
