// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/host/pins"
)

// This file exports what tests of package datapath_test need. They attach data planes with parts of stages, whose packages
// import this one.

var (
	// Generations is generations.
	Generations = generations
	// LockInstance is lockInstance.
	LockInstance = lockInstance
)

// TracePrefix is tracePrefix.
const TracePrefix = tracePrefix

// Dir returns the directory of the instance's pins.
func (i *Instance) Dir() string { return i.dir }

// Cookie returns the cookie of the instance's network namespace.
func (i *Instance) Cookie() uint64 { return i.meta.Cookie }

// FlowKey returns the key of the hash that assigns flows to workers.
func (i *Instance) FlowKey() []uint32 { return i.meta.FlowKey }

// WorkerMap is workerMap.
func (i *Instance) WorkerMap() (uint32, error) { return i.workerMap() }

// ReplaceNetNS changes the network namespace in the description of the only generation in dir, which is of instance i.
func ReplaceNetNS(t *testing.T, i *Instance, dir string, inode uint32) {
	t.Helper()
	m := i.meta
	m.NetNS = inode
	replaceMeta(t, dir, m)
}

// Flood runs a frame through rx count times, in batches as a driver's poll does.
func (i *Instance) Flood(frame []byte, index, count int) error {
	_, err := i.prog.Run(&ebpf.RunOptions{
		Data:    frame,
		Context: bpfobj.XDPMD{DataEnd: uint32(len(frame)), IngressIfindex: uint32(index)},
		Repeat:  uint32(count),
		Flags:   unix.BPF_F_TEST_XDP_LIVE_FRAMES,
	})
	return err
}

// LeaveDeadGeneration pins a generation as a process leaves it that dies before the links are swapped.
func LeaveDeadGeneration(t *testing.T, inst *Instance, parts []Part, ports ...*net.Interface) {
	t.Helper()
	here := pins.Space{Inode: inst.meta.NetNS, Cookie: inst.meta.Cookie}
	o := Options{Name: inst.Name(), Parts: parts}
	m, err := newMeta(inst, here, o)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := load(inst, m, o, ports)
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	dead.dir = inst.dir
	gen, err := dead.pinGeneration()
	if err != nil {
		t.Fatal(err)
	}
	number, err := generationNumber(gen)
	if err == nil {
		err = dead.watchLosses(gen, number, inst)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// CountLossesBy makes a generation the one that counts losses, and nothing else.
func CountLossesBy(t *testing.T, inst *Instance, generation uint32) {
	t.Helper()
	if err := inst.maps[bpfobj.LossesMapLossesBy].Put(uint32(0), generation); err != nil {
		t.Fatal(err)
	}
}

// replaceMeta changes the description of the only generation in dir.
func replaceMeta(t *testing.T, dir string, m meta) {
	t.Helper()
	metas, err := filepath.Glob(filepath.Join(dir, "*", metaMap))
	if err != nil || len(metas) != 1 {
		t.Fatalf("descriptions %v, %v", metas, err)
	}
	em, err := m.toMap()
	if err != nil {
		t.Fatal(err)
	}
	defer em.Close()
	if err := os.Remove(metas[0]); err != nil {
		t.Fatal(err)
	}
	if err := em.Pin(metas[0]); err != nil {
		t.Fatal(err)
	}
}

// PortStays is portStays.
const PortStays = portStays

// RunsWholeBatches is runsWholeBatches.
func RunsWholeBatches() bool { return runsWholeBatches() }

// SetRunsWholeBatches has the kernel count as one that does or that does not, until the test ends.
func SetRunsWholeBatches(t testing.TB, whole bool) {
	t.Helper()
	former := runsWholeBatches
	t.Cleanup(func() { runsWholeBatches = former })
	runsWholeBatches = func() bool { return whole }
}
