// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"
	"math/bits"
	"net/netip"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/host/netdev"
)

// Flags of struct lb_vip and of struct lb_backend (bpf/lb/maps.h).
const (
	vipSource = 1 << iota
	vipMove
	vipEmpty
	vipSeveral
	vipSourcePort

	backendUsed  = 1
	backendDown  = 2
	backendPlain = 4
)

// SetVIP writes a VIP. Its ring must have been written before.
func (p *Plane) SetVIP(k VIPKey, v VIP) error {
	raw := bpfobj.PipelineLbVip{Number: v.Number, IdLen: v.ServerID, IdConfig: v.IDConfig}
	for bit, on := range map[uint8]bool{
		vipSource: v.Source, vipSourcePort: v.SourcePort, vipMove: v.Move, vipEmpty: v.Empty,
	} {
		if on {
			raw.Flags |= bit
		}
	}
	if err := p.setAddr(k.Addr); err != nil {
		return err
	}
	if err := p.setAny(k, raw); err != nil {
		return err
	}
	if err := p.inst.Map(bpfobj.PipelineMapLbVips).Put(k.raw(), raw); err != nil {
		return fmt.Errorf("writing a VIP of %s: %w", p.Name(), err)
	}
	return p.fillVIPCache()
}

// anyPort returns the key of the entry for all VIPs of an address and protocol. Programs use it for fragments, which have no
// ports.
func (k VIPKey) anyPort() bpfobj.PipelineLbVipKey {
	k.Port = 0
	raw := k.raw()
	raw.Any = 1
	return raw
}

// setAny writes the entry for all VIPs of the address and protocol: raw, or a mark that there are several.
func (p *Plane) setAny(k VIPKey, raw bpfobj.PipelineLbVip) error {
	var old bpfobj.PipelineLbVip
	m, key := p.inst.Map(bpfobj.PipelineMapLbVips), k.anyPort()
	err := m.Lookup(key, &old)
	switch {
	case bpfobj.NotExist(err):
		err = nil
	case err == nil && (old.Flags&vipSeveral != 0 || old.Number != raw.Number):
		raw = bpfobj.PipelineLbVip{Number: old.Number, Flags: vipSeveral}
	}
	if err == nil {
		err = m.Put(key, raw)
	}
	if err != nil {
		return fmt.Errorf("writing a VIP of %s: %w", p.Name(), err)
	}
	return nil
}

// DeleteVIP deletes a VIP. It returns no error if there is none. When it returns no program uses the VIP any more, so that
// its ring may be replaced. Its number may be used again once its backends have been deleted, because flows in the table
// still refer to them.
func (p *Plane) DeleteVIP(k VIPKey) error {
	if err := p.inst.Map(bpfobj.PipelineMapLbVips).Delete(k.raw()); err != nil && !bpfobj.NotExist(err) {
		return fmt.Errorf("deleting a VIP of %s: %w", p.Name(), err)
	}
	if err := p.fillVIPCache(); err != nil {
		return err
	}
	if err := p.fillAny(k); err != nil {
		return err
	}
	datapath.WaitForRCU()
	return nil
}

// fillAny removes the address of a deleted VIP from the Bloom filter of addresses, and updates the entry for all VIPs of
// its address and protocol, as far as other VIPs do not need them.
func (p *Plane) fillAny(k VIPKey) error {
	var (
		filter   bpfobj.PipelineBloom
		key      bpfobj.PipelineLbVipKey
		raw, all bpfobj.PipelineLbVip
		n        int
	)
	m, anyPort := p.inst.Map(bpfobj.PipelineMapLbVips), k.anyPort()
	it := m.Iterate()
	for it.Next(&key, &raw) {
		if key.Any != 0 {
			continue
		}
		bit := bpfobj.BloomBit(bpfobj.WordsAddr(key.Addr.W))
		filter.Bits[bit>>6] |= 1 << (bit & 63)
		if key.Addr == anyPort.Addr && key.Proto == k.Proto {
			n++
			all = raw
		}
	}
	err := it.Err()
	if err == nil {
		err = p.inst.Map(bpfobj.PipelineMapLbAddrs).Put(uint32(0), filter)
	}
	if n > 1 {
		all = bpfobj.PipelineLbVip{Number: all.Number, Flags: vipSeveral}
	}
	if err == nil && n > 0 {
		err = m.Put(anyPort, all)
	} else if err == nil {
		err = m.Delete(anyPort)
	}
	if err != nil && !bpfobj.NotExist(err) {
		return fmt.Errorf("deleting a VIP of %s: %w", p.Name(), err)
	}
	return nil
}

