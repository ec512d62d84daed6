// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scionproto/scion/pkg/addr"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/host/cpus"
	"culvert/internal/scion/scionpkt"
	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// online returns two of the online CPUs. The test fails if there is only one.
func online(t *testing.T) []int {
	t.Helper()
	list, err := cpus.Online()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 2 {
		t.Fatalf("spreading over CPUs needs two of them: there is %s", cpus.Format(list))
	}
	return list[:2]
}

func attachWorkers(t *testing.T, c scionplane.Config, w datapath.Workers, generic bool, interfaces ...string) scionplane.Plane {
	t.Helper()
	inst, err := datapath.Attach(datapath.Options{Name: "br1", Interfaces: interfaces, Workers: w, Generic: generic, Parts: scionbed.Parts(c)})
	if err != nil {
		t.Fatal(err)
	}
	return scionplane.Of(inst)
}

// tap receives a copy of each frame that the kernel receives from a device, in order.
type tap struct {
	fd    int
	other func(frame []byte) bool // tells which frames are left out; nil: none
}

func addTap(t *testing.T, dev *net.Interface) tap {
	t.Helper()
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index}); err != nil {
		t.Fatal(err)
	}
	return tap{fd: fd}
}

// take waits for want frames and returns them. Frames that this host sends through the device are left out.
func (p tap) take(t *testing.T, want int) (frames []string) {
	t.Helper()
	b := make([]byte, 4096)
	for end := time.Now().Add(testbed.Patience); len(frames) < want; {
		n, from, err := unix.Recvfrom(p.fd, b, 0)
		if err == unix.EAGAIN && time.Now().Before(end) {
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil {
			t.Fatalf("%d frames of %d have come: %v", len(frames), want, err)
		}
		if from.(*unix.SockaddrLinklayer).Pkttype != unix.PACKET_OUTGOING && (p.other == nil || !p.other(b[:n])) {
			frames = append(frames, string(b[:n]))
		}
	}
	return frames
}

// empty fails the test if there is a frame left.
func (p tap) empty(t *testing.T) {
	t.Helper()
	b := make([]byte, 4096)
	for {
		n, _, err := unix.Recvfrom(p.fd, b, 0)
		if err == unix.EAGAIN {
			return
		}
		if err != nil || p.other == nil || !p.other(b[:n]) {
			t.Errorf("one frame too many has come, of %d bytes, %v", n, err)
			return
		}
	}
}

// flowTag is the length of the tag at the end of a frame: the flow, and the frame's number in it, 32 bits each.
const flowTag = 8

const (
	mixFlows   = 41 // odd, so that spreading round-robin would bring each flow to both CPUs
	mixPackets = 20 // of each flow
)

// The MAC addresses of the devices are fixed, so that all data planes receive and send the same frames.
var mixInMAC, mixOutMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}

// mixture returns frames of mixFlows flows. Three of four flows are forwarded. The others go to the kernel: one kind from a
// worker, the other from the CPU that has received it.
func mixture(t *testing.T) (frames [][]byte) {
	t.Helper()
	for n := range mixPackets {
		for flow := range mixFlows {
			key := scionbed.Key
			if flow%8 == 7 {
				key[0]++ // a wrong MAC: punted by the worker
			}
			f := scionbed.SizedTransitFrame(t, &net.Interface{HardwareAddr: mixInMAC}, key, 16+(n*37+flow*11)%200, func(s *scionpkt.Spec) {
				switch flow % 4 {
				case 0:
					s.FlowID = uint32(flow)
				case 1:
					s.SrcHost = addr.MustParseHost(fmt.Sprintf("192.0.2.%d", flow))
				case 2:
					s.DstHost = addr.MustParseHost(fmt.Sprintf("2001:db8::%d", flow))
				case 3:
					s.SrcHost = addr.MustParseHost(fmt.Sprintf("2001:db8::%d", flow))
					s.DstHost = addr.MustParseHost("2001:db8::f")
					s.SrcIA += addr.IA(flow)
				}
			})
			if flow%8 == 6 {
				f[14+20+8+8] = 2 // one-hop path: punted by the CPU that receives it
			}
			tag := f[len(f)-flowTag:]
			binary.BigEndian.PutUint32(tag, uint32(flow))
			binary.BigEndian.PutUint32(tag[4:], uint32(n))
			frames = append(frames, f)
		}
	}
	return frames
}

