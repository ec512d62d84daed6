// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// suite is the Debian suite that kernels come from. The security updates of Debian 12 have the newest kernels of both
// lines.
const suite = "bookworm-security"

// oldSuite is the suite that has OldLines: Debian 11, which does not change any more. Its security updates lose packages.
const oldSuite = "bullseye"

// librarySuite is the suite that libraries come from.
const librarySuite = "bookworm"

// keyring holds the keys that sign the suite.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// listAge is how old the list of packages may be before it is fetched again.
const listAge = 24 * time.Hour

// apt runs Debian's package tools with lists and caches below dir. This needs neither root nor a change of the host's
// configuration. The host's mirror and proxies apply.
type apt struct {
	dir   string
	arch  Arch
	suite string
}

// openApt opens the lists for an architecture and a line of kernels in the cache.
func openApt(cache string, arch Arch, line string) (apt, error) {
	a := apt{dir: filepath.Join(cache, "apt"), arch: arch, suite: suite}
	if arch != AMD64 {
		a.dir += "-" + string(arch)
	}
	if slices.Contains(OldLines, line) {
		a.suite = oldSuite
		a.dir += "-" + oldSuite
	}
	for _, sub := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.dir, sub), 0o755); err != nil {
			return a, fmt.Errorf("make room for the list of kernels: %w", err)
		}
	}
	// An empty status file tells apt that no package is installed.
	return a, os.WriteFile(filepath.Join(a.dir, "status"), nil, 0o644)
}

// suites are the suites that packages come from: kernels from one, the libraries of a foreign architecture from two.
func (a apt) suites() []string {
	if a.arch == hostArch() {
		return []string{a.suite}
	}
	return []string{a.suite, librarySuite}
}

// mirror finds where the host gets a suite from: Debian's security updates, or Debian itself.
func mirror(ctx context.Context, suite string) (string, error) {
	targets, err := call(ctx, "", "apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(targets) {
		release, uri, _ := strings.Cut(strings.TrimSpace(line), " ")
		_, of, _ := strings.Cut(release, "-")
		if _, wanted, _ := strings.Cut(suite, "-"); of == wanted && uri != "" {
			return uri, nil
		}
	}
	if !strings.Contains(suite, "-") {
		return "", errors.New("apt has no source of Debian's packages: add one to /etc/apt (see sources.list(5))")
	}
	return "", errors.New("apt has no source of Debian's security updates: add one to /etc/apt (see sources.list(5))")
}

// run runs a tool in dir with the lists and caches of a.
func (a apt) run(ctx context.Context, dir, tool string, args ...string) (string, error) {
	options := []string{
		"Dir::State=" + a.dir,
		"Dir::State::lists=" + filepath.Join(a.dir, "lists"),
		"Dir::State::status=" + filepath.Join(a.dir, "status"),
		"Dir::Cache=" + a.dir,
		"Dir::Etc::sourcelist=" + filepath.Join(a.dir, "sources.list"),
		"Dir::Etc::sourceparts=/dev/null",
		"Dir::Etc::preferences=/dev/null",
		"Dir::Etc::preferencesparts=/dev/null",
		"APT::Architecture=" + string(a.arch),
		"APT::Architectures=",
		"APT::Architectures::=" + string(a.arch),
		"APT::Sandbox::User=root",
		"APT::Update::Error-Mode=any",
		"Acquire::Languages=none",
		"Acquire::Retries=3",
		"Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
		"Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled=false",
	}
	all := make([]string, 0, 2*len(options)+len(args))
	for _, o := range options {
		all = append(all, "-o", o)
	}
	return call(ctx, dir, tool, append(all, args...)...)
}

// call runs a tool in dir and returns its standard output.
func call(ctx context.Context, dir, tool string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Dir = dir
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return "", fmt.Errorf("%w: kernels are Debian packages, so this needs a Debian system", err)
		}
		return "", fmt.Errorf("%s: %w: %s", tool, err, firstError(stderr.String()))
	}
	return stdout.String(), nil
}

