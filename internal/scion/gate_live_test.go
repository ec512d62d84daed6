// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/host/netdev"
	"culvert/internal/scion/scionplane"
)

// childKernel names the environment variable that makes TestChildKernelRouter a router.
const childKernel = "CULVERT_TEST_KERNEL_ROUTER"

// TestChildKernelRouter is a router with a fast path in the kernel, on the interfaces that carry its
// addresses, when the tests below start it in a process of its own. By itself it does nothing.
func TestChildKernelRouter(t *testing.T) {
	path := os.Getenv(childKernel)
	if path == "" {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	file := Table{Config: path}
	if rest, ok := strings.CutPrefix(path, "loose:"); ok {
		file = Table{Config: rest, LinkInterfaces: LinksLoose}
	}
	err := runOn(ctx, file, func(r *Router, interfaces []string) (DataPlane, error) {
		inst, err := datapath.Attach(datapath.Options{
			Name: r.ID(), Interfaces: interfaces, Temporary: true, Parts: []datapath.Part{scionplane.NewPart(r.Datapath)},
		})
		if err != nil {
			return nil, err
		}
		t.Cleanup(inst.Close)
		return plane{scionplane.Of(inst)}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The addresses of gateBed. Link 2 goes from outsideOwn to outsideFar by cvs0. Hosts of the AS and the sibling are behind
// cvi0. No link leads by cvx0.
var (
	outsideOwn = ap("192.0.2.1:50001")
	outsideFar = ap("192.0.2.2:50001")
	insideOwn  = ap("198.51.100.1:30042")
	insideHost = ap("198.51.100.77:31000")
	siblingFar = ap("198.51.100.9:30042")
)

// gateBed is two hosts with three pairs of devices between them, and a router on the first.
type gateBed struct {
	*twoHosts
	toml   string
	router *child
}

// newGateBed makes the hosts and the router's files. The test starts the router.
func newGateBed(t *testing.T) *gateBed {
	b := &gateBed{twoHosts: newTwoHosts(t)}
	b.addWire("cvi", "198.51.100.1/24")
	b.addWire("cvx", "203.0.113.1/24")
	topology, err := os.ReadFile("testdata/wire/topology.json")
	check(t, err)
	text := strings.NewReplacer("127.0.0.1:30042", insideOwn.String(), "127.0.0.2:30042", siblingFar.String(),
		"198.51.100.1:50000", "10.7.0.1:50000", "198.51.100.2:50000", "10.7.0.2:50000").Replace(string(topology))
	dir := copied(t, "testdata/wire")
	check(t, os.WriteFile(filepath.Join(dir, "topology.json"), []byte(text), 0o600))
	b.toml = filepath.Join(dir, "br.toml")
	config := fmt.Sprintf("[general]\nid = \"br1\"\nconfig_dir = %q\n[metrics]\nprometheus = \"127.0.0.1:30442\"\n"+
		"[router.bfd]\ndisable = true\n", dir)
	check(t, os.WriteFile(b.toml, []byte(config), 0o600))
	return b
}

// addWire connects the hosts by one more pair of devices, NAME0 and NAME1. The first accepts packets from any address,
// because its reverse path filter is off.
func (b *gateBed) addWire(name, prefix string) {
	b.t.Helper()
	b.enter(0)
	check(b.t, b.links[0].LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name + "0"},
		PeerName: name + "1", PeerNamespace: netlink.NsFd(b.ns[1])}))
	for i := range b.ns {
		b.enter(i)
		l, err := b.links[i].LinkByName(fmt.Sprintf("%s%d", name, i))
		check(b.t, err)
		check(b.t, b.links[i].LinkSetUp(l))
		_, err = netdev.Ethtool(l.Attrs().Name, unix.ETHTOOL_SGRO, 1)
		check(b.t, err)
		if i == 0 {
			addr, err := netlink.ParseAddr(prefix)
			check(b.t, err)
			check(b.t, b.links[0].AddrAdd(l, addr))
		}
	}
	b.enter(0)
	for _, dev := range []string{"all", "cvs0", name + "0"} {
		check(b.t, os.WriteFile("/proc/sys/net/ipv4/conf/"+dev+"/rp_filter", []byte("0"), 0))
	}
}

// send sends datagrams between any two addresses from the second host by the devices of a name.
func (b *gateBed) send(wire string, from, to netip.AddrPort, count int) {
	b.t.Helper()
	b.enter(0)
	near, err := net.InterfaceByName(wire + "0")
	check(b.t, err)
	b.enter(1)
	defer b.enter(0)
	far, err := net.InterfaceByName(wire + "1")
	check(b.t, err)
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: from.Addr().AsSlice(), DstIP: to.Addr().AsSlice()}
	udp := &layers.UDP{SrcPort: layers.UDPPort(from.Port()), DstPort: layers.UDPPort(to.Port())}
	check(b.t, udp.SetNetworkLayerForChecksum(ip))
	buf := gopacket.NewSerializeBuffer()
	check(b.t, gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: far.HardwareAddr, DstMAC: near.HardwareAddr, EthernetType: layers.EthernetTypeIPv4},
		ip, udp, gopacket.Payload(make([]byte, 100))))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	check(b.t, err)
	defer unix.Close(fd)
	for range count {
		check(b.t, unix.Sendto(fd, buf.Bytes(), 0, &unix.SockaddrLinklayer{Ifindex: far.Index}))
	}
}

