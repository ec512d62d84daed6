// SPDX-License-Identifier: Apache-2.0

// Package decapplane manages ends of tunnels. An end of tunnels is an XDP program on an interface that decapsulates packets. It
// is attached without a data plane and runs without a process. The package attaches, detaches and lists ends of tunnels with
// their counters, and attaches them again when their interface is deleted and made again.
package decapplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"culvert/internal/bpfobj"
	"culvert/internal/bpfobj/fold"
	"culvert/internal/host/pins"
	"culvert/internal/reason"
)

// DefaultGUEPort is the UDP port that IANA has assigned to GUE.
const DefaultGUEPort = 6080

// Options say which packets are decapsulated.
type Options struct {
	// GUEPort is the UDP port of GUE.
	GUEPort uint16
	// Local are the outer destinations. Attach replaces an empty list by the addresses of this host.
	Local []netip.Addr
	// OwnLocal says that Local are the addresses that this host had at Attach.
	OwnLocal bool `json:",omitempty"`
	// From are the outer sources that are allowed. An empty list allows all.
	From []netip.Prefix
	// VIPs are the inner destinations that are allowed. An empty list allows all.
	VIPs []netip.Addr
	// Generic attaches in the kernel's generic mode, for drivers without native XDP.
	Generic bool `json:",omitempty"`
}

// record is what is stored with a program.
type record struct {
	Options
	// Cookie is the cookie of the network namespace that the program was attached in.
	Cookie uint64 `json:",omitempty"`
}

// Open tells whether packets of all sources and to all destinations are decapsulated.
func (o Options) Open() bool { return len(o.From) == 0 && len(o.VIPs) == 0 }

// Reasons returns the reasons of the program by their number (bpf/decap/tunnel.h). A number that is not in use has no name.
var Reasons = sync.OnceValue(func() []reason.Reason {
	spec, err := bpfobj.LoadDecap()
	if err != nil {
		panic(err) // the object is part of the binary
	}
	all := reason.Decap()
	reasons := make([]reason.Reason, spec.Maps[bpfobj.DecapMapDecapCounters].MaxEntries)
	for name, value := range bpfobj.EnumNames(bpfobj.LoadDecap, "decap_reason") {
		if value == uint64(bpfobj.DecapDecapReasonDECAP_REASON_COUNT) {
			continue
		}
		reasons[value] = reason.Named(name, all)
	}
	return reasons
})

// program is a loaded program with its maps.
type program struct {
	prog     *ebpf.Program
	counters *ebpf.Map
}

func (p *program) close() {
	p.prog.Close()
	p.counters.Close()
}

// load loads a program for an interface. It shares counters, the map of an earlier program, if that is not nil and fits.
func load(dev *net.Interface, o Options, counters *ebpf.Map) (_ *program, err error) {
	spec, err := bpfobj.LoadDecap()
	if err != nil {
		return nil, err
	}
	var mac [3]uint16
	for n := range mac {
		mac[n] = bpfobj.Native.Uint16(dev.HardwareAddr[2*n:])
	}
	for name, value := range map[string]any{
		bpfobj.DecapVarDecapMac:      mac,
		bpfobj.DecapVarDecapGuePort:  bpfobj.Wire16(o.GUEPort),
		bpfobj.DecapVarDecapBySource: len(o.From) > 0,
		bpfobj.DecapVarDecapByVip:    len(o.VIPs) > 0,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("setting %s: %w", name, err)
		}
	}
	o.fill(spec)
	reused := make(map[string]*ebpf.Map)
	if counters != nil && spec.Maps[bpfobj.DecapMapDecapCounters].Compatible(counters) == nil {
		reused[bpfobj.DecapMapDecapCounters] = counters
	}
	coll, err := fold.Load(spec, ebpf.CollectionOptions{MapReplacements: reused})
	if err != nil {
		return nil, bpfobj.LoadError(err)
	}
	defer coll.Close()
	p := &program{prog: coll.DetachProgram(bpfobj.DecapProgDecap), counters: coll.DetachMap(bpfobj.DecapMapDecapCounters)}
	if err := o.bind(p.prog); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// fill sets the contents of the sets of addresses. Duplicates in the options are dropped.
func (o Options) fill(spec *ebpf.CollectionSpec) {
	addrs := func(name string, all []netip.Addr) {
		m, seen := spec.Maps[name], make(map[netip.Addr]bool)
		for _, a := range all {
			if !seen[a] {
				m.Contents = append(m.Contents, ebpf.MapKV{Key: bpfobj.AddrWords(a), Value: uint8(1)})
				seen[a] = true
			}
		}
		m.MaxEntries = uint32(max(len(m.Contents), 1))
	}
	addrs(bpfobj.DecapMapDecapLocal, o.Local)
	addrs(bpfobj.DecapMapDecapVips, o.VIPs)
	from := spec.Maps[bpfobj.DecapMapDecapFrom]
	seen := make(map[netip.Prefix]bool)
	for _, p := range o.From {
		if p = p.Masked(); seen[p] {
			continue
		}
		seen[p] = true
		key := bpfobj.DecapDecapPrefix{Bits: uint32(128 - p.Addr().BitLen() + p.Bits()), Addr: bpfobj.DecapDecapAddr{W: bpfobj.AddrWords(p.Addr())}}
		from.Contents = append(from.Contents, ebpf.MapKV{Key: key, Value: uint8(1)})
	}
	from.MaxEntries = uint32(max(len(from.Contents), 1))
}

// optionsMap is the name of the map with the record as JSON. The program does not read the map. The map is bound to the program,
// so that the program always comes with the options that it was loaded with.
const optionsMap = "decap_options"

// bind stores the record in a map that is bound to the program.
func (o Options) bind(prog *ebpf.Program) error {
	cookie, err := pins.Cookie()
	if err != nil {
		return err
	}
	b, err := json.Marshal(record{Options: o, Cookie: cookie})
	if err != nil {
		return err
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: optionsMap, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(b)), MaxEntries: 1,
	})
	if err != nil {
		return fmt.Errorf("creating the map of the options: %w", bpfobj.LoadError(err))
	}
	defer m.Close()
	if err := m.Put(uint32(0), b); err != nil {
		return fmt.Errorf("writing the options: %w", err)
	}
	if err := prog.BindMap(m); err != nil {
		return fmt.Errorf("binding the options to the program: %w", err)
	}
	return nil
}

// hostAddrs returns the addresses of this network namespace, without loopback addresses.
func hostAddrs() ([]netip.Addr, error) {
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("listing this host's addresses: %w", err)
	}
	var addrs []netip.Addr
	for _, a := range all {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && !addr.Unmap().IsLoopback() {
			addrs = append(addrs, addr.Unmap())
		}
	}
	if len(addrs) == 0 {
		return nil, errors.New("this host has no address that tunnels could lead to: give it one, or say which with --local")
	}
	return addrs, nil
}