// firstError returns the first line that apt marks as an error. Without one it joins the last lines of s.
func firstError(s string) string {
	for line := range strings.Lines(s) {
		if strings.HasPrefix(line, "E: ") {
			return strings.TrimSpace(line)
		}
	}
	return lastLines(s, 12)
}

// refresh fetches the list of packages, unless it is recent.
func (a apt) refresh(ctx context.Context) error {
	stamp := filepath.Join(a.dir, "fetched")
	if info, err := os.Stat(stamp); err == nil && time.Since(info.ModTime()) < listAge {
		return nil
	}
	sources := ""
	var err error
	for _, s := range a.suites() {
		uri, mirrorErr := mirror(ctx, s)
		err = errors.Join(err, mirrorErr)
		sources += fmt.Sprintf("deb [arch=%s signed-by=%s] %s %s main\n", a.arch, keyring, uri, s)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(a.dir, "sources.list"), []byte(sources), 0o644)
	}
	if err == nil {
		_, err = a.run(ctx, "", "apt-get", "-q", "update")
	}
	if err != nil {
		return fmt.Errorf("fetch the list of Debian's kernels (check the network and /etc/apt): %w", err)
	}
	return os.WriteFile(stamp, nil, 0o644)
}

// choose returns the package with the kernel of the given release. If release is empty, or Debian does not have
// it any more, choose returns the newest package of line, such as "6.1", and flavor.
func (a apt) choose(ctx context.Context, line string, flavor Flavor, release string) (kernelPackage, error) {
	names, err := a.run(ctx, "", "apt-cache", "pkgnames", "linux-image-"+line+".")
	if err != nil {
		return kernelPackage{}, err
	}
	var best kernelPackage
	for name := range strings.Lines(names) {
		p, ok := parsePackageName(a.arch, strings.TrimSpace(name), flavor)
		if ok && p.release == release {
			best = p
			break
		}
		if ok && (best.release == "" || compareReleases(p.release, best.release) > 0) {
			best = p
		}
	}
	if best.release == "" {
		return best, fmt.Errorf("no %skernel of line %s is on the list of Debian's packages", flavor, line)
	}
	about, err := a.run(ctx, "", "apt-cache", "show", "--no-all-versions", best.name)
	if err != nil {
		return best, err
	}
	for field := range strings.Lines(about) {
		if version, ok := strings.CutPrefix(field, "Version: "); ok {
			best.version = strings.TrimSpace(version)
			return best, nil
		}
	}
	return best, fmt.Errorf("apt-cache shows no version of %s", best.name)
}

// download fetches a package into dir and returns the path of its file.
func (a apt) download(ctx context.Context, dir string, p kernelPackage) (string, error) {
	if _, err := a.run(ctx, dir, "apt-get", "-q", "download", p.name+"="+p.version); err != nil {
		return "", fmt.Errorf("download %s: %w", p.name, err)
	}
	found, err := filepath.Glob(filepath.Join(dir, p.name+"_*.deb"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("download %s: apt-get left %d packages", p.name, len(found))
	}
	return found[0], nil
}

// kernelPackage is a Debian package with a kernel.
type kernelPackage struct {
	// name and version are those of the package. release is what 'uname -r' prints under its kernel.
	name, release, version string
}

var packageName = regexp.MustCompile(`^linux-image-([0-9]+\.[0-9]+\.[^-]*(?:-[0-9]+)?-((?:cloud-)?)(amd64|arm64))$`)

// parsePackageName reads the name of a package with a signed kernel of the flavor. It returns false for all other packages.
func parsePackageName(arch Arch, name string, flavor Flavor) (kernelPackage, bool) {
	m := packageName.FindStringSubmatch(name)
	if m == nil || Flavor(m[2]) != flavor || Arch(m[3]) != arch {
		return kernelPackage{}, false
	}
	return kernelPackage{name: name, release: m[1]}, true
}

var digits = regexp.MustCompile(`[0-9]+`)

// compareReleases compares releases of one line by the numbers in them.
func compareReleases(a, b string) int {
	numbers := func(s string) (n []int) {
		for _, d := range digits.FindAllString(s, -1) {
			v, _ := strconv.Atoi(d)
			n = append(n, v)
		}
		return n
	}
	return slices.Compare(numbers(a), numbers(b))
}
