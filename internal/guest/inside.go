// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/bench/scenario/insn"
)

// culvertPath is where culvert is in a guest.
const culvertPath = "/culvert"

// programs is where programs are.
const programs = "/bin"

// idleProcessors is more processors, in the sense of Go's scheduler, than there is work for.
const idleProcessors = 4

// What a line on the guest's second serial port is about.
const (
	sayProgress = "progress"
	sayOutput   = "output"
	sayAnswer   = "answer"
)

// ErrNotInGuest is what Init returns outside of a guest.
var ErrNotInGuest = errors.New("only the first process of a guest can do this: use 'culvert bench insn'")

// Init is the work of the first process in a guest: it prepares the system, does the job, answers and turns the
// machine off.
func Init(ctx context.Context) error {
	if os.Getpid() != 1 {
		return ErrNotInGuest
	}
	a, err := prepareAndWork(ctx)
	if err != nil {
		a.Error = err.Error()
	}
	text, err := json.Marshal(a)
	if err == nil {
		err = say(sayAnswer, text)
	}
	return errors.Join(err, unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF))
}

func prepareAndWork(ctx context.Context) (a Answer, err error) {
	for _, m := range []struct{ kind, at string }{
		{"devtmpfs", "/dev"}, {"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/tmp"}, {"tmpfs", "/run"},
		{"bpf", "/sys/fs/bpf"}, {"tracefs", "/sys/kernel/tracing"},
	} {
		options := ""
		if m.kind == "bpf" {
			options = "mode=0700" // pins are trusted in no other
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, options); err != nil {
			return a, fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	text, err := os.ReadFile("/job.json")
	if err != nil {
		return a, err
	}
	var job Job
	if err := json.Unmarshal(text, &job); err != nil {
		return a, fmt.Errorf("read the job: %w", err)
	}
	if err := loadModules(job.Modules...); err != nil {
		return a, err
	}
	if err := netlink.LinkSetUp(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: 1}}); err != nil {
		return a, fmt.Errorf("set lo up: %w", err)
	}
	// What the kernel still does after it has started would be counted with the rest. Nothing runs out of this
	// clock: a second without work takes no time.
	time.Sleep(3 * time.Second)
	if job.Instructions != nil {
		// There is memory enough, and collecting garbage would be counted.
		debug.SetGCPercent(-1)
		// With one processor Go's monitor takes it away from a thread that is in the kernel for 20 us. With idle ones
		// it leaves it alone for 10 ms.
		runtime.GOMAXPROCS(idleProcessors)
		job.Instructions.Load = loadModules
		if err := os.Setenv("PATH", programs); err != nil {
			return a, err
		}
		a.Instructions, err = insn.Count(ctx, *job.Instructions, sayer(sayProgress))
	}
	for _, c := range job.Commands {
		if err != nil {
			break
		}
		var failed bool
		if failed, err = runCommand(ctx, c); failed {
			a.Failed = append(a.Failed, c.Name)
		}
	}
	return a, err
}

// loadModules loads those that have not been loaded.
func loadModules(names ...string) error {
	for _, name := range names {
		module, err := os.ReadFile("/modules/" + name + ".ko")
		if err != nil {
			return err
		}
		if err := unix.InitModule(module, ""); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load the module %s: %w", name, err)
		}
	}
	return nil
}

// runCommand runs a program and passes on what it prints. It fails if the program cannot be started.
func runCommand(ctx context.Context, c Command) (failed bool, err error) {
	if err := say(sayProgress, []byte("running "+filepath.Base(c.Args[0]))); err != nil {
		return false, err
	}
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Dir = c.Dir
	cmd.Env = []string{"HOME=/tmp", "PATH=" + programs, "TMPDIR=/tmp"}
	out := &lineWriter{to: sayer(sayOutput)}
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	if flushErr := out.flush(); flushErr != nil {
		return false, flushErr
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return true, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: its dynamic linker may not be where it was built for", err)
	}
	return false, err
}

// say writes a line to the second serial port and waits until it is out, so that no interrupt comes later.
func say(kind string, text []byte) error {
	port, err := os.OpenFile("/dev/ttyS1", os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer port.Close()
	fd := int(port.Fd())
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	t.Oflag = 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, t); err != nil {
		return err
	}
	line := slices.Concat([]byte(kind), []byte{' '}, text, []byte{'\n'})
	if _, err := port.Write(line); err != nil {
		return err
	}
	const drain = 1 // as tcdrain(3) does it
	return unix.IoctlSetInt(fd, unix.TCSBRK, drain)
}

// sayer says each line that is written to it; a write has one or more whole lines.
type sayer string

func (s sayer) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		if err := say(string(s), bytes.TrimRight(line, "\n")); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// lineWriter passes on whole lines.
type lineWriter struct {
	to   io.Writer
	rest []byte
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.rest = append(w.rest, b...)
	if i := bytes.LastIndexByte(w.rest, '\n'); i >= 0 {
		if _, err := w.to.Write(w.rest[:i+1]); err != nil {
			return 0, err
		}
		w.rest = bytes.Clone(w.rest[i+1:])
	}
	return len(b), nil
}

func (w *lineWriter) flush() error {
	if len(w.rest) == 0 {
		return nil
	}
	_, err := w.to.Write(w.rest)
	return err
}

// sortedKeys lists the keys of a map in order.
func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
