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

// libraryDirs are patterns of the directories that hold libraries, those of Debian first.
var libraryDirs = []string{"/lib/*-linux-gnu", "/usr/lib/*-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib"}

// libraries returns the files that programs need in a guest, which has none of its own: the dynamic linker and all
// libraries, under the same paths as on the host. Programs that import internal/filter/pcap are linked dynamically even
// without cgo, because they load libpcap at run time. libpcap is added if it is installed.
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

// isDynamic tells whether a program needs a dynamic linker. A file that is not ELF, such as a script, does not.
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

// addLibraries adds to files what ldd(1) finds for a program or library: the dynamic linker and all libraries, direct and
// indirect.
func addLibraries(ctx context.Context, files map[string]string, program string) error {
	out, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return fmt.Errorf("find the libraries of %s for the guest: ldd: %w", program, err)
	}
	return parseLDD(files, program, string(out))
}

// parseLDD adds the files in ldd's output. Its lines are such as "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6
// (0x00007f0000000000)", and "/lib64/ld-linux-x86-64.so.2 (0x00007f0000000000)" for the dynamic linker.
func parseLDD(files map[string]string, program, out string) error {
	for line := range strings.Lines(out) {
		if name, ok := strings.CutSuffix(strings.TrimSpace(line), " => not found"); ok {
			return fmt.Errorf("find the libraries of %s for the guest: %s is not installed", program, name)
		}
		for word := range strings.FieldsSeq(line) {
			if filepath.IsAbs(word) {
				files[word] = word
			}
		}
	}
	return nil
}

// findLibrary returns the path of the first of names that is in one of dirs, or "" if none is.
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
