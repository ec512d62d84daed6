// SPDX-License-Identifier: Apache-2.0

package route

import (
	"sync/atomic"
	"testing"
)

func TestFewRoutes(t *testing.T) {
	b := newBed(t, newFakePlane(256, 1024))
	b.ip(`route add 10.1.0.0/16 via 10.9.0.2
		route add blackhole 10.1.2.0/24
		route add unreachable 10.1.3.0/24
		route add prohibit 10.1.4.0/24
		route add 10.1.5.0/24 dev cv1
		route add 10.1.6.0/24 via 10.9.2.2
		route add 10.1.7.1 via inet6 fd09:1::3 dev cv1
		route add 2001:db8::/32 via fd09:0::2
		route add blackhole 2001:db8:1::/48
		route add prohibit 2001:db8:2::/48
		route add unreachable 2001:db8:3::/48
		route add 2001:db8:4::/48 dev cv1
		route add 2001:db8:5::/48 via fd09:2::2`)
	var synced atomic.Int32
	b.start(Options{OnSynced: func() { synced.Add(1) }})
	look := addrs("10.1.1.1", "10.1.2.1", "10.1.3.1", "10.1.4.1", "10.1.5.1", "10.1.6.1", "10.1.7.1", "10.1.7.2",
		"10.9.0.1", "10.9.0.255", "10.9.1.7", "127.0.0.1", "127.1.2.3", "8.8.8.8",
		"2001:db8::1", "2001:db8:1::1", "2001:db8:2::1", "2001:db8:3::1", "2001:db8:4::1", "2001:db8:5::1", "2001::1",
		"fd09::1", "fd09::", "fd09:1::77", "::1", "ff02::1", "ff0e::1:2")
	b.compare(look, never)
	b.ip(`route del 10.1.2.0/24
		route replace 10.1.0.0/16 via 10.9.1.2
		route add default via 10.9.0.3
		route del 2001:db8:2::/48
		route replace 2001:db8::/32 via fd09:1::2
		route add default via fd09:0::3`)
	b.barrier()
	b.compare(look, never)
	b.ip("route del default\nroute del default via fd09:0::3")
	b.barrier()
	b.compare(look, never)
	if n := synced.Load(); n != 1 {
		t.Errorf("OnSynced was called %d times, want once", n)
	}
	if n := b.status.Load().Dumps; n != 1 {
		t.Errorf("the tables were read %d times, want once", n)
	}
}
