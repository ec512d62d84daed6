// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"testing"
	"time"

	"culvert/internal/testbed"
)

// What sources owe and who sends most outlives other changes of the filter.
func TestFilterLimitAndTopStay(t *testing.T) {
	for name, temporary := range map[string]bool{"temporary": true, "pinned": false} {
		t.Run(name, func(t *testing.T) {
			inst := filterBed(t, temporary)
			if _, err := inst.FilterTop(1); err == nil {
				t.Error("talkers that nobody asked for")
			}
			limit := FilterRule{Name: "slow", Action: FilterLimit, Rate: &FilterRate{Rate: 1, Burst: 40, Per: FilterPerSrc, Entries: 64}}
			mustEdit(t, inst, func(f *Filter) { f.Rules, f.Top = []FilterRule{limit}, FilterTopSrc })
			start := time.Now()
			frame := protoFrame(17, 60)
			passed := 0
			send := func(n int) {
				for range n {
					action, _, err := inst.TestRun(frame, "v0")
					if err != nil {
						t.Fatal(err)
					}
					if action == testbed.XDPPass {
						passed++
					}
				}
			}
			send(60)
			mustEdit(t, inst, func(f *Filter) { f.Rules = append(f.Rules, FilterRule{Name: "all", Action: FilterCount}) })
			send(60)
			if most := 40 + int(time.Since(start).Seconds()) + 1; passed < 40 || passed > most {
				t.Errorf("%d passed, want 40 to %d: the limit has forgotten its source", passed, most)
			}
			uses, err := inst.FilterLimitUses()
			if err != nil || len(uses) != 1 || uses["slow"] != (FilterLimitUse{Entries: 64, Used: 1, Owing: 1}) {
				t.Errorf("uses %+v, %v", uses, err)
			}
			deadline := time.Now().Add(time.Minute)
			for {
				sent := time.Now()
				send(100)
				mustEdit(t, inst, func(f *Filter) { f.Rules = f.Rules[:1] })
				time.Sleep(FilterTopWindow + 50*time.Millisecond)
				sample, err := inst.FilterTop(FilterTopWindows)
				if err != nil {
					t.Fatal(err)
				}
				if len(sample.Talkers) == 1 && sample.Talkers[0].Surely() >= 100 && sample.Talkers[0].Key.Prefix.String() == "192.0.2.1/32" {
					break
				}
				if time.Since(sent) < FilterTopWindows*FilterTopWindow {
					t.Fatalf("talkers %+v, want the one with 100 packets", sample)
				}
				if time.Now().After(deadline) {
					t.Fatal("never read in time")
				}
			}
			// Another rate begins anew.
			passed, limit.Rate = 0, &FilterRate{Rate: 1, Burst: 20, Per: FilterPerSrc}
			start = time.Now()
			mustEdit(t, inst, func(f *Filter) { f.Rules[0] = limit })
			send(60)
			if most := 20 + int(time.Since(start).Seconds()) + 1; passed < 20 || passed > most {
				t.Errorf("%d passed, want 20 to %d", passed, most)
			}
			mustEdit(t, inst, func(f *Filter) { f.Top = FilterTopOff })
			if _, err := inst.FilterTop(1); err == nil {
				t.Error("talkers that nobody asks for any more")
			}
		})
	}
}
