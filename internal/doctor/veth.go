// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"

	"culvert/internal/host/netdev"
)

// Stages tells which stages are on.
type Stages struct {
	SCION, Route, LB, Filter bool
	// SYN tells whether the filter answers SYNs with cookies.
	SYN bool
	// Generic tells whether they run in generic mode.
	Generic bool
}

// stages returns the stages that are on. If nothing is configured and nothing runs, these are all that forward, since nobody
// knows which one will be.
func (o Options) stages() Stages {
	s := o.Stages
	if s == (Stages{Generic: s.Generic}) {
		return Stages{SCION: true, Route: true, LB: true, Generic: s.Generic}
	}
	s.SYN = s.SYN || len(o.Protected) > 0 || o.Forwarded
	return s
}

// unredirected says what each stage that sends frames does where no frames can be redirected, "" if none sends any.
func (s Stages) unredirected() string {
	var all []string
	for _, stage := range []struct {
		on   bool
		does string
	}{
		{s.Route, "the IP router leaves them to the kernel (route-egress)"},
		{s.SCION, "the SCION router leaves them to the slow path (scion-next-hop)"},
		{s.LB, "the load balancer drops them (lb-next-hop)"},
		{s.SYN, "the filter's answers to SYNs (filter-synack) are lost"},
	} {
		if stage.on {
			all = append(all, stage.does)
		}
	}
	return strings.Join(all, ", ")
}

// FailsAtPeer checks the other end of a veth of the calling thread's network namespace, on which culvert forwards packets. s
// are the stages that are on. It returns the findings that have status Fail, and none for other kinds of interface.
func FailsAtPeer(name string, s Stages) (fails []Finding) {
	l, err := netlink.LinkByName(name)
	if err != nil || l.Type() != "veth" {
		return nil
	}
	a := l.Attrs()
	n := netif{name: name, up: isUp(l), carrier: hasCarrier(l), xdp: readXDPSupport(a.Index), peer: readPeer(a), forwards: true, stages: s}
	for _, check := range []func(netif) *Finding{checkPeerNAPI, checkPeerChecksum} {
		if f := check(n); f != nil && f.Status == Fail {
			f.Interface = name
			fails = append(fails, *f)
		}
	}
	return fails
}

// checkPeerNAPI looks whether frames that are redirected into a veth arrive. Unless the peer has NAPI on, the kernel drops
// them, and no counter of the interface shows it. In generic mode the kernel sends them as it sends its own.
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
	does := n.stages.unredirected()
	switch {
	case does == "":
		f.Finding = "no stage that is on redirects frames into it"
	case !n.carrier:
		f.Status = Fail
		f.Finding = fmt.Sprintf("frames redirected into it are lost: %s is down", p)
		f.Command = p.command("ip link set dev %s up")
	case n.generic():
		f.Finding = "frames redirected into it arrive: generic mode does not need NAPI at the peer"
	case on:
		f.Finding = fmt.Sprintf("frames redirected into it arrive: %s has NAPI on", p)
	case !n.xdp.known && !p.seen:
		f.Status = Warn
		f.Finding = fmt.Sprintf("frames redirected into it are lost, uncounted, if GRO is off at its %s", p)
		f.Command = p.command("ethtool -K %s gro on")
	case n.xdp.known: // the fast path knows it too, and redirects nothing into the veth
		f.Status = Fail
		f.Finding = fmt.Sprintf("no frames can be redirected into it, because %s has NAPI off: %s", p, does)
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
