// SPDX-License-Identifier: Apache-2.0

package scionview

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"culvert/internal/capture/trace"
	"culvert/internal/datapath"
	"culvert/internal/scion/scionplane"
)

// walk is the way of a packet through the router.
type walk struct {
	*explainer
	*header
	packet *trace.Packet
	in     int // index of the link that it came in by
	step   trace.Step
}

func (w *walk) ends(verdict datapath.Verdict, reason, text string) trace.Step {
	w.step.Verdict, w.step.Reason, w.step.Text = string(verdict), reason, text
	return w.step
}

func (w *walk) drop(reason, text string) trace.Step {
	return w.ends(datapath.VerdictDrop, reason, text)
}

func (w *walk) punt(reason, text string) {
	w.ends(datapath.VerdictPunt, reason, text+": to the slow path")
}

// external tells whether the packet came from another AS.
func (w *walk) external() bool { return w.config.Links[w.in].Scope == scionplane.ScopeExternal }

// decide follows scion_decide.
func (w *walk) decide() error {
	p := w.packet
	h, err := decode(p.Payload, p.PayloadLength)
	w.header = h
	switch {
	case err != nil && p.Cut():
		w.step.Unsure, w.step.Text = true, "not worked out: "+trace.ErrCut.Error()
		return nil
	case errors.Is(err, errProtocol):
		w.punt("scion-protocol", err.Error())
		return nil
	case errors.Is(err, errPort):
		w.punt("scion-l4", err.Error())
		return nil
	case errors.Is(err, errPath):
		w.drop("scion-path", "dropped: "+err.Error())
		return nil
	case err != nil:
		w.punt("scion-malformed", err.Error())
		return nil
	case h.pathType != pathSCION:
		w.otherPath()
		return nil
	}
	w.step.Add(h.text())
	in, out := h.interfaces(h.hop)
	w.step.Add(fmt.Sprintf("hop field: in by interface %d, out by %d, valid until %s", in, out, h.expires().UTC().Format(time.RFC3339)))
	if w.checked(in) {
		return nil
	}
	if ok, err := w.mac(w.external()); err != nil || !ok {
		return err
	}
	if alert, _ := h.alerts(); alert && w.external() {
		w.punt("scion-ingress-alert", "traceroute asks the ingress interface")
		return nil
	}
	if uint64(h.dst) == w.config.LocalIA {
		return w.inbound()
	}
	return w.outbound()
}

// otherPath follows scion_other_path.
func (w *walk) otherPath() {
	switch {
	case w.protocol == protoBFD && w.in != 0 && (w.pathType == pathEmpty || w.pathType == pathOneHop):
		w.bfd()
	case w.pathType == pathEmpty:
		w.punt("scion-empty", "path type empty, no BFD")
	case w.pathType == pathOneHop:
		w.punt("scion-onehop", "path type one-hop, as of beacons")
	case w.pathType == pathEPIC && uint64(w.src) == w.config.LocalIA && w.srcType == hostService:
		w.drop("scion-src-service", "dropped: a service address as local source")
	case w.pathType == pathEPIC:
		w.punt("scion-epic", "path type EPIC")
	default:
		w.punt("scion-path-type", fmt.Sprintf("path type %d", w.pathType))
	}
}

// bfdDown is the state Down of RFC 5880.
const bfdDown = 1

// bfd follows scion_check_bfd.
func (w *walk) bfd() {
	b, s := w.raw[min(w.payload, len(w.raw)):], w.links[w.in].BFD
	if len(b) < 12 {
		w.punt("scion-bfd", "BFD")
		return
	}
	mine, yours := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	w.step.Add(fmt.Sprintf("BFD: my discriminator %d, yours %d; the session has %d", mine, yours, s.LocalDisc))
	bad := s.LocalDisc != 0 && yours != s.LocalDisc && (yours != 0 || b[1]>>6 > bfdDown || s.RemoteDisc != 0 && mine != s.RemoteDisc)
	switch {
	case w.packet.TTL < w.config.BFDMinTTL:
		w.drop("scion-bfd", fmt.Sprintf("dropped: BFD with TTL %d, below bfd_min_ttl", w.packet.TTL))
	case bad:
		w.drop("scion-bfd", "dropped: BFD that is not of the link's session")
	default:
		w.punt("scion-bfd", "BFD of the link's session")
	}
}

