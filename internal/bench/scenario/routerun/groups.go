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

// frameLen is the length of frames in scenario route, bytes without the frame check sequence: about the shortest
// that carry UDP over IPv6.
const frameLen = 64

// sourcePort is where all packets come from.
const sourcePort = 1024

// mixLen is how many packets of a Zipf mix are drawn: from one to the next they are as random as the mix.
const mixLen = 131072

// group is a set of rows of scenario route that get the same packets.
type group struct {
	v6 bool
	// full is set for a full table, else there are a few routes.
	full bool
	// addresses is how many destinations there are.
	addresses int
	// zipf has the k-th destination with a likelihood of 1/k, else they take turns in random order.
	zipf bool
	// churn has routes change meanwhile.
	churn bool

	// from are the routes that the destinations were picked from.
	from []netip.Prefix
	gen  *load.Generator
}

// allGroups are all there are, in the order of reports.
func allGroups() []*group {
	var all []*group
	for _, v6 := range []bool{false, true} {
		all = append(all, &group{v6: v6, addresses: 1})
		for _, n := range []int{1, 64, 4096, 65536} {
			all = append(all, &group{v6: v6, full: true, addresses: n})
		}
		all = append(all,
			&group{v6: v6, full: true, addresses: 65536, zipf: true},
			&group{v6: v6, full: true, addresses: 4096, churn: true})
	}
	return all
}

// String is the group's name: the variant of its rows.
func (g *group) String() string {
	family := "4"
	if g.v6 {
		family = "6"
	}
	switch {
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

// Groups lists the names of the groups of scenario route.
func Groups() []string {
	var names []string
	for _, g := range allGroups() {
		names = append(names, g.String())
	}
	return names
}

// chosenGroups are those that the options ask for, all without. The beginning of a name asks for all that begin so up
// to a dash: 4 for those of IPv4.
func chosenGroups(o scenario.Options) ([]*group, error) {
	all := allGroups()
	if len(o.Groups) == 0 {
		return all, nil
	}
	asked := func(g *group, word string) bool {
		return g.String() == word || strings.HasPrefix(g.String(), word+"-")
	}
	for _, word := range o.Groups {
		if !slices.ContainsFunc(all, func(g *group) bool { return asked(g, word) }) {
			return nil, fmt.Errorf("%w group %q: there are %s, and 4, 6, 4-full and 6-full for all of a kind", load.ErrUnknown, word,
				strings.Join(Groups(), ", "))
		}
	}
	return slices.DeleteFunc(all, func(g *group) bool {
		return !slices.ContainsFunc(o.Groups, func(word string) bool { return asked(g, word) })
	}), nil
}

// frames are the packets of the group from one end to the router's: for each destination one, or of a Zipf mix as many
// as there are in it.
func (g *group) frames(t table, p peer.Path) ([][]byte, error) {
	var addrs []netip.Addr
	addrs, g.from = destinations(*t.of(g.v6), g.addresses)
	one := func(dst netip.Addr) ([]byte, error) { return routedFrame(dst, p, frameLen) }
	frames := make([][]byte, len(addrs))
	for i, dst := range addrs {
		f, err := one(dst)
		if err != nil {
			return nil, err
		}
		frames[i] = f
	}
	if !g.zipf {
		return frames, nil
	}
	// A frame is not changed, so that those to one destination can share their bytes.
	mix := make([][]byte, mixLen)
	for i, k := range zipf(len(frames), len(mix)) {
		mix[i] = frames[k]
	}
	return mix, nil
}

// routedFrame is a UDP packet for the router to forward, with 64 hops to go, in a frame of so many bytes.
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
