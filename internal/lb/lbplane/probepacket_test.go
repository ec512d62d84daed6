// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/testbed"
)

// Verdicts of tc(8) programs.
const (
	tcUnspec   = ^uint32(0)
	tcShot     = 2
	tcRedirect = 7
)

// runProbe runs the probe program on a frame with a mark. It returns the verdict, the frame and its mark afterwards.
func runProbe(t *testing.T, c *Probes, frame []byte, mark uint32) (verdict uint32, out []byte, markAfter uint32) {
	t.Helper()
	// The beginning of struct __sk_buff. The kernel accepts the mark and wants zeros for the rest.
	ctx := struct {
		Len, PktType, Mark uint32
		_                  [45]uint32
	}{Mark: mark}
	after := ctx
	out = make([]byte, len(frame)+256)
	o := &ebpf.RunOptions{Data: frame, DataOut: out, Context: ctx, ContextOut: &after, Repeat: 1}
	verdict, err := c.prog.Run(o)
	if err != nil {
		t.Fatal(err)
	}
	return verdict, o.DataOut, after.Mark
}

func mustAttachProbes(t *testing.T, i *datapath.Instance) *Probes {
	t.Helper()
	c, err := AttachProbes(i)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestProbePackets wants probes to leave like the same packets from a client.
func TestProbePackets(t *testing.T) {
	b := newBed(t, Options{})
	probes := mustAttachProbes(t, b.inst)
	tests := []struct {
		name           string
		from, to       string
		backend, proto string
		encap          Encap
	}{
		{"4in4", "203.0.113.7:1234", "192.0.2.1:80", "10.0.0.11", "tcp", IPIP},
		{"4in6", "203.0.113.7:1234", "192.0.2.2:80", "fd00::11", "tcp", IPIP},
		{"6in6", "[2001:db8:1::7]:1234", "[2001:db8::1]:80", "fd00::11", "tcp", IPIP},
		{"6in4", "[2001:db8:1::7]:1234", "[2001:db8::2]:80", "10.0.0.11", "tcp", IPIP},
		{"4 in GUE over 4", "203.0.113.7:1234", "192.0.2.3:80", "10.0.0.11", "tcp", GUE},
		{"4 in GUE over 6", "203.0.113.7:1234", "192.0.2.4:80", "fd00::11", "tcp", GUE},
		{"6 in GUE over 6", "[2001:db8:1::7]:1234", "[2001:db8::3]:80", "fd00::11", "udp", GUE},
		{"6 in GUE over 4", "[2001:db8:1::7]:1234", "[2001:db8::4]:80", "10.0.0.11", "udp", GUE},
		{"4 in layer 2", "203.0.113.7:1234", "192.0.2.5:80", "10.0.0.11", "udp", L2},
		{"6 in layer 2", "[2001:db8:1::7]:1234", "[2001:db8::5]:80", "fd00::11", "tcp", L2},
	}
	for n, tt := range tests {
		vip, number := uint32(n), uint32(100+n)
		backend := b.backend(number, vip, tt.backend, func(backend *Backend) { backend.Encap = tt.encap })
		proto, tos := uint8(6), uint8(0xb9)
		transport := func() (frame []byte) {
			payload := bytes.Repeat([]byte("check"), 20)
			mark := func(l gopacket.SerializableLayer) {
				switch l := l.(type) {
				case *layers.IPv4:
					l.TOS = tos
				case *layers.IPv6:
					l.TrafficClass = tos
				}
			}
			if tt.proto == "udp" {
				return b.packet(tt.from, tt.to, &layers.UDP{}, payload, mark)
			}
			return b.packet(tt.from, tt.to, &layers.TCP{SYN: true}, payload, mark)
		}
		if tt.proto == "udp" {
			proto = 17
		}
		b.vip(vip, tt.to, proto, []Backend{backend})
		want := b.expect(transport(), "fwd lb-new")
		verdict, got, mark := runProbe(t, probes, transport(), ProbeMark(backend.ID))
		if verdict != tcRedirect || mark != 0 {
			t.Fatalf("%s: verdict %d, mark %#x", tt.name, verdict, mark)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: a probe leaves as\n%x\na client's packet as\n%x", tt.name, got, want)
		}
		// These marks are not those of probes.
		for _, other := range []uint32{0, number, 0xc00<<20 | number, 0x801<<20 | number} {
			if verdict, got, mark := runProbe(t, probes, transport(), other); verdict != tcUnspec || !bytes.Equal(got, transport()) || mark != other {
				t.Errorf("%s: a packet with mark %#x: verdict %d, mark %#x", tt.name, other, verdict, mark)
			}
		}
	}
}

// TestProbeDrops wants probes that cannot go to their backend to be dropped.
func TestProbeDrops(t *testing.T) {
	b := newBed(t, Options{})
	probes := mustAttachProbes(t, b.inst)
	backend := b.backend(1, 0, "10.0.0.11")
	hopless := b.backend(2, 0, "10.0.0.12", func(backend *Backend) { backend.Hop = Hop{} })
	gone := b.backend(3, 0, "10.0.0.13", func(backend *Backend) { backend.Used = false })
	narrow := b.backend(4, 0, "10.0.0.14", func(backend *Backend) { backend.Hop.MTU = 20 + 28 + 100 })
	packet := func(payload int) []byte {
		return b.packet("203.0.113.7:1234", "192.0.2.1:80", &layers.UDP{}, make([]byte, payload))
	}
	b.vip(0, "192.0.2.1:80", protoUDP, []Backend{backend})
	arp := append(bytes.Repeat([]byte{2}, 12), 8, 6)
	arp = append(arp, make([]byte, 46)...)
	options := packet(100)
	options[14] = 0x46
	for _, tt := range []struct {
		name  string
		frame []byte
		mark  uint32
		want  uint32
	}{
		{"a backend", packet(100), ProbeMark(backend.ID), tcRedirect},
		{"nothing but headers", packet(0)[:14+28], ProbeMark(backend.ID), tcRedirect},
		{"another generation of it", packet(100), ProbeMark(NewBackendID(1, 9)), tcRedirect},
		{"nobody", packet(100), ProbeMark(NewBackendID(77, 1)), tcShot},
		{"beyond the table", packet(100), ProbeMark(NewBackendID(MaxBackends-1, 1)), tcShot},
		{"one that has gone", packet(100), ProbeMark(gone.ID), tcShot},
		{"no next hop", packet(100), ProbeMark(hopless.ID), tcShot},
		{"what fits", packet(100), ProbeMark(narrow.ID), tcRedirect},
		{"what does not fit", packet(101), ProbeMark(narrow.ID), tcShot},
		{"no IP", arp, ProbeMark(backend.ID), tcUnspec},
		{"IP options", options, ProbeMark(backend.ID), tcShot},
	} {
		if verdict, _, _ := runProbe(t, probes, tt.frame, tt.mark); verdict != tt.want {
			t.Errorf("%s: verdict %d, not %d", tt.name, verdict, tt.want)
		}
	}
}

// TestProbeMarksOfOthers sends packets with the mark of probes, which other programs may use too. Packets to an address of no VIP
// must pass unchanged.
func TestProbeMarksOfOthers(t *testing.T) {
	b := newBed(t, Options{})
	probes := mustAttachProbes(t, b.inst)
	backend := b.backend(1, 0, "10.0.0.11")
	b.vip(0, vip4, protoTCP, []Backend{backend})
	b.vip(1, vip6, protoUDP, []Backend{backend})
	for to, want := range map[string]uint32{
		vip4: tcRedirect, "192.0.2.1:8080": tcRedirect, vip6: tcRedirect, "[2001:db8::1]:8080": tcRedirect, // a check may have another port than its VIP
		"192.0.2.2:80": tcUnspec, "198.51.100.1:80": tcUnspec, "[2001:db8::2]:80": tcUnspec,
	} {
		from := map[bool]string{true: client4, false: client6}[to[0] != '[']
		frame := b.packet(from, to, syn(), nil)
		_, packet, err := ipPart(frame)
		b.must(err)
		frame = frame[:14+len(packet)]
		for _, f := range [][]byte{frame, tagged(frame, 9)} {
			verdict, out, mark := runProbe(t, probes, f, ProbeMark(backend.ID))
			if verdict != want {
				t.Errorf("to %s: verdict %d, not %d", to, verdict, want)
			}
			if want == tcUnspec && (!bytes.Equal(out, f) || mark != ProbeMark(backend.ID)) {
				t.Errorf("to %s: it was changed, mark %#x\n%x\n%x", to, mark, f, out)
			}
		}
	}
}

// TestProbeRoute wants Ready to say when the routing table does not let probes leave.
func TestProbeRoute(t *testing.T) {
	b := newBed(t, Options{})
	probes := mustAttachProbes(t, b.inst)
	backend := b.backend(1, 0, "10.0.0.11")
	addAddress(t, "lb0", "10.0.0.1/24")
	addAddress(t, "out0", "10.1.0.1/24")
	for _, tt := range []struct{ vip, want string }{
		{"10.0.0.9", ""},
		{"10.1.0.9", ""},
		{"192.0.2.1", "no route to the VIP 192.0.2.1 for its checks to leave by"},
		{"10.0.0.1", "the VIP 10.0.0.1 is an address of this host: remove it"},
		{"10.0.0.255", "no route to the VIP 10.0.0.255"},
		{"2001:db8::1", "no route to the VIP 2001:db8::1"},
	} {
		err := probes.Ready(netip.MustParseAddr(tt.vip), ProbeMark(backend.ID))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
			t.Errorf("%s: %v, not %q", tt.vip, err, tt.want)
		}
	}
	backend.Hop = Hop{}
	b.must(b.plane.SetBackend(backend))
	if err := probes.Ready(netip.MustParseAddr("10.0.0.9"), ProbeMark(backend.ID)); err == nil || err.Error() != "no next hop of the backend is known" {
		t.Errorf("without a next hop: %v", err)
	}
	for _, ifIndex := range []int{b.in.Index, b.out.Index} {
		if probes.attached[ifIndex] == nil {
			t.Errorf("the program is not on interface %d", ifIndex)
		}
	}
}

