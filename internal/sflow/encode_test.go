// SPDX-License-Identifier: Apache-2.0

package sflow

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"

	decoder "github.com/netsampler/goflow2/v2/decoders/sflow"
)

// decode has a real decoder read a datagram.
func decode(t *testing.T, d *Datagram) decoder.Packet {
	t.Helper()
	b := d.Encode(Agent{Address: netip.MustParseAddr("2001:db8::1"), Sub: 7}, 9, 1500*time.Millisecond)
	if len(b) > MaxDatagram {
		t.Errorf("a datagram of %d bytes", len(b))
	}
	var p decoder.Packet
	if err := decoder.DecodeMessageVersion(bytes.NewBuffer(b), &p); err != nil {
		t.Fatalf("%x: %v", b, err)
	}
	if p.SubAgentId != 7 || p.SequenceNumber != 9 || p.Uptime != 1500 || netip.AddrFrom16([16]byte(p.AgentIP)).String() != "2001:db8::1" {
		t.Errorf("header %+v", p)
	}
	return p
}

// find returns the record of a type.
func find[T any](t *testing.T, records []decoder.FlowRecord) T {
	t.Helper()
	for _, r := range records {
		if data, ok := r.Data.(T); ok {
			return data
		}
	}
	t.Fatalf("no %T in %+v", *new(T), records)
	panic("not reached")
}

// TestFlowSample has samples in the compact format, and with indexes that need the expanded one.
func TestFlowSample(t *testing.T) {
	for n := range 9 {
		header := slices.Repeat([]byte{0xab}, 60+n) // paddings
		p := &Packet{
			Input: 3, Output: 4, Header: header, Length: 1000, Switch: &Switch{InVLAN: 10, InPriority: 1, OutVLAN: 20, OutPriority: 2},
			Router: &Router{NextHop: netip.MustParseAddr("192.0.2.1"), SourceBits: 8, DestinationBits: 24},
		}
		s := FlowSample{Sequence: 1, Rate: 100, Pool: 12345, Drops: 6, Packet: p}
		var d Datagram
		d.Add(s.Encode())
		large := *p
		large.Input, large.Output = 1<<24, 1<<30
		s.Packet = &large
		d.Add(s.Encode())
		got := decode(t, &d)
		compact, expanded := got.Samples[0].(decoder.FlowSample), got.Samples[1].(decoder.ExpandedFlowSample)
		if compact.Input != 3 || compact.Output != 4 || compact.SamplingRate != 100 || compact.SamplePool != 12345 || compact.Drops != 6 ||
			compact.Header.SourceIdType != 0 || compact.Header.SourceIdValue != 3 || compact.Header.SampleSequenceNumber != 1 {
			t.Errorf("compact %+v", compact)
		}
		if expanded.InputIfFormat != 0 || expanded.InputIfValue != 1<<24 || expanded.OutputIfFormat != 0 || expanded.OutputIfValue != 1<<30 ||
			expanded.SamplePool != 12345 || expanded.Header.SourceIdValue != 1<<24 {
			t.Errorf("expanded %+v", expanded)
		}
		for _, records := range [][]decoder.FlowRecord{compact.Records, expanded.Records} {
			h := find[decoder.SampledHeader](t, records)
			if h.Protocol != 1 || h.FrameLength != 1004 || h.Stripped != 4 || int(h.OriginalLength) != len(header) || !bytes.Equal(h.HeaderData[:len(header)], header) {
				t.Errorf("header %+v", h)
			}
			if v := find[decoder.ExtendedSwitch](t, records); v != (decoder.ExtendedSwitch{SrcVlan: 10, SrcPriority: 1, DstVlan: 20, DstPriority: 2}) {
				t.Errorf("switch %+v", v)
			}
			r := find[decoder.ExtendedRouter](t, records)
			if r.SrcMaskLen != 8 || r.DstMaskLen != 24 || !bytes.Equal(r.NextHop, []byte{192, 0, 2, 1}) {
				t.Errorf("router %+v", r)
			}
		}
	}
}

