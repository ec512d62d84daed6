// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// trial is a driver with two ports, and culvert on both.
type trial struct {
	*testing.T
	*bed
	driver  string
	in, out *port
	// mode is the one in which the driver takes culvert: native if it can.
	mode string
}

// vip is an address of the load balancer, and backend one of its backends: the host at the far end of port out.
const vip = "198.51.100.1"

// config is a configuration with filter, load balancer and IP router. A mirror and tables for few entries take little memory.
func config(mode string, ports ...*port) string {
	var names []string
	for _, p := range ports {
		names = append(names, fmt.Sprintf("%q", p.name))
	}
	return fmt.Sprintf(`interfaces = [%s]
mode = %q
[route]
blocks4 = 64
blocks6 = 1024
[filter]
[[filter.rule]]
name = "no"
action = "drop"
expression = "udp dst port 9"
[lb]
flows = 4096
vips = 16
backends = 64
source4 = "10.200.0.0/16"
[[lb.vip]]
address = "%s:80"
protocol = "udp"
[[lb.vip.backend]]
address = %q
`, strings.Join(names, ", "), mode, vip, ports[len(ports)-1].ip4(2))
}

// sent is what has become of packets.
type sent struct {
	counts
	packets []packet
	// arrived are the marked frames that have come out of a port.
	arrived [][]byte
}

// send sends packets and waits until each is counted, and until as many have come out of a port as were forwarded by culvert, by the
// kernel or by either. It waits a moment longer, for what should not come.
func (m *trial) send(packets []packet, in, out *port) sent {
	m.Helper()
	s := sent{packets: packets}
	m.ready(in, out)
	m.bed.out[out].forget()
	before := m.counted(m.T, in)
	for n, p := range packets {
		if err := in.far.Send(p.frame(m.T)); err != nil {
			m.Fatalf("send a packet to %s: %v", in.name, err)
		}
		if n%32 == 31 {
			m.settle(in, before, uint64(n+1))
		}
	}
	s.counts = m.settle(in, before, uint64(len(packets)))
	arrived := func() [][]byte { return m.bed.out[out].of(marked) }
	wait(func() bool { return uint64(len(arrived())) >= s.sum("fwd")-s.sum("lost") })
	time.Sleep(200 * time.Millisecond)
	s.arrived, s.counts = arrived(), m.counted(m.T, in).since(before)
	return s
}

// ready waits until cards that are up have a link, which takes some of them seconds.
func (m *trial) ready(ports ...*port) {
	m.Helper()
	for _, p := range ports {
		if !wait(func() (ready bool) {
			m.mustLink(p, func(l netlink.Link) error {
				flags := l.Attrs().RawFlags
				// The kernel sets the second flag some time after the first.
				const up = unix.IFF_LOWER_UP | unix.IFF_RUNNING
				ready = flags&unix.IFF_UP == 0 || flags&up == up
				return nil
			})
			return ready
		}) {
			m.Fatalf("%s has no link", p.name)
		}
		if p.bond != nil && m.isUp(p) {
			p.settled(m.T, len(p.bond.near.members))
		}
	}
}

// isUp tells whether a port is set up.
func (m *trial) isUp(p *port) (up bool) {
	m.mustLink(p, func(l netlink.Link) error {
		up = l.Attrs().RawFlags&unix.IFF_UP != 0
		return nil
	})
	return up
}

// settle waits until so many packets are counted at a port.
func (m *trial) settle(in *port, before counts, packets uint64) (c counts) {
	m.Helper()
	if !wait(func() bool {
		c = m.counted(m.T, in).since(before)
		return c.sum("fwd")+c.sum("pass")+c.sum("punt")+c.sum("drop") >= packets
	}) {
		m.Errorf("%d packets were sent to %s, and counted are %v", packets, in.name, c)
	}
	return c
}

// check checks that as many packets have arrived as were forwarded, each of them once and with its payload. It tells who has forwarded
// them: "yes" for culvert, "kernel" for the kernel, to which culvert has left them, "lost" if they were counted as lost.
func (s sent) check(t *trial) string {
	t.Helper()
	got := payloads(s.arrived)
	for _, p := range s.packets {
		f := p.frame(t.T)
		want := f[bytes.Index(f, []byte(mark)):]
		if there, ok := got[p.id]; ok && !bytes.HasPrefix(there, want) {
			t.Errorf("packet %d has arrived as %x, want %x", p.id, there, want)
		}
	}
	fwd, lost, left := s.sum("fwd"), s.sum("lost"), s.sum("pass")+s.sum("punt")
	n := uint64(len(s.arrived))
	if fwd+left+s.sum("drop") != uint64(len(s.packets)) || n < fwd-lost || n > fwd-lost+left || uint64(len(got)) != n {
		t.Errorf("%d packets were sent, %d have arrived (%d different ones), counted are %v", len(s.packets), n, len(got), s.counts)
	}
	switch all := uint64(len(s.packets)); {
	case lost > 0:
		return "lost"
	case n == all && fwd == all:
		return "yes"
	case n == all:
		return "kernel"
	}
	return "no"
}

// forwards sends some packets through and tells who has forwarded them.
func (m *trial) forwards(count int) string {
	m.Helper()
	s := m.send(to(m.in, m.out.beyond4(), count), m.in, m.out)
	answer := s.check(m)
	for _, f := range s.arrived {
		if want := append(m.out.hop(), m.out.mac...); !bytes.Equal(f[:12], want) || f[22] != 63 {
			m.Errorf("a frame begins with %x, want %x and the TTL 63", f[:23], []byte(want))
			break
		}
	}
	return answer
}

// link changes one of the cards.
func (m *trial) link(p *port, change func(netlink.Link) error) error {
	return m.here.Do(func() error {
		l, err := netlink.LinkByName(p.name)
		if err != nil {
			return err
		}
		return change(l)
	})
}

// mustLink does so and ends the test if that fails.
func (m *trial) mustLink(p *port, change func(netlink.Link) error) {
	m.Helper()
	if err := m.link(p, change); err != nil {
		m.Fatalf("change %s: %v", p.name, err)
	}
}

// both makes a change to both ports, and returns the first error.
func (m *trial) both(change func(netlink.Link) error) error {
	err := m.link(m.in, change)
	if err == nil {
		err = m.link(m.out, change)
	}
	return err
}

// attachBoth attaches culvert to both ports, unless it is.
func (m *trial) attachBoth() {
	m.Helper()
	if c := config(m.mode, m.in, m.out); m.bed.attached != c {
		m.attach(m.T, c)
	}
}

// doctor returns the command that doctor has for a port in a check, "" for none.
func (m *trial) doctor(p *port, check string) string {
	m.Helper()
	_, command := m.finding(p.name, check)
	return command
}

// finding returns the line that doctor has for an interface and a check, and the command below it. Both are "" if it has none.
func (b *bed) finding(name, check string) (line, command string) {
	out, _ := b.culvert("doctor", "-i", name)
	for l := range strings.Lines(out) {
		words := strings.Fields(l)
		switch {
		case len(words) > 2 && words[0] != "->":
			if line != "" {
				return line, command
			}
			if words[1] == name && words[2] == check {
				line = strings.Join(words, " ")
			}
		case line != "" && len(words) > 1:
			command = strings.TrimPrefix(strings.TrimSpace(l), "-> ")
		}
	}
	return line, command
}
