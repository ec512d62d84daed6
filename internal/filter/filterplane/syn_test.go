// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"culvert/internal/bpfobj"
	"culvert/internal/filter/cbpf"
)

// synFilter is a filter that only protects services. It has no data plane.
type synFilter struct {
	prog  *ebpf.Program
	maps  map[string]*ebpf.Map
	iface *net.Interface
}

func loadSynFilter(t *testing.T, iface *net.Interface, services ...Service) *synFilter {
	t.Helper()
	spec, err := bpfobj.LoadFilter()
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.Variables[bpfobj.FilterVarFilterNeedsKeys].Set(true); err != nil {
		t.Fatal(err)
	}
	if err := setServices(spec, services); err != nil {
		t.Fatal(err)
	}
	ps := spec.Programs[bpfobj.FilterProgFilter]
	ps.Instructions, err = cbpf.ReplaceFunction(ps.Instructions, fnRules, asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()})
	if err != nil {
		t.Fatal(err)
	}
	ps.Instructions = cbpf.CalledFunctions(ps.Instructions)
	spec.Maps[bpfobj.FilterMapPorts].MaxEntries = 1 << 16
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		var ve *ebpf.VerifierError
		if errors.As(err, &ve) {
			t.Log(strings.Join(ve.Log[max(0, len(ve.Log)-90):], "\n"))
		}
		t.Fatal(err)
	}
	t.Cleanup(coll.Close)
	p := bpfobj.PipelinePort{Slot: 1}
	for w := range p.Mac {
		p.Mac[w] = bpfobj.Native.Uint16(iface.HardwareAddr[2*w:])
	}
	if err := coll.Maps[bpfobj.FilterMapPorts].Put(uint32(iface.Index), p); err != nil {
		t.Fatal(err)
	}
	if err := putServices(coll.Maps[bpfobj.FilterMapFilterServices], services); err != nil {
		t.Fatal(err)
	}
	return &synFilter{prog: coll.Programs[bpfobj.FilterProgFilter], maps: coll.Maps, iface: iface}
}

// counted returns how many packets were counted with a reason.
func (f *synFilter) counted(t *testing.T, reason bpfobj.PipelineReason) uint64 {
	t.Helper()
	var each []bpfobj.PipelineCounter
	if err := f.maps[bpfobj.FilterMapCounters].Lookup(reason.Index(), &each); err != nil {
		t.Fatal(err)
	}
	var n uint64
	for _, c := range each {
		n += c.Packets
	}
	return n
}

// run runs a frame through the filter. It pads the frame to 60 bytes.
func (f *synFilter) run(t *testing.T, frame []byte) (action uint32, out []byte) {
	t.Helper()
	for len(frame) < 60 {
		frame = append(frame[:len(frame):len(frame)], 0)
	}
	return f.runShort(t, frame)
}

// runShort is run without padding.
func (f *synFilter) runShort(t *testing.T, frame []byte) (action uint32, out []byte) {
	t.Helper()
	opts := ebpf.RunOptions{
		Data:    frame,
		DataOut: make([]byte, len(frame)+256),
		Context: bpfobj.XDPMD{DataEnd: uint32(len(frame)), IngressIfindex: uint32(f.iface.Index)},
	}
	action, err := f.prog.Run(&opts)
	if err != nil {
		t.Fatal(err)
	}
	return action, opts.DataOut
}

// synFrame describes a frame with a TCP packet.
type synFrame struct {
	dstMAC   net.HardwareAddr
	src, dst netip.AddrPort
	tags     []uint16
	flags    byte
	seq, ack uint32
	opts     []byte
	data     []byte
	// ipOpts holds options of IPv4, ext a hop-by-hop header of IPv6 without its first byte.
	ipOpts, ext []byte
	// mangle changes the finished frame, given the offsets of the IP header and of the TCP header. It may be nil.
	mangle func(f []byte, l3, l4 int)
}

const (
	tcpFIN = 0x01
	tcpSYN = 0x02
	tcpRST = 0x04
	tcpPSH = 0x08
	tcpACK = 0x10
	tcpECE = 0x40
	tcpCWR = 0x80
)

var synClientMAC = net.HardwareAddr{2, 0, 0, 0, 0, 0x99}

func onesComplement(b []byte, sum uint32) uint16 {
	for n := 0; n+1 < len(b); n += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[n:]))
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// tcpSum returns the checksum of a TCP segment between two addresses.
func tcpSum(src, dst netip.Addr, segment []byte) uint16 {
	pseudo := append(src.AsSlice(), dst.AsSlice()...)
	return ^onesComplement(segment, uint32(onesComplement(pseudo, uint32(len(segment))+6)))
}

