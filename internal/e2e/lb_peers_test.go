// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"culvert/internal/lab"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/lbview"
	"culvert/internal/lb/peerstate"
	"culvert/internal/testbed"
)

// connectionsEnv has the number of connections of TestLBPeers: 'make test-long' takes 10,000.
const connectionsEnv = "CULVERT_TEST_CONNECTIONS"

// peersPort is the port of the exchange of flows.
const peersPort = 9482

// tier is a lab of three load balancers.
type tier struct {
	*balanced
	vip  netip.AddrPort
	name []string // of the balancers
	// made has their configurations as the lab has made them, and peers what is added to each.
	made, peers map[string]string
}

// TestLBPeers has connections through three load balancers under load while backends are drained and added, and kills a balancer.
// With [lb.peers] none breaks. Without, those break that were assigned before the changes and meet another balancer.
func TestLBPeers(t *testing.T) {
	connections := 450
	if text := os.Getenv(connectionsEnv); text != "" {
		n, err := strconv.Atoi(text)
		check(t, err)
		connections = n
	}
	l := up(t, "lb", lab.Options{Name: "peers", Balancers: 3})
	b := &tier{balanced: &balanced{T: t, lab: l}, vip: netip.AddrPortFrom(l.LB.VIP4, 80), name: []string{"lb1", "lb2", "lb3"},
		made: make(map[string]string), peers: make(map[string]string)}
	without := b.loseOne(connections, nil)
	b.usePeers()
	with := b.loseOne(connections, b.awaitTold)
	b.wantShown()
	t.Logf("of %d connections broke: %d without peers, %d with peers", connections, without, with)
	if without == 0 || with > 0 {
		t.Errorf("of %d connections broke: %d without peers, want some; %d with peers, want none", connections, without, with)
		for _, ns := range b.name {
			log, _ := os.ReadFile(filepath.Join(l.Dir, "logs", lab.CulvertProcess(ns)+".log"))
			t.Logf("log of %s:\n%s", ns, log[max(0, len(log)-4<<10):])
		}
	}
}

// loseOne opens connections, changes backends, calls settled, and loses a balancer, which comes back. It returns how many
// connections have broken.
func (b *tier) loseOne(connections int, settled func(*crowd)) int {
	b.Helper()
	b.configure(without("b4"))
	b.awaitVIP4(3)
	b.awaitUp("b1", "b2", "b3")
	c := b.crowd(connections * 2 / 3)
	c.start()
	b.configure(drained("b1"))
	b.awaitUp(providers...)
	c.more(connections - connections*2/3)
	if settled != nil {
		settled(c)
	}
	c.round()
	if n := c.broken(); n > 0 {
		b.Errorf("%d connections broke before a balancer was lost: %v", n, c.first())
	}
	b.Log("a balancer dies")
	b.setLink("to-lb1", false)
	b.end("lb1", syscall.SIGKILL)
	b.awaitVIP4(2)
	c.round()
	b.Log("it comes back")
	b.setLink("to-lb1", true)
	_, err := b.lab.Run(b.Context(), "lb1", b.lab.Culvert, "detach", "--all") // as after a boot
	check(b.T, err)
	check(b.T, b.lab.StartBalancer("lb1"))
	b.awaitVIP4(3)
	c.round()
	c.stop()
	if n := c.broken(); n > 0 {
		b.Logf("%d of %d connections broke; the first: %v", n, connections, c.first())
	}
	return c.broken()
}

// awaitVIP4 waits until router has so many next hops to the IPv4 VIP.
func (b *tier) awaitVIP4(n int) {
	b.Helper()
	b.wait(fmt.Sprintf("%d next hops to %s", n, b.vip), func() bool {
		got, err := b.lab.NextHops("router", b.vip.Addr())
		check(b.T, err)
		return got == n
	})
}

// awaitUp waits until all balancers have found that backends are up.
func (b *tier) awaitUp(backends ...string) {
	b.Helper()
	for _, ns := range b.name {
		for _, name := range backends {
			b.wait(fmt.Sprintf("%s to be up on %s", name, ns), func() bool {
				up := true
				b.eachBackend(ns, name, func(p *lbplane.Plane, m lb.Backend) error {
					h, err := p.Health(m.ID.Number())
					up = up && h.Backend == m.ID && h.State == lbplane.Up
					return err
				})
				return up
			})
		}
	}
}

// without returns a change of a configuration that takes a backend out.
func without(name string) func(string) string {
	table := regexp.MustCompile(`\n\[\[lb\.vip\.backend\]\]\naddress = "` + backendAddrs[name].String() + `"\nencapsulation = "\w+"\n`)
	return func(text string) string { return table.ReplaceAllString(text, "") }
}

// drained returns a change of a configuration that takes new flows from a backend.
func drained(name string) func(string) string {
	line := fmt.Sprintf("address = %q\n", backendAddrs[name])
	return func(text string) string { return strings.ReplaceAll(text, line, line+"weight = 0\n") }
}

// configure writes the configuration of all balancers, as the lab has made it but for change, and has them read it.
func (b *tier) configure(change func(string) string) {
	b.Helper()
	for _, ns := range b.name {
		config := b.lab.LB.Configs[ns]
		if b.made[ns] == "" {
			text, err := os.ReadFile(config)
			check(b.T, err)
			b.made[ns] = string(text)
		}
		check(b.T, os.WriteFile(config, []byte(change(b.made[ns])+b.peers[ns]), 0o600))
		culvert(b.T, b.lab, ns, "reload")
	}
}

