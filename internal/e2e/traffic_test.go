// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"

	"culvert/internal/bench/load"
	"culvert/internal/lab"
	"culvert/internal/scion/scionpkt"
)

// end describes one end of a lab's wire for the generator and the sink.
func end(t *testing.T, l *lab.Lab, ns, iface string) load.End {
	t.Helper()
	n, err := l.Namespace(ns)
	check(t, err)
	i, err := n.Interface(iface)
	check(t, err)
	var netns *load.Netns
	check(t, l.Do(ns, func() (err error) {
		netns, err = load.CurrentNetns()
		return err
	}))
	t.Cleanup(func() {
		if err := netns.Close(); err != nil {
			t.Error(err)
		}
	})
	return load.End{Netns: netns, Name: iface, Index: i.Index, MAC: i.HardwareAddr()}
}

// newSink adds a sink at an end of a wire until the test ends.
func newSink(t *testing.T, at load.End, o load.SinkOptions) *load.Sink {
	t.Helper()
	s, err := load.NewSink(at, o)
	check(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// settled waits until no more packets arrive and returns what a sink has counted.
func settled(t *testing.T, s *load.Sink) load.Seen {
	t.Helper()
	seen, err := s.Settled(250*time.Millisecond, patience)
	check(t, err)
	return seen
}

// frames returns valid packets for the router of an AS, as the far end of one of its wires sends them.
func frames(t *testing.T, l *lab.Lab, ns string, from, to load.End, o scionpkt.GenerateOptions) [][]byte {
	t.Helper()
	as, err := l.AS(ns)
	check(t, err)
	o.Topology, o.Router = filepath.Join(as.ConfigDir, "topology.json"), as.RouterID
	if o.Key == "" {
		o.Keys = as.Keys
	}
	if o.Flows == 0 {
		o.Flows = 1
	}
	if o.HopFields == 0 {
		o.HopFields = 4
	}
	if as.Host.IsValid() {
		o.Hosts = []string{as.Host.String()}
	}
	o.Family = "4"
	if as.Internal.Addr().Is6() {
		o.Family = "6"
	}
	o.SrcMAC, o.DstMAC = from.MAC.String(), to.MAC.String()
	o.Output = filepath.Join(t.TempDir(), "frames.pcap")
	check(t, scionpkt.GenerateFile(o, io.Discard))
	f, err := os.Open(o.Output)
	check(t, err)
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	check(t, err)
	var all [][]byte
	for {
		frame, _, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return all
		}
		check(t, err)
		all = append(all, frame)
	}
}

// numbers is how many different numbers the packets of a stream have. The sink has a counter for each number. After that many
// packets the numbers start again.
const numbers = 1 << 19

// stream is a flow of numbered packets.
type stream struct {
	frame []byte
	first uint32 // number of the first packet
	sent  atomic.Uint64
	on    atomic.Bool
}

// newStream returns a stream of copies of a frame, numbered from first on. The last eight bytes hold the number and its
// complement, so that checksums are right for each number.
func newStream(frame []byte, first uint32) *stream {
	s := &stream{frame: frame, first: first}
	s.number(first)
	scionpkt.FixOuter(frame)
	s.on.Store(true)
	return s
}

func (s *stream) tagAt() int { return len(s.frame) - 8 }

func (s *stream) number(n uint32) {
	binary.BigEndian.PutUint32(s.frame[s.tagAt():], n)
	binary.BigEndian.PutUint32(s.frame[s.tagAt()+4:], ^n)
}

// steadyLoad sends streams at a steady pace until it is stopped.
type steadyLoad struct {
	t       *testing.T
	streams []*stream
	rounds  atomic.Uint64
	// breathless says that rounds follow each other without a pause.
	breathless atomic.Bool
	quit       chan struct{}
	done       chan error
}

const (
	// A round is one burst of each stream. A burst is much shorter than a veth's queue.
	burst = 25
	round = 500 * time.Microsecond
)

// packetSocket returns a socket that sends frames from an end of a wire.
func packetSocket(t *testing.T, from load.End) int {
	t.Helper()
	fd := -1
	check(t, from.Netns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	}))
	check(t, unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: from.Index}))
	return fd
}

// startLoad starts to send streams from one end of a wire. It sends a packet again if the device's queue is full, so that each
// number has reached the far end.
func startLoad(t *testing.T, from load.End, streams ...*stream) *steadyLoad {
	t.Helper()
	fd := packetSocket(t, from)
	l := &steadyLoad{t: t, streams: streams, quit: make(chan struct{}), done: make(chan error, 1)}
	go func() {
		defer unix.Close(fd)
		l.done <- l.run(fd)
	}()
	t.Cleanup(l.stop)
	return l
}

