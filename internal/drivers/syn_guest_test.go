// SPDX-License-Identifier: Apache-2.0

//go:build guest

package drivers

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/vishvananda/netlink"

	"culvert/internal/testbed"
)

// synRow has a client at the far end of the first card connect to a protected service of this host. The program answers its SYNs, and the
// kernel takes what comes back for a connection.
func synRow(m *trial) string {
	m.detach(m.T)
	service := &net.TCPAddr{IP: m.in.ip4(1), Port: 8080}
	m.here.Must(m.T, func() error {
		return errors.Join(testbed.WriteSysctl("ipv4/tcp_syncookies", "2"), testbed.WriteSysctl("ipv4/tcp_timestamps", "2"))
	})
	m.attach(m.T, fmt.Sprintf("interfaces = [%q]\nmode = %q\n[filter]\n[[filter.protect]]\naddress = %q\n", m.in.name, m.mode, service))
	defer m.detach(m.T)
	m.ready(m.in)
	var l *net.TCPListener
	m.here.Must(m.T, func() (err error) {
		l, err = net.ListenTCP("tcp4", service)
		return err
	})
	defer l.Close()
	go echo(l)
	client := newClient(m)
	before := m.counted(m.T, m.in)
	for n := range 3 {
		client.Must(m.T, func() error { return talk(service.String(), fmt.Sprintf("hello %d", n)) })
	}
	if c := m.counted(m.T, m.in).since(before); c["fwd filter-synack"] < 3 || c.sum("lost") != 0 {
		m.Errorf("3 connections, counted are %v", c)
	}
	return "yes"
}

// echo accepts connections and returns what comes.
func echo(l *net.TCPListener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(c, c)
			c.Close()
		}()
	}
}

// talk sends a text over a new connection and wants it back.
func talk(to, text string) error {
	d := net.Dialer{Timeout: patience}
	c, err := d.Dial("tcp4", to)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, text); err != nil {
		return err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	back, err := io.ReadAll(c)
	if err == nil && string(back) != text {
		err = fmt.Errorf("%q came back as %q", text, back)
	}
	return err
}

// newClient makes the host at the far end of the first card real: a namespace whose only device, a tap, is connected to the card by this
// process.
func newClient(m *trial) *testbed.Namespace {
	m.Helper()
	host := testbed.NewNamespace(m.T)
	p := &port{name: "client"}
	host.Must(m.T, func() error {
		if err := p.openTap(); err != nil {
			return err
		}
		if err := testbed.WriteSysctl("ipv6/conf/client/disable_ipv6", "1"); err != nil {
			return err
		}
		l, err := netlink.LinkByName(p.name)
		if err != nil {
			return err
		}
		prefix := net.CIDRMask(24, 32)
		return errors.Join(
			netlink.LinkSetHardwareAddr(l, m.in.hop()),
			netlink.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: m.in.ip4(2), Mask: prefix}}),
			netlink.LinkSetUp(l),
			netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: m.in.ip4(1), HardwareAddr: m.in.mac}),
		)
	})
	in := m.in.far
	m.bed.out[m.in].pass(func(frame []byte) { _ = p.far.Send(frame) })
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			n, err := p.far.Receive(buffer)
			if err != nil {
				return
			}
			_ = in.Send(buffer[:n])
		}
	}()
	m.Cleanup(func() {
		m.bed.out[m.in].pass(nil)
		p.far.Close()
	})
	return host
}
