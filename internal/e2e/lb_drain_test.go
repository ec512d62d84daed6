// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"

	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
)

// testDrain drains a backend under load. Its connections go on until they end, and new ones go to other backends until it is
// undrained.
func (b *balanced) testDrain() {
	w := b.load()
	addr := backendAddrs["b1"].String()
	b.lb("drain", "VIP", addr)
	b.wantWithout("b1")
	w.moves()
	w.finish("b1")
	b.wantWithout("b1")
	b.lb("undrain", "VIP", addr)
	b.wantBack("b1")
	w.moves()
	w.end()
}

// testEdits deletes a backend, adds it again with another encapsulation and changes weights under load. Connections to the
// other backends go on.
func (b *balanced) testEdits() {
	w := b.load()
	w.spare("b4")
	addr := func(name string) string { return backendAddrs[name].String() }
	w.refusals.Store(true) // connections that are being made to b4
	b.lb("backend", "del", "VIP", addr("b4"))
	w.moves()
	w.refusals.Store(false)
	names := b.fresh(freshCount)
	if names["b4"] > 0 || len(names) != 3 {
		b.Errorf("%v have answered, want all but b4", names)
	}
	b.lb("backend", "set", "VIP", addr("b2"), "--weight", "40")
	w.moves()
	if got := b.share("b2"); got < 0.94 || got > 0.96 { // 40 of 42
		b.Errorf("b2 has %.3f of the rings", got)
	}
	b.lb("backend", "add", "VIP", addr("b4"), "--encap", "gue")
	b.wait("b4 to have its share", func() bool { return b.share("b4") > 0.02 }) // one of 43
	b.lb("backend", "set", "VIP", addr("b2"), "--weight", "1")
	b.wantBack("b4")
	w.moves()
	w.end()
}

// share returns the part of all rings' positions that a backend has, 0 to 1.
func (b *balanced) share(backend string) float64 {
	b.Helper()
	has, all := 0, 0
	for _, ns := range balancers {
		b.view(ns, func(p *lbplane.Plane, s lb.State) error {
			for _, v := range s.VIPs {
				ring, err := p.Ring(v.Number)
				if err != nil {
					return err
				}
				all += len(ring)
				n := slices.IndexFunc(v.Backends, func(m lb.Backend) bool { return m.Addr == backendAddrs[backend] })
				for _, id := range ring {
					if n >= 0 && id == v.Backends[n].ID {
						has++
					}
				}
			}
			return nil
		})
	}
	return float64(has) / float64(all)
}
