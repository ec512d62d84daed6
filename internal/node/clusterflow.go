// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"culvert/internal/cluster"
	"culvert/internal/datapath"
	"culvert/internal/filter/filterview"
	"culvert/internal/lb"
	"culvert/internal/lb/lbview"
)

// flow is what a question SOURCE DESTINATION PROTOCOL is about.
type flow struct {
	from, to netip.AddrPort
	protocol string
}

// flowIn returns the flow that a question is about, nil if it is about an address or a VIP.
func flowIn(text string) (*flow, error) {
	words := strings.Fields(text)
	if len(words) != 3 {
		return nil, nil
	}
	f := &flow{protocol: words[2]}
	var err error
	if f.from, err = netip.ParseAddrPort(words[0]); err == nil {
		f.to, err = netip.ParseAddrPort(words[1])
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%q is no flow: %w", text, err)
	case f.from.Addr().Is4() != f.to.Addr().Is4():
		return nil, fmt.Errorf("%q is no flow: its addresses are of two families", text)
	case f.protocol != "tcp" && f.protocol != "udp":
		return nil, fmt.Errorf("%q is no flow: its protocol is neither tcp nor udp", text)
	}
	return f, nil
}

// frame returns the first packet of the flow, a SYN if it is of TCP, as it comes in by an interface.
func (f *flow) frame(to net.HardwareAddr) ([]byte, error) {
	kind := layers.EthernetTypeIPv4
	protocol := layers.IPProtocolTCP
	if f.protocol == "udp" {
		protocol = layers.IPProtocolUDP
	}
	const hops = 64
	var ip gopacket.NetworkLayer
	src, dst := f.from.Addr().AsSlice(), f.to.Addr().AsSlice()
	ip = &layers.IPv4{Version: 4, TTL: hops, Protocol: protocol, SrcIP: src, DstIP: dst}
	if f.to.Addr().Is6() {
		kind = layers.EthernetTypeIPv6
		ip = &layers.IPv6{Version: 6, HopLimit: hops, NextHeader: protocol, SrcIP: src, DstIP: dst}
	}
	eth := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, DstMAC: to, EthernetType: kind}
	var transport gopacket.SerializableLayer
	switch protocol {
	case layers.IPProtocolUDP:
		udp := &layers.UDP{SrcPort: layers.UDPPort(f.from.Port()), DstPort: layers.UDPPort(f.to.Port())}
		_ = udp.SetNetworkLayerForChecksum(ip) // an error means another kind of network layer
		transport = udp
	default:
		tcp := &layers.TCP{SrcPort: layers.TCPPort(f.from.Port()), DstPort: layers.TCPPort(f.to.Port()), SYN: true, Window: 65535}
		_ = tcp.SetNetworkLayerForChecksum(ip)
		transport = tcp
	}
	out := gopacket.NewSerializeBuffer()
	options := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	err := gopacket.SerializeLayers(out, options, eth, ip.(gopacket.SerializableLayer), transport)
	return out.Bytes(), err
}

// answer adds what a data plane does with the flow's packets: which rule of the filter its first one hits, and which backend it gets.
func (f *flow) answer(inst *datapath.Instance, a *cluster.Answer) {
	fail := func(err error) {
		if err != nil {
			a.Errors = append(a.Errors, err.Error())
		}
	}
	fail(f.judge(inst, a))
	protocol := lb.TCP
	if f.protocol == "udp" {
		protocol = lb.UDP
	}
	e, err := lbview.FlowOf(inst, lb.Service{Addr: f.to.Addr(), Port: f.to.Port(), Protocol: protocol}, f.from)
	fail(err)
	if e == nil || e.VIP == "" {
		return
	}
	a.Lines = append(a.Lines, e.Lines()...)
	if e.Backend != nil {
		a.Where.Backend = e.Backend.Addr
	}
	if e.Ring != nil {
		a.Where.Ring, a.Where.Position, a.Where.RingSize = e.Ring.Backend, e.Ring.Position, e.Ring.Size
	}
	a.Where.Why = e.Text
}

// judge asks the filter.
func (f *flow) judge(inst *datapath.Instance, a *cluster.Answer) error {
	interfaces := inst.AttachedNow()
	if len(interfaces) == 0 {
		return nil
	}
	to := net.HardwareAddr{2, 0, 0, 0, 0, 2}
	if dev, err := net.InterfaceByName(interfaces[0]); err == nil && len(dev.HardwareAddr) == len(to) {
		to = dev.HardwareAddr
	}
	frame, err := f.frame(to)
	if err != nil {
		return err
	}
	steps, err := filterview.Judge(inst, frame, interfaces)
	if err != nil {
		return err
	}
	var rules []string
	for _, s := range steps {
		a.Lines = append(a.Lines, s.Lines(len(steps) > 1)...)
		if s.Rule == "" {
			continue
		}
		if len(steps) > 1 {
			s.Rule += " on " + strings.Join(s.Interfaces, ", ")
		}
		rules = append(rules, s.Rule)
	}
	a.Where.Rule = strings.Join(rules, "; ")
	return nil
}
