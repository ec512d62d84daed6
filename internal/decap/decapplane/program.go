// SPDX-License-Identifier: Apache-2.0

// Package decapplane is the end of tunnels on an interface: its program, which is attached without a data plane, what it has
// counted, and what becomes of it when the interface goes and comes again.
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
	"culvert/internal/host/pins"
	"culvert/internal/reason"
)

// DefaultGUEPort is the UDP port of GUE that IANA has given out.
const DefaultGUEPort = 6080

// Options say which packets have their outer headers taken off.
type Options struct {
	// GUEPort is the UDP port of GUE.
	GUEPort uint16
	// Local are the outer destinations; none stands for the addresses this host has when it is attached.
	Local []netip.Addr
	// OwnLocal says that Local are the addresses that this host had.
	OwnLocal bool `json:",omitempty"`
	// From are the outer sources; none allows all.
	From []netip.Prefix
	// VIPs are the inner destinations; none allows all.
	VIPs []netip.Addr
	// Generic attaches in the kernel's generic mode, for drivers without native XDP.
	Generic bool `json:",omitempty"`
}

// record is what is kept beside a program.
type record struct {
	Options
	// Cookie is of the network namespace that it was attached in.
	Cookie uint64 `json:",omitempty"`
}

// Open tells whether anybody's tunnels end there, with packets to anywhere in them.
func (o Options) Open() bool { return len(o.From) == 0 && len(o.VIPs) == 0 }

// Reasons returns the ways out of the program by their number (bpf/decap/tunnel.h); one without a name is not in use.
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

// load loads a program for an interface. It goes on with the counters of an earlier one, nil for none.
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
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: reused})
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

// fill says what the sets hold. Addresses are in them once, whatever the options say.
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

// optionsMap is the name of the map with the options as JSON. The program does not read it; it is bound to it, so
// whoever has the program has what it was loaded with.
const optionsMap = "decap_options"

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

// hostAddrs returns the addresses of this network namespace but for those that no packet comes to from outside.
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
