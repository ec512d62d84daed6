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

// culvertPath is the path of culvert in a guest.
const culvertPath = "/culvert"

// programs is the directory of programs in a guest.
const programs = "/bin"

// idleProcessors is a GOMAXPROCS that leaves some of Go's processors idle at all times.
const idleProcessors = 4

// Kinds of lines on the guest's second serial port. Each line begins with its kind.
const (
	sayProgress = "progress"
	sayOutput   = "output"
	sayAnswer   = "answer"
)

// ErrNotInGuest is the error of Init outside of a guest.
var ErrNotInGuest = errors.New("only the first process of a guest can do this: use 'culvert bench insn'")

// Init is the first process of a guest. It prepares the system, does the job, answers and powers the machine off.
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
			options = "mode=0700" // culvert trusts pins only in a directory that no one else can write to
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
	// The kernel goes on working for a while after boot, and that work must not be counted. The sleep costs next to no real
	// time, because the guest's clock skips idle time.
	time.Sleep(3 * time.Second)
	if job.Instructions != nil {
		// Garbage collection would be counted, and there is memory enough without it.
		debug.SetGCPercent(-1)
		// Go's monitor takes a processor away from a thread that has been in a system call for 20 us. It waits 10 ms as
		// long as other processors are idle.
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

// loadModules loads kernel modules, except those that are loaded already.
func loadModules(names ...string) error {
	for _, name := range names {
		module, err := os.ReadFile("/modules/" + name + ".ko")
		if err != nil {
			return err
		}
		if len(module) == 0 { // part of the kernel's image
			continue
		}
		if err := unix.InitModule(module, ""); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load the module %s: %w", name, err)
		}
	}
	return nil
}

// runCommand runs a program and forwards its output line by line. failed tells whether its exit status was not 0. A
// program that cannot be started is an error.
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
		err = fmt.Errorf("%w: the guest may lack the program's dynamic linker", err)
	}
	return false, err
}

// say writes a line to the second serial port and waits until it has been transmitted, so that the port raises no
// interrupt later.
func say(kind string, text []byte) error {
	port, err := os.OpenFile(emulators[hostArch()].answer, os.O_WRONLY|unix.O_NOCTTY, 0)
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
	const drain = 1 // the argument that tcdrain(3) passes
	for {
		// Waiting ends early when Go's scheduler sends this thread a signal. The line has been written by then.
		if err := unix.IoctlSetInt(fd, unix.TCSBRK, drain); err != unix.EINTR {
			return err
		}
	}
}

// sayer is a writer that says each line, under its own value as the kind. Each write has one or more whole lines.
type sayer string

func (s sayer) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		if err := say(string(s), bytes.TrimRight(line, "\n")); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// lineWriter forwards output in whole lines and keeps the rest until flush.
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
