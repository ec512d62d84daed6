// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"slices"
	"strings"

	"culvert/internal/datapath"
)

// insnBalancer is a load balancer whose instructions are to be counted.
type insnBalancer struct {
	*lbPeer
	// fresh has each packet be the SYN of a flow that there was not before, else all flows are known.
	fresh bool
}

// insnFresh is what names of rows with new flows end in.
const insnFresh = "-new"

// insnCulvert is culvert's load balancer from end to end.
type insnCulvert struct {
	lbBalancer
	fresh bool
}

// insnCulverts are culvert's load balancers from end to end.
func insnCulverts() []candidate {
	var all []candidate
	add := func(name string, encap datapath.BalanceEncap, fresh bool) {
		all = append(all, candidate{name: "lb-culvert-" + name, device: func(Terms) Device {
			return &insnCulvert{lbBalancer{lbCulvert{encap: encap, insertRate: lbUnlimited}}, fresh}
		}})
	}
	add("ipip", datapath.BalanceIPIP, false)
	add("ipip"+insnFresh, datapath.BalanceIPIP, true)
	add("gue", datapath.BalanceGUE, false)
	add("l2", datapath.BalanceL2, false)
	return all
}

// check sees that no flows were new but those that the balancer was tried with, or that all were.
func (d *insnCulvert) check() error {
	count, err := d.reasons()
	if err != nil {
		return err
	}
	if fresh := count[lbNew] > lbClients; fresh != d.fresh || count[lbUntracked] > 0 {
		return fmt.Errorf("the packets are not those that are to be counted: %v", count)
	}
	return nil
}

// shape has the packets of the scenario sent.
func (d *insnCulvert) shape(v *vethOptions) { insnShape(d.fresh, v) }

// insnPeers are the load balancers of guests, whose kernels have what that of the machine may lack.
var insnPeers = []string{"ipvs-tun-sh", "ipvs-tun-mh", "ipvs-nat-sh", "ipvs-nat-mh", "nft-jhash", "nft-netdev"}

// insnBalancers are the load balancers from end to end that are not culvert's.
func insnBalancers() []candidate {
	var all []candidate
	for _, name := range insnPeers {
		make := lbPeers()[name]
		for _, fresh := range []bool{false, true} {
			suffix := ""
			if fresh {
				suffix = insnFresh
			}
			all = append(all, candidate{name: name + suffix, device: func(Terms) Device {
				return &insnBalancer{lbPeer: make(), fresh: fresh}
			}})
		}
	}
	return all
}

// InsnBalancers lists the rows of load balancers that are no programs of ours, as InsnRows does.
func InsnBalancers() []string {
	var names []string
	for _, c := range insnBalancers() {
		names = append(names, "path/"+c.name)
	}
	return names
}

// InsnPrograms lists the programs that guests need for rows, as InsnOptions has them.
func InsnPrograms(rows []string) []string {
	var names []string
	for _, c := range insnBalancers() {
		if len(rows) > 0 && !slices.Contains(rows, "path/"+c.name) {
			continue
		}
		if program := c.device(Terms{}).(*insnBalancer).program; !slices.Contains(names, program) {
			names = append(names, program)
		}
	}
	return names
}

// Modules of the kernel that load balancers need, each behind those that it needs itself.
var (
	trackingModules = []string{"libcrc32c", "nf_defrag_ipv4", "nf_defrag_ipv6", "nf_conntrack"}
	ipvsModules     = []string{"ip_vs", "ip_vs_sh", "ip_vs_mh"}
	nftModules      = []string{"nfnetlink", "nf_tables", "nft_hash"}
	nftNATModules   = []string{"nf_nat", "nft_chain_nat", "nft_nat"}
	nftFwdModules   = []string{"nf_dup_netdev", "nft_fwd_netdev"}
)

// InsnModules lists the modules of the kernel that rows may need, in the order in which they can be loaded.
func InsnModules() []string {
	return slices.Concat(trackingModules, ipvsModules, nftModules, nftNATModules, nftFwdModules)
}

// modules are those of the balancer.
func (d *insnBalancer) modules() []string {
	switch {
	case d.program == "ipvsadm":
		return slices.Concat(trackingModules, ipvsModules)
	case strings.Contains(d.rules(Path{}), "nat hook"):
		return slices.Concat(trackingModules, nftModules, nftNATModules)
	default:
		return slices.Concat(trackingModules[:1], nftModules, nftFwdModules)
	}
}

// shape has the packets of the scenario sent.
func (d *insnBalancer) shape(v *vethOptions) { insnShape(d.fresh, v) }

// insnShape has packets of known flows sent, or of new ones.
func insnShape(fresh bool, v *vethOptions) {
	g := lbGroup{flows: lbClients}
	if fresh {
		g = lbGroup{flows: lbEndless, syn: true}
	}
	g.shape(v)
}