// build returns the frame.
func (s synFrame) build() []byte {
	be := binary.BigEndian
	tcp := be.AppendUint16(nil, s.src.Port())
	tcp = be.AppendUint16(tcp, s.dst.Port())
	tcp = be.AppendUint32(tcp, s.seq)
	tcp = be.AppendUint32(tcp, s.ack)
	tcp = append(tcp, byte((20+len(s.opts))/4)<<4, s.flags, 0xff, 0xff, 0, 0, 0, 0)
	tcp = append(tcp, s.opts...)
	tcp = append(tcp, s.data...)
	be.PutUint16(tcp[16:], tcpSum(s.src.Addr(), s.dst.Addr(), tcp))

	f := append(append([]byte(nil), s.dstMAC...), synClientMAC...)
	for _, tag := range s.tags {
		f = append(f, 0x81, 0)
		f = be.AppendUint16(f, tag)
	}
	v4 := s.src.Addr().Is4()
	l3 := len(f) + 2
	if v4 {
		f = append(f, 0x08, 0, 0x45+byte(len(s.ipOpts)/4), 0)
		f = be.AppendUint16(f, uint16(20+len(s.ipOpts)+len(tcp)))
		f = append(f, 0x12, 0x34, 0x40, 0, 57, 6, 0, 0)
		f = append(append(f, s.src.Addr().AsSlice()...), s.dst.Addr().AsSlice()...)
		f = append(f, s.ipOpts...)
		be.PutUint16(f[l3+10:], ^onesComplement(f[l3:], 0))
	} else {
		next := byte(6)
		if s.ext != nil {
			next = 0 // hop-by-hop
			tcp = append(append([]byte{6}, s.ext...), tcp...)
		}
		f = append(f, 0x86, 0xdd, 0x60, 1, 2, 3)
		f = be.AppendUint16(f, uint16(len(tcp)))
		f = append(f, next, 57)
		f = append(append(f, s.src.Addr().AsSlice()...), s.dst.Addr().AsSlice()...)
	}
	l4 := len(f)
	f = append(f, tcp...)
	if s.mangle != nil {
		s.mangle(f, l3, l4)
	}
	return f
}

// synAnswer holds the fields and options of a SYN-ACK.
type synAnswer struct {
	cookie, ack uint32
	window      uint16
	mss         uint16
	ts          bool
	tsval, echo uint32
	sack        bool
	wscale      int // -1: none
}

// readAnswer checks the headers of the answer to s, and returns what depends on the options of s.
func readAnswer(t *testing.T, s synFrame, out []byte) synAnswer {
	t.Helper()
	be := binary.BigEndian
	if got := net.HardwareAddr(out[:6]).String(); got != synClientMAC.String() {
		t.Errorf("answer goes to %s, not to %s", got, synClientMAC)
	}
	if got := net.HardwareAddr(out[6:12]).String(); got != s.dstMAC.String() {
		t.Errorf("answer comes from %s, not from %s", got, s.dstMAC)
	}
	l3 := 14
	for _, tag := range s.tags {
		if be.Uint16(out[l3-2:]) != 0x8100 || be.Uint16(out[l3:]) != tag {
			t.Errorf("tag %x of the answer, not %x", out[l3-2:l3+2], tag)
		}
		l3 += 4
	}
	var src, dst netip.Addr
	var tcp []byte
	if s.src.Addr().Is4() {
		ip := out[l3 : l3+20]
		if be.Uint16(out[l3-2:]) != 0x0800 || ip[0] != 0x45 || ip[1] != 0 || be.Uint16(ip[6:]) != 0x4000 || ip[8] != 64 || ip[9] != 6 {
			t.Errorf("IPv4 header % x", ip)
		}
		if onesComplement(ip, 0) != 0xffff {
			t.Errorf("wrong IPv4 checksum in % x", ip)
		}
		src, dst = netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))
		tcp = out[l3+20 : l3+int(be.Uint16(ip[2:]))]
		if want := max(60, l3+int(be.Uint16(ip[2:]))); len(out) != want {
			t.Errorf("frame of %d bytes, not %d", len(out), want)
		}
	} else {
		ip := out[l3 : l3+40]
		if be.Uint16(out[l3-2:]) != 0x86dd || be.Uint32(ip) != 0x60000000 || ip[6] != 6 || ip[7] != 64 {
			t.Errorf("IPv6 header % x", ip)
		}
		src, dst = netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:]))
		tcp = out[l3+40:]
		if len(tcp) != int(be.Uint16(ip[4:])) {
			t.Errorf("%d bytes of TCP, length says %d", len(tcp), be.Uint16(ip[4:]))
		}
	}
	if src != s.dst.Addr() || dst != s.src.Addr() || be.Uint16(tcp) != s.dst.Port() || be.Uint16(tcp[2:]) != s.src.Port() {
		t.Errorf("answer from %s to %s, ports % x", src, dst, tcp[:4])
	}
	check := be.Uint16(tcp[16:])
	be.PutUint16(tcp[16:], 0)
	if want := tcpSum(src, dst, tcp); check != want {
		t.Errorf("TCP checksum %04x, not %04x", check, want)
	}
	if int(tcp[12]>>4)*4 != len(tcp) || tcp[12]&15 != 0 || tcp[13] != tcpSYN|tcpACK || be.Uint16(tcp[18:]) != 0 {
		t.Errorf("TCP header % x", tcp)
	}
	a := synAnswer{cookie: be.Uint32(tcp[4:]), ack: be.Uint32(tcp[8:]), window: be.Uint16(tcp[14:]), wscale: -1}
	if a.ack != s.seq+1 {
		t.Errorf("acknowledges %d, not %d", a.ack, s.seq+1)
	}
	for o := tcp[20:]; len(o) > 0; {
		if o[0] == 1 {
			o = o[1:]
			continue
		}
		switch v := o[2:o[1]]; o[0] {
		case 2:
			a.mss = be.Uint16(v)
		case 3:
			a.wscale = int(v[0])
		case 4:
			a.sack = true
		case 8:
			a.ts, a.tsval, a.echo = true, be.Uint32(v), be.Uint32(v[4:])
		default:
			t.Errorf("option %d", o[0])
		}
		o = o[o[1]:]
	}
	return a
}
