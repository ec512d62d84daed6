// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Filter is what a packet filter had to do, and what it took of the CPU that received the packets.
type Filter struct {
	// Rules is how many rules it had, Set how many prefixes of sources one of them asked for.
	Rules int `json:"rules"`
	Set   int `json:"set_entries,omitempty"`
	// Install is how many seconds passed until the rules were in force.
	Install float64 `json:"install_seconds"`
	// SoftShare is how much of its time the CPU spent in soft interrupts, 0 to 1, as the kernel's clock ticks show it.
	SoftShare *Spread `json:"soft_share,omitempty"`
	// SoftNs is how many nanoseconds of the soft interrupt that receives packets each packet took. The generator is
	// outside of it.
	SoftNs *Spread `json:"soft_ns_per_packet,omitempty"`
	// SoftMpps is the inverse: how many million packets a second a CPU takes that does nothing else.
	SoftMpps *Spread `json:"soft_mpps,omitempty"`
	// NetNs is SoftNs less that of a program that drops all, or of no filter where packets pass, in the same round.
	NetNs *Spread `json:"net_ns_per_packet,omitempty"`
	// LookupNs is SoftNs less that of the same filter in the same round with a rule that asks for no set.
	LookupNs *Spread `json:"lookup_ns,omitempty"`
	// NetRX is how often a second the soft interrupt was raised and run: NET_RX of /proc/softirqs.
	NetRX *Spread `json:"net_rx_per_second,omitempty"`
}

// Flood is what became of an innocent client's transactions during a flood.
type Flood struct {
	// Asked is the rate of the flood that was asked for, in millions a second, 0 for none; Most has as much as the
	// generator can send asked for.
	Asked float64 `json:"asked_mpps"`
	Most  bool    `json:"most,omitempty"`
	// Offered is the rate at which packets were sent, in the same unit.
	Offered Spread `json:"offered_mpps"`
	// Transactions is how many requests a second were answered, Share that as a share of those without a flood in the
	// same round, 0 to 1.
	Transactions Spread `json:"transactions_per_second"`
	Share        Spread `json:"share"`
	// Lost is the share of the flood's packets that found the queue into the device full, 0 to 1.
	Lost Spread `json:"lost_share"`
}

// name is the flood's rate as a table has it.
func (f Flood) name() string {
	if f.Most {
		return "most"
	}
	return strconv.FormatFloat(math.Round(1000*f.Asked)/1000, 'f', -1, 64)
}

func hasFloods(row Row) bool { return len(row.Floods) > 0 }

// filterColumns are those that a filter adds to a table of rates.
func filterColumns(add func(head string, cell func(row Row) string)) {
	of := func(pick func(*Filter) *Spread, scale float64, format string) func(Row) string {
		return func(row Row) string {
			if row.Filter == nil || pick(row.Filter) == nil {
				return ""
			}
			return fmt.Sprintf(format, scale*pick(row.Filter).Median)
		}
	}
	add("soft", of(func(f *Filter) *Spread { return f.SoftShare }, 100, "%.0f %%"))
	add("NET_RX/s", of(func(f *Filter) *Spread { return f.NetRX }, 1, "%.0f"))
	add("soft ns", of(func(f *Filter) *Spread { return f.SoftNs }, 1, "%.0f"))
	add("soft Mpps", of(func(f *Filter) *Spread { return f.SoftMpps }, 1, "%.2f"))
	add("net ns", of(func(f *Filter) *Spread { return f.NetNs }, 1, "%.0f"))
	add("lookup ns", of(func(f *Filter) *Spread { return f.LookupNs }, 1, "%.0f"))
	add("loaded in s", func(row Row) string {
		if row.Filter == nil || row.Filter.Set == 0 {
			return ""
		}
		return fmt.Sprintf("%.2f", row.Filter.Install)
	})
}

// floodColumns has a line for each flood, and of each row the transactions and their share of those without a flood.
func floodColumns(rows []Row) []column {
	var names []string
	at := map[string]float64{}
	for _, row := range rows {
		for _, f := range row.Floods {
			if _, known := at[f.name()]; !known {
				names = append(names, f.name())
			}
			at[f.name()] = max(at[f.name()], f.Asked)
			if f.Most {
				at[f.name()] = 1e9
			}
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(at[a], at[b]) })
	first := column{head: "asked Mpps"}
	for _, name := range names {
		first.add(name)
	}
	all := []column{first}
	for _, row := range rows {
		sent := column{head: "offered"}
		c := column{head: row.label()}
		share := column{head: "share"}
		for _, name := range names {
			i := slices.IndexFunc(row.Floods, func(f Flood) bool { return f.name() == name })
			if i < 0 {
				sent.add("")
				c.add("")
				share.add("")
				continue
			}
			f := row.Floods[i]
			sent.add(fmt.Sprintf("%.2f", f.Offered.Median))
			c.add(fmt.Sprintf("%.0f (%.0f-%.0f)", f.Transactions.Median, f.Transactions.Min, f.Transactions.Max))
			share.add(fmt.Sprintf("%.1f %%", 100*f.Share.Median))
		}
		all = append(all, sent, c, share)
	}
	return all
}

// plotFloods draws the transactions of an innocent client over the rate of the flood, a line for each row.
func plotFloods(r *Report, rows []Row) figurePlot {
	p := linePanel{
		xUnit: "flood in million packets a second", yUnit: "transactions a second of an innocent client", tall: 420,
	}
	var looks palette
	var rates []float64
	for _, row := range rows {
		base, _ := split(row.Name)
		c := curve{name: base, swatch: looks.next(base), marks: true}
		floods := slices.Clone(row.Floods)
		slices.SortStableFunc(floods, func(a, b Flood) int { return cmp.Compare(a.Offered.Median, b.Offered.Median) })
		for _, f := range floods {
			rates = append(rates, f.Offered.Median)
			c.points = append(c.points, spot{
				x: f.Offered.Median, y: f.Transactions, invalid: !row.Valid,
				text: fmt.Sprintf("%.2f Mpps: %.0f transactions a second, %.1f %% of those without a flood", f.Offered.Median,
					f.Transactions.Median, 100*f.Share.Median),
			})
		}
		p.curves = append(p.curves, c)
	}
	p.x, p.xTicks = linearAxis(rates)
	p.y, p.yTicks = linearAxis(yValues(p.curves))
	return figurePlot{title: r.title("An innocent connection during a flood", rows), legend: legendOf(p.curves), panels: []panel{p}}
}
