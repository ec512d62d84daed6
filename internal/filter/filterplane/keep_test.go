// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"testing"
	"time"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/testbed"
)

// TestFilterLimitAndTopStay changes other parts of a filter. The state of its limit and its talkers stay. They go when the rate
// changes and top is turned off.
func TestFilterLimitAndTopStay(t *testing.T) {
	for name, temporary := range map[string]bool{"temporary": true, "pinned": false} {
		t.Run(name, func(t *testing.T) {
			inst := filterBed(t, temporary)
			if _, err := Top(inst, 1); err == nil {
				t.Error("talkers that nobody asked for")
			}
			limit := Rule{Name: "slow", Action: Limit, Rate: &Rate{Rate: 1, Burst: 40, Per: PerSrc, Entries: 64}}
			mustEdit(t, inst, func(f *Filter) { f.Rules, f.Top = []Rule{limit}, TopSrc })
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
			mustEdit(t, inst, func(f *Filter) { f.Rules = append(f.Rules, Rule{Name: "all", Action: Count}) })
			send(60)
			if most := 40 + int(time.Since(start).Seconds()) + 1; passed < 40 || passed > most {
				t.Errorf("%d passed, want 40 to %d: the limit has lost its state", passed, most)
			}
			if use := ruleUse(t, inst, "slow"); use != (tableUse{entries: 64, used: 1, owing: 1}) {
				t.Errorf("use %+v, want one source that owes", use)
			}
			deadline := time.Now().Add(time.Minute)
			for {
				sent := time.Now()
				send(100)
				mustEdit(t, inst, func(f *Filter) { f.Rules = f.Rules[:1] })
				time.Sleep(TopWindow + 50*time.Millisecond)
				sample, err := Top(inst, TopWindows)
				if err != nil {
					t.Fatal(err)
				}
				if len(sample.Talkers) == 1 && sample.Talkers[0].Surely() >= 100 && sample.Talkers[0].Key.Prefix.String() == "192.0.2.1/32" {
					break
				}
				if time.Since(sent) < TopWindows*TopWindow {
					t.Fatalf("talkers %+v, want the one with 100 packets", sample)
				}
				if time.Now().After(deadline) {
					t.Fatal("never read in time")
				}
			}
			// With another rate the limit starts again.
			passed, limit.Rate = 0, &Rate{Rate: 1, Burst: 20, Per: PerSrc}
			start = time.Now()
			mustEdit(t, inst, func(f *Filter) { f.Rules[0] = limit })
			send(60)
			if most := 20 + int(time.Since(start).Seconds()) + 1; passed < 20 || passed > most {
				t.Errorf("%d passed, want 20 to %d", passed, most)
			}
			mustEdit(t, inst, func(f *Filter) { f.Top = TopOff })
			if _, err := Top(inst, 1); err == nil {
				t.Error("talkers that nobody asks for any more")
			}
		})
	}
}

// ruleUse is limitUse for the limit of a rule.
func ruleUse(t *testing.T, inst *datapath.Instance, rule string) tableUse {
	t.Helper()
	p, done, err := read(inst)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	return limitUse(t, p.maps[bpfobj.FilterMapFilterLimitTables], uint32(p.state.Limits[rule].Number))
}
