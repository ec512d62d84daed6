// SPDX-License-Identifier: Apache-2.0

package sflowstage

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	decoder "github.com/netsampler/goflow2/v2/decoders/sflow"
	"golang.org/x/sys/unix"

	"culvert/internal/capture/captureplane"
	"culvert/internal/datapath"
	"culvert/internal/filter/cbpf"
	"culvert/internal/filter/filterplane"
	"culvert/internal/host/cpus"
	"culvert/internal/scion/scionpkt"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/sflow"
	"culvert/internal/sflow/sflowplane"
	"culvert/internal/stage"
	"culvert/internal/testbed"
)

// TestCounters wants counters of each interface, as the kernel has them.
func TestCounters(t *testing.T) {
	b := newBed(t)
	for range 20 {
		b.send(b.packet("192.0.2.5", 64, 2000, 20))
	}
	b.serve("polling = \"1s\"\nagent = \"192.0.2.200\"\nsub_agent = 5\n")
	got := b.receive("counters", func(r *received) bool { return len(r.counters) >= 4 })
	seen := make(map[uint32][]uint32)
	for _, s := range got.counters {
		c := s.Records[0].Data.(decoder.IfCounters)
		if c.IfIndex != s.Header.SourceIdValue || c.IfType != 6 || c.IfStatus != 3 {
			t.Errorf("counters %+v", c)
		}
		if int(c.IfIndex) == b.west.Index && (c.IfInUcastPkts < 20 || c.IfInOctets < 20*62) {
			t.Errorf("west has %+v", c)
		}
		seen[c.IfIndex] = append(seen[c.IfIndex], s.Header.SampleSequenceNumber)
	}
	for _, index := range []int{b.west.Index, b.east.Index} {
		if fmt.Sprint(seen[uint32(index)]) != "[1 2]" {
			t.Errorf("interface %d: samples %v", index, seen[uint32(index)])
		}
	}
	for n, p := range got.datagrams {
		if agent, _ := netip.AddrFromSlice(p.AgentIP); agent.String() != "192.0.2.200" || p.SubAgentId != 5 || int(p.SequenceNumber) != n+1 || p.IPVersion != 1 {
			t.Errorf("datagram %d is %+v", n, p)
		}
	}
}

