// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/host/trust"
)

// ServerPID returns the process that serves the instance. It is 0 if there is none, or if its PID namespace cannot be seen
// from here.
func (i *Instance) ServerPID() int {
	if i.serves() {
		return os.Getpid()
	}
	return trust.LockHolder(i.dir)
}

// ID returns the inode number of the instance's directory. It tells the instance from earlier ones of its name, and is the
// same in all namespaces. It is 0 for an instance that was removed and for a temporary one.
func (i *Instance) ID() uint64 {
	var st unix.Stat_t
	if i.dir == "" || unix.Stat(i.dir, &st) != nil {
		return 0
	}
	return st.Ino
}

// LoadedAt returns when the pipeline was loaded: when a process last attached, or changed the configuration. It is false if
// the kernel does not tell.
func (i *Instance) LoadedAt() (time.Time, bool) {
	info, err := i.prog.Info()
	if err != nil {
		return time.Time{}, false
	}
	sinceBoot, ok := info.LoadTime()
	if !ok {
		return time.Time{}, false
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return time.Time{}, false
	}
	return time.Now().Add(sinceBoot - time.Duration(now.Nano())), true
}
