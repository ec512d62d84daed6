// SPDX-License-Identifier: Apache-2.0

package sflowstage

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	decoder "github.com/netsampler/goflow2/v2/decoders/sflow"

	"culvert/internal/filter/filterplane"
	"culvert/internal/sflow"
)

// tagged returns a frame with tags in front of what it has.
func tagged(frame []byte, tags ...uint32) []byte {
	out := slices.Clone(frame[:12])
	for _, tag := range tags {
		out = append(out, byte(tag>>24), byte(tag>>16), byte(tag>>8), byte(tag))
	}
	return append(out, frame[12:]...)
}

// A tag of VLAN 20 with priority 5, and two of VLAN 0 with priority 3, which the filter takes away while it judges a frame.
const (
	vlan20    = 0x8100<<16 | 5<<13 | 20
	priority  = 0x8100<<16 | 3<<13
	priority2 = 0x88a8<<16 | 3<<13
)

// tcp returns a TCP packet for port 80 of an address.
func (b *bed) tcp(dst string, set func(*layers.TCP)) []byte {
	b.t.Helper()
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: b.west.HardwareAddr, EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: net.IPv4(10, 1, 0, 2), DstIP: net.ParseIP(dst)}
	tcp := &layers.TCP{SrcPort: 1000, DstPort: 80, Seq: 7, Window: 1000}
	set(tcp)
	b.must(tcp.SetNetworkLayerForChecksum(ip))
	buf := gopacket.NewSerializeBuffer()
	b.must(gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, tcp))
	return buf.Bytes()
}

// wantHeader wants a sample or a notification to have a frame as it came in.
func wantHeader(t *testing.T, what string, records []decoder.FlowRecord, frame []byte) {
	t.Helper()
	h := header(records)
	if !bytes.Equal(h.HeaderData, frame[:min(len(frame), 128)]) || int(h.FrameLength) != len(frame)+4 {
		t.Errorf("%s: a frame of %d bytes, it begins with\n%x, want %d and\n%x", what, h.FrameLength, h.HeaderData, len(frame)+4, frame[:min(len(frame), 128)])
	}
}

// TestAnsweredSYN has the filter in front answer SYNs with SYN cookies, and drop what has none. The samples show what came in, not the
// answer, and with the tags that the filter takes away meanwhile.
func TestAnsweredSYN(t *testing.T) {
	b := newBed(t)
	l, err := net.Listen("tcp4", "10.1.0.1:80")
	b.must(err)
	defer l.Close()
	b.serve("rate = 1\ndrops = 100\npolling = \"0s\"\n")
	b.must(filterplane.Edit(b.inst, func(f *filterplane.Filter) error {
		f.Services = []filterplane.Service{
			{Addr: netip.MustParseAddrPort("192.0.2.5:80"), Forwarded: true, MSS: 1460, WindowScale: 7},
			{Addr: netip.MustParseAddrPort("10.1.0.1:80")},
		}
		return nil
	}))
	syn := b.tcp("192.0.2.5", func(tcp *layers.TCP) {
		tcp.SYN, tcp.Options = true, []layers.TCPOption{{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{5, 180}}}
	})
	rst := b.tcp("10.1.0.1", func(tcp *layers.TCP) { tcp.RST = true })
	udp := b.packet("192.0.2.5", 64, 2000, 400)
	west, east, acl := uint32(b.west.Index), uint32(b.east.Index), 1<<30|uint32(sflow.ACL)
	frames := []struct {
		name   string
		frame  []byte
		output uint32
	}{
		{"SYN", syn, west},
		{"SYN with a tag of VLAN 0", tagged(syn, priority), west},
		{"forwarded", udp, east}, // what is left of the SYN before is not taken for this one
		{"SYN with two tags of VLAN 0", tagged(syn, priority2, priority), west},
		{"RST without a connection", rst, acl},
		{"the same with a tag of VLAN 0", tagged(rst, priority), acl},
		{"SYN once more", syn, west},
	}
	for _, f := range frames {
		b.send(f.frame)
	}
	got := b.receive("samples", func(r *received) bool { return len(r.flows) >= len(frames) && len(r.discards) >= 2 })
	for n, f := range frames {
		s := got.flows[n]
		if s.Output != f.output || int(s.SamplePool) != n+1 {
			t.Errorf("%s: %+v, want output %x", f.name, s, f.output)
		}
		wantHeader(t, f.name, s.Records, f.frame)
		if f.output != west {
			continue
		}
		r, ok := record[decoder.ExtendedRouter](s.Records)
		if hop, _ := netip.AddrFromSlice(r.NextHop); !ok || hop != netip.MustParseAddr("10.1.0.2") {
			t.Errorf("%s: next hop %s", f.name, hop)
		}
	}
	for n, d := range got.discards {
		f := frames[4+n]
		function, _ := record[decoder.ExtendedFunction](d.Records)
		if d.Reason != uint32(sflow.ACL) || function.Symbol != "filter-cookie" {
			t.Errorf("%s: %+v, function %q", f.name, d, function.Symbol)
		}
		wantHeader(t, f.name, d.Records, f.frame)
	}
}

// TestTaggedDrops has the filter in front drop frames with tags. Samples and notifications show them as they came in.
func TestTaggedDrops(t *testing.T) {
	for _, rate := range []int{1, 1 << 24} { // with samples, and with notifications alone
		t.Run(fmt.Sprint("rate ", rate), func(t *testing.T) {
			b := newBed(t)
			b.serve(fmt.Sprintf("rate = %d\ndrops = 100\npolling = \"0s\"\n", rate))
			b.drops("udp dst port 7 or (vlan and udp dst port 7)")
			udp := b.packet("192.0.2.5", 64, 7, 200)
			frames := []struct {
				name, function string
				frame          []byte
			}{
				{"untagged", "filter", udp},
				{"VLAN 0", "filter", tagged(udp, priority)},
				{"VLAN 20", "filter", tagged(udp, vlan20)},
				{"VLAN 20 in VLAN 0", "filter", tagged(udp, priority2, vlan20)},
				{"more tags than are read", "filter-tags", tagged(udp, slices.Repeat([]uint32{priority}, 9)...)},
			}
			for _, f := range frames {
				b.send(f.frame)
			}
			got := b.receive("notifications", func(r *received) bool { return len(r.discards) >= len(frames) })
			for n, f := range frames {
				d := got.discards[n]
				function, _ := record[decoder.ExtendedFunction](d.Records)
				if d.Reason != uint32(sflow.ACL) || function.Symbol != f.function || int(d.Input) != b.west.Index {
					t.Errorf("%s: %+v, function %q", f.name, d, function.Symbol)
				}
				wantHeader(t, f.name, d.Records, f.frame)
				if rate > 1 {
					continue
				}
				wantHeader(t, f.name+", sampled", got.flows[n].Records, f.frame)
			}
			if want := len(frames) * (1 / rate); len(got.flows) != want {
				t.Errorf("%d samples, want %d", len(got.flows), want)
			}
		})
	}
}
