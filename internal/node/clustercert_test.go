// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"culvert/internal/cluster/access"
	"culvert/internal/testbed"
)

// TestOtherCertificate starts a node with the certificate of another one, and with that of a writer: both are refused in one line, and so they are
// by 'culvert check'. Its own is taken, and so is one that culvert has not made.
func TestOtherCertificate(t *testing.T) {
	testbed.InNamespace(t)
	dir := filepath.Join(t.TempDir(), "edge")
	authority, err := access.Init(dir, "edge")
	if err != nil {
		t.Fatal(err)
	}
	for n, c := range []struct{ user, want string }{
		{access.NewUser(access.KindNode, "n1").String(), ""},
		{"somebody else's names", ""},
		{access.NewUser(access.KindNode, "n7").String(), "is that of node n7, and node here is n1: "},
		{access.NewUser(access.KindWriter, "alice").String(), "is that of writer alice, not of a node: "},
	} {
		name := fmt.Sprintf("c%d", n)
		f, err := authority.Issue(dir, name, c.user, nil)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name+".toml")
		text := fmt.Sprintf("[cluster]\nname = \"edge\"\nnode = \"n1\"\nstate_dir = \"state\"\nendpoints = [\"https://127.0.0.1:1\"]\ntls = { ca = %q, cert = %q, key = %q }\n", f.CA, f.Cert, f.Key)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := joinCluster(path, slog.New(slog.DiscardHandler))
		m.close()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), path+":3:")) {
			t.Errorf("%s: %v, want %q", c.user, err, c.want)
		}
		checked := slices.ContainsFunc(Check(path).Errors(), func(err error) bool { return strings.Contains(err.Error(), c.want) })
		if c.want != "" && !checked {
			t.Errorf("%s: 'culvert check' says %v", c.user, Check(path).Errors())
		}
	}
}
