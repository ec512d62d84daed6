// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"reflect"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/filter/cbpf"
	"culvert/internal/filter/cbpf/cbpftest"
	"culvert/internal/filter/pcap"
)

// straightPair has the same rules in a program with a straight way and in one without.
type straightPair struct {
	inst  *datapath.Instance
	maps  [2]map[string]*ebpf.Map
	progs [2]*program
}

func newStraightPair(t *testing.T, inst *datapath.Instance, rules []Rule) *straightPair {
	t.Helper()
	state, err := (&filterState{}).succeed(Filter{Rules: rules}, nil)
	if err != nil {
		t.Fatal(err)
	}
	steps := state.steps(func(name string) (int, bool) {
		dev, err := net.InterfaceByName(name)
		return dev.Index, err == nil
	})
	p := &straightPair{inst: inst}
	for k := range p.progs {
		if p.maps[k], err = newMaps(nil); err != nil {
			t.Fatal(err)
		}
		c := programConfig{steps: steps, general: k == 1}
		if p.progs[k], err = loadProgram(&c, p.maps[k], datapath.Behind{Inst: inst}); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *straightPair) close() {
	for k := range p.progs {
		p.progs[k].close()
		closeMaps(p.maps[k])
	}
}

// severalBuffers tells whether a test run can leave bytes to a second buffer, as from 6.18 on.
func severalBuffers(t *testing.T, inst *datapath.Instance) bool {
	t.Helper()
	p := newStraightPair(t, inst, []Rule{{Name: "icmp", Action: Drop, Code: icmp}})
	defer p.close()
	_, err := p.progs[1].prog.Run(&ebpf.RunOptions{Data: make([]byte, 60), DataOut: make([]byte, 60), Context: bpfobj.XDPMD{DataEnd: 20}})
	if err != nil && !errors.Is(err, unix.EINVAL) {
		t.Fatal(err)
	}
	return err == nil
}

// ran is what has become of a frame.
type ran struct {
	action uint32
	out    []byte
}

// run runs frames through one of the programs. It returns what has become of each, and what the program has counted: for the rules, and
// for interfaces by their reasons.
func (p *straightPair) run(t *testing.T, k int, frames [][]byte, contexts []bpfobj.XDPMD) (all []ran, rules, ports []Traffic) {
	t.Helper()
	read := func(m *ebpf.Map, n int) (counts []Traffic) {
		for key := range n {
			c, err := readCount(m, key)
			if err != nil {
				t.Fatal(err)
			}
			counts = append(counts, c)
		}
		return counts
	}
	const ofPorts = 3 * 2 * bpfobj.ReasonCount
	before := read(p.inst.Map(bpfobj.FilterMapCounters), ofPorts)
	for n, frame := range frames {
		o := ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+64), Context: contexts[n]}
		action, err := p.progs[k].prog.Run(&o)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ran{action, o.DataOut})
	}
	ports = read(p.inst.Map(bpfobj.FilterMapCounters), ofPorts)
	for n, was := range before {
		ports[n].Packets -= was.Packets
		ports[n].Bytes -= was.Bytes
	}
	return all, read(p.maps[k][bpfobj.FilterMapFilterCounts], counterRules+2*maxStraight), ports
}

// withTags puts tags into a frame, some of them of VLAN 0, which the filter looks behind.
func withTags(rng *rand.Rand, frame []byte) []byte {
	var tags []byte
	for range 1 + rng.IntN(3) {
		tags = append(tags, [][]byte{{0x81, 0}, {0x88, 0xa8}}[rng.IntN(2)]...)
		tags = append(tags, [][]byte{{0, 0}, {0x20, 0}, {0, 100}}[rng.IntN(3)]...)
	}
	return slices.Concat(frame[:12], tags, frame[12:])
}