// TestProbeFilter attaches the program as on kernels without TCX.
func TestProbeFilter(t *testing.T) {
	b := newBed(t, Options{})
	probes := mustAttachProbes(t, b.inst)
	again := mustAttachProbes(t, b.inst)
	filters := func() int { return countFilters(t, probes.netlink, b.out.Index) }
	first, err := attachProbeFilter(probes.netlink, probes.prog, b.out.Index)
	if err != nil {
		t.Fatal(err)
	}
	// A second attachment replaces the first, whose Close then leaves the second alone.
	second, err := attachProbeFilter(probes.netlink, again.prog, b.out.Index)
	if err != nil {
		t.Fatal(err)
	}
	if n := filters(); n != 1 {
		t.Fatalf("%d filters, not one", n)
	}
	b.must(first.Close())
	if n := filters(); n != 1 {
		t.Fatalf("%d filters, not one: the first one has removed the second", n)
	}
	// The qdisc stays while it has a filter of another program.
	third, err := attachProbeFilter(probes.netlink, probes.prog, b.in.Index)
	b.must(err)
	foreign := addForeignFilter(t, probes.netlink, b.in.Index)
	b.must(third.Close())
	if n := countFilters(t, probes.netlink, b.in.Index); n != 1 {
		t.Fatalf("%d filters are left, not the foreign one", n)
	}
	b.must(probes.netlink.FilterDel(foreign))
	// A qdisc that was there before stays.
	b.must(second.Close())
	if n := filters(); n != 0 {
		t.Fatalf("%d filters are left", n)
	}
	for ifIndex, want := range map[int]int{b.in.Index: 1, b.out.Index: 1} {
		if n := countClsact(t, probes.netlink, ifIndex); n != want {
			t.Errorf("%d clsact qdiscs on interface %d, not %d", n, ifIndex, want)
		}
	}
	fourth, err := attachProbeFilter(probes.netlink, probes.prog, testbed.AddVeth(t, "x0", "x0p").Index)
	b.must(err)
	b.must(fourth.Close())
	if n := countClsact(t, probes.netlink, testbed.Device(t, "x0").Index); n != 0 {
		t.Error("the qdisc is left")
	}
	fifth, err := attachProbeFilter(probes.netlink, probes.prog, testbed.Device(t, "x0").Index)
	b.must(err)
	testbed.DeleteDevice(t, "x0")
	if err := fifth.Close(); err != nil {
		t.Errorf("closing after the interface was deleted: %v", err)
	}
}

