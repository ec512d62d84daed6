// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"culvert/internal/bpfobj"
)

// drained is a bed with an open flow at backend one, and a ring that leads to backend two.
type drained struct {
	*bed
	one, two Backend
	from, to string
	atomic   bool // packets have a fragment header, though they are whole
}

// eachDrained runs a test for each of three ways through the program: lb_fast has one for most packets of IPv4 and
// one for others, and lb_decide takes packets with a fragment header.
func eachDrained(t *testing.T, test func(d *drained)) {
	for name, d := range map[string]*drained{
		"IPv4":   {from: client4, to: vip4},
		"IPv6":   {from: client6, to: vip6},
		"atomic": {from: client6, to: vip6, atomic: true},
	} {
		t.Run(name, func(t *testing.T) {
			d.bed = newBed(t, Options{Flows: 70})
			d.one, d.two = d.backend(1, 0, "10.0.0.11"), d.backend(2, 0, "10.0.0.12")
			test(d)
		})
	}
}

func (d *drained) segment(l *layers.TCP, data string) []byte {
	frame := d.packet(d.from, d.to, l, []byte(data))
	if d.atomic {
		frame = fragment6(frame, 0, false, 9)
	}
	return frame
}

// open empties the flow table, opens a flow at backend one, and makes the ring lead to backend two.
func (d *drained) open() {
	d.t.Helper()
	d.buckets(func(bucket *bpfobj.PipelineLbBucket) { *bucket = bpfobj.PipelineLbBucket{} })
	d.vip(0, d.to, protoTCP, []Backend{d.one})
	d.expectSent(d.segment(syn(), ""), "fwd lb-new", d.one)
	d.expectSent(d.segment(ack(), ""), "fwd lb-flow", d.one)
	d.ring(0, []Backend{d.two})
}

func (d *drained) flow() Flow {
	d.t.Helper()
	f, ok, err := d.plane.FindFlow(0, netip.MustParseAddrPort(d.from), netip.MustParseAddrPort(d.to).Port())
	if d.must(err); !ok {
		d.t.Fatal("the flow table does not have the flow")
	}
	return f
}

// within repeats a test until it has taken less than d, so that the clock of the flow table can be neglected.
func within(t testing.TB, d time.Duration, test func()) {
	t.Helper()
	for range 100 {
		begin := time.Now()
		test()
		if time.Since(begin) < d {
			return
		}
	}
	t.Fatalf("100 times slower than %v", d)
}

var ends = map[string]*layers.TCP{"FIN": {FIN: true, ACK: true}, "RST": {RST: true}, "RST, ACK": {RST: true, ACK: true}}

// TestForgedEnd forges FIN and RST. The flow keeps its backend, unless no packet of it comes for its idle time.
func TestForgedEnd(t *testing.T) {
	eachDrained(t, func(d *drained) {
		t := d.t
		data, pure := d.segment(ack(), "data"), d.segment(ack(), "")
		for name, end := range ends {
			forged := d.segment(end, "")
			stays := func(what string, frame []byte, idle time.Duration) {
				t.Helper()
				d.age(idle - 2*Tick)
				if _, out, got := d.run(frame); got != "fwd lb-flow" || checkForwarded(frame, out, d.one) != nil {
					t.Fatalf("%s, %s: it left as %q", name, what, got)
				}
			}
			d.open()
			d.expectSent(forged, "fwd lb-flow", d.one)
			d.expectSent(data, "fwd lb-flow", d.one)
			if f := d.flow(); f.State != "open" {
				t.Errorf("%s, and data: %+v", name, f)
			}
			stays("data at once", data, DefaultIdleTCP)

			d.open()
			d.expectSent(forged, "fwd lb-flow", d.one)
			d.age(2 * Tick)
			d.expectSent(pure, "fwd lb-flow", d.one)
			stays("a late ACK", data, DefaultIdleTCP)

			d.open() // repeatedly, between ACKs
			for range 40 {
				d.expectSent(forged, "fwd lb-flow", d.one)
				d.age(Tick)
				d.expectSent(pure, "fwd lb-flow", d.one)
			}
			stays("a flood of them", pure, DefaultIdleTCP)

			d.open() // while the flow is idle
			d.expectSent(forged, "fwd lb-flow", d.one)
			stays("idle", pure, DefaultIdleTCP)
			stays("idle, and on", pure, DefaultIdleTCP)

			d.open() // until the idle time has passed
			d.expectSent(forged, "fwd lb-flow", d.one)
			d.age(DefaultIdleTCP + 2*Tick)
			d.expectSent(data, "fwd lb-new", d.two)
		}
	})
}

