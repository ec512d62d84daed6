// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/slayers"
	"golang.org/x/sys/unix"

	"culvert/internal/bench/load"
	"culvert/internal/lab"
	"culvert/internal/scion/scionpkt"
)

// smallMTU is the MTU of the way out.
const smallMTU = 1300

// TestTooBig sends packets of each direction that are one byte longer than the way out takes. By default they leave in IP fragments, as
// from the reference. With too_big = "answer" each has to be answered with packet too big, to where it came from, with the length that
// fits. One of that length is forwarded.
func TestTooBig(t *testing.T) {
	for _, o := range []lab.Options{{Name: "b4", StaticNeighbors: true}, {Name: "b6", StaticNeighbors: true, IPv6: true}} {
		family := map[bool]string{false: "IPv4", true: "IPv6"}[o.IPv6]
		t.Run(family, func(t *testing.T) {
			b := newTooBig(t, o)
			const inside = 0
			ways := []direction{
				{"external to external", b.a, 1, 2, "fwd scion-br-transit"},
				{"external to sibling", b.a, 1, 3, "fwd scion-in-transit"},
				{"external to host", b.a, 1, inside, "fwd scion-in"},
				{"sibling to external", b.b, 3, 1, "fwd scion-out-transit"},
				{"inside to external", b.b, inside, 1, "fwd scion-out"},
			}
			for _, d := range ways {
				t.Run(d.name+" in fragments", func(t *testing.T) { b.fragmented(t, d) })
			}
			if n := b.outcome(t, "answered") + b.outcome(t, "dropped"); n != 0 {
				t.Errorf("%v packets were not sent", n)
			}
			b.doctor(t, "warn", "sent in IP fragments")
			wait(t, "the log to report packets that were too big", func() bool {
				return strings.Contains(b.process.out.String(), "Packets too big for a link")
			})
			before := b.outcome(t, "fragmented")
			config, err := os.ReadFile(b.config)
			check(t, err)
			check(t, os.WriteFile(b.config, append(config, "too_big = 'answer'\n"...), 0o644))
			out := culvert(t, b.lab, "rut", "reload")
			if !strings.Contains(out, "too_big") {
				t.Errorf("reload says %q, and nothing of too_big", out)
			}
			for _, d := range ways {
				t.Run(d.name, func(t *testing.T) { b.answered(t, d) })
			}
			if after := b.outcome(t, "fragmented"); after != before {
				t.Errorf("%v packets sent in fragments, and %v after the reload", before, after)
			}
			b.doctor(t, "FAIL", "those of the control services too")
		})
	}
}

// doctor wants doctor to say that the way to a, which is the small one after the last direction, takes shorter packets than the topology says.
func (b *tooBig) doctor(t *testing.T, status, outcome string) {
	t.Helper()
	advice, _ := b.lab.Run(t.Context(), "rut", program(), "doctor", "-c", b.config) // the status is 1 if anything fails
	want := fmt.Sprintf("link 1: its mtu is %d in topology.json, and the way to %s takes packets of %d bytes", 1500-b.overhead,
		b.as.Links[0].Remote.Addr(), smallMTU-b.overhead)
	for line := range strings.Lines(string(advice)) {
		if strings.Contains(line, want) && strings.Contains(line, status) && strings.Contains(line, outcome) {
			return
		}
	}
	t.Errorf("doctor has no %s of %q with %q:\n%s", status, want, outcome, advice)
}

// tooBig is a lab with a router between a and b.
type tooBig struct {
	lab              *lab.Lab
	as               lab.AS
	a, b, rutA, rutB load.End
	overhead         int // of the outer headers
	config           string
	process          *process
	fitted           float64 // packets that were punted as too big, and were not any more
}

func newTooBig(t *testing.T, o lab.Options) *tooBig {
	t.Helper()
	l := up(t, "veth", o)
	as, err := l.AS("rut")
	check(t, err)
	b := &tooBig{lab: l, as: as, a: end(t, l, "a", "to-rut"), b: end(t, l, "b", "to-rut"),
		rutA: end(t, l, "rut", "to-a"), rutB: end(t, l, "rut", "to-b"), overhead: 28, config: nodeConfig(t, l, "rut")}
	if o.IPv6 {
		b.overhead = 48
	}
	b.process = start(t, l, "rut", program(), "run", "-c", b.config)
	wait(t, "links to be usable", func() bool {
		if !b.process.running() {
			t.Fatalf("culvert ended: %s", b.process.out.String())
		}
		p := findPlane(t, l, "rut")
		return p != nil && p.Served() && ready(t, p)
	})
	return b
}

