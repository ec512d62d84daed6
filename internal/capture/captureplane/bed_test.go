// SPDX-License-Identifier: Apache-2.0

package captureplane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/perf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/filter/cbpf"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/pcap"
	"culvert/internal/host/netdev"
	"culvert/internal/route/routeplane"
	"culvert/internal/scion/scionpkt"
	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// bedName is the name of the data plane.
const bedName = "router"

// all matches all frames.
var all = cbpf.Program{{Op: 0x6, K: 1}}

func others() []datapath.Fronted { return []datapath.Fronted{filterplane.NewPart()} }

// bed is an IP router and a SCION router with a filter in this network namespace, with the interfaces west and east. Their peers are in another one. Frames
// are sent by the peer of west. The routers forward to a neighbor on east, whose frames arrive at the peer of east.
type bed struct {
	t          *testing.T
	inst       *datapath.Instance
	west, east *net.Interface
	peer       *testbed.Namespace
	from, to   int // packet sockets on the peers of west and east
	westPeer   *net.Interface
	enqueued   int // packets that join has seen to be enqueued for a worker
}

// newBed attaches with workers on the given CPUs.
func newBed(t *testing.T, workers ...int) *bed {
	t.Helper()
	testbed.InNamespace(t)
	b := &bed{t: t, peer: testbed.NewNamespace(t)}
	b.west, b.east = testbed.AddVeth(t, "west", "westp"), testbed.AddVeth(t, "east", "eastp")
	for _, which := range []string{"all", "default", "west", "east"} {
		testbed.Sysctl(t, "ipv4/conf/"+which+"/forwarding", "1")
		testbed.Sysctl(t, "ipv4/conf/"+which+"/rp_filter", "0")
	}
	b.westPeer = testbed.Device(t, "westp")
	eastPeer := testbed.Device(t, "eastp")
	b.peer.Take(t, "westp")
	b.peer.Take(t, "eastp")
	b.peer.Must(t, func() (err error) {
		for _, name := range []string{"westp", "eastp"} {
			if err := testbed.WriteSysctl("ipv6/conf/"+name+"/disable_ipv6", "1"); err != nil {
				return err
			}
			l, err := netlink.LinkByName(name)
			if err == nil {
				err = netlink.LinkSetMTU(l, 9000)
			}
			if err == nil {
				err = netlink.LinkSetUp(l)
			}
			if err != nil {
				return err
			}
		}
		if _, err := netdev.Ethtool("eastp", unix.ETHTOOL_SGRO, 1); err != nil { // so that redirected frames arrive
			return err
		}
		b.from, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		const kinds = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00
		b.to, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, kinds)
		if err != nil {
			return err
		}
		if err := unix.SetsockoptTimeval(b.to, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(testbed.Patience / time.Second)}); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(b.to, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
			return err
		}
		return unix.Bind(b.to, &unix.SockaddrLinklayer{Ifindex: eastPeer.Index, Protocol: kinds})
	})
	t.Cleanup(func() { unix.Close(b.from); unix.Close(b.to) })
	for _, cmd := range []string{
		"link set west mtu 9000", "link set east mtu 9000",
		"addr add 10.1.0.1/24 dev west", "addr add 10.2.0.1/24 dev east",
		"neigh replace 10.2.0.9 lladdr 02:00:00:00:00:09 dev east nud permanent",
		"neigh replace 10.1.0.2 lladdr 02:00:00:00:00:01 dev west nud permanent",
		"route add 192.0.2.0/24 via 10.2.0.9", "route add blackhole 198.51.100.0/24",
	} {
		testbed.IP(t, cmd)
	}
	b.untilUp("west", "east")
	b.attach(workers...)
	t.Cleanup(func() { _ = b.inst.DetachAll(); b.inst.Close() })
	return b
}

