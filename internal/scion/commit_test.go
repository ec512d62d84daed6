// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/scionproto/scion/pkg/log"

	"culvert/internal/host/nexthop"
	"culvert/internal/scion/keyring"
	"culvert/internal/scion/scionplane"
)

// TestCommitTakesBack has a commit fail after it has loaded the key. It brings back what the data plane had.
func TestCommitTakesBack(t *testing.T) {
	r := &Router{
		Keys:     []keyring.Key{{Secret: scionplane.Key{1}}},
		Datapath: scionplane.Config{Links: []scionplane.Link{{Local: netip.MustParseAddrPort("192.0.2.1:30042")}}},
	}
	resolver, err := nexthop.New(t.Context(), nexthop.Options{})
	check(t, err)
	for _, want := range []struct {
		err  error
		said []string
	}{{nil, []string{"key"}}, {errors.New("no hosts"), []string{"key", "back"}}} {
		plane := &printingPlane{links: 1, noHosts: want.err}
		f := &fastPath{plan: &plan{router: r}, resolver: resolver, gate: newGate(r, true, log.Info, log.Error)}
		if err := f.commit(t.Context(), plane); !errors.Is(err, want.err) {
			t.Errorf("error %v, want %v", err, want.err)
		}
		if !slices.Equal(plane.said, want.said) {
			t.Errorf("with error %v the plane was asked for %q, want %q", want.err, plane.said, want.said)
		}
	}
}
