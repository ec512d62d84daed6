// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"culvert/internal/host/trust"
	"culvert/internal/lb"
	"culvert/internal/lb/bgpstate"
	"culvert/internal/lb/sourcestate"
	"culvert/internal/show/text"
)

// width is the largest width of a table, in columns.
const width = 100

// lines returns the report as text. Times are shown relative to now.
func (r Report) lines(now time.Time) []string {
	lines := []string{
		fmt.Sprintf("balancer of %s on %s  %s", r.Router, strings.Join(r.Interfaces, ", "), r.Summary()),
		fmt.Sprintf("rings of %s, seed ID %s  flow table for %s, %s  in use about %s", text.Grouped(uint64(r.RingSize)), r.SeedID,
			text.Grouped(uint64(r.FlowTable.Flows)), text.ShortBytes(r.FlowTable.Memory), text.Grouped(r.FlowTable.Used)),
	}
	if !r.Served {
		lines = append(lines, "no process serves it: backends are not checked, next hops stay as they are, nothing is announced")
	}
	if r.Served && !r.BGPKnown {
		lines = append(lines, "bgp  not known: the process has told nothing yet, or in another "+trust.RunDir+" than this one")
	}
	for _, s := range r.BGP {
		lines = append(lines, sessionLine(s, now))
	}
	lines = append(lines, peersLines(r.Peers, now)...)
	for _, v := range r.VIPs {
		lines = append(append(lines, ""), v.lines(r.neighbors(v), now)...)
	}
	return lines
}

// sessionLine returns the line of a BGP session.
func sessionLine(s bgpstate.Session, now time.Time) string {
	line := fmt.Sprintf("bgp %s as %d  %s %s", s.Neighbor, s.ASN, s.State, text.Ago(now.Sub(s.Since)))
	if s.Established() {
		line += fmt.Sprintf("  announced %d", len(s.Announced))
	}
	if s.Error != "" {
		line += "  " + s.Error
	}
	return line
}

// unknownNeighbors is shown if the announcements of the process are not known.
const unknownNeighbors = -1

// noNeighbors is shown for a process without [lb.bgp].
const noNeighbors = -2

// neighbors returns the number of neighbors to which the process announces addresses of a VIP's family, or would.
func (r Report) neighbors(v VIP) (n int) {
	switch {
	case !r.BGPKnown:
		return unknownNeighbors
	case len(r.BGP) == 0:
		return noNeighbors
	}
	of, _ := lb.ParseService(v.Service)
	for _, s := range r.BGP {
		if s.Carries(of.Addr) {
			n++
		}
	}
	return n
}

// announcement says whether the VIP's address is announced, and if not, why.
func (v VIP) announcement(neighbors int) string {
	switch {
	case !v.Announce:
		return "not announced"
	case neighbors == unknownNeighbors:
		return "announced: not known"
	case neighbors == noNeighbors:
		return "not announced: no [lb.bgp]"
	default:
		return fmt.Sprintf("announced to %d of %d", len(v.AnnouncedTo), neighbors)
	}
}

// Summary returns the numbers of VIPs and backends in words.
func (r Report) Summary() string {
	var c Counts
	for _, v := range r.VIPs {
		c.VIPs++
		c.addSources(v.Sources)
		if v.State == Drained {
			c.DrainedVIPs = append(c.DrainedVIPs, v.Service)
		}
		for _, b := range v.Backends {
			c.add(b)
		}
	}
	return c.String()
}

// headline describes a VIP.
func (v VIP) headline() string {
	line := fmt.Sprintf("%s  %s  hash %s  %s  on failure %s", v.Service, v.State, v.Hash, v.Encap, v.OnFailure)
	if v.Check != nil {
		line += fmt.Sprintf("  check %s each %v", v.Check.Type, v.Check.Interval)
	}
	if v.ServerID > 0 {
		line += fmt.Sprintf("  quic %d", v.ServerID)
	}
	return line
}

