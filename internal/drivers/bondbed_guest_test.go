// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"culvert/internal/guest/cards"
	"culvert/internal/testbed"
)

// bondModes are the modes that are tried, by the word that names of ports have for them.
var bondModes = map[string]netlink.BondMode{"lacp": netlink.BOND_MODE_802_3AD, "backup": netlink.BOND_MODE_ACTIVE_BACKUP}

// bondPeriod is how often bonds look at the links of their members, in milliseconds.
const bondPeriod = 50

// bondEnd is one end of the two or more wires that a bond is made of.
type bondEnd struct {
	space   *testbed.Namespace
	name    string
	members []string
}

// bonded are both ends of a port that is a bond.
type bonded struct {
	near, far bondEnd
	// out has what has come out of each wire, in the order of the members.
	out []*arrivals
	// wires are sockets at the far ends of the wires.
	wires []far
}

// newBondBed makes a bed whose ports are bonds over veths and, of what -wires names, over cards: two ports for each mode and driver.
func newBondBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{here: testbed.NewNamespace(t), ports: make(map[string][]*port), out: make(map[*port]*arrivals)}
	b.there = testbed.NewNamespace(t)
	b.here.Must(t, func() error {
		return errors.Join(testbed.WriteSysctl("ipv4/ip_forward", "1"), testbed.WriteSysctl("ipv4/conf/all/send_redirects", "0"),
			testbed.WriteSysctl("ipv4/icmp_ratelimit", "0"), testbed.WriteSysctl("ipv4/icmp_ratemask", "0"))
	})
	count := 0
	if *wiresFlag != "" {
		count = len(strings.Split(*wiresFlag, "+"))
	}
	number, card := 0, 0
	for _, mode := range []string{"lacp", "backup"} {
		for range 2 {
			number++
			b.addBond(t, "veth/"+mode, number, []string{b.veth(t), b.veth(t)})
		}
		for range 2 {
			if card+2 > count {
				break
			}
			number++
			b.addBond(t, "virtio_net/"+mode, number, []string{b.card(t, card), b.card(t, card+1)})
			card += 2
		}
	}
	return b
}

// veth makes a pair of veths with an end in each namespace, and returns the name that both have.
func (b *bed) veth(t *testing.T) string {
	t.Helper()
	b.wires++
	name := fmt.Sprintf("w%d", b.wires)
	near, far := name, name+"f"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: near}, PeerName: far}); err != nil {
		t.Fatal(err)
	}
	b.here.Take(t, near)
	b.there.Take(t, far)
	b.there.Must(t, func() error { return renameTo(far, name) })
	return name
}

// card puts the ends of a wire of cards into the namespaces, and returns the name that both get.
func (b *bed) card(t *testing.T, wire int) string {
	t.Helper()
	b.wires++
	name := fmt.Sprintf("w%d", b.wires)
	for space, mac := range map[*testbed.Namespace]net.HardwareAddr{b.here: cards.Near(wire), b.there: cards.Far(wire)} {
		lend(t, space, mac, name)
		// The emulated cards have no speed, and 802.3ad takes only members with one.
		space.Must(t, func() error { return ethtool("-s", name, "speed", "1000", "duplex", "full") })
	}
	return name
}

func renameTo(from, to string) error {
	l, err := netlink.LinkByName(from)
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetDown(l), netlink.LinkSetName(l, to))
}

// addBond makes a port of two bonds that are joined by wires.
func (b *bed) addBond(t *testing.T, driver string, number int, wires []string) *port {
	t.Helper()
	_, word, _ := strings.Cut(driver, "/")
	p := &port{driver: driver, number: number, name: fmt.Sprintf("bond%d", number)}
	p.bond = &bonded{near: bondEnd{b.here, p.name, wires}, far: bondEnd{b.there, p.name, wires}}
	for _, end := range []bondEnd{p.bond.near, p.bond.far} {
		end.space.Must(t, func() error { return end.make(bondModes[word]) })
		t.Cleanup(func() { end.drop(t) })
	}
	p.bond.far.space.Must(t, func() (err error) {
		l, err := netlink.LinkByName(p.name)
		if err != nil {
			return err
		}
		if p.far, err = openFar(l); err != nil {
			return err
		}
		for _, wire := range wires {
			// A veth takes redirected frames only while its peer uses NAPI.
			if err := ethtool("-K", wire, "gro", "on"); err != nil {
				return err
			}
			s, err := openSocket(wire)
			if err != nil {
				return err
			}
			a := &arrivals{}
			p.bond.out, p.bond.wires = append(p.bond.out, a), append(p.bond.wires, s)
			go a.listen(s)
			t.Cleanup(func() { s.Close() })
		}
		return netlink.SetPromiscOn(l)
	})
	b.here.Must(t, func() error {
		l, err := netlink.LinkByName(p.name)
		if err == nil {
			p.mac = l.Attrs().HardwareAddr
		}
		return err
	})
	b.add(t, p)
	return p
}

