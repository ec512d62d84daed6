// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"net/netip"
)

// checkMixed warns of interfaces that lead both to neighbor ASes and to the inside. names separates them with commas.
func checkMixed(names string) []Finding {
	if names == "" {
		return nil
	}
	return []Finding{{Status: Warn, Check: "link-interface", Finding: fmt.Sprintf("%s: a way to other ASes, and maybe to the inside too: "+
		"whoever can send there can pose as a host of the AS or as a sibling; give the inside an interface of its own", names)}}
}

// ShortLink is a link of the router whose way to the far end takes SCION packets of Longest bytes, and the topology says Topology.
type ShortLink struct {
	Link              string
	Remote            netip.Addr
	Topology, Longest int
	// Fragment says that longer packets are sent in IP fragments. Otherwise they are dropped and answered.
	Fragment bool
}

// leastForQUIC is the length of the first SCION packets of a QUIC connection between control services, with an IPv4 address at either
// end: 1,280 bytes of QUIC, and headers.
const leastForQUIC = 1360

// checkShort warns of links whose way takes shorter packets than the topology promises to hosts.
func checkShort(links []ShortLink) (found []Finding) {
	for _, l := range links {
		f := Finding{Status: Warn, Check: "link-mtu"}
		outcome := "dropped, and answered with packet too big"
		switch {
		case l.Fragment:
			outcome = "sent in IP fragments"
		case l.Longest < leastForQUIC:
			f.Status = Fail
			outcome += `, those of the control services too: take too_big = "answer" out of [scion]`
		}
		f.Finding = fmt.Sprintf("link %s: its mtu is %d in topology.json, and the way to %s takes packets of %d bytes: longer ones are %s; "+
			"make the MTU of the way larger by %d, or write mtu = %d at both ends", l.Link, l.Topology, l.Remote, l.Longest, outcome, l.Topology-l.Longest, l.Longest)
		found = append(found, f)
	}
	return found
}
