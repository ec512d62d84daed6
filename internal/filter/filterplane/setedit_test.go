// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"maps"
	"slices"
	"testing"

	"culvert/internal/datapath"
	"culvert/internal/filter/filterset"
	"culvert/internal/testbed"
)

func parsePrefixes(t *testing.T, entries ...string) *filterset.Prefixes {
	t.Helper()
	p, err := filterset.ParsePrefixes(entries, filterset.Options{Now: Now()})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func putPrefixes(t *testing.T, inst *datapath.Instance, set string, entries ...string) {
	t.Helper()
	err := EditPrefixes(inst, set, func(*filterset.Prefixes) (*filterset.Prefixes, error) {
		return parsePrefixes(t, entries...), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFilterSets changes members of sets, which rules use by name. The members stay when the program or the process changes.
func TestFilterSets(t *testing.T) {
	for name, temporary := range map[string]bool{"temporary": true, "pinned": false} {
		t.Run(name, func(t *testing.T) {
			inst := filterBed(t, temporary)
			mustEdit(t, inst, func(f *Filter) { f.Sets = []Set{{Name: "good"}, {Name: "bad"}, {Name: "ends", Endpoints: true}} })
			if inst.Entry() != inst.Program() {
				t.Error("a set alone has a program")
			}
			putPrefixes(t, inst, "bad", "192.0.2.0/30")
			mustEdit(t, inst, func(f *Filter) {
				f.Rules = []Rule{
					{Name: "good", Action: Pass, Src: []SetRef{{Set: "good"}}},
					{Name: "bad", Action: Drop, Src: []SetRef{{Set: "bad"}}, Dst: []SetRef{{Set: "good", Not: true}}},
				}
			})
			wantRun(t, inst, protoFrame(17, 60), "v0", testbed.XDPDrop)
			putPrefixes(t, inst, "good", "192.0.2.1")
			wantRun(t, inst, protoFrame(17, 60), "v0", testbed.XDPPass)
			putPrefixes(t, inst, "good", "192.0.2.2")
			wantRun(t, inst, protoFrame(17, 60), "v0", testbed.XDPPass)
			putPrefixes(t, inst, "good")
			wantRun(t, inst, protoFrame(17, 60), "v0", testbed.XDPDrop)
			if !temporary {
				inst.Close()
				inst = attachFilterBed(t, false)
				wantRun(t, inst, protoFrame(17, 60), "v0", testbed.XDPDrop)
			}
			p, err := Prefixes(inst, "bad")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for prefix := range p.All() {
				got = append(got, prefix.String())
			}
			if !slices.Equal(got, []string{"192.0.2.0/30"}) {
				t.Errorf("members %v", got)
			}
			want, err := filterset.ParseEndpoints([]string{"192.0.2.1:53", "[2001:db8::1]:53"}, filterset.Options{Now: Now()})
			if err != nil {
				t.Fatal(err)
			}
			err = EditEndpoints(inst, "ends", func(filterset.Endpoints) (filterset.Endpoints, error) { return want, nil })
			if e, err2 := Endpoints(inst, "ends"); err != nil || err2 != nil || !maps.Equal(e, want) {
				t.Errorf("endpoints %v, %v, %v", e, err, err2)
			}
			if _, err := Prefixes(inst, "ends"); err == nil {
				t.Error("endpoints were read as prefixes")
			}
			// A set that a rule uses cannot be deleted.
			err = Edit(inst, func(f *Filter) error { f.Sets = f.Sets[:1]; return nil })
			if err == nil {
				t.Error("a set in use was deleted")
			}
			mustEdit(t, inst, func(f *Filter) { *f = Filter{} })
			if _, err := Prefixes(inst, "bad"); err == nil {
				t.Error("a set that is gone has members")
			}
		})
	}
}
