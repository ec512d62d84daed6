// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWay has a secret behind directories and symbolic links that others can change.
func TestWay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run 'make test-root'")
	}
	base := t.TempDir()
	file := filepath.Join(base, "a", "b", "secret")
	check(t, os.MkdirAll(filepath.Dir(file), 0o755))
	check(t, os.WriteFile(file, []byte("s3cret"), 0o600))
	link := func(target, name string) string {
		path := filepath.Join(base, name)
		check(t, os.Symlink(target, path))
		return path
	}
	absolute, relative := link(file, "absolute"), link("a/../a/b", "relative")+"/secret"
	foreign := link(file, "foreign")
	check(t, os.Lchown(foreign, 65534, 65534))
	link("loop", "loop")
	outer := filepath.Join(base, "a")
	for _, c := range []struct {
		name, path string
		mode       os.FileMode // of directory a
		uid        int         // of directory a
		want       string      // "" if it is trusted
	}{
		{"all root's", file, 0o755, 0, ""},
		{"through a link", absolute, 0o755, 0, ""},
		{"through a relative link", relative, 0o755, 0, ""},
		{"sticky", file, 0o777 | fs.ModeSticky, 0, ""},
		{"writable", file, 0o777, 0, "others than root may write to BASE/a (mode 0777), the way to BASE/a/b/secret: chmod go-w BASE/a"},
		{"writable by the group", file, 0o775, 0, "others than root may write to BASE/a (mode 0775), the way to BASE/a/b/secret: chmod go-w BASE/a"},
		{"writable behind a link", absolute, 0o777, 0, "others than root may write to BASE/a (mode 0777), the way to BASE/absolute: chmod go-w BASE/a"},
		{"writable behind a relative link", relative, 0o777, 0,
			"others than root may write to BASE/a (mode 0777), the way to BASE/relative/secret: chmod go-w BASE/a"},
		{"another user's", file, 0o755, 65534, "BASE/a belongs to user 65534, not to root: chown root BASE/a, once it is clear who made it"},
		{"another user's link", foreign, 0o755, 0, "BASE/foreign belongs to user 65534, not to root: chown root BASE/foreign, once it is clear who made it"},
		{"a loop", filepath.Join(base, "loop"), 0o755, 0, "open BASE/loop: " + unix.ELOOP.Error()},
	} {
		check(t, os.Chmod(outer, c.mode))
		check(t, os.Chown(outer, c.uid, 0))
		for what, err := range map[string]error{"Way": Way(c.path), "SecretFile": SecretFile(c.path)} {
			got := ""
			if err != nil {
				got = strings.ReplaceAll(err.Error(), base, "BASE")
			}
			if got != c.want {
				t.Errorf("%s: %s: %q, want %q", c.name, what, got, c.want)
			}
		}
		if b, err := Secret(c.path); (err == nil) != (c.want == "") || (b != nil) != (c.want == "") {
			t.Errorf("%s: secret %q, %v", c.name, b, err)
		}
	}
	// A directory that is mounted nowhere, or has another path by now, is reached by its descriptor alone.
	dir, err := os.Open(filepath.Dir(file))
	check(t, err)
	defer dir.Close()
	check(t, os.Chmod(outer, 0o755))
	check(t, os.Chown(outer, 0, 0))
	check(t, os.Rename(filepath.Dir(file), filepath.Join(base, "moved")))
	byFD := fmt.Sprintf("/proc/self/fd/%d/secret", dir.Fd())
	if b, err := Secret(byFD); err != nil || string(b) != "s3cret" {
		t.Errorf("by a descriptor: %q, %v", b, err)
	}
	check(t, os.Chmod(filepath.Join(base, "moved"), 0o777))
	if err := Way(byFD); err == nil || !strings.Contains(err.Error(), "others than root may write to /proc/self/fd/") {
		t.Errorf("by the descriptor of a directory that others may write to: %v", err)
	}
	if err := Way(filepath.Join(base, "none", "secret")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}