func (l *steadyLoad) run(fd int) error {
	// Stay on one CPU, where the kernel carries each packet all the way before the next one is sent.
	runtime.LockOSThread()
	var cpus unix.CPUSet
	cpus.Set(load.LastCPU())
	if err := unix.SchedSetaffinity(0, &cpus); err != nil {
		return err
	}
	for {
		select {
		case <-l.quit:
			return nil
		default:
		}
		next := time.Now().Add(round)
		for _, s := range l.streams {
			if !s.on.Load() {
				continue
			}
			for range burst {
				if err := s.send(fd); err != nil {
					return err
				}
			}
		}
		l.rounds.Add(1)
		if !l.breathless.Load() {
			time.Sleep(time.Until(next))
		}
	}
}

// send sends one more packet.
func (s *stream) send(fd int) error {
	s.number(s.first + uint32(s.sent.Load()%numbers))
	for {
		_, err := unix.Write(fd, s.frame)
		switch {
		case err == nil:
			s.sent.Add(1)
			return nil
		case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.EINTR):
		default:
			return err
		}
	}
}

// wait waits until the given number of further rounds has been sent.
func (l *steadyLoad) wait(rounds uint64) {
	l.t.Helper()
	want := l.rounds.Load() + rounds
	for end := time.Now().Add(patience); l.rounds.Load() < want; time.Sleep(time.Millisecond) {
		select {
		case err := <-l.done:
			l.done <- err
			l.t.Fatalf("the load has ended: %v", err)
		default:
		}
		if time.Now().After(end) {
			l.t.Fatalf("the load has sent less than %d rounds in %s", rounds, patience)
		}
	}
}

// pause stops a stream, and waits until its last packet has been sent.
func (l *steadyLoad) pause(s *stream) {
	l.t.Helper()
	s.on.Store(false)
	l.wait(2)
}

// stop ends the load. It may be called more than once.
func (l *steadyLoad) stop() {
	l.t.Helper()
	select {
	case <-l.quit:
		return
	default:
		close(l.quit)
	}
	if err := <-l.done; err != nil {
		l.t.Error(err)
	}
	l.done <- nil
}

// arrivals returns how often each packet of a stream has arrived.
func (s *stream) arrivals(t *testing.T, sink *load.Sink) []uint64 {
	t.Helper()
	tags, err := sink.Tags()
	check(t, err)
	if s.sent.Load() > numbers {
		t.Fatalf("%d packets sent, %d can be told apart: send less, or compare with wantAll", s.sent.Load(), numbers)
	}
	return tags[s.first : uint64(s.first)+s.sent.Load()]
}

// wantAll checks that each number of a stream has arrived as often as it was sent.
func (s *stream) wantAll(t *testing.T, sink *load.Sink) {
	t.Helper()
	tags, err := sink.Tags()
	check(t, err)
	sent := s.sent.Load()
	var missing, more uint64
	for i, got := range tags[s.first : s.first+numbers] {
		want := sent / numbers
		if uint64(i) < sent%numbers {
			want++
		}
		missing += max(want, got) - got
		more += max(want, got) - want
	}
	if missing+more > 0 {
		t.Errorf("of %d packets %d are missing, and %d came more than once", sent, missing, more)
	}
	t.Logf("%d packets", sent)
}

// wantNone checks that no packet of a stream has arrived.
func (s *stream) wantNone(t *testing.T, sink *load.Sink) {
	t.Helper()
	tags, err := sink.Tags()
	check(t, err)
	for i, n := range tags[s.first : s.first+numbers] {
		if n != 0 {
			t.Fatalf("packet %d of the stream has arrived at the wrong place", i)
		}
	}
}

// wantOnce checks that each packet has arrived exactly once.
func wantOnce(t *testing.T, what string, arrivals []uint64) {
	t.Helper()
	missing, twice, firstMissing := 0, 0, -1
	for i, n := range arrivals {
		switch {
		case n == 0:
			missing++
			if firstMissing < 0 {
				firstMissing = i
			}
		case n > 1:
			twice++
		}
	}
	if missing+twice > 0 {
		t.Errorf("%s: of %d packets %d are missing, from number %d on, and %d came more than once",
			what, len(arrivals), missing, firstMissing, twice)
	}
}
