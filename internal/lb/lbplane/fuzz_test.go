// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/testbed"
)

// fuzzBed is a bed with a VIP of each kind, each with backends of all kinds.
type fuzzBed struct {
	*bed
	backends []Backend
	slot     int            // of the counters of lb0
	seen     map[string]int // packets by verdict and reason
}

func newFuzzBed(t testing.TB) *fuzzBed {
	t.Helper()
	f := &fuzzBed{bed: newBedOf(t, Options{Flows: 1000}, datapath.Options{Name: "lb", Interfaces: []string{"lb0"}, Temporary: true})}
	for n, backend := range encapsulations(f.bed) {
		backend.Hop.MTU = []uint16{1280, 1500, 9216}[n%3]
		f.must(f.plane.SetBackend(backend))
		f.backends = append(f.backends, backend)
	}
	for n, v := range []struct {
		addr   string
		proto  uint8
		change func(*VIP)
	}{
		{vip4, protoTCP, func(*VIP) {}},
		{vip6, protoTCP, func(*VIP) {}},
		{"192.0.2.1:0", protoUDP, func(v *VIP) { v.Source = true }},
		{"[2001:db8::1]:0", protoUDP, func(v *VIP) { v.Source = true }},
		{"192.0.2.1:443", protoUDP, func(v *VIP) { v.ServerID, v.IDConfig = 2, 2 }},
		{"[2001:db8::1]:443", protoUDP, func(v *VIP) { v.ServerID, v.IDConfig = 2, 2 }},
	} {
		f.vip(uint32(n), v.addr, v.proto, f.backends[n:n+testRing], v.change)
		f.must(f.plane.SetServerID(uint32(n), []byte{7, 8}, f.backends[n].ID))
	}
	f.forwards()
	f.slot, f.seen = f.inst.PortSlot("lb0"), make(map[string]int)
	return f
}

// seeds returns valid frames of all kinds.
func (f *fuzzBed) seeds() (all [][]byte) {
	for _, c := range []struct{ client, vip, quic string }{{client4, vip4, "192.0.2.1:443"}, {client6, vip6, "[2001:db8::1]:443"}} {
		data := make([]byte, 1300)
		tcp := f.packet(c.client, c.vip, ack(), data)
		udp := f.packet(c.client, c.vip, &layers.UDP{}, data)
		cid := []byte{2<<5 | 9, 7, 8, 1, 2, 3}
		all = append(all, f.packet(c.client, c.vip, syn(), nil), tcp, udp, f.packet(c.client, c.vip, ack(), make([]byte, 3000)),
			f.packet(c.client, c.quic, &layers.UDP{}, quicShort(cid)), f.packet(c.client, c.quic, &layers.UDP{}, quicLong(0x60, 1, cid)))
		all = append(all, fragments(udp, 600, 77)...)
		quoted := f.packet(c.vip, c.client, ack(), data)[14:]
		if c.vip == vip4 {
			all = append(all, f.icmp("203.0.113.7", "192.0.2.1", 8, 0, 7, data[:99]), f.icmp("198.51.100.1", "192.0.2.1", 3, 4, 1400, quoted[:100]))
		} else {
			all = append(all, f.icmp("2001:db8:7::7", "2001:db8::1", 128, 0, 7, data[:99]), f.icmp("2001:db8:9::9", "2001:db8::1", 2, 0, 1400, quoted[:100]),
				extended(tcp, 0), extended(tcp, 60), fragment6(tcp, 0, false, 1))
		}
	}
	for _, s := range all[:len(all):len(all)] {
		all = append(all, tagged(s, 9))
	}
	return all
}

// count returns the packets of the interface by reason, and the reason of the one packet that was counted since before.
func (f *fuzzBed) count(before []uint64) (now []uint64, reason string, err error) {
	now = make([]uint64, 2*bpfobj.ReasonCount)
	for n := range now {
		var values []bpfobj.PipelineCounter
		if err := f.inst.Map(bpfobj.PipelineMapCounters).Lookup(uint32(f.slot*2*bpfobj.ReasonCount+n), &values); err != nil {
			return nil, "", err
		}
		for _, v := range values {
			now[n] += v.Packets
		}
		if before == nil || now[n] == before[n] {
			continue
		}
		if reason != "" || now[n] != before[n]+1 {
			return nil, "", fmt.Errorf("one packet was counted more than once")
		}
		r := datapath.Reasons()[n%bpfobj.ReasonCount]
		reason = string(r.Verdict) + " " + r.Name
	}
	if before != nil && reason == "" {
		return nil, "", fmt.Errorf("a packet was not counted")
	}
	return now, reason, nil
}

