// SPDX-License-Identifier: Apache-2.0

package toobig

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"culvert/internal/testbed"
)

func run(t *testing.T, command string) {
	t.Helper()
	words := strings.Fields(command)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
}

// TestFits checks that a way takes what the interface, the route and the cache of path MTUs say, and that changes are seen.
func TestFits(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "a0", "a1")
	run(t, "sysctl -qw net.ipv6.conf.a0.disable_ipv6=0")
	for _, family := range []struct {
		prefix, local, far, ip, nodad string
		overhead                      int
	}{
		{"192.0.2.0/24", "192.0.2.1", "192.0.2.2", "ip -4", "", 28},
		{"2001:db8::/64", "2001:db8::1", "2001:db8::2", "ip -6", " nodad", 48},
	} {
		run(t, "ip addr add "+family.local+" dev a0"+family.nodad)
		run(t, family.ip+" route add "+family.prefix+" dev a0")
		p, err := NewProber(netip.MustParseAddr(family.local))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		far := netip.AddrPortFrom(netip.MustParseAddr(family.far), 50000)
		want := func(what string, mtu int) {
			t.Helper()
			for _, length := range []int{mtu - family.overhead, mtu - family.overhead + 1, 9000} {
				for range 2 { // the second answer may come from what is known
					room, fits := p.Fits(length, far)
					if fits != (length <= mtu-family.overhead) || !fits && room != mtu-family.overhead {
						t.Errorf("%s: %d bytes to %s: room %d, fits %v, want %d", what, length, far, room, fits, mtu-family.overhead)
					}
				}
			}
		}
		want("interface", 1500)
		run(t, family.ip+" route change "+family.prefix+" dev a0 mtu lock 1400")
		time.Sleep(fresh) // a shorter way is seen when what is known is old
		want("route", 1400)
		run(t, family.ip+" route change "+family.prefix+" dev a0")
		want("interface again", 1500)
		run(t, "ip link set a0 mtu 1330")
		time.Sleep(fresh)
		want("shorter interface", 1330)
		run(t, "ip link set a0 mtu 1500")
		run(t, family.ip+" route del "+family.prefix)
		time.Sleep(fresh)
		if _, fits := p.Fits(9000, far); !fits {
			t.Errorf("%s: too big without a route: sending tells", family.far)
		}
	}
}

// TestManyWays checks that senders who name many hosts do not take memory.
func TestManyWays(t *testing.T) {
	testbed.InNamespace(t)
	run(t, "ip link set lo up")
	run(t, "ip route add local 10.0.0.0/8 dev lo")
	p, err := NewProber(netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for i := range 3 * mostWays {
		p.Fits(9000, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 1))
	}
	if len(p.ways) > mostWays {
		t.Errorf("%d ways are known, at most %d", len(p.ways), mostWays)
	}
	p.Close()
	if _, fits := p.Fits(60_000, netip.MustParseAddrPort("10.9.9.9:9")); !fits {
		t.Error("a closed prober finds a packet too big")
	}
}
