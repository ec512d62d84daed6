// SPDX-License-Identifier: Apache-2.0

package routerun

import (
	"errors"
	"testing"

	"culvert/internal/bench/load"
	"culvert/internal/bench/scenario"
	"culvert/internal/testbed"
)

// Every packet for which the kernel has no route is counted as lost, in both families.
func TestLostWithoutRoute(t *testing.T) {
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
	for _, v6 := range []bool{false, true} {
		g := &group{v6: v6, addresses: 16}
		for _, name := range []string{"linux", "fib"} {
			chosen, err := Scenario().Choose([]string{name})
			if err == nil && b.devices[name] == nil {
				err = b.prepare(t.Context(), chosen[0], scenario.Options{})
			}
			if err == nil {
				err = g.generator(b, load.LastCPU())
			}
			if err != nil {
				t.Fatal(err)
			}
			row := newRow(chosen[0], g, b, load.LastCPU())
			routed, err := row.Run(t.Context(), testRound)
			if err != nil || routed.Received != routed.Sent || !routed.Accounted() {
				t.Errorf("%s: %+v, error %v", row.Label, routed, err)
			}
			routes := *b.table.of(v6)
			for _, p := range routes {
				err = errors.Join(err, b.writer.change(deleteRoute, p))
			}
			if err = errors.Join(err, b.writer.flush()); err != nil {
				t.Fatal(err)
			}
			lost, err := row.Run(t.Context(), testRound)
			// The kernel may also discard some of its own answers to the sender.
			answers := lost.Lost["kernel_IpOutDiscards"] + lost.Lost["kernel_Ip6OutDiscards"]
			if err != nil || lost.Received != 0 || lost.Missing() > 0 || -lost.Missing() > int64(lost.Others+answers) {
				t.Errorf("%s without routes: %+v, error %v", row.Label, lost, err)
			}
			if err := errors.Join(b.table.install(t.Context(), b.writer, v6), g.gen.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
}
