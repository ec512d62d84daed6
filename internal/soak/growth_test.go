// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// over returns the names of the gauges that have grown too much.
func over(t *testing.T, samples []sample) (names []string) {
	t.Helper()
	all, _ := grown(samples)
	for _, g := range all {
		if g.last > g.limit() {
			names = append(names, g.name)
		}
	}
	return names
}

// TestGrown wants a gauge that grows to be seen, and one that goes up and down not.
func TestGrown(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var samples []sample
	for n := range 360 {
		samples = append(samples, sample{at: time.Duration(n) * time.Second, pid: 7, usual: true, values: map[string]float64{
			processMemory: 250 + 80*rng.Float64(), "open files": 60 + float64(n)/8, "pins": 30,
		}})
	}
	if got := over(t, samples); fmt.Sprint(got) != "[open files]" {
		t.Errorf("%q have grown, want the open files alone", got)
	}
	all, short := grown(samples[:7])
	if all != nil || len(short) != len(gauges) {
		t.Errorf("of seven samples %v, too few for %q", all, short)
	}
}

// TestGrownLikeWithLike wants samples with other configurations, and with other processes, to be compared with none.
func TestGrownLikeWithLike(t *testing.T) {
	var samples []sample
	for n := range 200 {
		x := sample{pid: 7, usual: true, values: map[string]float64{mapMemory: 92, liveHeap: 30, heapObjects: 90000}}
		if n < 70 && n%3 > 0 { // without routes for most of the beginning
			x.usual, x.values[mapMemory], x.values[liveHeap] = false, 23, 1
		}
		if n < 50 { // a process that ended soon
			x.pid, x.values[liveHeap] = 6, 5
		}
		samples = append(samples, x)
	}
	if got := over(t, samples); got != nil {
		t.Errorf("%q have grown", got)
	}
	for n := range samples {
		samples[n].values[mapMemory] += float64(n) / 10
		samples[n].values[heapObjects] += float64(n) * 500
	}
	if got := fmt.Sprint(over(t, samples)); got != fmt.Sprint([]string{heapObjects, mapMemory}) {
		t.Errorf("%s have grown", got)
	}
}

// TestUsual wants the usual configuration to be drawn often, and to be known.
func TestUsual(t *testing.T) {
	rng, usual := rand.New(rand.NewPCG(1, 2)), 0
	for range 100 {
		if another(rng).isUsual() {
			usual++
		}
	}
	if usual < 30 || usual > 70 {
		t.Errorf("%d of 100 configurations are the usual one", usual)
	}
	for _, w := range []wish{{noRoute: true}, {largeMirror: true}, {entries: 9}, {workers: true, weights: [2]int{1, 1}}} {
		if w.isUsual() {
			t.Errorf("%+v is the usual configuration", w)
		}
	}
}

func TestMapsGrown(t *testing.T) {
	got := mapsGrown(sample{maps: map[string]uint64{"a": 1 << 20, "b": 5 << 10, "c": 9 << 10}},
		sample{maps: map[string]uint64{"a": 3 << 20, "b": 4 << 10, "c": 10 << 10, "d": 7 << 10}})
	if want := "a by 2048 KiB, d by 7 KiB, c by 1 KiB"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestBondLines wants what a guest prints to be added up, and failures to be told.
func TestBondLines(t *testing.T) {
	b := &bonds{test: "x"}
	var told []string
	b.read(strings.NewReader(`=== RUN   TestBonds/lost/veth/lacp
    bondlost_guest_test.go:72: near end down, 3 times: of 1600 packets each, 2 were lost through culvert and 46 through the kernel; counted as lost so far: 0
        --- PASS: TestBonds/lost/veth/lacp (7.21s)
    bondlost_guest_test.go:72: both ends down, 3 times: of 1700 packets each, 50 were lost through culvert and 46 through the kernel; counted as lost so far: 0
    bondlost_guest_test.go:76: both ends down: culvert's stream has lost 50 packets, the kernel's 46
        --- FAIL: TestBonds/lost/veth/backup (8.00s)
    --- FAIL: TestBonds/lost (16.00s)
`), func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) })
	if b.lost != 6 || b.sent != 3300 || b.culverts != 52 || b.kernels != 92 || b.passed != 1 || b.failed != 1 {
		t.Errorf("%+v", b)
	}
	if len(told) != 1 || !strings.Contains(told[0], "has lost 50 packets") {
		t.Errorf("told %q", told)
	}
	var page strings.Builder
	if troubles := b.page(&page); troubles != nil || !strings.Contains(page.String(), "of 3300 packets by each of two streams, culvert has lost 52, the kernel's bonding beside it 92") {
		t.Errorf("%q, troubles %q", page.String(), troubles)
	}
	if troubles := (&bonds{test: "x"}).page(&page); len(troubles) != 1 {
		t.Errorf("a guest that has come to nothing: %q", troubles)
	}
}
