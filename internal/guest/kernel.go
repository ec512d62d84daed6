// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"culvert/internal/bench/scenario/lbrun"
	"culvert/internal/guest/cards"
)

// Lines are the lines of kernels that Debian 12 ships, oldest first.
var Lines = []string{"6.1", "6.12"}

// OldLines are lines of kernels that culvert refuses to run on, for the test that it says so.
var OldLines = []string{"5.10"}

// modules are the kernel modules that every guest needs, in the order in which they can be loaded.
var modules = []string{"llc", "stp", "bridge", "veth"}

// testModules are the modules that only tests need: VLAN and VRF devices, bonds, classifiers of tc(8).
var testModules = []string{"garp", "mrp", "8021q", "vrf", "tls", "bonding", "sch_ingress", "cls_bpf"}

// allModules are the modules of Cloud kernels.
var allModules = slices.Concat(modules, testModules, lbrun.Modules())

// Flavor is a kind of kernel: Debian builds several of each version. It is a part of the name of a package.
type Flavor string

const (
	// Cloud kernels are small, and boot fastest. They lack the drivers of most cards.
	Cloud Flavor = "cloud-"
	// Standard kernels are what Debian installs on a machine.
	Standard Flavor = ""
)

// modulesOf are the modules that the cache holds of a release, in the order in which they can be loaded. Old kernels have not all that tests
// need, and run none of these tests.
func modulesOf(release string) []string {
	if slices.ContainsFunc(OldLines, func(line string) bool { return strings.HasPrefix(release, line+".") }) {
		return modules
	}
	if flavorOf(release) == Standard {
		return slices.Concat(modules, testModules, cards.Modules)
	}
	return allModules
}

// flavorOf tells the flavor by a release, as in "6.1.0-56-cloud-amd64".
func flavorOf(release string) Flavor {
	if strings.Contains(release, "-"+string(Cloud)) {
		return Cloud
	}
	return Standard
}

// Kernel is a kernel as Debian built it.
type Kernel struct {
	Arch Arch
	// Line is the line of the kernel, such as "6.1". Release is what 'uname -r' prints. Package is the version of the Debian
	// package.
	Line, Release, Package string
	// dir holds the image, "vmlinuz", and the modules. The file of a module that is part of the image is empty.
	dir string
}

// CacheDir returns the directory of cached kernels: culvert/kernels in the user's cache directory. XDG_CACHE_HOME moves it.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place to keep kernels: %w: set XDG_CACHE_HOME", err)
	}
	return filepath.Join(dir, "culvert", "kernels"), nil
}

// FindKernel returns the kernel of the given release for an architecture. If release is empty, or Debian does not have it any more, it returns
// the newest kernel of line and flavor. It downloads what is not in the cache. If Debian cannot be asked, it returns the newest
// such kernel in the cache and says so on progress.
func FindKernel(ctx context.Context, arch Arch, line string, flavor Flavor, release string, progress io.Writer) (Kernel, error) {
	cache, err := CacheDir()
	if err != nil {
		return Kernel{}, err
	}
	if k, err := openKernel(arch, line, filepath.Join(cache, release)); release != "" && strings.HasSuffix(release, "-"+string(arch)) && err == nil {
		return k, nil
	}
	a, err := openApt(cache, arch, line)
	if err != nil {
		return Kernel{}, err
	}
	var wanted kernelPackage
	if err = a.refresh(ctx); err == nil {
		wanted, err = a.choose(ctx, line, flavor, release)
	}
	if err != nil {
		if k, ok := newestCached(cache, arch, line, flavor); ok && ctx.Err() == nil {
			fmt.Fprintf(progress, "%v: going on with %s from the cache\n", err, k.Release)
			return k, nil
		}
		return Kernel{}, fmt.Errorf("find a kernel of line %s: %w", line, err)
	}
	dir := filepath.Join(cache, wanted.release)
	if k, err := openKernel(arch, line, dir); err == nil && k.Package == wanted.version {
		return k, nil
	}
	fmt.Fprintf(progress, "downloading %s %s\n", wanted.name, wanted.version)
	if err := fetchKernel(ctx, a, wanted, dir); err != nil {
		return Kernel{}, err
	}
	return openKernel(arch, line, dir)
}

