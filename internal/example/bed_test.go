// SPDX-License-Identifier: Apache-2.0

//go:build example

package example_test

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"culvert/internal/bpfobj"
)

var (
	ownMAC     = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	peerMAC    = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	gatewayMAC = net.HardwareAddr{2, 0, 0, 0, 0, 3}
	tunnelEnd  = netip.MustParseAddr("1.0.5.5")
)

// loopback is where a frame seems to come from when no interface is named for a test run.
const loopback = 1

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func family(v6 bool) string {
	if v6 {
		return "IPv6"
	}
	return "IPv4"
}

// bed is the pipeline with the example and the IP router on, and the example's program in front of it. Nothing is attached.
type bed struct {
	maps    map[string]*ebpf.Map
	rx      *ebpf.Program
	front   *ebpf.Program
	reasons map[string]uint32
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{reasons: make(map[string]uint32)}
	spec, err := bpfobj.LoadPipeline()
	must(t, err)
	var names *btf.Enum
	must(t, spec.Types.TypeByName("reason", &names))
	for _, v := range names.Values {
		b.reasons[v.Name] = uint32(v.Value)
	}
	for _, name := range []string{"example_on", "route_on", "route_mirror", "route_trusting"} {
		must(t, spec.Variables[name].Set(true))
	}
	for name, size := range map[string]uint32{"ports": 4, "route_root4": 0x101, "route_root6": 0x21, "route_hops": 16} {
		spec.Maps[name].MaxEntries = size
	}
	delete(spec.Programs, "worker")
	pipeline, err := ebpf.NewCollection(spec)
	must(t, err)
	t.Cleanup(pipeline.Close)
	b.maps, b.rx = pipeline.Maps, pipeline.Programs["rx"]

	spec, err = bpfobj.LoadExample()
	must(t, err)
	end := tunnelEnd.As4()
	must(t, spec.Variables["example_local"].Set(bpfobj.Native.Uint32(end[:])))
	spec.Maps["ports"].MaxEntries = b.maps["ports"].MaxEntries()
	front, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{"ports": b.maps["ports"], "counters": b.maps["counters"]},
	})
	must(t, err)
	t.Cleanup(front.Close)
	b.front = front.Programs["example_front"]
	must(t, front.Maps["example_rest"].Put(uint32(0), b.rx))

	var port bpfobj.PipelinePort
	port.Slot = 1
	for i := range port.Mac {
		port.Mac[i] = bpfobj.Native.Uint16(ownMAC[2*i:])
	}
	port.Route.Index, port.Route.Mac, port.Route.Flags = loopback, port.Mac, 1|2 // ROUTE_DEV_FORWARD4 and 6
	must(t, b.maps["ports"].Put(uint32(loopback), port))
	b.routes(t)
	return b
}

// routes has a way for each of the networks.
func (b *bed) routes(t *testing.T) {
	t.Helper()
	var root4, root6 [256]uint32
	number := uint32(0)
	for name, n := range networks {
		number++
		hop := bpfobj.PipelineRouteHop{Action: uint8(bpfobj.PipelineRouteActionROUTE_FORWARD), Dev: 2}
		hop.Hop.Port, hop.Hop.Mtu, hop.Hop.Dmac, hop.Hop.Smac = 2, 1500, [6]byte(gatewayMAC), [6]byte(ownMAC)
		switch name {
		case "own":
			hop.Dev, hop.Hop.Port = 3, 3
		case "blackhole":
			hop = bpfobj.PipelineRouteHop{Action: uint8(bpfobj.PipelineRouteActionROUTE_BLACKHOLE)}
		case "resolve":
			hop = bpfobj.PipelineRouteHop{Action: uint8(bpfobj.PipelineRouteActionROUTE_RESOLVE), Dev: 2}
		case "vlan":
			hop.Dev, hop.Hop.Vlan = 4, 0x1000+vlanOut
		}
		must(t, b.maps["route_hops"].Put(number, hop))
		root4[n.v4], root6[n.v6] = number, number
	}
	must(t, b.maps["route_root4"].Put(uint32(0x100), root4)) // 1.0.0.0/16
	must(t, b.maps["route_root6"].Put(uint32(0x20), root6))  // 2000::/8
}

// forget has no service any more.
func (b *bed) forget(t *testing.T) {
	t.Helper()
	m := b.maps["example_targets"]
	var keys []bpfobj.PipelineExampleService
	var key bpfobj.PipelineExampleService
	var value bpfobj.PipelineExampleTarget
	for it := m.Iterate(); it.Next(&key, &value); {
		keys = append(keys, key)
	}
	for _, key := range keys {
		must(t, m.Delete(key))
	}
}

// translate has one service, that which the packet is to.
func (b *bed) translate(t *testing.T, p packet, to netip.AddrPort) {
	t.Helper()
	b.forget(t)
	key := bpfobj.PipelineExampleService{Port: bpfobj.Wire16(p.dst.Port()), Proto: 6}
	if p.udp {
		key.Proto = 17
	}
	key.Addr.W = bpfobj.AddrWords(p.dst.Addr())
	value := bpfobj.PipelineExampleTarget{Port: bpfobj.Wire16(to.Port())}
	value.Addr.W = bpfobj.AddrWords(to.Addr())
	must(t, b.maps["example_targets"].Put(key, value))
	key.Port = 0 // for packets without ports
	must(t, b.maps["example_targets"].Put(key, value))
}

// expect runs a frame and compares what comes out, the action, and the one reason that it is counted under.
func (b *bed) expect(t *testing.T, prog *ebpf.Program, frame []byte, reason string, want []byte) {
	t.Helper()
	if _, ok := b.reasons[reason]; !ok {
		t.Fatalf("no reason is called %s", reason)
	}
	before := b.counts(t)
	opts := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64)}
	action, err := prog.Run(&opts)
	must(t, err)
	after := b.counts(t)
	for name, n := range after {
		counted := n - before[name]
		if expected := map[bool]uint64{true: 1}[name == reason]; counted != expected {
			t.Errorf("counted %d times under %s, want %d", counted, name, expected)
		}
	}
	const xdpDrop, xdpPass, xdpRedirect = 1, 2, 4
	wantAction := map[byte]uint32{'F': xdpRedirect, 'D': xdpDrop, 'P': xdpPass}[reason[0]]
	if action != wantAction {
		t.Errorf("action %d, want %d", action, wantAction)
	}
	if !bytes.Equal(opts.DataOut, want) {
		t.Errorf("in   %x\nout  %x\nwant %x", frame, opts.DataOut, want)
	}
}

// counts are the packets by reason.
func (b *bed) counts(t *testing.T) map[string]uint64 {
	t.Helper()
	counts := make(map[string]uint64)
	for name, reason := range b.reasons {
		var perCPU []bpfobj.PipelineCounter
		err := b.maps["counters"].Lookup(reason&(1<<9-1), &perCPU) // REASON_INDEX, of slot 0
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			continue
		}
		must(t, err)
		for _, c := range perCPU {
			counts[name] += c.Packets
		}
	}
	return counts
}
