// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/host/cpus"
	"culvert/internal/lb/lbplane"
	"culvert/internal/route/routeplane"
	"culvert/internal/scion/scionplane"
	"culvert/internal/testbed"
)

// ipBed is an IP router and a load balancer on v0 and v2. Frames are sent by v1, the peer of v0. What is forwarded comes out of v3.
type ipBed struct {
	inst    *datapath.Instance
	fwd, up tap // of v3 and v0
	fd      int // sends by v1
	v1      int
}

var ipHop = net.HardwareAddr{2, 0, 0, 0, 0, 9}

func newIPBed(t *testing.T, w datapath.Workers, generic bool) *ipBed {
	t.Helper()
	in, out := testbed.AddVeth(t, "v0", "v1"), testbed.AddVeth(t, "v2", "v3")
	in.HardwareAddr, out.HardwareAddr = mixInMAC, mixOutMAC
	testbed.SetMAC(t, in)
	testbed.SetMAC(t, out)
	testbed.AttachForeign(t, "v3")
	for _, dev := range []string{"all", "v0", "v2"} {
		testbed.Sysctl(t, "ipv4/conf/"+dev+"/forwarding", "1")
		testbed.Sysctl(t, "ipv4/conf/"+dev+"/rp_filter", "0")
		testbed.Sysctl(t, "ipv6/conf/"+dev+"/disable_ipv6", "0")
		testbed.Sysctl(t, "ipv6/conf/"+dev+"/forwarding", "1")
	}
	for _, dev := range []string{"v1", "v3"} {
		testbed.Sysctl(t, "ipv6/conf/"+dev+"/disable_ipv6", "1")
	}
	for _, cmd := range []string{
		"addr add 10.1.0.1/24 dev v0", "addr add 10.2.0.1/24 dev v2",
		"addr add fd01::1/64 dev v0 nodad", "addr add fd02::1/64 dev v2 nodad",
		"neigh replace 10.2.0.9 lladdr 02:00:00:00:00:09 dev v2 nud permanent",
		"neigh replace fd02::9 lladdr 02:00:00:00:00:09 dev v2 nud permanent",
		"neigh replace 10.1.0.2 lladdr 02:00:00:00:00:08 dev v0 nud permanent",
		"route add 198.18.0.0/24 via 10.2.0.9", "route add 2001:db8::/32 via fd02::9",
	} {
		testbed.IP(t, cmd)
	}
	inst, err := datapath.Attach(datapath.Options{
		Name: "ip1", Interfaces: []string{"v0", "v2"}, Workers: w, Generic: generic,
		Parts: []datapath.Part{
			routeplane.NewPart(routeplane.Options{NoMirror: true}),
			lbplane.NewPart(lbplane.Options{RingSize: 17}),
		},
		Begin: func(inst *datapath.Instance) error { return errors.Join(ipDevs(inst, in, out), ipVIPs(inst, out)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &ipBed{inst: inst, fwd: addTap(t, testbed.Device(t, "v3")), up: addTap(t, in), v1: testbed.Device(t, "v1").Index}
	// The kernel of the router sends multicasts of its own.
	b.fwd.other = func(frame []byte) bool { return frame[0]&1 != 0 }
	if b.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(b.fd); b.close(t) })
	return b
}

// close ends the data plane. It may be called again.
func (b *ipBed) close(t *testing.T) {
	if b.inst == nil {
		return
	}
	if err := b.inst.DetachAll(); err != nil {
		t.Error(err)
	}
	b.inst.Close()
	b.inst = nil
}

func ipDevs(inst *datapath.Instance, devs ...*net.Interface) error {
	p, err := routeplane.Open(inst)
	if err != nil {
		return err
	}
	defer p.Close()
	for _, dev := range devs {
		err = errors.Join(err, p.SetDev(dev.Index, routeplane.Dev{
			Port: dev.Index, MAC: [6]byte(dev.HardwareAddr), Forward4: true, Forward6: true, Xmit: true,
		}))
	}
	return err
}

// ipVIPs adds 203.0.113.1 and 2001:db8:1::1, ports 80 of TCP and 53 of UDP, with a backend behind out.
func ipVIPs(inst *datapath.Instance, out *net.Interface) error {
	p, err := lbplane.View(inst)
	if err != nil {
		return err
	}
	for n, vip := range []lbplane.VIPKey{
		{Addr: netip.MustParseAddr("203.0.113.1"), Proto: unix.IPPROTO_UDP, Port: 53},
		{Addr: netip.MustParseAddr("2001:db8:1::1"), Proto: unix.IPPROTO_TCP, Port: 80},
	} {
		backend := lbplane.Backend{
			ID: lbplane.NewBackendID(uint32(n+1), 1), VIP: uint32(n), Addr: netip.MustParseAddr("10.2.0.9"), Encap: lbplane.IPIP, Used: true,
			Hop:    lbplane.Hop{Port: out.Index, SrcMAC: [6]byte(out.HardwareAddr), DstMAC: [6]byte(ipHop), MTU: 1500},
			Source: netip.MustParsePrefix("10.200.0.0/16"),
		}
		ring := slices.Repeat([]lbplane.BackendID{backend.ID}, 17)
		err = errors.Join(err, p.SetBackend(backend), p.SetRing(uint32(n), ring), p.SetVIP(vip, lbplane.VIP{Number: uint32(n)}))
	}
	return err
}

// Kinds of flows: what becomes of flow n follows from n%ipKinds.
const (
	ipUDP4 = iota
	ipTCP4
	ipUDP6
	ipPing
	ipVIP4
	ipVIP6
	ipVIPFragments // every packet is three fragments
	ipTTL          // the kernel gets it from a worker
	ipLocal        // for this host: it stays
	ipTagged       // of a VLAN that this host does not have: the kernel gets it from a worker
	ipOptions      // it stays
	ipKinds
)

// ipPasses are the kinds that the kernel gets, ipStays those that no worker gets.
var (
	ipPasses = map[int]bool{ipTTL: true, ipLocal: true, ipTagged: true, ipOptions: true}
	ipStays  = map[int]bool{ipLocal: true, ipOptions: true}
)

const (
	ipFlows   = 6 * ipKinds
	ipPackets = 12 // of each flow
)

// ipFrames returns the frames of one packet of a flow.
func ipFrames(t *testing.T, flow, n int) (frames [][]byte) {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 8}, DstMAC: mixInMAC, EthernetType: layers.EthernetTypeIPv4}
	kind := flow % ipKinds
	ip4 := &layers.IPv4{
		Version: 4, IHL: 5, TTL: 64, Id: uint16(n), Protocol: layers.IPProtocolUDP, SrcIP: net.IPv4(10, 1, 0, byte(2+flow)), DstIP: net.IPv4(198, 18, 0, byte(flow)),
	}
	ip6 := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: net.ParseIP(fmt.Sprintf("2001:db8:7::%x", flow+1)), DstIP: net.ParseIP("2001:db8:1::1")}
	udp, tcp := &layers.UDP{SrcPort: layers.UDPPort(1000 + flow), DstPort: 4000}, &layers.TCP{SrcPort: layers.TCPPort(1000 + flow), DstPort: 80, ACK: true}
	var network interface {
		gopacket.NetworkLayer
		gopacket.SerializableLayer
	} = ip4
	var transport gopacket.SerializableLayer = udp
	switch kind {
	case ipTCP4:
		ip4.Protocol, transport = layers.IPProtocolTCP, tcp
	case ipUDP6:
		ip6.NextHeader, ip6.DstIP, network = layers.IPProtocolUDP, net.ParseIP("2001:db8:2::1"), ip6
	case ipPing:
		ip4.Protocol = layers.IPProtocolICMPv4
		transport = &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: uint16(flow)}
	case ipVIP4, ipVIPFragments:
		udp.DstPort, ip4.DstIP = 53, net.IPv4(203, 0, 113, 1)
	case ipVIP6:
		network, transport = ip6, tcp
	case ipTTL:
		ip4.TTL = 1
	case ipLocal:
		ip4.DstIP = net.IPv4(10, 1, 0, 1)
	case ipOptions:
		ip4.TTL = 1 // or else the kernel forwards it
		ip4.Options = []layers.IPv4Option{{OptionType: 1}, {OptionType: 1}, {OptionType: 1}, {OptionType: 1}}
	}
	all := []gopacket.SerializableLayer{eth}
	if network == ip6 {
		eth.EthernetType = layers.EthernetTypeIPv6
	}
	if kind == ipTagged {
		all = append(all, &layers.Dot1Q{VLANIdentifier: 30, Type: eth.EthernetType})
		eth.EthernetType = layers.EthernetTypeDot1Q
	}
	tag := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(flow)), uint32(n))
	payload := append(make([]byte, 20+(n*37+flow*11)%200), tag...) // without padding
	if kind == ipVIPFragments {
		payload = slices.Concat(make([]byte, 40-8), tag, make([]byte, 40), tag, make([]byte, 24), tag) // each ends with the tag, after 40, 48 and 32 bytes
	}
	if err := errors.Join(udp.SetNetworkLayerForChecksum(network), tcp.SetNetworkLayerForChecksum(network)); err != nil {
		t.Fatal(err)
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, append(all, network, transport, gopacket.Payload(payload))...); err != nil {
		t.Fatal(err)
	}
	if kind != ipVIPFragments {
		return [][]byte{buf.Bytes()}
	}
	for at, rest := 0, buf.Bytes()[34:]; len(rest) > 0; {
		part := rest[:min(48, len(rest))]
		rest = rest[len(part):]
		f := append(slices.Clone(buf.Bytes()[:34]), part...)
		binary.BigEndian.PutUint16(f[16:], uint16(20+len(part)))
		binary.BigEndian.PutUint16(f[20:], uint16(at/8)|uint16(bpfobj.Flag(len(rest) > 0))<<13)
		testbed.SetIPv4ID(f[14:34], uint16(n*ipFlows+flow))
		frames = append(frames, f)
		at += len(part)
	}
	return frames
}

