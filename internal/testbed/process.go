// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// apart names the environment variable with the name of the test that a process of InProcess is to run.
const apart = "CULVERT_TEST_APART"

// InProcess runs the test in a process with an empty network namespace of its own, for code that starts goroutines which open
// sockets. It returns true in that process, and false where the test has nothing left to do.
func InProcess(t *testing.T) bool {
	t.Helper()
	if os.Getenv(apart) == t.Name() {
		return true
	}
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run 'make test-root'")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), apart+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	return false
}