// untilUp waits until the kernel says that interfaces are up. Before that it loses frames.
func (b *bed) untilUp(names ...string) {
	b.t.Helper()
	for _, name := range names {
		b.await(name+" is up", func() bool {
			l, err := netlink.LinkByName(name)
			b.must(err)
			return l.Attrs().OperState == netlink.OperUp
		})
	}
}

// attach makes a new generation of the data plane.
func (b *bed) attach(workers ...int) {
	b.t.Helper()
	if b.inst != nil {
		b.inst.Close()
	}
	inst, err := datapath.Attach(datapath.Options{
		Name: bedName, Interfaces: []string{"west", "east"}, Workers: datapath.Workers{CPUs: workers},
		Parts: append(scionbed.Parts(scionbed.Config(1, 2)), filterplane.NewPart(), routeplane.NewPart(routeplane.Options{NoMirror: true})),
		Begin: b.setDevs,
	})
	b.must(err)
	if b.inst == nil {
		scionbed.Open(b.t, scionplane.Of(inst), b.east)
	}
	b.inst = inst
}

// flows returns packets of several flows of IP and of SCION. Those of SCION go to workers, some of them to another CPU than the one that
// receives them. By chance they do not once in eight million times.
func (b *bed) flows() (frames [][]byte) {
	random := rand.New(rand.NewPCG(1, 2)) // numbers that follow each other may have the same CPU
	for n := range 24 {
		frames = append(frames, b.packet("192.0.2.5", 64, 2000+n, 20),
			scionbed.SizedTransitFrame(b.t, b.west, scionbed.Key, 64, func(s *scionpkt.Spec) { s.FlowID = random.Uint32N(1 << 20) }))
	}
	return frames
}

// forwardable returns how much data a packet to be forwarded has, that should have so much: less if the kernel redirects no frames
// of several buffers.
func (b *bed) forwardable(data int) int {
	b.t.Helper()
	xdp, err := netdev.Open(netdev.XDPFamily)
	if err == nil {
		defer xdp.Close()
	}
	if xdp.Egress(b.east.Index, false).LinearOnly {
		return min(data, 3000)
	}
	return data
}

// setDevs says which packets are the router's.
func (b *bed) setDevs(inst *datapath.Instance) error {
	p, err := routeplane.Open(inst)
	if err != nil {
		return err
	}
	defer p.Close()
	for _, dev := range []*net.Interface{b.east, b.west} { // the way out is there before packets come
		err := p.SetDev(dev.Index, routeplane.Dev{Port: dev.Index, MAC: [6]byte(dev.HardwareAddr), Forward4: true, Xmit: true})
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) await(what string, until func() bool) {
	b.t.Helper()
	for end := time.Now().Add(testbed.Patience); !until(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("it does not come true: %s", what)
		}
	}
}

// drops makes the filter drop what an expression matches.
func (b *bed) drops(expression string) {
	b.t.Helper()
	code, err := pcap.Compile(expression)
	b.must(err)
	b.must(filterplane.Edit(b.inst, func(f *filterplane.Filter) error {
		f.Rules = []filterplane.Rule{{Name: "no", Action: filterplane.Drop, Code: code}}
		return nil
	}))
}

// packet returns a UDP packet for the router, from west.
func (b *bed) packet(dst string, ttl uint8, port, payload int) []byte {
	b.t.Helper()
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: b.west.HardwareAddr, EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{
		Version: 4, TTL: ttl, Protocol: layers.IPProtocolUDP, SrcIP: net.IPv4(10, 1, 0, 2), DstIP: net.ParseIP(dst), Flags: layers.IPv4DontFragment,
	}
	udp := &layers.UDP{SrcPort: 1000, DstPort: layers.UDPPort(port)}
	b.must(udp.SetNetworkLayerForChecksum(ip))
	buf := gopacket.NewSerializeBuffer()
	b.must(gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, udp,
		gopacket.Payload(bytes.Repeat([]byte("data"), payload/4))))
	return buf.Bytes()
}

