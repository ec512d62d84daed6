// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/host/netdev"
	"culvert/internal/lab"
	"culvert/internal/scion/scionplane"
)

// TestInterfacesReplaced replaces the interfaces of a router by new ones of the same names while it has no process. Keys and
// counters stay, because the network namespace, by its cookie, and the names are the same.
func TestInterfacesReplaced(t *testing.T) {
	b := newBetween(t, lab.Options{Name: "rep"})
	id := b.as.RouterID
	p := b.serve(t)
	s := b.stream(t, "", 0)
	load := startLoad(t, b.from, s)
	load.wait(20)
	load.stop()
	key := filepath.Join(t.TempDir(), "key")
	check(t, os.WriteFile(key, []byte("AAAAAAAAAAAAAAAAAAAAAA==\n"), 0o600))
	culvert(t, b.lab, "rut", "key", "add", "--on", id, "1", key)
	p.end(syscall.SIGKILL)
	if list := culvert(t, b.lab, "rut", "key", "list", "--on", id); strings.Count(list, "\n") != 2 {
		t.Errorf("key list shows %q, want two keys", list)
	}
	replaceInterface(t, b.lab, "rut", "to-a")
	replaceInterface(t, b.lab, "rut", "to-b")

	culvert(t, b.lab, "rut", "attach", "-c", nodeConfig(t, b.lab, "rut"), "to-a", "to-b")
	if list := culvert(t, b.lab, "rut", "key", "list", "--on", id); strings.Count(list, "\n") != 2 {
		t.Errorf("key list shows %q, want two keys", list)
	}
	if c := count(t, plane(t, b.lab, "rut"), "to-a"); c["fwd scion-br-transit"] < 20 {
		t.Errorf("the new interface goes on with %v", c)
	}
	for _, iface := range []string{"to-a", "to-b"} {
		if xdpProgram(t, b.lab, "rut", iface) == 0 {
			t.Errorf("nothing is attached to %s", iface)
		}
	}
}

// replaceInterface deletes an interface of a lab and makes another one with its name and addresses. The far end is in the same
// namespace.
func replaceInterface(t *testing.T, l *lab.Lab, ns, name string) {
	t.Helper()
	n, err := l.Namespace(ns)
	check(t, err)
	old, err := n.Interface(name)
	check(t, err)
	check(t, l.Do(ns, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkDel(link); err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		veth := netlink.NewVeth(attrs)
		veth.PeerName = "far-" + name
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		for _, p := range old.Addrs {
			mask := net.CIDRMask(p.Bits(), p.Addr().BitLen())
			addr := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: mask}}
			if err := netlink.AddrAdd(veth, addr); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(veth)
	}))
}

// TestInterfaceReplacedUnderRouter replaces an interface twice while a process serves the router. The process attaches to the
// new interface and uses it once a neighbor is there.
func TestInterfaceReplacedUnderRouter(t *testing.T) {
	b := newBetween(t, lab.Options{Name: "rpu"})
	p := b.serve(t)
	s := b.stream(t, "", 0)
	load := startLoad(t, b.from, s)
	load.wait(20)
	load.stop()
	for range 2 {
		replaceInterface(t, b.lab, "rut", "to-b")
		wait(t, "the program on the new interface", func() bool {
			return xdpProgram(t, b.lab, "rut", "to-b") != 0 && xdpProgram(t, b.lab, "rut", "to-b") == xdpProgram(t, b.lab, "rut", "to-a")
		})
	}
	// Nobody answers for the neighbor at the new interface, so a permanent entry is needed.
	var index int
	running := plane(t, b.lab, "rut")
	check(t, b.lab.Do("rut", func() error {
		link, err := netlink.LinkByName("to-b")
		if err != nil {
			return err
		}
		index = link.Attrs().Index
		far, err := netlink.LinkByName("far-to-b")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(far); err != nil {
			return err
		}
		// A veth without GRO or an XDP program drops frames that XDP redirects to its peer.
		if _, err := netdev.Ethtool("far-to-b", unix.ETHTOOL_SGRO, 1); err != nil {
			return err
		}
		for _, l := range scionplane.Of(running).Config().Links {
			if !l.Remote.IsValid() {
				continue
			}
			routes, err := netlink.RouteGet(l.Remote.Addr().AsSlice())
			if err != nil || len(routes) == 0 || routes[0].LinkIndex != index {
				continue
			}
			err = netlink.NeighSet(&netlink.Neigh{
				LinkIndex: index, IP: l.Remote.Addr().AsSlice(), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}, State: netlink.NUD_PERMANENT,
			})
			if err != nil {
				return err
			}
		}
		return nil
	}))
	wait(t, "a next hop by the new interface", func() bool {
		states, err := scionplane.Of(running).LinkStates()
		check(t, err)
		for _, st := range states {
			if st.NextHop.IfIndex == index {
				return true
			}
		}
		return false
	})
	if !p.running() {
		t.Fatalf("the process has ended: %s", p.out.String())
	}
	if c := count(t, running, "to-a"); c["fwd scion-br-transit"] < 20 {
		t.Errorf("to-a has counted %v", c)
	}
}
