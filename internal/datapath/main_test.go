// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(holderEnv); role != "" {
		os.Exit(hold(role))
	}
	testbed.Main(m)
}

// holderEnv is an environment variable that names interfaces. With it, this test binary attaches them, prints a line and waits
// to be killed.
const holderEnv = "CULVERT_TEST_HOLD"

func hold(interfaces string) int {
	inst, err := datapath.Attach(datapath.Options{Name: "br1", Interfaces: strings.Split(interfaces, ","), Parts: scionbed.Parts(scionbed.Config(1, 2))})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("attached")
	time.Sleep(time.Hour)
	inst.Close()
	return 0
}

// startHolder starts a process that serves br1 in this network namespace.
func startHolder(t *testing.T, interfaces string) *exec.Cmd {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), holderEnv+"="+interfaces)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(c) })
	line := make([]byte, 1024)
	n, err := out.Read(line)
	if s := strings.TrimSpace(string(line[:n])); s != "attached" {
		t.Fatalf("the other process printed %q, %v", s, err)
	}
	return c
}

func kill(c *exec.Cmd) {
	_ = c.Process.Kill()
	_ = c.Wait()
}
