// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPackageNames(t *testing.T) {
	for name, release := range map[string]string{
		"linux-image-6.1.0-56-cloud-amd64":                "6.1.0-56-cloud-amd64",
		"linux-image-6.12.117+deb12-cloud-amd64":          "6.12.117+deb12-cloud-amd64",
		"linux-image-6.12.117+deb12-cloud-amd64-unsigned": "",
		"linux-image-6.1.0-56-amd64":                      "",
		"linux-image-6.1.0-56-rt-amd64":                   "",
		"linux-image-cloud-amd64":                         "",
		"linux-image-6.1.0-56-cloud-arm64":                "",
	} {
		if p, ok := parsePackageName(AMD64, name, Cloud); p.release != release || ok != (release != "") {
			t.Errorf("%s gives %+v, %t", name, p, ok)
		}
	}
	for name, release := range map[string]string{
		"linux-image-6.1.0-56-amd64":                "6.1.0-56-amd64",
		"linux-image-6.12.117+deb12-amd64":          "6.12.117+deb12-amd64",
		"linux-image-6.12.117+deb12-amd64-unsigned": "",
		"linux-image-6.12.117+deb12-cloud-amd64":    "",
		"linux-image-6.1.0-56-rt-amd64":             "",
		"linux-image-6.12-amd64":                    "",
	} {
		if p, ok := parsePackageName(AMD64, name, Standard); p.release != release || ok != (release != "") {
			t.Errorf("%s gives %+v, %t", name, p, ok)
		}
	}
	ascending := []string{"6.1.0-9-cloud-amd64", "6.1.0-10-cloud-amd64", "6.1.1-1-cloud-amd64"}
	for i := range len(ascending) - 1 {
		if compareReleases(ascending[i], ascending[i+1]) >= 0 {
			t.Errorf("%s is not before %s", ascending[i], ascending[i+1])
		}
	}
}

// cacheKernel puts a kernel without contents into the cache, which the test has moved.
func cacheKernel(t *testing.T, release, version string) {
	t.Helper()
	cache, err := CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, release)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"version": version + "\n"}
	for _, m := range modulesOf(release) {
		files[m+".ko"] = ""
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// FindKernel takes a kernel of a given release from the cache without running apt.
func TestKernelOfABaseline(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	cacheKernel(t, "6.1.0-9-cloud-amd64", "6.1.9-1")
	cacheKernel(t, "6.1.0-10-cloud-amd64", "6.1.10-1")
	k, err := FindKernel(t.Context(), AMD64, "6.1", Cloud, "6.1.0-9-cloud-amd64", &bytes.Buffer{})
	if err != nil || k.Package != "6.1.9-1" || k.Line != "6.1" {
		t.Errorf("got %+v, %v", k, err)
	}
	// A kernel that lacks a module, because an earlier version of culvert cached it, does not count as cached.
	if err := os.Remove(filepath.Join(k.dir, "8021q.ko")); err != nil {
		t.Fatal(err)
	}
	if k, err := FindKernel(t.Context(), AMD64, "6.1", Cloud, "6.1.0-9-cloud-amd64", &bytes.Buffer{}); err == nil && k.Release != "6.1.0-10-cloud-amd64" {
		t.Errorf("got %+v, which lacks a module", k)
	}
}

// Without apt FindKernel takes the newest kernel in the cache and says so. With an empty cache it fails.
func TestKernelsOffline(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	var progress bytes.Buffer
	_, err := FindKernel(t.Context(), AMD64, "6.1", Cloud, "", &progress)
	if err == nil || !strings.Contains(err.Error(), "find a kernel of line 6.1") || !strings.Contains(err.Error(), "apt-get") {
		t.Errorf("without a cache: error %v", err)
	}
	cacheKernel(t, "6.1.0-9-cloud-amd64", "6.1.9-1")
	cacheKernel(t, "6.1.0-10-cloud-amd64", "6.1.10-1")
	cacheKernel(t, "6.12.1+deb12-cloud-amd64", "6.12.1-1")
	k, err := FindKernel(t.Context(), AMD64, "6.1", Cloud, "", &progress)
	if err != nil || k.Release != "6.1.0-10-cloud-amd64" || !strings.Contains(progress.String(), "going on with 6.1.0-10-cloud-amd64") {
		t.Errorf("got %+v, %v; progress %q", k, err, progress.String())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := FindKernel(ended, AMD64, "6.1", Cloud, "", &progress); err == nil {
		t.Error("an interrupted search found a kernel")
	}
}

// An old kernel, which only has to be refused, lacks modules that tests need.
func TestModulesOfOldKernels(t *testing.T) {
	for release, want := range map[string]int{
		"5.10.0-32-cloud-amd64": len(modules), "6.1.0-56-cloud-arm64": len(allModules), "6.12.117+deb12-cloud-amd64": len(allModules),
	} {
		if got := modulesOf(release); len(got) != want {
			t.Errorf("%s: %d modules, want %d", release, len(got), want)
		}
	}
}