// byFlow groups frames by the flow in their tag, in their order.
func byFlow(frames []string) map[uint32][]string {
	flows := make(map[uint32][]string)
	for _, f := range frames {
		flow := binary.BigEndian.Uint32([]byte(f[len(f)-flowTag:]))
		flows[flow] = append(flows[flow], f)
	}
	return flows
}

// forwardedOn returns how many packets of an interface each CPU has forwarded.
func forwardedOn(t *testing.T, inst scionplane.Plane, iface string) map[int]uint64 {
	t.Helper()
	on := make(map[int]uint64)
	for n, r := range datapath.Reasons() {
		if r.Verdict != datapath.VerdictFwd {
			continue
		}
		var values []bpfobj.PipelineCounter
		key := uint32(inst.PortSlot(iface)*2*bpfobj.ReasonCount + n)
		if err := inst.Map(bpfobj.PipelineMapCounters).Lookup(key, &values); err != nil {
			t.Fatal(err)
		}
		for cpu, v := range values {
			if v.Packets > 0 {
				on[cpu] += v.Packets
			}
		}
	}
	return on
}

// outcome is what becomes of the mixture.
type outcome struct {
	forwarded, passed map[uint32][]string // frames by flow
	reasons           map[string]uint64
	on                map[int]uint64 // packets forwarded by each CPU
}

// sendMixture sends the frames through a new data plane.
func sendMixture(t *testing.T, frames [][]byte, w datapath.Workers, generic bool) outcome {
	t.Helper()
	in, out := testbed.AddVeth(t, "v0", "v1"), testbed.AddVeth(t, "v2", "v3")
	defer testbed.DeleteDevice(t, "v0")
	defer testbed.DeleteDevice(t, "v2")
	in.HardwareAddr, out.HardwareAddr = mixInMAC, mixOutMAC
	testbed.SetMAC(t, in)
	testbed.SetMAC(t, out)
	testbed.AttachForeign(t, "v3")
	inst := attachWorkers(t, scionbed.Config(1, 2), w, generic, "v0", "v2")
	defer inst.Close()
	defer func() {
		if err := inst.DetachAll(); err != nil {
			t.Error(err)
		}
	}()
	scionbed.Open(t, inst, out)
	fwd, up := addTap(t, testbed.Device(t, "v3")), addTap(t, in)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	to := &unix.SockaddrLinklayer{Ifindex: testbed.Device(t, "v1").Index}
	var o outcome
	var got, gotUp []string
	// Send in batches and wait for each, so that no queue overflows on a slow machine.
	for batch := range slices.Chunk(frames, 2*mixFlows) {
		want := 0
		for _, f := range batch {
			if err := unix.Sendto(fd, f, 0, to); err != nil {
				t.Fatal(err)
			}
			if binary.BigEndian.Uint32(f[len(f)-flowTag:])%8 < 6 {
				want++
			}
		}
		got = append(got, fwd.take(t, want)...)
		gotUp = append(gotUp, up.take(t, len(batch)-want)...)
	}
	fwd.empty(t)
	up.empty(t)
	o.forwarded, o.passed = byFlow(got), byFlow(gotUp)
	port, reasons, total := testbed.Counted(t, inst, "v0")
	if total != uint64(len(frames)) {
		t.Errorf("%d packets sent, counted %d: %v", len(frames), total, reasons)
	}
	for name, n := range port.Losses {
		if n > 0 {
			t.Errorf("%d packets lost: %s", n, name)
		}
	}
	o.reasons, o.on = reasons, forwardedOn(t, inst, "v0")
	return o
}

