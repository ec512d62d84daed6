// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/scionproto/scion/pkg/segment/iface"
	"github.com/scionproto/scion/private/keyconf"
	sciontopo "github.com/scionproto/scion/private/topology"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/host/netdev"
)

// TestVethCarriesAcross sends a datagram from a through rut to b and back, in both
// families. Linux forwards in rut.
func TestVethCarriesAcross(t *testing.T) {
	l := up(t, "veth", Options{Name: testName(t, "x"), Forward: true})
	for _, ipv6 := range []bool{false, true} {
		from, to := net18(1, 2, ipv6).Addr(), net18(2, 2, ipv6).Addr()
		if got := echo(t, l, from, to, 100); got != 100 {
			t.Errorf("from %s to %s and back: %d bytes of 100", from, to, got)
		}
	}
}

// echo sends size bytes over UDP from an address in a to an echo server at an address
// in b, and returns how many bytes come back.
func echo(t *testing.T, l *Lab, from, to netip.Addr, size int) int {
	t.Helper()
	var server, client *net.UDPConn
	err := l.Do("b", func() (err error) {
		server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 0)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	err = l.Do("a", func() (err error) {
		client, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), server.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	go func() {
		buf := make([]byte, 65536)
		for {
			n, addr, err := server.ReadFromUDP(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDP(buf[:n], addr)
		}
	}()
	if _, err := client.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := client.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	n, err := client.Read(make([]byte, 65536))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestVethDoesNotForwardByDefault(t *testing.T) {
	l := up(t, "veth", Options{Name: testName(t, "n")})
	err := l.Do("rut", func() error {
		if v := readSysctl(t, "ipv4/ip_forward"); v != "0" {
			t.Errorf("ip_forward is %s", v)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestVethInterfaces checks the settings that XDP needs, and compares the lab's state
// with the kernel.
func TestVethInterfaces(t *testing.T) {
	l := up(t, "veth", Options{Name: testName(t, "i"), MTU: 9000, Queues: 1})
	seen := 0
	for _, ns := range l.Namespaces {
		for _, i := range ns.Interfaces {
			seen++
			err := l.Do(ns.Name, func() error {
				for what, check := range map[string]struct{ cmd, want uint32 }{
					"rx checksum offload": {unix.ETHTOOL_GRXCSUM, 0},
					"tx checksum offload": {unix.ETHTOOL_GTXCSUM, 0},
					"gro":                 {unix.ETHTOOL_GGRO, 1},
				} {
					if got, err := netdev.Ethtool(i.Name, check.cmd, 0); err != nil || got != check.want {
						t.Errorf("%s of %s/%s: %d, %v", what, ns.Name, i.Name, got, err)
					}
				}
				link, err := netlink.LinkByIndex(i.Index)
				if err != nil {
					return err
				}
				a := link.Attrs()
				if a.Name != i.Name || a.HardwareAddr.String() != i.MAC || a.MTU != 9000 || i.MTU != 9000 ||
					a.NumTxQueues != 1 || a.NumRxQueues != 1 {
					t.Errorf("the state says %+v, the kernel %+v", i, a)
				}
				addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL)
				if len(addrs) != len(i.Addrs)+1 { // with the link-local address
					t.Errorf("%s/%s has addresses %v, want %v", ns.Name, i.Name, addrs, i.Addrs)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if seen != 4 {
		t.Errorf("%d interfaces, want 4", seen)
	}
}

func TestVethStaticNeighbors(t *testing.T) {
	l := up(t, "veth", Options{Name: testName(t, "s"), StaticNeighbors: true})
	b, err := l.Namespace("b")
	if err != nil {
		t.Fatal(err)
	}
	far, err := b.Interface("to-rut")
	if err != nil {
		t.Fatal(err)
	}
	err = l.Do("rut", func() error {
		link, err := netlink.LinkByName("to-b")
		if err != nil {
			return err
		}
		neighs, err := netlink.NeighList(link.Attrs().Index, netlink.FAMILY_ALL)
		permanent := 0
		for _, n := range neighs {
			if n.State == netlink.NUD_PERMANENT && n.HardwareAddr.String() == far.MAC {
				permanent++
			}
		}
		if permanent != len(far.Addrs) {
			t.Errorf("neighbors on to-b: %v, want one for each of %v", neighs, far.Addrs)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestVethRouterConfiguration reads the files with the parsers of the reference router.
func TestVethRouterConfiguration(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		l := up(t, "veth", Options{Name: testName(t, map[bool]string{false: "c4", true: "c6"}[ipv6]), IPv6: ipv6})
		as, err := l.AS("rut")
		if err != nil {
			t.Fatal(err)
		}
		topo, err := sciontopo.RWTopologyFromJSONFile(as.ConfigDir + "/topology.json")
		if err != nil {
			t.Fatal(err)
		}
		br := topo.BR[as.RouterID]
		if br.InternalAddr != as.Internal || as.Internal.Addr() != net18(20, 1, ipv6).Addr() {
			t.Errorf("internal address %v, state %v", br.InternalAddr, as.Internal)
		}
		for _, link := range as.Links {
			i := topo.IFInfoMap[iface.ID(link.ID)]
			if i.Local != link.Local.String() || i.Remote != link.Remote.String() {
				t.Errorf("interface %d is %v to %v, state %+v", link.ID, i.Local, i.Remote, link)
			}
		}
		if own := topo.IFInfoMap[3].BRName; own == as.RouterID || own == "" {
			t.Errorf("interface 3 belongs to %q, want a sibling", own)
		}
		if _, err := keyconf.LoadMaster(as.Keys); err != nil {
			t.Error(err)
		}
	}
}
