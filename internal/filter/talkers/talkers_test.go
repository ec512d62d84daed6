// SPDX-License-Identifier: Apache-2.0

package talkers

import (
	"net/netip"
	"reflect"
	"testing"
)

func key(s string) Key { return Key{IP: true, Prefix: netip.MustParsePrefix(s)} }

func TestMerge(t *testing.T) {
	a, b, c, d := key("192.0.2.1/32"), key("192.0.2.2/32"), key("192.0.2.3/32"), key("2001:db8::/48")
	top := Merge([]Bucket{
		// Two CPUs, the same bucket: a is in both, b and c in one each.
		{Number: 3, Bytes: 1500, Full: true, Entries: []Entry{{a, 10, 0, 1000}, {b, 5, 4, 100}}},
		{Number: 3, Bytes: 900, Full: true, Entries: []Entry{{a, 4, 1, 300}, {c, 7, 0, 500}}},
		// A bucket with free entries: a key that is not in it has sent nothing there.
		{Number: 9, Bytes: 60, Entries: []Entry{{d, 1, 0, 60}}},
		{Number: 4},
	})
	want := Top{
		Packets: 27, Bytes: 2460, Missing: 9,
		Talkers: []Talker{{a, 14, 1, 1300}, {c, 12, 5, 500}, {b, 9, 8, 100}, {d, 1, 0, 60}},
	}
	if !reflect.DeepEqual(top, want) {
		t.Errorf("got  %+v\nwant %+v", top, want)
	}
	for n, missing := range map[int]uint64{0: 14, 1: 12, 2: 9, 3: 9, 4: 9, 100: 9} {
		first, m := top.First(n)
		if len(first) != min(n, 4) || m != missing {
			t.Errorf("first %d: %d talkers, others at most %d, want %d", n, len(first), m, missing)
		}
	}
	if empty := Merge(nil); !reflect.DeepEqual(empty, Top{}) {
		t.Errorf("of nothing: %+v", empty)
	}
}

func TestMergeOrder(t *testing.T) {
	var b Bucket
	for _, k := range []Key{{IP: true, Proto: 17, Port: 80}, {IP: true, Proto: 17, Port: 53}, {}, {IP: true, Proto: 6, Port: 80}, {IP: true}} {
		b.Entries = append(b.Entries, Entry{Key: k, Packets: 1})
	}
	var got []Key
	for _, talker := range Merge([]Bucket{b}).Talkers {
		got = append(got, talker.Key)
	}
	want := []Key{{}, {IP: true}, {IP: true, Proto: 6, Port: 80}, {IP: true, Proto: 17, Port: 53}, {IP: true, Proto: 17, Port: 80}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
