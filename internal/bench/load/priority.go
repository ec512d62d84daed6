// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// urgent lets a thread, 0 for the calling one, run before all ordinary ones on its CPU: as a packet's interrupt would,
// and so that what else the machine does is not taken for the device's loss. Where the kernel gives a group of
// processes no real-time share, a high ordinary priority has to do.
func setRealtime(thread int) error {
	attr := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	err := unix.SchedSetAttr(thread, attr, 0)
	if errors.Is(err, unix.EPERM) {
		const highest = -20
		err = unix.Setpriority(unix.PRIO_PROCESS, thread, highest)
	}
	if err != nil {
		return fmt.Errorf("give thread %d priority: %w", thread, err)
	}
	return nil
}

// SetNice gives a thread, 0 for the calling one, a high ordinary priority. Threads that run much Go must not be urgent:
// its runtime may spin until another thread of ours has run, which an urgent one on the same CPU never lets happen.
func SetNice(thread int, nice int) error {
	if err := unix.Setpriority(unix.PRIO_PROCESS, thread, nice); err != nil {
		return fmt.Errorf("give thread %d priority: %w", thread, err)
	}
	return nil
}

// SetReceiverRealtime makes the thread that receives on a device urgent (see ReceiveOn).
func SetReceiverRealtime(e End) error {
	threads, err := NAPIThreads(e.Name)
	for _, thread := range threads {
		err = errors.Join(err, setRealtime(thread))
	}
	return err
}
