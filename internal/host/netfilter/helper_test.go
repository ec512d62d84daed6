// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/vishvananda/netns"
)

// inNamespace moves the test to a thread of its own with an empty network namespace, which ends with the
// thread.
func inNamespace(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root to make network namespaces: run 'make test-root'")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test's goroutine
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
}

// sh runs commands in the test's network namespace.
func sh(t *testing.T, commands string) string {
	t.Helper()
	out, err := exec.Command("sh", "-ec", commands).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", commands, err, out)
	}
	return string(out)
}

// file makes a file for a command to read. A large ruleset does not fit into an argument.
func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// start runs commands in the test's network namespace until the test calls stop, or ends.
func start(t *testing.T, commands string) (stop func()) {
	t.Helper()
	c := exec.Command("sh", "-ec", commands)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		_ = c.Wait()
	})
	t.Cleanup(stop)
	return stop
}

func find(t *testing.T) []Finding {
	t.Helper()
	found, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func generation(t *testing.T) uint32 {
	t.Helper()
	g, err := Generation()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func expect(t *testing.T, got []Finding, want ...Finding) {
	t.Helper()
	// DeepEqual distinguishes nil from empty, which makes no difference here.
	if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// nftChain is a chain of nftables that a test expects.
func nftChain(family, table, chain, hook, policy string, rules int, devices ...string) Finding {
	return Finding{Backend: NFT, Family: family, Table: table, Chain: chain, Hook: hook, Policy: policy,
		Rules: rules, Devices: devices}
}
