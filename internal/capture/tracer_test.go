// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"culvert/internal/capture/trace"
	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/pcap"
	"culvert/internal/host/netdev"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/route/routeplane"
	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/show/usage"
	"culvert/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// traceBed is a data plane with all stages on in0 and out0.
type traceBed struct {
	t      *testing.T
	inst   *datapath.Instance
	in     *net.Interface
	tracer *tracer
}

func newTraceBed(t *testing.T) *traceBed {
	testbed.InNamespace(t)
	b := &traceBed{t: t, in: testbed.AddVeth(t, "in0", "in0p")}
	out := testbed.AddVeth(t, "out0", "out0p")
	testbed.Sysctl(t, "ipv4/ip_forward", "1")
	// A veth accepts redirected frames only while its peer has NAPI on.
	_, err := netdev.Ethtool("out0p", unix.ETHTOOL_SGRO, 1)
	must(t, err)
	for _, args := range []string{
		"link set lo up", "addr add 198.51.100.1/24 dev in0", "addr add 198.18.0.1/24 dev out0",
		"neigh replace 198.18.0.2 lladdr 02:00:00:00:00:02 dev out0 nud permanent", "route add 203.0.113.0/24 via 198.18.0.2",
	} {
		testbed.IP(t, args)
	}
	inst, err := datapath.Attach(datapath.Options{Name: "all", Interfaces: []string{"in0", "out0"}, Parts: []datapath.Part{
		filterplane.NewPart(), lbplane.NewPart(lbplane.Options{RingSize: 251, Flows: 1000}), scionplane.NewPart(scionbed.Config(1, 2)),
		routeplane.NewPart(routeplane.Options{NoMirror: true}),
	}})
	must(t, err)
	t.Cleanup(func() {
		if err := inst.DetachAll(); err != nil {
			t.Error(err)
		}
		inst.Close()
	})
	b.inst = inst
	scionbed.Open(t, scionplane.Of(inst), out)
	code, err := pcap.Compile("udp dst port 9")
	must(t, err)
	must(t, filterplane.Edit(inst, func(f *filterplane.Filter) error {
		f.Rules = []filterplane.Rule{{Name: "discard", Action: filterplane.Drop, Expr: "udp dst port 9", Code: code}}
		return nil
	}))
	must(t, lb.Edit(inst, func(s *lb.State) error {
		s.Source4, s.Source6 = netip.MustParsePrefix("10.200.0.0/16"), netip.MustParsePrefix("fd00:200::/64")
		service, err := lb.ParseService("192.0.2.1:80/udp")
		s.VIPs = []lb.VIP{{
			Service: service, Hash: lb.HashFlow, OnFailure: lb.FailKeep, Encap: lb.EncapIPIP,
			Backends: []lb.Backend{{Addr: netip.MustParseAddr("198.18.0.2"), Encap: lb.EncapIPIP, Weight: 1}},
		}}
		return err
	}))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if missing, err := lb.Resolve(ctx, inst); err != nil || len(missing) > 0 {
		t.Fatalf("no next hop to %v: %v", missing, err)
	}
	router, err := routeplane.Open(inst)
	must(t, err)
	defer router.Close()
	for _, dev := range []*net.Interface{b.in, out} {
		must(t, router.SetDev(dev.Index, routeplane.Dev{Port: dev.Index, MAC: [6]byte(dev.HardwareAddr), Forward4: true, Xmit: true}))
	}
	b.tracer = newTracer(inst.Now, interfaceNames())
	t.Cleanup(b.tracer.close)
	return b
}

// packet runs a frame through the programs, and returns the packet as a capture has it.
func (b *traceBed) packet(frame []byte) *Packet {
	b.t.Helper()
	_, before, _ := testbed.Counted(b.t, b.inst, b.in.Name)
	testbed.Feed(b.t, b.inst, frame, b.in.Name, 1)
	p := &Packet{In: &Frame{Time: time.Now(), Interface: b.in.Index, Length: len(frame), Data: frame}}
	_, after, _ := testbed.Counted(b.t, b.inst, b.in.Name)
	for _, r := range datapath.Reasons() {
		if name := string(r.Verdict) + " " + r.Name; r.Name != "" && after[name] != before[name] {
			p.Reason = r
		}
	}
	return p
}

