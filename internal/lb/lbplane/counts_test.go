// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"reflect"
	"testing"

	"github.com/gopacket/gopacket/layers"
)

func TestCount(t *testing.T) {
	b := newBed(t, Options{Flows: 1000})
	one := b.backend(1, 0, "10.0.0.11")
	down := b.backend(2, 3, "fd00::12", func(backend *Backend) { backend.Down, backend.Hop = true, Hop{} })
	b.vip(0, "192.0.2.1:80", 6, []Backend{one})
	b.vip(3, "[2001:db8::1]:0", 17, nil)
	for range 2 {
		b.run(b.packet("203.0.113.7:1234", "192.0.2.1:80", &layers.TCP{ACK: true}, make([]byte, 10)))
	}
	b.run(b.packet("[2001:db8:9::7]:1234", "[2001:db8::1]:53", &layers.UDP{}, nil))
	got, err := count(b.inst)
	b.must(err)
	want := &counts{Flows: 1000, Used: 1, Memory: Memory(b.inst), VIPs: []vipCounts{
		{Name: "192.0.2.1:80/tcp", Events: map[string]uint64{}, Backends: []backendCounts{
			{Addr: one.Addr.String(), Packets: 2, Bytes: 100, Flows: 1, Resolved: true},
		}},
		{Name: "2001:db8::1/udp", Empty: true, Events: map[string]uint64{"empty": 1}, Backends: []backendCounts{
			{Addr: down.Addr.String(), Failing: true},
		}},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