// TestWorkersGiveTheSameAnswers sends the same packets through no, one and two workers. The same frames are forwarded and
// passed to the kernel, each flow in its order, and each frame is counted once.
func TestWorkersGiveTheSameAnswers(t *testing.T) {
	testbed.InNamespace(t)
	two := online(t)
	frames := mixture(t)
	for _, generic := range []bool{false, true} {
		direct := sendMixture(t, frames, datapath.Workers{}, generic)
		for _, list := range [][]int{two[:1], two[1:], two} {
			t.Logf("generic %v, workers on %s", generic, cpus.Format(list))
			o := sendMixture(t, frames, datapath.Workers{CPUs: list}, generic)
			compareFlows(t, "forwarded", o.forwarded, direct.forwarded)
			compareFlows(t, "passed up", o.passed, direct.passed)
			if !maps.Equal(o.reasons, direct.reasons) {
				t.Errorf("counted %v, without workers %v", o.reasons, direct.reasons)
			}
			var sum uint64
			for _, cpu := range list {
				if o.on[cpu] == 0 {
					t.Errorf("no packet on CPU %d: %v", cpu, o.on)
				}
				sum += o.on[cpu]
			}
			var want uint64
			for _, flow := range direct.forwarded {
				want += uint64(len(flow))
			}
			if sum != want || want == 0 {
				t.Errorf("forwarded on CPUs %v, not all on workers", o.on)
			}
		}
	}
}

func compareFlows(t *testing.T, what string, got, want map[uint32][]string) {
	t.Helper()
	for flow, frames := range want {
		if !slices.Equal(got[flow], frames) {
			t.Errorf("%s: flow %d has %d frames, want %d; first difference at %d", what, flow, len(got[flow]), len(frames),
				firstDifference(got[flow], frames))
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d flows, want %d", what, len(got), len(want))
	}
}

func firstDifference(a, b []string) int {
	for n := range min(len(a), len(b)) {
		if a[n] != b[n] {
			return n
		}
	}
	return min(len(a), len(b))
}

// workerThreads counts the kernel threads of a map of workers.
func workerThreads(t *testing.T, id uint32) (n int) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		comm, _ := os.ReadFile(path)
		if bytes.HasPrefix(comm, []byte("cpumap/")) && strings.HasSuffix(strings.TrimSpace(string(comm)), fmt.Sprintf("map:%d", id)) {
			n++
		}
	}
	return n
}

