// SPDX-License-Identifier: Apache-2.0

package filterview

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/cbpf"
	"culvert/internal/filter/filterplane"
	"culvert/internal/show"
	"culvert/internal/show/text"
)

// Report is what 'culvert filter list -j' prints. Fields are added in later versions, never renamed.
type Report struct {
	Router     string   `json:"router"`
	NetNS      uint32   `json:"netns"`
	Interfaces []string `json:"interfaces"`
	// On tells whether packets go through a filter at all.
	On    bool   `json:"on"`
	Rules []Rule `json:"rules"`
	// ByLookup is how many of Rules are found by a lookup, because there are several of their shape. The others are tried one after
	// the other.
	ByLookup int `json:"by_lookup"`
	// Short counts packets that end before a byte that a rule's expression reads. Malformed counts packets whose IP header
	// contradicts itself or the frame. See filterplane.Counters.
	Short     Traffic   `json:"short"`
	Malformed Traffic   `json:"malformed"`
	Sets      []Set     `json:"sets"`
	Services  []Service `json:"services"`
	// Top is the property by which packets are attributed to talkers. It is left out while top is off.
	Top string `json:"top,omitempty"`
}

// Traffic counts packets and the bytes of their frames.
type Traffic struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Rule is a rule with its counters.
type Rule struct {
	Name   string `json:"rule"`
	Action string `json:"action"`
	// Words is the rule as arguments of 'culvert filter add'.
	Words string `json:"words"`
	// From is "file" or "hand".
	From string `json:"from"`
	// Traffic counts what has matched. Over counts the part of it that was over the rate; it is left out without one.
	Traffic
	Over       *Traffic `json:"over,omitempty"`
	Interfaces []string `json:"interfaces"`
	Src        []string `json:"src"`
	Dst        []string `json:"dst"`
	// NotAttached are those of Interfaces that do not carry the data plane. The rule sees no packets of theirs.
	NotAttached []string `json:"not_attached,omitempty"`
	Expression  string   `json:"expression,omitempty"`
	// Program is the classic BPF as tcpdump -ddd prints it.
	Program string `json:"program,omitempty"`
	Limit   *Limit `json:"limit,omitempty"`
}

// Limit is the rate of a rule.
type Limit struct {
	Rate uint64 `json:"rate"`
	// Unit is "packets" or "bytes". The rate is per second.
	Unit    string `json:"unit"`
	Per     string `json:"per,omitempty"`
	Burst   uint64 `json:"burst,omitempty"`
	Entries int    `json:"entries,omitempty"`
}

// Service is a service that is protected against floods of SYNs.
type Service struct {
	Address     string `json:"address"`
	From        string `json:"from"`
	Forwarded   bool   `json:"forwarded"`
	MSS         uint16 `json:"mss,omitempty"`
	WindowScale uint8  `json:"wscale,omitempty"`
}

// collect returns the filter of a data plane without its sets. To count a million members takes time.
func collect(inst *datapath.Instance) (Report, error) {
	r := Report{
		Router: inst.Name(), NetNS: inst.NetNS(), Interfaces: append([]string{}, inst.Attached()...),
		Rules: []Rule{}, Sets: []Set{}, Services: []Service{},
	}
	f, err := filterplane.Read(inst)
	if err != nil {
		return r, err
	}
	counters, err := filterplane.ReadCounters(inst)
	if err != nil {
		return r, err
	}
	if r.ByLookup, err = filterplane.ByLookup(inst); err != nil {
		return r, err
	}
	r.On = len(f.Rules) > 0 || len(f.Services) > 0 || f.Top != filterplane.TopOff
	r.Top = filter.FormatBy(f.Top)
	r.Short, r.Malformed = traffic(counters.Short), traffic(counters.Malformed)
	for _, rule := range f.Rules {
		out := describe(rule)
		for _, name := range rule.Interfaces {
			if !slices.Contains(r.Interfaces, name) {
				out.NotAttached = append(out.NotAttached, name)
			}
		}
		// The rules may have changed between the two reads.
		n := slices.IndexFunc(counters.Rules, func(c filterplane.RuleCount) bool { return c.Name == rule.Name })
		if n >= 0 {
			out.Traffic = traffic(counters.Rules[n].Matched)
		}
		if rule.Action == filterplane.Limit {
			out.Over = &Traffic{}
			if n >= 0 {
				*out.Over = traffic(counters.Rules[n].Over)
			}
		}
		r.Rules = append(r.Rules, out)
	}
	for _, s := range f.Services {
		r.Services = append(r.Services, Service{
			Address: s.Addr.String(), From: from(s.File), Forwarded: s.Forwarded, MSS: s.MSS, WindowScale: s.WindowScale,
		})
	}
	return r, nil
}

func traffic(c filterplane.Traffic) Traffic { return Traffic{c.Packets, c.Bytes} }

