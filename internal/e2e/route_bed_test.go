// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/bench/load"
	"culvert/internal/datapath"
	"culvert/internal/host/netdev"
	"culvert/internal/lab"
	"culvert/internal/show/status"
)

// stable4 and stable6 are routes to b that stay. The other constants are the addresses of the streams and the next hops.
const (
	stable4, stable6 = "203.0.113.0/24", "2001:db8:113::/48"
	dst4, dst6       = "203.0.113.7", "2001:db8:113::7"
	src4, src6       = "198.18.1.2", "2001:db8:1::2"
	via4, via6       = "198.18.2.2", "2001:db8:2::2"
)

// routed is an IP router under test with numbered streams through it, one for IPv4 and one for IPv6.
type routed struct {
	t       *testing.T
	lab     *lab.Lab
	from    load.End
	into    load.End
	sink    *load.Sink
	streams []*stream
	load    *steadyLoad
	begun   tally
}

// newRouted makes the router and the streams from a to b. The sink has room for three streams.
func newRouted(t *testing.T, name string, o lab.Options) *routed {
	t.Helper()
	o.Name, o.StaticNeighbors, o.Forward = name, true, true
	r := &routed{t: t, lab: up(t, "veth", o)}
	r.from, r.into = end(t, r.lab, "a", "to-rut"), end(t, r.lab, "rut", "to-a")
	r.sink = newSink(t, end(t, r.lab, "b", "to-rut"),
		load.SinkOptions{MinLen: streamSize, Tags: 3 * numbers, TagOffset: streamSize - 8})
	r.ip("route", "add", stable4, "via", via4)
	r.ip("route", "add", stable6, "via", via6)
	r.streams = []*stream{r.stream(src4, dst4, 0), r.stream(src6, dst6, numbers)}
	return r
}

// stream makes a flow of UDP packets from a that the router is to forward.
func (r *routed) stream(src, dst string, first uint32) *stream {
	r.t.Helper()
	eth := &layers.Ethernet{SrcMAC: r.from.MAC, DstMAC: r.into.MAC, EthernetType: layers.EthernetTypeIPv4}
	udp := &layers.UDP{SrcPort: 4000, DstPort: 5000}
	var ip interface {
		gopacket.SerializableLayer
		gopacket.NetworkLayer
	}
	header := 20
	if s, d := net.ParseIP(src), net.ParseIP(dst); d.To4() != nil {
		ip = &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: s, DstIP: d}
	} else {
		header, eth.EthernetType = 40, layers.EthernetTypeIPv6
		ip = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolUDP, SrcIP: s, DstIP: d}
	}
	check(r.t, udp.SetNetworkLayerForChecksum(ip))
	out := gopacket.NewSerializeBuffer()
	check(r.t, gopacket.SerializeLayers(out, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		eth, ip, udp, gopacket.Payload(make([]byte, streamSize-14-header-8))))
	return newStream(slices.Clone(out.Bytes()), first)
}

// ip runs ip(8) in the router.
func (r *routed) ip(args ...string) { r.t.Helper(); r.command("ip", args...) }

// command runs a program in the router and returns its output. The test fails if the program does.
func (r *routed) command(program string, args ...string) string {
	r.t.Helper()
	out, err := r.lab.Run(r.t.Context(), "rut", append([]string{program}, args...)...)
	check(r.t, err)
	return string(out)
}

// smallRoute configures a mirror for few routes, so that the tests take little memory.
const smallRoute = "[route]\nblocks4 = 64\nblocks6 = 1024\n"