// try runs the program on a frame, and returns an error if the frame that leaves is wrong.
func (f *fuzzBed) try(in []byte) error {
	before, _, err := f.count(nil)
	if err != nil {
		return err
	}
	out, err := f.raw(in)
	if err != nil {
		return err
	}
	_, reason, err := f.count(before)
	if err != nil {
		return err
	}
	f.seen[reason]++
	switch {
	case !strings.HasPrefix(reason, "fwd "):
		if !bytes.Equal(in, out) {
			return fmt.Errorf("%s has changed it to %x", reason, out)
		}
		return nil
	case reason == "fwd lb-too-big", reason == "fwd lb-unreachable":
		_, _, _, _, err = checkReply(in, out)
	case reason == "fwd lb-echo":
		_, asked, _ := ipPart(in)
		_, answer, _ := ipPart(out)
		switch {
		case icmpSum(asked) == 0xffff:
			_, _, _, _, err = checkReply(in, out)
		case len(answer) != len(asked) || icmpSum(answer) == 0xffff:
			err = fmt.Errorf("a wrong checksum has become a right one in %x", answer)
		}
	default:
		for _, backend := range f.backends {
			if err = checkForwarded(in, out, backend); err == nil {
				break
			}
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%x", reason, err, out)
	}
	return nil
}

// repaired returns a copy of a frame with the MAC address and the IPv4 length and checksum that the program wants before it
// parses further.
func (f *fuzzBed) repaired(in []byte) []byte {
	out := bytes.Clone(in)
	copy(out, f.in.HardwareAddr)
	_, etherType, b, err := linkPart(out)
	if err != nil || etherType != 0x0800 || len(b) < 20 || b[0] != 0x45 {
		return out
	}
	if size := int(binary.BigEndian.Uint16(b[2:])); size < 20 || size > len(b) {
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	}
	b[10], b[11] = 0, 0
	binary.BigEndian.PutUint16(b[10:], ^testbed.OnesSum(b[:20]))
	return out
}

// FuzzPackets looks for frames that leave malformed, with a changed packet inside, or not counted exactly once.
func FuzzPackets(f *testing.F) {
	if os.Geteuid() != 0 {
		f.Fatal("needs root: run 'make test-root'")
	}
	b := newFuzzBed(f)
	seeds, calls := b.seeds(), b.worker()
	for _, s := range seeds {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, frame []byte, mend bool) {
		if len(frame) < 14 || len(frame) > 9000 {
			return // the kernel does not run programs on such frames
		}
		if mend {
			frame = b.repaired(frame)
		}
		done := make(chan error)
		calls <- func() { done <- b.try(frame) }
		if err := <-done; err != nil {
			t.Errorf("%v\nframe: %x", err, frame)
		}
	})
}

// TestSeedsDamaged truncates each seed at many lengths, and changes random bytes of it.
func TestSeedsDamaged(t *testing.T) {
	b := newFuzzBed(t)
	rng := rand.New(rand.NewPCG(5, 6))
	for n, s := range b.seeds() {
		for k := range 150 {
			f := bytes.Clone(s)
			switch {
			case k >= 14 && k < 80:
				f = f[:min(k, len(f))]
			case k > 0:
				f[12+rng.IntN(min(len(f)-12, 90))] = byte(rng.Uint32())
			}
			if k%4 > 0 {
				f = b.repaired(f)
			}
			if err := b.try(f); err != nil {
				t.Fatalf("seed %d, damage %d: %v\nframe: %x", n, k, err, f)
			}
		}
	}
	for _, r := range datapath.Reasons() {
		name := string(r.Verdict) + " " + r.Name
		switch r.Name {
		case "lb-empty", "lb-next-hop", "lb-untracked", "lb-headers":
			continue // all VIPs have backends with next hops, the table has room, and the kernel forwards
		}
		if strings.HasPrefix(r.Name, "lb-") && b.seen[name] == 0 {
			t.Errorf("no packet was counted as %s: %v", name, b.seen)
		}
	}
}
