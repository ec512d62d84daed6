// SPDX-License-Identifier: Apache-2.0

package route

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// churn makes up changes of routes and keeps no account of them: the kernel refuses what does not fit.
type churn struct {
	rng *rand.Rand
	is6 bool
	// uncertain allows what the mirror has to ask for.
	uncertain bool
}

func (c *churn) family() string {
	if c.is6 {
		return "-6"
	}
	return "-4"
}

// prefix picks one of a few nested prefixes.
func (c *churn) prefix() string {
	if c.is6 {
		p := netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte(c.rng.IntN(4)), byte(c.rng.IntN(4)),
			byte(c.rng.IntN(3))}), []int{16, 32, 36, 40, 48, 56, 64, 128}[c.rng.IntN(8)])
		return p.Masked().String()
	}
	p := netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(c.rng.IntN(4)), byte(c.rng.IntN(4)), byte(c.rng.IntN(4) * 64)}),
		[]int{6, 8, 12, 16, 20, 24, 25, 26, 32}[c.rng.IntN(9)])
	return p.Masked().String()
}

// gateway picks a device and, mostly, a neighbor.
func (c *churn) gateway() string {
	dev, host := c.rng.IntN(3), 2+c.rng.IntN(8)
	switch {
	case c.rng.IntN(6) == 0:
		return fmt.Sprintf("dev cv%d", dev)
	case c.is6:
		return fmt.Sprintf("via fd09:%d::%d dev cv%d", dev, host, dev)
	case c.rng.IntN(8) == 0:
		return fmt.Sprintf("via inet6 fd09:%d::%d dev cv%d", dev, host, dev)
	}
	return fmt.Sprintf("via 10.9.%d.%d", dev, host)
}

func (c *churn) way() (kind, way string) {
	switch n := c.rng.IntN(20); {
	case n < 3:
		return []string{"blackhole", "unreachable", "prohibit"}[n], ""
	case n < 6:
		return "", fmt.Sprintf("nhid %d", c.objects()+c.rng.IntN(8))
	case n < 8 && c.uncertain:
		return "", fmt.Sprintf("nexthop %s nexthop %s", c.gateway(), c.gateway())
	}
	return "", c.gateway()
}

// objects is the number of the first next hop object of the family.
func (c *churn) objects() int {
	if c.is6 {
		return 600
	}
	return 400
}

func (c *churn) object() string {
	if c.rng.IntN(8) == 0 {
		return "blackhole"
	}
	dev, host := c.rng.IntN(3), 2+c.rng.IntN(8)
	if c.is6 {
		return fmt.Sprintf("via fd09:%d::%d dev cv%d", dev, host, dev)
	}
	return fmt.Sprintf("via 10.9.%d.%d dev cv%d", dev, host, dev)
}

// lines makes n commands of ip(8).
func (c *churn) lines(n int) string {
	var out strings.Builder
	for range n {
		if c.rng.IntN(30) == 0 {
			id := c.objects() + c.rng.IntN(8)
			if c.rng.IntN(4) == 0 {
				fmt.Fprintf(&out, "nexthop del id %d\n", id)
			} else {
				fmt.Fprintf(&out, "nexthop replace id %d %s\n", id, c.object())
			}
			continue
		}
		verb := []string{"add", "add", "replace", "replace", "append", "prepend", "del", "del", "del"}[c.rng.IntN(9)]
		if !c.uncertain && (verb == "append" || verb == "prepend") {
			verb = "add"
		}
		kind, way := c.way()
		more := fmt.Sprintf("metric %d", 1+c.rng.IntN(3))
		if c.uncertain && !c.is6 && c.rng.IntN(10) == 0 {
			more += " tos 0x10"
		}
		if c.uncertain && c.rng.IntN(20) == 0 {
			more += " mtu 1400"
		}
		if verb == "del" {
			if c.rng.IntN(2) == 0 {
				way, more = "", ""
			}
			kind = ""
		}
		fmt.Fprintf(&out, "route %s %s %s %s %s\n", verb, kind, c.prefix(), way, more)
	}
	return out.String()
}

// look picks addresses in and around the prefixes.
func (c *churn) look(n int) (list []netip.Addr) {
	for range n {
		if c.is6 {
			list = append(list, netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte(c.rng.IntN(5)), byte(c.rng.IntN(5)),
				byte(c.rng.IntN(4)), byte(c.rng.IntN(2)), 8: byte(c.rng.IntN(2)), 15: byte(c.rng.IntN(2))}))
			continue
		}
		list = append(list, netip.AddrFrom4([4]byte{20, byte(c.rng.IntN(5)), byte(c.rng.IntN(5)), byte(c.rng.IntN(256))}))
	}
	return list
}

