// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"

	"culvert/internal/host/cpus"
)

// Bounds of [workers], as internal/datapath and the kernel have them.
const (
	maxWorkers = 64
	maxQueue   = 16384
)

// Workers configures the CPUs that packets are spread over.
type Workers struct {
	// CPUs is a list of numbers or, in quotes, one as of taskset(1): "1-3,5".
	CPUs CPUList `toml:"cpus"`
	// Queue is how many packets may wait for each worker; 0 leaves it to the data plane.
	Queue *int `toml:"queue"`
}

// CPUList holds numbers of CPUs.
type CPUList []int

// UnmarshalText reads the form in quotes.
func (l *CPUList) UnmarshalText(text []byte) error {
	list, err := cpus.Parse(string(text))
	*l = list
	if err != nil {
		return &listError{err}
	}
	return nil
}

// listError is the error of a list of CPUs. The decoder does not say where it is if the value is no
// text at all.
type listError struct{ error }

// check refuses workers that the data plane would not start.
func (w *Workers) check(at Position) error {
	switch {
	case w == nil:
		return nil
	case w.CPUs == nil:
		return at.Locate("", fmt.Errorf("workers.cpus is missing: name CPUs, as in \"1-3\", or leave [workers] out"))
	}
	if err := cpus.Check(w.CPUs, maxWorkers); err != nil {
		return at.Locate("cpus", fmt.Errorf("workers.cpus: %w", err))
	}
	if w.Queue != nil && (*w.Queue < 1 || *w.Queue > maxQueue) {
		return at.Locate("queue", fmt.Errorf("workers.queue = %d: use 1 to %d packets", *w.Queue, maxQueue))
	}
	return nil
}

// QueueLen is the queue configured, 0 if none is.
func (w *Workers) QueueLen() int {
	if w == nil || w.Queue == nil {
		return 0
	}
	return *w.Queue
}

// CPUNumbers are the CPUs configured, none without workers.
func (w *Workers) CPUNumbers() []int {
	if w == nil {
		return nil
	}
	return w.CPUs
}