// onCPU pins the calling goroutine until the end of the test, so that a veth receives there what it sends.
func onCPU(t *testing.T, cpu int) {
	t.Helper()
	runtime.LockOSThread()
	var before, one unix.CPUSet
	one.Set(cpu)
	if err := errors.Join(unix.SchedGetaffinity(0, &before), unix.SchedSetaffinity(0, &one)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.SchedSetaffinity(0, &before); runtime.UnlockOSThread() })
}

func ipFlowOf(frame []byte) int { return int(binary.BigEndian.Uint32(frame[len(frame)-flowTag:])) }

// run sends the frames, and returns what became of them and how many were given to workers.
func (b *ipBed) run(t *testing.T, frames [][]byte) (o outcome, enqueued uint64) {
	t.Helper()
	var got, gotUp []string
	for batch := range slices.Chunk(frames, 64) {
		want := 0
		for _, f := range batch {
			if err := unix.Sendto(b.fd, f, 0, &unix.SockaddrLinklayer{Ifindex: b.v1}); err != nil {
				t.Fatal(err)
			}
			if !ipPasses[ipFlowOf(f)%ipKinds] {
				want++
			}
		}
		got = append(got, b.fwd.take(t, want)...)
		gotUp = append(gotUp, b.up.take(t, len(batch)-want)...)
	}
	b.fwd.empty(t)
	b.up.empty(t)
	for n, f := range got {
		// The source address of the outer header has a random key.
		if kind := ipFlowOf([]byte(f)) % ipKinds; kind == ipVIP4 || kind == ipVIP6 || kind == ipVIPFragments {
			got[n] = f[:14] + f[34:]
		}
	}
	o.forwarded, o.passed = byFlow(got), byFlow(gotUp)
	port, reasons, total := testbed.Counted(t, b.inst, "v0")
	if total != uint64(len(frames)) {
		t.Errorf("%d packets sent, counted %d: %v", len(frames), total, reasons)
	}
	for name, n := range port.Losses {
		if n > 0 {
			t.Errorf("%d packets lost: %s", n, name)
		}
	}
	o.reasons, o.on = reasons, make(map[int]uint64)
	for _, c := range port.CPUs {
		o.on[c.CPU] = c.Packets
	}
	by, err := b.inst.Enqueued()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range by {
		enqueued += n
	}
	return o, enqueued
}

