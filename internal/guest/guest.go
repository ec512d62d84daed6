// SPDX-License-Identifier: Apache-2.0

// Package guest runs culvert and its tests on stock Debian kernels in QEMU, where one nanosecond of the guest's
// clock is one instruction, the same on every run. No root is needed.
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
)

// Job is what a guest has to do. It is in the guest's first file system as /job.json.
type Job struct {
	// Modules are loaded first, from /modules, where others are that may be needed later.
	Modules []string `json:"modules"`
	// Instructions, if set, are to be counted.
	Instructions *insn.Options `json:"instructions,omitempty"`
	// Commands are run one after the other.
	Commands []Command `json:"commands,omitempty"`
}

// Command is a program to run in the guest.
type Command struct {
	// Name is for messages.
	Name string `json:"name"`
	// Args has the program and its arguments, Dir the directory to run it in.
	Args []string `json:"args"`
	Dir  string   `json:"dir"`
}

// Answer is what a guest has done.
type Answer struct {
	// Error is why the job could not be done.
	Error string `json:"error,omitempty"`
	// Instructions answers Job.Instructions.
	Instructions *insn.Instructions `json:"instructions,omitempty"`
	// Failed are the names of commands that did not end with status 0.
	Failed []string `json:"failed,omitempty"`
}

// Machine is a guest to be.
type Machine struct {
	Kernel Kernel
	Job    Job
	// Files are put into the guest by name, with leave to be executed, beside culvert itself.
	Files map[string]string
	// Memory is in MiB.
	Memory int
	// Limit is how long it may take.
	Limit time.Duration
	// Progress takes a line for each step, Output what commands print.
	Progress, Output io.Writer
}

// Run boots the guest, lets it do its job and ends it, also when ctx ends.
func (m Machine) Run(ctx context.Context) (a Answer, err error) {
	dir, err := os.MkdirTemp("", "culvert-guest-")
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m.Job.Modules = modules
	if m.Job.Instructions == nil { // what is counted shall not depend on more than it needs
		m.Job.Modules = allModules
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

// writeRoot makes the first file system: culvert, the job, modules, files, and the libraries that they need.
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
	self, err := os.Executable()
	if err != nil {
		return err
	}
	files := map[string]string{culvertPath: self}
	maps.Copy(files, m.Files)
	needed, err := libraries(ctx, slices.Collect(maps.Values(files)))
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
	for _, name := range allModules {
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
