// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/filter/cbpf"
)

/*
Rules of one shape, whose code differs in constants alone, are found by a lookup: a function runs the code of all of them once (see
cbpf.Shape), and looks up the values that it has found in the packet. What it finds is the first rule with these values. The function
is called where the first of the rules would be. Rules of other shapes may be between them: what has been found takes effect before
the first rule behind it, or at the end. Where values do not tell which rules read beyond the end of a packet, the rules are tried one
after the other, for that packet.

Only rules that drop or pass are found so, because no rule behind one that matches sees the packet. They have no sets, and the same
interfaces.
*/
type lookup struct {
	shape  *cbpf.Shape
	rules  []int // places of the rules among all, in their order
	number int   // from 1 on
	ids    map[uint32]uint32
}

const (
	// minLookup is the number of rules of one shape from which on they are found by a lookup. It costs as much as 28 rules that do not
	// match, if a packet has all that they have in common.
	minLookup = 32
	// maxShapes bounds the functions of a program.
	maxShapes = 64
	// lookupValue is the size of what a map of lookups has for a key: the rule's rank and its number, as in struct flow_keys.
	lookupValue = 8
)

// rank returns the rank of a rule, by its place.
func rank(place int) uint32 { return uint32(maxRules - place) }

// found returns what struct flow_keys has of a rule that matches.
func (s *ruleStep) found() uint32 {
	n := uint32(s.counter) << 1
	if s.action == Drop {
		n |= 1
	}
	return n
}

// fits tells whether a rule may be found by a lookup.
func (s *ruleStep) fits() bool {
	return (s.action == Drop || s.action == Pass) && len(s.code) > 0 && len(s.sets) == 0
}

// lookupsOf returns the lookups for rules, in the order of their first rules. Each has at least least rules.
func lookupsOf(steps []ruleStep, least int) []*lookup {
	alike := make(map[string][]int)
	for n := range steps {
		if s := &steps[n]; s.fits() {
			key := fmt.Sprintln(s.anyInterface, s.ifindexes) + cbpf.Program(s.code).Template()
			alike[key] = append(alike[key], n)
		}
	}
	var all []*lookup
	for _, rules := range alike {
		if len(rules) < least {
			continue
		}
		programs := make([]cbpf.Program, len(rules))
		for k, n := range rules {
			programs[k] = steps[n].code
		}
		if shape := cbpf.NewShape(programs); shape != nil {
			all = append(all, &lookup{shape: shape, rules: rules})
		}
	}
	first := func(a, b *lookup) int { return a.rules[0] - b.rules[0] }
	slices.SortFunc(all, func(a, b *lookup) int { return cmp.Or(len(b.rules)-len(a.rules), first(a, b)) })
	all = all[:min(len(all), maxShapes)]
	slices.SortFunc(all, first)
	return all
}

// lookupMap returns the name of the map with keys of that many words.
func lookupMap(words int) string { return fmt.Sprintf("filter_shape_%d", words) }

// words is the number of words of the lookup's keys. The first one is an ID, because lookups share maps: a program has at most 64.
func (l *lookup) words() int { return 1 + l.shape.Values }

// id returns the first word of the keys of rules by some of their values.
func (l *lookup) id(values uint32) uint32 { return l.ids[values] }

// allValues stands for all values of the lookup's rules.
func (l *lookup) allValues() uint32 { return 1<<l.shape.Values - 1 }

// lookupMaps returns the maps for lookups, by their names, and numbers the lookups.
func lookupMaps(lookups []*lookup, steps []ruleStep) map[string]*ebpf.MapSpec {
	all := make(map[string]*ebpf.MapSpec)
	id := uint32(0)
	for n, l := range lookups {
		l.number, l.ids = n+1, make(map[uint32]uint32)
		name := lookupMap(l.words())
		m := all[name]
		if m == nil {
			// The seed of the hash is no secret: keys come from rules alone, and a packet can only look. With the same one each time, a
			// rule costs the same after each change.
			m = &ebpf.MapSpec{Name: name, Type: ebpf.Hash, KeySize: uint32(4 * l.words()), ValueSize: lookupValue, Flags: unix.BPF_F_ZERO_SEED}
			all[name] = m
		}
		for _, values := range l.keys() {
			id++
			l.ids[values] = id
			m.Contents = append(m.Contents, l.contents(values, steps)...)
		}
		m.MaxEntries = uint32(len(m.Contents))
	}
	return all
}

// keys returns by which values rules are looked up: by all, and by those that are known where a packet may be too short.
func (l *lookup) keys() []uint32 {
	keys := []uint32{l.allValues()}
	for _, r := range l.shape.Runs {
		for _, values := range r.Cuts {
			if values != 0 && values != cbpf.Unknown && !slices.Contains(keys, values) {
				keys = append(keys, values)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// contents returns the keys of the lookup's rules by some of their values, each with the first rule that has them.
func (l *lookup) contents(values uint32, steps []ruleStep) (all []ebpf.MapKV) {
	seen := make(map[string]bool)
	for _, n := range l.rules {
		key := binary.NativeEndian.AppendUint32(nil, l.id(values))
		for k, v := range l.shape.ValuesOf(steps[n].code) {
			if values>>k&1 == 0 {
				v = 0
			}
			key = binary.NativeEndian.AppendUint32(key, v)
		}
		if seen[string(key)] {
			continue
		}
		seen[string(key)] = true
		value := binary.NativeEndian.AppendUint32(nil, rank(n))
		value = binary.NativeEndian.AppendUint32(value, steps[n].found())
		all = append(all, ebpf.MapKV{Key: key, Value: value})
	}
	return all
}

// looked returns how many rules are found by lookups.
func looked(lookups []*lookup) (n int) {
	for _, l := range lookups {
		n += len(l.rules)
	}
	return n
}