// TestWorkersSpreadIP sends packets to an IP router and a load balancer through no, one and two workers. What becomes of them and why is
// the same, each flow keeps its order, fragments included, and workers get what the router may forward, and only that.
func TestWorkersSpreadIP(t *testing.T) {
	testbed.InNamespace(t)
	two := online(t)
	var frames [][]byte
	sent, stay, tagged := 0, 0, 0
	for n := range ipPackets {
		for flow := range ipFlows {
			all := ipFrames(t, flow, n)
			frames, sent = append(frames, all...), sent+len(all)
			switch {
			case ipStays[flow%ipKinds]:
				stay += len(all)
			case flow%ipKinds == ipTagged:
				tagged += len(all)
			}
		}
	}
	onCPU(t, two[0])
	// Not in tests of their own, which would run on threads in another namespace.
	for _, generic := range []bool{false, true} {
		if generic {
			stay += tagged
		}
		direct := spreadIP(t, frames, nil, generic)
		if len(direct.forwarded) != ipFlows/ipKinds*(ipKinds-len(ipPasses)) || direct.enqueued > 0 {
			t.Fatalf("%d flows were forwarded, %d packets enqueued: %v", len(direct.forwarded), direct.enqueued, direct.reasons)
		}
		for _, list := range [][]int{two[1:], two} {
			t.Logf("generic %v, workers on %v", generic, list)
			o := spreadIP(t, frames, list, generic)
			compareFlows(t, "forwarded", o.forwarded, direct.forwarded)
			compareFlows(t, "passed up", o.passed, direct.passed)
			if !maps.Equal(o.reasons, direct.reasons) {
				t.Errorf("counted %v, without workers %v", o.reasons, direct.reasons)
			}
			switch {
			case len(list) == 1 && (o.enqueued != uint64(sent-stay) || o.on[two[0]] != uint64(stay)):
				t.Errorf("of %d packets, of which %d stay, workers were given %d: %v", sent, stay, o.enqueued, o.on)
			// The key is random: a tenth for a CPU is 4.5 standard deviations from half of what moves.
			case len(list) == 2 && (o.on[two[0]] < uint64(sent/10) || o.on[two[1]] < uint64(sent/10)):
				t.Errorf("%d packets were given to workers, by CPU %v", o.enqueued, o.on)
			}
		}
	}
}

