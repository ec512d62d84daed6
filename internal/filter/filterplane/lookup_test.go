// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"cmp"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/filter/cbpf"
	"culvert/internal/filter/cbpf/cbpftest"
	"culvert/internal/filter/filterset"
	"culvert/internal/filter/pcap"
	"culvert/internal/testbed"
)

// lookupRounds is set lower in a guest, which is ten times as slow.
var lookupRounds = flag.Int("lookups", 40, "filters with random rules, of which lookups find some")

// Values of rules, which frames of cbpftest have too, and some that they never have.
var (
	ruleHosts4 = []string{"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.77", "192.0.2.200", "10.0.0.1", "10.0.0.2", "10.99.3.4",
		"172.16.5.5", "198.51.100.9", "203.0.113.1", "203.0.113.2", "203.0.113.3", "203.0.113.4"}
	ruleHosts6 = []string{"2001:db8::1", "2001:db8::2", "2001:db8:1::5", "2001:db9::1", "fe80::1", "2001:db8:7::1", "2001:db8:7::2",
		"2001:db8:8::1", "2001:db8:8::2"}
	rulePorts = []string{"53", "80", "443", "123", "22", "1500", "33440", "5000", "40000", "7", "8", "9"}
	ruleNets4 = []string{"192.0.2.0/24", "10.0.0.0/24", "10.99.3.0/24", "172.16.5.0/24", "198.51.100.0/24", "203.0.113.0/24",
		"203.0.112.0/24", "203.0.111.0/24", "203.0.110.0/24"}
	ruleNets6 = []string{"2001:db8::/48", "2001:db8:1::/48", "2001:db9::/48", "fe80::/48", "2001:db8:7::/48", "2001:db8:8::/48",
		"2001:db8:9::/48", "2001:db8:a::/48"}
	ruleTags = []string{"100", "200", "300", "5", "6", "7", "8", "9", "10"}
	ruleMACs = []string{"02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03", "02:00:00:00:00:04", "02:00:00:00:00:05",
		"02:00:00:00:00:06", "02:00:00:00:00:07", "02:00:00:00:00:08"}
)

// shapeExpr is an expression, and what may stand in the places of its values.
type shapeExpr struct {
	expr   string
	values [][]string
}

// ruleShapes are expressions that lookups find.
var ruleShapes = []shapeExpr{
	{"ip and src host %s and udp dst port %s", [][]string{ruleHosts4, rulePorts}},
	{"src host %s", [][]string{ruleHosts4}},
	{"ip host %s", [][]string{ruleHosts4}},
	{"host %s", [][]string{ruleHosts4}},
	{"arp host %s", [][]string{ruleHosts4}},
	{"port %s", [][]string{rulePorts}},
	{"tcp dst port %s", [][]string{rulePorts}},
	{"udp src port %s", [][]string{rulePorts}},
	{"net %s", [][]string{ruleNets4}},
	{"dst net %s and tcp dst port %s", [][]string{ruleNets4, rulePorts}},
	{"host %s", [][]string{ruleHosts6}},
	{"src host %s and udp dst port %s", [][]string{ruleHosts6, rulePorts}},
	{"src net %s", [][]string{ruleNets6}},
	{"tcp port %s and tcp[tcpflags] & tcp-syn != 0", [][]string{rulePorts}},
	{"src host %s and dst host %s", [][]string{ruleHosts4, ruleHosts4}},
	{"vlan %s and ip", [][]string{ruleTags}},
	{"ether src %s", [][]string{ruleMACs}},
	{"ether host %s", [][]string{ruleMACs}},
	{"icmp and dst host %s", [][]string{ruleHosts4}},
	{"src host %s and dst port %s", [][]string{ruleHosts4, rulePorts}},
	{"ip and udp src port %s and dst port %[1]s", [][]string{rulePorts}},
	{"host %s and port %s", [][]string{ruleHosts4, rulePorts}},
	{"host %s and len > 100", [][]string{ruleHosts4}},
	{"host %s and tcp port %s", [][]string{ruleHosts6, rulePorts}},
	{"tcp port %s and host 192.0.2.1", [][]string{rulePorts}},
	{"host %s and not port 53", [][]string{ruleHosts4}},
}

// plainShapes are expressions that lookups do not find, in the same form.
var plainShapes = []shapeExpr{
	{"not port %s", [][]string{rulePorts}},
	{"src host %s or dst port %s", [][]string{ruleHosts4, rulePorts}},
	{"portrange 1-%s", [][]string{rulePorts}},
}

