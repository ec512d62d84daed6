// SPDX-License-Identifier: Apache-2.0

package captureplane

import (
	"bufio"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf/perf"

	"culvert/internal/bpfobj"
	"culvert/internal/filter/filterplane"
	"culvert/internal/testbed"
)

func tree(t *testing.T) string { t.Helper(); return testbed.Tree(t) }

func testVeth(t *testing.T, name string) { t.Helper(); testbed.AddVeth(t, name, name+"p") }

// flood sends a frame count times, testbed.Window at a time, and waits until all are counted.
func (b *bed) flood(frame []byte, count int) {
	b.t.Helper()
	_, before := b.counted()
	for sent := 0; sent < count; {
		for range min(testbed.Window, count-sent) {
			b.send(frame)
			sent++
		}
		b.await("the packets are counted", func() bool { _, n := b.counted(); return n >= before+uint64(sent) })
	}
	if _, n := b.counted(); n != before+uint64(count) {
		b.t.Errorf("%d packets counted, want %d", n-before, count)
	}
}

// load sends packets of several flows while the test does something else, and returns how many were sent. All of them are counted, and
// arrive.
func (b *bed) load(while func()) (sent uint64) {
	b.t.Helper()
	sink := eastSink(b)
	before, _ := b.counted()
	var sender *testbed.Sender
	b.peer.Must(b.t, func() error { sender = testbed.StartSender(b.t, b.westPeer, sink, b.flows()...); return nil })
	while()
	b.must(sender.Stop())
	sent = sender.Sent()
	b.must(sink.Await(sent))
	after, _ := b.counted()
	var all uint64
	for reason, n := range after {
		n -= before[reason]
		all += n
		// Until a new generation knows the router's devices, the kernel forwards.
		if n > 0 && !strings.HasPrefix(reason, "fwd") && reason != "pass route-off" {
			b.t.Errorf("%d packets sent, %d counted as %s", sent, n, reason)
		}
	}
	if all != sent {
		b.t.Errorf("%d packets sent, counted as %v, before as %v", sent, after, before)
	}
	if n, err := sink.Packets(); err != nil || n != sent {
		b.t.Errorf("%d packets sent, %d have arrived, %v", sent, n, err)
	}
	return sent
}

// eastSink counts what arrives at the peer of east.
func eastSink(b *bed) *testbed.Sink {
	b.t.Helper()
	var s *testbed.Sink
	testbed.IP(b.t, "link set east mtu 1500") // the sink takes no frames of several buffers
	b.peer.Must(b.t, func() error { s = testbed.AddSink(b.t, "eastp"); return nil })
	return s
}

// whole wants each packet to have its way in and its verdict, except for those under way at the ends of the capture.
func (b *bed) whole(packets []*seen, atMost int) {
	b.t.Helper()
	missing := 0
	for _, p := range packets {
		if p.in == nil || p.out == nil {
			missing++
		}
	}
	if missing > atMost {
		b.t.Errorf("%d packets of %d lack a record", missing, len(packets))
	}
}

// TestCaptureUnderLoad begins and ends captures while packets are forwarded.
func TestCaptureUnderLoad(t *testing.T) {
	for name, workers := range map[string][]int{"without workers": nil, "with workers": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, workers...)
			b.drops("udp dst port 7")
			tags, _ := b.programs()
			pins := tree(t)
			b.load(func() {
				for range 2 {
					s := b.start(Options{InBytes: 60, OutBytes: 60}, "")
					packets := b.join(b.records(s, 400, true))
					b.whole(packets, testbed.Window)
					b.must(s.Close())
				}
			})
			b.plain(tags, pins)
		})
	}
}

// tally counts records as they come.
type tally struct {
	ended             chan bool
	in, out, enqueued uint64
	broken            uint64 // packets with other records than one of their way in, and one of what has become of them
	pending           map[uint64]bool
	err               error
}

