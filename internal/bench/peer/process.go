// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"culvert/internal/bench/load"
)

// Process is a program that runs in a namespace. The kernel kills it when this process ends.
type Process struct {
	cmd    *exec.Cmd
	output string
	done   chan struct{}
}

// Start starts a program in a namespace, with dir as its directory. Its output goes to output.log there. It runs on the given
// CPUs; none stands for all.
func Start(s *load.Netns, dir string, cpus []int, program string, args ...string) (*Process, error) {
	log, err := os.Create(filepath.Join(dir, "output.log"))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	p := &Process{cmd: exec.Command(program, args...), output: log.Name(), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	// A session of its own keeps an interrupt from the keyboard away from the program. The kernel sends the signal when the
	// thread that started the program ends, so that thread waits for the program.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		defer close(p.done)
		err := s.Do(func() error {
			// The program inherits the CPUs of the thread that starts it.
			err := load.Pin(cpus...)
			if err == nil {
				err = p.cmd.Start()
			}
			started <- err
			if err == nil {
				_ = p.cmd.Wait()
			}
			return nil
		})
		if err != nil {
			started <- err
		}
	}()
	err = errors.Join(<-started, log.Close())
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return p, nil
}

// Ended tells whether the program has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// LastLine is the last line of the program's output.
func (p *Process) LastLine() string {
	out, err := os.ReadFile(p.output)
	if err != nil {
		return "no output"
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	return strings.TrimSpace(string(lines[len(lines)-1]))
}

// Stop ends the program with SIGTERM, and with SIGKILL if it has not ended after grace.
func (p *Process) Stop(grace time.Duration) error {
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("end %s: %w", p.cmd.Path, err)
		}
		select {
		case <-p.done:
			return nil
		case <-time.After(grace):
		}
	}
	<-p.done
	return nil
}
