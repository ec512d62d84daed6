// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
)

// someFlows returns flows of VIPs and backends of both families.
func someFlows(n int) (flows []toldFlow) {
	for i := range n {
		f := toldFlow{
			service: lb.Service{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Protocol: lb.TCP}, port: 80,
			backend: netip.MustParseAddr("10.0.0.11"), client: flow(i), state: lbplane.FlowState(i % 3), idle: time.Duration(i%900) * time.Second,
		}
		if i*5/n%2 == 1 {
			f.service = lb.Service{Addr: netip.MustParseAddr("2001:db8::1"), Protocol: lb.UDP}
			f.client, f.state, f.port = netip.MustParseAddrPort("[2001:db8:1::1]:53"), lbplane.FlowUDP, uint16(i)
		}
		if i*7/n%2 == 1 {
			f.backend = netip.MustParseAddr("fd00::11")
		}
		flows = append(flows, f)
	}
	return flows
}

// TestWire wants what is read to be what was written, in datagrams that are not too long.
func TestWire(t *testing.T) {
	c := newCodec([]byte("key"))
	want := someFlows(1000)
	h := header{kindFlows, netip.MustParseAddrPort("10.0.0.1:9482"), 4711, 12, sums{[8]byte{1}, [8]byte{2}}}
	var got []toldFlow
	datagrams := 0
	for left := want; len(left) > 0; datagrams++ {
		b, n := appendFlows(h.append(nil), left)
		left = left[n:]
		if b = c.seal(b); len(b) > maxDatagram || n == 0 {
			t.Fatalf("%d bytes for %d flows", len(b), n)
		}
		as, body, err := c.open(b)
		if err != nil || as != h {
			t.Fatalf("%v: %+v", err, as)
		}
		flows, err := readFlows(body)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, flows...)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d flows came, not as they were", len(got))
	}
	t.Logf("%d flows in %d datagrams", len(want), datagrams)
}

// TestWireCut wants nothing that is cut or changed to be taken, and nothing to crash.
func TestWireCut(t *testing.T) {
	c := newCodec([]byte("key"))
	h := header{kind: kindFlows, sender: netip.MustParseAddrPort("10.0.0.1:9482")}
	b, _ := appendFlows(h.append(nil), someFlows(20))
	whole := c.seal(slices.Clone(b))
	for n := range whole {
		if _, _, err := c.open(whole[:n]); err == nil {
			t.Errorf("a datagram cut to %d bytes is taken", n)
		}
		changed := slices.Clone(whole)
		changed[n] ^= 1 << (n % 8)
		if _, _, err := c.open(changed); err == nil {
			t.Errorf("a datagram with another byte %d is taken", n)
		}
	}
	if _, _, err := newCodec([]byte("other")).open(whole); err != errMAC {
		t.Errorf("with another key: %v", err)
	}
	other := slices.Clone(whole)
	other[4] = 2
	if _, _, err := c.open(other); err != errVersion {
		t.Errorf("of another version: %v", err)
	}
	// A peer with the key may be wrong too.
	body := b[headerSize:]
	for n := 1; n < len(body); n++ {
		if flows, err := readFlows(body[:n]); err == nil && len(flows) >= 20 {
			t.Errorf("%d flows from a body cut to %d bytes", len(flows), n)
		}
	}
	for range 20_000 {
		random := slices.Clone(body)
		for range 1 + rand.IntN(4) {
			random[rand.IntN(len(random))] = byte(rand.Uint32())
		}
		flows, err := readFlows(random)
		if err != nil {
			continue
		}
		for _, f := range flows {
			if f.service.Protocol != lb.TCP && f.service.Protocol != lb.UDP || f.service.Port != 0 && f.service.Port != f.port ||
				f.service.Addr.Is4() != f.client.Addr().Is4() {
				t.Fatalf("%+v is taken", f)
			}
		}
	}
	huge := binary.BigEndian.AppendUint16(slices.Clone(body[:len(body)/2]), 65535)
	if _, err := readFlows(huge); err == nil {
		t.Error("a body with half a flow at its end is taken")
	}
}

// TestWindow takes each number once, in any order that a network may make of them.
func TestWindow(t *testing.T) {
	w := startWindow(100)
	for _, step := range []struct {
		seq   uint64
		fresh bool
		lost  uint64
	}{
		{100, false, 0}, {99, false, 0}, {101, true, 0}, {101, false, 0}, {104, true, 0}, {102, true, 0}, {102, false, 0},
		{103 + 63, true, 0},    // 103 has not come and is not too old
		{103, true, 0},         // 63 behind
		{105 + 63, true, 0},    // 104 had come
		{105 + 64, true, 1},    // 105 had not
		{104, false, 0},        // too old
		{105 + 200, true, 133}, // 106 to 241 are too old, and three of them had come
	} {
		fresh, lost := w.take(step.seq)
		if fresh != step.fresh || lost != step.lost {
			t.Errorf("%d: new %v, lost %d", step.seq, fresh, lost)
		}
	}
	// Whatever comes in whatever order, each number is taken or lost in the end.
	w = startWindow(0)
	taken, lost := uint64(0), uint64(0)
	for seq := uint64(1); seq <= 10_000; seq += 8 {
		order := rand.Perm(8)
		for _, n := range order[:rand.IntN(9)] {
			fresh, gone := w.take(seq + uint64(n))
			lost += gone
			if !fresh {
				t.Fatalf("%d was not there before", seq+uint64(n))
			}
			taken++
		}
	}
	_, gone := w.take(10_000 + windowSize) // all before are too old then, and 63 to come are not
	if lost += gone; taken+lost != 10_000 {
		t.Errorf("%d taken, %d lost, of 10000", taken, lost)
	}
}
