// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// AvoidRealtime has threads get the highest ordinary priority instead of real-time priority. Tests set it, because others run
// beside them: two real-time threads leave 5 % of two CPUs to everybody else, which breaks the timers of BFD and BGP.
var AvoidRealtime bool

// setRealtime gives a thread real-time priority, 0 for the calling thread. It then runs before all ordinary threads on its
// CPU, as a packet's interrupt would, so that other work of the machine does not look like loss of the device. If the
// process group has no share of real time, the thread gets the highest ordinary priority instead.
func setRealtime(thread int) error {
	const highest = -20
	if AvoidRealtime {
		return SetNice(thread, highest)
	}
	attr := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	err := unix.SchedSetAttr(thread, attr, 0)
	if errors.Is(err, unix.EPERM) {
		return SetNice(thread, highest)
	}
	if err != nil {
		return fmt.Errorf("give thread %d priority: %w", thread, err)
	}
	return nil
}

// SetNice sets the nice value of a thread, 0 for the calling thread. Threads that run much Go code must not have real-time
// priority: Go's runtime may spin until another thread of the process has run, and on the same CPU that thread never would.
func SetNice(thread int, nice int) error {
	if err := unix.Setpriority(unix.PRIO_PROCESS, thread, nice); err != nil {
		return fmt.Errorf("give thread %d priority: %w", thread, err)
	}
	return nil
}

// SetReceiverRealtime gives real-time priority to the kernel threads that receive on a device (see ReceiveOn).
func SetReceiverRealtime(e End) error {
	threads, err := NAPIThreads(e.Name)
	for _, thread := range threads {
		err = errors.Join(err, setRealtime(thread))
	}
	return err
}