// tally counts the datagrams of a link that the router accepted, those that its socket dropped, and the datagrams of all
// links that the fast path dropped.
type tally struct{ taken, dropped, fast int }

// tally reads the counters of a link from the metrics.
func (b *gateBed) tally(link string) (sum tally) {
	b.t.Helper()
	for line := range strings.Lines(b.get("127.0.0.1:30442", "/metrics")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		of, guarded := fmt.Sprintf("interface=%q", link), fmt.Sprintf("link=%q", link)
		switch {
		case strings.HasPrefix(name, "router_input_pkts_total{") && strings.Contains(name, of):
			sum.taken += int(n)
		case strings.HasPrefix(name, "culvert_scion_socket_dropped_packets_total{") && strings.Contains(name, guarded) &&
			strings.Contains(name, `reason="scion-interface"`):
			sum.dropped += int(n)
		case strings.HasPrefix(name, "culvert_packets_total{") && strings.Contains(name, `reason="scion-interface"`):
			sum.fast += int(n)
		}
	}
	return sum
}

// await waits until the counters of a link are as wanted. As in the reference's metrics, the link's input includes what
// the fast path drops.
func (b *gateBed) await(step, link string, want tally) {
	b.t.Helper()
	var got tally
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if got = b.tally(link); got == want {
			return
		}
	}
	b.t.Fatalf("%s: link %s has %+v, want %+v; the router says:\n%s", step, link, got, want, b.router.stderr.String())
}

// until sends one datagram at a time until one is accepted.
func (b *gateBed) until(step, wire string, from, to netip.AddrPort, link string) {
	b.t.Helper()
	before := b.tally(link)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		b.send(wire, from, to, 1)
		if now := b.tally(link); now.taken > before.taken {
			return
		}
	}
	b.t.Fatalf("%s: no datagram of link %s taken by %s; the router says:\n%s", step, link, wire, b.router.stderr.String())
}

// TestSlowPathTakesLinksByTheirInterface checks that a datagram with a link's addresses reaches the slow path only by the
// interface that the link's far end is behind, whether the fast path is attached there or not.
func TestSlowPathTakesLinksByTheirInterface(t *testing.T) {
	b := newGateBed(t)
	b.router = b.start(0, b.toml)
	b.router.await("plane link 2 via")

	b.send("cvx", outsideFar, outsideOwn, 3)
	b.send("cvi", outsideFar, outsideOwn, 4)
	b.send("cvs", outsideFar, outsideOwn, 2)
	b.await("external link", "2", tally{taken: 2, dropped: 7})

	b.send("cvs", insideHost, insideOwn, 3)
	b.send("cvi", insideHost, insideOwn, 2)
	b.send("cvx", insideHost, insideOwn, 1)
	b.await("internal address", "internal", tally{taken: 3, dropped: 3})

	sibling := "sibling->" + siblingFar.String()
	b.send("cvs", siblingFar, insideOwn, 3)
	b.send("cvi", siblingFar, insideOwn, 2)
	b.send("cvx", siblingFar, insideOwn, 1)
	b.await("sibling", sibling, tally{taken: 3, dropped: 3})
}

// TestSlowPathFollowsRoutes checks that the interface of a link is always the one that the route leads to.
func TestSlowPathFollowsRoutes(t *testing.T) {
	b := newGateBed(t)
	b.router = b.start(0, b.toml)
	b.router.await("plane link 2 via")
	b.send("cvs", outsideFar, outsideOwn, 1)
	b.await("at first", "2", tally{taken: 1})

	lead := func(dev string) *netlink.Route {
		l, err := b.links[0].LinkByName(dev)
		check(t, err)
		host := &net.IPNet{IP: outsideFar.Addr().AsSlice(), Mask: net.CIDRMask(32, 32)}
		return &netlink.Route{LinkIndex: l.Attrs().Index, Dst: host, Scope: netlink.SCOPE_LINK}
	}
	check(t, b.links[0].RouteReplace(lead("cvx0")))
	b.until("route moved", "cvx", outsideFar, outsideOwn, "2")
	before := b.tally("2")
	b.send("cvs", outsideFar, outsideOwn, 3)
	b.await("where the route was", "2", tally{taken: before.taken, dropped: before.dropped + 3})

	// The interface is deleted, and made again under another number.
	old, err := b.links[0].LinkByName("cvx0")
	check(t, err)
	check(t, b.links[0].LinkDel(old))
	b.until("back where it was", "cvs", outsideFar, outsideOwn, "2")
	b.addWire("cvx", "203.0.113.1/24")
	check(t, b.links[0].RouteReplace(lead("cvx0")))
	b.until("made again", "cvx", outsideFar, outsideOwn, "2")
}

