// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"culvert/internal/testbed"
)

// onBonds runs a test on the ports of each driver of bonds whose name ends with one of the modes.
func onBonds(t *testing.T, b *bed, modes []string, run func(m *trial)) {
	for _, driver := range slices.Sorted(maps.Keys(b.ports)) {
		_, mode, _ := strings.Cut(driver, "/")
		if !slices.Contains(modes, mode) {
			continue
		}
		t.Run(driver, func(t *testing.T) {
			in, out := b.pair(t, driver)
			m := &trial{T: t, bed: b, driver: driver, in: in, out: out, mode: "native"}
			defer b.detach(t)
			m.ready(in, out)
			run(m)
		})
	}
}

// flowOf is the flow of a marked frame of these tests: its UDP source port.
func flowOf(frame []byte) uint16 { return binary.BigEndian.Uint16(frame[34:]) }

// numberOf is the number of a marked frame.
func numberOf(frame []byte) uint32 {
	return binary.BigEndian.Uint32(frame[bytes.Index(frame, []byte(mark))+len(mark):])
}

// bondSpreads checks that flows leave by all members of an 802.3ad bond, each of them by one and in order, and by the active member of
// an active-backup bond.
func bondSpreads(t *testing.T, b *bed) {
	onBonds(t, b, []string{"lacp", "backup"}, func(m *trial) {
		m.attachBoth()
		wires := m.out.bond.out
		for _, w := range wires {
			w.forget()
		}
		const flows, each = 24, 20
		var packets []packet
		for n := range flows * each {
			packets = append(packets, packet{in: m.in, dst: m.out.beyond4(), id: uint32(n), flow: 1 + uint16(n%flows), size: 80, ttl: 64, dport: 5000})
		}
		s := m.send(packets, m.in, m.out)
		if s.sum("fwd") != uint64(len(packets)) || s.sum("lost") != 0 {
			m.Errorf("%d packets were sent, counted are %v", len(packets), s.counts)
		}
		total, used := 0, 0
		by := make(map[uint16]int) // the member of each flow
		for n, w := range wires {
			frames := w.of(marked)
			last := make(map[uint16]uint32)
			for _, f := range frames {
				if other, known := by[flowOf(f)]; known && other != n {
					m.Errorf("flow %d has left by members %d and %d", flowOf(f), other, n)
				}
				by[flowOf(f)] = n
				if before, any := last[flowOf(f)]; any && numberOf(f) <= before {
					m.Errorf("flow %d: packet %d has come after %d", flowOf(f), numberOf(f), before)
				}
				last[flowOf(f)] = numberOf(f)
			}
			total += len(frames)
			if len(frames) > 0 {
				used++
			}
			m.Logf("%d packets by member %d", len(frames), n)
		}
		want := len(wires)
		if strings.HasSuffix(m.driver, "/backup") {
			want = 1
		}
		if total != len(packets) || used != want {
			m.Errorf("%d of %d packets have left, by %d members, want %d", total, len(packets), used, want)
		}
	})
}

// bondStandby sends packets to both members of an active-backup bond, as a switch does that floods them. The kernel takes those of the
// active one, and so does culvert: each packet is forwarded once. A filter does not see the others, and a rule for the bond sees those
// of its members.
func bondStandby(t *testing.T, b *bed) {
	onBonds(t, b, []string{"backup"}, func(m *trial) {
		b.attach(m.T, strings.Replace(config(m.mode, m.in, m.out), `expression = "udp dst port 9"`,
			fmt.Sprintf("interfaces = [%q]\nexpression = \"udp dst port 9\"", m.in.name), 1))
		for _, dport := range []uint16{5000, 9} {
			before := m.counted(m.T, m.in)
			m.bed.out[m.out].forget()
			packets := each(to(m.in, m.out.beyond4(), 16), func(p *packet) { p.dport, p.size = dport, 100 })
			for _, p := range packets {
				for _, w := range m.in.bond.wires {
					if err := w.Send(p.frame(m.T)); err != nil {
						m.Fatal(err)
					}
				}
			}
			done := func() bool { c := m.counted(m.T, m.in).since(before); return c.sum("fwd")+c.sum("drop") >= 16 }
			if !wait(done) {
				m.Errorf("counted are %v", m.counted(m.T, m.in).since(before))
			}
			time.Sleep(time.Second) // for what should not come
			c, arrived := m.counted(m.T, m.in).since(before), m.bed.out[m.out].of(marked)
			if dport == 9 && (c["drop filter"] != 16 || c.sum("fwd") != 0 || len(arrived) != 0) {
				m.Errorf("a rule for %s: counted are %v, and %d packets have arrived: want 16 dropped", m.in.name, c, len(arrived))
			}
			if dport != 9 && (c.sum("fwd") != 16 || len(arrived) != 16 || len(payloads(arrived)) != 16) {
				m.Errorf("counted are %v, and %d packets have arrived: want 16 forwarded", c, len(arrived))
			}
		}
	})
}