// TestWorkersChangeUnderLoad changes the workers while packets of many flows are forwarded. Each packet is forwarded and
// counted once, and the threads of former workers end.
func TestWorkersChangeUnderLoad(t *testing.T) {
	testbed.InNamespace(t)
	two := online(t)
	in, out := testbed.AddVeth(t, "v0", "v1"), testbed.AddVeth(t, "v2", "v3")
	s := testbed.AddSink(t, "v3")
	inst := attachWorkers(t, scionbed.Config(1, 2), datapath.Workers{}, false, "v0", "v2")
	defer func() { inst.Close() }()
	scionbed.Open(t, inst, out)
	var frames [][]byte
	for flow := range 32 {
		frames = append(frames, scionbed.SizedTransitFrame(t, in, scionbed.Key, 64, func(s *scionpkt.Spec) { s.FlowID = uint32(flow) }))
	}
	snd := testbed.StartSender(t, testbed.Device(t, "v1"), s, frames...)
	swaps := []datapath.Workers{
		{CPUs: two[1:]}, {}, {CPUs: two}, {CPUs: two}, {CPUs: two[:1], Queue: 512}, {CPUs: two}, {},
	}
	var ids []uint32
	for n, w := range swaps {
		before, err := s.Packets()
		if err != nil {
			t.Fatal(err)
		}
		inst.Close()
		if inst.Instance, err = datapath.Attach(datapath.Options{Name: "br1", Interfaces: []string{"v0", "v2"}, Workers: w, Parts: scionbed.Parts(scionbed.Config(1, 2))}); err != nil {
			t.Fatal(err)
		}
		if err := s.Await(before + testbed.Window + 1); err != nil {
			t.Errorf("after swap %d: %v", n, err)
			break
		}
		id, err := inst.WorkerMap()
		if err != nil {
			t.Fatal(err)
		}
		if id != 0 {
			ids = append(ids, id)
			if threads := workerThreads(t, id); threads != len(w.CPUs) {
				t.Errorf("%d threads for workers on %v", threads, w.CPUs)
			}
		}
	}
	if err := snd.Stop(); err != nil {
		t.Fatalf("sending: %v", err)
	}
	sent := snd.Sent()
	if err := s.Await(sent); err != nil {
		t.Errorf("after the end: %v", err)
	}
	port, by, total := testbed.Counted(t, inst, "v0")
	if arrived, err := s.Packets(); arrived != sent || err != nil {
		t.Errorf("%d packets sent, %d arrived, %v", sent, arrived, err)
	}
	if total != sent || by[scionbed.Forwarded] != sent {
		t.Errorf("%d packets sent, counted %d: %v", sent, total, by)
	}
	for name, n := range port.Losses {
		if n != 0 {
			t.Errorf("%d packets lost: %s", n, name)
		}
	}
	for _, id := range ids {
		for end := time.Now().Add(testbed.Patience); workerThreads(t, id) > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("threads of map %d are still there", id)
			}
		}
	}
}

// TestWorkersOutliveTheProcess reads workers and flow key from the pins.
func TestWorkersOutliveTheProcess(t *testing.T) {
	testbed.InNamespace(t)
	two := online(t)
	testbed.AddVeth(t, "v0", "v1")
	w := datapath.Workers{CPUs: []int{two[1], two[0]}, Queue: 100}
	inst := attachWorkers(t, scionbed.Config(1), w, false, "v0")
	key := inst.FlowKey()
	inst.Close()
	var err error
	inst.Instance, err = datapath.OpenHere("br1")
	if err != nil {
		t.Fatal(err)
	}
	if got := inst.Workers(); !slices.Equal(got.CPUs, two) || got.Queue != 100 {
		t.Errorf("workers are %+v, want %+v in order", got, w)
	}
	inst.Close()
	inst = attachWorkers(t, scionbed.Config(1), datapath.Workers{CPUs: two}, false, "v0")
	defer inst.Close()
	if !slices.Equal(inst.FlowKey(), key) || slices.Max(key) == 0 {
		t.Errorf("flows were spread by %v, now by %v", key, inst.FlowKey())
	}
	if got := inst.Workers().Queue; got != datapath.DefaultQueue {
		t.Errorf("queue is %d", got)
	}
}

// TestWorkersRefused attaches with invalid workers, which fails and attaches nothing.
func TestWorkersRefused(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	for _, c := range []struct {
		w    datapath.Workers
		want string
	}{
		{datapath.Workers{CPUs: []int{4095}}, "workers: CPU 4095 is not online: there are "},
		{datapath.Workers{CPUs: []int{0, 0}}, "workers: CPU 0 is given twice"},
		{datapath.Workers{CPUs: []int{0}, Queue: 16385}, "queue of 16385 packets for each worker: use 1 to 16384"},
		{datapath.Workers{CPUs: []int{0}, Queue: -1}, "queue of -1 packets"},
		{datapath.Workers{CPUs: make([]int, 65)}, "workers: 65 CPUs: use at most 64"},
	} {
		_, err := datapath.Attach(datapath.Options{Name: "br1", Interfaces: []string{"v0"}, Workers: c.w, Parts: scionbed.Parts(scionbed.Config(1))})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error is %v, want %q", c.w, err, c.want)
		}
	}
	if id := testbed.XDPProgram(t, "v0"); id != 0 {
		t.Errorf("program %d is attached", id)
	}
}
