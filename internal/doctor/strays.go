// SPDX-License-Identifier: Apache-2.0

package doctor

import "fmt"

// Stray is an interface by which datagrams of a SCION link come in although the link belongs to another interface. The router
// drops them.
type Stray struct {
	Interface string
	// Router is the name of the data plane.
	Router string
	// Packets is how many of them came in while doctor was looking.
	Packets uint64
}

// checkStrays warns of datagrams that come in by an interface which does not lead to the far end of their link.
func checkStrays(strays []Stray) []Finding {
	var found []Finding
	for _, s := range strays {
		found = append(found, Finding{
			Status: Warn, Check: "link-interface", Interface: s.Interface,
			Finding: fmt.Sprintf("router %s is dropping datagrams of its links (scion-interface, %d within a second): they came "+
				"by %s, and no route to their source leads there. Either they are forged, or routing is asymmetric: then "+
				"the router needs link_interfaces = \"loose\"", s.Router, s.Packets, s.Interface),
			Command: "ip route get ADDRESS of the link's far end",
		})
	}
	return found
}