// usePeers has the next configurations of all balancers an [lb.peers] table.
func (b *tier) usePeers() {
	b.Helper()
	dir := b.TempDir()
	key := filepath.Join(dir, "peers.key")
	check(b.T, os.WriteFile(key, []byte("a key for tests only, of enough bytes\n"), 0o600))
	ca := testbed.NewAuthority(b.T)
	machine := func(ns string) netip.Addr { return netip.MustParseAddr("198.18.1" + ns[2:] + ".2") }
	address := func(ns string) string { return netip.AddrPortFrom(machine(ns), peersPort).String() }
	for _, ns := range b.name {
		var others []string
		for _, other := range b.name {
			if other != ns {
				others = append(others, strconv.Quote(address(other)))
			}
		}
		cert, secret := ca.Issue(machine(ns))
		b.peers[ns] = fmt.Sprintf("\n[lb.peers]\nlisten = %q\npeers = [%s]\nkey_file = %q\n", address(ns), strings.Join(others, ", "), key) +
			fmt.Sprintf("[lb.peers.bulk]\ncert_file = %q\nkey_file = %q\nca_file = %q\ntimeout = \"20s\"\n", cert, secret, ca.CA)
	}
}

// awaitTold waits until each balancer has each flow whose backend is not that of the ring.
func (b *tier) awaitTold(c *crowd) {
	b.Helper()
	begin := time.Now()
	deviating := 0
	for _, ns := range b.name {
		var missing int
		b.wait("the flows of the others on "+ns, func() bool {
			missing, deviating = b.missing(ns, c)
			return missing == 0
		})
	}
	b.Logf("all balancers have %d flows with other backends than the rings' %v after the last change", deviating, time.Since(begin).Round(time.Millisecond))
	if deviating == 0 {
		b.Error("no flow has another backend than that of the ring")
	}
}

// wantShown wants the commands to say that all balancers exchange flows, and that lb1 has asked for them before it was announced.
func (b *tier) wantShown() {
	b.Helper()
	for _, ns := range b.name {
		var report lbview.Report
		check(b.T, json.Unmarshal([]byte(culvert(b.T, b.lab, ns, "lb", "show", "-j")), &report))
		p := report.Peers
		if p == nil || len(p.Peers) != 2 || p.Bulk != peerstate.BulkDone {
			b.Fatalf("%s shows %+v", ns, p)
		}
		for _, other := range p.Peers {
			if !other.Up || other.OtherSeed || other.OtherRings || other.Datagrams[peerstate.Accepted] == 0 {
				b.Errorf("%s shows %+v", ns, other)
			}
		}
		shown, status := culvert(b.T, b.lab, ns, "lb", "show"), culvert(b.T, b.lab, ns, "status")
		if strings.Count(shown, "\npeer ") != 2 || strings.Contains(status, "PEERS") {
			b.Errorf("%s shows\n%s\nand\n%s", ns, shown, status)
		}
		if out := culvert(b.T, b.lab, ns, "lb", "dump"); !strings.Contains(out, "[lb.peers] is left out") {
			b.Errorf("lb dump in %s says\n%s", ns, out)
		}
		if out := culvert(b.T, b.lab, ns, "doctor"); !strings.Contains(out, "lb-peers") {
			b.Errorf("doctor in %s says\n%s", ns, out)
		}
	}
	log, err := os.ReadFile(filepath.Join(b.lab.Dir, "logs", lab.CulvertProcess("lb1")+".log"))
	check(b.T, err)
	last := log[max(0, bytes.LastIndex(log, []byte("msg=attached "))):]
	asked, announced := bytes.Index(last, []byte("have told their flows")), bytes.Index(last, []byte("addresses to announce"))
	if asked < 0 || announced < asked {
		b.Errorf("lb1 has asked its peers at %d and announced addresses at %d of\n%s", asked, announced, last)
	}
}

// missing returns how many connections have another backend than the ring's, and how many of these a balancer does not know.
func (b *tier) missing(ns string, c *crowd) (missing, deviating int) {
	b.Helper()
	b.view(ns, func(p *lbplane.Plane, s lb.State) error {
		for _, v := range s.VIPs {
			if v.Service.Addr != b.vip.Addr() {
				continue
			}
			ring, err := p.Ring(v.Number)
			if err != nil {
				return err
			}
			addrs := make(map[lbplane.BackendID]netip.Addr)
			for _, m := range v.Backends {
				addrs[m.ID] = m.Addr
			}
			for _, one := range c.all() {
				client := one.client()
				at := p.Options().Position(lbplane.VIP{}, uint8(lb.TCP), client, b.vip.Port())
				if addrs[ring[at]] == backendAddrs[one.backend] {
					continue
				}
				deviating++
				flow, ok, err := p.FindFlow(v.Number, client, b.vip.Port())
				if err != nil {
					return err
				}
				if !ok || addrs[flow.Backend] != backendAddrs[one.backend] {
					missing++
				}
			}
			return nil
		}
		return errors.New("no VIP")
	})
	return missing, deviating
}