// udp builds a frame.
func (b *traceBed) udp(to string) []byte {
	b.t.Helper()
	dst := netip.MustParseAddrPort(to)
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: b.in.HardwareAddr, EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: net.IP{198, 51, 100, 7}, DstIP: dst.Addr().AsSlice()}
	udp := &layers.UDP{SrcPort: 1000, DstPort: layers.UDPPort(dst.Port())}
	must(b.t, udp.SetNetworkLayerForChecksum(ip))
	buf := gopacket.NewSerializeBuffer()
	must(b.t, gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, udp, gopacket.Payload("some text of some length")))
	return buf.Bytes()
}

// TestTrace has a packet for each stage. The explanation leads to the verdict that the programs have given.
func TestTrace(t *testing.T) {
	b := newTraceBed(t)
	forged := scionbed.TransitFrame(t, b.in, scionplane.Key{9})
	other := b.udp("203.0.113.7:53")
	other[5] ^= 0xff
	for _, tt := range []struct {
		name   string
		frame  []byte
		reason string
		words  []string
	}{
		{"filter", b.udp("203.0.113.7:9"), "drop filter", []string{"filter drop filter: dropped by rule discard", "matches rule discard: drop 'udp dst port 9'"}},
		{
			"lb", b.udp("192.0.2.1:80"), "fwd lb-new", []string{
				"filter goes on: its rule does not decide", "lb     fwd lb-flow: to 198.18.0.2, by the flow table", "VIP 192.0.2.1:80/udp",
				"ring: position", "next hop out0", "it was fwd lb-new, and has changed the state itself",
			},
		},
		{"lb again", b.udp("192.0.2.1:80"), "fwd lb-flow", []string{"lb     fwd lb-flow: to 198.18.0.2, by the flow table"}},
		{
			"scion", scionbed.TransitFrame(t, b.in, scionbed.Key), "fwd scion-br-transit", []string{
				"filter goes on", "lb     goes on: no VIP has the address", "scion  fwd scion-br-transit: sent out of interface 2",
				"came in by the link of interface 1 to 1-ff00:0:111", "hop 2 of 3 (segments 3), in the direction of construction",
				"valid under key 0, ID " + scionplane.KeyID(scionbed.Key), "next hop 02:00:00:00:00:09 dev out0 MTU 1500",
			},
		},
		{"a forged MAC", forged, "punt scion-mac", []string{"scion  punt scion-mac", "wrong under all keys, of which 1 are loaded"}},
		{
			"route", b.udp("203.0.113.7:53"), "fwd route-fib", []string{
				"scion  goes on: 198.51.100.7:1000 > 203.0.113.7:53 is no link's", "route  fwd route-fib: forward to 198.18.0.2 02:00:00:00:00:02 dev out0",
				"kernel: 203.0.113.0/24 via 198.18.0.2 dev out0",
			},
		},
		{"another host's", other, "pass other", []string{"filter goes on", "no stage is asked: the frame is not to the address of in0"}},
	} {
		p := b.packet(tt.frame)
		if p.Words() != tt.reason {
			t.Errorf("%s: %s, want %s", tt.name, p.Words(), tt.reason)
		}
		b.tracer.next = time.Time{}
		lines := strings.Join(b.tracer.explain(p), "\n")
		for _, words := range tt.words {
			if !strings.Contains(lines, words) {
				t.Errorf("%s: no %q in\n%s", tt.name, words, lines)
			}
		}
		if strings.Contains(lines, "CHANGED") || strings.Contains(lines, "not explained") {
			t.Errorf("%s, %s:\n%s", tt.name, tt.reason, lines)
		}
	}
	// The state changes between a packet and its explanation.
	p := b.packet(b.udp("203.0.113.7:9"))
	must(t, filterplane.Edit(b.inst, func(f *filterplane.Filter) error {
		f.Rules = nil
		return nil
	}))
	b.tracer.next = time.Time{}
	lines := b.tracer.explain(p)
	const want = "CHANGED: it was drop filter, and this leads to fwd route-fib: the state has changed since, or it depended on what is not known afterwards"
	if last := lines[len(lines)-1]; last != want {
		t.Errorf("got\n%s\nwant at the end %s", strings.Join(lines, "\n"), want)
	}
	p.In.Data = p.In.Data[:30]
	if got := strings.Join(b.tracer.explain(p), "\n"); !strings.Contains(got, "not explained: "+trace.ErrCut.Error()+": capture more with -s, it has 30 of") {
		t.Errorf("a frame that was cut: %s", got)
	}
	p.In = nil
	if got := strings.Join(b.tracer.explain(p), "\n"); !strings.HasPrefix(got, "not explained: the expression matches the frame that went out") {
		t.Errorf("a frame that went out only: %s", got)
	}
}