// tallies counts the records of a session until it is told to end, and there are no more.
func (b *bed) tallies(s *Session) (end func() *tally) {
	y := &tally{ended: make(chan bool), pending: make(map[uint64]bool)}
	var stop atomic.Bool
	go func() {
		defer close(y.ended)
		var raw perf.Record
		var r bpfobj.CaptureCaptureRecord
		for {
			s.Reader().SetDeadline(time.Now().Add(30 * time.Millisecond))
			last := stop.Load()
			err := s.Read(&raw)
			if errors.Is(err, os.ErrDeadlineExceeded) && !last {
				continue
			}
			if err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					y.err = err
				}
				break
			}
			if _, err := binary.Decode(raw.RawSample, binary.NativeEndian, &r); err != nil {
				y.err = err
				break
			}
			switch bpfobj.CaptureCaptureKind(r.Kind) {
			case bpfobj.CaptureCaptureKindCAPTURE_IN:
				y.in++
				if y.pending[r.Id] {
					y.broken++
				}
				y.pending[r.Id] = true
				continue
			case bpfobj.CaptureCaptureKindCAPTURE_OUT:
				y.out++
			case bpfobj.CaptureCaptureKindCAPTURE_ENQUEUED:
				y.enqueued++
			}
			if !y.pending[r.Id] {
				y.broken++
			}
			delete(y.pending, r.Id)
		}
		y.broken += uint64(len(y.pending))
	}()
	return func() *tally {
		stop.Store(true)
		<-y.ended
		b.must(y.err)
		return y
	}
}

// TestCaptureGoesOn changes the filter and makes new generations of the data plane while packets are captured. None is lost, and each is
// shown.
func TestCaptureGoesOn(t *testing.T) {
	b := newBed(t)
	s := b.start(Options{InBytes: 20, OutBytes: 20, Interfaces: []string{"west", "east"}}, "udp")
	end := b.tallies(s)
	sent := b.load(func() {
		for _, change := range []func(){
			func() { b.drops("udp dst port 7") },
			func() { b.attach() },
			func() { b.attach(0, 1) },
			func() { b.drops("udp dst port 7") },
			func() { b.attach() },
			func() {
				b.must(filterplane.Edit(b.inst, func(f *filterplane.Filter) error { *f = filterplane.Filter{}; return nil }))
			},
		} {
			_, before := b.counted()
			change()
			b.await("packets are forwarded", func() bool { _, n := b.counted(); return n > before+3*testbed.Window })
		}
	})
	y := end()
	lost, err := s.Lost()
	b.must(err)
	// A machine that is busy may not keep up with reading.
	if lost == 0 && (y.out != sent || y.in != sent+y.enqueued || y.broken != 0) || y.out+lost < sent || y.in+lost < sent || y.out > sent {
		t.Errorf("of %d packets %d were shown as they came in, %d were enqueued, %d have verdicts, %d are not whole; %d records lost",
			sent, y.in, y.enqueued, y.out, y.broken, lost)
	}
	if y.enqueued == 0 {
		t.Error("no packet has gone to a worker")
	}
	// What the filter drops is shown with its reason under each program.
	b.drops("udp")
	if r := b.run(b.flows()[:1])[0]; r.reason != "drop filter" {
		t.Errorf("got %s", r.reason)
	}
	packets := b.join(b.records(s, 2, true))
	if len(packets) != 1 || packets[0].out == nil || packets[0].out.reason() != "drop filter" {
		t.Errorf("got %+v", packets)
	}
	b.must(s.Close())
	_, maps := b.programs()
	if strings.Contains(strings.Join(maps, " "), "capture_") || strings.Contains(tree(t), "/capture") {
		t.Errorf("maps %v, pins\n%s", maps, tree(t))
	}
}

// TestCaptureUnread has a buffer that is full at once. The records that are lost are counted, and no packet is.
func TestCaptureUnread(t *testing.T) {
	b := newBed(t)
	s, err := Start(b.inst, Options{Program: all, InBytes: 100, OutBytes: 100}, others(), os.Getpagesize())
	b.must(err)
	defer s.Close()
	sent := b.load(func() {
		b.await("records are lost", func() bool { n, err := s.Lost(); b.must(err); return n > 1000 })
	})
	lost, err := s.Lost()
	b.must(err)
	var read uint64
	for {
		r := &perf.Record{}
		s.Reader().SetDeadline(time.Now().Add(30 * time.Millisecond))
		if err := s.Read(r); err != nil {
			break
		}
		read++
	}
	if read == 0 || read+lost != 2*sent {
		t.Errorf("%d records read and %d lost, want 2 for each of %d packets", read, lost, sent)
	}
}

