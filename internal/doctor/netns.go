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

// netnsDir is where ip-netns(8) keeps its names.
var netnsDir = "/run/netns"

// namedNamespaces lists the files of ip-netns(8).
func namedNamespaces() []string {
	paths, _ := filepath.Glob(filepath.Join(netnsDir, "*"))
	return paths
}

// namespace is a network namespace other than ours.
type namespace struct {
	path string
	// name is for people: a name of ip-netns(8) or a process.
	name string
	// enter is what to write before a command so that it runs there, with a trailing space.
	enter string
}

// findNamespace looks for the namespace to which ours has given the number nsid: among the named
// ones, then among those of all processes. It returns false when none can be seen.
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

// namespaceID is the number that our network namespace has given to the one at path, or -1.
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

// in runs do on a thread of its own inside the network namespace.
func (n namespace) in(do func() error) error {
	f, err := os.Open(n.path)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer f.Close()
	done := make(chan error)
	go func() {
		// Never unlocked: the runtime then ends the thread, which must not serve others.
		runtime.LockOSThread()
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter network namespace %s: %w", n.path, err)
			return
		}
		done <- do()
	}()
	return <-done
}

// holders names the processes that hold the BPF program open, as "comm[pid]". Only root sees those
// of other users.
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