// TestTshark has Wireshark read what is sent.
func TestTshark(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Fatal("tshark is missing: run 'make deps'")
	}
	b := newBed(t)
	b.serve("rate = 1\ndrops = 10\n")
	b.send(b.packet("192.0.2.5", 64, 2000, 1000))
	b.send(b.packet("198.51.100.1", 64, 2000, 20))
	got := b.receive("samples", func(r *received) bool { return len(r.flows) >= 2 && len(r.discards) > 0 && len(r.counters) >= 2 })
	path := filepath.Join(t.TempDir(), "sflow.pcap")
	f, err := os.Create(path)
	b.must(err)
	w := pcapgo.NewWriter(f)
	b.must(w.WriteFileHeader(65535, layers.LinkTypeEthernet))
	for _, raw := range got.raw {
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.IPv4(192, 0, 2, 1), DstIP: net.IPv4(192, 0, 2, 2)}
		udp := &layers.UDP{SrcPort: 1000, DstPort: sflow.Port}
		b.must(udp.SetNetworkLayerForChecksum(ip))
		buf := gopacket.NewSerializeBuffer()
		b.must(gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
			&layers.Ethernet{SrcMAC: b.west.HardwareAddr, DstMAC: b.east.HardwareAddr, EthernetType: layers.EthernetTypeIPv4}, ip, udp, gopacket.Payload(raw)))
		b.must(w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(buf.Bytes()), Length: len(buf.Bytes())}, buf.Bytes()))
	}
	b.must(f.Close())
	out, err := exec.Command("tshark", "-n", "-r", path, "-V").CombinedOutput()
	b.must(err)
	text := string(out)
	for _, want := range []string{
		"InMon sFlow", "Flow sample, seq 1", "Flow sample, seq 2", "Counters sample, seq 1", "Next hop: 10.2.0.9", "Next hop source mask: 24", "Next hop destination mask: 24",
		"Raw packet header", "Generic interface counters",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("tshark does not find %q", want)
		}
	}
	if strings.Contains(text, "Malformed") {
		t.Error("tshark finds something malformed")
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestWorkersAndCapture wants each packet to be sampled once, on workers too, and before, during and after a capture, which shows all of
// them. With a filter in front, too.
func TestWorkersAndCapture(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("a worker needs another CPU than the one that packets come in on, and this machine has one")
	}
	b := newBed(t, 0, 1)
	b.serve("rate = 1\npolling = \"0s\"\n")
	b.drops("udp dst port 7")
	var frames [][]byte
	for n := range 24 {
		frames = append(frames, b.packet("192.0.2.5", 64, 2000+n, 20), b.packet("192.0.2.5", 64, 7, 20), b.packet("192.0.2.5", 64, 2000+n, 1400),
			scionbed.SizedTransitFrame(b.t, b.west, scionbed.Key, 64, func(s *scionpkt.Spec) { s.FlowID = uint32(n * 7919) }))
	}
	all := 0
	send := func(what string) {
		t.Helper()
		for _, f := range frames {
			b.send(f)
			time.Sleep(100 * time.Microsecond)
		}
		all += len(frames)
		got := b.receive(what, func(r *received) bool { return len(r.flows) >= len(frames) })
		outputs := make(map[uint32]int)
		for _, s := range got.flows {
			outputs[s.Output]++
			if s.Drops != 0 {
				t.Errorf("%s: %d samples lost", what, s.Drops)
			}
			if h := header(s.Records); len(h.HeaderData) == 0 || int(h.FrameLength) < len(h.HeaderData)+4 {
				t.Errorf("%s: %+v", what, h)
			}
		}
		last := got.flows[len(got.flows)-1]
		if len(got.flows) != len(frames) || int(last.SamplePool) != all || int(last.Header.SampleSequenceNumber) != all {
			t.Errorf("%s: %d samples of %d packets, the last one is %+v, want %d in all", what, len(got.flows), len(frames), last, all)
		}
		if outputs[uint32(b.east.Index)] != 72 || outputs[1<<30|uint32(sflow.ACL)] != 24 {
			t.Errorf("%s: outputs %v", what, outputs)
		}
	}
	send("before")
	s, err := captureplane.Start(b.inst, captureplane.Options{Program: cbpf.Program{{Op: 0x6, K: 1}}, InBytes: 64, OutBytes: 64},
		[]datapath.Fronted{filterplane.NewPart()}, 1<<20)
	b.must(err)
	send("during a capture")
	lost, err := s.Lost()
	b.must(err)
	if lost > 0 {
		t.Errorf("the capture has lost %d records", lost)
	}
	b.must(s.Close())
	send("after it")
}

// TestWorkersLoad has a worker while packets are sampled, while they are captured too, and afterwards: each has programs of its own, which the
// kernel has to load with workers as without. One CPU is enough.
func TestWorkersLoad(t *testing.T) {
	list, err := cpus.Online()
	if err != nil {
		t.Fatal(err)
	}
	b := newBed(t, list[0])
	b.serve("rate = 1\npolling = \"0s\"\n")
	seen := func(what string) {
		t.Helper()
		b.send(b.packet("192.0.2.5", 64, 2000, 20))
		if got := b.receive(what, func(r *received) bool { return len(r.flows) >= 1 }); len(got.flows) != 1 {
			t.Errorf("%s: %d samples of a packet", what, len(got.flows))
		}
	}
	seen("before")
	s, err := captureplane.Start(b.inst, captureplane.Options{Program: cbpf.Program{{Op: 0x6, K: 1}}, InBytes: 64, OutBytes: 64},
		[]datapath.Fronted{filterplane.NewPart()}, 1<<20)
	b.must(err)
	seen("during a capture")
	b.must(s.Close())
	seen("after it")
}

