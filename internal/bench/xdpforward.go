// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// xdpForwardProgram is the program of xdp-tools that forwards by the kernel's tables.
const xdpForwardProgram = "xdp-forward"

// xdpForward is xdp-tools' forwarder. It pins what it loads in /sys/fs/bpf, so it is run where that is a file system
// that nobody else sees, and that is gone with this process.
type xdpForward struct {
	// program is the file name, empty for the one in the PATH.
	program string
	space   *Space
	names   []string
	// commands are run one after the other by the thread that sees the file system.
	commands chan []string
	results  chan error
	on       bool
}

// Available tells whether the program is there.
func (d *xdpForward) Available() error {
	_, err := d.find()
	return err
}

func (d *xdpForward) find() (string, error) {
	name := d.program
	if name == "" {
		name = xdpForwardProgram
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("find %s: %w: it is in the package xdp-tools of Debian 13 and later, or leave the row out", name, err)
	}
	return path, nil
}

// Prepare makes the place that it is run in.
func (d *xdpForward) Prepare(_ context.Context, p Path) error {
	if _, err := d.find(); err != nil {
		return err
	}
	d.space, d.names = p.In.Space, []string{p.In.Name, p.Out.Name}
	d.commands, d.results = make(chan []string), make(chan error)
	go d.serve()
	return <-d.results
}

// serve runs commands on a thread with a /sys/fs/bpf of its own, until there are no more. The thread ends with it.
func (d *xdpForward) serve() {
	runtime.LockOSThread()
	err := d.space.enter()
	if err == nil {
		err = unix.Unshare(unix.CLONE_NEWNS)
	}
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err == nil {
		err = unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, "")
	}
	if err != nil {
		err = fmt.Errorf("make a place for the pins of %s: %w", xdpForwardProgram, err)
	}
	d.results <- err
	for args := range d.commands {
		d.results <- d.call(args)
	}
	close(d.results)
}

// call runs the program. An error has the last line of what it said.
func (d *xdpForward) call(args []string) error {
	program, err := d.find()
	if err != nil {
		return err
	}
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
		return fmt.Errorf("run %s %s: %w: %s", program, strings.Join(args, " "), err, lines[len(lines)-1])
	}
	return nil
}

// run has the thread run the program.
func (d *xdpForward) run(args ...string) error {
	d.commands <- args
	return <-d.results
}

func (d *xdpForward) Attach(context.Context, Path) error {
	d.on = true
	return d.run(append([]string{"load", "-m", "native"}, d.names...)...)
}

// Frames are those of the group, which have the router's address.
func (*xdpForward) Frames(_ Path, common [][]byte) ([][]byte, error) { return common, nil }

// Losses are the kernel's.
func (d *xdpForward) Losses() (map[string]uint64, error) { return kernelLosses(d.space) }

func (d *xdpForward) Detach() error {
	if !d.on {
		return nil
	}
	d.on = false
	return d.run(append([]string{"unload"}, d.names...)...)
}

// Release lets the place go, with all pins in it.
func (d *xdpForward) Release() error {
	if d.commands == nil {
		return nil
	}
	err := d.Detach()
	close(d.commands)
	for range d.results {
		err = errors.Join(err, errors.New("an answer that nobody waited for"))
	}
	return err
}
