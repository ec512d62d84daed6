// SPDX-License-Identifier: Apache-2.0

// Package routeview shows what the IP router's fast path does, beside what the kernel would do. It reads and asks;
// nothing is changed, and no packet is sent.
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

// view is the state of one data plane's IP router. What does not change with each packet is read once.
type view struct {
	inst   *datapath.Instance
	plane  *routeplane.Plane
	state  routeplane.State
	devs   map[int]routeplane.Dev
	tables map[bool]*table // by whether it is IPv6; none without a mirror
	hops   map[uint32]routeplane.Hop
	// patience is how long it is waited for a mirror that is not current.
	patience time.Duration
}

// router is what these commands want a data plane to be.
var router = planes.Kind{
	Name: "IP router", Plural: "IP routers",
	Is:   func(i *datapath.Instance) bool { return routeplane.OptionsOf(i) != nil },
	None: "see 'culvert status'",
}

// open finds the IP router of a name on this machine, or the only one of this network namespace.
func open(name string) (*datapath.Instance, error) {
	k := router
	k.Anywhere = name != ""
	return planes.Open(name, k)
}

// openHere is open for what compares with the kernel's tables, which are those of this network namespace.
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

// refresh reads anew what is not read for each address.
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

// entry is what the mirror says of an address.
type entry struct {
	// prefix is the one that the answer is from; invalid without an answer.
	prefix netip.Prefix
	hop    routeplane.Hop
	// lost means that the mirror had no room, connected that the answer is for a neighbour of its own, and
	// unknown that there is none known.
	lost, connected, unknown bool
}

// inBrackets is the prefix behind a blank, "" without one.
func (e entry) inBrackets() string {
	if !e.prefix.IsValid() {
		return ""
	}
	return " (" + e.prefix.String() + ")"
}

// asks tells whether the program asks the kernel, with a mirror that is current.
func (e entry) asks() bool {
	return e.hop.Action == routeplane.Ask || e.hop.Action == routeplane.Connected
}

// find is route_number4 and route_number6 of bpf/route/stage.h.
func (v *view) find(addr netip.Addr) (e entry, err error) {
	t := v.tables[addr.Is6()]
	if t == nil {
		return e, nil
	}
	number, bits, lost := t.reader.Lookup(addr)
	e.lost = lost
	if number > routeplane.HopNone || bits > 0 { // else it stands for the lack of a route
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
		e.hop.Dev = dev // for the eye alone
	}
	return e, err
}

// monotonic is the clock that the heartbeat goes by.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