// TestDiscardAndCounters has a notification and counters, also with large indexes.
func TestDiscardAndCounters(t *testing.T) {
	var d Datagram
	p := &Packet{Input: 1 << 25, Discarded: true, Reason: BlackholeRoute, Function: "route-blackhole", Header: []byte("header"), Length: 60}
	d.Add((&Discard{Sequence: 2, Drops: 5, Packet: p}).Encode())
	d.Add((&FlowSample{Packet: p}).Encode())
	i := Interface{
		Index: 3, Type: ethernet, Speed: 1e11, Duplex: 1, AdminUp: true, Up: true, InBytes: 1 << 40, OutBytes: 1 << 41,
		InPackets: 100, InMulticast: 10, InDiscards: 2, InErrors: 3, OutPackets: 200, OutDiscards: 4, OutErrors: 5,
	}
	d.Add(EncodeCounters(8, &i))
	i.Index = 1 << 24
	d.Add(EncodeCounters(9, &i))
	got := decode(t, &d)
	drop := got.Samples[0].(decoder.DropSample)
	if drop.Header.SampleSequenceNumber != 2 || drop.Header.SourceIdValue != 1<<25 || drop.Drops != 5 || drop.Input != 1<<25 || drop.Output != 0 || drop.Reason != 269 {
		t.Errorf("notification %+v", drop)
	}
	if f := find[decoder.ExtendedFunction](t, drop.Records); f.Symbol != "route-blackhole" {
		t.Errorf("function %q", f.Symbol)
	}
	if s := got.Samples[1].(decoder.ExpandedFlowSample); s.OutputIfFormat != 1 || s.OutputIfValue != 269 {
		t.Errorf("sample of a dropped packet %+v", s)
	}
	for n, index := range []uint32{3, 1 << 24} {
		s := got.Samples[2+n].(decoder.CounterSample)
		c := s.Records[0].Data.(decoder.IfCounters)
		if s.Header.SourceIdValue != index || c.IfIndex != index || c.IfSpeed != 1e11 || c.IfDirection != 1 || c.IfStatus != 3 || c.IfInOctets != 1<<40 ||
			c.IfInUcastPkts != 90 || c.IfInMulticastPkts != 10 || c.IfInDiscards != 2 || c.IfInErrors != 3 || c.IfOutOctets != 1<<41 ||
			c.IfOutUcastPkts != 200 || c.IfOutDiscards != 4 || c.IfOutErrors != 5 || c.IfInBroadcastPkts != notCounted || c.IfPromiscuousMode != 2 {
			t.Errorf("counters %+v %+v", s.Header, c)
		}
	}
}

// TestDatagramIsFull fills datagrams with the largest samples.
func TestDatagramIsFull(t *testing.T) {
	p := &Packet{Header: make([]byte, 256), Router: &Router{NextHop: netip.MustParseAddr("2001:db8::2")}, Switch: &Switch{}}
	var d Datagram
	n := 0
	for s := (&FlowSample{Packet: p}).Encode(); d.Fits(s); n++ {
		d.Add(s)
	}
	if got := decode(t, &d); len(got.Samples) != n || n < 3 || !d.Empty() {
		t.Errorf("%d samples, of %d", len(got.Samples), n)
	}
}

// TestWindow wants no more events in any second than allowed, and all that are.
func TestWindow(t *testing.T) {
	var w window
	at := time.Now()
	var taken []time.Time
	for range 10_000 { // 1 ms apart
		at = at.Add(time.Millisecond)
		if w.take(at, 50) {
			taken = append(taken, at)
		}
	}
	if len(taken) < 490 || len(taken) > 500 {
		t.Errorf("%d taken in 10 seconds of 50", len(taken))
	}
	for n := 50; n < len(taken); n++ {
		if taken[n].Sub(taken[n-50]) < time.Second {
			t.Fatalf("51 taken within %s", taken[n].Sub(taken[n-50]))
		}
	}
	if w.take(at.Add(time.Millisecond), 0) {
		t.Error("taken with a limit of 0")
	}
	at = at.Add(2 * time.Second)
	for n := range 3 {
		if w.take(at, 2) != (n < 2) {
			t.Errorf("event %d with another limit", n)
		}
	}
}

// TestLedger wants the drops of a notification to be the packets that were dropped without one.
func TestLedger(t *testing.T) {
	l := NewLedger()
	l.Add(5, 10, 1, 7)
	l.Add(5, 20, 0, 4)
	p := &Packet{Input: 5, Header: make([]byte, 14)}
	for n, want := range []uint32{10, 9} {
		var d Datagram
		d.Add(l.Discard(p))
		if s := decode(t, &d).Samples[0].(decoder.DropSample); s.Drops != want || s.Header.SampleSequenceNumber != uint32(n+1) {
			t.Errorf("notification %d: %+v", n, s)
		}
	}
	var d Datagram
	d.Add(l.Flow(p, 10))
	if s := decode(t, &d).Samples[0].(decoder.FlowSample); s.SamplePool != 30 || s.Drops != 1 || s.SamplingRate != 10 {
		t.Errorf("sample %+v", s)
	}
}

// TestParseFrame reads frames with and without a tag, and frames that are cut off.
func TestParseFrame(t *testing.T) {
	mac := []byte{2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1}
	v4 := append([]byte{8, 0, 0x45}, append(make([]byte, 11), 10, 0, 0, 1, 10, 0, 0, 2)...)
	f := ParseFrame(slices.Concat(mac, v4))
	if f.Destination != [6]byte(mac) || f.Tagged || f.From.String() != "10.0.0.1" || f.To.String() != "10.0.0.2" {
		t.Errorf("%+v", f)
	}
	f = ParseFrame(slices.Concat(mac, []byte{0x81, 0, 0x60, 0x64}, v4))
	if !f.Tagged || f.VLAN != 100 || f.Priority != 3 || f.To.String() != "10.0.0.2" {
		t.Errorf("%+v", f)
	}
	whole := slices.Concat(mac, []byte{0x81, 0, 0, 1, 0x86, 0xdd}, make([]byte, 40))
	for n := range whole {
		if f := ParseFrame(whole[:n]); f.To.IsValid() {
			t.Errorf("addresses in %d bytes", n)
		}
	}
}