// bondLACP drops everything with the filter for longer than LACP lasts without an answer. The members stay in their aggregator.
func bondLACP(t *testing.T, b *bed) {
	onBonds(t, b, []string{"lacp"}, func(m *trial) {
		b.attach(m.T, strings.Replace(config(m.mode, m.in, m.out), `expression = "udp dst port 9"`, "all = true", 1))
		s := m.send(to(m.in, m.out.beyond4(), 8), m.in, m.out)
		if s.sum("drop") != 8 || len(s.arrived) != 0 {
			m.Errorf("counted are %v", s.counts)
		}
		// Three seconds without LACP end an aggregator with the fast rate. It would not come back with the filter.
		time.Sleep(5 * time.Second)
		m.in.settled(m.T, 2)
	})
}

// start starts culvert as a process, with a configuration, and returns what it has logged so far.
func (m *trial) start(config string) (log func() string) {
	m.Helper()
	ctx, cancel := context.WithCancel(m.Context())
	cmd := exec.CommandContext(ctx, program, "run", "-c", file(m.T, config))
	var out testbed.Output
	cmd.Stdout, cmd.Stderr = &out, &out
	m.here.Must(m.T, cmd.Start)
	m.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		m.detach(m.T)
		if m.Failed() {
			m.Logf("culvert has logged: %s", out.String())
		}
	})
	if !wait(func() bool { return m.attachedTo(m.in) }) {
		m.Fatalf("culvert does not start: %s", out.String())
	}
	return out.String
}

// attachedTo tells whether a port carries culvert.
func (m *trial) attachedTo(p *port) (is bool) {
	m.mustLink(p, func(l netlink.Link) error {
		is = l.Attrs().Xdp != nil && l.Attrs().Xdp.Attached
		return nil
	})
	return is
}

// bondFollowed changes the members of bonds while a process runs: the active one is lost, one leaves and joins again. Packets are
// forwarded by the data plane all the time, and status and doctor say which members there are.
func bondFollowed(t *testing.T, b *bed) {
	onBonds(t, b, []string{"lacp", "backup"}, func(m *trial) {
		log := m.start(config(m.mode, m.in, m.out))
		// A route or two may still go by the kernel at the start.
		forwards := func(when string) {
			m.Helper()
			if !wait(func() bool { return m.allForwarded(16) }) {
				m.Fatalf("%s: the data plane does not forward", when)
			}
		}
		forwards("at the start")
		first := m.in.bond.near.members[0]
		if err := m.loseMember(m.in, first); err != nil {
			m.Fatal(err)
		}
		forwards("without " + first)
		status, _ := m.culvert("status")
		if !strings.Contains(status, first+" down") {
			m.Errorf("status does not say that %s is down: %s", first, status)
		}
		if found, _ := m.finding(m.in.name, "bond"); !strings.Contains(found, first+" down") {
			m.Errorf("doctor does not say that %s is down: %s", first, found)
		}
		if err := m.gainMember(m.in, first); err != nil {
			m.Fatal(err)
		}
		m.in.settled(m.T, 2)
		forwards("with " + first + " again")
		m.here.Must(m.T, func() error {
			l, err := netlink.LinkByName(first)
			return errors.Join(err, netlink.LinkSetNoMaster(l))
		})
		forwards("after " + first + " has left")
		if !wait(func() bool { return strings.Contains(log(), "a member has left the bond") }) {
			m.Errorf("the log does not say that a member has left")
		}
		m.here.Must(m.T, func() error { return m.in.bond.near.join(first) })
		m.in.settled(m.T, 2)
		forwards("after " + first + " has joined")
		if strings.HasSuffix(m.driver, "/lacp") && !wait(func() bool { s, _ := m.culvert("status"); return strings.Contains(s, first+" live") }) {
			m.Errorf("status does not say that %s is live", first)
		}
	})
}

// allForwarded sends packets and tells whether the data plane has forwarded all of them.
func (m *trial) allForwarded(count int) bool {
	m.Helper()
	before := m.counted(m.T, m.in)
	m.bed.out[m.out].forget()
	for _, p := range to(m.in, m.out.beyond4(), count) {
		if err := m.in.far.Send(p.frame(m.T)); err != nil {
			return false
		}
	}
	for range 100 {
		time.Sleep(20 * time.Millisecond)
		if c := m.counted(m.T, m.in).since(before); c.sum("fwd") == uint64(count) && len(m.bed.out[m.out].of(marked)) == count {
			return true
		}
	}
	return false
}

// loseMember sets both ends of a wire down, as one sees that the other has no link only with some devices.
func (m *trial) loseMember(p *port, member string) error {
	return errors.Join(p.bond.near.set(member, false), p.bond.far.set(member, false))
}

func (m *trial) gainMember(p *port, member string) error {
	return errors.Join(p.bond.near.set(member, true), p.bond.far.set(member, true))
}
