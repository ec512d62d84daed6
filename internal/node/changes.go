// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strings"

	"culvert/internal/config"
	"culvert/internal/host/pins"
	"culvert/internal/stage"
	"culvert/internal/stages"
)

// changes returns a line for each thing in which a configuration differs from the one in force.
func changes(was, is *up) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, name := range is.on {
		if !slices.Contains(was.on, name) {
			add("interface %s added", name)
		}
	}
	for _, name := range was.on {
		if !slices.Contains(is.on, name) {
			add("interface %s removed", name)
		}
	}
	if was.inst != nil {
		for _, u := range was.inst.Unattached() {
			if u.Why == pins.Detached && slices.Contains(is.on, u.Interface) {
				add("interface %s attached again", u.Interface)
			}
		}
	}
	old, now := was.file.Node, is.file.Node
	for _, value := range []struct{ key, old, now string }{
		{"mode", old.Mode, now.Mode},
		{"workers", workersText(old), workersText(now)},
		{"metrics", old.Metrics, now.Metrics},
		{"web.listen", old.WebAddress(), now.WebAddress()},
		{"log_level", old.Level().String(), now.Level().String()},
		{"missing", old.Missing, now.Missing},
		{"detached", old.Detached, now.Detached},
	} {
		if value.old != value.now {
			add("%s: %s → %s", value.key, valueText(value.old), valueText(value.now))
		}
	}
	for _, s := range stages.All() {
		switch on := has(now, s); {
		case on && !has(old, s):
			add("[%s] switched on", s.Name())
		case !on && has(old, s):
			add("[%s] switched off", s.Name())
			if what := forgets(is.plans, s); what != "" {
				add("[%s] loses %s: they begin anew when it is switched on again", s.Name(), what)
			}
		}
	}
	for _, plan := range is.plans {
		if d, ok := plan.(stage.Differ); ok {
			lines = append(lines, d.Changes(planOf(was.plans, plan.Name()), was.inst)...)
		}
	}
	return lines
}

// forgets names what is lost when a stage is switched off by plans, "" for nothing.
func forgets(plans []stage.Plan, s stage.Stage) string {
	f, ok := s.(stage.Forgetter)
	if !ok {
		return ""
	}
	return f.Forgets(planOf(plans, s.Name()))
}

// planOf returns the plan of a stage, nil if there is none.
func planOf(plans []stage.Plan, name string) stage.Plan {
	for _, p := range plans {
		if p.Name() == name {
			return p
		}
	}
	return nil
}

func workersText(n *config.Node) string {
	if n.Workers == nil {
		return ""
	}
	text := "cpus " + strings.Trim(fmt.Sprint(n.Workers.CPUNumbers()), "[]")
	if n.Workers.Queue != nil {
		text += fmt.Sprintf(", queue %d", *n.Workers.Queue)
	}
	return text
}

func valueText(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