func TestAfter(t *testing.T) {
	dropped := &Packet{Reason: datapath.Reason{Name: "filter", Stage: "filter", Verdict: datapath.VerdictDrop}}
	for _, tt := range []struct {
		name  string
		stage string
		step  trace.Step
		done  bool
		want  string
	}{
		{"goes on", "lb", trace.On(""), false, ""},
		{"the same", "filter", trace.Ends(datapath.VerdictDrop, "filter", ""), true, ""},
		{"unsure, and it was this stage", "filter", trace.Unsure(""), true, "what happened: drop filter"},
		{"unsure, and it was another", "lb", trace.Unsure(""), false, ""},
		{"another verdict", "lb", trace.Ends(datapath.VerdictDrop, "lb-empty", ""), true, "CHANGED: it was drop filter, and this leads to drop lb-empty"},
		{"before", "lb", trace.Step{Verdict: "fwd", Reason: "lb-flow", Before: "filter"}, true, "it was drop filter, and has changed the state itself"},
	} {
		done, lines := after(dropped, tt.stage, tt.step)
		if got := strings.Join(lines, "\n"); done != tt.done || !strings.HasPrefix(strings.TrimSpace(got), tt.want) || (tt.want == "") != (got == "") {
			t.Errorf("%s: %t %q, want %t %q", tt.name, done, got, tt.done, tt.want)
		}
	}
}

// TestTraceRefused has options that do not go together.
func TestTraceRefused(t *testing.T) {
	for name, o := range map[string]Options{
		"--trace with -w":    {Trace: true, Write: "x.pcapng", In: true},
		"--trace with --out": {Trace: true, Out: true},
	} {
		o.Snap, o.Sample, o.Stdout = MaxSnap, 1, new(bytes.Buffer)
		err := o.check()
		if !usage.Is(err) || !strings.Contains(err.Error(), name+":") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTraceBehind prints packets that wait in a queue: those for which there is no time are counted, and have their lines.
func TestTraceBehind(t *testing.T) {
	var out bytes.Buffer
	names := func(int) string { return "eth0" }
	s := &sink{in: true, lines: &lines{out: newOutput(&out), names: names, decode: plainDecoder{}}, names: names}
	s.tracer = newTracer(func() (*datapath.Instance, error) { return nil, errors.New("no data plane") }, names)
	packets := make(chan *Packet, queue)
	for range queue {
		packets <- &Packet{In: &Frame{Data: make([]byte, 60), Length: 60}}
	}
	close(packets)
	must(t, s.print(context.Background(), packets))
	// The first is taken out of the queue before it is looked at.
	if got, want := s.unexplained.Load(), int64(queue-1-mostWaiting); got != want {
		t.Errorf("%d packets not explained, want %d", got, want)
	}
	if got := strings.Count(out.String(), " In "); got != queue || s.written.Load() != queue {
		t.Errorf("%d lines of packets, %d written, want %d", got, s.written.Load(), queue)
	}
	if !strings.Contains(out.String(), "    not explained: no data plane\n") || !strings.Contains(out.String(), "    not explained: packets come faster than that takes\n") {
		t.Error("lines without an explanation do not say so")
	}
}
