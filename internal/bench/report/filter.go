// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Filter has the rules of a packet filter, and the time that the CPU which received the packets spent.
type Filter struct {
	// Rules is the number of rules, Set the number of prefixes in the set of sources that one of them matches.
	Rules int `json:"rules"`
	Set   int `json:"set_entries,omitempty"`
	// Install is the time to install the rules, in seconds.
	Install float64 `json:"install_seconds"`
	// SoftShare is the share of time that the CPU spent in soft interrupts, 0 to 1, as the kernel samples it at its clock ticks.
	SoftShare *Spread `json:"soft_share,omitempty"`
	// SoftNs is the time in the soft interrupt that receives packets, in nanoseconds a packet. It does not include the generator.
	SoftNs *Spread `json:"soft_ns_per_packet,omitempty"`
	// SoftMpps is its inverse, in millions of packets a second: the throughput of a CPU that does nothing else.
	SoftMpps *Spread `json:"soft_mpps,omitempty"`
	// NetNs is SoftNs less that of a program that drops all packets or, if packets pass, that without a filter, in the same round.
	NetNs *Spread `json:"net_ns_per_packet,omitempty"`
	// LookupNs is SoftNs less that of the same filter with a rule without a set, in the same round.
	LookupNs *Spread `json:"lookup_ns,omitempty"`
	// NetRX is how often a second the soft interrupt ran: NET_RX of /proc/softirqs.
	NetRX *Spread `json:"net_rx_per_second,omitempty"`
}

// Flood has the measurements of an innocent client's transactions during a flood.
type Flood struct {
	// Asked is the rate of the flood that was asked for, in millions of packets a second, 0 for no flood. Most is set if it is the
	// highest rate of the generator.
	Asked float64 `json:"asked_mpps"`
	Most  bool    `json:"most,omitempty"`
	// Offered is the rate at which packets were sent, in the same unit.
	Offered Spread `json:"offered_mpps"`
	// Transactions is the number of transactions a second. Share is their share of those without a flood in the same round, 0 to 1.
	Transactions Spread `json:"transactions_per_second"`
	Share        Spread `json:"share"`
	// Lost is the share of the flood's packets that were lost because the queue into the device was full, 0 to 1.
	Lost Spread `json:"lost_share"`
}

// name is the flood's rate as text for a table.
func (f Flood) name() string {
	if f.Most {
		return "most"
	}
	return strconv.FormatFloat(math.Round(1000*f.Asked)/1000, 'f', -1, 64)
}

func hasFloods(row Row) bool { return len(row.Floods) > 0 }

// filterColumns adds the columns of filters to a table of rates.
func filterColumns(add func(head string, cell func(row Row) string)) {
	median := func(pick func(*Filter) *Spread, scale float64, format string) func(Row) string {
		return func(row Row) string {
			if row.Filter == nil || pick(row.Filter) == nil {
				return ""
			}
			return fmt.Sprintf(format, scale*pick(row.Filter).Median)
		}
	}
	add("soft", median(func(f *Filter) *Spread { return f.SoftShare }, 100, "%.0f %%"))
	add("NET_RX/s", median(func(f *Filter) *Spread { return f.NetRX }, 1, "%.0f"))
	add("soft ns", median(func(f *Filter) *Spread { return f.SoftNs }, 1, "%.0f"))
	add("soft Mpps", median(func(f *Filter) *Spread { return f.SoftMpps }, 1, "%.2f"))
	add("net ns", median(func(f *Filter) *Spread { return f.NetNs }, 1, "%.0f"))
	add("lookup ns", median(func(f *Filter) *Spread { return f.LookupNs }, 1, "%.0f"))
	add("loaded in s", func(row Row) string {
		if row.Filter == nil || row.Filter.Set == 0 {
			return ""
		}
		return fmt.Sprintf("%.2f", row.Filter.Install)
	})
}

// floodColumns are the columns of a table with a line for each flood. Each row has columns for the offered rate, the transactions
// and their share of those without a flood.
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
