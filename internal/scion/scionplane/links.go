// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"culvert/internal/bpfobj"
)

// sum16 adds up the 16-bit words of b in the byte order of the host, as RFC 1071 allows. An odd last byte is left out.
func sum16(b []byte) (sum uint32) {
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(bpfobj.Native.Uint16(b))
	}
	return sum
}

const (
	protoUDP = 17
	// hopLimit is what Linux gives to packets of its own, the reference router's among them.
	hopLimit = 64
)

// outerHeader returns the IP and UDP header of a link with lengths and checksums of 0, and the sums that the programs
// complete. Remote may be invalid; the destination is 0 then.
func outerHeader(local, remote netip.AddrPort) (ip [48]byte, ipSum, l4Sum uint32) {
	var udp []byte
	if local.Addr().Is4() {
		ip[0] = 0x45
		ip[6] = 0x40 // don't fragment, as from a connected socket
		ip[8] = hopLimit
		ip[9] = protoUDP
		copy(ip[12:], local.Addr().AsSlice())
		copy(ip[16:], remote.Addr().AsSlice())
		udp = ip[20:28]
		ipSum = sum16(ip[:20])
		l4Sum = sum16(ip[12:20])
	} else {
		ip[0] = 0x60
		ip[6] = protoUDP
		ip[7] = hopLimit
		copy(ip[8:], local.Addr().AsSlice())
		copy(ip[24:], remote.Addr().AsSlice())
		udp = ip[40:48]
		l4Sum = sum16(ip[8:40])
	}
	binary.BigEndian.PutUint16(udp, local.Port())
	binary.BigEndian.PutUint16(udp[2:], remote.Port())
	l4Sum += sum16(udp[:4])
	return ip, ipSum, l4Sum
}

// raw returns the next hop as it is in maps.
func (nh NextHop) raw() bpfobj.PipelineNextHop {
	raw := bpfobj.PipelineNextHop{
		Port: uint32(nh.IfIndex),
		Mtu:  nh.MTU,
		Dmac: nh.DstMAC,
		Smac: nh.SrcMAC,
	}
	if nh.LinearOnly {
		raw.LinearOnly = 1
	}
	return raw
}

// updateLink changes the entry of a link under the data plane's lock.
func (p Plane) updateLink(link int, change func(*bpfobj.PipelineScionLink)) error {
	return p.Locked(func() error {
		if err := p.checkLink(link); err != nil {
			return err
		}
		m := p.Map(bpfobj.PipelineMapScionLinks)
		var l bpfobj.PipelineScionLink
		if err := m.Lookup(uint32(link), &l); err != nil {
			return fmt.Errorf("reading link %d of %s: %w", link, p.Name(), err)
		}
		change(&l)
		if err := m.Put(uint32(link), l); err != nil {
			return fmt.Errorf("writing link %d of %s: %w", link, p.Name(), err)
		}
		return nil
	})
}

// SetLinkUp sets whether packets may be sent over a link, an index into Config.Links.
func (p Plane) SetLinkUp(link int, up bool) error {
	return p.updateLink(link, func(l *bpfobj.PipelineScionLink) {
		l.Up = 0
		if up {
			l.Up = 1
		}
	})
}

// BFDSession tells the BFD packets of a link's session from others. Discriminators are in host byte order.
type BFDSession struct {
	// LocalDisc is the session's discriminator, which its packets carry as Your Discriminator. With 0 it is not known and
	// no packet is dropped.
	LocalDisc uint32
	// RemoteDisc is the far end's discriminator while the session is up. 0 accepts any.
	RemoteDisc uint32
	// Refused counts packets that were passed up and did not get to the session, since the process started.
	Refused uint32
}

// SetLinkBFD sets the BFD session of a link, so that the programs pass only its packets up.
func (p Plane) SetLinkBFD(link int, s BFDSession) error {
	return p.updateLink(link, func(l *bpfobj.PipelineScionLink) {
		l.BfdOwn, l.BfdFar, l.BfdRefused = bpfobj.Wire32(s.LocalDisc), bpfobj.Wire32(s.RemoteDisc), s.Refused
	})
}

// SetLinkNextHop sets the next hop of a sibling or external link. With the zero NextHop the slow path gets the link's
// packets.
func (p Plane) SetLinkNextHop(link int, nh NextHop) error {
	raw := nh.raw()
	before, same := 0, false
	// These are the steps of a writer in bpf/core/seqcount.h. The counter is odd if a process died while writing.
	for n, step := range []func(*bpfobj.PipelineScionLink){
		func(l *bpfobj.PipelineScionLink) { l.Seq |= 1 },
		func(l *bpfobj.PipelineScionLink) { l.Hop = raw },
		func(l *bpfobj.PipelineScionLink) { l.Seq++ },
	} {
		err := p.updateLink(link, func(l *bpfobj.PipelineScionLink) {
			if n == 0 {
				before, same = int(l.Hop.Port), l.Hop == raw && l.Seq&1 == 0
			}
			if !same {
				step(l)
			}
		})
		if err != nil || same {
			return err
		}
	}
	if before == nh.IfIndex {
		return nil
	}
	return errors.Join(p.updatePortPair(before), p.updatePortPair(nh.IfIndex))
}

