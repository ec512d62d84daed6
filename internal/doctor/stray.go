// SPDX-License-Identifier: Apache-2.0

package doctor

import "fmt"

// Stray is an interface by which datagrams of a router's links come in, and are dropped, that belong to another one.
type Stray struct {
	Interface string
	Router    string
	// Packets is how many came while there was somebody looking.
	Packets uint64
}

// checkStrays judges datagrams that come by an interface which does not lead to their link's far end.
func checkStrays(strays []Stray) []Finding {
	var found []Finding
	for _, s := range strays {
		found = append(found, Finding{
			Status: Warn, Check: "link-interface", Interface: s.Interface,
			Finding: fmt.Sprintf("router %s is dropping datagrams of its links (scion-interface, %d within a second): they came "+
				"by %s, and no route to their source leads there. Somebody forges them, or the ways to and fro differ: then "+
				"the router needs link_interfaces = \"loose\"", s.Router, s.Packets, s.Interface),
			Command: "ip route get ADDRESS of the link's far end",
		})
	}
	return found
}
