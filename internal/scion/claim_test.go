// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// childSlowPath names the environment variable that makes TestChildSlowPath a router.
const childSlowPath = "CULVERT_TEST_SLOW_PATH"

// TestChildSlowPath holds the sockets of a router without the lock, as the reference router does, when the test below
// starts it in a process of its own. By itself it does nothing.
func TestChildSlowPath(t *testing.T) {
	path := os.Getenv(childSlowPath)
	if path == "" {
		return
	}
	r, err := Load(path)
	check(t, err)
	_, err = NewSlowPath(r)
	check(t, err)
	fmt.Println("holding")
	select {}
}

// TestRunRefusesTakenSockets starts a router while another process has its sockets. The kernel would permit that.
func TestRunRefusesTakenSockets(t *testing.T) {
	h := newTwoHosts(t)
	path := writeTOML(t, "wire", "br1", "")
	other := h.startChild(0, "TestChildSlowPath", childSlowPath+"="+path)
	other.await("holding")

	err := runOn(t.Context(), Table{Config: path}, func(*Router, []string) (DataPlane, error) {
		t.Error("attached")
		return nil, errors.New("unexpected")
	})
	want := fmt.Sprintf(" (process %d): stop it first", other.cmd.Process.Pid)
	if err == nil || !strings.HasPrefix(err.Error(), "router br1: 127.0.0.1:30042 is in use by ") ||
		!strings.HasSuffix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want one with the address and %q", err, want)
	}
	if pid := ServerPID("br1"); pid != 0 {
		t.Errorf("process %d serves br1 after a refused start", pid)
	}

	other.kill()
	near := h.start(0, path)
	near.await("plane key")
	if pid := ServerPID("br1"); pid != near.cmd.Process.Pid {
		t.Errorf("process %d serves br1, want %d", pid, near.cmd.Process.Pid)
	}
	// A router that is started before the other is killed waits for the lock.
	next := h.start(0, path)
	near.kill()
	next.await("plane key")
	next.kill()

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := Load(path)
	check(t, err)
	lock, err := claim(ctx, r)
	check(t, err)
	check(t, lock.Release())
}

// kill ends the process at once and waits for its end.
func (c *child) kill() {
	c.t.Helper()
	check(c.t, c.cmd.Process.Signal(syscall.SIGKILL))
	c.rest()
	var exit *exec.ExitError
	if err := c.cmd.Wait(); !errors.As(err, &exit) {
		c.t.Errorf("a killed process ended with %v", err)
	}
}
