// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ServerPID returns the process that keeps the instance in step, 0 if there is none or if it is in
// a PID namespace that cannot be seen from here.
func (i *Instance) ServerPID() int {
	if i.serves() {
		return os.Getpid()
	}
	var st unix.Stat_t
	if err := unix.Stat(i.dir, &st); err != nil {
		return 0
	}
	f, err := os.Open("/proc/locks")
	if err != nil {
		return 0
	}
	defer f.Close()
	return flockHolder(f, &st)
}

// flockHolder finds the holder of a flock(2) in the form of /proc/locks (proc_locks(5)): the fields
// are number, kind, mode, access, PID, device and inode, and the range.
func flockHolder(locks io.Reader, file *unix.Stat_t) int {
	id := fmt.Sprintf("%02x:%02x:%d", unix.Major(file.Dev), unix.Minor(file.Dev), file.Ino)
	s := bufio.NewScanner(locks)
	for s.Scan() {
		f := strings.Fields(s.Text())
		// Somebody who waits for a lock has an arrow in place of the kind.
		if len(f) < 6 || f[1] != "FLOCK" || f[3] != "WRITE" || f[5] != id {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
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
