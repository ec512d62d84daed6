// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"runtime/pprof"
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

// TestHeapIn reads a profile as the process writes it.
func TestHeapIn(t *testing.T) {
	var text strings.Builder
	if err := pprof.Lookup("heap").WriteTo(&text, 1); err != nil {
		t.Fatal(err)
	}
	if bytes, objects, err := heapIn(text.String()); err != nil || bytes < 1<<16 || objects < 100 || bytes < 8*objects {
		t.Errorf("%f bytes, %f objects, %v", bytes, objects, err)
	}
	if _, _, err := heapIn("# HeapAlloc = 7\n"); err == nil {
		t.Error("no error without figures")
	}
}

// TestLeaks wants an object that is kept for each connection to be seen in an hour, and so many that come and go not.
func TestLeaks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for leak, want := range map[float64]string{0: "[]", 1: fmt.Sprint([]string{heapObjects})} {
		var samples []sample
		for n := range 144 { // one each 10 s of the last 24 minutes, with 28 connections a second
			samples = append(samples, sample{pid: 7, usual: n%2 == 0, values: map[string]float64{
				liveHeap: 105, heapObjects: 600_000 + 8000*rng.Float64() + leak*float64(280*n),
			}})
		}
		if got := fmt.Sprint(over(t, samples)); got != want {
			t.Errorf("with %.0f objects for each connection %s have grown, want %s", leak, got, want)
		}
	}
}

// TestFewSamples wants a long run that cannot say whether something grows to fail, and a short one not.
func TestFewSamples(t *testing.T) {
	for d, want := range map[time.Duration]int{time.Minute: 0, time.Hour: 1} {
		s := &soak{options: options{duration: d}, samples: []sample{{pid: 7, usual: true, values: map[string]float64{liveHeap: 1}}}}
		var page strings.Builder
		if got := s.memory(&page); len(got) != want || !strings.Contains(page.String(), "too few samples to say whether it grows: ") {
			t.Errorf("%s: troubles %q\n%s", d, got, page.String())
		}
	}
}

func TestTable(t *testing.T) {
	got := table([]sample{{at: 3 * time.Second, pid: 7, usual: true, values: map[string]float64{liveHeap: 1.5, "pins": 9}}, {at: 6 * time.Second}})
	lines := strings.Split(got, "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "second\tpid\tusual\t"+processMemory+"\t"+liveHeap) ||
		!strings.HasPrefix(lines[1], "3\t7\ttrue\t\t1.5\t") || !strings.HasSuffix(lines[1], "\t9") || !strings.HasPrefix(lines[2], "6\t0\tfalse\t") {
		t.Errorf("%q", got)
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
	busy := &bonds{test: "x", lost: 6, passed: 1}
	for _, text := range []string{"bondlost_guest_test.go:55: attach: exit status 1: culvert: reading devices: context deadline exceeded", "--- FAIL: TestBonds/lost/veth/lacp (246.51s)"} {
		if got := busy.line(text); got != "" {
			t.Errorf("%q", got)
		}
	}
	for text, want := range map[string]string{
		"culvert: guest test: guest with Linux 6.12: it ended without an answer: no answer within 30m0s; its console": "",
		"culvert: guest test: failed: bonds.test on Linux 6.12":                                                       "", "culvert: guest test: qemu is gone": "culvert: guest test: qemu is gone",
	} {
		if got := busy.ended(text, true); got != want {
			t.Errorf("%q is told of %q", got, text)
		}
	}
	if busy.ended("culvert: guest test: failed: bonds.test on Linux 6.12", false) == "" {
		t.Error("a guest that fails without a test that does is not told of")
	}
	if got := busy.line("--- FAIL: TestBonds/lost/veth/backup (9.00s)"); got == "" {
		t.Error("a failure behind that of a busy machine is not told of")
	}
	busy.failed--
	if troubles := busy.page(&page); busy.slow != 2 || busy.failed != 0 || len(troubles) != 1 {
		t.Errorf("%d were slow and %d failed, troubles %q", busy.slow, busy.failed, troubles)
	}
	busy.passed = 2
	if troubles := busy.page(&page); troubles != nil {
		t.Errorf("troubles %q, though most have passed", troubles)
	}
	if troubles := (&bonds{test: "x"}).page(&page); len(troubles) != 1 {
		t.Errorf("a guest that has come to nothing: %q", troubles)
	}
}
