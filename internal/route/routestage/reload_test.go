// SPDX-License-Identifier: Apache-2.0

package routestage

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/route"
	"culvert/internal/route/routeplane"
	"culvert/internal/stage"
	"culvert/internal/testbed"
)

// TestServeAgain serves an IP router once more on the same program, with another table. What the first Serve has left is not in the
// way: neither a mirror that nobody keeps, nor that the kernel forwards because of netfilter.
func TestServeAgain(t *testing.T) {
	if !testbed.InProcess(t) {
		return
	}
	testbed.AddVeth(t, "rs0", "rs1")
	blocks := 64
	start := stage.Start{Process: true, Log: slog.New(slog.DiscardHandler), Out: io.Discard}
	one := &plan{file: Table{Blocks4: &blocks, Blocks6: &blocks}}
	former, err := one.Prepare(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	options := func(s stage.Prepared) datapath.Options {
		return datapath.Options{Name: "again", Interfaces: []string{"rs0"}, Parts: []datapath.Part{s.Part()}}
	}
	o := options(former)
	o.Begin = func(inst *datapath.Instance) error {
		return former.Commit(t.Context(), inst, func() error { return nil })
	}
	inst, err := datapath.Attach(o)
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Close()
	defer func() { _ = inst.DetachAll() }()
	serve := func(s stage.Prepared) (end func(error)) {
		ctx, cancel := context.WithCancelCause(context.Background())
		ready, done := make(chan struct{}), make(chan error, 1)
		go func() { done <- s.Serve(ctx, func() { close(ready) }) }()
		select {
		case <-ready:
		case err := <-done:
			t.Fatal(err)
		case <-time.After(testbed.Patience):
			t.Fatal("not ready")
		}
		return func(cause error) {
			t.Helper()
			cancel(cause)
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	}
	await := func(what string, believed, kernel bool) {
		t.Helper()
		for end := time.Now().Add(testbed.Patience); ; time.Sleep(20 * time.Millisecond) {
			s, err := routeplane.ReadState(inst)
			if err != nil {
				t.Fatal(err)
			}
			if (s.Until4 > 0) == believed && s.Policy.Kernel4 == kernel {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", what, s)
			}
		}
	}
	end := serve(former)
	await("served", true, false)
	for _, line := range []string{"qdisc add dev rs0 clsact", "filter add dev rs0 ingress protocol ip u32 match u32 0 0 flowid 1:1"} {
		if out, err := exec.Command("tc", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("tc %s: %v: %s", line, err, out)
		}
	}
	await("with a rule of netfilter", true, true)

	if !(&plan{file: Table{Blocks4: &blocks, Blocks6: &blocks}}).ServedBy(former) {
		t.Error("the same table is not served")
	}
	two := &plan{file: Table{Blocks4: &blocks, Blocks6: &blocks, BypassNetfilter: true}}
	if two.ServedBy(former) {
		t.Error("another bypass_netfilter is served")
	}
	next, err := two.Succeed(t.Context(), start, former)
	if err != nil {
		t.Fatal(err)
	}
	if fits, err := inst.Fits(options(next)); err != nil || !fits {
		t.Fatal("another bypass_netfilter needs another program", err)
	}
	end(stage.ErrSucceeded)
	await("between", false, true)
	err = inst.Recommit(func(inst *datapath.Instance) error {
		return next.Commit(t.Context(), inst, func() error { return nil })
	})
	if err = errors.Join(err, former.Close()); err != nil {
		t.Fatal(err)
	}
	end = serve(next)
	await("with bypass_netfilter", true, false)
	end(stage.ErrSucceeded)
	await("ended", false, false)
	// As after a Commit that has failed.
	end = serve(former)
	await("served again, without bypass_netfilter", true, true)
	end(nil)
}

// TestChanges compares tables.
func TestChanges(t *testing.T) {
	few, off := 64, false
	got := (&plan{file: Table{BypassNetfilter: true, Blocks4: &few}}).Changes(&plan{file: Table{Mirror: &off}}, nil)
	want := []string{"route.bypass_netfilter: false → true", "route.mirror: false → true", "route.blocks4: 16384 → 64"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (&plan{}).Changes(nil, nil); len(got) != 0 {
		t.Errorf("after nothing: %q", got)
	}
}

// TestDefaultBlocks writes the default size into a file that had none: no line says that something changes, and no program is loaded.
func TestDefaultBlocks(t *testing.T) {
	n4, n6 := routeplane.DefaultBlocks4, routeplane.DefaultBlocks6
	state := func(p *plan) datapath.State {
		prepared, err := p.Prepare(t.Context(), stage.Start{Process: true})
		if err != nil {
			t.Fatal(err)
		}
		s, err := prepared.Part().State(nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	without, with := &plan{}, &plan{file: Table{Blocks4: &n4, Blocks6: &n6}}
	if a, b := state(without), state(with); a != b {
		t.Errorf("state %+v without sizes, %+v with the default ones", a, b)
	}
	if lines := with.Changes(without, nil); len(lines) > 0 {
		t.Errorf("changes %q", lines)
	}
	n4++
	if lines := with.Changes(without, nil); len(lines) != 1 || state(without) == state(with) {
		t.Errorf("changes %q with another size", lines)
	}
}

// TestShort names the mirrors that have no room for some routes.
func TestShort(t *testing.T) {
	full := route.FamilyStats{Lost: 1, BlocksTotal: 16384}
	const want = "the IPv4 mirror has no room for 1 entry of the routing table: packets to them ask the kernel: raise blocks4 in [route], now 16,384"
	if got := short(route.Stats{IPv4: full}); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := short(route.Stats{IPv4: full, IPv6: full}); !strings.HasPrefix(got, want+"; the IPv6 mirror") || !strings.Contains(got, "blocks6") {
		t.Errorf("both: %q", got)
	}
	if got := short(route.Stats{}); got != "" {
		t.Errorf("none: %q", got)
	}
}
