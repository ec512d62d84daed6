// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"culvert/internal/host/netdev"
)

// FailsAtPeer checks the other end of a veth of the calling thread's network namespace, on which culvert forwards packets. It
// returns the findings that have status Fail, and none for other kinds of interface.
func FailsAtPeer(name string) (fails []Finding) {
	l, err := netlink.LinkByName(name)
	if err != nil || l.Type() != "veth" {
		return nil
	}
	a := l.Attrs()
	n := netif{name: name, up: isUp(l), carrier: hasCarrier(l), xdp: readXDPSupport(a.Index), peer: readPeer(a), forwards: true}
	for _, check := range []func(netif) *Finding{checkPeerNAPI, checkPeerChecksum} {
		if f := check(n); f != nil && f.Status == Fail {
			f.Interface = name
			fails = append(fails, *f)
		}
	}
	return fails
}

// checkPeerNAPI looks whether frames that are redirected into a veth arrive. Unless the peer has NAPI on, the kernel drops
// them, and no counter of the interface shows it.
func checkPeerNAPI(n netif) *Finding {
	if n.peer == nil || !n.up {
		return nil
	}
	f := &Finding{Check: "peer-napi"}
	p := n.peer
	on := n.xdp.can(netdev.ActXmit)
	if !n.xdp.known {
		on = p.program || p.offloads["rx-gro"].on
	}
	switch {
	case !n.carrier:
		f.Status = Fail
		f.Finding = fmt.Sprintf("frames redirected into it are lost: %s is down", p)
		f.Command = p.command("ip link set dev %s up")
	case on:
		f.Finding = fmt.Sprintf("frames redirected into it arrive: %s has NAPI on", p)
	case !n.xdp.known && !p.seen:
		f.Status = Warn
		f.Finding = fmt.Sprintf("frames redirected into it are lost, uncounted, if GRO is off at its %s", p)
		f.Command = p.command("ethtool -K %s gro on")
	case n.xdp.known: // the fast path knows it too, and redirects nothing into the veth
		f.Status = Fail
		f.Finding = fmt.Sprintf("no frames can be redirected into it, because %s has NAPI off: the IP router leaves them to the kernel (route-egress), "+
			"SCION to the slow path (scion-next-hop), the load balancer drops them (lb-next-hop)", p)
		f.Command = p.command("ethtool -K %s gro on")
	default:
		f.Status = Fail
		f.Finding = fmt.Sprintf("frames redirected into it are lost, uncounted: %s has NAPI off", p)
		f.Command = p.command("ethtool -K %s gro on")
	}
	return f
}

// checkChecksum looks at this end of a veth. Packets of the local stack need finished checksums when XDP at the far end sees
// them, since a veth does not finish checksums.
func checkChecksum(n netif) *Finding {
	if n.peer == nil || n.offloads == nil {
		return nil
	}
	f := &Finding{Check: "checksum", Finding: "tx offload is off: packets leave with whole checksums"}
	if n.offloads.txChecksum() {
		f.Status = Warn
		f.Finding = "tx offload is on: checksums are unfinished when XDP at the far end sees them"
		f.Command = "ethtool -K " + n.name + " tx off"
		return f
	}
	if n.offloads["rx-checksum"].on {
		f.Finding += "; rx offload is on: wrong checksums of received packets are not noticed"
	}
	return f
}

// checkPeerChecksum looks at the other end of a veth, whose stack makes the checksums of packets that come in here.
func checkPeerChecksum(n netif) *Finding {
	if n.peer == nil {
		return nil
	}
	p := n.peer
	f := &Finding{Check: "peer-checksum"}
	switch {
	case !p.seen:
		f.Status = Warn
		f.Finding = fmt.Sprintf("packets come in with unfinished checksums if tx offload is on at its %s", p)
		f.Command = p.command("ethtool -K %s tx off")
	case p.offloads.txChecksum() && n.forwards:
		f.Status = Fail
		f.Finding = fmt.Sprintf("packets that come in are forwarded with unfinished checksums, and TCP hangs: tx offload is on at %s", p)
		f.Command = p.command("ethtool -K %s tx off")
	case p.offloads.txChecksum():
		f.Status = Warn
		f.Finding = fmt.Sprintf("packets come in with unfinished checksums: tx offload is on at %s", p)
		f.Command = p.command("ethtool -K %s tx off")
	default:
		f.Finding = fmt.Sprintf("packets come in with whole checksums: tx offload is off at %s", p)
	}
	return f
}
