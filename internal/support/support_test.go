// SPDX-License-Identifier: Apache-2.0

package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// TestBlank: no value of a secret key is left, in whatever form TOML allows, and the rest is as it was.
func TestBlank(t *testing.T) {
	for _, tt := range []struct{ file, want string }{
		{"[lb]\nseed = \"S3CRET\" # mine\nvips = 256\n", "[lb]\nseed = \"(blanked)\" # mine\nvips = 256\n"},
		{"lb.seed='S3CRET'\nname = \"edge\"", "lb.seed=\"(blanked)\"\nname = \"edge\""},
		{`"seed" = "S3CRET"`, `"seed" = "(blanked)"`},
		{`"s\u0065ed" = "S3CRET"`, `"s\u0065ed" = "(blanked)"`},
		{"password = \"\"\"\nS3CRET\nS3CRET\"\"\"\nasn = 1", "password = \"(blanked)\"\nasn = 1"},
		{"password = '''S3CRET''S3CRET'''\nasn = 1", "password = \"(blanked)\"\nasn = 1"},
		{`neighbor = [{ address = "192.0.2.1", password = "S3CRET" }, { password = "S3CRET", asn = 1 }]`,
			`neighbor = [{ address = "192.0.2.1", password = "(blanked)" }, { password = "(blanked)", asn = 1 }]`},
		{"password = [\n  \"S3CRET\", # S3CRET\n  \"S3CRET\"]\nasn = 1", "password = \"(blanked)\"\nasn = 1"},
		{"password = \"S3CRET\nasn = 1", "password = \"(blanked)\"\nasn = 1"}, // has no end
		{"password = S3CRET\nasn = 1", "password = \"(blanked)\"\nasn = 1"},   // no TOML
		{`password = "S3\"CRET S3CRET"`, `password = "(blanked)"`},
		{"# password = \"S3CRET\"\n#seed='S3CRET'\nasn = 1", "# password = \"(blanked)\"\n#seed=\"(blanked)\"\nasn = 1"},
		{"[secrets]\nanything = \"S3CRET\"\n[lb]\nasn = 1", "[secrets]\nanything = \"(blanked)\"\n[lb]\nasn = 1"},
		{"[lb]\nseed: \"S3CRET\"\n", "[lb]\nseed: \"(blanked)\"\n"},         // no TOML
		{"password \"S3CRET\"\nasn = 1", "password \"(blanked)\"\nasn = 1"}, // no TOML
		{
			"[[scion.key]]\nfile = \"2026.key\"\nnot_after = 2027-01-08T00:00:00Z\n",
			"[[scion.key]]\nfile = \"2026.key\"\nnot_after = 2027-01-08T00:00:00Z\n",
		},
		{"password_file = \"bgp.secret\"\nconfig_dir = \"/etc/scion\"", "password_file = \"bgp.secret\"\nconfig_dir = \"/etc/scion\""},
		{"expression = \"host a = b # password\"\n", "expression = \"host a = b # password\"\n"},
	} {
		got, secrets := blank(tt.file)
		if got != tt.want || strings.Contains(got, "S3CRET") {
			t.Errorf("%q becomes %q, want %q", tt.file, got, tt.want)
		}
		if strings.Contains(tt.file, "S3CRET") && !strings.Contains(strings.Join(secrets, " "), "CRET") {
			t.Errorf("%q: the secrets are %q", tt.file, secrets)
		}
	}
}

// FuzzBlank: what blank makes of a file that parses, parses too, and has the same keys.
func FuzzBlank(f *testing.F) {
	f.Add("[lb]\nseed = \"a\"\n[[lb.bgp.neighbor]]\npassword = 'b' # c\naddress = \"192.0.2.1\"\n")
	f.Fuzz(func(t *testing.T, file string) {
		text, _ := blank(file)
		var was, is map[string]any
		if toml.Unmarshal([]byte(file), &was) != nil {
			return
		}
		if err := toml.Unmarshal([]byte(text), &is); err != nil {
			t.Fatalf("%q becomes %q: %v", file, text, err)
		}
		if len(was) != len(is) {
			t.Fatalf("%q becomes %q", file, text)
		}
		for key, value := range is {
			if s, ok := value.(string); ok && isSecret("'"+key+"'") && !strings.ContainsAny(key, "'") && s != "(blanked)" {
				t.Fatalf("%q becomes %q", file, text)
			}
		}
	})
}

