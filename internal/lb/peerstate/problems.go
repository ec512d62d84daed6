// SPDX-License-Identifier: Apache-2.0

package peerstate

import (
	"fmt"
	"time"
)

// Problem is a reason why flows may not survive that another machine, or this one, is lost.
type Problem struct {
	Text string
	// Command is what to do about it.
	Command string
	// Severe is set if flows of a peer do not get here at all.
	Severe bool
}

// Problems returns what is wrong with the exchange, none for nil.
func (s *State) Problems() (all []Problem) {
	if s == nil {
		return nil
	}
	for _, p := range s.Peers {
		all = append(all, p.problems()...)
	}
	if s.Bulk == BulkIncomplete {
		all = append(all, Problem{
			Text: "not all peers told their flows when this machine started: " + s.BulkError, Command: "culvert lb show, and the log of that peer",
		})
	}
	if s.Untold > 0 {
		all = append(all, Problem{
			Text:    fmt.Sprintf("%d flows with other backends than the rings' are more than flows of [lb.peers] (%d), and the peers do not know them", s.Untold, s.Limit),
			Command: "raise flows in [lb.peers]",
		})
	}
	if s.Limit > 0 && s.Held >= s.Limit {
		all = append(all, Problem{
			Text:    fmt.Sprintf("%d flows of peers are here, as many as flows of [lb.peers] allows: further ones are not taken", s.Held),
			Command: "raise flows in [lb.peers]",
		})
	}
	return all
}

func (p *Peer) problems() (all []Problem) {
	add := func(severe bool, command, text string, args ...any) {
		all = append(all, Problem{fmt.Sprintf("peer %s: ", p.Address) + fmt.Sprintf(text, args...), command, severe})
	}
	switch {
	case !p.Up:
		add(true, "ping -c 1 "+p.Address.Addr().String()+", and compare listen, peers and the key on both sides",
			"nothing has been heard since %s: flows that come here from there may break", p.Since.Format(time.TimeOnly))
	case p.OtherSeed:
		add(true, "culvert lb show, on both machines: ring size and seed ID", "it has another seed or ring_size: most flows that move between the machines break")
	case p.OtherRings:
		add(false, "culvert lb show, on both machines", "it has other rings: VIPs, backends, weights, drains or the results of checks differ")
	}
	if p.Wrong != "" {
		add(false, "culvert lb show -j, and compare versions and keys on both sides", "a datagram was not taken: %s", p.Wrong)
	}
	return all
}
