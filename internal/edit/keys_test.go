// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"culvert/internal/scion/scionplane"
)

// TestRemovalLoss removes keys by index. own is the ID of the key of the serving process, role what is wanted.
func TestRemovalLoss(t *testing.T) {
	one := []scionplane.KeyInfo{{Index: 1, ID: "aa"}}
	two := []scionplane.KeyInfo{{Index: 0, ID: "aa"}, {Index: 1, ID: "bb"}}
	for _, tc := range []struct {
		name  string
		keys  []scionplane.KeyInfo
		index int
		own   string
		role  string
	}{
		{"no key there", one, 0, "aa", ""},
		{"the only one, no process", one, 1, "", "the only one"},
		{"the only one, the process's", one, 1, "aa", "the only one"},
		{"the only one, not the process's", one, 1, "cc", "the only one"},
		{"one of two, no process", two, 0, "", ""},
		{"one of two, the process's", two, 0, "aa", "the one that the serving process has"},
		{"one of two, not the process's", two, 1, "aa", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if l := removalLoss(tc.keys, tc.index, tc.own); l != nil {
				got = l.role
			}
			if got != tc.role {
				t.Errorf("role %q, want %q", got, tc.role)
			}
		})
	}
}

// TestReadKey reads keys from files and standard input, and takes none from the command line.
func TestReadKey(t *testing.T) {
	const text = "AAECAwQFBgcICQoLDA0ODw=="
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{file, StandardInput} {
		key, err := ReadKey(from, strings.NewReader(" "+text+"\n"))
		if err != nil || key != [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} {
			t.Errorf("%s: %x, %v", from, key, err)
		}
	}
	for in, want := range map[string]string{
		"AAECAwQFBgcICQoLDA0O": "key has 15 bytes",
		"not base64":           "key is not base64",
		"":                     "key has 0 bytes",
	} {
		if _, err := ReadKey(StandardInput, strings.NewReader(in)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", in, err, want)
		}
	}
	if _, err := ReadKey(text, nil); err == nil || !strings.Contains(err.Error(), "not taken from the command line") {
		t.Errorf("a key as an argument: %v", err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKey(file, nil); err == nil || !strings.HasSuffix(err.Error(), "chmod 0600 "+file) {
		t.Errorf("a key that others may read: %v", err)
	}
}
