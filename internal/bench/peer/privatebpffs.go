// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"bytes"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"culvert/internal/bench/load"
)

// PrivateBPFFS runs programs that pin what they load in /sys/fs/bpf, where that is a file system that nobody else sees, and
// that is gone with this process. The zero value is one that has not been opened.
type PrivateBPFFS struct {
	commands chan []string
	results  chan pinResult
}

// pinResult is what a command said.
type pinResult struct {
	out string
	err error
}

// Open makes the place, in a network namespace.
func (p *PrivateBPFFS) Open(s *load.Netns) error {
	p.commands, p.results = make(chan []string), make(chan pinResult)
	go p.serve(s)
	return (<-p.results).err
}

// There tells whether the place has been opened and not closed.
func (p *PrivateBPFFS) IsOpen() bool { return p.commands != nil }

// serve runs commands on a thread with a /sys/fs/bpf of its own, until there are no more. The thread ends with it.
func (p *PrivateBPFFS) serve(s *load.Netns) {
	runtime.LockOSThread()
	err := s.Enter()
	if err == nil {
		err = unix.Unshare(unix.CLONE_NEWNS)
	}
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err == nil {
		err = unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, "mode=0700")
	}
	if err != nil {
		err = fmt.Errorf("make a place for pins that nobody else sees: %w", err)
	}
	p.results <- pinResult{err: err}
	for args := range p.commands {
		p.results <- call(args)
	}
	close(p.results)
}

// call runs a program. An error has the last line of what it said.
func call(args []string) pinResult {
	cmd := exec.Command(args[0], args[1:]...)
	// An interruption from the keyboard reaches only us.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
		err = fmt.Errorf("run %s: %w: %s", strings.Join(args, " "), err, lines[len(lines)-1])
	}
	return pinResult{string(out), err}
}

// Run has the thread run a program, and returns what it said.
func (p *PrivateBPFFS) Run(args ...string) (string, error) {
	p.commands <- args
	r := <-p.results
	return r.out, r.err
}

// Close lets the place go, with all pins in it.
func (p *PrivateBPFFS) Close() {
	if !p.IsOpen() {
		return
	}
	close(p.commands)
	<-p.results
	p.commands = nil
}
