// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/testbed"
)

// loopBed is a load balancer on lb0 of this namespace, and its router in another namespace. The router's routes to the VIPs lead
// to the load balancer, whose default route leads to the router.
type loopBed struct {
	*bed
	router *testbed.Namespace
	sock   int // a packet socket on the router's interface
}

func newLoopBed(t *testing.T, o Options) *loopBed {
	t.Helper()
	b := &loopBed{bed: newBed(t, o), router: testbed.NewNamespace(t)}
	b.router.Take(t, "lb0p")
	var peer *net.Interface
	b.router.Must(t, func() error {
		for _, name := range []string{"ipv4/conf/all/rp_filter", "ipv4/conf/default/rp_filter", "ipv4/conf/lb0p/rp_filter", "ipv6/conf/lb0p/accept_dad"} {
			if err := testbed.WriteSysctl(name, "0"); err != nil {
				return err
			}
		}
		for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if err := testbed.WriteSysctl(name, "1"); err != nil {
				return err
			}
		}
		if err := testbed.WriteSysctl("ipv6/conf/lb0p/disable_ipv6", "0"); err != nil {
			return err
		}
		l, err := netlink.LinkByName("lb0p")
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err == nil {
			peer, err = net.InterfaceByName("lb0p")
		}
		if err != nil {
			return err
		}
		addAddress(t, "lb0p", "10.9.0.254/24")
		addAddress(t, "lb0p", "fd00:9::254/64")
		for gateway, vip := range map[string]string{"10.9.0.1": "192.0.2.1/32", "fd00:9::1": "2001:db8::1/128"} {
			err := netlink.NeighSet(&netlink.Neigh{
				LinkIndex: peer.Index, IP: net.ParseIP(gateway), HardwareAddr: b.in.HardwareAddr, State: netlink.NUD_PERMANENT,
			})
			if err != nil {
				return err
			}
			if err := testbed.AddRoute(vip, gateway); err != nil {
				return fmt.Errorf("route to %s: %w", vip, err)
			}
		}
		if err := testbed.PassAll(t, peer.Index); err != nil {
			return err
		}
		b.sock, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(bpfobj.Wire16(unix.ETH_P_ALL)))
		if err != nil {
			return err
		}
		return unix.Bind(b.sock, &unix.SockaddrLinklayer{Protocol: bpfobj.Wire16(unix.ETH_P_ALL), Ifindex: peer.Index})
	})
	t.Cleanup(func() { unix.Close(b.sock) })
	for _, name := range []string{"ipv4/conf/all/rp_filter", "ipv4/conf/lb0/rp_filter"} {
		b.must(testbed.WriteSysctl(name, "0"))
	}
	b.forwards()
	for _, gateway := range []string{"10.9.0.254", "fd00:9::254"} {
		b.must(netlink.NeighSet(&netlink.Neigh{
			LinkIndex: b.in.Index, IP: net.ParseIP(gateway), HardwareAddr: peer.HardwareAddr, State: netlink.NUD_PERMANENT,
		}))
	}
	return b
}

// counted returns the number of packets that the load balancer has counted under a verdict and reason.
func (b *loopBed) counted(reason string) uint64 {
	_, byReason, _ := testbed.Counted(b.t, b.inst, "lb0")
	return byReason[reason]
}

