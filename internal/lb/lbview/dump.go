// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"fmt"
	"slices"
	"strings"

	"culvert/internal/lb"
	"culvert/internal/lb/bgpstate"
	"culvert/internal/lb/lbstage"
	"culvert/internal/lb/peerstate"
	"culvert/internal/show/dump"
)

// Dump writes the load balancer of a data plane as configuration.
func Dump(o dump.Options) error {
	return with(o.On, func(v *view) error {
		notes, err := v.notes(o.ByHand)
		if err != nil {
			return err
		}
		w, err := dump.Begin(v.inst, o, dump.Head{
			What:     "the load balancer",
			Comments: []string{"Flows, counters and the results of checks are no configuration: they begin anew."},
			Notes:    notes,
		})
		if err != nil {
			return err
		}
		if !o.ByHand {
			w.Table("[lb]", lbstage.TableOf(v.plane.Options(), v.state))
		}
		written := 0
		for _, vip := range v.state.VIPs {
			if !o.ByHand || !vip.File {
				writeVIP(w, vip)
				written++
			}
		}
		if o.ByHand && written == 0 {
			w.Comment("Nothing was that a drop-in can have.")
		}
		return w.Close()
	})
}

// writeVIP writes the tables of a VIP.
func writeVIP(w *dump.Writer, vip lb.VIP) {
	var comments []string
	if vip.Drained {
		comments = append(comments, "drained by hand")
	}
	w.Table("[[lb.vip]]", lbstage.VIPTableOf(vip), comments...)
	if vip.Check != nil {
		w.Table("[lb.vip.check]", lbstage.CheckTableOf(*vip.Check))
	}
	for _, b := range vip.Backends {
		if b.Offered != "" {
			continue
		}
		comments = nil
		if b.Drained && b.Weight > 0 {
			comments = append(comments, fmt.Sprintf("drained by hand: its weight was %d", b.Weight))
		}
		w.Table("[[lb.vip.backend]]", lbstage.BackendTableOf(b, vip), comments...)
	}
}

// notes says what a file cannot express.
func (v *view) notes(byHand bool) (notes []string, err error) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if !byHand {
		o := v.plane.Options()
		// A seed that cannot be read is none of this machine's.
		if own, _ := lbstage.MachineSeed(o.SeedID()); !own {
			note("the seed of the rings (ID %s) is not that of this machine: without seed in [lb], as in the file before, flows get other backends", o.SeedID())
		}
		sessions, known, err := bgpstate.Of(v.inst)
		switch {
		case err != nil:
			return nil, err
		case !known:
			note("[lb.bgp], if the process has it, is left out: what it announces is not known")
		case len(sessions) > 0:
			var names []string
			for _, s := range sessions {
				names = append(names, s.Neighbor.String())
			}
			note("[lb.bgp] is left out, for only the process has it: there are sessions with %s", strings.Join(names, ", "))
		}
		exchange, err := peerstate.Of(v.inst)
		if err != nil {
			return nil, err
		}
		if exchange != nil {
			note("[lb.peers] is left out, for only the process has it: it listens at %s", exchange.Listen)
		}
	}
	var file []string
	for _, vip := range v.state.VIPs {
		if vip.File {
			file = append(file, vip.Service.String())
		}
		if vip.Drained {
			note("VIP %s is drained, which no file can say: after the start, culvert lb drain %[1]s", vip.Service)
		}
		for _, o := range vip.Offers {
			if !byHand {
				note("source %q of VIP %s is left out with its %s, for only the process has it", o.Source, vip.Service, plural(len(o.Backends), "backend"))
			}
		}
		for _, b := range vip.Backends {
			switch left := byHand && vip.File; {
			case b.Offered != "":
			case left && !b.File:
				note("VIP %s is the file's: its backend %s, made by hand, is left out, since a drop-in can add none: put it into the file",
					vip.Service, b.Addr)
			case b.Drained && left:
				note("backend %s of VIP %s is drained, which no file can say: after the start, culvert lb drain %[2]s %[1]s", b.Addr, vip.Service)
			case b.Drained && b.Weight > 0:
				note("backend %s of VIP %s is drained, which no file can say: here its weight is 0 in place of %d", b.Addr, vip.Service, b.Weight)
			}
		}
	}
	if byHand && len(file) > 0 {
		slices.Sort(file)
		note("VIPs of the file are left out, also if they or their backends were changed or deleted by hand: %s", strings.Join(file, ", "))
	}
	return notes, nil
}