func (p *Plane) setAddr(addr netip.Addr) error {
	m := p.inst.Map(bpfobj.PipelineMapLbAddrs)
	var f bpfobj.PipelineBloom
	if err := m.Lookup(uint32(0), &f); err != nil {
		return fmt.Errorf("reading the addresses of the VIPs of %s: %w", p.Name(), err)
	}
	bit := bpfobj.BloomBit(addr)
	f.Bits[bit>>6] |= 1 << (bit & 63)
	if err := m.Put(uint32(0), f); err != nil {
		return fmt.Errorf("writing the addresses of the VIPs of %s: %w", p.Name(), err)
	}
	return nil
}

// VIPs returns the VIPs in the data plane.
func (p *Plane) VIPs() (map[VIPKey]VIP, error) {
	var (
		key bpfobj.PipelineLbVipKey
		raw bpfobj.PipelineLbVip
	)
	vips := make(map[VIPKey]VIP)
	it := p.inst.Map(bpfobj.PipelineMapLbVips).Iterate()
	for it.Next(&key, &raw) {
		if key.Any != 0 {
			continue
		}
		k := VIPKey{Addr: bpfobj.WordsAddr(key.Addr.W), Proto: key.Proto, Port: bits.ReverseBytes16(key.Port)}
		vips[k] = VIP{
			Number: raw.Number, ServerID: raw.IdLen, IDConfig: raw.IdConfig, Source: raw.Flags&vipSource != 0,
			SourcePort: raw.Flags&vipSourcePort != 0, Move: raw.Flags&vipMove != 0, Empty: raw.Flags&vipEmpty != 0,
		}
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("listing the VIPs of %s: %w", p.Name(), err)
	}
	return vips, nil
}

// SetRing replaces the ring of the VIP with that number in one step. Its length must be RingSize of the options.
func (p *Plane) SetRing(vip uint32, ring []BackendID) error {
	size := p.Options().RingSize
	if len(ring) != size {
		return fmt.Errorf("ring of %d positions for %s: it takes %d", len(ring), p.Name(), size)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "lb_ring", Type: ebpf.Array, KeySize: 4, ValueSize: 4 * linePositions, MaxEntries: ringLines(size),
		Flags: unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return fmt.Errorf("making a ring for %s: %w", p.Name(), err)
	}
	defer m.Close()
	if err := withRing(m, unix.PROT_READ|unix.PROT_WRITE, func(ids []BackendID) { copy(ids, ring) }); err != nil {
		return fmt.Errorf("filling a ring of %s: %w", p.Name(), err)
	}
	if err := p.inst.Map(bpfobj.PipelineMapLbRings).Put(vip, m); err != nil {
		return fmt.Errorf("writing a ring of %s: %w", p.Name(), err)
	}
	return nil
}

// DeleteRing deletes the ring of a VIP, which must have been deleted before. It returns no error if there is none.
func (p *Plane) DeleteRing(vip uint32) error {
	if err := p.inst.Map(bpfobj.PipelineMapLbRings).Delete(vip); err != nil && !bpfobj.NotExist(err) {
		return fmt.Errorf("deleting a ring of %s: %w", p.Name(), err)
	}
	return nil
}

// Ring returns the ring of the VIP with that number, nil if it has none.
func (p *Plane) Ring(vip uint32) ([]BackendID, error) {
	var m *ebpf.Map
	err := p.inst.Map(bpfobj.PipelineMapLbRings).Lookup(vip, &m)
	if bpfobj.NotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening a ring of %s: %w", p.Name(), err)
	}
	defer m.Close()
	ring := make([]BackendID, p.Options().RingSize)
	if err := withRing(m, unix.PROT_READ, func(ids []BackendID) { copy(ring, ids) }); err != nil {
		return nil, fmt.Errorf("reading a ring of %s: %w", p.Name(), err)
	}
	return ring, nil
}

