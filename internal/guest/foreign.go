// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"culvert/internal/filter/pcap"
)

// foreignPackages are the Debian packages that guests of a foreign architecture take libraries and programs from. Those that they
// depend on come along.
var foreignPackages = []string{"libc6", "libpcap0.8", "iproute2", "ipvsadm", "nftables"}

// foreignMutex lets one goroutine at a time make a root.
var foreignMutex sync.Mutex

// root returns the directory with libraries and programs of a foreign architecture, which the cache holds. It fetches them if they
// are not there.
func (a Arch) root(ctx context.Context) (string, error) {
	foreignMutex.Lock()
	defer foreignMutex.Unlock()
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	root := filepath.Join(cache, "root-"+string(a))
	list := strings.Join(foreignPackages, " ") + "\n"
	if have, err := os.ReadFile(filepath.Join(root, "packages")); err == nil && string(have) == list {
		return root, nil
	}
	err = a.makeRoot(ctx, cache, root, list)
	if err != nil {
		return "", fmt.Errorf("fetch libraries for guests of %s: %w", a, err)
	}
	return root, nil
}

// makeRoot fetches and unpacks the packages. root appears complete or not at all.
func (a Arch) makeRoot(ctx context.Context, cache, root, list string) (err error) {
	from, err := openApt(cache, a, "")
	if err != nil {
		return err
	}
	if err := from.refresh(ctx); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	archives := filepath.Join(tmp, "archives")
	if err := os.MkdirAll(filepath.Join(archives, "partial"), 0o755); err != nil {
		return err
	}
	args := []string{"-q", "-y", "-o", "Dir::Cache::archives=" + archives, "install", "--download-only", "--no-install-recommends"}
	if _, err := from.run(ctx, "", "apt-get", append(args, foreignPackages...)...); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(archives, "*.deb"))
	if err != nil {
		return err
	}
	unpacked := filepath.Join(tmp, "root")
	for _, deb := range debs {
		if _, err := call(ctx, "", "dpkg-deb", "--extract", deb, unpacked); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(unpacked, "packages"), []byte(list), 0o644); err != nil {
		return err
	}
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	return os.Rename(unpacked, root)
}

// lookPath finds a program for guests: this machine's, or of the root if the architecture is another.
func (a Arch) lookPath(ctx context.Context, name string) (string, error) {
	if a == hostArch() {
		return exec.LookPath(name)
	}
	root, err := a.root(ctx)
	if err != nil {
		return "", err
	}
	if at := findLibrary([]string{name}, below(root, "bin", "usr/bin", "sbin", "usr/sbin")); at != "" {
		return within(root, at)
	}
	return "", fmt.Errorf("no package among %s has %s for %s", strings.Join(foreignPackages, ", "), name, a)
}

// within follows symbolic links of a root. Those with an absolute path lead to what is below the root.
func within(root, at string) (string, error) {
	for range 16 {
		to, err := os.Readlink(at)
		switch {
		case err != nil: // it is no link; a file that is not there will be missed by who reads it
			return at, nil
		case filepath.IsAbs(to):
			at = filepath.Join(root, to)
		default:
			at = filepath.Join(filepath.Dir(at), to)
		}
	}
	return "", fmt.Errorf("%s: too many symbolic links", at)
}

// below returns the paths of directories below a root.
func below(root string, dirs ...string) []string {
	for i := range dirs {
		dirs[i] = filepath.Join(root, dirs[i])
	}
	return dirs
}

// libraries returns the files that programs need in a guest, by their paths there.
func (a Arch) libraries(ctx context.Context, programs []string) (map[string]string, error) {
	if a == hostArch() {
		return libraries(ctx, programs)
	}
	var root string
	files := map[string]string{}
	for i := 0; i < len(programs); i++ {
		is, err := isDynamic(programs[i])
		if err != nil {
			return nil, err
		}
		if !is {
			continue
		}
		if root == "" {
			if root, err = a.root(ctx); err != nil {
				return nil, err
			}
		}
		if err := a.addForeign(files, root, programs[i]); err != nil {
			return nil, err
		}
	}
	if root == "" {
		return files, nil
	}
	at := findLibrary(pcap.Libraries, a.libraryDirs(root))
	if at == "" {
		return nil, fmt.Errorf("libpcap is not in %s: remove that directory", root)
	}
	to := strings.TrimPrefix(at, root)
	at, err := within(root, at)
	if err != nil {
		return nil, err
	}
	files[to] = at
	return files, a.addForeign(files, root, at)
}

// libraryDirs are the directories of libraries below a root.
func (a Arch) libraryDirs(root string) []string {
	triplet := emulators[a].triplet
	return below(root, "lib/"+triplet, "usr/lib/"+triplet, "lib")
}

// addForeign adds to files what a program or library of a foreign architecture needs, by what it says of itself: ldd(1) would run
// it.
func (a Arch) addForeign(files map[string]string, root, program string) error {
	needed, err := neededBy(program)
	if err != nil {
		return fmt.Errorf("find the libraries of %s for the guest: %w", program, err)
	}
	for _, name := range needed {
		at := findLibrary([]string{filepath.Base(name)}, a.libraryDirs(root))
		if at == "" {
			return fmt.Errorf("find the libraries of %s for the guest: %s is not in %s", program, name, root)
		}
		to := strings.TrimPrefix(at, root)
		if at, err = within(root, at); err != nil {
			return err
		}
		if filepath.IsAbs(name) {
			to = name // the dynamic linker, by the path that the program has for it
		}
		if files[to] != "" {
			continue
		}
		files[to] = at
		if err := a.addForeign(files, root, at); err != nil {
			return err
		}
	}
	return nil
}

// neededBy lists the libraries that a program or library names, and the path of its dynamic linker.
func neededBy(program string) ([]string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			linker, err := io.ReadAll(p.Open())
			if err != nil {
				return nil, err
			}
			needed = append(needed, strings.TrimRight(string(linker), "\x00"))
		}
	}
	return slices.Compact(needed), nil
}
