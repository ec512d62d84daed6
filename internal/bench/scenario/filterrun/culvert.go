// SPDX-License-Identifier: Apache-2.0

package filterrun

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"culvert/internal/bench/load"
	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterset"
)

// culvert is culvert with only its filter on.
type culvert struct {
	inst *datapath.Instance
	// general leaves out the straight way.
	general bool
	// joined are further parts of the data plane.
	joined []datapath.Part
}

// dropRule is the name of the rule that drops.
const dropRule = "drop"

// icmpProgram is the program that libpcap compiles from "icmp", as 'tcpdump -ddd' prints it.
const icmpProgram = "6\n40 0 0 12\n21 0 3 2048\n48 0 0 23\n21 0 1 1\n6 0 0 262144\n6 0 0 0\n"

// idleProgram is the program that libpcap compiles from the expression of idle rule n: "ip and src host S and udp dst port P".
func idleProgram(n int) string {
	a := idleSource(n).As4()
	return fmt.Sprintf("13\n40 0 0 12\n21 0 10 2048\n32 0 0 26\n21 0 8 %d\n48 0 0 23\n21 0 6 17\n40 0 0 20\n69 4 0 8191\n"+
		"177 0 0 14\n72 0 0 16\n21 0 1 %d\n6 0 0 262144\n6 0 0 0\n", binary.BigEndian.Uint32(a[:]), idlePort(n))
}

// culvert returns the rules as 'culvert filter add' makes them. Expressions are compiled programs, because guests have no
// libpcap.
func (f ruleSet) culvert() ([]filterplane.Rule, error) {
	var specs []filter.Spec
	for i := range f.Idle {
		text := idleProgram(i)
		specs = append(specs, filter.Spec{Name: fmt.Sprintf("idle%d", i), Action: string(filterplane.Drop), Expression: &text})
	}
	if f.Off || f.Protect {
		return nil, nil
	}
	if f.Shape {
		return rulesOf(specs)
	}
	last := filter.Spec{Name: dropRule, Action: string(filterplane.Drop)}
	if f.Limit {
		last.Action, last.Rate = string(filterplane.Limit), limitRate
	}
	if f.PerSource {
		last.Per = string(filterplane.PerSrc)
	}
	if len(f.Set) > 0 {
		last.Src = []string{"@" + setName}
	} else {
		text := icmpProgram
		last.Expression = &text
	}
	return rulesOf(append(specs, last))
}

// rulesOf compiles rules.
func rulesOf(specs []filter.Spec) (rules []filterplane.Rule, err error) {
	for _, spec := range specs {
		rule, err := spec.Rule()
		if err != nil {
			return nil, fmt.Errorf("make the rule %s: %w", spec.Name, err)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// Install implements packetFilter. It reads the set from text, as 'culvert filter set' reads files.
func (d *culvert) Install(_ context.Context, in load.End, rules ruleSet) error {
	compiled, err := rules.culvert()
	if err != nil {
		return err
	}
	return in.Netns.Do(func() (err error) {
		o := datapath.Options{Name: "bench", Interfaces: []string{in.Name}, Temporary: true, General: d.general, Parts: d.joined}
		if d.inst, err = datapath.Attach(o); err != nil {
			return err
		}
		if len(rules.Set) > 0 {
			if err := d.fillSet(rules); err != nil {
				return err
			}
		}
		return filterplane.Edit(d.inst, func(f *filterplane.Filter) error {
			f.Rules = compiled
			if rules.Protect {
				f.Services = []filterplane.Service{{Addr: service, Forwarded: true, MSS: 1460, WindowScale: 7}}
			}
			return nil
		})
	})
}

// fillSet adds the set with its prefixes.
func (d *culvert) fillSet(rules ruleSet) error {
	err := filterplane.Edit(d.inst, func(f *filterplane.Filter) error {
		f.Sets = append(f.Sets, filterplane.Set{Name: setName})
		return nil
	})
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, p := range rules.Set {
		text.WriteString(p.String() + "\n")
	}
	return filterplane.EditPrefixes(d.inst, setName, func(*filterset.Prefixes) (*filterset.Prefixes, error) {
		return filterset.ReadPrefixes(setName, []byte(text.String()), filterset.Options{Now: filterplane.Now()})
	})
}

// Dropped implements packetFilter: it reads the counter of the rule that drops.
func (d *culvert) Dropped(context.Context) (uint64, error) {
	c, err := filterplane.ReadCounters(d.inst)
	if err != nil {
		return 0, err
	}
	for _, r := range c.Rules {
		if r.Name == dropRule {
			return r.Matched.Packets, nil
		}
	}
	return 0, errors.New("read culvert's counters: there is no rule " + dropRule)
}

func (d *culvert) Remove() error {
	if d.inst == nil {
		return nil
	}
	defer d.inst.Close()
	return d.inst.DetachAll()
}
