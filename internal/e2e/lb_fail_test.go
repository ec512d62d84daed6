// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
)

// testBalancerDies kills culvert on a balancer, and then disconnects the whole balancer, under load. Connections go on through
// the other balancer, to the same backends.
func (b *balanced) testBalancerDies() {
	w := b.load()
	program := xdpProgram(b.T, b.lab, "lb1", "to-router")
	b.Log("culvert is killed")
	b.end("lb1", syscall.SIGKILL)
	b.awaitNextHops(1, 1)
	b.wantInBIRD(1)
	w.moves()
	if now := xdpProgram(b.T, b.lab, "lb1", "to-router"); now != program {
		b.Errorf("program %d was attached, now %d: it must outlive its process", program, now)
	}
	b.Log("culvert is started again")
	b.begin("lb1")
	w.moves()

	b.Log("the balancer is cut off")
	b.setLink("to-lb2", false)
	b.awaitNextHops(1, 1)
	w.moves()
	b.awaitOn("lb2", lbplane.Down, providers...)
	b.Log("the balancer is back")
	late := b.load() // connections that lb2 has never seen
	b.setLink("to-lb2", true)
	b.normal()
	w.moves()
	late.moves()
	w.end()
	late.end()
}

// testAgree wants both balancers to assign the same backends, though their configurations have VIPs and backends in different
// order.
func (b *balanced) testAgree() {
	const clients = 4000
	choices := make(map[string][]netip.Addr)
	for _, ns := range balancers {
		b.view(ns, func(p *lbplane.Plane, s lb.State) error {
			for _, vip := range b.webVIPs() {
				k := lb.Service{Addr: vip.Addr(), Port: vip.Port(), Protocol: lb.TCP}
				for _, v := range s.VIPs {
					if v.Service != k {
						continue
					}
					ring, err := p.Ring(v.Number)
					if err != nil {
						return err
					}
					ids := make(map[lbplane.BackendID]netip.Addr)
					for _, m := range v.Backends {
						ids[m.ID] = m.Addr
					}
					for n := range clients {
						client := netip.AddrPortFrom(numbered(vip.Addr().Is6(), n), uint16(1024+n*13))
						at := p.Options().Position(lbplane.VIP{}, uint8(lb.TCP), client, vip.Port())
						choices[ns] = append(choices[ns], ids[ring[at]])
					}
				}
			}
			return nil
		})
	}
	one, two := choices["lb1"], choices["lb2"]
	if len(one) != 2*clients || len(two) != len(one) {
		b.Fatalf("%d and %d choices, want %d", len(one), len(two), 2*clients)
	}
	differ, seen := 0, map[netip.Addr]int{}
	for n := range one {
		seen[one[n]]++
		if one[n] != two[n] {
			differ++
		}
	}
	if differ > 0 || len(seen) != len(providers) {
		b.Errorf("of %d clients %d have another backend on the other balancer; backends: %v", len(one), differ, seen)
	}
}

// numbered returns a client's address, one for each n up to 65535.
func numbered(v6 bool, n int) netip.Addr {
	if v6 {
		return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(n), 14: byte(n >> 8)})
	}
	return netip.AddrFrom4([4]byte{198, 51, byte(n >> 8), byte(n)})
}

// testUpgrade replaces culvert on a balancer, and the sizes of its tables, under load. Connections go on.
func (b *balanced) testUpgrade() {
	w := b.load()
	config := b.lab.LB.Configs["lb1"]
	before, err := os.ReadFile(config)
	check(b.T, err)
	binary := b.lab.Culvert
	defer func() {
		b.lab.Culvert = binary
		check(b.T, os.WriteFile(config, before, 0o600))
	}()
	other := filepath.Join(b.TempDir(), "culvert")
	check(b.T, copyFile(other, binary))
	configure := func(more string) {
		check(b.T, os.WriteFile(config, []byte(strings.Replace(string(before), "[lb]\n", "[lb]\n"+more, 1)), 0o600))
	}

	b.Log("another binary, with a flow table of another size, and back")
	was := xdpProgram(b.T, b.lab, "lb1", "to-router")
	for _, step := range []struct{ binary, more string }{{other, "flows = 50000\n"}, {binary, ""}} {
		b.end("lb1", syscall.SIGTERM)
		b.awaitNextHops(1, 1)
		w.moves()
		b.lab.Culvert = step.binary
		configure(step.more)
		b.begin("lb1")
		w.moves()
		now := xdpProgram(b.T, b.lab, "lb1", "to-router")
		if now == was || now == 0 {
			b.Errorf("the program on the interface is %d, before it was %d", now, was)
		}
		was = now
	}

	b.Log("another process takes over from one that is killed")
	b.end("lb2", syscall.SIGKILL)
	b.awaitNextHops(1, 1)
	w.moves()
	b.begin("lb2")
	w.moves()

	// Rings of another size assign other backends, so the balancer is alone while it has them: its flow table keeps connections at
	// their backends. The reserve route leaves no gap while culvert restarts.
	b.Log("rings of another size on a balancer that is alone")
	b.reserve("add")
	defer b.reserve("del")
	b.end("lb2", syscall.SIGTERM)
	b.awaitNextHops(2, 2) // the reserve route is one of them
	w.moves()
	for _, size := range []int{4099, 65537} {
		b.end("lb1", syscall.SIGTERM)
		b.awaitNextHops(1, 1)
		w.moves()
		configure(fmt.Sprintf("ring_size = %d\n", size))
		check(b.T, b.lab.StartBalancer("lb1"))
		b.awaitNextHops(2, 2)
		w.moves()
		b.view("lb1", func(p *lbplane.Plane, _ lb.State) error {
			if got := p.Options().RingSize; got != size {
				b.Errorf("rings have %d positions, want %d", got, size)
			}
			return nil
		})
	}
	check(b.T, b.lab.StartBalancer("lb2"))
	b.awaitNextHops(3, 3)
	w.moves()
	w.end()
}

// reserve adds or deletes routes to the VIPs over lb1 that are used when there are no better ones.
func (b *balanced) reserve(verb string) {
	b.Helper()
	for n, gateway := range []string{"198.18.11.2", "2001:db8:11::2"} {
		b.ip("router", "route", verb, b.webVIPs()[n].Addr().String(), "via", gateway, "metric", "1000")
	}
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}

// testVIPDrained drains VIPs. Their addresses are withdrawn, and packets that come nevertheless are balanced.
func (b *balanced) testVIPDrained() {
	w := b.load()
	culvert(b.T, b.lab, "lb1", "lb", "drain", b.webVIPs()[0].String()+"/tcp")
	b.awaitNextHops(1, 2)
	w.moves()
	w.refusals.Store(true) // the router knows no way
	b.lbOn("lb2", "drain", "VIP")
	b.awaitNextHops(0, 1)
	b.lbOn("lb2", "undrain", "VIP")
	b.awaitNextHops(1, 2)
	w.refusals.Store(false)
	b.lbOn("lb1", "drain", "VIP")
	b.awaitNextHops(1, 1)
	w.moves()
	b.lbOn("lb1", "undrain", "VIP")
	b.normal()
	w.moves()
	w.end()
}