// TestFilterStraight compares filters that have a straight way with the same filters without it, as TestFilterLookups does lookups:
// random rules in random order. Each packet gets the same verdict, is as it was, and is counted under the same counters, also those of
// its interface.
func TestFilterStraight(t *testing.T) {
	inst := filterBed(t, true)
	var from []uint32
	for _, name := range []string{"v0", "v2", "v1"} { // the data plane is not on v1
		dev, err := net.InterfaceByName(name)
		if err != nil {
			t.Fatal(err)
		}
		from = append(from, uint32(dev.Index))
	}
	shapes := slices.Concat(ruleShapes, plainShapes, []shapeExpr{{"icmp", nil}, {"ip", nil}, {"ip proto 17", nil}, {"arp", nil}, {"", nil}})
	parts := severalBuffers(t, inst)
	var rounds, dropped, passed, tagged, short int
	for round := range uint64(*lookupRounds) {
		rng := rand.New(rand.NewPCG(21, round))
		var rules []Rule
		for range 1 + rng.IntN(8) {
			rules = shapedRules(t, rng, shapes[rng.IntN(len(shapes))], 1, rules)
		}
		if round%4 == 3 {
			for range 1 + rng.IntN(3) {
				rules = append(rules, Rule{Action: Drop, Code: cbpftest.Program(&cbpftest.Source{Rand: rng}, 14)})
			}
		}
		rng.Shuffle(len(rules), func(a, b int) { rules[a], rules[b] = rules[b], rules[a] })
		for n := range rules {
			rules[n].Name = fmt.Sprintf("rule%d", n)
			rules[n].Interfaces = [][]string{nil, nil, nil, {"v0"}, {"v2", "v0"}, {"v1"}}[rng.IntN(6)]
		}
		p := newStraightPair(t, inst, rules)
		if p.progs[1].straight {
			t.Fatal("the general program has a straight way")
		}
		frames := append(cbpftest.Frames(rng, 160), cutFrames(rng)...)
		for n := range 60 {
			frames = append(frames, withTags(rng, frames[n]))
		}
		contexts := make([]bpfobj.XDPMD, len(frames))
		for n, frame := range frames {
			contexts[n] = bpfobj.XDPMD{DataEnd: uint32(len(frame)), IngressIfindex: from[rng.IntN(len(from))]}
			if parts && n%5 == 0 {
				contexts[n].DataEnd = uint32(min(len(frame), cbpftest.MinFrame+rng.IntN(80)))
			}
		}
		got, rulesGot, portsGot := p.run(t, 0, frames, contexts)
		want, rulesWant, portsWant := p.run(t, 1, frames, contexts)
		say := func() {
			for _, r := range rules {
				t.Log(r.Name, r.Action, r.Interfaces, cmp.Or(r.Expr, cbpf.Program(r.Code).String()))
			}
		}
		for n := range frames {
			if got[n].action != want[n].action || !bytes.Equal(got[n].out, want[n].out) {
				say()
				t.Fatalf("round %d, frame %d of %d bytes: %d in the first buffer: action %d, want %d\n%s\n%s", round, n, len(frames[n]),
					contexts[n].DataEnd, got[n].action, want[n].action, hex.EncodeToString(frames[n]), hex.EncodeToString(got[n].out))
			}
		}
		if !reflect.DeepEqual(rulesGot, rulesWant) || !reflect.DeepEqual(portsGot, portsWant) {
			say()
			t.Fatalf("round %d: counted %v and for interfaces %v, want %v and %v", round, rulesGot, portsGot, rulesWant, portsWant)
		}
		if !p.progs[0].straight {
			p.close()
			continue
		}
		rounds++
		short += int(rulesWant[counterShort].Packets)
		for n, r := range rules {
			if r.Action == Drop {
				dropped += int(rulesWant[counterRules+2*n].Packets)
			} else {
				passed += int(rulesWant[counterRules+2*n].Packets)
			}
		}
		for n, frame := range frames {
			if len(frame) > 14 && frame[12] == 0x81 && want[n].action == xdpDropAction {
				tagged++
			}
		}
		p.close()
	}
	t.Logf("%d rounds: %d packets dropped, %d passed by a rule, %d short; %d with a tag dropped", rounds, dropped, passed, short, tagged)
	if all := *lookupRounds; rounds < all/2 || dropped < 20*all || passed < 2*all || short < 2*all || tagged < all/4 {
		t.Error("the test compares too little")
	}
}

// longRules are fewer than maxStraight, but too long for a straight way together.
func longRules(rules func(expr string, n int, action Action) []Rule) (all []Rule) {
	for k := range 34 {
		expr := fmt.Sprintf("udp and (port %%d or port %d", 20000+100*k)
		for n := range 90 {
			expr += fmt.Sprintf(" or port %d", 20001+100*k+n)
		}
		all = append(all, rules(expr+")", 1, Drop)...)
	}
	return all
}

// TestFilterStraightEffort has as many rules as a straight way takes, each of which may be the one that is counted behind them. What the
// verifier looks at is bounded. One rule more, or one that counts, and there is none.
func TestFilterStraightEffort(t *testing.T) {
	const mostEffort = 100_000
	inst := filterBed(t, true)
	rules := func(expr string, n int, action Action) (all []Rule) {
		for k := range n {
			code, err := pcap.Compile(fmt.Sprintf(expr, k+1))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, Rule{Name: fmt.Sprint(action, k), Action: action, Code: code})
		}
		return all
	}
	const few = minLookup - 1 // of one shape: more are looked up
	for _, tt := range []struct {
		name     string
		rules    []Rule
		straight bool
	}{
		{"all kinds", append(rules("tcp port %d and tcp[tcpflags] & tcp-syn != 0", few, Drop),
			rules("not port %d", maxStraight-few, Pass)...), true},
		{"one more", rules("not port %d", maxStraight+1, Drop), false},
		{"one that counts", append(rules("not port %d", 1, Count), rules("udp port %d", 1, Drop)...), false},
		{"long ones", longRules(rules), false},
		{"one that reads far", append(rules("ether[%d:2] = 77", 1, Drop), rules("ether[3%d00:2] = 77", 1, Drop)...), false},
	} {
		p := newStraightPair(t, inst, tt.rules)
		if p.progs[0].straight != tt.straight {
			t.Errorf("%s: a straight way: %v, want %v", tt.name, p.progs[0].straight, tt.straight)
		}
		info, err := p.progs[0].prog.Info()
		if err != nil {
			t.Fatal(err)
		}
		n, known := info.VerifiedInstructions()
		t.Logf("%s: %d instructions looked at", tt.name, n)
		if !known || n > mostEffort {
			t.Errorf("%s: the verifier looked at %d instructions, at most %d are wanted", tt.name, n, mostEffort)
		}
		p.close()
	}
}
