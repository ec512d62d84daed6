// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"culvert/internal/bpfobj"
	"culvert/internal/host/netdev"
)

// Flags of struct port's spread (bpf/core/port.h).
const (
	portStays      = 1 << iota // PORT_STAYS
	portUnfinished             // PORT_UNFINISHED
	portTagsStay               // PORT_TAGS_STAY
	portStandby                // PORT_STANDBY
	portLinear                 // PORT_LINEAR
)

// unfinished are the drivers that hand on packets whose checksums the sender has left to a card.
var unfinished = map[string]bool{"veth": true, "tun": true, "vif": true}

// spreadFlags says what a CPUMAP loses of frames that come in by an interface. In generic mode it carries the kernel's whole packet, and
// loses nothing, but for frames with a tag the kernel does not find the Ethernet header again. A veth takes no tags off, whatever its
// features say.
func (i *Instance) spreadFlags(name string) (flags uint8) {
	switch {
	case len(i.meta.Workers.CPUs) == 0:
		return 0
	case i.meta.Generic:
		return portTagsStay
	}
	if netdev.IsBond(name) { // its packets come in by members
		return portStays
	}
	driver := netdev.ReadDriver(name)
	if unfinished[driver] {
		flags |= portUnfinished
	}
	if driver == "veth" {
		return flags
	}
	// A device that does not tell its features has none.
	if features, err := netdev.ReadFeatures(name); err == nil && features.StripsTags() {
		flags |= portStays
	}
	return flags
}

// Spread tells of each attached interface, by name, whether workers get packets of it. It returns nil without workers.
func (i *Instance) Spread() map[string]bool {
	if len(i.meta.Workers.CPUs) == 0 {
		return nil
	}
	spread := make(map[string]bool)
	for name, pin := range i.livePins() {
		spread[name] = !i.Stays(pin.Index)
	}
	return spread
}

// Stays tells whether all packets that come in by an interface are processed on the CPU that receives them, though there are workers:
// the card takes VLAN tags off, and the queue of a worker would lose them.
func (i *Instance) Stays(index int) bool {
	port, ok := i.Port(index)
	return ok && port.Spread&portStays != 0
}

// fillOwn writes the addresses of this host, packets to which are not given to workers.
func (i *Instance) fillOwn() error {
	if len(i.meta.Workers.CPUs) == 0 {
		return nil
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("listing the addresses of this host: %w", err)
	}
	var own, old bpfobj.PipelineBloom
	for _, a := range addrs {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			bit := bpfobj.BloomBit(addr)
			own.Bits[bit>>6] |= 1 << (bit & 63)
		}
	}
	m := i.maps[bpfobj.PipelineMapWorkerOwn]
	if err := m.Lookup(uint32(0), &old); err != nil || old == own {
		return err
	}
	return m.Put(uint32(0), own)
}