// prepare makes the way out of a direction small and returns the frame that just fits, one that is a byte longer, and the interface
// that they come in by.
func (b *tooBig) prepare(t *testing.T, d direction) (fits, long []byte, iface string) {
	t.Helper()
	into, iface, out := b.rutA, "to-a", "to-b"
	if d.ingress != 1 {
		into, iface, out = b.rutB, "to-b", "to-a"
	}
	for dev, mtu := range map[string]int{iface: 1500, out: smallMTU} {
		_, err := b.lab.Run(t.Context(), "rut", "ip", "link", "set", dev, "mtu", fmt.Sprint(mtu))
		check(t, err)
	}
	const ethernet = 14
	all := frames(t, b.lab, "rut", d.from, into, scionpkt.GenerateOptions{Flows: 1,
		Sizes: []int{ethernet + smallMTU, ethernet + smallMTU + 1}, Ingress: d.ingress, Egress: d.egress})
	fits, long = all[0], all[1]
	// The first packets may come before the new MTU is known, and before a host is.
	wait(t, "packets that just fit to be forwarded, and longer ones to be punted", func() bool {
		before := count(t, plane(t, b.lab, "rut"), iface)
		b.send(t, d.from, fits)
		b.send(t, d.from, long)
		moved := count(t, plane(t, b.lab, "rut"), iface).since(before)
		return moved[d.reason] == 1 && moved["punt scion-mtu"] == 1
	})
	return fits, long, iface
}

func (b *tooBig) send(t *testing.T, from load.End, frame []byte) {
	t.Helper()
	fd := packetSocket(t, from)
	defer unix.Close(fd)
	_, err := unix.Write(fd, frame)
	check(t, err)
}

// outcome returns how many packets that were too big had an outcome.
func (b *tooBig) outcome(t *testing.T, outcome string) (n float64) {
	t.Helper()
	series, err := scrape(b.lab, "rut", b.as.RouterAPI.String(), "culvert_scion_too_big_packets_total")
	check(t, err)
	for _, s := range series {
		if strings.Contains(s, `outcome="`+outcome+`"`) {
			var v float64
			_, err := fmt.Sscan(s[strings.LastIndexByte(s, ' ')+1:], &v)
			check(t, err)
			n += v
		}
	}
	return n
}

// settle waits until the slow path is done with all packets that were too big. One that came while an MTU changed may not have been too
// big any more when the slow path looked: after a while in which nothing is counted, such packets are left out from then on. On a busy
// machine the slow path may look at one of them later all the same.
func (b *tooBig) settle(t *testing.T) {
	t.Helper()
	const quiet = 3 * time.Second
	p := plane(t, b.lab, "rut")
	var last [2]float64
	since := time.Now()
	wait(t, "the slow path to be done", func() bool {
		punted := float64(count(t, p, "to-a")["punt scion-mtu"] + count(t, p, "to-b")["punt scion-mtu"])
		outcomes := b.outcome(t, "answered") + b.outcome(t, "fragmented") + b.outcome(t, "dropped")
		if now := [2]float64{punted, outcomes}; now != last {
			last, since = now, time.Now()
		}
		if punted-b.fitted != outcomes && punted >= outcomes && time.Since(since) > quiet {
			b.fitted = punted - outcomes
		}
		return punted-b.fitted == outcomes
	})
}

func (b *tooBig) answered(t *testing.T, d direction) {
	_, long, iface := b.prepare(t, d)
	heard := listen(t, d.from)
	b.settle(t)
	before, counted := b.outcome(t, "answered"), count(t, plane(t, b.lab, "rut"), iface)
	b.send(t, d.from, long)
	var answer []byte
	wait(t, "the answer", func() bool {
		answer = heard(func(f []byte) bool { return len(f) > len(long)/2 && !bytes.Equal(f, long) })
		return answer != nil
	})
	b.check(t, long, answer)
	b.settle(t)
	if after := b.outcome(t, "answered"); after != before+1 {
		t.Errorf("%v packets answered before, %v after", before, after)
	}
	if moved := count(t, plane(t, b.lab, "rut"), iface).since(counted); moved["punt scion-mtu"] != 1 {
		t.Errorf("counters moved by %v, want one punt scion-mtu", moved)
	}
}