// send sends a frame to west.
func (b *bed) send(frame []byte) {
	b.t.Helper()
	for {
		err := unix.Sendto(b.from, frame, 0, &unix.SockaddrLinklayer{Ifindex: b.westPeer.Index})
		if errors.Is(err, unix.EINTR) {
			continue
		}
		b.must(err)
		return
	}
}

// arrived returns the next frame that has been forwarded.
func (b *bed) arrived() []byte {
	b.t.Helper()
	buf := make([]byte, 10000)
	for {
		n, from, err := unix.Recvfrom(b.to, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		b.must(err)
		if from.(*unix.SockaddrLinklayer).Pkttype != unix.PACKET_OUTGOING && n > 14 && !bytes.Equal(buf[12:14], []byte{8, 6}) {
			return buf[:n]
		}
	}
}

// counted returns the packets that have come in by west, by "verdict reason", and all of them.
func (b *bed) counted() (map[string]uint64, uint64) {
	b.t.Helper()
	port, _, _ := testbed.Counted(b.t, b.inst, "west")
	by, total := make(map[string]uint64), uint64(0)
	for _, r := range port.Reasons {
		by[r.Outcome()+" "+r.Name] += r.Packets
		total += r.Packets
	}
	return by, total
}

// result is what has become of a frame.
type result struct {
	reason string // "drop filter": the counter that has moved
	out    string // the frame that has arrived, "" if none has
}

// run sends frames one after the other, and returns what has become of each.
func (b *bed) run(frames [][]byte) (results []result) {
	b.t.Helper()
	before, total := b.counted()
	for _, f := range frames {
		b.send(f)
		var r result
		b.await("the packet is counted", func() bool {
			after, n := b.counted()
			if n == total {
				return false
			}
			if n != total+1 {
				b.t.Fatalf("%d packets counted for one", n-total)
			}
			for reason, n := range after {
				if n != before[reason] {
					r.reason = reason
				}
			}
			before, total = after, n
			return true
		})
		if r.reason[:3] == "fwd" {
			r.out = string(b.arrived())
		}
		results = append(results, r)
	}
	return results
}

// record is a record of a capture.
type record struct {
	bpfobj.CaptureCaptureRecord
	data []byte
}

// reason returns the reason of a record as counters name it.
func (r record) reason() string {
	n, reasons := int(bpfobj.PipelineReason(r.Reason).Index()), datapath.Reasons()
	if n >= len(reasons) {
		return "limited " + reasons[n-len(reasons)].Name
	}
	return string(reasons[n].Verdict) + " " + reasons[n].Name
}

// start begins a capture of what an expression matches. It ends with the test.
func (b *bed) start(o Options, expression string) *Session {
	b.t.Helper()
	var err error
	o.Program, err = pcap.Compile(expression)
	b.must(err)
	inst, err := datapath.OpenHere(bedName) // as another process has it: b.inst may be replaced
	b.must(err)
	b.t.Cleanup(inst.Close)
	s, err := Start(inst, o, others(), 4<<20)
	b.must(err)
	b.t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			b.t.Error(err)
		}
	})
	return s
}

// read returns the records that are there, and waits until they are at least want. It wants none to be lost.
func (b *bed) read(s *Session, want int) []record { return b.records(s, want, false) }

// records is read, which returns under load as soon as there are as many as wanted.
func (b *bed) records(s *Session, want int, load bool) (all []record) {
	b.t.Helper()
	end := time.Now().Add(testbed.Patience)
	for !load || len(all) < want {
		s.Reader().SetDeadline(time.Now().Add(30 * time.Millisecond))
		var raw perf.Record
		err := s.Read(&raw)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if len(all) >= want {
				break
			}
			if time.Now().After(end) {
				b.t.Fatalf("%d records of %d", len(all), want)
			}
			continue
		}
		b.must(err)
		var r record
		size := int(unsafe.Sizeof(r.CaptureCaptureRecord))
		b.must(binary.Read(bytes.NewReader(raw.RawSample[:size]), binary.NativeEndian, &r.CaptureCaptureRecord))
		r.data = bytes.Clone(raw.RawSample[size:][:r.Shown])
		all = append(all, r)
	}
	if lost, err := s.Lost(); !load && (err != nil || lost != 0) {
		b.t.Errorf("%d records lost, %v", lost, err)
	}
	slices.SortStableFunc(all, func(a, b record) int { return int(int64(a.Time - b.Time)) })
	return all
}

