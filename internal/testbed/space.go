// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"culvert/internal/host/bpffs"
)

// pinDirs are the directories of running tests' pins. Main removes them on an interrupt.
var pinDirs = struct {
	sync.Mutex
	dirs map[string]bool
}{dirs: make(map[string]bool)}

// Main runs the tests of a package that uses InNamespace. If they are interrupted, it removes their pins.
func Main(m *testing.M) {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-interrupted
		pinDirs.Lock()
		for dir := range pinDirs.dirs {
			os.RemoveAll(dir)
		}
		os.Exit(130)
	}()
	os.Exit(m.Run())
}

// InNamespace locks the test's goroutine to its thread and gives the thread an empty network namespace without IPv6. The
// namespace ends with the thread. Its pins are removed when the test ends. Subtests run on other threads, which are in the
// namespace of the process.
func InNamespace(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run 'make test-root'")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	dir := SpaceDir(t)
	pinDirs.Lock()
	pinDirs.dirs[dir] = true
	pinDirs.Unlock()
	if _, err := os.Stat(dir); err == nil {
		t.Logf("removing the pins in %s of an earlier namespace with the same inode number", dir)
		os.RemoveAll(dir)
	}
	t.Cleanup(func() {
		os.RemoveAll(dir)
		pinDirs.Lock()
		delete(pinDirs.dirs, dir)
		pinDirs.Unlock()
	})
	// It would otherwise be as on the host.
	Sysctl(t, "ipv4/ip_forward", "0")
	// With IPv6 on, the kernel would send packets of its own.
	for _, which := range []string{"all", "default"} {
		Sysctl(t, "ipv6/conf/"+which+"/disable_ipv6", "1")
	}
}

// SpaceDir returns the directory of this network namespace's pins. It mounts bpffs if necessary.
func SpaceDir(t testing.TB) string {
	t.Helper()
	root, ok := bpffs.Find()
	if !ok {
		if err := bpffs.Mount(); err != nil {
			t.Fatalf("mount bpffs: %v", err)
		}
		if root, ok = bpffs.Find(); !ok {
			t.Fatal("there is no bpffs even after mounting it")
		}
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(bpffs.Hold(root), "culvert", strconv.FormatUint(st.Ino, 10))
}

// Tree lists the pins of this network namespace, one on each line.
func Tree(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	dir := SpaceDir(t)
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil {
			fmt.Fprintln(&b, strings.TrimPrefix(path, dir))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
