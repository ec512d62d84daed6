// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"culvert/internal/testbed"
)

// addPlain makes a port of a pair of veths.
func (b *bed) addPlain(t *testing.T, driver string, number int) *port {
	t.Helper()
	p := &port{driver: driver, number: number, name: b.veth(t)}
	b.there.Must(t, func() error {
		l, err := netlink.LinkByName(p.name)
		if err == nil {
			p.far, err = openFar(l)
		}
		return err
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

// lostFlows is the number of flows of each of two streams, and lostPause the time from one pair of their packets to the next.
const (
	lostFlows = 32
	lostPause = time.Millisecond
	// rounds is how often a member is lost.
	lostRounds = 3
)

// bondMemberLost loses members of a bond by which two streams leave, packet by packet in turns: one that culvert forwards, and one that
// comes in by an interface without culvert, so that the kernel forwards it by the same bond. What culvert's stream loses must not be more
// than what the kernel's loses, and then each packet has to arrive again.
func bondMemberLost(t *testing.T, b *bed) {
	fast, slow := b.addPlain(t, "plain", 51), b.addPlain(t, "plain", 52)
	onBonds(t, b, []string{"lacp", "backup"}, func(m *trial) {
		m.here.Must(m.T, func() error { return testbed.WriteSysctl("ipv4/conf/all/rp_filter", "0") })
		b.attach(m.T, config(m.mode, fast, m.out))
		for _, how := range []string{"near end down", "both ends down"} {
			var sent, lostFast, lostSlow int
			for round := range lostRounds {
				member := m.out.bond.near.members[0] // it is the active one of an active-backup bond, or is made so
				lose, gain := func() error { return m.out.bond.near.set(member, false) }, func() error { return m.out.bond.near.set(member, true) }
				if how == "both ends down" {
					lose, gain = func() error { return m.loseMember(m.out, member) }, func() error { return m.gainMember(m.out, member) }
				}
				m.out.prefer(m.T, member)
				m.out.settled(m.T, 2)
				n, f, s := m.streams(fast, slow, round, lose)
				if err := gain(); err != nil {
					m.Fatal(err)
				}
				sent, lostFast, lostSlow = sent+n, lostFast+f, lostSlow+s
			}
			c := m.counted(m.T, fast)
			m.Logf("%s, %d times: of %d packets each, %d were lost through culvert and %d through the kernel; counted as lost so far: %v", how, lostRounds, sent, lostFast,
				lostSlow, c.sum("lost"))
			// The two packets of a pair may meet the bond before and after it has changed.
			if lostFast > lostSlow+lostSlow/10+lostRounds*4 {
				m.Errorf("%s: culvert's stream has lost %d packets, the kernel's %d", how, lostFast, lostSlow)
			}
		}
	})
}

// prefer makes a member the active one of both ends, if they are active-backup bonds.
func (p *port) prefer(t *testing.T, member string) {
	t.Helper()
	if !strings.HasSuffix(p.driver, "/backup") {
		return
	}
	for _, end := range []bondEnd{p.bond.near, p.bond.far} {
		var text []byte
		if !wait(func() bool { // the kernel refuses a member that has no link yet
			return end.space.Do(func() (err error) {
				text, err = exec.Command("ip", "link", "set", "dev", end.name, "type", "bond", "active_slave", member).CombinedOutput()
				return err
			}) == nil
		}) {
			t.Fatalf("make %s the active member of %s: %s", member, end.name, text)
		}
	}
}

// streams sends packets by two ports in turns, and loses a member meanwhile. It returns how many each has sent, and how many of each have
// not arrived. Packets that were sent after the bond has noticed must arrive.
func (m *trial) streams(fast, slow *port, round int, lose func() error) (sent, lostFast, lostSlow int) {
	m.Helper()
	const before, after = 200, 300
	m.bed.out[m.out].forget()
	for _, w := range m.out.bond.out {
		w.forget()
	}
	noticed, last := false, 0
	for n := 0; !noticed || n < last+after; n++ {
		for stream, in := range []*port{fast, slow} {
			p := packet{in: in, dst: m.out.beyond4(), id: uint32(stream<<24 | n), flow: uint16(1 + n%lostFlows), size: 80, ttl: 64, dport: 5000}
			if err := in.far.Send(p.frame(m.T)); err != nil {
				m.Fatal(err)
			}
		}
		sent++
		if n == before {
			if err := lose(); err != nil {
				m.Fatal(err)
			}
		}
		if n > before && !noticed && n%16 == 0 {
			noticed = m.out.bond.near.states(m.T)[0] == "down"
			last = n
		}
		if n > 60000 {
			m.Fatal("the bond does not notice that a member is lost")
		}
		time.Sleep(lostPause)
	}
	got := func() (fast, slow map[uint32]bool) {
		fast, slow = make(map[uint32]bool), make(map[uint32]bool)
		for _, w := range m.out.bond.out {
			for id := range payloads(w.of(marked)) {
				if id>>24 == 0 {
					fast[id] = true
				} else {
					slow[id&0xffffff] = true
				}
			}
		}
		return fast, slow
	}
	// The last packets were sent when all was well again.
	whole := func() bool {
		f, s := got()
		for n := last + 100; n < sent; n++ {
			if !f[uint32(n)] || !s[uint32(n)] {
				return false
			}
		}
		return true
	}
	if !wait(whole) {
		f, s := got()
		m.Errorf("round %d: of %d packets each, %d and %d have arrived, and the last ones have not", round, sent, len(f), len(s))
	}
	f, s := got()
	return sent, sent - len(f), sent - len(s)
}