func countFilters(t *testing.T, h *netlink.Handle, ifIndex int) int {
	t.Helper()
	filters, err := h.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: ifIndex}}, netlink.HANDLE_MIN_EGRESS)
	if err != nil {
		t.Fatal(err)
	}
	return len(filters)
}

func countClsact(t *testing.T, h *netlink.Handle, ifIndex int) (n int) {
	t.Helper()
	qdiscs, err := h.QdiscList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: ifIndex}})
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range qdiscs {
		if q.Type() == "clsact" {
			n++
		}
	}
	return n
}

// addForeignFilter adds a filter that is not culvert's.
func addForeignFilter(t *testing.T, h *netlink.Handle, ifIndex int) netlink.Filter {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "foreign", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	f := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: ifIndex, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL},
		Fd:          prog.FD(), Name: "foreign", DirectAction: true,
	}
	if err := h.FilterAdd(f); err != nil {
		t.Fatal(err)
	}
	return f
}

func addAddress(t testing.TB, dev, addr string) {
	t.Helper()
	l, err := netlink.LinkByName(dev)
	if err != nil {
		t.Fatal(err)
	}
	a, err := netlink.ParseAddr(addr)
	if err != nil {
		t.Fatal(err)
	}
	a.Flags = unix.IFA_F_NODAD
	if err := netlink.AddrAdd(l, a); err != nil {
		t.Fatal(err)
	}
}
