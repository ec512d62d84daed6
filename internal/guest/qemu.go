// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"culvert/internal/guest/cards"
)

// arguments are those of QEMU. Nothing that differs from run to run reaches the guest: its clock counts instructions from a
// fixed date, random numbers have a fixed seed, and there is neither disk nor network. A guest with cards has a clock of its own, and two
// CPUs: with one clock for both, the emulator does not get Linux 6.1 to start the second one.
func (m Machine) arguments(dir, root string) []string {
	clock := []string{"-accel", "tcg", "-icount", "shift=0,sleep=off", "-smp", "1"}
	more := ""
	if len(m.Wires) > 0 {
		clock = []string{"-accel", "tcg,thread=multi", "-smp", "2"}
		if m.Kernel.Arch != ARM64 {
			// The kernel compares its timers at the start, and gives up if a busy machine has held one up.
			more = "no_timer_check"
		}
	}
	e := emulators[m.Kernel.Arch]
	port := e.port
	if len(m.Wires) > 0 {
		port = slices.Concat(port, cards.MonitorArguments(dir))
	}
	return slices.Concat(e.machine, []string{
		"-m", fmt.Sprint(m.Memory), "-seed", "1", "-rtc", "base=2026-01-01,clock=vm",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", m.Kernel.image(), "-initrd", root, "-append", e.kernelArguments(more),
		"-serial", "file:" + filepath.Join(dir, "console"),
		"-chardev", "stdio,id=answer,signal=off",
	}, port, clock, cards.Arguments(m.Wires))
}

// boot runs QEMU until the guest has answered.
func (m Machine) boot(ctx context.Context, dir, root string) (a Answer, err error) {
	caller := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, m.Limit, fmt.Errorf("no answer within %s", m.Limit))
	defer cancel()
	e := emulators[m.Kernel.Arch]
	cmd := exec.CommandContext(ctx, e.program, m.arguments(dir, root)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.WaitDelay = 5 * time.Second
	// QEMU has to end with this process, however that ends. The kernel sends the signal when the thread that started QEMU
	// ends, so this goroutine keeps its thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if cards.NeedSpace(m.Wires) {
		leave, err := cards.Space(m.Wires)
		if err != nil {
			return a, err
		}
		defer leave()
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return a, err
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return a, fmt.Errorf("%w: install the Debian package %s", err, e.debian)
		}
		return a, err
	}
	a, answered, err := m.listen(out)
	if answered {
		// All that is left to the guest is to power off.
		cancel()
		return a, ignoreExit(ignoreCanceled(cmd.Wait()))
	}
	waitErr := cmd.Wait()
	if caller.Err() != nil {
		return a, fmt.Errorf("interrupted: %w", context.Cause(caller))
	}
	if cause := context.Cause(ctx); cause != nil {
		waitErr = cause
	}
	console, _ := os.ReadFile(filepath.Join(dir, "console"))
	if err == nil {
		err = fmt.Errorf("it ended without an answer: %w; its console's last lines: %s", orPoweredOff(waitErr),
			lastLines(string(console)+stderr.String(), 12))
	}
	return a, err
}

// orPoweredOff returns err, or an error that says that the machine powered off if err is nil.
func orPoweredOff(err error) error {
	if err == nil {
		return errors.New("powered off")
	}
	return err
}

// ignoreCanceled drops the error of a context that was canceled on purpose.
func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// lastLines joins the last n lines of a text into one line.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	lines = lines[max(0, len(lines)-n):]
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, " / ")
}

// listen forwards progress and output of the guest until it answers or ends.
func (m Machine) listen(from io.Reader) (a Answer, answered bool, err error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		kind, text, _ := strings.Cut(lines.Text(), " ")
		switch kind {
		case sayProgress:
			fmt.Fprintf(m.Progress, "%s: %s\n", m.Kernel.Line, text)
		case sayOutput:
			fmt.Fprintln(m.Output, text)
		case sayAnswer:
			if err := json.Unmarshal([]byte(text), &a); err != nil {
				return a, false, fmt.Errorf("read its answer: %w", err)
			}
			return a, true, nil
		}
	}
	return a, false, lines.Err()
}
