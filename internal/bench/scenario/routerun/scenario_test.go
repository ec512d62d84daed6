// SPDX-License-Identifier: Apache-2.0

package routerun

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/bench/scenario"
	"culvert/internal/bpfobj"
	"culvert/internal/testbed"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
)

const testRound = 10 * time.Millisecond

// options are options for a short measurement of scenario route, with a part of the full table.
func options(t *testing.T) scenario.Options {
	t.Helper()
	return scenario.Options{Rounds: 1, Round: testRound, Progress: io.Discard, Prefixes: testPrefixes(t), Sample: 6000}
}

// All rows forward all packets of all groups. Devices that should not leave packets to the kernel do not. Nothing is left
// behind.
func TestRoute(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	o := options(t)
	r, err := Scenario().Measure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	measured := map[string]bool{}
	for _, row := range r.Rows {
		name, group, _ := strings.Cut(row.Name, "@")
		if name == "xdp-forward" {
			t.Error("a row was measured that is only measured by name")
		}
		measured[row.Name] = true
		// Generator and device take turns on one CPU, so few packets are lost because a queue is full, and none for another
		// reason.
		if !row.Valid || row.Received < row.Sent/2 || row.Received == 0 || row.FrameSize != frameLen {
			t.Errorf("row %+v", row)
		}
		for where := range row.Lost {
			if strings.HasPrefix(where, "kernel") || strings.HasPrefix(where, "culvert") {
				t.Errorf("row %+v", row)
			}
		}
		if mirrors := name == "mirror" || name == "culvert-fib"; mirrors != (row.Routes != nil && row.Routes.Sync > 0 && row.Routes.MapBytes > 0) {
			t.Errorf("row %s: routes %+v", row.Name, row.Routes)
		}
		if strings.Contains(row.Note, leftToKernel) {
			t.Errorf("row %s: %s", row.Name, row.Note)
		}
		full := strings.Contains(group, "-full")
		if row.Routes == nil || (row.Routes.Routes > 4) != full || (row.Routes.Updates > 0) != strings.HasSuffix(group, "churn") {
			t.Errorf("row %s: routes %+v", row.Name, row.Routes)
		}
	}
	for _, group := range Groups() {
		names := []string{"linux", "fib", "mirror"}
		if !strings.HasSuffix(group, "churn") {
			names = append(names, "redirect", "culvert-fib")
		}
		for _, name := range names {
			if !measured[name+"@"+group] {
				t.Errorf("%s has not been measured in %s", name, group)
			}
		}
	}
	for _, ratio := range []string{
		"fib@4-few/linux@4-few", "linux@6-full-zipf/redirect@6-full-zipf", "fib@4-full-65536/fib@4-few", "linux@6-full-1/linux@6-few",
	} {
		if r.Ratios[ratio] <= 0 || r.RatioSpreads[ratio].Median != r.Ratios[ratio] {
			t.Errorf("no ratio %s in %v", ratio, r.Ratios)
		}
	}
	for _, ratio := range []string{"linux@4-full-1/fib@4-few", "linux@6-full-1/linux@4-few", "fib@4-full-churn/linux@4-full-churn"} {
		if r.Ratios[ratio] != 0 {
			t.Errorf("there is a ratio %s", ratio)
		}
	}
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "x @4-few") {
		t.Errorf("error %v, table\n%s", err, &table)
	}
}

