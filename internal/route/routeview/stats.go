// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"io"
	"maps"
	"net"
	"slices"
	"strings"

	"culvert/internal/datapath"
	"culvert/internal/show"
	"culvert/internal/show/planes"
	"culvert/internal/stats"
)

// Stats is what `culvert route show -j` prints. Fields are added in later versions, never renamed.
type Stats struct {
	Routers []RouterStats `json:"routers"`
}

// RouterStats describes the IP router of one data plane.
type RouterStats struct {
	Router string `json:"router"`
	NetNS  uint32 `json:"netns"`
	Here   bool   `json:"here"`
	// IPv4 and IPv6 describe the mirror of each family, and MemoryBytes is the size of both.
	IPv4        FamilyStats `json:"ipv4"`
	IPv6        FamilyStats `json:"ipv6"`
	MemoryBytes uint64      `json:"memory_bytes"`
	// Hops counts the next hops that the mirror and the neighbors refer to, by action.
	Hops map[string]int `json:"hops"`
	// Neighbors counts the neighbors on connected networks that the fast path knows.
	Neighbors int      `json:"neighbors"`
	Devices   []Device `json:"devices"`
	// Reasons counts packets by reason, summed over all interfaces.
	Reasons []stats.Reason `json:"reasons"`
}

// FamilyStats describes the mirror of a family.
type FamilyStats struct {
	Condition
	// Prefixes counts the prefixes that are the longest for at least one address.
	Prefixes    int `json:"prefixes"`
	BlocksUsed  int `json:"blocks_used"`
	BlocksTotal int `json:"blocks_total"`
	// Lost counts the entries that needed a block when none was free. The programs ask the kernel for their addresses.
	Lost int `json:"lost"`
}

// Device is an interface, or a VLAN device, by which IP packets come in.
type Device struct {
	IfIndex int `json:"ifindex"`
	// Interface is only set in the caller's network namespace. Port is the index of the interface below a VLAN
	// device and else the device's own, and VLAN is the VLAN ID, 0 for none.
	Interface  string `json:"interface,omitempty"`
	Port       int    `json:"port"`
	VLAN       int    `json:"vlan,omitempty"`
	MAC        string `json:"mac"`
	Forward4   bool   `json:"forward4"`
	Forward6   bool   `json:"forward6"`
	RPFilter   uint8  `json:"rp_filter"`
	Redirects  bool   `json:"redirects"`
	Xmit       bool   `json:"xmit"`
	LinearOnly bool   `json:"linear_only"`
}

// WriteStats writes the state of the named IP router, or of all on this machine. verbose explains the reasons.
func WriteStats(name string, asJSON, verbose bool, out io.Writer) error {
	all, err := routers(name)
	if err != nil {
		return err
	}
	s := Stats{Routers: []RouterStats{}}
	defer func() {
		for _, i := range all {
			i.Close()
		}
	}()
	for _, i := range all {
		r, err := routerStats(i)
		if err != nil {
			return err
		}
		s.Routers = append(s.Routers, *r)
	}
	if !asJSON {
		return s.writeText(out, verbose)
	}
	return show.JSON(out, s)
}

func routers(name string) ([]*datapath.Instance, error) {
	if name != "" {
		inst, err := open(name)
		if err != nil {
			return nil, err
		}
		return []*datapath.Instance{inst}, nil
	}
	k := router
	k.Anywhere = true
	return planes.All(k)
}

func routerStats(inst *datapath.Instance) (*RouterStats, error) {
	v, err := newView(inst)
	if err != nil {
		return nil, err
	}
	defer v.close()
	state, err := Describe(inst)
	if err != nil {
		return nil, err
	}
	r := &RouterStats{
		Router: inst.Name(), NetNS: inst.NetNS(), Here: inst.Here(), MemoryBytes: state.Memory,
		Hops: make(map[string]int), Reasons: []stats.Reason{},
	}
	neighbors, err := v.plane.Neighbors()
	if err != nil {
		return nil, err
	}
	r.Neighbors = len(neighbors)
	numbers := make(map[uint32]bool)
	for _, number := range neighbors {
		numbers[number] = true
	}
	r.IPv4 = v.familyStats(false, state.IPv4, numbers)
	r.IPv6 = v.familyStats(true, state.IPv6, numbers)
	for number := range numbers {
		hop, err := v.hop(number)
		if err != nil {
			return nil, err
		}
		r.Hops[hop.Action.String()]++
	}
	r.Devices = v.devices(r.Here)
	ports, err := inst.Ports()
	if err != nil {
		return nil, err
	}
	r.Reasons = append(r.Reasons, routeReasons(ports)...)
	return r, nil
}

func (v *view) familyStats(is6 bool, c Condition, numbers map[uint32]bool) FamilyStats {
	f := FamilyStats{Condition: c}
	t := v.tables[is6]
	if t == nil {
		return f
	}
	u := t.content()
	f.Prefixes, f.BlocksUsed, f.BlocksTotal, f.Lost = u.prefixes, u.blocks, u.total, u.lost
	maps.Copy(numbers, u.numbers)
	return f
}

func (v *view) devices(here bool) []Device {
	devices := []Device{}
	for _, index := range slices.Sorted(maps.Keys(v.devs)) {
		d := v.devs[index]
		one := Device{
			IfIndex: index, Port: d.Port, VLAN: int(d.VLAN) & 0xfff, MAC: hardware(d.MAC), Forward4: d.Forward4,
			Forward6: d.Forward6, RPFilter: d.RPFilter, Redirects: d.Redirects, Xmit: d.Xmit, LinearOnly: d.LinearOnly,
		}
		if here {
			if dev, err := net.InterfaceByIndex(index); err == nil {
				one.Interface = dev.Name
			}
		}
		devices = append(devices, one)
	}
	return devices
}

// routeReasons sums the reasons of the IP router over all interfaces, in the order of their numbers.
func routeReasons(ports []stats.Port) []stats.Reason {
	type key struct {
		verdict, name string
		limited       bool
	}
	sums := make(map[key]stats.Reason)
	for _, p := range ports {
		for _, r := range p.Reasons {
			k := key{r.Verdict, r.Name, r.Limited}
			sum := sums[k]
			r.Packets += sum.Packets
			r.Bytes += sum.Bytes
			sums[k] = r
		}
	}
	var all []stats.Reason
	for _, limited := range []bool{false, true} {
		for _, known := range datapath.Reasons() {
			if known.Name != "route" && !strings.HasPrefix(known.Name, "route-") {
				continue
			}
			if sum, ok := sums[key{string(known.Verdict), known.Name, limited}]; ok {
				all = append(all, sum)
			}
		}
	}
	return all
}
