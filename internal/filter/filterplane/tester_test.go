// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"reflect"
	"testing"

	"culvert/internal/bpfobj"
	"culvert/internal/filter/filterset"
	"culvert/internal/testbed"
)

// TestFilterTesterNames has many rules count a packet before the last rule decides. The verdict names them all.
func TestFilterTesterNames(t *testing.T) {
	testbed.InNamespace(t)
	for _, n := range []int{70, maxRules} {
		f := Filter{}
		for k := range n - 1 {
			f.Rules = append(f.Rules, Rule{Name: fmt.Sprint("count", k), Action: Count})
		}
		f.Rules = append(f.Rules, Rule{Name: "noicmp", Action: Drop, Code: icmp})
		tester, err := NewTester(nil, f)
		if err != nil {
			t.Fatal(err)
		}
		defer tester.Close()
		var names []string
		for _, r := range f.Rules {
			names = append(names, r.Name)
		}
		for _, tt := range []struct {
			name  string
			proto byte
			want  Verdict
		}{
			{"ICMP", 1, Verdict{Action: Drop, Rule: "noicmp", Matched: names}},
			{"UDP", 17, Verdict{Action: Pass, Matched: names[:n-1]}},
		} {
			if got, err := tester.Run(protoFrame(tt.proto, 60), ""); err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%d rules: %s: %s by rule %q, %d matched, %v; want %s by rule %q, %d matched", n, tt.name,
					got.Action, got.Rule, len(got.Matched), err, tt.want.Action, tt.want.Rule, len(tt.want.Matched))
			}
		}
	}
}

// TestFilterPortsWithinPacket puts bytes that look like ports behind the end of a packet. Only ports within the packet, as its
// headers state its length, are looked up.
func TestFilterPortsWithinPacket(t *testing.T) {
	testbed.InNamespace(t)
	set := filterset.Endpoints{
		netip.MustParseAddrPort("192.0.2.2:53"):     filterset.Never,
		netip.MustParseAddrPort("[2001:db8::2]:53"): filterset.Never,
	}
	f := Filter{
		Sets:  []Set{{Name: "dns", Endpoints: true}},
		Rules: []Rule{{Name: "nodns", Action: Drop, Dst: []SetRef{{Set: "dns"}}}},
	}
	tester, state, err := newTester(&filterState{}, nil, f, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tester.Close()
	members, err := newEndpoints(set)
	if err != nil {
		t.Fatal(err)
	}
	defer members.Close()
	if err := putSet(tester.maps[bpfobj.FilterMapFilterEndpoints], uint32(state.Sets["dns"]), members); err != nil {
		t.Fatal(err)
	}
	ports := []byte{0x30, 0x39, 0, 53, 0, 8, 0, 0}
	// v4 and v6 return a packet with rest behind its IP header, which states the protocol and the length of what follows it.
	v4 := func(proto byte, length int, rest ...byte) []byte {
		b := protoFrame(proto, 34)
		binary.BigEndian.PutUint16(b[16:], uint16(20+length))
		return append(b, rest...)
	}
	v6 := func(next byte, length int, rest ...byte) []byte {
		b := make([]byte, 54)
		b[12], b[13], b[14], b[20], b[21] = 0x86, 0xdd, 0x60, next, 64
		binary.BigEndian.PutUint16(b[18:], uint16(length))
		copy(b[22:], netip.MustParseAddr("2001:db8::1").AsSlice())
		copy(b[38:], netip.MustParseAddr("2001:db8::2").AsSlice())
		return append(b, rest...)
	}
	// Extension headers in front of the ports of UDP: hop-by-hop or destination options, a first fragment, authentication.
	options := append([]byte{17, 0, 1, 4, 0, 0, 0, 0}, ports...)
	fragment := append([]byte{17, 0, 0, 1, 0, 0, 0, 7}, ports...)
	auth := append([]byte{17, 1, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0}, ports...)
	for name, c := range map[string]struct {
		frame []byte
		rule  string
	}{
		"v4":                            {v4(17, 8, ports...), "nodns"},
		"v4, ports and no more":         {v4(17, 4, ports...), "nodns"},
		"v4, a byte less":               {v4(17, 3, ports...), ""},
		"v4, nothing":                   {v4(17, 0, ports...), ""},
		"v4, nothing of TCP":            {v4(6, 0, ports...), ""},
		"v6":                            {v6(17, 8, ports...), "nodns"},
		"v6, ports and no more":         {v6(17, 4, ports...), "nodns"},
		"v6, a byte less":               {v6(17, 3, ports...), ""},
		"v6, nothing":                   {v6(17, 0, ports...), ""},
		"v6, options":                   {v6(60, 16, options...), "nodns"},
		"v6, nothing behind options":    {v6(60, 8, options...), ""},
		"v6, half of the options":       {v6(60, 7, options...), ""},
		"v6, no options":                {v6(60, 0, options...), ""},
		"v6, fragment":                  {v6(44, 16, fragment...), "nodns"},
		"v6, nothing of the fragment":   {v6(44, 8, fragment...), ""},
		"v6, half of its header":        {v6(44, 4, fragment...), ""},
		"v6, authentication":            {v6(51, 20, auth...), "nodns"},
		"v6, nothing authenticated":     {v6(51, 12, auth...), ""},
		"v6, hop-by-hop":                {v6(0, 16, options...), "nodns"},
		"v6, nothing behind hop-by-hop": {v6(0, 8, options...), ""},
		"v6, length 0 and hop-by-hop":   {v6(0, 0, options...), "nodns"}, // the kernel then takes what the frame has
	} {
		for _, pad := range []int{0, 20} {
			v, err := tester.Run(append(c.frame[:len(c.frame):len(c.frame)], make([]byte, pad)...), "")
			if err != nil || v.Rule != c.rule || v.Malformed || v.Short {
				t.Errorf("%s, %d bytes more: %+v, %v, not rule %q", name, pad, v, err, c.rule)
			}
		}
	}
}
