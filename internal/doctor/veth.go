// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"github.com/vishvananda/netlink"

	"culvert/internal/host/netdev"
)

// FailsAtPeer makes the checks of a veth's other end, for an interface of the calling thread's network namespace by which what
// comes in is forwarded. It returns those that fail for certain.
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

// checkPeerNAPI asks whether frames redirected into a veth arrive. Without NAPI on the peer the
// kernel drops them and no counter of the interface moves.
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
	case n.xdp.known: // which the fast path asks, too
		f.Status = Fail
		f.Finding = fmt.Sprintf("no frames can be redirected into it, as %s has NAPI off: the IP router leaves them to the kernel (route-egress), "+
			"SCION to the slow path (scion-next-hop), the load balancer drops them (lb-next-hop)", p)
		f.Command = p.command("ethtool -K %s gro on")
	default:
		f.Status = Fail
		f.Finding = fmt.Sprintf("frames redirected into it are lost, uncounted: %s has NAPI off", p)
		f.Command = p.command("ethtool -K %s gro on")
	}
	return f
}

// checkChecksum looks at this end of a veth: what the local stack sends through it must be whole when
// XDP at the far end sees it, since a veth never gets to finish a checksum.
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
		f.Finding += "; rx is on: wrong ones are not noticed on arrival"
	}
	return f
}

// checkPeerChecksum looks at the other end: what comes in here was given its checksum there.
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
		f.Finding = fmt.Sprintf("what comes in is forwarded with unfinished checksums, and TCP hangs: tx offload is on at %s", p)
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
