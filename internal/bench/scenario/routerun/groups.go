// SPDX-License-Identifier: Apache-2.0

package routerun

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
	"culvert/internal/scion/scionpkt"
)

// frameLen is the length of frames in scenario route, in bytes without the frame check sequence. It is about that of the
// shortest frames with UDP over IPv6.
const frameLen = 64

// sourcePort is the source port of all packets.
const sourcePort = 1024

// mixLen is the number of packets that are drawn from a Zipf distribution. They are sent in the order in which they were
// drawn.
const mixLen = 131072

// group is a set of rows of scenario route that get the same packets.
type group struct {
	v6 bool
	// full selects a full table, and wide a route with room for many destinations, by one gateway, or by all with several.
	// Without these there are few routes.
	full, wide, several bool
	// addresses is the number of destinations.
	addresses int
	// zipf draws destinations from a Zipf distribution: the k-th has a probability proportional to 1/k. Without it all
	// destinations take turns in random order.
	zipf bool
	// churn changes routes during the measurement.
	churn bool

	// from are the routes that the destinations were picked from, one for each destination.
	from []netip.Prefix
	gen  *load.Generator
}

// allGroups lists all groups, in the order of reports.
func allGroups() []*group {
	var all []*group
	for _, v6 := range []bool{false, true} {
		all = append(all, &group{v6: v6, addresses: 1})
		for _, n := range []int{1, 64, 4096, 65536} {
			all = append(all, &group{v6: v6, full: true, addresses: n})
		}
		all = append(all,
			&group{v6: v6, full: true, addresses: 65536, zipf: true},
			&group{v6: v6, full: true, addresses: 4096, churn: true},
			&group{v6: v6, wide: true, addresses: 65536}, &group{v6: v6, wide: true, several: true, addresses: 65536})
	}
	return all
}

// String is the group's name, which is the variant of its rows.
func (g *group) String() string {
	family := "4"
	if g.v6 {
		family = "6"
	}
	switch {
	case g.several:
		return family + "-multi"
	case g.wide:
		return family + "-single"
	case !g.full:
		return family + "-few"
	case g.zipf:
		return family + "-full-zipf"
	case g.churn:
		return family + "-full-churn"
	default:
		return family + "-full-" + strconv.Itoa(g.addresses)
	}
}

// tableKind tells which groups can share a bed: those with the same routes.
type tableKind struct{ full, wide, several bool }

func (g *group) kind() tableKind { return tableKind{g.full, g.wide, g.several} }

// routes is the table of the group's bed.
func (g *group) routes(o scenario.Options) (table, error) {
	switch {
	case g.full:
		return fullRoutes(o)
	case g.wide:
		return wideRoutes(g.several), nil
	}
	return fewRoutes(), nil
}

// base is the group that the rows are compared with row by row, nil if there is none.
func (g *group) base() *group {
	switch {
	case g.several:
		return &group{v6: g.v6, wide: true}
	case g.full && !g.churn:
		return &group{v6: g.v6}
	}
	return nil
}

// Groups lists the names of the groups of scenario route.
func Groups() []string {
	var names []string
	for _, g := range allGroups() {
		names = append(names, g.String())
	}
	return names
}

// chosenGroups returns the groups that the options select, or all if they select none. The beginning of names up to a dash
// selects all groups that begin so: 4 selects those of IPv4.
func chosenGroups(o scenario.Options) ([]*group, error) {
	all := allGroups()
	if len(o.Groups) == 0 {
		return all, nil
	}
	selects := func(word string, g *group) bool {
		return g.String() == word || strings.HasPrefix(g.String(), word+"-")
	}
	for _, word := range o.Groups {
		if !slices.ContainsFunc(all, func(g *group) bool { return selects(word, g) }) {
			return nil, fmt.Errorf("%w group %q: there are %s, and 4, 6, 4-full and 6-full for all of a kind", load.ErrUnknown, word,
				strings.Join(Groups(), ", "))
		}
	}
	return slices.DeleteFunc(all, func(g *group) bool {
		return !slices.ContainsFunc(o.Groups, func(word string) bool { return selects(word, g) })
	}), nil
}

// frames makes the packets of the group from the tester to the router: one for each destination, or mixLen with a Zipf
// distribution. It sets g.from.
func (g *group) frames(t table, p peer.Path) ([][]byte, error) {
	var addrs []netip.Addr
	addrs, g.from = destinations(*t.of(g.v6), g.addresses)
	frames := make([][]byte, len(addrs))
	for i, dst := range addrs {
		f, err := routedFrame(dst, p, frameLen)
		if err != nil {
			return nil, err
		}
		frames[i] = f
	}
	if !g.zipf {
		return frames, nil
	}
	// Frames are never written, so those to one destination can share their bytes.
	mix := make([][]byte, mixLen)
	for i, k := range zipf(len(frames), len(mix)) {
		mix[i] = frames[k]
	}
	return mix, nil
}

// routedFrame makes a UDP packet for the router to forward, with a TTL of 64, in a frame of size bytes.
func routedFrame(dst netip.Addr, p peer.Path, size int) ([]byte, error) {
	net, headers := netIn4, scionpkt.EthernetLen+scionpkt.IPv4Len+scionpkt.UDPLen
	if dst.Is6() {
		net, headers = netIn6, scionpkt.EthernetLen+scionpkt.IPv6Len+scionpkt.UDPLen
	}
	o := scionpkt.Outer{
		Src: netip.AddrPortFrom(net.Addr().Next().Next(), sourcePort),
		Dst: netip.AddrPortFrom(dst, load.DiscardPort),
	}
	copy(o.DstMAC[:], p.In.MAC)
	copy(o.SrcMAC[:], p.Source.MAC)
	return o.Frame(make([]byte, size-headers))
}
