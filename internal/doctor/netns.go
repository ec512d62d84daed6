// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// netnsDir is where ip-netns(8) keeps named network namespaces. It is a variable for tests.
var netnsDir = "/run/netns"

// namedNamespaces returns the paths of the named network namespaces.
func namedNamespaces() []string {
	paths, _ := filepath.Glob(filepath.Join(netnsDir, "*"))
	return paths
}

// namespace is a network namespace other than that of this thread.
type namespace struct {
	path string
	// name is its name in ip-netns(8), or the words "the namespace of process PID".
	name string
	// enter is the prefix of a command that runs in it, with a trailing space.
	enter string
}

// findNamespace looks for the network namespace with the ID nsid, as this network namespace numbers others. It looks among
// the named ones first, then among those of all processes. It returns false if it finds none.
func findNamespace(nsid int) (namespace, bool) {
	if nsid < 0 {
		return namespace{}, false
	}
	for _, path := range namedNamespaces() {
		if namespaceID(path) == nsid {
			name := filepath.Base(path)
			return namespace{path, name, "ip netns exec " + name + " "}, true
		}
	}
	paths, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	seen := map[string]bool{}
	for _, path := range paths {
		inode, err := os.Readlink(path)
		if err != nil || seen[inode] {
			continue
		}
		seen[inode] = true
		if namespaceID(path) == nsid {
			pid := strings.Split(path, "/")[2]
			return namespace{path, "the namespace of process " + pid, "nsenter -t " + pid + " -n "}, true
		}
	}
	return namespace{}, false
}

// namespaceID returns the ID by which this network namespace knows the one at path, -1 if it has none.
func namespaceID(path string) int {
	f, err := os.Open(path)
	if err != nil {
		return -1
	}
	defer f.Close()
	id, err := netlink.GetNetNsIdByFd(int(f.Fd()))
	if err != nil {
		return -1
	}
	return id
}

// in runs do inside the network namespace, on a thread of its own, and returns its error.
func (n namespace) in(do func() error) error {
	f, err := os.Open(n.path)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer f.Close()
	done := make(chan error)
	go func() {
		// The thread is never unlocked, so that the runtime ends it instead of using it for other goroutines.
		runtime.LockOSThread()
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace %s: %w", n.path, err)
			return
		}
		done <- do()
	}()
	return <-done
}

// holders returns the processes that have the eBPF program open, as "comm[pid]". Only root sees processes of other users.
func holders(programID uint32) []string {
	files, _ := filepath.Glob("/proc/[0-9]*/fdinfo/*")
	want := fmt.Sprintf("prog_id:\t%d\n", programID)
	var found []string
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(b), want) {
			continue
		}
		pid := strings.Split(file, "/")[2]
		comm, _ := os.ReadFile("/proc/" + pid + "/comm")
		name := fmt.Sprintf("%s[%s]", strings.TrimSpace(string(comm)), pid)
		if !slices.Contains(found, name) {
			found = append(found, name)
		}
	}
	return found
}
