// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the culvert binary end to end: in labs of network namespaces, together with the real SCION programs, under
// load with counted packets.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"culvert/internal/lab"
	"culvert/internal/testbed"
)

// patience bounds every wait. Tests that pass wait much shorter.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests make network namespaces and load eBPF programs: run them as root")
		os.Exit(1)
	}
	if err := checkBinary(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go downOnSignal()
	os.Exit(runTests(m))
}

// runTests runs the tests with a temporary directory for the state that culvert keeps from run to run.
func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "culvert-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	os.Setenv("STATE_DIRECTORY", dir)
	return m.Run()
}

// labs holds the labs that are up.
var labs sync.Map

// downOnSignal takes all labs down when a signal interrupts the tests.
func downOnSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	<-signals
	labs.Range(func(l, _ any) bool {
		if err := l.(*lab.Lab).Down(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return true
	})
	os.Exit(1)
}

func root() string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	return dir
}

func program() string { return filepath.Join(root(), "bin", "culvert") }

// checkBinary returns an error if the binary is older than the sources.
func checkBinary() error {
	built, err := os.Stat(program())
	if err != nil {
		return fmt.Errorf("these tests drive %s: run 'make build' first", program())
	}
	for _, dir := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root(), dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
				return err
			}
			if ext := filepath.Ext(path); ext != ".go" && ext != ".o" {
				return nil
			}
			if info, err := d.Info(); err == nil && info.ModTime().After(built.ModTime()) {
				return fmt.Errorf("%s is older than %s: run 'make build' first", program(), path)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// up sets up a lab for this test alone.
func up(t *testing.T, kind string, o lab.Options) *lab.Lab {
	t.Helper()
	o.Name = fmt.Sprintf("e%d%s", os.Getpid(), o.Name)
	o.Culvert = program()
	o.Peers = lab.Peers{Module: filepath.Join(root(), "peers"), Bin: filepath.Join(root(), "bin", "peers")}
	o.Out = t.Output()
	l, err := lab.Up(t.Context(), kind, o)
	check(t, err)
	labs.Store(l, nil)
	t.Cleanup(func() {
		defer labs.Delete(l)
		if t.Failed() {
			showLogs(t, l)
		}
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// showLogs logs the last lines of the routers' logs.
func showLogs(t *testing.T, l *lab.Lab) {
	logs, _ := filepath.Glob(filepath.Join(l.Dir, "logs", "*-router.log"))
	for _, log := range logs {
		b, _ := os.ReadFile(log)
		lines := strings.Split(strings.TrimSpace(string(b)), "\n")
		t.Logf("%s ends with:\n%s", filepath.Base(log), strings.Join(lines[max(0, len(lines)-15):], "\n"))
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wait polls until done returns true.
func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after %s", what, patience)
		}
	}
}

// culvert runs the binary in a namespace of a lab and returns its output. The test fails if the command does.
func culvert(t *testing.T, l *lab.Lab, ns string, args ...string) string {
	t.Helper()
	out, err := l.Run(t.Context(), ns, append([]string{program()}, args...)...)
	if err != nil {
		t.Fatalf("culvert %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// process is a program that runs in a lab, such as 'culvert run'.
type process struct {
	t    *testing.T
	cmd  *lab.Cmd
	out  testbed.Output
	done chan struct{}
}

// start runs a program in a namespace of a lab until the test ends it.
func start(t *testing.T, l *lab.Lab, ns string, argv ...string) *process {
	t.Helper()
	p := &process{t: t, done: make(chan struct{})}
	var err error
	p.cmd, err = l.Command(context.Background(), ns, argv...)
	check(t, err)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	check(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		if p.running() {
			p.end(syscall.SIGKILL)
		}
		if t.Failed() {
			t.Logf("output of %s:\n%s", strings.Join(argv, " "), p.out.String())
		}
	})
	return p
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// end sends a signal and waits until the process is gone.
func (p *process) end(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("process %d does not end on %s", p.cmd.Process.Pid, sig)
	}
}

// exitStatus returns the exit status of a program, -1 if it has not ended by itself.
func exitStatus(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	default:
		return -1
	}
}
