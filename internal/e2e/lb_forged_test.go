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

// testForged sends forged segments of connections whose backend is drained, with random sequence numbers, while the
// connections transfer files. The connections go on to their end at the same backend.
func (b *balanced) testForged() {
	for _, vip := range b.webVIPs() {
		c, err := dialWeb(b.lab, vip)
		check(b.T, err)
		defer c.Close()
		c.backend, err = c.name()
		check(b.T, err)
		addr := backendAddrs[c.backend].String()
		b.lb("drain", "VIP", addr)
		from := c.client()
		done := make(chan error, 1)
		go func() { done <- c.download() }()
		for n, l := range []layers.TCP{
			{FIN: true, ACK: true}, {SYN: true}, {RST: true}, {SYN: true}, {RST: true, ACK: true}, {SYN: true}, {SYN: true}, {FIN: true}, {SYN: true},
		} {
			steps := c.steps.Load()
			for range 5 {
				check(b.T, b.forge(from, vip, l))
			}
			// The transfer goes on after each forged segment.
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
		// Now no data flows: only the client's next request shows where the connection goes.
		check(b.T, b.forge(from, vip, layers.TCP{FIN: true, ACK: true}))
		check(b.T, b.forge(from, vip, layers.TCP{SYN: true}))
		if name, err := c.name(); err != nil || name != c.backend {
			b.Errorf("%s: %s has answered, not %s, %v", vip, name, c.backend, err)
		}
		b.lb("undrain", "VIP", addr)
		b.wantBack(c.backend)
	}
}

// testSameBalancer wants all packets of a connection to meet the balancer that has its flow, from whichever socket they come and
// however often they are sent. A socket has a random hash that the kernel gives all its packets, and another one after a
// timeout, which happens on a busy machine. If the router chose the balancer by it, flows would change balancers while these
// do not agree, as with a drained backend, and break.
func (b *balanced) testSameBalancer() {
	var conns []*webConn
	for range 8 {
		for _, vip := range b.webVIPs() {
			c, err := dialWeb(b.lab, vip)
			check(b.T, err)
			defer c.Close()
			c.backend, err = c.name()
			check(b.T, err)
			check(b.T, b.forge(c.client(), vip, layers.TCP{ACK: true}))
			conns = append(conns, c)
		}
	}
	nft := func(args ...string) {
		_, err := b.lab.Run(b.Context(), "router", append([]string{"nft"}, args...)...)
		check(b.T, err)
	}
	nft("table inet stall { chain forward { type filter hook forward priority 0; tcp dport 80 drop; }; }")
	answers := make(chan error)
	for _, c := range conns {
		go func() { answers <- c.same() }()
	}
	for _, c := range conns {
		b.wait("the client to send again", func() bool {
			n, err := c.retransmissions()
			check(b.T, err)
			return n >= 2
		})
	}
	nft("delete", "table", "inet", "stall")
	for range conns {
		if err := <-answers; err != nil {
			b.Error(err)
		}
	}
	for _, c := range conns {
		if n := b.tables(netip.MustParseAddrPort(c.vip), c.client()); n != 1 {
			b.Errorf("%d balancers have the flow of %s in their tables, want one", n, c.client())
		}
	}
}

// forge sends a segment from a client's address and port, with random sequence numbers.
func (b *balanced) forge(from, to netip.AddrPort, l layers.TCP) error {
	l.SrcPort, l.DstPort = layers.TCPPort(from.Port()), layers.TCPPort(to.Port())
	l.Seq, l.Ack, l.Window = rand.Uint32(), rand.Uint32(), 1000
	var ip interface {
		gopacket.SerializableLayer
		gopacket.NetworkLayer
	}
	var family int
	var sa unix.Sockaddr
	if to.Addr().Is4() {
		ip = &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Addr: to.Addr().As4()}
	} else {
		ip = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
		family, sa = unix.AF_INET6, &unix.SockaddrInet6{Addr: to.Addr().As16()}
	}
	if err := l.SetNetworkLayerForChecksum(ip); err != nil {
		return err
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, ip, &l); err != nil {
		return err
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