// TestCaptureTwice wants only one capture at a time on a data plane.
func TestCaptureTwice(t *testing.T) {
	b := newBed(t)
	s := b.start(Options{InBytes: 10}, "")
	_, err := Start(b.inst, Options{Program: all}, others(), 4096)
	if err == nil || !strings.Contains(err.Error(), "captures on data plane "+bedName+" already, for itself or for a client of its socket: end that capture first") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
	if swept, err := Sweep(b.inst, others()); swept || err != nil {
		t.Errorf("a capture that runs was swept away: %v, %v", swept, err)
	}
	b.run(b.frames()[:1])
	if packets := b.join(b.read(s, 2)); len(packets) != 1 {
		t.Errorf("%d packets, want 1: the first capture goes on", len(packets))
	}
	b.must(s.Close())
	s = b.start(Options{InBytes: 10}, "")
	b.must(s.Close())
	// Options that cannot be loaded leave all as it was.
	tags, _ := b.programs()
	pins := tree(t)
	if _, err := Start(b.inst, Options{Program: all[:0]}, others(), 4096); err == nil {
		t.Error("an empty program is accepted")
	}
	b.plain(tags, pins)
}

// killedCapture starts a process that captures, and kills it.
func (b *bed) killedCapture() {
	b.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asCapturer+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	b.must(err)
	b.must(cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "capturing\n" {
		b.t.Errorf("the process says %q, %v", line, err)
	}
	if swept, err := Sweep(b.inst, others()); swept || err != nil {
		b.t.Errorf("a capture of another process was swept away: %v, %v", swept, err)
	}
	b.must(cmd.Process.Kill())
	_ = cmd.Wait()
}

// TestCaptureKilled kills the process that captures. Packets flow, and its programs go with Sweep, with the next capture, and with
// the next generation.
func TestCaptureKilled(t *testing.T) {
	workers := []int{0, 1}[:min(2, runtime.NumCPU())]
	b := newBed(t, workers...)
	b.drops("udp dst port 7")
	frames := b.frames()
	want := b.run(frames)
	tags, _ := b.programs()
	pins := tree(t)
	for what, restore := range map[string]func(){
		"Sweep": func() {
			if swept, err := Sweep(b.inst, others()); !swept || err != nil {
				t.Errorf("swept %v, %v", swept, err)
			}
		},
		"the next capture": func() {
			s := b.start(Options{InBytes: 10}, "")
			b.run(frames[:1])
			if packets := b.join(b.read(s, 2)); len(packets) != 1 {
				t.Errorf("%d packets, want 1", len(packets))
			}
			b.must(s.Close())
		},
		"the next generation": func() { b.attach(workers...) },
	} {
		b.killedCapture()
		same(t, "killed", b.run(frames), want)
		if now, _ := b.programs(); slices.Equal(now, tags) {
			t.Errorf("%s: the programs are those without a capture already", what)
		}
		restore()
		t.Log(what)
		b.plain(tags, pins)
		same(t, what, b.run(frames), want)
		if swept, err := Sweep(b.inst, others()); swept || err != nil {
			t.Errorf("%s: swept %v, %v", what, swept, err)
		}
	}
}

// TestCaptureOfWhatGoes deletes an interface, and then the data plane, while packets are captured.
func TestCaptureOfWhatGoes(t *testing.T) {
	b := newBed(t)
	b.drops("udp dst port 7")
	s := b.start(Options{InBytes: 10, OutBytes: 10, Interfaces: []string{"east", "west"}}, "")
	testbed.DeleteDevice(t, "east")
	b.run([][]byte{b.packet("198.51.100.1", 64, 2000, 20)})
	if packets := b.join(b.read(s, 2)); len(packets) != 1 {
		t.Errorf("%d packets, want 1", len(packets))
	}
	b.must(b.inst.DetachAll())
	b.must(s.Close())
	if got := tree(t); strings.Contains(got, bedName) {
		t.Errorf("pins are left:\n%s", got)
	}
}

// TestCaptureEndsOnce starts and ends captures from several threads. One at a time gets it, and at the end none is left.
func TestCaptureEndsOnce(t *testing.T) {
	b := newBed(t)
	tags, _ := b.programs()
	pins := tree(t)
	var threads sync.WaitGroup
	began := make(chan error, 12)
	for range 4 {
		inst, err := b.inst.Now()
		b.must(err)
		threads.Add(1)
		go func() {
			defer threads.Done()
			defer inst.Close()
			for range 3 {
				s, err := Start(inst, Options{Program: all, InBytes: 10}, others(), 1<<16)
				if err == nil {
					err = s.Close()
					began <- err
				} else if !strings.Contains(err.Error(), "already, for itself or for a client of its socket: end that capture first") {
					began <- err
				}
			}
		}()
	}
	threads.Wait()
	close(began)
	n := 0
	for err := range began {
		n++
		if err != nil {
			t.Error(err)
		}
	}
	if n == 0 {
		t.Error("none has begun")
	}
	b.plain(tags, pins)
}