// linePositions is LB_POSITIONS of bpf/lb/maps.h: the number of positions in one value of a ring's map.
const linePositions = 16

func ringLines(size int) uint32 { return uint32((size + linePositions - 1) / linePositions) }

// withRing calls do with a ring mapped into memory.
func withRing(m *ebpf.Map, prot int, do func([]BackendID)) error {
	n := int(m.MaxEntries()) * linePositions
	page := unix.Getpagesize()
	b, err := unix.Mmap(m.FD(), 0, (4*n+page-1)/page*page, prot, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	do(unsafe.Slice((*BackendID)(unsafe.Pointer(unsafe.SliceData(b))), n))
	return unix.Munmap(b)
}

func (b Backend) raw() bpfobj.PipelineLbBackend {
	raw := bpfobj.PipelineLbBackend{
		Id: uint32(b.ID), Vip: uint16(b.VIP), Encap: uint8(b.Encap), GuePort: bpfobj.Wire16(b.GUEPort),
		V6: bpfobj.Flag(b.Addr.Is6()),
		Hop: bpfobj.PipelineNextHop{
			Port: uint32(b.Hop.Port), Mtu: b.Hop.MTU, Vlan: b.Hop.VLAN, Dmac: b.Hop.DstMAC, Smac: b.Hop.SrcMAC,
			LinearOnly: bpfobj.Flag(b.Hop.LinearOnly),
		},
	}
	raw.Addr.W = bpfobj.AddrWords(b.Addr)
	if b.Source.IsValid() {
		raw.Src.W = bpfobj.AddrWords(b.Source.Masked().Addr())
		if free := b.Source.Addr().BitLen() - b.Source.Bits(); free < 32 {
			raw.SrcMask = bits.ReverseBytes32(1<<free - 1)
		} else {
			raw.SrcMask = ^uint32(0)
		}
		if b.Source.IsSingleIP() {
			raw.Src.W = bpfobj.AddrWords(b.Source.Addr())
		}
	}
	if b.Used {
		raw.Flags |= backendUsed
	}
	if b.Down {
		raw.Flags |= backendDown
	}
	if b.plain() {
		raw.Flags |= backendPlain
	}
	return raw
}

// oneBufferOnly is netdev.OneBufferOnly, but for a test.
var oneBufferOnly = netdev.OneBufferOnly

// plain returns whether the programs can send to the backend by the fast path of bpf/lb/send_fast.h. That counts buffers only where
// no interface takes several.
func (b Backend) plain() bool {
	return b.Encap == IPIP && b.Addr.Is4() && b.Hop.Port != 0 && b.Hop.VLAN == 0 && (!b.Hop.LinearOnly || oneBufferOnly())
}

// SetBackend writes a backend. Programs see the old one or the new one, never a mix.
func (p *Plane) SetBackend(b Backend) error {
	var slot bpfobj.PipelineLbBackendLatch
	backends, number := p.inst.Map(bpfobj.PipelineMapLbBackends), b.ID.Number()
	if err := backends.Lookup(number, &slot); err != nil {
		return fmt.Errorf("reading backend %d of %s: %w", number, p.Name(), err)
	}
	raw := b.raw()
	if slot.Version[slot.Seq&1] == raw {
		return nil
	}
	// The programs read the version that the lowest bit of Seq selects. The other one may be half written if a process has
	// died, so write both.
	for range 2 {
		slot.Version[^slot.Seq&1] = raw
		if err := backends.Put(number, slot); err != nil {
			return fmt.Errorf("writing backend %d of %s: %w", number, p.Name(), err)
		}
		slot.Seq++
		if err := backends.Put(number, slot); err != nil {
			return fmt.Errorf("writing backend %d of %s: %w", number, p.Name(), err)
		}
	}
	return nil
}

// Backend returns the backend with that number. Used is false if there is none.
func (p *Plane) Backend(number uint32) (Backend, error) {
	var slot bpfobj.PipelineLbBackendLatch
	if err := p.inst.Map(bpfobj.PipelineMapLbBackends).Lookup(number, &slot); err != nil {
		return Backend{}, fmt.Errorf("reading backend %d of %s: %w", number, p.Name(), err)
	}
	raw := slot.Version[slot.Seq&1]
	b := Backend{
		ID: BackendID(raw.Id), VIP: uint32(raw.Vip), Addr: bpfobj.WordsAddr(raw.Addr.W), Encap: Encap(raw.Encap),
		GUEPort: bpfobj.Wire16(raw.GuePort), Used: raw.Flags&backendUsed != 0, Down: raw.Flags&backendDown != 0,
		Hop: Hop{
			Port: int(raw.Hop.Port), SrcMAC: raw.Hop.Smac, DstMAC: raw.Hop.Dmac, MTU: raw.Hop.Mtu, VLAN: raw.Hop.Vlan,
			LinearOnly: raw.Hop.LinearOnly != 0,
		},
	}
	if src := bpfobj.WordsAddr(raw.Src.W); b.Used && b.Encap != L2 {
		b.Source = netip.PrefixFrom(src, src.BitLen()-bits.OnesCount32(raw.SrcMask))
	}
	return b, nil
}

// Traffic returns the counters of the backend with that number.
func (p *Plane) Traffic(number uint32) (sum Traffic, err error) {
	var perCPU []bpfobj.PipelineLbBackendCounters
	if err := p.inst.Map(bpfobj.PipelineMapLbTraffic).Lookup(number, &perCPU); err != nil {
		return sum, fmt.Errorf("reading the counters of backend %d of %s: %w", number, p.Name(), err)
	}
	for _, c := range perCPU {
		sum.Packets += c.Packets
		sum.Bytes += c.Bytes
		sum.Flows += c.Flows
	}
	return sum, nil
}

// ClearTraffic sets the counters of the backend with that number to 0, before the number is used again.
func (p *Plane) ClearTraffic(number uint32) error {
	zero := make([]bpfobj.PipelineLbBackendCounters, ebpf.MustPossibleCPU())
	if err := p.inst.Map(bpfobj.PipelineMapLbTraffic).Put(number, zero); err != nil {
		return fmt.Errorf("clearing the counters of backend %d of %s: %w", number, p.Name(), err)
	}
	return nil
}

// Health returns the result of the health checks of the backend with that number.
func (p *Plane) Health(number uint32) (h Health, err error) {
	var raw bpfobj.PipelineLbFinding
	if err := p.inst.Map(bpfobj.PipelineMapLbHealth).Lookup(number, &raw); err != nil {
		return h, fmt.Errorf("reading the checks of backend %d of %s: %w", number, p.Name(), err)
	}
	h = Health{Backend: BackendID(raw.Backend), State: HealthState(raw.State), Checks: raw.Checks, Failures: raw.Failures}
	if raw.Since != 0 {
		h.Since = time.Unix(0, int64(raw.Since))
	}
	for _, c := range raw.Text {
		if c == 0 {
			break
		}
		h.Text += string([]byte{byte(c)})
	}
	return h, nil
}

// SetHealth stores the result of a backend's health checks for other processes to read.
func (p *Plane) SetHealth(h Health) error {
	raw := bpfobj.PipelineLbFinding{Backend: uint32(h.Backend), State: uint8(h.State), Checks: h.Checks, Failures: h.Failures}
	if !h.Since.IsZero() {
		raw.Since = uint64(h.Since.UnixNano())
	}
	for n := 0; n < len(h.Text) && n < len(raw.Text)-1; n++ {
		raw.Text[n] = int8(h.Text[n])
	}
	if err := p.inst.Map(bpfobj.PipelineMapLbHealth).Put(h.Backend.Number(), raw); err != nil {
		return fmt.Errorf("writing the checks of backend %d of %s: %w", h.Backend.Number(), p.Name(), err)
	}
	return nil
}
