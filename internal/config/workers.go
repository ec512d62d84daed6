// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"

	"culvert/internal/host/cpus"
)

// Upper bounds of [workers]: those of internal/datapath and the kernel.
const (
	maxWorkers = 64
	maxQueue   = 16384
)

// Workers configures the CPUs that packets are spread over.
type Workers struct {
	// CPUs is an array of numbers, or a string in the form of taskset(1): "1-3,5".
	CPUs CPUList `toml:"cpus"`
	// Queue is how many packets may wait for each worker. The data plane has a default for nil.
	Queue *int `toml:"queue"`
}

// CPUList holds the numbers of CPUs.
type CPUList []int

// UnmarshalText reads the string form.
func (l *CPUList) UnmarshalText(text []byte) error {
	list, err := cpus.Parse(string(text))
	*l = list
	if err != nil {
		return &listError{err}
	}
	return nil
}

// listError marks the error of a list of CPUs, to which the decoder adds no position if the value is not a string.
type listError struct{ error }

// check returns an error for workers that the data plane would refuse.
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

// QueueLen returns the configured length of a worker's queue in packets, 0 for the default.
func (w *Workers) QueueLen() int {
	if w == nil || w.Queue == nil {
		return 0
	}
	return *w.Queue
}

// CPUNumbers returns the configured CPUs, nil without workers.
func (w *Workers) CPUNumbers() []int {
	if w == nil {
		return nil
	}
	return w.CPUs
}
