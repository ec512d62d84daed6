// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"net/netip"
	"time"

	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
)

/*
A datagram is in network byte order:

	 0   4  magic, "CVLP"
	 4   1  version, 1
	 5   1  kind
	 6   2  0
	 8  16  address of the sender; IPv4 mapped into IPv6
	24   2  UDP port of the sender
	26   2  0
	28   8  epoch of the sender, which is another one after each start
	36   8  sequence number, of a datagram with flows: from 1 on, one more than that of the one before
	44   8  digest of seed and size of the sender's rings
	52   8  digest of the sender's rings: VIPs, backends for new flows, weights
	60      body
	-16 16  the first half of an HMAC-SHA256 of all before, with the key that all machines have

The body of flows is groups, of ask and answer a nonce of 16 bytes, of end the number of flows that were sent in 4 bytes. A group:

	0   1  flags: 1 for a backend with an IPv6 address, 2 for a VIP with one
	1   1  protocol
	2   2  port of the VIP, 0 for all
	4      address of the VIP, 4 or 16 bytes
	       address of the backend, 4 or 16 bytes
	    2  number of flows
	       flows: address of the client (of the VIP's family), its port (2), the port that it sends to (2), state (1), seconds
	       since the last packet (2)
*/
const (
	magic      = "CVLP"
	version    = 1
	headerSize = 60
	macSize    = 16
	nonceSize  = 16
	// maxDatagram is the longest datagram in bytes. It fits the smallest MTU of Ethernet with a tunnel or two.
	maxDatagram = 1400
)

// Kinds of datagrams.
const (
	kindFlows  = 1 + iota // flows of the sender
	kindAsk               // the sender does not know the epoch of the receiver, or wants its flows (by TLS)
	kindAnswer            // to ask, with its nonce: the epoch, and the sequence number of the last flows
	kindEnd               // the end of flows that are sent by TLS
)

// Flags of a group.
const (
	groupBackend6 = 1
	groupVIP6     = 2
)

// states are the states of flows as they are on the wire. They are not those in the flow table, which may change with the version.
var states = [...]lbplane.FlowState{lbplane.FlowNew, lbplane.FlowOpen, lbplane.FlowClosing, lbplane.FlowUDP}

// header is the header of a datagram.
type header struct {
	kind       uint8
	sender     netip.AddrPort
	epoch, seq uint64
	sums       sums
}

// sums are digests of what load balancers have to agree about.
type sums struct {
	seed, rings [8]byte
}

// toldFlow is a flow as it is told.
type toldFlow struct {
	service lb.Service
	backend netip.Addr
	client  netip.AddrPort
	port    uint16 // that the client sends to
	state   lbplane.FlowState
	idle    time.Duration
}

// Errors of a datagram.
var (
	errCut     = errors.New("cut")
	errMAC     = errors.New("mac")
	errVersion = errors.New("version")
)

// codec seals and opens datagrams. It may be used by one goroutine.
type codec struct{ mac hash.Hash }

func newCodec(key []byte) *codec { return &codec{hmac.New(sha256.New, key)} }

// seal appends the MAC to a datagram.
func (c *codec) seal(b []byte) []byte {
	c.mac.Reset()
	c.mac.Write(b)
	return c.mac.Sum(b)[:len(b)+macSize]
}

// open checks a datagram and returns its header and its body.
func (c *codec) open(b []byte) (h header, body []byte, err error) {
	if len(b) < headerSize+macSize || string(b[:4]) != magic {
		return h, nil, errCut
	}
	if b[4] != version {
		return h, nil, errVersion
	}
	if len(b) > maxDatagram { // what the MAC of a forged one costs is bounded
		return h, nil, errCut
	}
	c.mac.Reset()
	c.mac.Write(b[:len(b)-macSize])
	if !hmac.Equal(c.mac.Sum(nil)[:macSize], b[len(b)-macSize:]) {
		return h, nil, errMAC
	}
	h.kind = b[5]
	h.sender = netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])).Unmap(), binary.BigEndian.Uint16(b[24:]))
	h.epoch, h.seq = binary.BigEndian.Uint64(b[28:]), binary.BigEndian.Uint64(b[36:])
	h.sums = sums{[8]byte(b[44:52]), [8]byte(b[52:60])}
	return h, b[headerSize : len(b)-macSize], nil
}

// claims tells whether a datagram whose MAC is not checked yet says that it has an epoch.
func claims(b []byte, epoch uint64) bool {
	return len(b) >= headerSize+macSize && binary.BigEndian.Uint64(b[28:]) == epoch
}

