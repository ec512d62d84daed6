// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseArch(t *testing.T) {
	for name, want := range map[string]Arch{"": hostArch(), "amd64": AMD64, "arm64": ARM64} {
		if a, err := ParseArch(name); a != want || err != nil {
			t.Errorf("%q gives %s, %v", name, a, err)
		}
	}
	if _, err := ParseArch("mips"); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "amd64, arm64") {
		t.Errorf("mips: %v", err)
	}
}

// Each architecture has its own emulator, kernels, lists of packages and serial ports.
func TestArches(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	cacheKernel(t, "6.1.0-9-cloud-amd64", "6.1.9-1")
	cache, err := CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if k, ok := newestCached(cache, ARM64, "6.1", Cloud); ok {
		t.Errorf("%s is taken for a kernel of arm64", k)
	}
	cacheKernel(t, "6.1.0-8-cloud-arm64", "6.1.8-1")
	if k, ok := newestCached(cache, ARM64, "6.1", Cloud); !ok || k.Release != "6.1.0-8-cloud-arm64" || k.Arch != ARM64 {
		t.Errorf("got %+v, %t", k, ok)
	}
	if _, ok := parsePackageName(ARM64, "linux-image-6.1.0-56-cloud-arm64", Cloud); !ok {
		t.Error("the name of a kernel of arm64 is not known")
	}
	dirs := map[string]bool{}
	for _, a := range Arches {
		apt, err := openApt(cache, a, "6.1")
		if err != nil {
			t.Fatal(err)
		}
		dirs[apt.dir] = true
		e := emulators[a]
		args := Machine{Kernel: Kernel{Arch: a}}.arguments("/dir", "/root.cpio")
		for _, want := range []string{"shift=0,sleep=off", "console=" + e.console, "answer"} {
			if !slices.ContainsFunc(args, func(s string) bool { return strings.Contains(s, want) }) {
				t.Errorf("%s: no %s in %q", a, want, args)
			}
		}
		if e.answer == "/dev/"+e.console {
			t.Errorf("%s: console and answer share %s", a, e.answer)
		}
	}
	if len(dirs) != len(Arches) {
		t.Errorf("architectures share lists of packages: %v", dirs)
	}
}

// Links of a root lead below it, not to this machine's files.
func TestWithin(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"bin", "sbin"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "bin/ip"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"sbin/ip": "/bin/ip", "bin/other": "ip", "bin/loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{"sbin/ip", "bin/other", "bin/ip"} {
		if at, err := within(root, filepath.Join(root, link)); err != nil || at != filepath.Join(root, "bin/ip") {
			t.Errorf("%s leads to %s, %v", link, at, err)
		}
	}
	if _, err := within(root, filepath.Join(root, "bin/loop")); err == nil {
		t.Error("a link to itself has an end")
	}
}

// A guest of another architecture needs a culvert of that.
func TestCulvertOfAnotherArch(t *testing.T) {
	other := ARM64
	if hostArch() == ARM64 {
		other = AMD64
	}
	if _, err := other.self(); err == nil || !strings.Contains(err.Error(), "make build-"+string(other)) {
		t.Errorf("error %v", err)
	}
	if _, err := hostArch().self(); err != nil {
		t.Error(err)
	}
}

// What a program of another architecture needs is read from the program itself.
func TestNeededBy(t *testing.T) {
	needed, err := neededBy("/bin/sh")
	if err != nil || !slices.Contains(needed, "libc.so.6") || !slices.ContainsFunc(needed, filepath.IsAbs) {
		t.Errorf("got %q, %v", needed, err)
	}
	files, err := ARM64.libraries(t.Context(), nil)
	if err != nil || len(files) != 0 {
		t.Errorf("no programs need %v, %v", files, err)
	}
}