// shapedRules appends n rules of a shape with random values, drop or pass.
func shapedRules(t *testing.T, rng *rand.Rand, s shapeExpr, n int, rules []Rule) []Rule {
	t.Helper()
	for range n {
		var words []any
		for _, v := range s.values {
			words = append(words, v[rng.IntN(len(v))])
		}
		expr := fmt.Sprintf(s.expr, words...)
		code, err := pcap.Compile(expr)
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		rules = append(rules, Rule{Action: []Action{Drop, Drop, Pass}[rng.IntN(3)], Code: code, Expr: expr})
	}
	return rules
}

// randomShape returns n programs of a random template, which have a shape.
func randomShape(rng *rand.Rand, n int) [][]bpf.RawInstruction {
	const jeq = 0x15
	constants := []uint32{0x800, 0x86dd, 0x806, 0x8100, 1, 2, 6, 17, 53, 80, 0, 0x45, 0xc0000201, 0x0a000001, 0x14, 64, 255, 8}
	for {
		s := &cbpftest.Source{Rand: rng}
		p := cbpftest.Program(s, 14)
		var programs []cbpf.Program
		for range n {
			q := slices.Clone(p)
			for k := range q {
				if q[k].Op == jeq && rng.IntN(2) == 0 {
					q[k].K = constants[rng.IntN(len(constants))]
				}
			}
			programs = append(programs, q)
		}
		if s := cbpf.NewShape(programs); s == nil || len(s.Runs) == 0 {
			continue
		}
		all := make([][]bpf.RawInstruction, n)
		for k, q := range programs {
			all[k] = q
		}
		return all
	}
}

