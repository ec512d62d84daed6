// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"os"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/host/trust"
)

// ServerPID returns the process that keeps the instance in step, 0 if there is none or if it is in
// a PID namespace that cannot be seen from here.
func (i *Instance) ServerPID() int {
	if i.serves() {
		return os.Getpid()
	}
	return trust.LockHolder(i.dir)
}

// ID tells the instance from others that have had its name, by the inode of its directory: the same in all namespaces.
// 0 is for one that is gone, or has nothing pinned.
func (i *Instance) ID() uint64 {
	var st unix.Stat_t
	if i.dir == "" || unix.Stat(i.dir, &st) != nil {
		return 0
	}
	return st.Ino
}

// LoadedAt returns when the program that runs was loaded, which is when the instance was last
// attached or its configuration changed. It is false where the kernel does not tell.
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