// await waits until the router receives a packet for which match returns true.
func (b *loopBed) await(what string, match func(packet []byte) bool) {
	b.t.Helper()
	buf := make([]byte, 2048)
	for end := time.Now().Add(testbed.Patience); time.Now().Before(end); {
		fds := []unix.PollFd{{Fd: int32(b.sock), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 100); n == 0 || err == unix.EINTR {
			continue
		}
		n, from, err := unix.Recvfrom(b.sock, buf, 0)
		b.must(err)
		if l, ok := from.(*unix.SockaddrLinklayer); ok && l.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if n >= 54 && match(buf[14:n]) {
			return
		}
	}
	b.t.Fatalf("%s has not arrived", what)
}

// TestUnclaimedDoesNotGoRound sends a packet to another port of a VIP's address, between a router and a load balancer whose
// routes lead to each other. If it is passed it loops until its TTL ends. Otherwise it is answered or dropped at once.
func TestUnclaimedDoesNotGoRound(t *testing.T) {
	for _, option := range []Unclaimed{Pass, Reject, Drop} {
		t.Run(fmt.Sprint(option), func(t *testing.T) {
			b := newLoopBed(t, Options{Unclaimed: option})
			backend := b.backend(1, 0, "10.0.0.11")
			b.vip(0, vip4, protoTCP, []Backend{backend})
			b.vip(1, vip6, protoTCP, []Backend{backend})
			for _, v := range []struct {
				from, to  string
				at        int // offset of the TTL or hop limit in the IP header
				typ, code byte
			}{{client4, "192.0.2.1:81", 8, 3, 3}, {client6, "[2001:db8::1]:81", 7, 1, 4}} {
				before := map[string]uint64{}
				for _, reason := range []string{"pass other", "fwd lb-unreachable", "drop lb-unclaimed"} {
					before[reason] = b.counted(reason)
				}
				in := b.packet(v.from, v.to, &layers.UDP{}, []byte("round and round"))
				b.must(unix.Sendto(b.sock, in, 0, &unix.SockaddrLinklayer{Ifindex: b.peerIndex(), Halen: 6}))
				switch option {
				case Pass:
					for end := time.Now().Add(testbed.Patience); b.counted("pass other") < before["pass other"]+25; time.Sleep(10 * time.Millisecond) {
						if time.Now().After(end) {
							t.Fatalf("%s: it came %d times, so it does not loop", v.to, b.counted("pass other")-before["pass other"])
						}
					}
					continue
				case Reject:
					l4 := map[byte]int{3: 20, 1: 40}[v.typ]
					b.await("the answer to "+v.to, func(p []byte) bool {
						return len(p) > l4+8 && p[0]>>4 == in[14]>>4 && p[l4] == v.typ && p[l4+1] == v.code && p[l4+8+v.at] == 61
					})
				case Drop:
					for end := time.Now().Add(testbed.Patience); b.counted("drop lb-unclaimed") == before["drop lb-unclaimed"]; time.Sleep(10 * time.Millisecond) {
						if time.Now().After(end) {
							t.Fatalf("%s: it did not come", v.to)
						}
					}
				}
				sum := b.counted("fwd lb-unreachable") - before["fwd lb-unreachable"] + b.counted("drop lb-unclaimed") - before["drop lb-unclaimed"]
				if sum != 1 {
					t.Errorf("%s: it came %d times", v.to, sum)
				}
			}
		})
	}
}

// peerIndex is the index of the router's end.
func (b *loopBed) peerIndex() (index int) {
	b.router.Must(b.t, func() error {
		dev, err := net.InterfaceByName("lb0p")
		if err == nil {
			index = dev.Index
		}
		return err
	})
	return index
}

// TestEchoOfZeros wants Linux to accept the answers to echo requests that are all zeros, whose checksum is a special case.
func TestEchoOfZeros(t *testing.T) {
	b := newLoopBed(t, Options{})
	b.vip(0, vip4, protoTCP, []Backend{b.backend(1, 0, "10.0.0.11")})
	snmp := func(name string) (value string) {
		b.router.Must(t, func() error {
			text, err := os.ReadFile("/proc/thread-self/net/snmp")
			if err != nil {
				return err
			}
			var names []string
			for line := range strings.Lines(string(text)) {
				f := strings.Fields(line)
				if f[0] != "Icmp:" {
					continue
				}
				for n, key := range names {
					if key == name {
						value = f[n]
					}
				}
				names = f
			}
			return nil
		})
		return value
	}
	for n, data := range []int{0, 1, 56, 1000} {
		request := make([]byte, 8+data)
		request[0] = 8
		binary.BigEndian.PutUint16(request[2:], ^testbed.OnesSum(request))
		b.router.Must(t, func() error {
			raw, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
			if err != nil {
				return err
			}
			defer unix.Close(raw)
			return unix.Sendto(raw, request, 0, &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}})
		})
		want := fmt.Sprint(n + 1)
		for end := time.Now().Add(testbed.Patience); snmp("InEchoReps") != want; time.Sleep(10 * time.Millisecond) {
			if snmp("InCsumErrors") != "0" || time.Now().After(end) {
				t.Fatalf("%d bytes of zeros: %s answers, %s wrong checksums", data, snmp("InEchoReps"), snmp("InCsumErrors"))
			}
		}
	}
}
