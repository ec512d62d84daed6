// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"slices"

	"culvert/internal/datapath"
)

// lbPeers are the load balancers that culvert is compared with, each new.
func lbPeers() map[string]func() *lbPeer {
	file := func(text func() string) func(Path) string { return func(Path) string { return text() } }
	nft := []string{"-f", "-"}
	return map[string]func() *lbPeer{
		"linux-forward": func() *lbPeer { return &lbPeer{} },
		"nft-jhash": func() *lbPeer {
			return &lbPeer{program: "nft", args: nft, rules: file(nftJHash), arrival: lbRewritten}
		},
		"nft-netdev": func() *lbPeer {
			return &lbPeer{program: "nft", args: nft, rules: nftNetdev, arrival: lbRewritten}
		},
		"nft-netdev-l2": func() *lbPeer {
			return &lbPeer{program: "nft", args: nft, rules: nftLayer2, arrival: lbSent}
		},
		"iptables-statistic": func() *lbPeer {
			return &lbPeer{program: "iptables-restore", rules: file(iptablesStatistic), arrival: lbRewritten}
		},
		"ipvs-tun-sh": func() *lbPeer { return newIPVS("sh", "-i", lbTunnelled) },
		"ipvs-tun-mh": func() *lbPeer { return newIPVS("mh", "-i", lbTunnelled) },
		"ipvs-nat-sh": func() *lbPeer { return newIPVS("sh", "-m", lbRewritten) },
		"ipvs-nat-mh": func() *lbPeer { return newIPVS("mh", "-m", lbRewritten) },
	}
}

// newIPVS is the kernel's own load balancer.
func newIPVS(scheduler, forward string, arrival lbArrival) *lbPeer {
	return &lbPeer{
		program: "ipvsadm", args: []string{"-R"}, rules: func(Path) string { return ipvs(scheduler, forward) },
		takes: true, opens: true, arrival: arrival,
	}
}

// lbEncaps are culvert's rows of scenario lb, by how packets get to a backend.
var lbEncaps = []struct {
	name  string
	encap datapath.BalanceEncap
}{{lbRowCulvert, datapath.BalanceIPIP}, {lbRowCulvert + "-gue", datapath.BalanceGUE}, {lbRowCulvert + "-l2", datapath.BalanceL2}}

// lbRowCulvert is the name of the row that group cost belongs to.
const lbRowCulvert = "culvert"

// lbCandidates are the rows of scenario lb, in the order of reports: what balances packets, and what balances connections.
func lbCandidates() []candidate {
	packets := func(name string) func(Terms) Device {
		return func(Terms) Device { return lbPeers()[name]() }
	}
	var ours []candidate
	for _, e := range lbEncaps {
		// culvert watches tracepoints that all devices pass through.
		ours = append(ours, candidate{
			name: e.name, alone: true, device: func(Terms) Device { return &lbBalancer{lbCulvert{encap: e.encap}} },
		})
	}
	return slices.Concat([]candidate{
		{name: "direct"},
		{name: "redirect", device: func(Terms) Device { return &redirect{} }},
	}, ours, []candidate{
		{name: "linux-forward", device: packets("linux-forward")},
		{name: "nft-jhash", device: packets("nft-jhash")},
		{name: "nft-netdev", device: packets("nft-netdev")},
		{name: "nft-netdev-l2", device: packets("nft-netdev-l2")},
		{name: "iptables-statistic", device: packets("iptables-statistic")},
		{name: "haproxy"},
	})
}

// connectors make the balancers of connections under test, by the names of their rows.
func connectors() map[string]func() lbConnector {
	all := map[string]func() lbConnector{
		"direct":        func() lbConnector { return lbNone{} },
		"linux-forward": func() lbConnector { return lbNone{routed: true} },
		"nft-jhash":     func() lbConnector { return lbNAT{lbPeers()["nft-jhash"]()} },
		"haproxy":       func() lbConnector { return &haproxy{} },
	}
	for _, e := range lbEncaps {
		all[e.name] = func() lbConnector { return &lbDSR{lbCulvert: lbCulvert{encap: e.encap}} }
	}
	return all
}