// askable lists the kernel's routes, and returns a function that reports whether the answer for an address depends on
// more than the destination.
func (b *bed) askable(is6 bool) func(netip.Addr) bool {
	b.t.Helper()
	family := unix.AF_INET
	if is6 {
		family = unix.AF_INET6
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	req.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family)}})
	got, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
	check(b.t, err)
	type best struct {
		metric    uint32
		routes    int
		uncertain bool
	}
	all := map[netip.Prefix]*best{}
	for _, data := range got {
		var rt routeMessage
		if !parseRoute(data, &rt) || rt.table != unix.RT_TABLE_MAIN {
			continue
		}
		// A connected route with its own MTU asks, since neighbors have one next hop for all routes.
		gateway, _ := hopOfMessage(data)
		uncertain := rt.unsupported || rt.multi || rt.mtu != 0 && !gateway.IsValid()
		one := all[rt.prefix]
		if one == nil {
			one = &best{metric: rt.metric}
			all[rt.prefix] = one
		}
		switch {
		case rt.tos != 0 && !is6:
			one.uncertain = true
		case one.routes == 0 || rt.metric < one.metric:
			one.metric, one.routes, one.uncertain = rt.metric, 1, one.uncertain || uncertain
		case rt.metric == one.metric:
			one.routes++
		}
	}
	return func(a netip.Addr) bool {
		for length := a.BitLen(); length >= 0; length-- {
			p, _ := a.Prefix(length)
			if one := all[p]; one != nil {
				return one.uncertain || one.routes > 1
			}
		}
		return false
	}
}

func TestRandomRoutes(t *testing.T) {
	for _, uncertain := range []bool{false, true} {
		t.Run(fmt.Sprintf("uncertain=%v", uncertain), func(t *testing.T) {
			b := newBed(t, newFakePlane(4096, 16384))
			kinds := []*churn{{rng: rand.New(rand.NewPCG(1, 4)), uncertain: uncertain}, {rng: rand.New(rand.NewPCG(1, 6)), uncertain: uncertain, is6: true}}
			for _, c := range kinds {
				for id := range 8 {
					_, err := runIP(fmt.Sprintf("nexthop add id %d %s", c.objects()+id, c.object()), c.family())
					check(t, err)
				}
				_, _ = runIP(c.lines(300), c.family(), "-force")
			}
			b.start(Options{})
			asked, looked := 0, 0
			for range 25 {
				for i, c := range kinds {
					// Some commands do not fit what is there; the others count.
					_, _ = runIP(c.lines(200), c.family(), "-force")
					b.barrierOf(i)
					list := c.look(400)
					asked += b.compare(list, func(netip.Addr) bool { return true })
					looked += len(list)
				}
			}
			if s := b.status.Load(); s.IPv4.Routes < 50 || s.IPv6.Routes < 50 {
				t.Fatalf("too few routes to tell anything: %+v", s)
			}
			t.Logf("asked for %d of %d; %+v", asked, looked, b.status.Load())
			// Once the tables have been read again, only uncertain routes may ask.
			b.clear()
			for _, c := range kinds {
				ok := b.askable(c.is6)
				asked := b.compare(c.look(2000), ok)
				if !uncertain && asked > 0 {
					t.Errorf("%d addresses are asked for although the answer for every route is certain", asked)
				}
			}
		})
	}
}

// TestChurnDuringDumps changes routes while the tables are read over and over again. No change may get lost between
// dumps and notifications.
func TestChurnDuringDumps(t *testing.T) {
	b := newBed(t, newFakePlane(4096, 32768))
	for _, is6 := range []bool{false, true} {
		// Enough to need many parts of a dump, around the addresses of the changes.
		var batch strings.Builder
		for i := range 6000 {
			if is6 {
				fmt.Fprintf(&batch, "route add 2001:db8:%x:%x::/64 via fd09:0::2\n", i%1024*16+8, i/1024+100)
			} else {
				fmt.Fprintf(&batch, "route add 20.%d.%d.%d/32 via 10.9.0.2\n", i%4, i/4%256, i/1024+100)
			}
		}
		b.ip(batch.String())
	}
	b.start(Options{dumpAlways: true})
	for seed := range uint64(3) {
		for _, is6 := range []bool{false, true} {
			c := &churn{rng: rand.New(rand.NewPCG(seed, 7)), is6: is6, uncertain: seed == 2}
			_, _ = runIP(c.lines(4000), c.family(), "-force")
			list := c.look(1000)
			for i := range 1000 {
				if is6 {
					i = i * 6
					list = append(list, netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, byte((i%1024*16 + 8) >> 8), byte(i%1024*16 + 8), 0, byte(i/1024 + 100)}))
				} else {
					list = append(list, netip.AddrFrom4([4]byte{20, byte(i % 4), byte(i / 4), byte(i/1024 + 100)}))
				}
			}
			b.barrier()
			b.compare(list, always)
			// The dump after the running one begins after now, and settles all that is uncertain at the moment.
			dumps := b.status.Load().Dumps
			b.wait("another two dumps", func() bool { return b.status.Load().Dumps > dumps+2 })
			b.barrier()
			if asked := b.compare(list, b.askable(is6)); asked > len(list)/2 {
				t.Errorf("asked for %d of %d", asked, len(list))
			}
		}
	}
	t.Logf("%+v", b.status.Load())
}