// TestEndedFlow closes connections. Their entries expire after a minute, however many FIN and RST come.
func TestEndedFlow(t *testing.T) {
	eachDrained(t, func(d *drained) {
		t := d.t
		for name, end := range ends {
			within(t, 4*time.Second, func() {
				d.open()
				d.expectSent(d.segment(end, ""), "fwd lb-flow", d.one)
				d.expectSent(d.segment(ack(), ""), "fwd lb-flow", d.one) // as at the end of a regular close
				if f := d.flow(); f.State != "closing" || f.Idle > Tick {
					t.Errorf("%s, and the last ACK: %+v", name, f)
				}
			})
			for range 8 {
				d.age(2 * Tick)
				for _, more := range ends {
					d.expectSent(d.segment(more, ""), d.reason(), d.one, d.two)
				}
			}
			if f := d.flow(); f.Backend == d.one.ID && !f.Expired {
				t.Errorf("%s, and more of them for 64 s: %+v", name, f)
			}
		}
		// An RST does not prolong an entry that has expired.
		d.open()
		d.expectSent(d.segment(ends["RST"], ""), "fwd lb-flow", d.one)
		d.age(DefaultIdleClosing + 2*Tick)
		d.expectSent(d.segment(ends["RST"], ""), "fwd lb-new", d.two)
		// Each SYN prolongs the entry by a minute.
		for name, end := range ends {
			d.open()
			for range 3 {
				d.expectSent(d.segment(end, ""), "fwd lb-flow", d.one)
				d.age(DefaultIdleClosing - 2*Tick)
				d.expectSent(d.segment(syn(), ""), "fwd lb-flow", d.one)
			}
			if f := d.flow(); f.State != "closing" {
				t.Errorf("%s, and SYN: %+v", name, f)
			}
			d.age(DefaultIdleClosing + 2*Tick)
			d.expectSent(d.segment(syn(), ""), "fwd lb-new", d.two)
		}
	})
}

// reason returns the reason that a packet of the flow is counted under.
func (d *drained) reason() string {
	if d.flow().Expired {
		return "fwd lb-new"
	}
	return "fwd lb-flow"
}

// TestForgedSYN wants a SYN to move no flow from a backend that exists, not even after FIN or RST.
func TestForgedSYN(t *testing.T) {
	eachDrained(t, func(d *drained) {
		t := d.t
		forged, data, pure := d.segment(syn(), ""), d.segment(ack(), "data"), d.segment(ack(), "")
		for name, end := range ends {
			d.open()
			d.expectSent(forged, "fwd lb-flow", d.one)
			d.expectSent(d.segment(end, ""), "fwd lb-flow", d.one)
			d.expectSent(forged, "fwd lb-flow", d.one)
			d.expectSent(forged, "fwd lb-flow", d.one)
			d.expectSent(data, "fwd lb-flow", d.one)
			// The client uses the port again. The flow has the idle time of an open connection.
			d.expectSent(d.segment(end, ""), "fwd lb-flow", d.one)
			d.age(30 * time.Second)
			d.expectSent(forged, "fwd lb-flow", d.one)
			d.expectSent(pure, "fwd lb-flow", d.one)
			d.age(DefaultIdleTCP - 2*Tick)
			d.expectSent(pure, "fwd lb-flow", d.one)
			// A SYN alone does not prolong the flow.
			d.age(DefaultIdleTCP - 2*Tick)
			d.expectSent(forged, "fwd lb-flow", d.one)
			d.age(4 * Tick)
			d.expectSent(forged, "fwd lb-new", d.two)
			d.expectSent(pure, "fwd lb-flow", d.two)
			// A minute after the end, a SYN begins another connection.
			d.open()
			d.expectSent(d.segment(end, ""), "fwd lb-flow", d.one)
			d.age(DefaultIdleClosing + 2*Tick)
			d.expectSent(forged, "fwd lb-new", d.two)
			// Its backend has been deleted.
			d.open()
			one := d.one
			one.Used = false
			d.must(d.plane.SetBackend(one))
			d.expectSent(forged, "fwd lb-new", d.two)
			d.must(d.plane.SetBackend(d.one))
			if t.Failed() {
				t.Fatal(name)
			}
		}
	})
}

// TestForgedSYNDown has a backend that fails its checks but may still work. A SYN moves a flow from it only if the flow is not
// in use.
func TestForgedSYNDown(t *testing.T) {
	eachDrained(t, func(d *drained) {
		forged, pure := d.segment(syn(), ""), d.segment(ack(), "")
		down := d.one
		down.Down = true
		fails := func() {
			d.t.Helper()
			d.must(d.plane.SetBackend(d.one))
			d.open()
			d.must(d.plane.SetBackend(down))
		}
		within(d.t, 4*time.Second, func() {
			fails()
			d.expectSent(forged, "fwd lb-flow", d.one)
			d.expectSent(d.segment(ends["FIN"], ""), "fwd lb-flow", d.one)
			d.expectSent(forged, "fwd lb-flow", d.one)
			d.expectSent(forged, "fwd lb-flow", d.one)
			d.expectSent(pure, "fwd lb-flow", d.one)
		})
		d.age(7 * Tick) // half a minute
		d.expectSent(forged, "fwd lb-new", d.two)
		fails()
		d.expectSent(d.segment(ends["FIN"], ""), "fwd lb-flow", d.one)
		d.age(2 * Tick)
		d.expectSent(forged, "fwd lb-new", d.two)
		// A client that sends SYN after SYN reaches a backend that is up.
		d.must(d.plane.SetBackend(d.one))
		d.buckets(func(bucket *bpfobj.PipelineLbBucket) { *bucket = bpfobj.PipelineLbBucket{} })
		d.ring(0, []Backend{d.one})
		d.expectSent(forged, "fwd lb-new", d.one)
		d.ring(0, []Backend{d.two})
		d.must(d.plane.SetBackend(down))
		d.expectSent(forged, "fwd lb-new", d.two)
	})
}
