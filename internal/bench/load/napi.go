// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ReceiveOn makes a veth receive in a kernel thread that is bound to a CPU. Without it the CPU that sends into the wire also
// receives at its far end. The veth must have an XDP program, and the thread ends with that. The name of the device must be
// unique on the machine, across all namespaces, because ReceiveOn finds the thread by it.
func ReceiveOn(e End, cpu int) error {
	// The kernel makes a thread for each NAPI instance of the device. It refuses if there is none.
	if err := e.setAttribute("threaded", "1"); err != nil {
		return fmt.Errorf("receive on %s in a kernel thread (an XDP program must be on it): %w", e.Name, err)
	}
	const limit = 2 * time.Second
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		threads, err := NAPIThreads(e.Name)
		if err != nil {
			return err
		}
		for _, pid := range threads {
			var set unix.CPUSet
			set.Set(cpu)
			if err := unix.SchedSetaffinity(pid, &set); err != nil {
				return fmt.Errorf("bind the kernel thread that receives on %s to CPU %d: %w", e.Name, cpu, err)
			}
		}
		if len(threads) > 0 {
			return nil
		}
	}
	return fmt.Errorf("receive on %s in a kernel thread: there is none after %s", e.Name, limit)
}

// NAPIThreads lists the kernel threads that receive on devices of that name.
func NAPIThreads(device string) ([]int, error) {
	return processesNamed(func(comm string) bool { return strings.HasPrefix(comm, "napi/"+device+"-") })
}

// processesNamed lists the processes and kernel threads whose name, with a line end, is one that is wanted.
func processesNamed(wanted func(comm string) bool) ([]int, error) {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		// A process that has ended meanwhile cannot be read.
		comm, err := os.ReadFile(name)
		if err != nil || !wanted(string(comm)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			return nil, fmt.Errorf("read the process number in %s: %w", name, err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// setAttribute writes a file of the device below class/net of a sysfs. A sysfs shows the network namespace that it was
// mounted in, so setAttribute makes one in the device's namespace, without a mount point.
func (e End) setAttribute(name, value string) error {
	return e.Netns.Do(func() (err error) {
		made, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
		if err != nil {
			return fmt.Errorf("open a sysfs: %w", err)
		}
		defer unix.Close(made)
		if err := unix.FsconfigCreate(made); err != nil {
			return fmt.Errorf("make a sysfs: %w", err)
		}
		root, err := unix.Fsmount(made, unix.FSMOUNT_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("mount a sysfs: %w", err)
		}
		defer unix.Close(root)
		file, err := unix.Openat(root, "class/net/"+e.Name+"/"+name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s of %s: %w", name, e.Name, err)
		}
		_, err = unix.Write(file, []byte(value))
		return errors.Join(err, unix.Close(file))
	})
}
