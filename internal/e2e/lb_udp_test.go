// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"culvert/internal/lab"
)

// datagram is the length of the datagrams in bytes. Each is sent as several fragments.
const datagram = 9000

// testDatagrams sends long datagrams to UDP VIPs. All fragments of a datagram must come to the same backend, which answers
// with a datagram of the same length that begins with its name.
func (b *balanced) testDatagrams() {
	for _, web := range b.webVIPs() {
		vip := netip.AddrPortFrom(web.Addr(), 5353)
		for _, ns := range balancers {
			culvert(b.T, b.lab, ns, "lb", "vip", "add", vip.String()+"/udp")
			for n, name := range providers {
				encap := []string{"ipip", "gue"}[n%2]
				culvert(b.T, b.lab, ns, "lb", "backend", "add", vip.String()+"/udp", backendAddrs[name].String(), "--encap", encap)
			}
		}
		for _, name := range providers {
			b.echo(name, vip)
			b.answersFit(name)
		}
		before := b.counted("lb-fragment")
		for _, ns := range balancers {
			b.awaitHops(ns, vip)
		}
		names := make(map[string]int)
		for range freshCount {
			names[b.exchange(vip)]++
		}
		if len(names) != len(providers) {
			b.Errorf("%v have answered datagrams to %s, want all", names, vip)
		}
		if n := b.counted("lb-fragment") - before; n < 6*freshCount { // first fragments do not count
			b.Errorf("%d fragments were balanced, want %d", n, 6*freshCount)
		}
		for _, ns := range balancers {
			culvert(b.T, b.lab, ns, "lb", "vip", "del", vip.String()+"/udp")
		}
	}
}

// echo has a backend answer datagrams to a VIP. The answer is the datagram with the first bytes replaced by the backend's
// name.
func (b *balanced) echo(name string, vip netip.AddrPort) {
	b.Helper()
	var server *net.UDPConn
	check(b.T, b.lab.Do(name, func() (err error) {
		server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(vip))
		return err
	}))
	b.Cleanup(func() { server.Close() })
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := server.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			copy(buf, name)
			_, _ = server.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
}

// exchange sends a datagram from a new port until it is answered, and returns the name in the answer. The first answers may be
// lost while the kernel finds out the MTU of the path.
func (b *balanced) exchange(vip netip.AddrPort) string {
	b.Helper()
	var conn *net.UDPConn
	check(b.T, b.lab.Do("client", func() (err error) {
		conn, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(vip))
		return err
	}))
	defer conn.Close()
	out := make([]byte, datagram)
	_, _ = io.ReadFull(&lab.WebBytes{}, out)
	buf := make([]byte, 1<<16)
	name := ""
	b.wait(fmt.Sprintf("an answer to a datagram to %s from %s", vip, conn.LocalAddr()), func() bool {
		_, err := conn.Write(out)
		check(b.T, err)
		_ = conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		n, err := conn.Read(buf)
		if err != nil {
			return false
		}
		name = string(buf[:2])
		if n != datagram || !bytes.Equal(buf[2:n], out[2:]) {
			b.Errorf("%s has answered with other bytes, %d of %d", name, n, datagram)
		}
		return true
	})
	return name
}

// testMTU gives the client a larger MTU than encapsulation leaves room for. Packets that are too big are answered, and
// transfers are completed.
func (b *balanced) testMTU() {
	b.setMTU(1548)
	defer b.setMTU(1500)
	before := b.counted("lb-too-big")
	w := b.load()
	w.end()
	if n := b.counted("lb-too-big") - before; n == 0 {
		b.Error("no packet was too big: the test has tested nothing")
	}
}

func (b *balanced) setMTU(mtu int) {
	b.Helper()
	b.ip("client", "link", "set", "to-router", "mtu", fmt.Sprint(mtu))
	b.ip("router", "link", "set", "to-client", "mtu", fmt.Sprint(mtu))
}

// answersFit limits a backend's packets to the client's MTU.
func (b *balanced) answersFit(name string) {
	b.Helper()
	at := backendAddrs[name].String()
	if backendAddrs[name].Is4() { // 198.18.2x.2
		at = "2001:db8:" + strings.Split(at, ".")[2] + "::2"
	}
	b.ip(name, "-6", "route", "replace", "default", "via", strings.TrimSuffix(at, "2")+"1", "dev", "to-router", "mtu", "1500")
}

// counted returns how many packets the balancers have forwarded under a reason.
func (b *balanced) counted(reason string) (n uint64) {
	b.Helper()
	for _, ns := range balancers {
		n += count(b.T, plane(b.T, b.lab, ns), "to-router")["fwd "+reason]
	}
	return n
}