// TestCollectorGone wants packets to be sampled whatever becomes of the collector, and one line in the log for each change.
func TestCollectorGone(t *testing.T) {
	b := newBed(t)
	b.serve("rate = 1\npolling = \"0s\"\n")
	frame := b.packet("192.0.2.5", 64, 2000, 20)
	b.send(frame)
	b.receive("a sample", func(r *received) bool { return len(r.flows) >= 1 })
	process := func() *sflowplane.Process {
		p, err := sflowplane.ProcessOf(b.inst)
		b.must(err)
		if p == nil {
			t.Fatal("the process does not tell of itself")
		}
		return p
	}
	if p := process(); p.Error != "" || p.Collector != b.address().String() || p.Agent != "127.0.0.1" {
		t.Errorf("the process tells %+v", p)
	}
	port := int(b.address().Port())
	b.must(b.collector.Close())
	await(t, "the collector is missed", func() bool { b.send(frame); time.Sleep(50 * time.Millisecond); return process().Error != "" })
	if p := process(); !strings.Contains(p.Error, "refused") || p.Since == nil || !b.served.stats.failing.Load() {
		t.Errorf("the process tells %+v", p)
	}
	for range 20 {
		b.send(frame)
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(quiet + time.Second) // nothing is sent, so nothing is known of a collector that is back
	if process().Error == "" {
		t.Error("the collector counts as being back")
	}
	b.listen(port)
	b.receive("a sample", func(r *received) bool { b.send(frame); return len(r.flows) >= 1 })
	await(t, "the collector is back", func() bool { return process().Error == "" })
	log := b.log.String()
	if strings.Count(log, "gets nothing") != 1 || strings.Count(log, "can be reached again") != 1 || b.served.stats.failing.Load() {
		t.Errorf("log:\n%s", log)
	}
}

// TestUnread wants a process that cannot read its samples to say so once in the log, in status and in the metric.
func TestUnread(t *testing.T) {
	b := newBed(t)
	b.serve("rate = 1\npolling = \"0s\"\n")
	b.send(b.packet("192.0.2.5", 64, 2000, 20))
	b.receive("a sample", func(r *received) bool { return len(r.flows) >= 1 })
	b.served.from.Close()
	var p *sflowplane.Process
	await(t, "the samples cannot be read", func() (unread bool) {
		var err error
		p, err = sflowplane.ProcessOf(b.inst)
		b.must(err)
		return p != nil && p.Unread
	})
	turn := time.Now()
	await(t, "the loop turns again", func() bool { return time.Since(turn) > 2*longest })
	if log := b.log.String(); !strings.Contains(p.Error, "cannot be read") || p.Since == nil || !b.served.stats.failing.Load() || strings.Count(log, "cannot be read") != 1 {
		t.Errorf("the process tells %+v, log:\n%s", p, log)
	}
}

func await(t *testing.T, what string, until func() bool) {
	t.Helper()
	for end := time.Now().Add(testbed.Patience); !until(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not come true: %s", what)
		}
	}
}

// TestDropsLimit wants notifications up to the limit, and the others counted.
func TestDropsLimit(t *testing.T) {
	b := newBed(t)
	var cpu unix.CPUSet
	cpu.Set(0)
	b.must(unix.SchedSetaffinity(0, &cpu)) // so that one CPU counts all
	const limit, sent = 5, 200
	b.serve(fmt.Sprintf("rate = 16777216\npolling = \"0s\"\ndrops = %d\n", limit))
	frame := b.packet("198.51.100.1", 64, 2000, 20)
	begin := time.Now()
	for range sent {
		b.send(frame)
	}
	took := time.Since(begin)
	got := b.receive("notifications", func(r *received) bool { return len(r.discards) >= limit })
	if most := limit * (2 + int(took/time.Second)); len(got.discards) > most {
		t.Errorf("%d notifications in %s", len(got.discards), took)
	}
	told := len(got.discards)
	time.Sleep(1100 * time.Millisecond)
	b.send(frame)
	got = b.receive("one more", func(r *received) bool { return len(r.discards) > 0 })
	last := got.discards[len(got.discards)-1]
	told += len(got.discards)
	if int(last.Header.SampleSequenceNumber) != told || int(last.Drops) != sent+1-told {
		t.Errorf("after %d packets and %d notifications the last one is %+v", sent+1, told, last)
	}
}