// spread is an outcome, and how many packets were given to workers.
type spread struct {
	outcome
	enqueued uint64
}

// spreadIP sends frames through a new data plane.
func spreadIP(t *testing.T, frames [][]byte, workers []int, generic bool) (s spread) {
	t.Helper()
	b := newIPBed(t, datapath.Workers{CPUs: workers}, generic)
	s.outcome, s.enqueued = b.run(t, frames)
	b.close(t)
	testbed.DeleteDevice(t, "v0")
	testbed.DeleteDevice(t, "v2")
	return s
}

// TestWorkersFinishChecksums sends from sockets whose checksums are left to the card, so that the veth has them unfinished. The kernel of the
// router has to accept what workers give it. It takes a whole network for its own, so workers get the packets.
func TestWorkersFinishChecksums(t *testing.T) {
	testbed.InNamespace(t)
	list, err := cpus.Online()
	if err != nil {
		t.Fatal(err)
	}
	b := newIPBed(t, datapath.Workers{CPUs: list[:1]}, false)
	// As if another CPU had fed the worker before. Then no packet skips the queue, not even on a machine with one CPU.
	if err := b.inst.Map(bpfobj.PipelineMapWorkerFed).Put(uint32(0), uint32(1)); err != nil {
		t.Fatal(err)
	}
	testbed.IP(t, "link set lo up")
	testbed.Sysctl(t, "ipv6/ip_nonlocal_bind", "1")
	testbed.IP(t, "route add local 198.51.100.0/24 dev lo")
	testbed.IP(t, "-6 route add local fd99::/64 dev lo")
	testbed.IP(t, "neigh del 10.1.0.2 dev v0")
	client := testbed.NewNamespace(t)
	client.Take(t, "v1")
	client.Must(t, func() error {
		if err := testbed.WriteSysctl("ipv6/conf/v1/disable_ipv6", "0"); err != nil {
			return err
		}
		l, err := netlink.LinkByName("v1")
		for _, text := range []string{"10.1.0.2/24", "fd01::2/64"} {
			addr, aerr := netlink.ParseAddr(text)
			if err == nil {
				addr.Flags = unix.IFA_F_NODAD
				err = errors.Join(aerr, netlink.AddrAdd(l, addr))
			}
		}
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return err
		}
		return errors.Join(testbed.AddRoute("198.51.100.0/24", "10.1.0.1"), testbed.AddRoute("fd99::/64", "fd01::1"))
	})
	for _, host := range []string{"198.51.100.7", "fd99::7"} {
		before := b.enqueued(t)
		if got := talk(t, client, host, make([]byte, 300_000)); got != 300_000 {
			t.Errorf("%s: %d bytes came over TCP", host, got)
		}
		for _, n := range []int{1, 63, 64, 65, 1400} {
			if got := datagram(t, client, host, n); got != n {
				t.Errorf("%s: a datagram of %d bytes came with %d", host, n, got)
			}
		}
		if n := b.enqueued(t) - before; n < 50 {
			t.Errorf("%s: workers have got %d packets", host, n)
		}
	}
}

func (b *ipBed) enqueued(t *testing.T) (sum uint64) {
	t.Helper()
	by, err := b.inst.Enqueued()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range by {
		sum += n
	}
	return sum
}

// talk sends data over TCP from another namespace, and returns how much came.
func talk(t *testing.T, client *testbed.Namespace, host string, data []byte) (got int) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan int, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			done <- 0
			return
		}
		defer c.Close()
		n, _ := io.Copy(io.Discard, c)
		done <- int(n)
	}()
	client.Must(t, func() error {
		c, err := net.DialTimeout("tcp", l.Addr().String(), testbed.Patience)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(data)
		return err
	})
	return <-done
}

