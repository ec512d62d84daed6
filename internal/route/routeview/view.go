// SPDX-License-Identifier: Apache-2.0

// Package routeview shows what the IP router's fast path does with packets, and compares it with what the kernel would
// do. It changes nothing, and sends no packets.
package routeview

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/route/routeplane"
	"culvert/internal/show/planes"
)

// view is the state of one data plane's IP router. Settings, devices and next hops are read once, until refresh.
type view struct {
	inst   *datapath.Instance
	plane  *routeplane.Plane
	state  routeplane.State
	devs   map[int]routeplane.Dev
	tables map[bool]*table // the key is true for IPv6; empty without a mirror
	hops   map[uint32]routeplane.Hop
	// patience is how long to wait for a mirror that is not current.
	patience time.Duration
}

// router describes the data planes that these commands work on.
var router = planes.Kind{
	Name: "IP router", Plural: "IP routers",
	Is:   func(i *datapath.Instance) bool { return routeplane.OptionsOf(i) != nil },
	None: "see 'culvert status'",
}

// open opens the named data plane, in whichever network namespace, or without a name the only IP router of this one.
func open(name string) (*datapath.Instance, error) {
	k := router
	k.Anywhere = name != ""
	return planes.Open(name, k)
}

// openHere is open for commands that read the kernel's tables. They need a data plane of this network namespace.
func openHere(name string) (*datapath.Instance, error) {
	inst, err := open(name)
	if err == nil && !inst.Here() {
		inst.Close()
		return nil, fmt.Errorf("router %s is in network namespace %d, and not in this one: enter it with "+
			"'ip netns exec' or 'nsenter --net'", name, inst.NetNS())
	}
	return inst, err
}

func newView(inst *datapath.Instance) (*view, error) {
	plane, err := routeplane.View(inst)
	if err != nil {
		return nil, err
	}
	v := &view{inst: inst, plane: plane, tables: make(map[bool]*table), patience: settleTime}
	if root, blocks := plane.Table4(); root != nil {
		v.tables[false] = newTable(root, blocks, 3, 32)
	}
	if root, blocks := plane.Table6(); root != nil {
		v.tables[true] = newTable(root, blocks, 2, 128)
	}
	if err := v.refresh(); err != nil {
		v.close()
		return nil, err
	}
	return v, nil
}

func (v *view) close() { v.plane.Close() }

// refresh reads settings and devices again, and forgets the next hops.
func (v *view) refresh() (err error) {
	v.hops = make(map[uint32]routeplane.Hop)
	if v.state, err = routeplane.ReadState(v.inst); err != nil {
		return err
	}
	v.devs, err = v.plane.Devs()
	return err
}

func (v *view) hop(number uint32) (routeplane.Hop, error) {
	hop, ok := v.hops[number]
	if ok {
		return hop, nil
	}
	hop, err := v.plane.Hop(number)
	if err != nil {
		return hop, err
	}
	v.hops[number] = hop
	return hop, nil
}

// entry is the mirror's answer for an address.
type entry struct {
	// prefix is where the answer comes from; invalid without an answer.
	prefix netip.Prefix
	hop    routeplane.Hop
	// lost is true if the mirror had no room. connected is true for an address on a connected network, and unknown
	// if that address is no known neighbor.
	lost, connected, unknown bool
}

// inBrackets returns the prefix in brackets after a space, "" without a prefix.
func (e entry) inBrackets() string {
	if !e.prefix.IsValid() {
		return ""
	}
	return " (" + e.prefix.String() + ")"
}

// asks reports whether the programs ask the kernel even with a current mirror.
func (e entry) asks() bool {
	return e.hop.Action == routeplane.Ask || e.hop.Action == routeplane.Connected
}

// find looks an address up in the mirror. It mirrors lpm_find4 and lpm_find6 of bpf/route/lpm.h.
func (v *view) find(addr netip.Addr) (e entry, err error) {
	t := v.tables[addr.Is6()]
	if t == nil {
		return e, nil
	}
	number, bits, lost := t.reader.Lookup(addr)
	e.lost = lost
	if number > routeplane.HopNone || bits > 0 { // otherwise there is no route
		e.prefix, _ = addr.Prefix(bits)
	}
	if e.hop, err = v.hop(number); err != nil || e.hop.Action != routeplane.Connected {
		return e, err
	}
	e.connected = true
	dev := e.hop.Dev
	number = v.plane.NeighborHop(routeplane.Neighbor{Dev: dev, Addr: addr})
	e.unknown = number == routeplane.HopAsk
	if e.hop, err = v.hop(number); err == nil && e.unknown {
		e.hop.Dev = dev // only for output
	}
	return e, err
}

// monotonic reads CLOCK_MONOTONIC, the clock of the mirror's deadline.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
