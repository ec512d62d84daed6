// SPDX-License-Identifier: Apache-2.0

package status

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNoTerminalQuery runs this package's test program on a terminal, without any test. What it writes there comes from the
// initialisation of packages.
func TestNoTerminalQuery(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	// bubbletea asks nothing if CI is set, if TERM is dumb, or in the background.
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "CI=") && !strings.HasPrefix(kv, "TERM=") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	// Each write of the program can be a read of its own. The last one is followed by EIO once nobody has the terminal open.
	terminal.Close()
	text, err := io.ReadAll(master)
	if !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	if got := string(text); !strings.Contains(got, "PASS") || strings.Contains(got, "\x1b") {
		t.Errorf("the program wrote %q", got)
	}
}
