// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"fmt"
	"time"

	"culvert/internal/lb/peerstate"
	"culvert/internal/show/text"
)

// peersLines returns the lines about the exchange of flows, none for nil.
func peersLines(s *peerstate.State, now time.Time) []string {
	if s == nil {
		return nil
	}
	lines := []string{fmt.Sprintf("peers of %s  flows beside the rings %s, not told %s  held for others %s of %s  %s", s.Listen,
		text.Grouped(s.Deviating), text.Grouped(s.Untold), text.Grouped(s.Held), text.Grouped(s.Limit), bulkText(s))}
	for _, p := range s.Peers {
		lines = append(lines, peerLine(p, now))
	}
	return lines
}

func bulkText(s *peerstate.State) string {
	switch s.Bulk {
	case peerstate.BulkAsking:
		return "asking them for their flows: nothing is announced yet"
	case peerstate.BulkIncomplete:
		return "NOT ALL were asked at the start: " + s.BulkError
	case peerstate.BulkDone:
		return "all were asked at the start"
	}
	return "not asked at the start: no [lb.peers.bulk]"
}

func peerLine(p peerstate.Peer, now time.Time) string {
	state, agrees := "up", "same rings"
	switch {
	case !p.Up:
		state, agrees = "SILENT", ""
	case p.OtherSeed:
		agrees = "OTHER SEED (culvert lb seed) or ring size"
	case p.OtherRings:
		agrees = "OTHER RINGS"
	}
	line := fmt.Sprintf("peer %s  %s %s", p.Address, state, text.Ago(now.Sub(p.Since)))
	if agrees != "" {
		line += "  " + agrees
	}
	refused := uint64(0)
	for _, result := range peerstate.Datagrams {
		if result != peerstate.Accepted && result != peerstate.Lost {
			refused += p.Datagrams[result]
		}
	}
	line += fmt.Sprintf("  datagrams %s, lost %s, not taken %s", text.Grouped(p.Datagrams[peerstate.Accepted]),
		text.Grouped(p.Datagrams[peerstate.Lost]), text.Grouped(refused))
	if p.Wrong != "" {
		line += "  " + p.Wrong
	}
	return line
}
