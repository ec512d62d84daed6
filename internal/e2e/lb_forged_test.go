// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// testForged sends forged segments of connections whose backend is drained, of any sequence number, while they transfer
// files: they go on to their end, at the same backend.
func (b *balanced) testForged() {
	for _, vip := range b.webVIPs() {
		c, err := dialWeb(b.lab, vip)
		check(b.T, err)
		defer c.Close()
		c.backend, err = c.name()
		check(b.T, err)
		addr := backendAddrs[c.backend].String()
		b.lb("drain", "VIP", addr)
		from := c.LocalAddr().(interface{ AddrPort() netip.AddrPort }).AddrPort()
		done := make(chan error, 1)
		go func() { done <- c.download() }()
		for n, l := range []layers.TCP{
			{FIN: true, ACK: true}, {SYN: true}, {RST: true}, {SYN: true}, {RST: true, ACK: true}, {SYN: true}, {SYN: true}, {FIN: true}, {SYN: true},
		} {
			steps := c.steps.Load()
			for range 5 {
				check(b.T, b.forge(from, vip, l))
			}
			// The transfer goes on behind each of them.
			for ended := false; !ended && c.steps.Load() < steps+farther/4; {
				select {
				case err := <-done:
					if err != nil {
						b.Fatalf("%s, after %d forged segments: %v", vip, 5*(n+1), err)
					}
					done <- nil
					ended = true
				default:
					b.wait("the transfer to go on", func() bool { return len(done) > 0 || c.steps.Load() >= steps+farther/4 })
				}
			}
		}
		if err := <-done; err != nil {
			b.Fatalf("%s, after forged segments: %v", vip, err)
		}
		// Without data in between: only what the client says next tells.
		check(b.T, b.forge(from, vip, layers.TCP{FIN: true, ACK: true}))
		check(b.T, b.forge(from, vip, layers.TCP{SYN: true}))
		if name, err := c.name(); err != nil || name != c.backend {
			b.Errorf("%s: %s has answered, not %s, %v", vip, name, c.backend, err)
		}
		b.lb("undrain", "VIP", addr)
		b.wantBack(c.backend)
	}
}

// forge sends a segment under a client's address and port, with numbers of no meaning.
func (b *balanced) forge(from, to netip.AddrPort, l layers.TCP) error {
	l.SrcPort, l.DstPort = layers.TCPPort(from.Port()), layers.TCPPort(to.Port())
	l.Seq, l.Ack, l.Window = rand.Uint32(), rand.Uint32(), 1000
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	var sa unix.Sockaddr
	family := unix.AF_INET
	if to.Addr().Is4() {
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
		if err := l.SetNetworkLayerForChecksum(ip); err != nil {
			return err
		}
		if err := gopacket.SerializeLayers(buf, opts, ip, &l); err != nil {
			return err
		}
		sa = &unix.SockaddrInet4{Addr: to.Addr().As4()}
	} else {
		ip := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
		if err := l.SetNetworkLayerForChecksum(ip); err != nil {
			return err
		}
		if err := gopacket.SerializeLayers(buf, opts, ip, &l); err != nil {
			return err
		}
		family, sa = unix.AF_INET6, &unix.SockaddrInet6{Addr: to.Addr().As16()}
	}
	return b.lab.Do("client", func() error {
		fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return fmt.Errorf("opening a socket for forged segments: %w", err)
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, buf.Bytes(), 0, sa)
	})
}
