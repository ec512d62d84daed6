// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/guest/cards"
	"culvert/internal/testbed"
)

// goneRow takes the second card out of the machine while a process serves both, and puts it back. Some drivers begin with offloads that
// culvert refuses: then the log has the command, and culvert attaches once that was given.
func goneRow(m *trial) string {
	p, end := m.serve()
	defer end()
	name := m.out.name
	answer := "yes"
	if strings.HasPrefix(m.driver, "virtio_net*") {
		// The kernel waits for ever for the receive queues that the driver has added for a program, whoever's it is: virtnet_xdp_set takes
		// them back when the device is unregistered already, and so their references to it stay.
		m.says("detached from "+name, "detach", name)
		p.logs("the program was taken off the interface by somebody else, and stays off")
		answer = "detach first"
	}
	m.unplug(m.out)
	p.logsOnce("the interface does not exist: culvert attaches to it when it does")
	m.says("interface "+name+"  NOT ATTACHED: it does not exist", "status")
	m.says("is not attached to "+name+", as it should be: it does not exist; the process attaches when it does", "doctor", "-i", m.in.name)
	p.metric(`culvert_interface_attached{interface="` + name + `"} 0`)
	p.metric(`culvert_interface_attached{interface="` + m.in.name + `"} 1`)
	if s := m.send(to(m.in, m.out.beyond4(), 16), m.in, m.in); s.sum("fwd") != s.sum("lost") {
		m.Errorf("the card is gone, and counted are %v", s.counts)
	}
	if a := m.sentBack(); a != "yes" {
		m.Errorf("without the other card, packets that go back: %s", a)
	}

	m.replug(m.out)
	const refused = "the interface is there and carries no program"
	if p.logs(refused, "attached to the interface") == refused {
		answer = "after a command"
		m.says(name+", as it should be: it was deleted and made again, which cannot be attached to; the log of the process says why", "doctor", "-i", name)
		command := regexp.MustCompile(`ethtool -K ` + name + ` rxvlan off`).FindString(p.log.String())
		if command == "" {
			p.Fatalf("the log has no command: %s", p.log)
		}
		words := strings.Fields(command)
		m.must(m.T, words[0], words[1:]...)
	}
	p.logs("attached to the interface")
	p.metric(`culvert_interface_attached{interface="` + name + `"} 1`)
	if out, err := m.culvert("status"); err != nil || strings.Contains(out, "NOT ATTACHED") {
		m.Errorf("status: %v: %s", err, out)
	}
	p.forwardsAgain()
	if a := m.forwards(64); a != "yes" {
		m.Errorf("after the card was back: %s", a)
	}
	return answer
}

// sentBack sends packets that leave by the card that they have come in by.
func (m *trial) sentBack() string {
	m.Helper()
	return m.send(to(m.in, m.in.beyond4(), 16), m.in, m.in).check(m)
}

// unplug takes a card off the bus, or deletes a tap device.
func (m *trial) unplug(p *port) {
	m.Helper()
	if t, ok := p.far.(tap); ok {
		if err := t.Close(); err != nil {
			m.Fatal(err)
		}
		return
	}
	out, err := m.run("ethtool", "-i", p.name)
	if err != nil {
		m.Fatal(err)
	}
	for line := range strings.Lines(out) {
		if bus, ok := strings.CutPrefix(strings.TrimSpace(line), "bus-info: "); ok {
			if err := os.WriteFile("/sys/bus/pci/devices/"+bus+"/remove", []byte("1"), 0); err != nil {
				m.Fatal(err)
			}
			return
		}
	}
	m.Fatalf("%s is on no bus: %s", p.name, out)
}

// replug puts the card back, with the addresses and routes that it had.
func (m *trial) replug(p *port) {
	m.Helper()
	if _, ok := p.far.(tap); ok {
		m.here.Must(m.T, p.openTap)
		go m.bed.out[p].listen(p.far)
	} else {
		if err := os.WriteFile("/sys/bus/pci/rescan", []byte("1"), 0); err != nil {
			m.Fatal(err)
		}
		take(m.T, m.here, cards.Near(p.number-1), p.name)
	}
	m.here.Must(m.T, p.configure)
}

// carrier plugs the cable of a port in or out.
func (p *port) carrier(plugged bool) error {
	t, ok := p.far.(tap)
	if !ok {
		return cards.SetLink(p.number-1, plugged)
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return err
	}
	on := 0
	if plugged {
		on = 1
	}
	ctlErr := raw.Control(func(fd uintptr) { err = unix.IoctlSetPointerInt(int(fd), unix.TUNSETCARRIER, on) })
	if ctlErr != nil {
		return ctlErr
	}
	return err
}

