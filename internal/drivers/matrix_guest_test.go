// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/testbed"
)

// TestDrivers goes through all rows of the table for each driver. What is forwarded has to arrive. What cannot work has to be refused when
// culvert is attached, or counted with a reason.
func TestDrivers(t *testing.T) {
	b := newBed(t)
	b.here.Must(t, func() error {
		for _, name := range []string{"ipv4/icmp_ratelimit", "ipv4/icmp_ratemask"} {
			if err := testbed.WriteSysctl(name, "0"); err != nil {
				return err
			}
		}
		return nil
	})
	r := newResults()
	for _, driver := range slices.Sorted(maps.Keys(b.ports)) {
		t.Run(driver, func(t *testing.T) {
			in, out := b.pair(t, driver)
			m := &trial{T: t, bed: b, driver: driver, in: in, out: out, mode: "native"}
			b.must(t, "ethtool", "-K", in.name, "gro", "on")
			for _, p := range []*port{in, out} {
				_, _ = b.run("ethtool", "-K", p.name, "rxvlan", "off")
			}
			if !b.native(t, in) {
				m.refused(t, config("native", in, out), in.name+" does not run XDP in its driver", "its driver has no native XDP")
				m.mode = "generic"
				r.set(driver, "native-between", "no such mode")
			}
			r.set(driver, "mode", m.mode)
			for _, row := range Rows {
				run, ok := trials[row.Name]
				if !ok {
					continue
				}
				t.Run(row.Name, func(t *testing.T) {
					one := *m
					one.T = t
					outcome := run(&one)
					t.Log(driver, outcome)
					if !t.Failed() {
						r.set(driver, row.Name, outcome)
					}
				})
			}
			b.detach(t)
		})
	}
	t.Run("between", func(t *testing.T) { b.between(t, r) })
	r.compare(t)
}

// severalQueues matches what ethtool(8) says of a card that can have several pairs of queues.
var severalQueues = regexp.MustCompile(`Combined:\s+([2-9]|\d\d)`)

