// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"

	"culvert/internal/filter/pcap"
)

// libraryDirs are where libraries are, as patterns: Debian's places first.
var libraryDirs = []string{"/lib/*-linux-gnu", "/usr/lib/*-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib"}

// libraries returns what programs need to run in a guest, which has nothing by itself: the dynamic linker and all
// libraries, in the same places as here. Programs that import internal/filter/pcap need that: they are linked dynamically,
// though without cgo, and load libpcap, which is added if it is installed.
func libraries(ctx context.Context, programs []string) (map[string]string, error) {
	files := map[string]string{}
	dynamic := false
	for _, p := range programs {
		is, err := isDynamic(p)
		if err != nil {
			return nil, err
		}
		dynamic = dynamic || is
		if !is {
			continue
		}
		if err := addLibraries(ctx, files, p); err != nil {
			return nil, err
		}
	}
	if at := findLibrary(pcap.Libraries, libraryDirs); dynamic && at != "" {
		files[at] = at
		if err := addLibraries(ctx, files, at); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// isDynamic tells whether a program needs a dynamic linker. What is no ELF file, such as a script, does not.
func isDynamic(program string) (bool, error) {
	f, err := elf.Open(program)
	if _, ok := err.(*elf.FormatError); ok || errors.Is(err, io.EOF) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	return f.Section(".interp") != nil, nil
}

// addLibraries adds what ldd(1) finds: the dynamic linker and the libraries, those of libraries too.
func addLibraries(ctx context.Context, files map[string]string, of string) error {
	out, err := exec.CommandContext(ctx, "ldd", of).Output()
	if err != nil {
		return fmt.Errorf("find the libraries of %s for the guest: ldd: %w", of, err)
	}
	return parseLDD(files, of, string(out))
}

// parseLDD reads lines such as "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0000000000)", and
// "/lib64/ld-linux-x86-64.so.2 (0x00007f0000000000)" for the dynamic linker.
func parseLDD(files map[string]string, of, out string) error {
	for line := range strings.Lines(out) {
		if name, ok := strings.CutSuffix(strings.TrimSpace(line), " => not found"); ok {
			return fmt.Errorf("find the libraries of %s for the guest: %s is not installed", of, name)
		}
		for word := range strings.FieldsSeq(line) {
			if filepath.IsAbs(word) {
				files[word] = word
			}
		}
	}
	return nil
}

// findLibrary returns where the first of some libraries is, "" if none is installed.
func findLibrary(names, dirs []string) string {
	for _, name := range names {
		for _, dir := range dirs {
			if found, _ := filepath.Glob(filepath.Join(dir, name)); len(found) > 0 {
				return found[0]
			}
		}
	}
	return ""
}
