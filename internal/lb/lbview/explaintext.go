// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"fmt"
	"io"
	"strings"
	"time"

	"culvert/internal/show/text"
)

func (e *Explanation) writeText(out io.Writer) error {
	lines := e.lines(time.Now())
	for _, what := range e.NotAsked {
		lines = append(lines, "not asked: "+what)
	}
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

// lines returns the explanation as text. Times are shown relative to now.
func (e *Explanation) lines(now time.Time) []string {
	t := text.Table{Indent: "  "}
	if e.VIP != "" {
		t.Add("VIP", e.vip())
		t.Add("flow table", e.Flow.String())
		t.Add("ring", e.Ring.String())
	}
	if b := e.Backend; b != nil {
		t.Add("backend", b.line(now))
		t.Add("packets", e.packets())
		hop := "not resolved"
		if b.NextHop != nil {
			hop = fmt.Sprintf("%s  MTU %d: packets of up to %d bytes fit", b.NextHop, b.NextHop.MTU, e.Fits)
		}
		t.Add("next hop", hop)
	}
	if e.Reason != "" {
		t.Add("counted as", e.Verdict+" "+e.Reason)
	}
	lines := append([]string{fmt.Sprintf("%s > %s: %s", e.Client, e.Service, e.Text)}, t.Lines()...)
	if e.ServerID > 0 {
		lines = append(lines, "  A QUIC packet whose connection ID names a backend goes to that one.")
	}
	return lines
}

func (e *Explanation) vip() string {
	line := e.VIP
	if e.VIP != e.Service {
		line += " (all ports)"
	}
	return fmt.Sprintf("%s  hash %s  on failure %s", line, e.Hash, e.OnFailure)
}

func (f *Entry) String() string {
	if f == nil {
		return "no entry"
	}
	who := f.Backend
	if who == "" {
		who = "a backend that has gone"
	}
	line := fmt.Sprintf("%s  %s  idle %s", who, f.State, text.Ago(time.Duration(f.Idle*float64(time.Second))))
	if !f.Counts {
		line += "  does not count: " + f.Why
	}
	return line
}

func (p *Place) String() string {
	who := p.Backend
	if who == "" {
		who = "nobody"
	}
	return fmt.Sprintf("position %d of %d: %s", p.Position, p.Size, who)
}

func (b *Backend) line(now time.Time) string {
	weight := fmt.Sprintf("weight %d", b.Weight)
	if b.Drained {
		weight += " (drained)"
	}
	health := b.Health.word(now)
	if health == "-" {
		health = "not checked"
	}
	line := fmt.Sprintf("%s  %s  %.1f%% of the ring  %s", b.Addr, weight, b.Share, health)
	if b.Health.State == "down" && b.Health.Why != "" {
		line += ": " + b.Health.Why
	}
	return line
}

// packets describes the outer header of the packets.
func (e *Explanation) packets() string {
	switch o := e.Outer; {
	case o == nil:
		return "as they are (l2)"
	case e.Backend.Problem == problemSource:
		return e.Backend.Encap + "  " + problemSource
	case o.Port != 0:
		return fmt.Sprintf("gue  from %s port %d  to %s port %d  %d bytes longer", o.Source, o.SourcePort, o.To, o.Port, o.Bytes)
	default:
		return fmt.Sprintf("%s  from %s  to %s  %d bytes longer", e.Backend.Encap, o.Source, o.To, o.Bytes)
	}
}
