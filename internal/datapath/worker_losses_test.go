// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"encoding/binary"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/stats"
	"culvert/internal/testbed"
)

// flood runs a frame through the program count times on one CPU, in batches as a driver's poll does.
func flood(t *testing.T, inst scionplane.Plane, frame []byte, iface string, cpu, count int) {
	t.Helper()
	var set, before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &before) }()
	err := inst.Flood(frame, testbed.Device(t, iface).Index, count)
	if err != nil {
		t.Fatal(err)
	}
}

// TestFullQueueIsCounted floods a worker with a queue for one packet. It does so on the worker's own CPU, where the worker
// takes no packet from the queue during a batch.
func TestFullQueueIsCounted(t *testing.T) {
	testbed.InNamespace(t)
	two := online(t)
	cpu := two[1]
	in, other, out := testbed.AddVeth(t, "v0", "v1"), testbed.AddVeth(t, "v4", "v5"), testbed.AddVeth(t, "v2", "v3")
	s := testbed.AddSink(t, "v3")
	inst := attachWorkers(t, scionbed.Config(1, 2), datapath.Workers{CPUs: []int{cpu}, Queue: 1}, false, "v0", "v2", "v4")
	scionbed.Open(t, inst, out)
	want := map[string]uint64{}
	check := func(when string) {
		t.Helper()
		for end := time.Now().Add(testbed.Patience); ; time.Sleep(time.Millisecond) {
			settled := true
			for iface, sent := range want {
				port, by, total := testbed.Counted(t, inst, iface)
				lost, fwd := port.Losses[stats.LossWorkerQueue], by[scionbed.Forwarded]
				// Live frames come back as they were forwarded, and pass then.
				if total == sent && fwd > 0 && lost > sent/2 {
					continue
				}
				if settled = false; total > sent || time.Now().After(end) {
					t.Fatalf("%s: %d packets sent into %s, counted %d: %v, lost %v", when, sent, iface, total, by, port.Losses)
				}
			}
			if settled {
				return
			}
		}
	}
	send := func(iface string, frame []byte) {
		flood(t, inst, frame, iface, two[0], 1)
		flood(t, inst, frame, iface, cpu, 640)
		want[iface] += 641
	}
	frame, otherFrame := scionbed.TransitFrame(t, in, scionbed.Key), scionbed.TransitFrame(t, other, scionbed.Key)
	send("v0", frame)
	check("at first")
	send("v4", otherFrame)
	check("with another interface")
	// The next generation adds to the counters.
	inst.Close()
	inst = attachWorkers(t, scionbed.Config(1, 2), datapath.Workers{CPUs: []int{cpu}, Queue: 2}, false, "v0", "v2", "v4")
	defer func() { inst.Close() }()
	send("v0", frame)
	check("after a swap")
	var all uint64
	for iface := range want {
		_, by, _ := testbed.Counted(t, inst, iface)
		all += by[scionbed.Forwarded]
	}
	if err := s.Await(all); err != nil {
		t.Error(err)
	}
}

// TestWorkerLossesFromTracepoints runs the programs on the tracepoints with made-up arguments, since a worker that runs out
// of memory cannot be provoked.
func TestWorkerLossesFromTracepoints(t *testing.T) {
	testbed.InNamespace(t)
	two := online(t)
	cpu := two[1]
	in := testbed.AddVeth(t, "v0", "v1")
	inst := attachWorkers(t, scionbed.Config(1, 2), datapath.Workers{CPUs: []int{cpu}}, false, "v0")
	defer func() { inst.Close() }()
	flood(t, inst, scionbed.TransitFrame(t, in, scionbed.Key), "v0", two[0], 1)
	first, err := inst.WorkerMap()
	if err != nil {
		t.Fatal(err)
	}
	inst.Close()
	inst = attachWorkers(t, scionbed.Config(1, 2), datapath.Workers{CPUs: []int{cpu}}, false, "v0")
	second, err := inst.WorkerMap()
	if err != nil {
		t.Fatal(err)
	}
	gen := filepath.Join(inst.Dir(), strconv.Itoa(datapath.Generations(inst.Dir())[0]))
	want := uint64(0)
	for _, c := range []struct {
		name         string
		mapID, drops uint32
		counted      uint64
	}{
		{"workers of the former generation", first, 3, 3},
		{"workers of this generation", second, 5, 5},
		{"no drops", second, 0, 0},
		{"workers of another program", first + second + 1, 7, 0},
		{"no map", 0, 9, 0},
	} {
		runTracepoint(t, gen, "xdp_cpumap_kthread", uint64(c.mapID), 8, uint64(c.drops), 0, 0)
		want += c.counted
		if port, _, _ := testbed.Counted(t, inst, "v0"); port.Losses["worker"] != want {
			t.Errorf("%s: lost %v, want %d", c.name, port.Losses, want)
		}
	}
}