// datagram sends a datagram of n bytes from another namespace until one arrives, and returns its length.
func datagram(t *testing.T, client *testbed.Namespace, host string, n int) int {
	t.Helper()
	p, err := net.ListenPacket("udp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	client.Must(t, func() error {
		c, err := net.Dial("udp", p.LocalAddr().String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(make([]byte, n))
		return err
	})
	buf := make([]byte, 2000)
	_ = p.SetReadDeadline(time.Now().Add(testbed.Patience))
	got, _, err := p.ReadFrom(buf)
	if err != nil {
		t.Errorf("%s: a datagram of %d bytes: %v", host, n, err)
	}
	return got
}

// TestWorkersLeaveTagsAlone wants packets to stay that come in by a card that takes tags off, whose mark the engine has set.
func TestWorkersLeaveTagsAlone(t *testing.T) {
	testbed.InNamespace(t)
	two := online(t)
	onCPU(t, two[0])
	b := newIPBed(t, datapath.Workers{CPUs: two[1:]}, false)
	frame := ipFrames(t, ipUDP4, 0)[0]
	in := testbed.Device(t, "v0").Index
	for _, stays := range []bool{false, true} {
		err := b.inst.EditPort(in, func(p bpfobj.PipelinePort) ([]bpfobj.PipelinePort, error) {
			p.Spread &^= datapath.PortStays
			if stays {
				p.Spread |= datapath.PortStays
			}
			return []bpfobj.PipelinePort{p}, nil
		})
		if err != nil || b.inst.Stays(in) != stays {
			t.Fatalf("it stays: %v, %v", b.inst.Stays(in), err)
		}
		before := b.enqueued(t)
		if err := unix.Sendto(b.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: b.v1}); err != nil {
			t.Fatal(err)
		}
		b.fwd.take(t, 1)
		if got := b.enqueued(t) - before; got != uint64(1-bpfobj.Flag(stays)) {
			t.Errorf("tags are taken off %v: %d packets enqueued", stays, got)
		}
	}
}

// TestWorkersInGenericMode wants all packets to be forwarded in generic mode: through the worker on a kernel that runs its program on each
// of them, and on the CPU that receives them on one that does not. The sender has a priority with which the worker on the same CPU waits
// for it, so that there are batches.
func TestWorkersInGenericMode(t *testing.T) {
	testbed.InNamespace(t)
	list, err := cpus.Online()
	if err != nil {
		t.Fatal(err)
	}
	onCPU(t, list[0])
	var frames [][]byte
	for n := range ipPackets {
		frames = append(frames, ipFrames(t, ipUDP4, n)...)
	}
	for _, whole := range []bool{datapath.RunsWholeBatches(), false} {
		datapath.SetRunsWholeBatches(t, whole)
		b := newIPBed(t, datapath.Workers{CPUs: list[:1]}, true)
		// As if another CPU had fed the worker before, so that no packet skips the queue, not even on a machine with one CPU.
		if err := b.inst.Map(bpfobj.PipelineMapWorkerFed).Put(uint32(0), uint32(1)); err != nil {
			t.Fatal(err)
		}
		schedule(t, unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1})
		for range 10 {
			for _, frame := range frames {
				if err := unix.Sendto(b.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: b.v1}); err != nil {
					t.Fatal(err)
				}
			}
		}
		schedule(t, unix.SchedAttr{Policy: unix.SCHED_NORMAL})
		sent := 10 * len(frames)
		b.fwd.take(t, sent)
		// The kernel would forward as well what it gets past the program.
		if got := forwardedOn(t, scionplane.Of(b.inst), "v0")[list[0]]; got != uint64(sent) {
			t.Errorf("the kernel runs the program on whole batches: %v; of %d packets, the program has forwarded %d", whole, sent, got)
		}
		if got := b.enqueued(t); got != uint64(sent)*uint64(bpfobj.Flag(whole)) {
			t.Errorf("the kernel runs the program on whole batches: %v; of %d packets, workers were given %d", whole, sent, got)
		}
		if spread := b.inst.Spread(); spread["v0"] != whole {
			t.Errorf("the kernel runs the program on whole batches: %v; workers get packets: %v", whole, spread)
		}
		b.close(t)
		testbed.DeleteDevice(t, "v0")
		testbed.DeleteDevice(t, "v2")
	}
}

// schedule sets how the kernel schedules the calling thread.
func schedule(t *testing.T, how unix.SchedAttr) {
	t.Helper()
	how.Size = unix.SizeofSchedAttr
	if err := unix.SchedSetAttr(0, &how, 0); err != nil {
		t.Fatal(err)
	}
}
