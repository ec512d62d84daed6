// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/netip"

	"culvert/internal/bpfobj"
)

// flowKey is struct lb_flow of bpf/lb/flow.h. Address and ports are in network byte order.
type flowKey struct {
	src        [2]uint64
	ports, vip uint32
}

// newFlowKey returns the key of a client's flow to a port of a VIP.
func newFlowKey(vip uint32, client netip.AddrPort, port uint16) flowKey {
	addr := client.Addr().As16()
	var ports [4]byte
	binary.BigEndian.PutUint16(ports[:], client.Port())
	binary.BigEndian.PutUint16(ports[2:], port)
	return flowKey{src: [2]uint64{bpfobj.Native.Uint64(addr[:]), bpfobj.Native.Uint64(addr[8:])}, ports: bpfobj.Native.Uint32(ports[:]), vip: vip}
}

// client returns the client and the port of the VIP.
func (k flowKey) client() (client netip.AddrPort, port uint16) {
	var addr [16]byte
	bpfobj.Native.PutUint64(addr[:], k.src[0])
	bpfobj.Native.PutUint64(addr[8:], k.src[1])
	var ports [4]byte
	bpfobj.Native.PutUint32(ports[:], k.ports)
	ap := netip.AddrPortFrom(netip.AddrFrom16(addr).Unmap(), binary.BigEndian.Uint16(ports[:]))
	return ap, binary.BigEndian.Uint16(ports[2:])
}

// hashWord and hashMix do the same as in bpf/core/hash.h.
func hashWord(a, b uint32, w uint64) uint64 {
	return uint64(uint32(w)+a) * uint64(uint32(w>>32)+b)
}

func hashMix(h uint64) uint64 {
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	h ^= h >> 29
	h *= 0xd6e8feb86659fd93
	return h ^ h>>32
}

// hash returns the hash that places a flow in the flow table (lb_flow_hash).
func (k flowKey) hash(secret [secretWords]uint32) uint64 {
	return hashMix(hashWord(secret[0], secret[1], k.src[0]) + hashWord(secret[2], secret[3], k.src[1]) +
		hashWord(secret[4], secret[5], uint64(k.ports)|uint64(k.vip)<<32))
}

// flowTag returns the part of a flow's hash that a bucket has for each way (lb_tag). 0 marks a free way.
func flowTag(hash uint64) uint16 { return max(uint16(hash>>48), 1) }

// scaled maps the lower half of a hash to a number below n.
func scaled(hash uint64, n uint32) uint32 {
	return uint32(uint64(uint32(hash)) * uint64(n) >> 32)
}

// Position returns the position in a VIP's ring whose backend gets the packets of a flow that the flow table does not have:
// from a client to a port by a protocol. It depends on Seed and RingSize, which must not be 0, and is the same on all
// machines on which these are the same. If v.Source is set, ports and protocol do not matter. If v.SourcePort is set, the
// VIP's port and the protocol do not matter.
func (o Options) Position(v VIP, proto uint8, client netip.AddrPort, port uint16) uint32 {
	return o.position(v, proto, newFlowKey(0, client, port))
}

// position is Position for the key of a flow.
func (o *Options) position(v VIP, proto uint8, k flowKey) uint32 {
	h := hashWord(o.Seed[0], o.Seed[1], k.src[0]) + hashWord(o.Seed[2], o.Seed[3], k.src[1])
	switch {
	case v.SourcePort:
		h += hashWord(o.Seed[4], o.Seed[5], uint64(uint16(k.ports)))
	case !v.Source:
		h += hashWord(o.Seed[4], o.Seed[5], uint64(k.ports)|uint64(proto)<<32)
	}
	return scaled(hashMix(h), uint32(o.RingSize))
}

// SeedID returns 6 bytes of a hash of the seed in hex, which identify the seed without revealing it.
func (o Options) SeedID() string {
	h := sha256.New()
	_ = binary.Write(h, binary.BigEndian, o.Seed) // writing to a hash cannot fail
	return hex.EncodeToString(h.Sum(nil)[:6])
}