// append appends the header to b.
func (h *header) append(b []byte) []byte {
	b = append(b, magic...)
	b = append(b, version, h.kind, 0, 0)
	addr := h.sender.Addr().As16()
	b = append(b, addr[:]...)
	b = binary.BigEndian.AppendUint16(b, h.sender.Port())
	b = append(b, 0, 0)
	b = binary.BigEndian.AppendUint64(b, h.epoch)
	b = binary.BigEndian.AppendUint64(b, h.seq)
	b = append(b, h.sums.seed[:]...)
	return append(b, h.sums.rings[:]...)
}

// appendFlows appends as many flows as a datagram has room for behind b, and returns how many. Flows of one VIP and backend
// should follow each other.
func appendFlows(b []byte, flows []toldFlow) ([]byte, int) {
	const room = maxDatagram - macSize
	for n := 0; n < len(flows); {
		of := &flows[n]
		group := appendGroup(b, of)
		count, at := 0, len(group)
		group = append(group, 0, 0)
		for n < len(flows) && flows[n].service == of.service && flows[n].backend == of.backend {
			longer := appendFlow(group, &flows[n])
			if len(longer) > room {
				break
			}
			group = longer
			count, n = count+1, n+1
		}
		if count == 0 {
			return b, n
		}
		binary.BigEndian.PutUint16(group[at:], uint16(count))
		b = group
	}
	return b, len(flows)
}

func appendGroup(b []byte, f *toldFlow) []byte {
	flags := uint8(0)
	if f.backend.Is6() {
		flags |= groupBackend6
	}
	if f.service.Addr.Is6() {
		flags |= groupVIP6
	}
	b = append(b, flags, uint8(f.service.Protocol))
	b = binary.BigEndian.AppendUint16(b, f.service.Port)
	b = append(b, f.service.Addr.AsSlice()...)
	return append(b, f.backend.AsSlice()...)
}

func appendFlow(b []byte, f *toldFlow) []byte {
	b = append(b, f.client.Addr().AsSlice()...)
	b = binary.BigEndian.AppendUint16(b, f.client.Port())
	b = binary.BigEndian.AppendUint16(b, f.port)
	b = append(b, wireState(f.state))
	return binary.BigEndian.AppendUint16(b, uint16(min(f.idle/time.Second, 1<<16-1)))
}

func wireState(s lbplane.FlowState) uint8 {
	for n, one := range states {
		if one == s {
			return uint8(n)
		}
	}
	return 0
}

// readFlows returns the flows of a body.
func readFlows(body []byte) (flows []toldFlow, err error) {
	r := reader{left: body}
	for len(r.left) > 0 {
		flags := r.uint8()
		of := toldFlow{service: lb.Service{Protocol: lb.Protocol(r.uint8()), Port: r.uint16()}}
		of.service.Addr = r.addr(flags&groupVIP6 != 0)
		of.backend = r.addr(flags&groupBackend6 != 0)
		count := int(r.uint16())
		if r.cut || flags > groupBackend6|groupVIP6 || of.service.Protocol != lb.TCP && of.service.Protocol != lb.UDP {
			return nil, errCut
		}
		for range count {
			f := of
			client := r.addr(flags&groupVIP6 != 0)
			f.client = netip.AddrPortFrom(client, r.uint16())
			f.port = r.uint16()
			state := r.uint8()
			f.idle = time.Duration(r.uint16()) * time.Second
			if r.cut || int(state) >= len(states) || f.service.Port != 0 && f.port != f.service.Port {
				return nil, errCut
			}
			if f.state = states[state]; (f.state == lbplane.FlowUDP) != (f.service.Protocol == lb.UDP) && f.state != lbplane.FlowNew {
				return nil, errCut
			}
			flows = append(flows, f)
		}
	}
	return flows, nil
}

// reader reads a body. Once that has too few bytes, cut is set and all is 0.
type reader struct {
	left []byte
	cut  bool
}

func (r *reader) take(n int) []byte {
	if len(r.left) < n {
		r.cut, r.left = true, nil
		return make([]byte, n)
	}
	b := r.left[:n]
	r.left = r.left[n:]
	return b
}

func (r *reader) uint8() uint8   { return r.take(1)[0] }
func (r *reader) uint16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }

func (r *reader) addr(v6 bool) netip.Addr {
	if v6 {
		return netip.AddrFrom16([16]byte(r.take(16)))
	}
	return netip.AddrFrom4([4]byte(r.take(4)))
}