// routeFile writes a configuration.
func routeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "route.toml")
	check(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// logged returns how often a process has logged a word, but for what depends on whether this machine has the group culvert.
func logged(p *process, word string) (n int) {
	for line := range strings.Lines(p.out.String()) {
		if !strings.Contains(line, "only root may use the socket") {
			n += strings.Count(line, word)
		}
	}
	return n
}

// serveRoute starts 'culvert run' and waits until its program runs and its mirror is current.
func serveRoute(t *testing.T, l *lab.Lab, file string) *process {
	t.Helper()
	before := xdpProgram(t, l, "rut", "to-a")
	p := start(t, l, "rut", program(), "run", "-c", file)
	wait(t, "the mirror to be current", func() bool {
		if !p.running() {
			t.Fatalf("culvert ended: %s", p.out.String())
		}
		now := xdpProgram(t, l, "rut", "to-a")
		return now != 0 && now != before && mirrored(t, l)
	})
	return p
}

// mirrored tells whether 'culvert status' says that IPv4 and IPv6 are forwarded by the mirror.
func mirrored(t *testing.T, l *lab.Lab) bool {
	t.Helper()
	route := routeStatus(t, l)
	return route != nil && route.IPv4.By == "mirror" && route.IPv6.By == "mirror"
}

// routeStatus returns the IP router's part of 'culvert status', nil if there is none.
func routeStatus(t *testing.T, l *lab.Lab) *status.Route {
	t.Helper()
	cmd, err := l.Command(t.Context(), "rut", program(), "status", "-j")
	check(t, err)
	out, err := cmd.Output()
	check(t, err)
	var report status.Report
	check(t, json.Unmarshal(out, &report))
	for _, router := range report.Routers {
		if router.Here && router.Route != nil {
			return router.Route
		}
	}
	return nil
}

// begin starts the load and the counting.
func (r *routed) begin() {
	r.t.Helper()
	r.begun = r.count()
	r.load = startLoad(r.t, r.from, r.streams...)
}

// count reads the counters of interface to-a. It closes the data plane each time, since it is called many times.
func (r *routed) count() tally {
	r.t.Helper()
	var here []*datapath.Instance
	check(r.t, r.lab.Do("rut", func() (err error) {
		here, err = datapath.ListHere()
		return err
	}))
	if len(here) != 1 {
		r.t.Fatalf("%d data planes in rut, want one", len(here))
	}
	defer here[0].Close()
	return count(r.t, here[0], "to-a")
}

// rises waits until a counter has risen by more than 1000.
func (r *routed) rises(counter string) {
	r.t.Helper()
	before := r.count()[counter]
	wait(r.t, counter+" to rise", func() bool { return r.count()[counter] > before+1000 })
}

// still checks that a counter does not change while packets flow.
func (r *routed) still(counter string) {
	r.t.Helper()
	before := r.count()[counter]
	r.load.wait(200)
	if after := r.count()[counter]; after != before {
		r.t.Errorf("%s has moved by %d", counter, after-before)
	}
}

// finish ends the load. It checks that each packet has arrived once, and that all were counted under the given reasons.
func (r *routed) finish(reasons ...string) {
	r.t.Helper()
	r.load.stop()
	settled(r.t, r.sink)
	var sent, counted uint64
	for _, s := range r.streams {
		s.wantAll(r.t, r.sink)
		sent += s.sent.Load()
	}
	moved := r.count().since(r.begun)
	for _, reason := range reasons {
		counted += moved[reason]
	}
	// The kernel's own packets, such as neighbor discovery, are counted too.
	if counted < sent || counted > sent+100 || moved.lost() != 0 {
		r.t.Errorf("counters moved by %v, want %d under %q", moved, sent, reasons)
	}
	r.t.Log(moved)
}

// routeCheck checks that the mirror agrees with the kernel's tables.
func routeCheck(t *testing.T, l *lab.Lab) {
	t.Helper()
	if out := whileCurrent(t, l, "check"); strings.Count(out, "no differences") != 2 {
		t.Errorf("route check says\n%s", out)
	}
}

// routeGet returns the output of 'culvert route get' for an address.
func routeGet(t *testing.T, l *lab.Lab, addr string) string {
	t.Helper()
	return whileCurrent(t, l, "get", addr)
}

// whileCurrent runs a command of culvert route. On a busy machine the mirror may not be current for a moment.
func whileCurrent(t *testing.T, l *lab.Lab, args ...string) string {
	t.Helper()
	var out []byte
	var err error
	wait(t, "the mirror to be current", func() bool {
		out, err = l.Run(t.Context(), "rut", append([]string{program(), "route"}, args...)...)
		return !strings.Contains(string(out), "the mirror is not current")
	})
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return string(out)
}

// newPort gives the router an interface to b with a network of its own, 198.18.N.0/24; its far end is called far-NAME.
func (r *routed) newPort(name string, network int) {
	r.t.Helper()
	b, err := r.lab.Namespace("b")
	check(r.t, err)
	far := "far-" + name
	r.ip("link", "add", name, "type", "veth", "peer", "name", far, "netns", b.NetNS)
	r.ip("addr", "add", fmt.Sprintf("198.18.%d.1/24", network), "dev", name)
	r.ip("link", "set", name, "up")
	check(r.t, r.lab.Do("b", func() error {
		link, err := netlink.LinkByName(far)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
		// A veth without GRO or an XDP program drops frames that XDP redirects to its peer.
		_, err = netdev.Ethtool(far, unix.ETHTOOL_SGRO, 1)
		return err
	}))
	// No host answers there. The far end counts all packets.
	r.ip("neigh", "add", fmt.Sprintf("198.18.%d.2", network), "lladdr", "02:00:00:00:00:09", "dev", name, "nud", "permanent")
}