// from returns the value of the fields From.
func from(file bool) string {
	if file {
		return "file"
	}
	return "hand"
}

// describe returns a rule without its counters.
func describe(r filterplane.Rule) Rule {
	out := Rule{
		Name: r.Name, Action: string(r.Action), Words: filter.Words(r), From: from(r.File), Expression: r.Expr,
		Interfaces: append([]string{}, r.Interfaces...), Src: refs(r.Src), Dst: refs(r.Dst),
	}
	if len(r.Code) > 0 {
		out.Program = cbpf.Program(r.Code).String()
	}
	if r.Rate != nil {
		out.Limit = &Limit{Rate: r.Rate.Rate, Unit: "packets", Burst: r.Rate.Burst, Entries: r.Rate.Entries}
		if r.Rate.Bytes {
			out.Limit.Unit = "bytes"
		}
		if r.Rate.Per != filterplane.PerRule {
			out.Limit.Per = filter.Per{By: r.Rate.Per, Prefix4: r.Rate.Prefix4, Prefix6: r.Rate.Prefix6}.String()
		}
	}
	return out
}

func refs(all []filterplane.SetRef) []string {
	words := []string{}
	for _, r := range all {
		words = append(words, filter.FormatSetRef(r))
	}
	return words
}

// List writes the filter of a data plane.
func List(name string, asJSON bool, out io.Writer) error {
	inst, err := Open(name)
	if err != nil {
		return err
	}
	defer inst.Close()
	r, err := collect(inst)
	if err != nil {
		return err
	}
	f, err := filterplane.Read(inst)
	if err != nil {
		return err
	}
	if r.Sets, err = collectSets(inst, f); err != nil {
		return err
	}
	if asJSON {
		return show.JSON(out, r)
	}
	return show.Lines(out, r.lines())
}

func (r Report) lines() []string {
	lines := []string{r.headline()}
	if len(r.Rules) > 0 {
		t := text.Table{Indent: "  ", Right: []bool{false, true, true, true}}
		t.Add("RULE", "PACKETS", "BYTES", "OVER", "FROM", "WHAT")
		for _, rule := range r.Rules {
			over := ""
			if rule.Over != nil {
				over = text.Grouped(rule.Over.Packets)
			}
			what := rule.Words
			if len(rule.NotAttached) > 0 {
				what += "  (not attached: " + strings.Join(rule.NotAttached, ", ") + ")"
			}
			t.Add(rule.Name, text.Grouped(rule.Packets), text.ShortBytes(rule.Bytes), over, rule.From, what)
		}
		lines = append(lines, t.Lines()...)
	}
	if r.ByLookup > 0 {
		lines = append(lines, fmt.Sprintf("  %s rules by lookup", text.Grouped(uint64(r.ByLookup))))
	}
	if n := r.Short.Packets; n > 0 {
		lines = append(lines, "  short  "+packets(n, "")+" ended before a byte that a rule reads, and did not match it")
	}
	if n := r.Malformed.Packets; n > 0 {
		is := map[bool]string{true: " is", false: " are"}[n == 1]
		lines = append(lines, "  malformed  "+packets(n, " with a header that contradicts itself"+is)+" in no set")
	}
	lines = append(lines, setLines(r.Sets)...)
	for _, s := range r.Services {
		line := "  protect " + s.Address
		if s.Forwarded {
			line += " --forwarded"
		}
		if s.MSS != 0 {
			line += fmt.Sprintf(" --mss %d", s.MSS)
		}
		if s.WindowScale != 0 {
			line += fmt.Sprintf(" --wscale %d", s.WindowScale)
		}
		lines = append(lines, line+"  from "+s.From)
	}
	if r.Top != "" {
		lines = append(lines, "  top --by "+r.Top+" is on")
	}
	return lines
}

// packets returns a number of packets in words, followed by more words.
func packets(n uint64, more string) string {
	if n == 1 {
		return "1 packet" + more
	}
	return text.Grouped(n) + " packets" + more
}

func (r Report) headline() string {
	what := Summary(len(r.Rules), len(r.Sets), len(r.Services))
	if what == "" {
		what = "no rules: add one with 'culvert filter add'"
	}
	on := strings.Join(r.Interfaces, ", ")
	if on == "" {
		on = "NO INTERFACE"
	}
	return fmt.Sprintf("filter of %s on %s  %s", r.Router, on, what)
}

// Summary returns how many rules, sets and services a filter has, in words. It is "" if there are none.
func Summary(rules, sets, services int) string {
	var parts []string
	for _, p := range []struct {
		n         int
		one, many string
	}{{rules, "rule", "rules"}, {sets, "set", "sets"}, {services, "protected service", "protected services"}} {
		switch {
		case p.n == 1:
			parts = append(parts, "1 "+p.one)
		case p.n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.many))
		}
	}
	return strings.Join(parts, ", ")
}