func (v VIP) lines(neighbors int, now time.Time) []string {
	lines := []string{v.headline() + "  " + v.announcement(neighbors)}
	if len(v.Backends) == 0 {
		lines = append(lines, "  no backends: packets are dropped, or go to the kernel; add one with 'culvert lb backend add'")
	}
	lines = append(lines, v.table(now)...)
	for _, s := range v.Sources {
		lines = append(lines, sourceLine(s, now))
	}
	if len(v.Events) > 0 {
		events := "  events"
		for _, name := range slices.Sorted(maps.Keys(v.Events)) {
			events += fmt.Sprintf("  %s %s", name, text.Grouped(v.Events[name]))
		}
		lines = append(lines, events)
	}
	return lines
}

// sourceLine returns the line of a source of backends.
func sourceLine(s sourcestate.Source, now time.Time) string {
	line := fmt.Sprintf("  source %s %s  %s %s  %s", s.Kind, s.Name, s.State, text.Ago(now.Sub(s.Since)), plural(s.Backends, "backend"))
	if s.Leaving > 0 {
		line += fmt.Sprintf(", %d leaving", s.Leaving)
	}
	if s.Why != "" {
		line += "  " + s.Why
	}
	return line
}

// table returns a line for each backend, with the next hop at its end, or below if the line would be too long.
func (v VIP) table(now time.Time) []string {
	if len(v.Backends) == 0 {
		return nil
	}
	lines := v.columns(now, true)
	below := slices.ContainsFunc(lines, func(l string) bool { return utf8.RuneCountInString(l) > width })
	if below {
		lines = v.columns(now, false)
	}
	out := lines[:1:1]
	for n, b := range v.Backends {
		out = append(out, lines[1+n])
		if below {
			out = append(out, "    via "+b.via())
		}
		if b.Problem != "" && b.Problem != problemHop {
			out = append(out, "    "+b.Problem)
		}
		if b.Obstacle != "" {
			out = append(out, "    "+b.Obstacle)
		}
		if b.Health.State == "down" && b.Health.Why != "" {
			out = append(out, "    "+b.Health.Why)
		}
	}
	return out
}

func (v VIP) columns(now time.Time, via bool) []string {
	t := text.Table{Indent: "  ", Right: []bool{false, false, true, true, false, true, true, true}}
	head := []string{"BACKEND", "ENCAP", "WEIGHT", "SHARE", "HEALTH", "PACKETS", "BYTES", "FLOWS"}
	if v.Open != nil {
		head = append(head, "OPEN")
		t.Right = append(t.Right, true)
	}
	if via {
		head = append(head, "NEXT HOP")
	}
	t.Add(head...)
	for _, b := range v.Backends {
		weight := fmt.Sprint(b.Weight)
		if b.Drained {
			weight = "drain"
		}
		row := []string{
			b.Addr, b.Encap, weight, fmt.Sprintf("%.1f%%", b.Share), b.Health.word(now), text.Short(float64(b.Packets)), text.ShortBytes(b.Bytes),
			text.Short(float64(b.Traffic.Flows)),
		}
		if b.Open != nil {
			row = append(row, text.Short(float64(*b.Open)))
		}
		if via {
			row = append(row, b.via())
		}
		t.Add(row...)
	}
	return t.Lines()
}

// word returns "up 3h12m", or "-" for a backend without a check.
func (h Health) word(now time.Time) string {
	switch {
	case h.State == "unknown":
		return "-"
	case h.Since == nil:
		return h.State
	}
	return h.State + " " + text.Ago(now.Sub(*h.Since))
}

func (b Backend) via() string {
	if b.NextHop == nil {
		return "not resolved"
	}
	return b.NextHop.String()
}

func (h *Hop) String() string {
	name := h.Interface
	if name == "" {
		name = fmt.Sprintf("ifindex %d", h.IfIndex)
	}
	if h.VLAN != 0 {
		return fmt.Sprintf("%s %s vlan %d", name, h.MAC, h.VLAN)
	}
	return name + " " + h.MAC
}
