// SPDX-License-Identifier: Apache-2.0

// Package scionjudge runs the data plane of the reference SCION router in this process, without sockets.
// It compares what the reference does with a frame with what a fast path did.
package scionjudge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/slayers"
	"github.com/scionproto/scion/pkg/slayers/path/epic"
	"github.com/scionproto/scion/pkg/slayers/path/scion"
	"github.com/scionproto/scion/private/env"
	"github.com/scionproto/scion/private/topology"
	"github.com/scionproto/scion/router"
	"github.com/scionproto/scion/router/config"
	"github.com/scionproto/scion/router/control"

	"culvert/internal/scion/keyring"
	"culvert/internal/scion/scionpkt"
)

// Kind is what became of a packet.
type Kind uint8

const (
	// Dropped packets leave no trace.
	Dropped Kind = iota
	// Forwarded packets went on towards their destination.
	Forwarded
	// Answered packets were sent back, as a rule as an SCMP message.
	Answered
)

// String names the kind.
func (k Kind) String() string { return [...]string{"dropped", "forwarded", "answered"}[k] }

// Result is what the reference does with one frame.
type Result struct {
	Kind Kind
	// Ingress indexes Network.Links: the link that the packet came over, -1 if none took it.
	Ingress int
	// Egress indexes Network.Links: the link that a packet was sent on. Not set for Dropped.
	Egress int
	// Src and Dst are the underlay addresses of the datagram sent.
	Src, Dst netip.AddrPort
	// Payload is the SCION packet sent.
	Payload []byte
	// Note says more about some packets that never came to the reference's decision.
	Note string

	frame []byte
	// end is where the IP datagram ends in the frame.
	end          int
	sum          uint16
	zeroChecksum bool
	services     []netip.AddrPort
}

type sent struct {
	link    int
	dst     netip.AddrPort
	payload []byte
}

// Judge is one reference router. It handles one packet at a time: no method may run concurrently
// with another.
type Judge struct {
	net       *scionpkt.Network
	connector *router.Connector
	cancel    context.CancelFunc
	conns     []*memConn
	down      map[int]bool
	// idle gets one value each time a connection's receiver is ready for a packet.
	idle chan struct{}
	// sent collects what the reference sends while it has a packet. The reference's goroutines
	// write it, each before it passes the packet's buffer on, and Process reads it after the
	// buffer has come back.
	sent []sent
	// delivering says that the current packet may go to an IP host of this AS.
	delivering bool
	// ring has the keys if there are several, nil if there is only the network's.
	ring *keyring.Ring
}

// New starts the reference router of the network. BFD is off: every link is up until SetLinkUp
// says otherwise.
func New(n *scionpkt.Network) (*Judge, error) { return newJudge(n, nil) }

// NewRolling is New for a reference with the keys of a ring in the place of the network's, as culvert's slow path runs it while
// keys follow a schedule.
func NewRolling(n *scionpkt.Network, ring *keyring.Ring) (*Judge, error) { return newJudge(n, ring) }