// LinkState is the state of a link in the programs' map.
type LinkState struct {
	Up      bool
	NextHop NextHop
	BFD     BFDSession
}

// LinkStates returns the state of each link of Config.Links.
func (p Plane) LinkStates() ([]LinkState, error) {
	states := make([]LinkState, len(p.Config().Links))
	for n := range states {
		var l bpfobj.PipelineScionLink
		if err := p.Map(bpfobj.PipelineMapScionLinks).Lookup(uint32(n), &l); err != nil {
			return nil, fmt.Errorf("reading link %d of %s: %w", n, p.Name(), err)
		}
		bfd := BFDSession{LocalDisc: bpfobj.Wire32(l.BfdOwn), RemoteDisc: bpfobj.Wire32(l.BfdFar), Refused: l.BfdRefused}
		states[n] = LinkState{Up: l.Up != 0, BFD: bfd, NextHop: NextHop{
			IfIndex: int(l.Hop.Port),
			SrcMAC:  l.Hop.Smac,
			DstMAC:  l.Hop.Dmac,
			MTU:     l.Hop.Mtu,

			LinearOnly: l.Hop.LinearOnly != 0,
		}}
	}
	return states, nil
}

// SetHost sets the next hop of an end host of the AS, and the time of its last packet to now. The zero NextHop means that
// only the kernel has a way to the host.
func (p Plane) SetHost(addr netip.Addr, nh NextHop) error {
	raw := bpfobj.PipelineScionHost{Hop: nh.raw(), Used: HostUsed(time.Now())}
	if err := p.Map(bpfobj.PipelineMapScionHosts).Put(bpfobj.AddrWords(addr), raw); err != nil {
		return fmt.Errorf("writing the next hop of host %s: %w", addr, err)
	}
	return nil
}

// HostUsed converts a time to the unit in the entries of end hosts: 2^30 ns since the epoch (HOST_USED_SHIFT).
func HostUsed(t time.Time) uint32 { return uint32(t.UnixNano() >> 30) }

// Hosts returns the end hosts in the programs' map, with the time of the last packet to each in the unit of HostUsed.
func (p Plane) Hosts() (map[netip.Addr]uint32, error) {
	m := p.Map(bpfobj.PipelineMapScionHosts)
	var (
		used   = make(map[netip.Addr]uint32)
		keys   = make([][4]uint32, 4096)
		values = make([]bpfobj.PipelineScionHost, len(keys))
		cursor ebpf.MapBatchCursor
	)
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for k := range n {
			var b [16]byte
			for w, word := range keys[k] {
				bpfobj.Native.PutUint32(b[4*w:], word)
			}
			used[netip.AddrFrom16(b).Unmap()] = values[k].Used
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return used, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing the hosts of %s: %w", p.Name(), err)
		}
	}
}

// DeleteHost removes an end host. It is no error if there is no such host.
func (p Plane) DeleteHost(addr netip.Addr) error {
	err := p.Map(bpfobj.PipelineMapScionHosts).Delete(bpfobj.AddrWords(addr))
	if err != nil && !bpfobj.NotExist(err) {
		return fmt.Errorf("deleting the next hop of host %s: %w", addr, err)
	}
	return nil
}

// forgetDeadHops removes next hops by interfaces that no longer exist from adopted links and hosts. Packets to them would
// be lost.
func (p Plane) forgetDeadHops() error {
	dead := make(map[int]bool)
	gone := func(index int) bool {
		if _, asked := dead[index]; !asked {
			_, err := netlink.LinkByIndex(index)
			dead[index] = errors.As(err, &netlink.LinkNotFoundError{})
		}
		return index != 0 && dead[index]
	}
	states, err := p.LinkStates()
	if err != nil {
		return err
	}
	for n, s := range states {
		if gone(s.NextHop.IfIndex) {
			if err := p.SetLinkNextHop(n, NextHop{}); err != nil {
				return err
			}
		}
	}
	var (
		key   [4]uint32
		value bpfobj.PipelineScionHost
		lost  [][4]uint32
	)
	it := p.Map(bpfobj.PipelineMapScionHosts).Iterate()
	for it.Next(&key, &value) {
		if gone(int(value.Hop.Port)) {
			lost = append(lost, key)
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("listing the hosts of %s: %w", p.Name(), err)
	}
	for _, key := range lost {
		if err := p.Map(bpfobj.PipelineMapScionHosts).Delete(key); err != nil && !bpfobj.NotExist(err) {
			return fmt.Errorf("forgetting a host of %s: %w", p.Name(), err)
		}
	}
	return nil
}