// mac checks the MAC of the current hop field (scion_check_mac).
func (w *walk) mac(external bool) (bool, error) {
	input, mac := w.macInput(external)
	valid, loaded, err := w.plane.VerifyHop(input, mac, w.packet.At)
	if err != nil {
		return false, err
	}
	if len(valid) == 0 {
		w.step.Add(fmt.Sprintf("MAC %x: wrong under all keys, of which %d are loaded", mac, len(loaded)))
		w.punt("scion-mac", "the MAC of the hop field is wrong")
		return false, nil
	}
	w.step.Add(fmt.Sprintf("MAC %x: valid under key %d, ID %s", mac, valid[0].Index, valid[0].ID))
	return true, nil
}

// inbound follows scion_inbound: to a host of this AS.
func (w *walk) inbound() error {
	six := w.config.Links[0].Local.Addr().Is6()
	want, size := byte(hostIPv4), 4
	if six {
		want, size = hostIPv6, 16
	}
	if w.dstType == hostService {
		w.punt("scion-service", "to a service address")
		return nil
	}
	host, _ := netip.AddrFromSlice(w.raw[hostOffset : hostOffset+size])
	if w.dstType != want || host.IsUnspecified() || host.Is4In6() {
		w.punt("scion-dst-host", "the destination host is of another IP version than internal_addr, or unspecified")
		return nil
	}
	port, ok := w.hostPort()
	if !ok {
		w.punt("scion-l4", "to a host, and the port is not in the first header")
		return nil
	}
	nh, found, err := w.plane.HostNextHop(host)
	if err != nil {
		return err
	}
	to := netip.AddrPortFrom(host, port)
	switch {
	case (!found || nh.IfIndex == 0) && w.plane.Unattended():
		w.step.Unsure, w.step.Text = true, fmt.Sprintf("to the end host %s: the kernel is asked for the next hop", to)
	case !found:
		w.punt("scion-host-unknown", fmt.Sprintf("to the end host %s, which has not been found yet", to))
	case nh.IfIndex == 0:
		w.punt("scion-host-kernel", fmt.Sprintf("to the end host %s, which only the kernel reaches", to))
	default:
		w.send("scion-in", "to the end host "+to.String(), nh, six)
	}
	return nil
}

// endHostPort is the port of hosts that have no port of their own in a packet.
const endHostPort = 30041

// Types of SCMP.
const (
	echoRequest       = 128
	echoReply         = 129
	tracerouteRequest = 130
	tracerouteReply   = 131
)

// hostPort returns the underlay port of the end host (scion_host_port).
func (w *walk) hostPort() (port uint16, ok bool) {
	l4, length := w.raw[min(w.payload, len(w.raw)):], w.length-w.payload
	at := 0
	port = endHostPort
	switch w.protocol {
	case protoUDP, protoTCP:
		if length < map[byte]int{protoUDP: 8, protoTCP: 20}[w.protocol] || len(l4) < 4 {
			return 0, false
		}
		at = 2
	case protoSCMP:
		if length < 4 || len(l4) < 6 {
			return 0, false
		}
		switch {
		case l4[0] == echoRequest || l4[0] == tracerouteRequest:
		case l4[0] == echoReply && length >= 8 || l4[0] == tracerouteReply && length >= 24:
			at = 4
		default:
			return 0, false
		}
	}
	if at != 0 {
		port = binary.BigEndian.Uint16(l4[at:])
	}
	if port < w.config.PortStart || port > w.config.PortEnd {
		port = endHostPort
	}
	return port, true
}

// send ends a packet that leaves by a next hop (scion_send). six tells the version of its new outer header.
func (w *walk) send(reason, text string, nh scionplane.NextHop, six bool) {
	w.step.Add("next hop " + hopText(nh))
	outer := 28
	if six {
		outer = 48
	}
	switch {
	case w.length+outer > int(nh.MTU):
		w.punt("scion-mtu", fmt.Sprintf("larger than the MTU of the next hop, with %d bytes: in IP fragments, or answered with packet too big; else would be sent %s", w.length+outer, text))
	case six && w.packet.Checksum == 0:
		w.punt("scion-checksum", "from IPv4 without UDP checksum to IPv6, which wants one: would be sent "+text)
	default:
		w.ends(datapath.VerdictFwd, reason, "sent "+text)
	}
}
