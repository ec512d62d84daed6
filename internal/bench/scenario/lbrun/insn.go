// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"fmt"
	"slices"
	"strings"

	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
	"culvert/internal/lb/lbplane"
)

// insnPeer is a load balancer of the kernel, for counting instructions.
type insnPeer struct {
	*kernelPeer
	// fresh makes each packet the SYN of a new flow. Without it all flows are known.
	fresh bool
}

// insnFresh is the suffix of the names of rows with new flows.
const insnFresh = "-new"

// insnCulvert is culvert's load balancer, for counting instructions end to end.
type insnCulvert struct {
	balancer
	fresh bool
}

// InsnCulverts returns the rows of culvert's load balancer end to end.
func InsnCulverts() []peer.Candidate {
	var all []peer.Candidate
	add := func(name string, encap lbplane.Encap, fresh bool) {
		all = append(all, peer.Candidate{Name: "lb-culvert-" + name, Device: func(peer.DeviceOptions) peer.Device {
			return &insnCulvert{balancer{culvert{encap: encap, insertRate: unlimited}}, fresh}
		}})
	}
	add("ipip", lbplane.IPIP, false)
	add("ipip"+insnFresh, lbplane.IPIP, true)
	add("gue", lbplane.GUE, false)
	add("l2", lbplane.L2, false)
	return all
}

// Check returns an error unless only the flows of verify were new or, with fresh, all flows were.
func (d *insnCulvert) Check() error {
	count, err := d.reasons()
	if err != nil {
		return err
	}
	if fresh := count[reasonNew] > clients; fresh != d.fresh || count[reasonUntracked] > 0 {
		return fmt.Errorf("the packets are not those that are to be counted: %v", count)
	}
	return nil
}

// SetTraffic sets the packets of the scenario.
func (d *insnCulvert) SetTraffic(v *scenario.VethOptions) { setInsnTraffic(d.fresh, v) }

// insnPeerNames are the load balancers whose instructions are counted in guests. The guests' kernels have all of them.
var insnPeerNames = []string{"ipvs-tun-sh", "ipvs-tun-mh", "ipvs-nat-sh", "ipvs-nat-mh", "nft-jhash", "nft-netdev"}

// InsnPeers returns the rows of the kernel's load balancers end to end.
func InsnPeers() []peer.Candidate {
	var all []peer.Candidate
	for _, name := range insnPeerNames {
		newPeer := kernelPeers()[name]
		for _, fresh := range []bool{false, true} {
			suffix := ""
			if fresh {
				suffix = insnFresh
			}
			all = append(all, peer.Candidate{Name: name + suffix, Device: func(peer.DeviceOptions) peer.Device {
				return &insnPeer{kernelPeer: newPeer(), fresh: fresh}
			}})
		}
	}
	return all
}

// PeerRows lists the names of the rows in InsnPeers, as insn.Rows does.
func PeerRows() []string {
	var names []string
	for _, c := range InsnPeers() {
		names = append(names, "path/"+c.Name)
	}
	return names
}

// PeerPrograms lists the programs that guests need for rows, which are names from insn.Rows. No rows stand for all.
func PeerPrograms(rows []string) []string {
	var names []string
	for _, c := range InsnPeers() {
		if len(rows) > 0 && !slices.Contains(rows, "path/"+c.Name) {
			continue
		}
		if program := c.Device(peer.DeviceOptions{}).(*insnPeer).program; !slices.Contains(names, program) {
			names = append(names, program)
		}
	}
	return names
}

// Kernel modules that load balancers need. Each comes after those that it depends on.
var (
	trackingModules = []string{"libcrc32c", "nf_defrag_ipv4", "nf_defrag_ipv6", "nf_conntrack"}
	ipvsModules     = []string{"ip_vs", "ip_vs_sh", "ip_vs_mh"}
	nftModules      = []string{"nfnetlink", "nf_tables", "nft_hash"}
	nftNATModules   = []string{"nf_nat", "nft_chain_nat", "nft_nat"}
	nftFwdModules   = []string{"nf_dup_netdev", "nft_fwd_netdev"}
)

// Modules lists the kernel modules that any row needs, in the order in which they can be loaded.
func Modules() []string {
	return slices.Concat(trackingModules, ipvsModules, nftModules, nftNATModules, nftFwdModules)
}

// Modules lists the kernel modules that the balancer needs, in the order in which they can be loaded.
func (d *insnPeer) Modules() []string {
	switch {
	case d.program == "ipvsadm":
		return slices.Concat(trackingModules, ipvsModules)
	case strings.Contains(d.rules(peer.Path{}), "nat hook"):
		return slices.Concat(trackingModules, nftModules, nftNATModules)
	default:
		return slices.Concat(trackingModules[:1], nftModules, nftFwdModules)
	}
}

// SetTraffic sets the packets of the scenario.
func (d *insnPeer) SetTraffic(v *scenario.VethOptions) { setInsnTraffic(d.fresh, v) }

// setInsnTraffic has packets of known flows sent, or of new ones.
func setInsnTraffic(fresh bool, v *scenario.VethOptions) {
	g := group{flows: clients}
	if fresh {
		g = group{flows: endless, syn: true}
	}
	g.SetTraffic(v)
}