// TestFilterLookups compares filters whose rules are found by lookups with the same filters whose rules are tried one after the other:
// random rules of a few shapes, in random order and with others between them. Each packet gets the same verdict and is counted under
// the same counters.
func TestFilterLookups(t *testing.T) {
	const least = 8
	shapes := slices.Concat(ruleShapes, plainShapes)
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	from := []uint32{0}
	for _, name := range []string{"v0", "v1"} {
		dev, err := net.InterfaceByName(name)
		if err != nil {
			t.Fatal(err)
		}
		from = append(from, uint32(dev.Index))
	}
	var byLookup, decided, short, rounds int
	for round := range uint64(*lookupRounds) {
		rng := rand.New(rand.NewPCG(20, round))
		var rules []Rule
		for k := range 1 + rng.IntN(4) {
			n := least + rng.IntN(3*least)
			if k == 0 && round%4 == 3 {
				for _, code := range randomShape(rng, n) {
					rules = append(rules, Rule{Action: []Action{Drop, Pass}[rng.IntN(2)], Code: code})
				}
				continue
			}
			rules = shapedRules(t, rng, shapes[rng.IntN(len(shapes))], n, rules)
		}
		for range rng.IntN(6) { // single rules
			rules = shapedRules(t, rng, shapes[rng.IntN(len(shapes))], 1, rules)
		}
		for n := range rules {
			switch r := &rules[n]; rng.IntN(24) {
			case 0, 1:
				r.Action = Count
			case 2:
				r.Action, r.Rate = Limit, &Rate{Rate: 1, Per: PerSrc} // in a Tester it counts
			case 3:
				r.Src = []SetRef{{Set: "some", Not: rng.IntN(2) == 0}}
			case 4, 5, 6, 7:
				r.Interfaces = []string{"v0"}
			case 8, 9, 10, 11:
				r.Interfaces = []string{"v1"}
			}
		}
		rng.Shuffle(len(rules), func(a, b int) { rules[a], rules[b] = rules[b], rules[a] })
		for n := range rules {
			rules[n].Name = fmt.Sprintf("rule%d", n)
		}
		f := Filter{Rules: rules, Sets: []Set{{Name: "some"}}}
		members := TesterSets{Prefixes: map[string]*filterset.Prefixes{"some": parsePrefixes(t, "192.0.2.0/24")}}
		var testers [2]*Tester
		for k := range testers {
			var err error
			if testers[k], err = newTesterWithSets(f, members, [2]int{maxRules + 1, least}[k]); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		parts := true // before 6.18 a test run cannot leave bytes to a second buffer
		for k := range testers {
			if _, _, err := testers[k].run(make([]byte, 60), bpfobj.XDPMD{DataEnd: 20}); errors.Is(err, unix.EINVAL) {
				parts = false
			} else if err != nil {
				t.Fatal(err)
			}
		}
		found := testers[1].prog.found
		for n, frame := range append(cbpftest.Frames(rng, 160), cutFrames(rng)...) {
			md := bpfobj.XDPMD{DataEnd: uint32(len(frame)), IngressIfindex: from[n%3]}
			if parts && n%5 == 0 {
				md.DataEnd = uint32(min(len(frame), cbpftest.MinFrame+rng.IntN(60)))
			}
			var got [2]Verdict
			for k := range testers {
				var err error
				if got[k], _, err = testers[k].run(frame, md); err != nil {
					t.Fatal(err)
				}
			}
			if !reflect.DeepEqual(got[0], got[1]) {
				for _, r := range rules {
					t.Log(r.Name, r.Action, r.Interfaces, r.Src, cmp.Or(r.Expr, cbpf.Program(r.Code).String()))
				}
				t.Fatalf("round %d, frame %d of %d bytes: %d in the first buffer: with lookups %+v, want %+v\n%s", round, n, len(frame),
					md.DataEnd, got[1], got[0], hex.EncodeToString(frame))
			}
			if got[0].Rule != "" {
				decided++
			}
			if got[0].Short {
				short++
			}
		}
		var counted [2][]Traffic
		for k := range testers {
			for n := range counterRules + 2*len(rules) {
				c, err := readCount(testers[k].maps[bpfobj.FilterMapFilterCounts], n)
				if err != nil {
					t.Fatal(err)
				}
				counted[k] = append(counted[k], c)
			}
		}
		if !slices.Equal(counted[0], counted[1]) {
			t.Errorf("round %d: counted %v with lookups, want %v", round, counted[1], counted[0])
		}
		for k := range testers {
			testers[k].Close()
		}
		if found > 0 {
			rounds++
		}
		byLookup += found
	}
	t.Logf("%d rounds with lookups, of %d rules; %d frames had a rule, %d were short", rounds, byLookup, decided, short)
	if rounds < *lookupRounds/2 || decided < 30**lookupRounds || short < 20**lookupRounds {
		t.Error("the test compares too little")
	}
}

// cutFrames returns frames that end at each byte of their headers.
func cutFrames(rng *rand.Rand) (all [][]byte) {
	for range 4 {
		frame := cbpftest.Frame(rng)
		for n := cbpftest.MinFrame; n <= min(len(frame), 66); n++ {
			all = append(all, frame[:n])
		}
	}
	return all
}

// TestFilterShapes says which expressions lookups find, as docs/filter.md does.
func TestFilterShapes(t *testing.T) {
	rng := rand.New(rand.NewPCG(20, 20))
	for n, s := range slices.Concat(ruleShapes, plainShapes) {
		var programs []cbpf.Program
		for _, r := range shapedRules(t, rng, s, 30, nil) {
			programs = append(programs, r.Code)
		}
		if found := cbpf.NewShape(programs) != nil; found != (n < len(ruleShapes)) {
			t.Errorf("%s: a lookup finds it: %v", s.expr, found)
		}
	}
}

// TestFilterOneShape has the most rules that there can be, of one shape, in which values come twice: the first rule with them decides.
func TestFilterOneShape(t *testing.T) {
	inst := filterBed(t, false)
	var rules []Rule
	for k := range maxRules {
		code, err := pcap.Compile(fmt.Sprintf("src host %v", netip.AddrFrom4([4]byte{192, 0, byte(2 + k%2048>>8), byte(k)})))
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, Rule{Name: fmt.Sprint(k), Action: Drop, Code: code})
	}
	mustEdit(t, inst, func(f *Filter) { f.Rules = rules })
	byLookup := func(want int) {
		t.Helper()
		if n, err := ByLookup(inst); err != nil || n != want {
			t.Errorf("%d rules by lookup, %v, want %d", n, err, want)
		}
	}
	byLookup(maxRules)
	from := func(third, last byte, n int) []byte {
		f := protoFrame(1, n)
		f[28], f[29] = third, last
		return f
	}
	packets := func(want map[string]uint64, short uint64) {
		t.Helper()
		c, err := ReadCounters(inst)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]uint64{}
		for _, r := range c.Rules {
			if r.Matched.Packets > 0 {
				got[r.Name] = r.Matched.Packets
			}
		}
		if !reflect.DeepEqual(got, want) || c.Short.Packets != short {
			t.Errorf("counted %v and %d short, want %v and %d", got, c.Short.Packets, want, short)
		}
	}
	for _, n := range []int{42, 59, 60, 1400} {
		wantRun(t, inst, from(2, 1, n), "v0", testbed.XDPDrop)
		wantRun(t, inst, from(9, 255, n), "v2", testbed.XDPDrop)
		wantRun(t, inst, from(10, 0, n), "v0", testbed.XDPPass)
	}
	wantRun(t, inst, from(2, 1, 60)[:29], "v0", testbed.XDPPass)
	packets(map[string]uint64{"1": 4, "2047": 4}, 1)

	// Another process takes the filter over. A rule goes, and the next one with its values counts. A rule in front passes.
	inst.Close()
	inst = attachFilterBed(t, false)
	byLookup(maxRules)
	wantRun(t, inst, from(9, 255, 60), "v2", testbed.XDPDrop)
	packets(map[string]uint64{"1": 4, "2047": 5}, 1)
	mustEdit(t, inst, func(f *Filter) {
		f.Rules = slices.DeleteFunc(f.Rules, func(r Rule) bool { return r.Name == "2047" })
	})
	wantRun(t, inst, from(9, 255, 60), "v2", testbed.XDPDrop)
	packets(map[string]uint64{"1": 4, "4095": 1}, 1)
	mustEdit(t, inst, func(f *Filter) {
		last := len(f.Rules) - 1
		f.Rules[last].Action = Pass
		f.Rules = append([]Rule{f.Rules[last]}, f.Rules[:last]...)
	})
	wantRun(t, inst, from(9, 255, 60), "v2", testbed.XDPPass)
	wantRun(t, inst, from(2, 1, 60), "v2", testbed.XDPDrop)
	packets(map[string]uint64{"1": 5, "4095": 2}, 1)

	// Fewer rules than make a lookup worth it.
	mustEdit(t, inst, func(f *Filter) { f.Rules = f.Rules[:minLookup-1] })
	byLookup(0)
	wantRun(t, inst, from(9, 255, 60), "v2", testbed.XDPPass)
	wantRun(t, inst, from(2, 1, 60), "v2", testbed.XDPDrop)
	packets(map[string]uint64{"1": 6, "4095": 3}, 1)
}

