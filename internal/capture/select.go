// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"culvert/internal/config/tomltext"
	"culvert/internal/datapath"
	"culvert/internal/show/usage"
)

// checkSelection returns a usage error for a selection by verdict, reason and stage that no packet can be of.
func (o *Options) checkSelection() error {
	switch {
	case o.Verdict != "" && !slices.Contains(Verdicts(), o.Verdict):
		return usage.Errorf("--verdict %s: there are %s", o.Verdict, strings.Join(Verdicts(), ", "))
	case o.Reason != "" && !slices.Contains(Reasons(), o.Reason):
		meant := ""
		if near := tomltext.Closest(o.Reason, Reasons()); near != "" {
			meant = fmt.Sprintf(" (did you mean %s?)", near)
		}
		return usage.Errorf("--reason %s: there is no such reason%s: 'man culvert-reasons' has all, as have docs/filter.md, lb.md, scion.md and route.md",
			o.Reason, meant)
	case o.Stage != "" && !slices.Contains(Stages(), o.Stage):
		return usage.Errorf("--stage %s: there are %s", o.Stage, strings.Join(Stages(), ", "))
	}
	var stages, verdicts []string // of the reasons that are left
	both := false
	for _, r := range datapath.Reasons() {
		if r.Name == "" || o.Reason != "" && r.Name != o.Reason {
			continue
		}
		if !slices.Contains(stages, r.Stage) {
			stages = append(stages, r.Stage)
		}
		if o.Stage != "" && r.Stage != o.Stage {
			continue
		}
		of := []string{string((&Packet{Reason: r}).Verdict())}
		if r.Verdict == datapath.VerdictPunt {
			of = append(of, string((&Packet{Reason: r, Limited: true}).Verdict()))
		}
		for _, v := range of {
			if !slices.Contains(verdicts, v) {
				verdicts = append(verdicts, v)
			}
		}
		both = both || o.Verdict == "" || slices.Contains(of, o.Verdict)
	}
	what := "--reason " + o.Reason
	if o.Reason == "" {
		what = "--stage " + o.Stage
	}
	switch {
	case o.Reason != "" && o.Stage != "" && !slices.Contains(stages, o.Stage):
		return usage.Errorf("--reason %s with --stage %s: no packet has both: the reason is of the stage %s", o.Reason, o.Stage, strings.Join(stages, " or "))
	case !both:
		return usage.Errorf("%s with --verdict %s: no packet has both: the verdict is %s there", what, o.Verdict, strings.Join(verdicts, " or "))
	}
	if o.In {
		return nil
	}
	const goesOut = string(datapath.VerdictFwd)
	switch {
	case o.Verdict != "" && o.Verdict != goesOut:
		return usage.Errorf("--out: packets with --verdict %s have no frame that goes out", o.Verdict)
	case o.Reason+o.Stage != "" && !slices.Contains(verdicts, goesOut):
		return usage.Errorf("--out: packets with %s have no frame that goes out", what)
	}
	return nil
}

// checkInterfaces returns an error if the capture is limited to an interface that no packet of a data plane comes in or goes out by.
func (o *Options) checkInterfaces(inst *datapath.Instance) error {
	known := inst.AttachedNow()
	for _, name := range o.Interfaces {
		if _, err := net.InterfaceByName(name); err != nil {
			return fmt.Errorf("capturing on %s: there is no such interface in this network namespace", name)
		}
		if slices.Contains(known, name) || slices.Contains(inst.Configured(), name) { // what is configured may come back
			continue
		}
		if len(known) == 0 {
			known = inst.Configured()
		}
		return fmt.Errorf("capturing on %s: the data plane is not attached to it, but to %s", name, strings.Join(known, ", "))
	}
	return nil
}
