// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strings"
)

// about describes a namespace of the topology bgp in a few words.
func (b *BGP) about(ns string) string {
	switch {
	case ns == "rut" && b.Plain:
		return string(b.Router)
	case ns == "rut":
		return fmt.Sprintf("AS %d, BIRD, %s", asRut, b.Router)
	case ns == "peer" && !b.Plain:
		return fmt.Sprintf("AS %d, BIRD", asPeer)
	case ns == "rpki" && !b.Plain:
		return "stayrtr"
	}
	return ""
}

// showBGP returns the summary of a lab of the topology bgp, with commands to try.
func (l *Lab) showBGP() string {
	b := l.BGP
	var s strings.Builder
	from := "peer"
	if b.Plain {
		from = "ip"
	}
	fmt.Fprintf(&s, "rut has %d IPv4 and %d IPv6 routes from %s", b.IPv4.Routes, b.IPv6.Routes, from)
	if !b.Plain {
		fmt.Fprintf(&s, "; %d and %d with an invalid origin are filtered", b.IPv4.Filtered, b.IPv6.Filtered)
	}
	s.WriteString("\nto try:\n")
	try := func(ns, command string) { fmt.Fprintf(&s, "  culvert lab exec %s %s %s\n", l.Name, ns, command) }
	try("left", "ping -c 3 "+b.IPv4.Target.String())
	try("left", "ping -c 3 "+b.IPv6.Target.String())
	try("left", "traceroute -n "+b.IPv4.Target.String())
	if b.Router == Culvert {
		try("rut", "culvert route get "+b.IPv4.Target.String())
	} else {
		try("rut", "ip route get "+b.IPv4.Target.String())
	}
	if !b.Plain {
		birdc := "birdc -s " + l.birdSocket("rut")
		try("rut", birdc+" show route for "+b.IPv4.Target.String())
		try("rut", birdc+" show route filtered")
		try("left", "ping -c 3 "+b.IPv4.InvalidAddr.String()+"   # filtered: no route")
	}
	if b.Router != Culvert {
		try("rut", "culvert run -c "+b.CulvertConfig)
	}
	return s.String()
}