// TestFilterLookupsBesideAll loads a filter that has everything, with rules in several functions and lookups of long keys: kernels limit
// the stack of functions that call each other.
func TestFilterLookupsBesideAll(t *testing.T) {
	inst := filterBed(t, false)
	var rules []Rule
	add := func(action Action, expr string, words ...any) {
		t.Helper()
		code, err := pcap.Compile(fmt.Sprintf(expr, words...))
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, Rule{Name: fmt.Sprint("rule", len(rules)), Action: action, Code: code})
	}
	const n = 400
	for k := range n {
		add(Count, "udp port %d and net 192.0.2.0/24", k+1)
		add(Drop, "ip6 and src host 2001:%x:3:%[1]x::%[1]x and dst host %[1]x:4:%[1]x:5:%[1]x:6:%[1]x:7 and udp dst port %[1]d", k+1)
		if k%4 == 0 {
			add(Pass, "tcp src port %d", k+1)
		}
	}
	rules[0].Src = []SetRef{{Set: "bad"}}
	rules = append(rules, Rule{Name: "slow", Action: Limit, Rate: &Rate{Rate: 1000, Per: PerSrc}}, Rule{Name: "noicmp", Action: Drop, Code: icmp})
	mustEdit(t, inst, func(f *Filter) {
		f.Sets, f.Rules, f.Top = []Set{{Name: "bad"}}, rules, TopSrc
		f.Services = []Service{{Addr: netip.MustParseAddrPort("192.0.2.9:80")}}
	})
	if found, err := ByLookup(inst); err != nil || found != n+n/4 {
		t.Errorf("%d rules by lookup, %v, want %d", found, err, n+n/4)
	}
	wantRun(t, inst, protoFrame(1, 60), "v0", testbed.XDPDrop)
	wantRun(t, inst, protoFrame(17, 60), "v0", testbed.XDPPass)
	tcp := protoFrame(6, 60)
	tcp[34], tcp[35] = 0, 5
	wantRun(t, inst, tcp, "v0", testbed.XDPPass)
	c, err := ReadCounters(inst)
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range map[int]uint64{11: 1, len(rules) - 2: 2, len(rules) - 1: 1} {
		if got := c.Rules[k]; got.Matched.Packets != want {
			t.Errorf("%s has counted %d packets, want %d", got.Name, got.Matched.Packets, want)
		}
	}
}