// hasCarrier tells whether the driver of a port takes the cable for plugged in.
func (m *trial) hasCarrier(p *port) (has bool) {
	m.Helper()
	m.mustLink(p, func(l netlink.Link) error {
		has = l.Attrs().RawFlags&unix.IFF_LOWER_UP != 0
		return nil
	})
	return has
}

// carrierRow unplugs the cable of the second card while packets go to it, and to another one.
func carrierRow(m *trial) string {
	other := m.bed.ports["tun"][0]
	if m.driver == "tun" {
		other = m.bed.ports["virtio_net"][0]
	}
	p, end := m.serve(other)
	defer end()
	name := m.out.name

	before := m.counted(m.T, m.in)
	m.bed.out[m.out].forget()
	m.bed.out[other].forget()
	var first, second []packet
	// send sends packets to both, and returns what they were counted as.
	send := func(count int) counts {
		at := m.counted(m.T, m.in)
		for range count {
			for _, to := range []struct {
				out  *port
				list *[]packet
			}{{m.out, &first}, {other, &second}} {
				q := packet{in: m.in, dst: to.out.beyond4(), id: uint32(len(*to.list)), size: 200, ttl: 64, dport: 5000}
				if err := m.in.far.Send(q.frame(m.T)); err != nil {
					m.Fatal(err)
				}
				*to.list = append(*to.list, q)
			}
		}
		m.settle(m.in, before, uint64(len(first)+len(second)))
		return m.counted(m.T, m.in).since(at)
	}
	send(20)
	if err := m.out.carrier(false); err != nil {
		m.Fatal(err)
	}
	defer func() { _ = m.out.carrier(true) }() // if this ends before
	m.Log("the cable is out")
	// What the process does not know yet is lost, as with any router. Some emulated cards do not tell their driver at all.
	said := func() bool { return strings.Contains(p.log.String(), "the interface has no carrier") }
	for quiet := time.Now().Add(30 * time.Second); !said() && (len(first) < 100 || time.Now().Before(quiet)); {
		send(2)
	}
	if !said() && m.hasCarrier(m.out) {
		end()
		m.kernelSendsToo()
		return "not noticed"
	}
	m.Logf("%d packets until the process has said so: %v", len(first), m.counted(m.T, m.in).since(before))
	p.logsOnce("the interface has no carrier")
	m.says("NO CARRIER", "status")
	m.says("no carrier", "doctor", "-i", name)
	p.metric(`culvert_interface_up{interface="` + name + `"} 0`)
	var c counts
	if !wait(func() bool { c = send(1); return c.sum("fwd") == 1 }) {
		m.Errorf("packets to a card without a cable are counted as forwarded: %v", c)
	}
	if c = send(30); c.sum("fwd") != 30 || c.sum("lost") != 0 {
		m.Errorf("30 packets to a card without a cable, and 30 to another one, counted are %v", c)
	}
	m.Logf("without the cable: %v", c)
	arrived := func() int { return len(payloads(m.bed.out[other].of(marked))) }
	if !wait(func() bool { return arrived() == len(second) }) {
		m.Errorf("%d of %d packets have arrived by the other card", arrived(), len(second))
	}

	if err := m.out.carrier(true); err != nil {
		m.Fatal(err)
	}
	p.logs("the interface is up")
	p.metric(`culvert_interface_up{interface="` + name + `"} 1`)
	p.forwardsAgain()
	if a := m.forwards(32); a != "yes" {
		m.Errorf("with the cable again: %s", a)
	}
	return "yes"
}

// kernelSendsToo checks that a card whose cable is out takes packets of the kernel too, without culvert, as if it had one.
func (m *trial) kernelSendsToo() {
	m.Helper()
	sent := func() (n uint64) {
		m.mustLink(m.out, func(l netlink.Link) error {
			n = l.Attrs().Statistics.TxPackets
			return nil
		})
		return n
	}
	m.bed.out[m.out].forget()
	before := sent()
	for _, p := range to(m.in, m.out.beyond4(), 16) {
		if err := m.in.far.Send(p.frame(m.T)); err != nil {
			m.Fatal(err)
		}
	}
	if !wait(func() bool { return sent() >= before+16 }) {
		m.Errorf("the cable is out, and the kernel alone has sent %d of 16 packets", sent()-before)
	}
	if n := len(m.bed.out[m.out].of(marked)); n != 0 {
		m.Errorf("the cable is out, and %d packets of the kernel have arrived", n)
	}
	m.Log("the kernel alone has sent 16 packets into nothing, too")
}

// configure gives a port of this namespace addresses, a neighbor and routes.
func (p *port) configure() error {
	if err := testbed.WriteSysctl("ipv6/conf/"+p.name+"/disable_ipv6", "1"); err != nil {
		return err
	}
	if err := testbed.WriteSysctl("ipv4/conf/"+p.name+"/send_redirects", "0"); err != nil {
		return err
	}
	if err := p.up(); err != nil {
		return err
	}
	return p.upVLAN(7)
}
