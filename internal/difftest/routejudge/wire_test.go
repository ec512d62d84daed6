// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// output is a frame that came out of a router.
type output struct {
	port  int
	frame []byte
}

// wire sends frames to a router's ports, and receives all frames that come out, in order.
type wire struct {
	w        *twin
	send     int
	receive  int
	byIndex  map[int]int
	sentinel uint32
	buffer   []byte
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// newWire opens the sockets, in the namespace of the calling thread.
func newWire(w *twin) *wire {
	t := w.t
	x := &wire{w: w, byIndex: make(map[int]int), buffer: make([]byte, 1<<16)}
	for i, index := range w.far {
		x.byIndex[index] = i
	}
	var err error
	x.receive, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	t.Cleanup(func() { unix.Close(x.receive) })
	check(t, unix.SetsockoptInt(x.receive, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20))
	check(t, unix.SetsockoptInt(x.receive, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1))
	check(t, unix.SetsockoptInt(x.receive, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1))
	wait := unix.NsecToTimeval(int64(patience))
	check(t, unix.SetsockoptTimeval(x.receive, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait))
	check(t, unix.Bind(x.receive, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL)}))
	x.send, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	t.Cleanup(func() { unix.Close(x.send) })
	return x
}

// put sends a frame to one of the router's ports.
func (x *wire) put(port int, frame []byte) {
	x.w.t.Helper()
	to := &unix.SockaddrLinklayer{Ifindex: x.w.far[port], Halen: 6}
	if len(frame) >= 14 {
		to.Protocol = htons(binary.BigEndian.Uint16(frame[12:]))
	}
	if err := unix.Sendto(x.send, frame, 0, to); err != nil {
		x.w.t.Fatalf("sending %d bytes to port %d: %v", len(frame), port, err)
	}
}

// probe returns a frame that asks for the router's own address and neither depends on routes nor changes the router's
// neighbors: an ARP probe, which has no sender address. The answer goes to a MAC address with the number of the probe.
func (x *wire) probe(port int) (frame []byte, answer [6]byte) {
	x.sentinel++
	from := [6]byte{6}
	binary.BigEndian.PutUint32(from[2:], x.sentinel)
	f := append(bytes.Repeat([]byte{0xff}, 6), from[:]...)
	f = append(f, 0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1)
	f = append(f, from[:]...)
	f = append(f, make([]byte, 10)...)
	f = append(f, 10, 1, byte(port), 1)
	return f, from
}

// readFrame receives a frame. It inserts the VLAN tag again that the kernel removes and reports beside the frame (packet(7)).
func (x *wire) readFrame() (frame []byte, from unix.Sockaddr, err error) {
	var control [128]byte
	n, cn, _, from, err := unix.Recvmsg(x.receive, x.buffer, control[:], 0)
	if err != nil {
		return nil, nil, err
	}
	frame = append([]byte(nil), x.buffer[:n]...)
	messages, err := unix.ParseSocketControlMessage(control[:cn])
	if err != nil {
		return nil, nil, err
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA || len(m.Data) < 20 || n < 12 {
			continue
		}
		// struct tpacket_auxdata has the status at 0, the tag at 16 and its protocol at 18.
		const valid = 1 << 4 // TP_STATUS_VLAN_VALID
		if binary.NativeEndian.Uint32(m.Data)&valid == 0 {
			continue
		}
		tag := binary.BigEndian.AppendUint16(nil, binary.NativeEndian.Uint16(m.Data[18:]))
		tag = binary.BigEndian.AppendUint16(tag, binary.NativeEndian.Uint16(m.Data[16:]))
		frame = slices.Insert(frame, 12, tag...)
	}
	return frame, from, nil
}

// drain returns all frames that came out for what was sent until now. It waits for the answer to a probe by the port without
// culvert: probe and answer go through the same queue as all frames before.
func (x *wire) drain() []output {
	x.w.t.Helper()
	return x.await(portWithoutXDP)
}

// await is drain with probes by the given ports.
func (x *wire) await(ports ...int) (all []output) {
	t := x.w.t
	t.Helper()
	waiting := make(map[[6]byte]bool)
	for _, p := range ports {
		frame, answer := x.probe(p)
		waiting[answer] = true
		x.put(p, frame)
	}
	for len(waiting) > 0 {
		frame, from, err := x.readFrame()
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			t.Fatalf("waiting for the end of a batch, %d frames came: %v", len(all), err)
		}
		at, ok := from.(*unix.SockaddrLinklayer)
		if !ok || len(frame) < 14 {
			continue
		}
		if binary.BigEndian.Uint16(frame[12:]) == 0x0806 && waiting[[6]byte(frame)] {
			delete(waiting, [6]byte(frame))
			continue
		}
		all = append(all, output{x.byIndex[at.Ifindex], frame})
	}
	stats, err := unix.GetsockoptTpacketStats(x.receive, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	check(t, err)
	if stats.Drops != 0 {
		t.Fatalf("the socket that listens has lost %d frames", stats.Drops)
	}
	return all
}

// TestWire checks that frames come out of the kernel unchanged but for the hop, by the right port, and that drain sees the end
// of a batch.
func TestWire(t *testing.T) {
	pinToCPU(t)
	w := newTwin(t)
	g := newGenerator(1)
	var sent []*packet
	for range 500 {
		p := g.start("plain", 0)
		h := g.head4(p)
		h.dst = host4(1, 3)
		p.frame = h.build()
		sent = append(sent, p)
		w.wire.put(p.port, p.frame)
	}
	began := time.Now()
	got, strays := attribute(sent, w.wire.drain())
	t.Logf("%d frames in %v", len(sent), time.Since(began))
	if len(strays) > 0 {
		t.Fatalf("there came what was not sent: %v", strays)
	}
	for _, p := range sent {
		if n := len(got[p.id].forwards); n != 1 {
			t.Fatalf("a frame came out %d times", n)
		}
		o := got[p.id].forwards[0]
		want := append([]byte(nil), p.frame...)
		copy(want, hostMAC1(1, 3))
		copy(want[6:], hostMACOf(1))
		want[22]--
		fixHeader(want[14:34])
		if o.port != 1 || !bytes.Equal(o.frame, want) {
			t.Fatalf("out of port %d came\n%x, want\n%x", o.port, o.frame, want)
		}
	}
}

func hostMAC1(i, h int) []byte { m := hostMAC(i, h); return m[:] }
func hostMACOf(i int) []byte   { m := portMAC(i); return m[:] }
