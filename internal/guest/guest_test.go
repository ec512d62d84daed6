// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"debug/elf"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A program's dynamic linker and all its libraries are found, and so is libpcap, which programs load at run time.
func TestLibraries(t *testing.T) {
	files, err := libraries(t.Context(), []string{"/bin/sh"})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for to, from := range files {
		if to != from {
			t.Errorf("%s is %s in the guest", from, to)
		}
		names[filepath.Base(to)] = true
	}
	for file := range files {
		f, err := elf.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		needed, err := f.ImportedLibraries()
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range needed {
			if !names[n] {
				t.Errorf("%s needs %s, and that is not in the guest", file, n)
			}
		}
	}
	sh, err := elf.Open("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	defer sh.Close()
	interp, err := sh.Section(".interp").Data()
	if err != nil {
		t.Fatal(err)
	}
	if linker := strings.TrimRight(string(interp), "\x00"); files[linker] == "" {
		t.Errorf("the dynamic linker %s is not in the guest, which has %v", linker, slices.Sorted(maps.Keys(files)))
	}
	if !names["libpcap.so.0.8"] && !names["libpcap.so.1"] {
		t.Error("libpcap is not in the guest")
	}
}

func TestStaticProgramsNeedNoLibraries(t *testing.T) {
	dir := t.TempDir()
	source := dir + "/main.go"
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", dir+"/static", source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.WriteFile(dir+"/script", []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := libraries(t.Context(), []string{dir + "/static", dir + "/script"})
	if err != nil || len(files) != 0 {
		t.Errorf("libraries %v, error %v", files, err)
	}
	if _, err := libraries(t.Context(), []string{"/nowhere"}); err == nil {
		t.Error("no error for a program that is not there")
	}
}

func TestParseLDD(t *testing.T) {
	files := map[string]string{}
	out := "\tlinux-vdso.so.1 (0x00007f7c3ffe5000)\n\tlibc.so.6 => /lib/libc.so.6 (0x00007f7c3fde7000)\n" +
		"\t/lib64/ld.so (0x00007f7c3ffe7000)\n"
	if err := parseLDD(files, "a", out); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"/lib/libc.so.6": "/lib/libc.so.6", "/lib64/ld.so": "/lib64/ld.so"}
	if !maps.Equal(files, want) {
		t.Errorf("got %v, want %v", files, want)
	}
	err := parseLDD(files, "a", "\tlibb.so => not found\n")
	if err == nil || !strings.Contains(err.Error(), "libb.so is not installed") {
		t.Errorf("a missing library: %v", err)
	}
}