// The scenario leaves nothing behind when it is interrupted, at whatever step.
func TestInterruptedRouteLeavesNothing(t *testing.T) {
	testbed.NeedRoot(t)
	for _, when := range []string{
		"setting up fib", "setting up mirror@4-few", "warming up mirror@4-full-churn", "making the packets of 4-full-churn", "warming up fib@4-few", "warming up linux@4-full-churn", "round 1 of 1: fib@4-full-churn",
	} {
		t.Run(when, func(t *testing.T) {
			testbed.CheckLeftovers(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o := options(t)
			o.Progress = testbed.CancelOn{Prefix: when, Cancel: cancel}
			o.Rows, o.Groups = []string{"linux", "fib", "mirror"}, []string{"4-few", "4-full-churn"}
			_, err := Scenario().Measure(ctx, o)
			if last := strings.HasPrefix(when, "round 1"); !last && !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// After a churn all routes exist again. It changes all routes of the traffic.
func TestChurn(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	table, err := fullRoutes(options(t))
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBed(t.Context(), table)
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	for _, v6 := range []bool{false, true} {
		g := &group{v6: v6, full: true, addresses: 100, churn: true}
		if _, err := g.frames(table, b.path); err != nil {
			t.Fatal(err)
		}
		c, err := newChurn(b, g)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range g.from {
			if !slices.Contains(c.ring, p) {
				t.Errorf("route to %s of the traffic is not changed", p)
			}
		}
		family, want := netlink.FAMILY_V4, len(table.v4)
		if v6 {
			family, want = netlink.FAMILY_V6, len(table.v6)
		}
		if err := c.step(10 * len(c.ring)); err != nil {
			t.Fatal(err)
		}
		got, _ := countRoutes(t, b.under, family)
		if missing := c.removed - c.restored; got != want-missing || missing == 0 || missing > c.lag+1 || c.restored < len(c.ring) {
			t.Errorf("%d routes of %d, %d of them removed and %d restored", got, want, c.removed, c.restored)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*churnTick)
		defer cancel()
		if err := c.run(ctx, load.LastCPU()); err != nil {
			t.Fatal(err)
		}
		if got, _ := countRoutes(t, b.under, family); got != want {
			t.Errorf("%d routes afterwards, want %d", got, want)
		}
	}
	few := &group{addresses: 3}
	if _, err := few.frames(fewRoutes(), b.path); err != nil {
		t.Fatal(err)
	}
	if _, err := newChurn(&bed{table: fewRoutes()}, few); err == nil || !strings.Contains(err.Error(), "at least 16") {
		t.Errorf("error %v", err)
	}
}

// Program fib changes exactly the fields that a router has to change. It leaves packets with a TTL of 1 to the kernel.
func TestFibForwards(t *testing.T) {
	testbed.NeedRoot(t)
	b, err := newBed(t.Context(), fewRoutes())
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := Scenario().Choose([]string{"fib"})
	if err == nil {
		err = b.prepare(t.Context(), chosen[0], scenario.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	d := b.devices["fib"].(*programDevice)
	// A test run can have a device as its context only while an XDP program is attached there.
	if err := d.Attach(t.Context(), b.path); err != nil {
		t.Fatal(err)
	}
	run := func(frame []byte) (verdict uint32, out []byte) {
		err := b.under.Do(func() error {
			o := &ebpf.RunOptions{
				Data: frame, DataOut: make([]byte, len(frame)), Repeat: 1,
				Context: bpfobj.XDPMD{DataEnd: uint32(len(frame)), IngressIfindex: uint32(b.path.In.Index)},
			}
			verdict, err = d.prog.Run(o)
			out = o.DataOut
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return verdict, out
	}
	for _, v6 := range []bool{false, true} {
		frames, err := (&group{v6: v6, addresses: 1}).frames(fewRoutes(), b.path)
		if err != nil {
			t.Fatal(err)
		}
		frame, ttl := frames[0], 22
		if v6 {
			ttl = 21
		}
		want := slices.Clone(frame)
		copy(want[0:6], b.path.Sink.MAC)
		copy(want[6:12], b.path.Out.MAC)
		want[ttl] = 63
		if !v6 {
			want[24], want[25] = 0, 0
			sum := ^load.OnesSum(want[14:34])
			want[24], want[25] = byte(sum>>8), byte(sum)
		}
		if verdict, got := run(frame); verdict != load.XDPRedirect || !bytes.Equal(got, want) {
			t.Errorf("verdict %d, sent\n% x, got\n% x, want\n% x", verdict, frame, got, want)
		}
		last := slices.Clone(frame)
		last[ttl] = 1
		if verdict, got := run(last); verdict != load.XDPPass || !bytes.Equal(got, last) {
			t.Errorf("a packet without hops left: verdict %d, % x", verdict, got)
		}
	}
	if diverted, err := d.Diverted(); diverted[leftToKernel] != 2 || err != nil {
		t.Errorf("packets left to the kernel: %v, want 2, error %v", diverted, err)
	}
}

// With few routes culvert forwards by its mirror alone once that is current. Without a mirror it uses the kernel's FIB.
func TestRouteByMirror(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	b, err := newBed(t.Context(), fewRoutes())
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := Scenario().Choose([]string{"mirror", "culvert-fib"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range chosen {
		if err := b.prepare(t.Context(), c, scenario.Options{}); err != nil {
			t.Fatal(err)
		}
		for _, v6 := range []bool{false, true} {
			g := &group{v6: v6, addresses: 8}
			if err := g.generator(b, load.LastCPU()); err != nil {
				t.Fatal(err)
			}
			s, err := newRow(c, g, b, load.LastCPU()).Run(t.Context(), testRound)
			if err = errors.Join(err, g.gen.Close()); err != nil {
				t.Fatal(err)
			}
			packets := map[string]uint64{} // by verdict and reason
			ports, err := b.devices[c.Name].(*culvert).inst.Ports()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range ports[0].Reasons {
				packets[r.Verdict+" "+r.Name] += r.Packets
			}
			// On a busy machine the mirror may be out of date for a while, so some packets may use the FIB.
			byMirror, byFIB := packets["fwd route"], packets["fwd route-fib"]
			if c.Name == "mirror" && byMirror == 0 || c.Name == "culvert-fib" && byMirror != 0 || byMirror+byFIB < s.Received ||
				s.Received == 0 {
				t.Errorf("%s, IPv6 %t: %v of %+v", c.Name, v6, packets, s)
			}
		}
	}
}
