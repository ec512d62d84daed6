// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"culvert/internal/bpfobj"
)

// drained is a bed with an open flow at one whose ring leads to two.
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

// open forgets all flows and opens one at one; then the ring leads to two.
func (d *drained) open() {
	d.t.Helper()
	d.buckets(func(bucket *bpfobj.PipelineLbBucket) { *bucket = bpfobj.PipelineLbBucket{} })
	d.vip(0, d.to, protoTCP, []Backend{d.one})
	d.sent(d.segment(syn(), ""), "fwd lb-new", d.one)
	d.sent(d.segment(ack(), ""), "fwd lb-flow", d.one)
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

// within repeats a test that ends, if all goes well, sooner than the clock of the flow table tells.
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

// FIN or RST out of any window: the flow stays with its backend while its packets come.
func TestForgedEnd(t *testing.T) {
	eachDrained(t, func(d *drained) {
		t := d.t
		data, pure := d.segment(ack(), "data"), d.segment(ack(), "")
		for name, end := range ends {
			forged := d.segment(end, "")
			stays := func(what string, frame []byte, idle time.Duration) {
				t.Helper()
				d.age(idle - 2*Tick)
				if _, out, got := d.run(frame); got != "fwd lb-flow" || sentRight(frame, out, d.one) != nil {
					t.Fatalf("%s, %s: it left as %q", name, what, got)
				}
			}
			d.open()
			d.sent(forged, "fwd lb-flow", d.one)
			d.sent(data, "fwd lb-flow", d.one)
			if f := d.flow(); f.State != "open" {
				t.Errorf("%s, and data: %+v", name, f)
			}
			stays("data at once", data, DefaultIdleTCP)

			d.open()
			d.sent(forged, "fwd lb-flow", d.one)
			d.age(2 * Tick)
			d.sent(pure, "fwd lb-flow", d.one)
			stays("a late ACK", data, DefaultIdleTCP)

			d.open() // over and over, between ACKs
			for range 40 {
				d.sent(forged, "fwd lb-flow", d.one)
				d.age(Tick)
				d.sent(pure, "fwd lb-flow", d.one)
			}
			stays("a flood of them", pure, DefaultIdleTCP)

			d.open() // while the flow is idle
			d.sent(forged, "fwd lb-flow", d.one)
			stays("idle", pure, DefaultIdleTCP)
			stays("idle, and on", pure, DefaultIdleTCP)

			d.open() // not for ever
			d.sent(forged, "fwd lb-flow", d.one)
			d.age(DefaultIdleTCP + 2*Tick)
			d.sent(data, "fwd lb-new", d.two)
		}
	})
}

// A connection that is closed makes room after a minute, whatever number of FIN and RST comes.
func TestEndedFlow(t *testing.T) {
	eachDrained(t, func(d *drained) {
		t := d.t
		for name, end := range ends {
			within(t, 4*time.Second, func() {
				d.open()
				d.sent(d.segment(end, ""), "fwd lb-flow", d.one)
				d.sent(d.segment(ack(), ""), "fwd lb-flow", d.one) // the last of closing
				if f := d.flow(); f.State != "closing" || f.Idle > Tick {
					t.Errorf("%s, and the last ACK: %+v", name, f)
				}
			})
			for range 8 {
				d.age(2 * Tick)
				for _, more := range ends {
					d.sent(d.segment(more, ""), d.reason(), d.one, d.two)
				}
			}
			if f := d.flow(); f.Backend == d.one.ID && !f.Expired {
				t.Errorf("%s, and more of them for 64 s: %+v", name, f)
			}
		}
		// Nor does it take one of a flow that is over.
		d.open()
		d.sent(d.segment(ends["RST"], ""), "fwd lb-flow", d.one)
		d.age(DefaultIdleClosing + 2*Tick)
		d.sent(d.segment(ends["RST"], ""), "fwd lb-new", d.two)
		// A SYN behind it gives it another minute, and no more.
		for name, end := range ends {
			d.open()
			for range 3 {
				d.sent(d.segment(end, ""), "fwd lb-flow", d.one)
				d.age(DefaultIdleClosing - 2*Tick)
				d.sent(d.segment(syn(), ""), "fwd lb-flow", d.one)
			}
			if f := d.flow(); f.State != "closing" {
				t.Errorf("%s, and SYN: %+v", name, f)
			}
			d.age(DefaultIdleClosing + 2*Tick)
			d.sent(d.segment(syn(), ""), "fwd lb-new", d.two)
		}
	})
}

// reason is what a packet of the flow leaves as.
func (d *drained) reason() string {
	if d.flow().Expired {
		return "fwd lb-new"
	}
	return "fwd lb-flow"
}

// A SYN takes no flow away from a backend that is there, not behind FIN or RST either.
func TestForgedSYN(t *testing.T) {
	eachDrained(t, func(d *drained) {
		t := d.t
		forged, data, pure := d.segment(syn(), ""), d.segment(ack(), "data"), d.segment(ack(), "")
		for name, end := range ends {
			d.open()
			d.sent(forged, "fwd lb-flow", d.one)
			d.sent(d.segment(end, ""), "fwd lb-flow", d.one)
			d.sent(forged, "fwd lb-flow", d.one)
			d.sent(forged, "fwd lb-flow", d.one)
			d.sent(data, "fwd lb-flow", d.one)
			// The client uses the port again: that connection lives as long as any.
			d.sent(d.segment(end, ""), "fwd lb-flow", d.one)
			d.age(30 * time.Second)
			d.sent(forged, "fwd lb-flow", d.one)
			d.sent(pure, "fwd lb-flow", d.one)
			d.age(DefaultIdleTCP - 2*Tick)
			d.sent(pure, "fwd lb-flow", d.one)
			// A SYN alone keeps no flow.
			d.age(DefaultIdleTCP - 2*Tick)
			d.sent(forged, "fwd lb-flow", d.one)
			d.age(4 * Tick)
			d.sent(forged, "fwd lb-new", d.two)
			d.sent(pure, "fwd lb-flow", d.two)
			// After a minute it is another connection.
			d.open()
			d.sent(d.segment(end, ""), "fwd lb-flow", d.one)
			d.age(DefaultIdleClosing + 2*Tick)
			d.sent(forged, "fwd lb-new", d.two)
			// Its backend has gone.
			d.open()
			one := d.one
			one.Used = false
			d.must(d.plane.SetBackend(one))
			d.sent(forged, "fwd lb-new", d.two)
			d.must(d.plane.SetBackend(d.one))
			if t.Failed() {
				t.Fatal(name)
			}
		}
	})
}

// A backend that fails its checks may live: a SYN takes away from it what nobody uses.
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
			d.sent(forged, "fwd lb-flow", d.one)
			d.sent(d.segment(ends["FIN"], ""), "fwd lb-flow", d.one)
			d.sent(forged, "fwd lb-flow", d.one)
			d.sent(forged, "fwd lb-flow", d.one)
			d.sent(pure, "fwd lb-flow", d.one)
		})
		d.age(7 * Tick) // half a minute
		d.sent(forged, "fwd lb-new", d.two)
		fails()
		d.sent(d.segment(ends["FIN"], ""), "fwd lb-flow", d.one)
		d.age(2 * Tick)
		d.sent(forged, "fwd lb-new", d.two)
		// One try after the other.
		d.must(d.plane.SetBackend(d.one))
		d.buckets(func(bucket *bpfobj.PipelineLbBucket) { *bucket = bpfobj.PipelineLbBucket{} })
		d.ring(0, []Backend{d.one})
		d.sent(forged, "fwd lb-new", d.one)
		d.ring(0, []Backend{d.two})
		d.must(d.plane.SetBackend(down))
		d.sent(forged, "fwd lb-new", d.two)
	})
}