// trials are the rows that a driver goes through, by name. Each returns what belongs into the table.
var trials = map[string]func(m *trial) string{
	"forwarded": func(m *trial) string {
		m.attachBoth()
		return m.forwards(64)
	},
	"punted": func(m *trial) string {
		m.attachBoth()
		m.bed.out[m.in].forget()
		s := m.send(each(to(m.in, m.out.beyond4(), 8), func(p *packet) { p.ttl = 1 }), m.in, m.out)
		answers := func() int { return len(m.bed.out[m.in].of(icmp(11))) }
		if !wait(func() bool { return answers() >= 8 }) || s.counts["punt route-ttl"] != 8 || len(s.arrived) != 0 {
			m.Errorf("%d answers, counted are %v", answers(), s.counts)
		}
		return "yes"
	},
	"dropped": func(m *trial) string {
		m.attachBoth()
		s := m.send(each(to(m.in, m.out.beyond4(), 16), func(p *packet) { p.dport = 9 }), m.in, m.out)
		if len(s.arrived) != 0 || s.sum("drop") != 16 {
			m.Errorf("%d packets have arrived, counted are %v", len(s.arrived), s.counts)
		}
		return "yes"
	},
	"changed": func(m *trial) string {
		m.attachBoth()
		// The outer header needs room in the frame, also behind the last byte of the longest packet.
		packets := each(to(m.in, net.ParseIP(vip).To4(), 16), func(p *packet) { p.dport, p.size = 80, min(p.size, 1400) })
		s := m.send(packets, m.in, m.out)
		answer := s.check(m)
		for _, f := range s.arrived {
			if f[23] == unix.IPPROTO_UDP || f[26] != 10 || f[27] != 200 {
				m.Errorf("a frame is not encapsulated: %x", f[:40])
				break
			}
		}
		return answer
	},
	"back": func(m *trial) string {
		m.attachBoth()
		s := m.send(to(m.in, m.in.beyond4(), 16), m.in, m.in)
		return s.check(m)
	},
	"scion":            scionRow,
	"syn":              synRow,
	"checksum":         func(m *trial) string { return m.unfinished(m.mode) },
	"checksum-generic": func(m *trial) string { return m.unfinished("generic") },
	"carrier":          carrierRow,
	"gone":             goneRow,
	"tags": func(m *trial) string {
		m.attachBoth()
		packets := each(to(m.in, m.out.beyondTagged4(), 16), func(p *packet) { p.vlan = 7 })
		s := m.send(packets, m.in, m.out)
		answer := s.check(m)
		for _, f := range s.arrived {
			if tag(f) != 7 {
				m.Errorf("a frame has tag %d: %x", tag(f), f[:40])
				break
			}
		}
		return answer
	},
	"rxvlan": rxvlanRow,
	"merging": func(m *trial) string {
		m.detach(m.T)
		var on []string
		for _, what := range []string{"lro", "rx-gro-hw"} {
			if _, err := m.run("ethtool", "-K", m.in.name, what, "on"); err == nil {
				on = append(on, what)
			}
		}
		if on == nil {
			return "no such offload"
		}
		m.attachBoth()
		answer := m.forwards(32)
		m.detach(m.T)
		for _, what := range on {
			_, _ = m.run("ethtool", "-K", m.in.name, what, "off")
		}
		return answer
	},
	"adopt": func(m *trial) string {
		m.attachBoth()
		m.ready(m.in, m.out)
		m.bed.out[m.out].forget()
		before := m.counted(m.T, m.in)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if out, err := m.culvert("attach", "-c", file(m.T, config(m.mode, m.in, m.out))); err != nil {
				m.Errorf("attach: %v: %s", err, out)
			}
		}()
		var s sent
		for running := true; running; time.Sleep(50 * time.Millisecond) {
			select {
			case <-done:
				running = false
			default:
			}
			if len(s.packets) == 200 { // a card's ring has room for 256, if nobody has the time to empty it
				continue
			}
			p := packet{in: m.in, dst: m.out.beyond4(), id: uint32(len(s.packets)), size: 100, ttl: 64, dport: 5000}
			if err := m.in.far.Send(p.frame(m.T)); err != nil {
				m.Fatal(err)
			}
			s.packets = append(s.packets, p)
		}
		s.counts = m.settle(m.in, before, uint64(len(s.packets)))
		wait(func() bool { return len(m.bed.out[m.out].of(marked)) >= len(s.packets) })
		s.arrived = m.bed.out[m.out].of(marked)
		m.Logf("%d packets during an attach: %v", len(s.packets), s.counts)
		// In the moment of an attach the kernel forwards some of them.
		if answer := s.check(m); answer != "kernel" {
			return answer
		}
		return "yes"
	},
	"detach": func(m *trial) string {
		m.attachBoth()
		m.detach(m.T)
		if n := m.kernelForwards(to(m.in, m.out.beyond4(), 16), patience); n != 16 {
			m.Errorf("after detach the kernel has forwarded %d of 16 packets", n)
		}
		return "yes"
	},
	"down": func(m *trial) string {
		m.attachBoth()
		// The second card receives here: one that the emulator does not bring up again is of no use to what follows.
		m.in, m.out = m.out, m.in
		m.mustLink(m.out, netlink.LinkSetDown)
		s := m.send(to(m.in, m.out.beyond4(), 16), m.in, m.out)
		if len(s.arrived) != 0 || s.sum("fwd") != s.sum("lost") {
			m.Errorf("the card is down, %d packets have arrived, counted are %v", len(s.arrived), s.counts)
		}
		m.here.Must(m.T, m.out.up)
		m.mustLink(m.in, netlink.LinkSetDown)
		m.here.Must(m.T, m.in.up)
		m.ready(m.in, m.out)
		if m.hears(func() bool { return m.counted(m.T, m.in).sum("fwd") > s.sum("fwd") }) {
			return m.forwards(32)
		}
		m.detach(m.T)
		if !m.hears(func() bool { return len(m.bed.out[m.out].of(marked)) > 0 }) {
			return "deaf"
		}
		m.attachBoth()
		if a := m.forwards(32); a != "yes" {
			m.Errorf("the card has received without culvert, and attached again: %s", a)
		}
		return "attach again"
	},
	"queues": func(m *trial) string {
		m.attachBoth()
		out, err := m.run("ethtool", "-l", m.in.name)
		if err != nil || !severalQueues.MatchString(out) {
			return "no such setting"
		}
		out, err = m.run("ethtool", "-L", m.in.name, "combined", "1")
		if strings.Contains(out, "not supported") {
			return "no such setting"
		}
		answer := m.forwards(32)
		if err != nil {
			m.detach(m.T)
			m.must(m.T, "ethtool", "-L", m.in.name, "combined", "1")
			defer m.must(m.T, "ethtool", "-L", m.in.name, "combined", "2")
			m.attachBoth()
			if answer == "yes" && m.forwards(32) == "yes" {
				answer = "refused"
			}
			m.detach(m.T)
		}
		return answer
	},
	"mtu": func(m *trial) string {
		m.attachBoth()
		m.mustLink(m.out, func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1280) })
		m.bed.out[m.in].forget()
		s := m.send(each(to(m.in, m.out.beyond4(), 8), func(p *packet) { p.size = 1400 }), m.in, m.out)
		answers := func() int { return len(m.bed.out[m.in].of(icmp(3))) }
		if !wait(func() bool { return answers() >= 8 }) || len(s.arrived) != 0 || s.sum("fwd") != 0 {
			m.Errorf("%d answers, %d packets have arrived, counted are %v", answers(), len(s.arrived), s.counts)
		}
		m.mustLink(m.out, func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1500) })
		return m.forwards(16)
	},
	"jumbo": func(m *trial) string {
		m.detach(m.T)
		mtu := func(n int) func(netlink.Link) error {
			return func(l netlink.Link) error { return netlink.LinkSetMTU(l, n) }
		}
		if err := m.both(mtu(farMTU)); err != nil {
			m.Logf("mtu %d: %v", farMTU, err)
			m.mustLink(m.in, mtu(1500))
			return "no such MTU"
		}
		defer func() {
			m.detach(m.T)
			if err := m.both(mtu(1500)); err != nil {
				m.Error(err)
			}
		}()
		received := m.receives(farMTU)
		frames := each(to(m.in, m.out.beyond4(), 16), func(p *packet) { p.size = 2000 + 400*int(p.id) })
		out, err := m.culvert("attach", "-c", file(m.T, config(m.mode, m.in, m.out)))
		m.bed.attached = ""
		if err != nil {
			m.Logf("refused: %s", out)
			want := "ip link set dev " + m.in.name + " mtu "
			command := m.doctor(m.in, "mtu")
			if !strings.Contains(out, "MTU") || !strings.Contains(out, "culvert doctor -i "+m.in.name) || !strings.HasPrefix(command, want) {
				m.Errorf("attach says %s, and doctor %q: want %s", out, command, want)
			}
			size, _ := strconv.Atoi(strings.TrimPrefix(command, want))
			if err := m.both(mtu(size)); err != nil {
				m.Fatal(err)
			}
			m.attachBoth()
			if a := m.forwards(16); a != "yes" {
				m.Errorf("with MTU %d: %s", size, a)
			}
			return "refused"
		}
		if !received {
			return "no such MTU"
		}
		return m.send(frames, m.in, m.out).check(m)
	},
}