// seen is what a capture shows of a packet. A record that is not there is nil.
type seen struct{ in, out *record }

// join brings the records of a packet together, and leaves out what a worker shows once more. It wants each record once.
func (b *bed) join(records []record) (packets []*seen) {
	b.t.Helper()
	byID := make(map[uint64]*seen)
	for _, r := range records {
		p := byID[r.Id]
		switch {
		case r.Kind == uint32(bpfobj.CaptureCaptureKindCAPTURE_ENQUEUED):
			if p == nil || p.out != nil {
				b.t.Fatalf("packet %#x is enqueued, and it is %+v", r.Id, p)
			}
			packets = slices.DeleteFunc(packets, func(q *seen) bool { return q == p })
			delete(byID, r.Id)
			b.enqueued++
			continue
		case p == nil:
			p = &seen{}
			packets, byID[r.Id] = append(packets, p), p
		}
		at := &p.in
		if r.Kind == uint32(bpfobj.CaptureCaptureKindCAPTURE_OUT) {
			at = &p.out
		}
		if *at != nil {
			b.t.Fatalf("a second record of kind %d of packet %#x", r.Kind, r.Id)
		}
		*at = &r
	}
	return packets
}

// programs returns the tags of the programs that west, east and the workers run, and the maps that those of west use.
func (b *bed) programs() (tags, maps []string) {
	b.t.Helper()
	tag := func(id uint32) string {
		p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id))
		b.must(err)
		defer p.Close()
		about, err := p.Info()
		b.must(err)
		ids, _ := about.MapIDs()
		for _, id := range ids {
			m, err := ebpf.NewMapFromID(id)
			b.must(err)
			about, err := m.Info()
			b.must(err)
			maps = append(maps, about.Name)
			m.Close()
		}
		return about.Name + " " + about.Tag
	}
	f, done, err := b.inst.Front("filter")
	b.must(err)
	defer done()
	if f.TailCall != nil {
		var behind uint32
		b.must(f.TailCall.Lookup(uint32(0), &behind))
		tags = append(tags, tag(behind))
	}
	tags = append(tags, tag(testbed.XDPProgram(b.t, "west")), tag(testbed.XDPProgram(b.t, "east")))
	for _, cpu := range b.inst.Workers().CPUs {
		var value struct{ Queue, Program uint32 }
		b.must(b.inst.Map(bpfobj.PipelineMapWorkerCpus).Lookup(uint32(cpu), &value))
		tags = append(tags, tag(value.Program))
	}
	slices.Sort(maps)
	return tags, slices.Compact(maps)
}

// plain wants the programs to be those that tags and tree were taken of, without a capture.
func (b *bed) plain(tags []string, tree string) {
	b.t.Helper()
	now, maps := b.programs()
	if !slices.Equal(now, tags) {
		b.t.Errorf("programs %v, want those without a capture %v", now, tags)
	}
	if slices.ContainsFunc(maps, func(m string) bool { return len(m) > 8 && m[:8] == "capture_" }) {
		b.t.Errorf("maps of a capture are left: %v", maps)
	}
	if got := testbed.Tree(b.t); len(got) != len(tree) {
		b.t.Errorf("pins\n%swant as many as\n%s", got, tree)
	}
}

// dot1Q puts a tag into a frame.
func dot1Q(frame []byte, vlan byte) []byte {
	return slices.Insert(slices.Clone(frame), 12, 0x81, 0, 0, vlan)
}