// make makes a bond of devices of the calling thread's namespace and sets it up.
func (e bondEnd) make(mode netlink.BondMode) error {
	bond := netlink.NewLinkBond(netlink.LinkAttrs{Name: e.name})
	bond.Mode, bond.Miimon = mode, bondPeriod
	if mode == netlink.BOND_MODE_802_3AD {
		bond.LacpRate, bond.XmitHashPolicy = netlink.BOND_LACP_RATE_FAST, netlink.BOND_XMIT_HASH_POLICY_LAYER3_4
	}
	if err := netlink.LinkAdd(bond); err != nil {
		return fmt.Errorf("make %s: %w", e.name, err)
	}
	if err := testbed.WriteSysctl("ipv6/conf/"+e.name+"/disable_ipv6", "1"); err != nil {
		return err
	}
	for _, m := range e.members {
		if err := e.join(m); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(bond)
}

// drop deletes the bond, which gives its members their link addresses back.
func (e bondEnd) drop(t *testing.T) {
	if err := e.space.Do(func() error {
		l, err := netlink.LinkByName(e.name)
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	}); err != nil {
		t.Errorf("delete %s: %v", e.name, err)
	}
}

// join makes a device a member. The calling thread is in the bond's namespace.
func (e bondEnd) join(member string) error {
	l, err := netlink.LinkByName(member)
	if err != nil {
		return err
	}
	bond, err := netlink.LinkByName(e.name)
	if err != nil {
		return err
	}
	if err := errors.Join(netlink.LinkSetDown(l), netlink.LinkSetMaster(l, bond), netlink.LinkSetUp(l), netlink.SetPromiscOn(l)); err != nil {
		return fmt.Errorf("%s joins %s: %w", member, e.name, err)
	}
	return nil
}

// set sets a member up or down.
func (e bondEnd) set(member string, up bool) error {
	return e.space.Do(func() error {
		l, err := netlink.LinkByName(member)
		if err != nil {
			return err
		}
		if up {
			return netlink.LinkSetUp(l)
		}
		return netlink.LinkSetDown(l)
	})
}

// states returns the state of each member, as the kernel has it: active or backup, or down.
func (e bondEnd) states(t testing.TB) (all []string) {
	e.space.Must(t, func() error {
		for _, m := range e.members {
			l, err := netlink.LinkByName(m)
			if err != nil {
				return err
			}
			s, is := l.Attrs().Slave.(*netlink.BondSlave)
			switch {
			case !is:
				all = append(all, "out")
			case s.MiiStatus != netlink.BondLinkUp:
				all = append(all, "down")
			default:
				all = append(all, strings.ToLower(s.State.String()))
			}
		}
		return nil
	})
	return all
}

// partners returns how many members of a bond have found their partner's aggregator: both ends send and collect there.
func (e bondEnd) partners(t testing.TB) (n int) {
	const distributing = 0x3c // in sync, collecting, distributing, and aggregatable
	e.space.Must(t, func() error {
		for _, m := range e.members {
			l, err := netlink.LinkByName(m)
			if err != nil {
				return err
			}
			s, is := l.Attrs().Slave.(*netlink.BondSlave)
			if is && s.AdActorOperPortState&distributing == distributing && s.AdPartnerOperPortState&distributing == distributing {
				n++
			}
		}
		return nil
	})
	return n
}

// settled waits until so many members of a port carry traffic, as both ends see it.
func (p *port) settled(t testing.TB, members int) {
	t.Helper()
	for _, end := range []bondEnd{p.bond.near, p.bond.far} {
		if !wait(func() bool {
			states := end.states(t)
			if strings.HasSuffix(p.driver, "/backup") {
				return slices.Contains(states, "active")
			}
			return count(states, "active") == members && end.partners(t) == members
		}) {
			proc := ""
			_ = end.space.Do(func() error {
				text, err := os.ReadFile("/proc/net/bonding/" + end.name)
				proc = string(text)
				return err
			})
			t.Fatalf("%s: the members are %v, want %d that carry traffic\n%s", end.name, end.states(t), members, proc)
		}
	}
}

func count[T comparable](all []T, one T) (n int) {
	for _, a := range all {
		if a == one {
			n++
		}
	}
	return n
}