// openKernel reads a directory of the cache.
func openKernel(arch Arch, line, dir string) (Kernel, error) {
	version, err := os.ReadFile(filepath.Join(dir, "version"))
	if err != nil {
		return Kernel{}, err
	}
	for _, m := range modulesOf(filepath.Base(dir)) { // an earlier version of culvert cached fewer
		if _, err := os.Stat(filepath.Join(dir, m+".ko")); err != nil {
			return Kernel{}, err
		}
	}
	return Kernel{Arch: arch, Line: line, Release: filepath.Base(dir), Package: strings.TrimSpace(string(version)), dir: dir}, nil
}

// newestCached finds the newest kernel of line and flavor in the cache.
func newestCached(cache string, arch Arch, line string, flavor Flavor) (best Kernel, found bool) {
	dirs, err := filepath.Glob(filepath.Join(cache, line+".*-"+string(arch)))
	if err != nil {
		return best, false
	}
	for _, dir := range dirs {
		k, err := openKernel(arch, line, dir)
		if err == nil && flavorOf(k.Release) == flavor && (!found || compareReleases(k.Release, best.Release) > 0) {
			best, found = k, true
		}
	}
	return best, found
}

// fetchKernel downloads a package and puts its image and modules into dir. dir appears complete or not at all.
func fetchKernel(ctx context.Context, a apt, p kernelPackage, dir string) (err error) {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "fetch-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	deb, err := a.download(ctx, tmp, p)
	if err != nil {
		return err
	}
	unpacked := filepath.Join(tmp, "kernel")
	if err := os.Mkdir(unpacked, 0o755); err != nil {
		return err
	}
	if err := unpackKernel(ctx, deb, p.release, unpacked); err != nil {
		return fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
	}
	if err := os.WriteFile(filepath.Join(unpacked, "version"), []byte(p.version+"\n"), 0o644); err != nil {
		return err
	}
	// dir may hold another version of the same release, or a copy that another process has just made.
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(unpacked, dir)
}

// unpackKernel extracts the image and the modules from a package into dir. It decompresses modules where needed, and writes an
// empty file for a module that is part of the image.
func unpackKernel(ctx context.Context, deb, release, dir string) error {
	const builtin = "modules.builtin"
	wanted := map[string]string{"boot/vmlinuz-" + release: "vmlinuz", builtin: builtin}
	for _, m := range modulesOf(release) {
		wanted[m+".ko"] = m + ".ko"
		wanted[m+".ko.xz"] = m + ".ko"
	}
	missing := map[string]bool{}
	for _, to := range wanted {
		missing[to] = true
	}
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	files := tar.NewReader(out)
	for {
		h, err := files.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return errors.Join(err, cmd.Wait())
		}
		name := strings.TrimPrefix(h.Name, "./")
		to, ok := wanted[name]
		if !ok {
			to, ok = wanted[path.Base(name)]
		}
		if !ok || h.Typeflag != tar.TypeReg {
			continue
		}
		data, err := io.ReadAll(files)
		if err == nil && strings.HasSuffix(name, ".xz") {
			data, err = unxz(ctx, data)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), data, 0o644)
		}
		if err != nil {
			return errors.Join(err, cmd.Process.Kill(), ignoreExit(cmd.Wait()))
		}
		delete(missing, to)
	}
	if err := cmd.Wait(); err != nil {
		return err
	}
	return markBuiltin(filepath.Join(dir, builtin), missing)
}

// markBuiltin writes an empty file for each missing module that the list has of those in the image. It returns an error for what is
// missing then.
func markBuiltin(list string, missing map[string]bool) error {
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		name := path.Base(strings.TrimSpace(line))
		if !missing[name] {
			continue
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(list), name), nil, 0o644); err != nil {
			return err
		}
		delete(missing, name)
	}
	if len(missing) > 0 {
		return fmt.Errorf("the package lacks files that are needed: %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
	return nil
}

// unxz decompresses data with xz(1), which every system with dpkg has.
func unxz(ctx context.Context, data []byte) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "xz", "-dc")
	cmd.Stdin = bytes.NewReader(data)
	return cmd.Output()
}

// ignoreExit drops the error of a process that was killed on purpose.
func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

// modules are the modules that the cache holds of the kernel, in the order in which they can be loaded.
func (k Kernel) modules() []string { return modulesOf(k.Release) }

// image is the path of the kernel's image.
func (k Kernel) image() string { return filepath.Join(k.dir, "vmlinuz") }

// module reads the module of that name.
func (k Kernel) module(name string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(k.dir, name+".ko"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the cache of kernels is damaged: remove %s: %w", k.dir, err)
	}
	return data, err
}

func (k Kernel) String() string { return fmt.Sprintf("%s (%s)", k.Release, k.Package) }