// TestLossDuringTakeOver has the next generation take over between the programs of both on one event: it is counted once, and so
// are those before and after it. A generation of a process that died is attached between them.
func TestLossDuringTakeOver(t *testing.T) {
	testbed.InNamespace(t)
	cpus := online(t)
	var one unix.CPUSet
	one.Set(cpus[0])
	if err := unix.SchedSetaffinity(0, &one); err != nil { // of this thread, which ends with the test
		t.Fatal(err)
	}
	in := testbed.AddVeth(t, "v0", "v1")
	cfg := scionbed.Config(1, 2)
	inst := attachWorkers(t, cfg, datapath.Workers{CPUs: []int{cpus[1]}}, false, "v0")
	defer func() { inst.Close() }()
	flood(t, inst, scionbed.TransitFrame(t, in, scionbed.Key), "v0", cpus[0], 1)
	workers, err := inst.WorkerMap()
	if err != nil {
		t.Fatal(err)
	}
	former := datapath.Generations(inst.Dir())[0]
	datapath.LeaveDeadGeneration(t, inst.Instance, scionbed.Parts(cfg), in)
	dead := datapath.Generations(inst.Dir())[0]
	datapath.LeaveDeadGeneration(t, inst.Instance, scionbed.Parts(cfg), in)
	next := datapath.Generations(inst.Dir())[0]
	dropped := func(generation int) {
		t.Helper()
		runTracepoint(t, filepath.Join(inst.Dir(), strconv.Itoa(generation)), "xdp_cpumap_kthread", uint64(workers), 8, 1, 0, 0)
	}
	wantLost := uint64(0)
	for _, event := range []struct {
		name   string
		during func() // between the programs of the former and the others
	}{
		{"before", func() {}},
		{"the next generation takes over", func() { datapath.CountLossesBy(t, inst.Instance, uint32(next)) }},
		{"after", func() {}},
		{"the former is in force again", func() { datapath.CountLossesBy(t, inst.Instance, uint32(former)) }},
		{"at the end", func() {}},
	} {
		dropped(former)
		event.during()
		dropped(dead)
		dropped(next)
		// Neither counts what comes while the former gets back in force.
		if event.name != "the former is in force again" {
			wantLost++
		}
		if port, _, _ := testbed.Counted(t, inst, "v0"); port.Losses["worker"] != wantLost {
			t.Errorf("%s: lost %v, want %d", event.name, port.Losses, wantLost)
		}
	}
}

// runTracepoint runs the program that a generation has on a tracepoint, with the given arguments.
func runTracepoint(t *testing.T, gen, tracepoint string, args ...uint64) {
	t.Helper()
	l, err := link.LoadPinnedLink(filepath.Join(gen, datapath.TracePrefix+tracepoint), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil {
		t.Fatal(err)
	}
	prog, err := ebpf.NewProgramFromID(info.Program)
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	ctx := make([]byte, 0, 8*len(args))
	for _, a := range args {
		ctx = binary.NativeEndian.AppendUint64(ctx, a)
	}
	if _, err := prog.Run(&ebpf.RunOptions{Context: ctx}); err != nil {
		t.Fatal(err)
	}
}

// TestWorkAtOnce receives on the worker's own CPU: packets do not queue until another CPU has put some
// into the queue, and then all of them do.
func TestWorkAtOnce(t *testing.T) {
	testbed.InNamespace(t)
	two := online(t)
	in, out := testbed.AddVeth(t, "v0", "v1"), testbed.AddVeth(t, "v2", "v3")
	s := testbed.AddSink(t, "v3")
	inst := attachWorkers(t, scionbed.Config(1, 2), datapath.Workers{CPUs: two[1:], Queue: 1}, false, "v0", "v2")
	defer func() { inst.Close() }()
	scionbed.Open(t, inst, out)
	frame := scionbed.TransitFrame(t, in, scionbed.Key)
	flood(t, inst, frame, "v0", two[1], 64)
	if port, by, total := testbed.Counted(t, inst, "v0"); total != 64 || port.Losses[stats.LossWorkerQueue] != 0 {
		t.Errorf("at once: counted %v, lost %v", by, port.Losses)
	}
	flood(t, inst, frame, "v0", two[0], 1)
	flood(t, inst, frame, "v0", two[1], 64)
	if port, by, _ := testbed.Counted(t, inst, "v0"); port.Losses[stats.LossWorkerQueue] < 60 {
		t.Errorf("queued: counted %v, lost %v", by, port.Losses)
	}
	if err := s.Await(1); err != nil {
		t.Error(err)
	}
}
