// SPDX-License-Identifier: Apache-2.0

package load

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/testbed"
)

// The thread of a CPUMAP is found by map and CPU.
func TestCPUMapThread(t *testing.T) {
	testbed.NeedRoot(t)
	cpu := LastCPU()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.CPUMap, KeySize: 4, ValueSize: 4, MaxEntries: uint32(cpu + 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if pid, err := CPUMapThread(m, cpu); err == nil {
		t.Errorf("thread %d of an empty map", pid)
	}
	if err := m.Put(uint32(cpu), uint32(64)); err != nil {
		t.Fatal(err)
	}
	pid, err := CPUMapThread(m, cpu)
	if err != nil {
		t.Fatal(err)
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &set); err != nil || set.Count() != 1 || !set.IsSet(cpu) {
		t.Errorf("bound to %v, error %v, want CPU %d alone", set, err, cpu)
	}
	if used, err := ProcessTime(pid); err != nil || used <= 0 {
		t.Errorf("it has used %s, error %v", used, err)
	}
}

// A process's time is that of its threads, to the nanosecond, and not that of another one.
func TestProcessTime(t *testing.T) {
	before, err := ProcessTime(unix.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	// The thread that works is the one whose time is looked at.
	err = OnThread(func() error {
		start, err := threadTime()
		for now := start; err == nil && now-start < 20*time.Millisecond; {
			now, err = threadTime()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	after, err := ProcessTime(unix.Getpid())
	if err != nil || after-before < 20*time.Millisecond || after%time.Millisecond == 0 && before%time.Millisecond == 0 {
		t.Errorf("from %s to %s, error %v", before, after, err)
	}
	if _, err := ProcessTime(1 << 23); err == nil {
		t.Error("no error for a process that is not there")
	}
}
