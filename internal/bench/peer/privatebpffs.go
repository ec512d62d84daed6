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

// PrivateBPFFS runs programs with a /sys/fs/bpf of their own, for programs that pin what they load. No other process sees
// it, and it ends with this process. The zero value is one that has not been opened.
type PrivateBPFFS struct {
	commands chan []string
	results  chan commandResult
}

// commandResult is the output of a command, or its error.
type commandResult struct {
	out string
	err error
}

// Open mounts the file system. Programs run in the given network namespace.
func (p *PrivateBPFFS) Open(s *load.Netns) error {
	p.commands, p.results = make(chan []string), make(chan commandResult)
	go p.serve(s)
	return (<-p.results).err
}

// IsOpen tells whether p has been opened and not closed.
func (p *PrivateBPFFS) IsOpen() bool { return p.commands != nil }

// serve runs commands on a thread with a mount namespace of its own until p.commands is closed. The thread ends with serve.
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
		err = fmt.Errorf("mount a private /sys/fs/bpf: %w", err)
	}
	p.results <- commandResult{err: err}
	for args := range p.commands {
		p.results <- call(args)
	}
	close(p.results)
}

// call runs a program. An error has the last line of its output.
func call(args []string) commandResult {
	cmd := exec.Command(args[0], args[1:]...)
	// A session of its own keeps an interrupt from the keyboard away from the program.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
		err = fmt.Errorf("run %s: %w: %s", strings.Join(args, " "), err, lines[len(lines)-1])
	}
	return commandResult{string(out), err}
}

// Run runs a program and returns its output, both streams.
func (p *PrivateBPFFS) Run(args ...string) (string, error) {
	p.commands <- args
	r := <-p.results
	return r.out, r.err
}

// Close unmounts the file system, with all pins in it. Closing one that is not open does nothing.
func (p *PrivateBPFFS) Close() {
	if !p.IsOpen() {
		return
	}
	close(p.commands)
	<-p.results
	p.commands = nil
}
