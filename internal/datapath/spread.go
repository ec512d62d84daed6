// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/cilium/ebpf/btf"
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

// runsWholeBatches tells whether the kernel runs a worker's program on all packets of a batch in generic mode. Older ones end the batch at
// the first packet that the program redirects or drops, and give the others to the stack. The change to arrays of packets that mended
// it gave the kernel's struct of a worker a member for GRO, in Linux 6.15. Kernels that do not show their types count as older. It is a
// variable for a test.
var runsWholeBatches = sync.OnceValue(func() bool {
	types, err := btf.LoadKernelSpec()
	if err != nil {
		return false
	}
	var entry *btf.Struct
	return types.TypeByName("bpf_cpu_map_entry", &entry) == nil &&
		slices.ContainsFunc(entry.Members, func(m btf.Member) bool { return m.Name == "gro" })
})

// spreadFlags says what a CPUMAP loses of frames that come in by an interface. In generic mode it carries the kernel's whole packet, and
// loses nothing, but for frames with a tag the kernel does not find the Ethernet header again, and some kernels do not run the program
// on each packet. A veth takes no tags off, whatever its features say.
func (i *Instance) spreadFlags(name string) (flags uint8) {
	if len(i.meta.Workers.CPUs) == 0 {
		return 0
	}
	return flagsWithWorkers(name, i.meta.Generic)
}

// flagsWithWorkers are spreadFlags if there are workers.
func flagsWithWorkers(name string, generic bool) (flags uint8) {
	switch {
	case generic && !runsWholeBatches():
		return portStays
	case generic:
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

// WhyStays says why all packets of an interface stay on the CPU that receives them, and the command that mends it, "" if none does. It
// is about interfaces for which Spread has false. unattended tells that no process takes a reload (Instance.Unattended).
func WhyStays(name string, generic, unattended bool) (why, mend string) {
	again := "culvert reload"
	if unattended {
		again = "culvert attach"
	}
	switch {
	case generic:
		return "in generic mode this kernel (older than Linux 6.15) does not run the program on each packet of a worker",
			again + ", without [workers] in the file"
	case netdev.IsBond(name):
		return "it is a bond, whose packets stay on the CPUs that receive them", ""
	}
	return "it takes VLAN tags off, which a worker's queue would lose", netdev.KeepTags(name)
}

// WouldStay tells whether workers, if there were any, would get no packets of an interface: WhyStays says why.
func WouldStay(name string, generic bool) bool { return flagsWithWorkers(name, generic)&portStays != 0 }

// Stays tells whether all packets that come in by an interface are processed on the CPU that receives them, though there are workers:
// WhyStays says why.
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