// TestArchive packs a configuration with every key that holds a secret, and files of secrets. None is in the archive, also where a
// command repeats one, and what cannot be had is named.
func TestArchive(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("culvert.toml", `interfaces = ["eth1"]
[scion]
config = "scion/br.toml"
[[scion.key]]
file = "2026.key"
not_after = 2027-01-08T00:00:00Z
[lb]
seed = "seed-in-the-file"
[[lb.bgp.neighbor]]
address = "192.0.2.254"
password = "password-of-a-neighbor"
[[lb.bgp.neighbor]]
address = "192.0.2.253"
password_file = "bgp.secret"
`)
	write("culvert.d/more.toml", "[[lb.bgp.neighbor]]\naddress = \"192.0.2.252\"\npassword = \"password-of-a-drop-in\"\n")
	write("bgp.secret", "password-in-a-file\n")
	write("scion/br.toml", "[general]\nid = \"br1\"\nconfig_dir = \"/etc/scion\"\n[api]\ntoken = \"token-of-the-router\"\n")
	write("scion/keys/master0.key", "key-of-the-as")
	write("2026.key", "key-of-the-schedule\n")
	elsewhere := write("elsewhere/edge.toml", "name = \"edge\"\nlb.seed = \"seed-of-another-process\"\n")
	seed := write("lb-seed", "seed-of-this-machine\n")
	culvert := write("culvert", fmt.Sprintf(`#!/bin/sh
case $1 in
status) echo '{"routers":[{"config":{"file":"%s"}}]}' ;;
filter) echo "filter verbs need a data plane" >&2; exit 1 ;;
route) echo "one error of bgp: password-in-a-file" >&2; echo "another" >&2; exit 3 ;;
doctor) echo "FAIL password-in-a-file is wrong, and so are seed-of-this-machine and key-of-the-schedule"; exit 1 ;;
key) exit 1 ;;
*) echo "$*" ;;
esac
`, elsewhere))
	if err := os.Chmod(culvert, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "out.tar.gz")
	o := Options{Culvert: culvert, ConfigDir: dir, SecretFiles: []string{seed, filepath.Join(dir, "none")}, Now: time.Unix(1e9, 0)}
	missing, err := File(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	files := read(t, path)
	for name, text := range files {
		for _, secret := range []string{
			"seed-in-the-file", "password-of-a-neighbor", "password-of-a-drop-in", "password-in-a-file", "token-of-the-router",
			"key-of-the-as", "key-of-the-schedule", "seed-of-another-process", "seed-of-this-machine",
		} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %s", name, secret)
			}
		}
	}
	for name, want := range map[string]string{
		"README":         "key-list.txt: 'culvert key list' says nothing: exit status 1\n",
		"README ":        "filter-list.txt: 'culvert filter list' fails: filter verbs need a data plane\n",
		"README  ":       "doctor.txt: 'culvert doctor -c " + elsewhere + "', which fails: exit status 1\n",
		"README   ":      "route-show.txt: 'culvert route show', which fails: exit status 3\n",
		"route-show.txt": "one error of bgp: (blanked)\nanother\n",
		"check.txt":      "check -c " + elsewhere + "\n",
		"configuration" + filepath.Join(dir, "culvert.toml"):        "file = \"2026.key\"\nnot_after = 2027-01-08T00:00:00Z\n",
		"configuration" + filepath.Join(dir, "culvert.d/more.toml"): "192.0.2.252",
		"configuration" + filepath.Join(dir, "scion/br.toml"):       `id = "br1"`,
		"configuration" + elsewhere:                                 `name = "edge"`,
		"doctor.txt":                                                "FAIL (blanked) is wrong, and so are (blanked) and (blanked)\n",
		"lb-show.txt":                                               "lb show\n",
		"kernel.txt":                                                "Linux",
	} {
		if text, ok := files["culvert-support/"+strings.TrimSpace(name)]; !ok || !strings.Contains(text, want) {
			t.Errorf("%s has %q, want %q", name, text, want)
		}
	}
	if _, ok := files["culvert-support/filter-list.txt"]; ok {
		t.Error("a file has nothing but one error")
	}
	for _, m := range missing {
		if !strings.Contains(files["culvert-support/README"], m+"\n") {
			t.Errorf("README does not name %q", m)
		}
	}
	if _, err := File(t.Context(), path, o); err == nil || !strings.Contains(err.Error(), "it is there already") {
		t.Errorf("over another file: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := File(ctx, path+".2", o); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if _, err := os.Stat(path + ".2"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("interrupted, it is left: %v", err)
	}
}

// read returns the files of an archive.
func read(t *testing.T, path string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for tape := tar.NewReader(zip); ; {
		h, err := tape.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(tape)
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode != 0o600 {
			t.Errorf("%s has mode %04o", h.Name, h.Mode)
		}
		files[h.Name] = string(text)
	}
}
