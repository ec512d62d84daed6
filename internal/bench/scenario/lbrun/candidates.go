// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"slices"

	"culvert/internal/bench/peer"
	"culvert/internal/lb/lbplane"
)

// kernelPeers has the constructors of the kernel's load balancers that culvert is compared with, by name.
func kernelPeers() map[string]func() *kernelPeer {
	// anyPath makes rules of a text that does not depend on the path.
	anyPath := func(text func() string) func(peer.Path) string { return func(peer.Path) string { return text() } }
	nft := []string{"-f", "-"}
	return map[string]func() *kernelPeer{
		"linux-forward": func() *kernelPeer { return &kernelPeer{} },
		"nft-jhash": func() *kernelPeer {
			return &kernelPeer{program: "nft", args: nft, rules: anyPath(nftJHash), arrival: arrivesRewritten}
		},
		"nft-netdev": func() *kernelPeer {
			return &kernelPeer{program: "nft", args: nft, rules: nftNetdev, arrival: arrivesRewritten}
		},
		"nft-netdev-l2": func() *kernelPeer {
			return &kernelPeer{program: "nft", args: nft, rules: nftLayer2, arrival: arrivesSent}
		},
		"iptables-statistic": func() *kernelPeer {
			return &kernelPeer{program: "iptables-restore", rules: anyPath(iptablesStatistic), arrival: arrivesRewritten}
		},
		"ipvs-tun-sh": func() *kernelPeer { return newIPVS("sh", "-i", arrivesTunnelled) },
		"ipvs-tun-mh": func() *kernelPeer { return newIPVS("mh", "-i", arrivesTunnelled) },
		"ipvs-nat-sh": func() *kernelPeer { return newIPVS("sh", "-m", arrivesRewritten) },
		"ipvs-nat-mh": func() *kernelPeer { return newIPVS("mh", "-m", arrivesRewritten) },
	}
}

// newIPVS makes an IPVS load balancer. forward is ipvsadm's option for the forwarding method.
func newIPVS(scheduler, forward string, arrival arrivalForm) *kernelPeer {
	return &kernelPeer{
		program: "ipvsadm", args: []string{"-R"}, rules: func(peer.Path) string { return ipvs(scheduler, forward) },
		ownsVIP: true, needsSYN: true, arrival: arrival,
	}
}

// encaps are culvert's rows of scenario lb, one for each encapsulation to backends.
var encaps = []struct {
	name  string
	encap lbplane.Encap
}{{rowCulvert, lbplane.IPIP}, {rowCulvert + "-gue", lbplane.GUE}, {rowCulvert + "-l2", lbplane.L2}}

// rowCulvert is the name of the row that group cost belongs to.
const rowCulvert = "culvert"

// candidates are the rows of scenario lb, in the order of reports: those that balance packets, those that balance connections,
// and those that do both.
func candidates() []peer.Candidate {
	packets := func(name string) func(peer.DeviceOptions) peer.Device {
		return func(peer.DeviceOptions) peer.Device { return kernelPeers()[name]() }
	}
	var culverts []peer.Candidate
	for _, e := range encaps {
		// The rows are exclusive because culvert watches tracepoints that the packets of all devices pass.
		culverts = append(culverts, peer.Candidate{
			Name: e.name, Exclusive: true, Device: func(peer.DeviceOptions) peer.Device { return &balancer{culvert{encap: e.encap}} },
		})
	}
	return slices.Concat([]peer.Candidate{
		{Name: "direct"},
		{Name: "redirect", Device: func(peer.DeviceOptions) peer.Device { return &peer.Redirect{} }},
	}, culverts, []peer.Candidate{
		{Name: "linux-forward", Device: packets("linux-forward")},
		{Name: "nft-jhash", Device: packets("nft-jhash")},
		{Name: "nft-netdev", Device: packets("nft-netdev")},
		{Name: "nft-netdev-l2", Device: packets("nft-netdev-l2")},
		{Name: "iptables-statistic", Device: packets("iptables-statistic")},
		{Name: "haproxy"},
	})
}

// connectors has the constructors of the balancers of connections under test, by the name of their row.
func connectors() map[string]func() connector {
	all := map[string]func() connector{
		"direct":        func() connector { return noBalancer{} },
		"linux-forward": func() connector { return noBalancer{routed: true} },
		"nft-jhash":     func() connector { return natBalancer{kernelPeers()["nft-jhash"]()} },
		"haproxy":       func() connector { return &haproxy{} },
	}
	for _, e := range encaps {
		all[e.name] = func() connector { return &dsr{culvert: culvert{encap: e.encap}} }
	}
	return all
}