// TestReload changes the table while packets flow. Each packet is sampled once, and sequence numbers and counts go on.
func TestReload(t *testing.T) {
	b := newBed(t)
	b.serve("rate = 1\npolling = \"0s\"\n")
	frame := b.packet("192.0.2.5", 64, 2000, 20)
	stop, sent := make(chan bool), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				sent <- n
				return
			default:
				_ = unix.Sendto(b.from, frame, 0, &unix.SockaddrLinklayer{Ifindex: b.westPeer.Index})
				n++
				time.Sleep(500 * time.Microsecond)
			}
		}
	}()
	for _, table := range []string{
		"drops = 10\n",                          // a new program
		"drops = 10\nagent = \"192.0.2.200\"\n", // the same program
		"drops = 10\nheader = 64\n",             // another one
		"drops = 10\nheader = 64\nsub_agent = 1\n",
	} {
		b.serve("rate = 1\npolling = \"0s\"\n" + table)
		time.Sleep(50 * time.Millisecond)
	}
	close(stop)
	n := <-sent
	_, _, counted := testbed.Counted(t, b.inst, "west")
	if int(counted) != n {
		t.Errorf("%d packets were sent, and %d counted", n, counted)
	}
	got := b.receive("all samples", func(r *received) bool { return len(r.flows) >= n })
	pool := uint32(0)
	for i, s := range got.flows {
		if int(s.Header.SampleSequenceNumber) != i+1 || s.Drops != 0 || s.SamplePool < pool {
			t.Fatalf("sample %d is %+v", i+1, s)
		}
		pool = s.SamplePool
	}
	if int(pool) != n || len(got.flows) != n {
		t.Errorf("%d packets, %d samples, a pool of %d", n, len(got.flows), pool)
	}
	for i, p := range got.datagrams {
		if int(p.SequenceNumber) != i+1 {
			t.Fatalf("datagram %d has number %d", i+1, p.SequenceNumber)
		}
	}
	last := header(got.flows[n-1].Records)
	if !bytes.Equal(last.HeaderData, frame[:min(64, len(frame))]) {
		t.Errorf("the last sample has %x", last.HeaderData)
	}
}

// TestReloadOfOthers commits the table that is in force once more, as a reload does that changes only other stages, and as one does that
// fails. The process goes on with what it serves, and closes the other.
func TestReloadOfOthers(t *testing.T) {
	b := newBed(t)
	const table = "rate = 1\npolling = \"0s\"\n"
	b.serve(table)
	frame := b.packet("192.0.2.5", 64, 2000, 20)
	failed := errors.New("another stage fails")
	for n, want := range []error{nil, failed, nil} {
		b.send(frame)
		got := b.receive("a sample", func(r *received) bool { return len(r.flows) > 0 })
		if last := got.datagrams[0]; int(got.flows[0].SamplePool) != n+1 || int(last.SequenceNumber) != n+1 {
			t.Errorf("after %d reloads: %+v", n, last)
		}
		p := b.plan(table)
		next, err := p.Succeed(t.Context(), stage.Start{Process: true, Log: slog.Default()}, b.served)
		b.must(err)
		if !p.ServedBy(b.served) {
			t.Error("sFlow does not go on")
		}
		err = b.inst.Recommit(func(h *datapath.Instance) error { return next.Commit(t.Context(), h, func() error { return want }) })
		if !errors.Is(err, want) {
			t.Errorf("reload %d: %v", n+1, err)
		}
		b.must(next.Close())
	}
	b.serve(table + "agent = \"192.0.2.200\"\n") // with the buffers that there are
	b.send(frame)
	if got := b.receive("a sample", func(r *received) bool { return len(r.flows) > 0 }); got.flows[0].SamplePool != 4 || got.datagrams[0].SequenceNumber != 4 {
		t.Errorf("in the end: %+v", got.datagrams[0])
	}
}
