// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"slices"

	"culvert/internal/bench/peer"
	"culvert/internal/lb/lbplane"
)

// kernelPeers are the load balancers that culvert is compared with, each new.
func kernelPeers() map[string]func() *kernelPeer {
	file := func(text func() string) func(peer.Path) string { return func(peer.Path) string { return text() } }
	nft := []string{"-f", "-"}
	return map[string]func() *kernelPeer{
		"linux-forward": func() *kernelPeer { return &kernelPeer{} },
		"nft-jhash": func() *kernelPeer {
			return &kernelPeer{program: "nft", args: nft, rules: file(nftJHash), arrival: arrivesRewritten}
		},
		"nft-netdev": func() *kernelPeer {
			return &kernelPeer{program: "nft", args: nft, rules: nftNetdev, arrival: arrivesRewritten}
		},
		"nft-netdev-l2": func() *kernelPeer {
			return &kernelPeer{program: "nft", args: nft, rules: nftLayer2, arrival: arrivesSent}
		},
		"iptables-statistic": func() *kernelPeer {
			return &kernelPeer{program: "iptables-restore", rules: file(iptablesStatistic), arrival: arrivesRewritten}
		},
		"ipvs-tun-sh": func() *kernelPeer { return newIPVS("sh", "-i", arrivesTunnelled) },
		"ipvs-tun-mh": func() *kernelPeer { return newIPVS("mh", "-i", arrivesTunnelled) },
		"ipvs-nat-sh": func() *kernelPeer { return newIPVS("sh", "-m", arrivesRewritten) },
		"ipvs-nat-mh": func() *kernelPeer { return newIPVS("mh", "-m", arrivesRewritten) },
	}
}

// newIPVS is the kernel's own load balancer.
func newIPVS(scheduler, forward string, arrival arrivalForm) *kernelPeer {
	return &kernelPeer{
		program: "ipvsadm", args: []string{"-R"}, rules: func(peer.Path) string { return ipvs(scheduler, forward) },
		takes: true, opens: true, arrival: arrival,
	}
}

// encaps are culvert's rows of scenario lb, by how packets get to a backend.
var encaps = []struct {
	name  string
	encap lbplane.Encap
}{{rowCulvert, lbplane.IPIP}, {rowCulvert + "-gue", lbplane.GUE}, {rowCulvert + "-l2", lbplane.L2}}

// rowCulvert is the name of the row that group cost belongs to.
const rowCulvert = "culvert"

// candidates are the rows of scenario lb, in the order of reports: what balances packets, and what balances connections.
func candidates() []peer.Candidate {
	packets := func(name string) func(peer.DeviceOptions) peer.Device {
		return func(peer.DeviceOptions) peer.Device { return kernelPeers()[name]() }
	}
	var ours []peer.Candidate
	for _, e := range encaps {
		// culvert watches tracepoints that all devices pass through.
		ours = append(ours, peer.Candidate{
			Name: e.name, Exclusive: true, Device: func(peer.DeviceOptions) peer.Device { return &balancer{culvert{encap: e.encap}} },
		})
	}
	return slices.Concat([]peer.Candidate{
		{Name: "direct"},
		{Name: "redirect", Device: func(peer.DeviceOptions) peer.Device { return &peer.Redirect{} }},
	}, ours, []peer.Candidate{
		{Name: "linux-forward", Device: packets("linux-forward")},
		{Name: "nft-jhash", Device: packets("nft-jhash")},
		{Name: "nft-netdev", Device: packets("nft-netdev")},
		{Name: "nft-netdev-l2", Device: packets("nft-netdev-l2")},
		{Name: "iptables-statistic", Device: packets("iptables-statistic")},
		{Name: "haproxy"},
	})
}

// connectors make the balancers of connections under test, by the names of their rows.
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