// kernelForwards sends packets from the first card to the second one without culvert, and returns how many arrive. It waits until
// there have been no more for a while.
func (m *trial) kernelForwards(packets []packet, lull time.Duration) (arrived int) {
	m.Helper()
	m.ready(m.in, m.out)
	m.bed.out[m.out].forget()
	for _, p := range packets {
		if err := m.in.far.Send(p.frame(m.T)); err != nil {
			m.Fatal(err)
		}
	}
	for last := time.Now(); arrived < len(packets) && time.Since(last) < lull; time.Sleep(20 * time.Millisecond) {
		if n := len(m.bed.out[m.out].of(marked)); n > arrived {
			arrived, last = n, time.Now()
		}
	}
	return arrived
}

// hears sends packets until done returns true, and returns false if it does not for long.
func (m *trial) hears(done func() bool) bool {
	m.Helper()
	m.bed.out[m.out].forget()
	frame := to(m.in, m.out.beyond4(), 1)[0].frame(m.T)
	for range 60 {
		if err := m.in.far.Send(frame); err != nil {
			m.Fatal(err)
		}
		for range 10 {
			if done() {
				return true
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return false
}

// between sends packets from a card of each driver to one of each other one: first in native mode, between the drivers that can, then all
// of them in generic mode.
func (b *bed) between(t *testing.T, r *results) {
	for _, mode := range []string{"native", "generic"} {
		t.Run(mode, func(t *testing.T) {
			var ports []*port
			for _, driver := range slices.Sorted(maps.Keys(b.ports)) {
				if mode == "generic" || r.get(driver, "mode") == "native" {
					ports = append(ports, b.ports[driver][0])
				}
			}
			b.attach(t, config(mode, ports...))
			defer b.detach(t)
			for _, in := range ports {
				all := "yes"
				for _, out := range ports {
					if in == out {
						continue
					}
					m := &trial{T: t, bed: b, driver: in.driver, in: in, out: out, mode: mode}
					if a := m.forwards(16); a != "yes" {
						t.Logf("from %s to %s: %s", in.driver, out.driver, a)
						all = a
					}
				}
				r.set(in.driver, mode+"-between", all)
			}
		})
	}
}
