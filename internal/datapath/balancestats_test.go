// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"reflect"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"culvert/internal/stats"
)

func TestBalanceStats(t *testing.T) {
	b := newBalanceBed(t, BalanceOptions{Flows: 1000})
	one := b.member(1, 0, "10.0.0.11")
	down := b.member(2, 3, "fd00::12", func(m *BalanceMember) { m.Down, m.Hop = true, BalanceHop{} })
	b.vip(0, "192.0.2.1:80", 6, []BalanceMember{one})
	b.vip(3, "[2001:db8::1]:0", 17, nil)
	for range 2 {
		b.run(b.packet("203.0.113.7:1234", "192.0.2.1:80", &layers.TCP{ACK: true}, make([]byte, 10)))
	}
	b.run(b.packet("[2001:db8:9::7]:1234", "[2001:db8::1]:53", &layers.UDP{}, nil))
	got, err := b.inst.BalanceStats()
	b.must(err)
	want := &stats.Balance{Flows: 1000, Used: 1, Memory: b.inst.BalanceMemory(), VIPs: []stats.BalanceVIP{
		{Name: "192.0.2.1:80/tcp", Events: map[string]uint64{}, Backends: []stats.BalanceBackend{
			{Addr: one.Addr.String(), Packets: 2, Bytes: 100, Flows: 1, Resolved: true},
		}},
		{Name: "2001:db8::1/udp", Empty: true, Events: map[string]uint64{"empty": 1}, Backends: []stats.BalanceBackend{
			{Addr: down.Addr.String(), Failing: true},
		}},
	}}
	for n := range got.VIPs { // the type of events is datapath's
		got.VIPs[n].Events = map[string]uint64(got.VIPs[n].Events)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
