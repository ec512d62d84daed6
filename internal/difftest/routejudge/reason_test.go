// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"culvert/internal/route"
)

// expected has the reasons that the program must count for packets of a kind. With only set it must count no other ones. Kinds
// with packets to all destinations of the table have further reasons, those of the destinations.
var expected = map[string]struct {
	some []string
	only bool
}{
	"4 plain":               {[]string{"fwd route", "drop route-blackhole", "pass route-egress"}, false},
	"6 plain":               {[]string{"fwd route", "pass route-egress"}, false},
	"4 connected":           {[]string{"fwd route", "pass route-egress", "pass route-redirect"}, true},
	"6 connected":           {[]string{"fwd route", "pass route-egress", "pass route-redirect"}, true},
	"4 ttl":                 {[]string{"fwd route", "punt route-ttl"}, false},
	"6 hop limit":           {[]string{"fwd route", "punt route-ttl"}, false},
	"4 checksum wrong":      {[]string{"punt route-malformed"}, false},
	"4 options":             {[]string{"punt route-options"}, false},
	"6 hop-by-hop":          {[]string{"punt route-options"}, false},
	"4 total length":        {[]string{"fwd route", "punt route-malformed"}, false},
	"6 payload length":      {[]string{"fwd route", "punt route-malformed"}, false},
	"4 truncated":           {[]string{"pass other", "punt route-malformed"}, false},
	"6 truncated":           {[]string{"pass other", "punt route-malformed"}, false},
	"4 around the MTU":      {[]string{"fwd route", "punt route-mtu"}, false},
	"6 around the MTU":      {[]string{"fwd route", "punt route-mtu"}, false},
	"4 fragments":           {[]string{"fwd route"}, false},
	"6 fragments":           {[]string{"fwd route"}, false},
	"4 special destination": {[]string{"pass route-local", "punt route-multicast", "punt route-martian"}, false},
	"6 special destination": {[]string{"pass route-local", "punt route-multicast", "punt route-martian"}, false},
	"4 special source":      {[]string{"punt route-martian"}, false},
	"6 special source":      {[]string{"punt route-martian"}, false},
	"4 no route":            {[]string{"punt route-none"}, true},
	"6 no route":            {[]string{"punt route-none"}, true},
	"4 sent elsewhere":      {[]string{"pass other"}, true},
	"6 sent elsewhere":      {[]string{"pass other"}, true},
	"not IP":                {[]string{"pass other"}, true},

	"4 back where it came from": {[]string{"pass route-redirect"}, true},
	"6 back where it came from": {[]string{"pass route-redirect"}, true},
}

// TestReasons checks that packets are counted under the right reasons.
func TestReasons(t *testing.T) {
	tr := newTrial(t, scenario{name: "reasons", simple: true, takes: flowInner}, 12, func(w *twin) *culvert { return attach(w, smallMirror) })
	tr.explain = nil
	tr.fast.startControlPlane(route.Options{})
	seen := 0
	for _, k := range slices.Concat(kinds4, kinds6) {
		want, listed := expected[k.name]
		if !listed {
			continue
		}
		seen++
		// On a busy machine the control plane may be late. Then the program does not use the mirror and asks the kernel. Try
		// again in this case.
		for end := time.Now().Add(patience); ; {
			wrong, asked := tr.wrongReasons(k, want.some, want.only)
			if len(wrong) > 0 && asked && time.Now().Before(end) {
				continue
			}
			for _, w := range wrong {
				t.Errorf("%s: %s", k.name, w)
			}
			break
		}
	}
	if seen != len(expected) {
		t.Errorf("%d of %d kinds do not exist", len(expected)-seen, len(expected))
	}
	tr.report()
}

// wrongReasons tries packets of a kind. It returns what is wrong with the counters, and whether the program has asked the kernel
// for some of the packets.
func (tr *trial) wrongReasons(k kind, some []string, only bool) (wrong []string, asked bool) {
	before := tr.fast.reasons()
	tr.try(k, 100, tr.fast.fate)
	after := tr.fast.reasons()
	for _, name := range some {
		if after[name] == before[name] {
			wrong = append(wrong, "none is counted as "+name)
		}
	}
	total := uint64(0)
	for _, name := range sortedKeys(after) {
		n := after[name] - before[name]
		total += n
		if n > 0 && only && !slices.Contains(some, name) {
			wrong = append(wrong, fmt.Sprintf("%d are counted as %s", n, name))
		}
	}
	if total != 100 {
		wrong = append(wrong, fmt.Sprintf("%d of 100 are counted", total))
	}
	const kernel = "pass route-kernel"
	return wrong, after[kernel] != before[kernel]
}
