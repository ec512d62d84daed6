// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"slices"
	"time"

	"culvert/internal/stats"
)

// sample has the counters of all data planes at one time.
type sample struct {
	at      time.Time
	routers []Router
}

// flowKey identifies an interface. It stays the same when the data plane is detached and attached again.
type flowKey struct {
	router string
	netns  uint32
	iface  string
}

// flow has the rates of an interface between two samples.
type flow struct {
	key    flowKey
	router *Router
	// shared is true when another router of the sample, in another network namespace, has the same ID.
	shared bool
	// attached is false for an interface that carried the program once and does not now.
	attached bool
	// rows has the reasons and losses, the fastest first.
	rows []row
	// These are rates in packets a second. slow is what went to the slow path of a stage, kernel what no stage claimed, and
	// dropped includes what was limited.
	received, forwarded, slow, kernel, dropped, lost float64
	// bits is the rate of received frames in bits a second.
	bits float64
}

// row is one reason, or one kind of loss.
type row struct {
	// verdict is that of the reason, "limited" or "lost".
	verdict, name string
	// sentence explains the reason; losses have none.
	sentence string
	// packets and bytes are totals; losses have no bytes.
	packets, bytes uint64
	// delta is the number of packets since the last sample.
	delta uint64
	// packetRate and byteRate are per second.
	packetRate, byteRate float64
}

const verdictLost = "lost"

// flows returns the rates between two samples. They are 0 for an interface that the first sample does not have, because the
// time in which it counted its packets is not known.
func flows(last, now sample) []flow {
	seconds := now.at.Sub(last.at).Seconds()
	known := make(map[flowKey]map[[2]string]row)
	for i := range last.routers {
		r := &last.routers[i]
		for _, p := range r.Interfaces {
			rows := make(map[[2]string]row)
			for _, w := range totals(p.Port) {
				rows[[2]string{w.verdict, w.name}] = w
			}
			known[flowKey{r.ID, r.NetNS, p.Interface}] = rows
		}
	}
	var all []flow
	ids := make(map[string]int)
	for _, r := range now.routers {
		ids[r.ID]++
	}
	for i := range now.routers {
		r := &now.routers[i]
		for _, p := range r.Interfaces {
			f := flow{key: flowKey{r.ID, r.NetNS, p.Interface}, router: r, shared: ids[r.ID] > 1, attached: p.Attached}
			before, ok := known[f.key]
			for _, w := range totals(p.Port) {
				if ok && seconds > 0 {
					w.since(before[[2]string{w.verdict, w.name}], seconds)
				}
				f.add(w)
			}
			slices.SortStableFunc(f.rows, func(a, b row) int {
				return cmp.Or(cmp.Compare(b.packetRate, a.packetRate), cmp.Compare(b.packets, a.packets))
			})
			all = append(all, f)
		}
	}
	return all
}

// totals lists an interface's reasons and losses without rates.
func totals(p stats.Port) []row {
	var rows []row
	for _, r := range p.Reasons {
		rows = append(rows, row{verdict: r.Outcome(), name: r.Name, sentence: r.Sentence(), packets: r.Packets, bytes: r.Bytes})
	}
	for name, n := range p.Losses {
		if n > 0 {
			rows = append(rows, row{verdict: verdictLost, name: name, packets: n})
		}
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.verdict, b.verdict), cmp.Compare(a.name, b.name))
	})
	return rows
}

// since sets delta and the rates from an earlier total. A counter that is smaller than before belongs to a data plane that
// was attached anew and started from 0.
func (w *row) since(before row, seconds float64) {
	if w.packets < before.packets {
		before = row{}
	}
	w.delta = w.packets - before.packets
	w.packetRate = float64(w.delta) / seconds
	if w.bytes >= before.bytes {
		w.byteRate = float64(w.bytes-before.bytes) / seconds
	}
}

// routerName returns the router's ID, with its network namespace if another router has the same ID.
func (f *flow) routerName() string {
	if f.shared {
		return f.key.router + "@" + f.router.netnsLabel()
	}
	return f.key.router
}

// ifaceName returns the interface's name, with its network namespace if another router has the same ID.
func (f *flow) ifaceName() string {
	if f.shared {
		return f.key.iface + " in " + f.router.netnsLabel()
	}
	return f.key.iface
}

func (f *flow) add(w row) {
	f.rows = append(f.rows, w)
	switch w.verdict {
	case verdictLost:
		f.lost += w.packetRate
		return // the packet was counted under its reason already
	case "fwd":
		f.forwarded += w.packetRate
	case "punt":
		f.slow += w.packetRate
	case "pass":
		f.kernel += w.packetRate
	default:
		f.dropped += w.packetRate
	}
	f.received += w.packetRate
	f.bits += 8 * w.byteRate
}
