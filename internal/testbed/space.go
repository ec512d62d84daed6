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

// leftovers are the pin directories of running tests, which Main removes on an interrupt.
var leftovers = struct {
	sync.Mutex
	dirs map[string]bool
}{dirs: make(map[string]bool)}

// Main runs the tests of a package that uses InNamespace. If they are interrupted, it removes their pins.
func Main(m *testing.M) {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-interrupted
		leftovers.Lock()
		for dir := range leftovers.dirs {
			os.RemoveAll(dir)
		}
		os.Exit(130)
	}()
	os.Exit(m.Run())
}

// InNamespace moves the test to a thread of its own with an empty network namespace. The namespace ends
// with the thread. Its pins are removed when the test ends.
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
	leftovers.Lock()
	leftovers.dirs[dir] = true
	leftovers.Unlock()
	if _, err := os.Stat(dir); err == nil {
		t.Logf("removing what an earlier namespace of the same inode has left in %s", dir)
		os.RemoveAll(dir)
	}
	t.Cleanup(func() {
		os.RemoveAll(dir)
		leftovers.Lock()
		delete(leftovers.dirs, dir)
		leftovers.Unlock()
	})
	// IPv6 would send packets of its own.
	for _, which := range []string{"all", "default"} {
		Sysctl(t, "ipv6/conf/"+which+"/disable_ipv6", "1")
	}
}

// SpaceDir returns the directory of the pins of this network namespace.
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

// Tree lists the pins of this network namespace, one a line.
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
