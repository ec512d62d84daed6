// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"culvert/internal/show/text"
)

func (s Stats) writeText(out io.Writer, verbose bool) error {
	var lines []string
	for n, r := range s.Routers {
		if n > 0 {
			lines = append(lines, "")
		}
		lines = append(lines, r.lines(verbose)...)
	}
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

// lines returns the text output. verbose explains the reasons.
func (r RouterStats) lines(verbose bool) []string {
	lines := []string{fmt.Sprintf("router %s  netns %d  memory %s", r.Router, r.NetNS, text.ShortBytes(r.MemoryBytes))}
	for _, is6 := range []bool{false, true} {
		f := r.IPv4
		if is6 {
			f = r.IPv6
		}
		lines = append(lines, "  "+familyName(is6)+" "+f.String())
		if f.BlocksTotal > 0 {
			line := fmt.Sprintf("    prefixes %s  blocks %s of %s", text.Grouped(uint64(f.Prefixes)),
				text.Grouped(uint64(f.BlocksUsed)), text.Grouped(uint64(f.BlocksTotal)))
			if f.Lost > 0 {
				line += fmt.Sprintf("  lost %s: give it more blocks in [route]", text.Grouped(uint64(f.Lost)))
			}
			lines = append(lines, line)
		}
	}
	hops := "  next hops"
	for _, action := range slices.Sorted(maps.Keys(r.Hops)) {
		hops += fmt.Sprintf("  %s %s", action, text.Grouped(uint64(r.Hops[action])))
	}
	if len(r.Hops) == 0 {
		hops += "  none"
	}
	lines = append(lines, hops, fmt.Sprintf("  neighbors %s", text.Grouped(uint64(r.Neighbors))))
	lines = append(lines, deviceLines(r.Devices)...)
	t := text.Table{Indent: "  ", Right: []bool{false, false, true, true}}
	t.AddReasons(r.Reasons, " packets", verbose)
	return append(lines, t.Lines()...)
}

func deviceLines(devices []Device) []string {
	t := text.Table{Indent: "  "}
	for _, d := range devices {
		name := d.Interface
		if name == "" {
			name = fmt.Sprintf("index %d", d.IfIndex)
		}
		if d.VLAN != 0 {
			name += fmt.Sprintf(" (VLAN %d)", d.VLAN)
		}
		t.Add("device "+name, d.MAC, strings.Join(d.flags(), " "))
	}
	return t.Lines()
}

// flags describes what a device does with packets, by the name of the sysctl if there is one.
func (d Device) flags() []string {
	forwarding := "forwarding"
	switch {
	case !d.Forward4 && !d.Forward6:
		forwarding = "no forwarding"
	case !d.Forward6:
		forwarding += " IPv4"
	case !d.Forward4:
		forwarding += " IPv6"
	}
	flags := []string{forwarding}
	if d.RPFilter != 0 {
		flags = append(flags, fmt.Sprintf("rp_filter=%d", d.RPFilter))
	}
	if d.Redirects {
		flags = append(flags, "send_redirects")
	}
	if !d.Xmit {
		flags = append(flags, "takes no frames from XDP")
	}
	if d.LinearOnly {
		flags = append(flags, "one buffer each frame")
	}
	return flags
}