func newJudge(n *scionpkt.Network, ring *keyring.Ring) (*Judge, error) {
	text, err := n.TopologyJSON()
	if err != nil {
		return nil, fmt.Errorf("judge: write topology: %w", err)
	}
	topo, err := topology.FromJSONBytes(text)
	if err != nil {
		return nil, fmt.Errorf("judge: read topology: %w", err)
	}
	br, ok := topo.BR(n.RouterID)
	if !ok {
		return nil, fmt.Errorf("judge: no border router %q in the topology", n.RouterID)
	}
	j := &Judge{
		net: n, conns: make([]*memConn, len(n.Links)), down: map[int]bool{},
		idle: make(chan struct{}), ring: ring,
	}
	// With a batch of one, a receiver holds exactly one packet buffer while it waits.
	rc := config.RouterConfig{NumProcessors: 1, NumSlowPathProcessors: 1, BatchSize: 1}
	rc.BFD.Disable = true
	j.connector = router.NewConnector(rc, env.Features{})
	underlayOf(j.connector).SetConnOpener(opener{j})
	// The key is given apart, because the configuration takes only master keys.
	if err := j.connector.CreateIACtx(topo.IA()); err != nil {
		return nil, fmt.Errorf("judge: set the AS: %w", err)
	}
	if err := j.setKey(); err != nil {
		return nil, fmt.Errorf("judge: set the forwarding key: %w", err)
	}
	cfg := &control.Config{Topo: topo, IA: topo.IA(), BR: &br}
	if err := control.ConfigDataplane(withoutIA{j.connector}, cfg); err != nil {
		return nil, fmt.Errorf("judge: configure the reference: %w", err)
	}
	for i, c := range j.conns {
		if c == nil {
			return nil, fmt.Errorf("judge: the reference has no link %d of the network", i)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	j.cancel = cancel
	go func() { _ = j.connector.DataPlane.Run(ctx) }()
	for range j.conns {
		<-j.idle
	}
	drainPool(j.connector)
	return j, nil
}

func (j *Judge) setKey() error {
	if j.ring != nil {
		return j.ring.Install(j.connector)
	}
	return j.connector.SetKey(j.net.IA, 0, j.net.Key[:])
}

// withoutIA skips the one step of the configuration that has been done already.
type withoutIA struct{ *router.Connector }

func (withoutIA) CreateIACtx(addr.IA) error { return nil }

// Close stops the reference. It leaves its two processor goroutines behind, for which the
// reference offers no way to stop.
func (j *Judge) Close() {
	j.connector.DataPlane.Shutdown()
	j.cancel()
}

// SetLinkUp sets the state of a link, given by its index in Network.Links, as BFD would.
func (j *Judge) SetLinkUp(link int, up bool) error {
	if link <= 0 || link >= len(j.net.Links) {
		return fmt.Errorf("judge: link %d has no BFD session (links 1 to %d have)",
			link, len(j.net.Links)-1)
	}
	j.down[link] = !up
	for _, intf := range j.net.Interfaces {
		if intf.Link == link {
			return setSessionDown(j.connector, intf.ID, !up)
		}
	}
	return errors.New("judge: no interface uses this link")
}

func (j *Judge) anyDown() bool {
	for _, down := range j.down {
		if down {
			return true
		}
	}
	return false
}

// Process returns what the router's host and the reference do with a frame that arrives.
func (j *Judge) Process(frame []byte) Result {
	res := Result{Ingress: -1, Egress: -1, frame: frame}
	d, reason := deliver(j.net, frame)
	if reason != "" {
		res.Note = reason
		return res
	}
	res.Ingress, res.end, res.sum, res.zeroChecksum = d.link, d.end, d.sum, d.zeroChecksum
	if note := j.unfit(d); note != "" {
		res.Note = note
		return res
	}
	j.sent = j.sent[:0]
	j.delivering = j.net.Links[d.link].Scope == scionpkt.External && dstIsIP(d.payload)
	c := j.conns[d.link]
	c.in <- inbound{src: net.UDPAddrFromAddrPort(d.src), payload: d.payload}
	<-j.idle
	if len(j.sent) == 0 {
		return res
	}
	s := j.sent[0]
	res.Egress, res.Dst, res.Payload = s.link, s.dst, s.payload
	res.Src = j.net.Links[s.link].Local
	res.Kind = Forwarded
	if s.link == d.link && !sameAddressing(d.payload, s.payload) {
		res.Kind = Answered
	}
	res.services = j.services(s.payload)
	return res
}

// unfit returns why a packet must not be given to the reference, "" if it may be.
func (j *Judge) unfit(d datagram) string {
	p := d.payload
	if len(p) < slayers.CmnHdrLen+16 {
		return ""
	}
	srcIA := addr.IA(be64(p[slayers.CmnHdrLen+8:]))
	hasSCIONPath := p[8] == byte(scion.PathType) || p[8] == byte(epic.PathType)
	if hasSCIONPath && slayers.AddrType(p[9]&15) == slayers.T4Svc && srcIA == j.net.IA {
		// The check of a local source host takes the address for an IP address and panics on
		// a service address, which ends the process.
		return "the reference would crash: service address as local source host"
	}
	if j.down[d.link] && !hasSCIONPath {
		// The session behind a link taken down is not running and would block on a message.
		return "BFD is off"
	}
	return ""
}

// correctPort applies the specification's rule for ports outside the dispatched range: such a packet
// goes to port 30041 of the host. The reference compares `port < start && port > end`,
// which is never true, and so ignores the range. Services have their own ports and keep them.
func (j *Judge) correctPort(dst netip.AddrPort) netip.AddrPort {
	dst = netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())
	if j.delivering && !j.net.Dispatched(dst.Port()) {
		return netip.AddrPortFrom(dst.Addr(), topology.EndhostPort)
	}
	return dst
}

// services returns the other servers to which the packet could have gone.
func (j *Judge) services(p []byte) []netip.AddrPort {
	if slayers.AddrType(p[9]>>4) != slayers.T4Svc || addr.IA(be64(p[slayers.CmnHdrLen:])) != j.net.IA {
		return nil
	}
	switch addr.SVC(uint16(p[28])<<8 | uint16(p[29])).Base() {
	case addr.SvcCS:
		return j.net.Control
	case addr.SvcDS:
		return j.net.Discovery
	default:
		return nil
	}
}