// check checks an answer to a frame.
func (b *tooBig) check(t *testing.T, frame, answer []byte) {
	t.Helper()
	asked, got := parse(frame), parse(answer)
	question, _ := asked.Layer(slayers.LayerTypeSCION).(*slayers.SCION)
	reply, _ := got.Layer(slayers.LayerTypeSCION).(*slayers.SCION)
	if question == nil || reply == nil {
		t.Fatalf("no SCION packet in %v or %v", asked, got)
	}
	if to, from := got.NetworkLayer().NetworkFlow(), asked.NetworkLayer().NetworkFlow().Reverse(); to != from {
		t.Errorf("sent %v, want %v", to, from)
	}
	if to, from := got.TransportLayer().TransportFlow(), asked.TransportLayer().TransportFlow().Reverse(); to != from {
		t.Errorf("sent between ports %v, want %v", to, from)
	}
	ia, err := addr.ParseIA(b.as.IA)
	check(t, err)
	if reply.SrcIA != ia || reply.DstIA != question.SrcIA || !bytes.Equal(reply.RawDstAddr, question.RawSrcAddr) {
		t.Errorf("from %v to %v %x, want from %v to %v %x", reply.SrcIA, reply.DstIA, reply.RawDstAddr, ia, question.SrcIA, question.RawSrcAddr)
	}
	message, _ := got.Layer(slayers.LayerTypeSCMP).(*slayers.SCMP)
	body, _ := got.Layer(slayers.LayerTypeSCMPPacketTooBig).(*slayers.SCMPPacketTooBig)
	if message == nil || body == nil || message.TypeCode.Code() != 0 {
		t.Fatalf("not packet too big: %v", got)
	}
	if want := smallMTU - b.overhead; int(body.MTU) != want {
		t.Errorf("MTU %d, want %d", body.MTU, want)
	}
	if all := len(reply.Contents) + len(reply.Payload); all != slayers.MaxSCMPPacketLen {
		t.Errorf("the answer has %d bytes, want %d", all, slayers.MaxSCMPPacketLen)
	}
	// The path in the quote is not the one that arrived, since the router has worked on it.
	packet := append(bytes.Clone(question.Contents), question.Payload...)
	quote, skip := body.Payload, len(question.Contents)
	if len(quote) <= skip || !bytes.Equal(quote[:12], packet[:12]) || !bytes.Equal(quote[skip:], packet[skip:len(quote)]) {
		t.Errorf("quotes %x, want a beginning of %x", quote, packet)
	}
}

// parse reads a frame, with a SCION packet behind UDP.
func parse(frame []byte) gopacket.Packet {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
	udp, ok := p.TransportLayer().(*layers.UDP)
	if !ok {
		return p
	}
	return &inUDP{Packet: p, scion: gopacket.NewPacket(udp.Payload, slayers.LayerTypeSCION, gopacket.Default)}
}

// inUDP is a packet whose payload has layers of its own.
type inUDP struct {
	gopacket.Packet
	scion gopacket.Packet
}

func (p *inUDP) Layer(t gopacket.LayerType) gopacket.Layer { return p.scion.Layer(t) }

func (b *tooBig) fragmented(t *testing.T, d direction) {
	to := b.b
	if d.ingress != 1 {
		to = b.a
	}
	fits, long, _ := b.prepare(t, d)
	heard := listen(t, to)
	b.settle(t)
	before := b.outcome(t, "fragmented")
	b.send(t, d.from, long)
	more := 0 // bytes of all fragments, without their headers
	wait(t, "fragments", func() bool {
		if f := heard(isFragment); f != nil {
			more += fragmentLen(f)
		}
		// The UDP header is in the first fragment. Fragments of packets before this one may be among them.
		return more >= len(long)-len(fits)+smallMTU-b.overhead+8
	})
	b.settle(t)
	if after := b.outcome(t, "fragmented"); after != before+1 {
		t.Errorf("%v packets sent in fragments before, %v after", before, after)
	}
}

// isFragment tells whether a frame has an IP fragment.
func isFragment(f []byte) bool {
	switch binary.BigEndian.Uint16(f[12:]) {
	case unix.ETH_P_IP:
		return binary.BigEndian.Uint16(f[20:])&0x3fff != 0
	case unix.ETH_P_IPV6:
		return f[20] == unix.IPPROTO_FRAGMENT
	}
	return false
}

// fragmentLen returns how many bytes of the datagram a fragment has.
func fragmentLen(f []byte) int {
	if binary.BigEndian.Uint16(f[12:]) == unix.ETH_P_IP {
		return int(binary.BigEndian.Uint16(f[16:])) - 20
	}
	return int(binary.BigEndian.Uint16(f[18:])) - 8
}

// listen hears what comes in at an end of a wire from now on. The function that it returns gives the next frame that is wanted, nil if
// there is none yet.
func listen(t *testing.T, at load.End) func(wanted func(frame []byte) bool) []byte {
	t.Helper()
	fd := -1
	all := int(uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8)
	check(t, at.Netns.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all)
		return err
	}))
	t.Cleanup(func() { unix.Close(fd) })
	check(t, unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: at.Index, Protocol: uint16(all)}))
	buf := make([]byte, 1<<16)
	return func(wanted func([]byte) bool) []byte {
		for end := time.Now().Add(patience); time.Now().Before(end); {
			n, from, err := unix.Recvfrom(fd, buf, 0)
			if errors.Is(err, unix.EAGAIN) {
				return nil
			}
			check(t, err)
			if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			if f := bytes.Clone(buf[:n]); n > 21 && wanted(f) {
				return f
			}
		}
		return nil
	}
}
