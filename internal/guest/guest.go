// SPDX-License-Identifier: Apache-2.0

// Package guest runs culvert and its tests on stock Debian kernels in QEMU. One nanosecond of the guest's clock is one
// instruction, so counts are the same on every run. This needs no root.
package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"culvert/internal/bench/scenario/insn"
	"culvert/internal/guest/cards"
)

// Job is the work of a guest, which finds it in its initial file system as /job.json.
type Job struct {
	// Modules are kernel modules that the guest loads first. It has those and others in /modules.
	Modules []string `json:"modules"`
	// Instructions, if set, says which instructions to count.
	Instructions *insn.Options `json:"instructions,omitempty"`
	// Commands run one after the other.
	Commands []Command `json:"commands,omitempty"`
}

// Command is a program to run in the guest.
type Command struct {
	// Name identifies the command in Answer.Failed.
	Name string `json:"name"`
	// Args is the program and its arguments. Dir is the directory to run it in.
	Args []string `json:"args"`
	Dir  string   `json:"dir"`
}

// Answer is the result of a Job.
type Answer struct {
	// Error says why the job could not be done. It is empty if it was.
	Error string `json:"error,omitempty"`
	// Instructions answers Job.Instructions.
	Instructions *insn.Instructions `json:"instructions,omitempty"`
	// Failed lists the names of the commands whose exit status was not 0.
	Failed []string `json:"failed,omitempty"`
}

// Machine describes a guest to boot.
type Machine struct {
	Kernel Kernel
	Job    Job
	// Files maps paths in the guest to files of the host. They are executable there. culvert itself is always added.
	Files map[string]string
	// Wires are pairs of cards, by their numbers (cards.Near, cards.Far). They need a kernel of flavor Standard.
	Wires []cards.Wire
	// Memory is in MiB.
	Memory int
	// Limit bounds the time from boot to answer.
	Limit time.Duration
	// Progress receives a line for each step, Output the output of the commands.
	Progress, Output io.Writer
}

// Run boots the guest, waits for its answer and ends it. It also ends the guest when ctx ends.
func (m Machine) Run(ctx context.Context) (a Answer, err error) {
	dir, err := os.MkdirTemp("", "culvert-guest-")
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m.Job.Modules = modules
	if m.Job.Instructions == nil { // counts should depend on no module that they do not need
		m.Job.Modules = m.Kernel.modules()
	}
	root := dir + "/root.cpio"
	if err := m.writeRoot(ctx, root); err != nil {
		return a, fmt.Errorf("make the guest's file system: %w", err)
	}
	fmt.Fprintf(m.Progress, "booting Linux %s\n", m.Kernel)
	if a, err = m.boot(ctx, dir, root); err != nil {
		return a, fmt.Errorf("guest with Linux %s: %w", m.Kernel, err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("guest with Linux %s: %s", m.Kernel, a.Error)
	}
	return a, nil
}

// writeRoot writes the initial file system: culvert, the job, kernel modules, m.Files, and the libraries that programs need.
func (m Machine) writeRoot(ctx context.Context, name string) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	a := newArchive(f)
	for _, dir := range []string{"dev", "proc", "run", "sys", "tmp"} {
		a.dir(dir)
	}
	self, err := m.Kernel.Arch.self()
	if err != nil {
		return err
	}
	files := map[string]string{culvertPath: self}
	maps.Copy(files, m.Files)
	needed, err := m.Kernel.Arch.libraries(ctx, slices.Collect(maps.Values(files)))
	if err != nil {
		return err
	}
	maps.Copy(files, needed)
	for _, to := range sortedKeys(files) {
		data, err := os.ReadFile(files[to])
		if err != nil {
			return err
		}
		a.file(to, 0o755, data)
	}
	for _, name := range m.Kernel.modules() {
		data, err := m.Kernel.module(name)
		if err != nil {
			return err
		}
		a.file("modules/"+name+".ko", 0o644, data)
	}
	job, err := json.Marshal(m.Job)
	if err != nil {
		return err
	}
	a.file("job.json", 0o644, job)
	return a.close()
}