// TestFastPathTakesLinksByTheirInterface checks that the fast path drops what comes by the wrong interface.
func TestFastPathTakesLinksByTheirInterface(t *testing.T) {
	b := newGateBed(t)
	b.router = b.startChild(0, "TestChildKernelRouter", childKernel+"="+b.toml)
	b.awaitMetrics()
	b.until("external link", "cvs", outsideFar, outsideOwn, "2")
	at := b.tally("2")

	b.send("cvi", outsideFar, outsideOwn, 4)
	b.await("inside for outside", "2", tally{taken: at.taken + 4, dropped: at.dropped, fast: 4})
	b.send("cvx", outsideFar, outsideOwn, 3)
	b.await("interface without fast path", "2", tally{taken: at.taken + 4, dropped: at.dropped + 3, fast: 4})
	b.send("cvs", siblingFar, insideOwn, 2)
	b.await("outside for sibling", "sibling->"+siblingFar.String(), tally{taken: 2, fast: 6})
	b.send("cvs", insideHost, insideOwn, 1)
	b.await("outside for inside", "internal", tally{taken: 1, fast: 7})
	b.send("cvi", insideHost, insideOwn, 1)
	b.await("inside", "internal", tally{taken: 2, fast: 7})
	check(t, b.router.cmd.Process.Signal(syscall.SIGTERM))
	b.router.rest()
	check(t, b.router.cmd.Wait())
	b.router.wantLog(strayDrops, 2) // by two interfaces
}

// TestLooseLinks checks that link_interfaces = "loose" accepts datagrams by any interface.
func TestLooseLinks(t *testing.T) {
	b := newGateBed(t)
	b.router = b.startChild(0, "TestChildKernelRouter", childKernel+"=loose:"+b.toml)
	b.awaitMetrics()
	b.until("external link", "cvs", outsideFar, outsideOwn, "2")
	at := b.tally("2")
	for n, wire := range []string{"cvi", "cvx", "cvs"} {
		b.send(wire, outsideFar, outsideOwn, 1)
		b.await(wire, "2", tally{taken: at.taken + n + 1})
		b.send(wire, insideHost, insideOwn, 1)
		b.await(wire, "internal", tally{taken: n + 1})
	}
}

// awaitMetrics waits for the router to serve them.
func (b *gateBed) awaitMetrics() {
	b.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		c, err := net.Dial("tcp", "127.0.0.1:30442")
		if err == nil {
			c.Close()
			return
		}
	}
	b.t.Fatalf("the router does not serve metrics; it says:\n%s", b.router.stderr.String())
}

// TestInterfaceLeadsBothWays checks that an interface which leads both to other ASes and inside is named by BothWays and
// in the log, and that datagrams by it are accepted.
func TestInterfaceLeadsBothWays(t *testing.T) {
	b := newGateBed(t)
	r, err := Load(b.toml)
	check(t, err)
	both, err := BothWays(r)
	check(t, err)
	if both != "" {
		t.Errorf("%s is said to lead both ways", both)
	}
	toSibling := &net.IPNet{IP: siblingFar.Addr().AsSlice(), Mask: net.CIDRMask(32, 32)}
	check(t, b.links[0].RouteAdd(&netlink.Route{Dst: toSibling, LinkIndex: b.veth(0).Attrs().Index, Scope: netlink.SCOPE_LINK}))
	if both, err = BothWays(r); err != nil || both != "cvs0" {
		t.Errorf("%q is said to lead both ways, %v; want cvs0", both, err)
	}
	b.router = b.start(0, b.toml)
	b.router.await("plane link 2 via")
	b.send("cvs", insideHost, insideOwn, 2)
	b.send("cvs", outsideFar, outsideOwn, 1)
	b.send("cvi", outsideFar, outsideOwn, 1)
	b.await("internal address", "internal", tally{taken: 2})
	b.await("external link", "2", tally{taken: 1, dropped: 1})
	check(t, b.router.cmd.Process.Signal(syscall.SIGTERM))
	b.router.rest()
	check(t, b.router.cmd.Wait())
	b.router.wantLog("Interfaces lead to other ASes and may lead inside, too", 1)
}
