// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/filter/cbpf/cbpftest"
	"culvert/internal/filter/filterset"
	"culvert/internal/filter/pcap"
	"culvert/internal/testbed"
)

// tagsOf returns the VLAN tags of a frame that the kernel knows. Whole is false if the frame ends within them or right after
// them.
func tagsOf(frame []byte) (tags [][]byte, whole bool) {
	for at := 12; ; at += 4 {
		if at+2 > len(frame) {
			return tags, false
		}
		if kind := binary.BigEndian.Uint16(frame[at:]); kind != 0x8100 && kind != 0x88a8 {
			return tags, true
		}
		if at+6 > len(frame) {
			return tags, false
		}
		tags = append(tags, frame[at:at+4])
	}
}

func isPriority(tag []byte) bool { return tag[2]&15 == 0 && tag[3] == 0 }

// withoutPriority returns a frame without tags of VLAN 0, as the kernel receives it.
func withoutPriority(frame []byte) []byte {
	tags, _ := tagsOf(frame)
	out := slices.Clone(frame[:12])
	for _, tag := range tags {
		if !isPriority(tag) {
			out = append(out, tag...)
		}
	}
	return append(out, frame[12+4*len(tags):]...)
}

// withPriority adds n tags of VLAN 0 to a frame, at random positions among its tags.
func withPriority(rng *rand.Rand, frame []byte, n int) []byte {
	for range n {
		tags, _ := tagsOf(frame)
		tag := []byte{0x81, 0, byte(rng.IntN(16)) << 4, 0}
		if rng.IntN(2) == 0 {
			tag[0], tag[1] = 0x88, 0xa8
		}
		at := 12 + 4*rng.IntN(len(tags)+1)
		frame = slices.Concat(frame[:at], tag, frame[at:])
	}
	return frame
}

// expressionTester returns a tester with a rule for each of cbpftest.Expressions, and libpcap's judges of them by the rules'
// names.
func expressionTester(t *testing.T) (*Tester, map[string]*pcap.Judge) {
	t.Helper()
	judges := make(map[string]*pcap.Judge)
	f := Filter{}
	for n, e := range cbpftest.Expressions {
		code, err := pcap.Compile(e)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprint("e", n)
		if judges[name], err = pcap.NewJudge(code); err != nil {
			t.Fatal(err)
		}
		f.Rules = append(f.Rules, Rule{Name: name, Action: Count, Code: code, Expr: e})
	}
	tester, err := NewTester(nil, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tester.Close)
	return tester, judges
}

// TestFilterPriorityTags adds tags of VLAN 0 to frames. An expression matches such a frame if libpcap says that it matches the
// frame without these tags. The frame goes on unchanged.
func TestFilterPriorityTags(t *testing.T) {
	testbed.InNamespace(t)
	tester, judges := expressionTester(t)
	// Before 6.18 a test run cannot leave bytes to a second buffer.
	_, _, err := tester.run(make([]byte, 60), bpfobj.XDPMD{DataEnd: 20})
	if err != nil && !errors.Is(err, unix.EINVAL) {
		t.Fatal(err)
	}
	parts := err == nil
	rng := rand.New(rand.NewPCG(14, 3))
	var matched, dropped, hidden int
	for n, frame := range cbpftest.Frames(rng, 4000) {
		frame = withPriority(rng, frame, []int{0, 1, 1, 1, 2, 3, 6, 8}[n/8%8])
		first := len(frame)
		if parts && n%5 == 0 {
			first = min(first, cbpftest.MinFrame+rng.IntN(60))
		}
		v, out, err := tester.run(frame, bpfobj.XDPMD{DataEnd: uint32(first)})
		if err != nil {
			t.Fatal(err)
		}
		fail := func(format string, args ...any) {
			t.Helper()
			t.Errorf("frame of %d bytes, %d in the first buffer: %s: %s", len(frame), first, fmt.Sprintf(format, args...),
				hex.EncodeToString(frame[:min(len(frame), 100)]))
		}
		tags, _ := tagsOf(frame)
		bare := withoutPriority(frame)
		left, _ := tagsOf(bare)
		// What the filter cannot look behind, but the kernel can.
		_, whole := tagsOf(frame[:first])
		beyond := len(tags) > 8 || len(left) > 2 && len(left) < len(tags) || !whole && first < len(frame)
		if beyond {
			dropped++
			if v.Action != Drop || v.Reason != "filter-tags" || len(v.Matched) != 0 {
				fail("%+v, not dropped", v)
			}
			continue
		}
		if v.Action != Pass || v.Reason != "" {
			fail("%+v", v)
			continue
		}
		if !bytes.Equal(out, frame) {
			fail("goes on as %x", out[:min(len(out), 100)])
		}
		if len(bare) < len(frame) {
			hidden++
		}
		for name, j := range judges {
			want := j.Match(bare, len(bare))
			if got := slices.Contains(v.Matched, name); got != want {
				fail("%s: libpcap matches: %v, the filter: %v", name, want, got)
			} else if got {
				matched++
			}
		}
	}
	t.Logf("%d matches, %d frames dropped, %d with tags of VLAN 0 judged", matched, dropped, hidden)
	if matched < 10000 || dropped < 100 || hidden < 1000 {
		t.Error("want at least 10,000 matches, 100 frames dropped and 1,000 with tags of VLAN 0")
	}
}

// TestFilterHeadersInAnotherBuffer puts headers into a second buffer, which the filter does not read for sets. The packet is
// dropped if a set needs these headers. A packet that ends after its first buffer is not dropped.
func TestFilterHeadersInAnotherBuffer(t *testing.T) {
	testbed.InNamespace(t)
	members := TesterSets{Endpoints: map[string]filterset.Endpoints{"service": {netip.MustParseAddrPort("192.0.2.2:80"): filterset.Never}}}
	for _, c := range []struct {
		endpoints bool
		least     int // bytes that the first buffer has to have
	}{{false, 34}, {true, 38}} {
		tester, err := NewTesterWithSets(Filter{
			Sets:  []Set{{Name: "service", Endpoints: c.endpoints}},
			Rules: []Rule{{Name: "all", Action: Count, Dst: []SetRef{{Set: "service", Not: true}}}},
		}, members)
		if err != nil {
			t.Fatal(err)
		}
		defer tester.Close()
		for _, first := range []int{14, 20, 33, 34, 37, 38, 60} {
			v, _, err := tester.run(protoFrame(6, 60), bpfobj.XDPMD{DataEnd: uint32(first)})
			if errors.Is(err, unix.EINVAL) && first < 60 {
				continue // before 6.18
			}
			if err != nil {
				t.Fatal(err)
			}
			if dropped := v.Reason == "filter-headers" && v.Action == Drop; dropped != (first < c.least) {
				t.Errorf("endpoints %v, %d bytes in the first buffer: %+v", c.endpoints, first, v)
			}
			if v, _, err = tester.run(protoFrame(6, 60)[:first], bpfobj.XDPMD{DataEnd: uint32(first)}); err != nil || v.Action != Pass {
				t.Errorf("endpoints %v, %d bytes in all: %+v, %v", c.endpoints, first, v, err)
			}
		}
	}
}
