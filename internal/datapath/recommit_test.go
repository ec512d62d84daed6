// SPDX-License-Identifier: Apache-2.0

package datapath_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// serve attaches a router with a filter, which this process serves.
func serve(t *testing.T, interfaces ...string) *datapath.Instance {
	t.Helper()
	inst, err := datapath.Attach(datapath.Options{
		Name: "br1", Interfaces: interfaces, Parts: append(scionbed.Parts(scionbed.Config(1, 2)), filterplane.NewPart()),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(inst.Close)
	return inst
}

// TestRecommitFails lets the changes of Recommit fail after one of them is in force: filter, sets and pins are as before.
func TestRecommitFails(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, begin func(*datapath.Instance) error
	}{
		{"no filter before", nil, func(i *datapath.Instance) error { return setOf(i, "0.0.0.0/0") }},
		{"a set replaced", func(i *datapath.Instance) error { return setOf(i, "192.0.2.0/24") },
			func(i *datapath.Instance) error { return setOf(i, "0.0.0.0/0") }},
		{"the filter removed", func(i *datapath.Instance) error { return setOf(i, "192.0.2.0/24") },
			func(i *datapath.Instance) error {
				return filterplane.Edit(i, func(f *filterplane.Filter) error { *f = filterplane.Filter{}; return nil })
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testbed.InNamespace(t)
			v0, v2 := testbed.AddVeth(t, "v0", "v1"), testbed.AddVeth(t, "v2", "v3")
			inst := serve(t, "v0", "v2")
			scionbed.Open(t, scionplane.Of(inst), v2)
			if tt.before != nil {
				if err := tt.before(inst); err != nil {
					t.Fatal(err)
				}
			}
			before, sets, program := testbed.Tree(t), setsInKernel(t, inst.Dir()), testbed.XDPProgram(t, "v0")
			no, during := errors.New("no"), uint32(0)
			err := inst.Recommit(func(h *datapath.Instance) error {
				if err := tt.begin(h); err != nil {
					return err
				}
				during = testbed.XDPProgram(t, "v0")
				return no
			})
			if !errors.Is(err, no) {
				t.Fatalf("recommitted: %v", err)
			}
			if during == program {
				t.Error("the change was not in force before it failed")
			}
			if now := testbed.XDPProgram(t, "v0"); now != program {
				t.Errorf("program %d on v0, was %d", now, program)
			}
			if after := testbed.Tree(t); after != before {
				t.Errorf("pins:\n%s\nwere:\n%s", after, before)
			}
			if now := setsInKernel(t, inst.Dir()); now != sets {
				t.Errorf("sets in the kernel: %v, were %v", now, sets)
			}
			action, _, err := inst.TestRun(scionbed.TransitFrame(t, v0, scionbed.Key), "v0")
			if err != nil || action != testbed.XDPRedirect {
				t.Errorf("action %d, %v", action, err)
			}
		})
	}
}

// TestRecommitKeepsOthersOut lets another goroutine edit the instance while Recommit runs: it waits.
func TestRecommitKeepsOthersOut(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	inst := serve(t, "v0")
	edited := make(chan error, 1)
	ended := false
	err := inst.Recommit(func(h *datapath.Instance) error {
		go func() {
			edited <- inst.Edit(func(*datapath.Instance) error {
				if !ended {
					return errors.New("an edit ran during Recommit")
				}
				return nil
			})
		}()
		time.Sleep(50 * time.Millisecond) // for the goroutine to try
		err := setOf(h, "192.0.2.0/24")
		ended = true
		return err
	})
	if err := errors.Join(err, <-edited); err != nil {
		t.Fatal(err)
	}
	if f, err := filterplane.Read(inst); err != nil || len(f.Rules) != 1 {
		t.Errorf("filter after Recommit: %+v, %v", f, err)
	}
}

// TestAttachAfter attaches anew in the process that serves the instance, on other interfaces. If that fails, the former
// instance serves on.
func TestAttachAfter(t *testing.T) {
	testbed.InNamespace(t)
	testbed.AddVeth(t, "v0", "v1")
	testbed.AddVeth(t, "v2", "v3")
	former := serve(t, "v0")
	o := datapath.Options{
		Name: former.Name(), Interfaces: []string{"v0", "v2"}, Former: former,
		Parts: append(scionbed.Parts(scionbed.Config(1, 2)), filterplane.NewPart()),
	}
	no := errors.New("no")
	o.Begin = func(*datapath.Instance) error { return no }
	if _, err := datapath.Attach(o); !errors.Is(err, no) {
		t.Fatalf("attached: %v", err)
	}
	if !former.Served() || former.ServerPID() == 0 {
		t.Fatal("nobody serves the instance after a failed Attach")
	}
	if fits, err := former.Fits(o); fits || err != nil {
		t.Errorf("another set of interfaces fits: %t, %v", fits, err)
	}
	o.Begin = nil
	next, err := datapath.Attach(o)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	if former.Removed() || !next.Adopted() {
		t.Errorf("former removed: %t, adopted: %t", former.Removed(), next.Adopted())
	}
	former.Close()
	if got := strings.Join(next.Attached(), " "); got != "v0 v2" {
		t.Errorf("attached to %s", got)
	}
	if fits, err := next.Fits(o); !fits || err != nil {
		t.Errorf("the same options fit: %t, %v", fits, err)
	}
	o.Former = nil
	if _, err := datapath.Attach(o); err == nil || !strings.Contains(err.Error(), "is served by") {
		t.Errorf("attached a second time: %v", err)
	}
}
