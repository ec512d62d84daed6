// SPDX-License-Identifier: Apache-2.0

// Package nexthop finds the device and the layer-2 addresses that lead to an IP address, and
// follows every change. It asks the kernel's routing table over netlink the way a socket of this
// host would be routed, so it does not depend on forwarding being switched on.
package nexthop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"culvert/internal/host/neigh"
	"culvert/internal/host/netdev"
)

// NextHop is how packets to an address leave this host. The zero value says that they must not
// bypass the kernel: there is no route, no neighbor, or the address is this host's own.
type NextHop struct {
	// IfIndex is the device that frames are redirected to: below a VLAN device, the one below it.
	IfIndex int
	// VLAN is the 802.1Q tag that frames need: 0x1000 + VLAN ID, or 0 for none. See Options.VLAN.
	VLAN uint16
	// SrcMAC is the address of the device, or of the VLAN device above it; DstMAC that of the neighbor or
	// gateway.
	SrcMAC, DstMAC [6]byte
	// MTU is the largest IP packet in bytes that the device (the VLAN device if there is one) and the route
	// allow.
	MTU uint16
	// LinearOnly says that the device takes no redirected frames of several buffers.
	LinearOnly bool
	// Source is the address that the kernel would send from, invalid if it has none. See Options.Source.
	Source netip.Addr
	// Kernel says of a next hop that is not resolved that the kernel has a way all the same: to this host, or by a
	// device that takes no frames from others. See Options.Kernel.
	Kernel bool
	// Via is whom packets are handed to, the zero value for this host itself. See Options.Kernel.
	Via Via
}

// Via tells addresses that somebody has been found to have from those that another one would be handed packets for,
// whether anybody has them or not.
type Via struct {
	// IfIndex is the device that the route leads to.
	IfIndex int
	// MAC is the address of the neighbor, zero on devices without neighbors.
	MAC [6]byte
	// Gateway says that the neighbor is to pass the packets on.
	Gateway bool
}

// Resolved tells whether packets can be sent.
func (n NextHop) Resolved() bool { return n.IfIndex != 0 }

const (
	// defaultBuffer holds the notifications of a routing daemon that installs a full table.
	defaultBuffer = 16 << 20
	// evaluateBatch bounds how many routes are looked up before new messages are read, lowBatch those of low priority
	// among them.
	evaluateBatch = 128
	lowBatch      = 32
	// messageBatch bounds how many messages are read before routes are looked up.
	messageBatch = 64
	// lowAsks bounds how many neighbors of low priority are asked for at a time.
	lowAsks = 1024
	// refreshAfter is when a route is looked up again though nothing was reported. It picks up
	// path MTUs, which the kernel learns without telling.
	refreshAfter = 30 * time.Second
	tickPeriod   = 500 * time.Millisecond
)

// Options tunes a Resolver. The zero value is useful.
type Options struct {
	// ReceiveBuffer is the size in bytes of the netlink receive buffer, 16 MiB if zero.
	ReceiveBuffer int
	// OnError is told of failures that a Resolver survives. It may be nil.
	OnError func(error)
	// VLAN is for those who write tags: addresses behind an 802.1Q device resolve to the device below it and a
	// tag. Without it they do not resolve.
	VLAN bool
	// Source has NextHop.Source filled in, and changes of it reported.
	Source bool
	// Kernel has NextHop.Kernel and NextHop.Via filled in.
	Kernel bool
}

// Resolver keeps the next hops of its targets current. All its work happens on one goroutine,
// which also makes the calls to the targets' functions, one at a time.
type Resolver struct {
	handle   *netlink.Handle
	socket   *nl.NetlinkSocket
	xdp      *netdev.Client // nil on kernels before 6.3
	onError  func(error)
	vlan     bool
	source   bool
	kernel   bool
	messages chan message
	stopped  chan struct{}
	resyncs  atomic.Uint64

	mu       sync.Mutex
	commands []func()
	wake     chan struct{}

	// What follows belongs to the goroutine of run.
	devices   map[int]device
	neighbors neigh.Table
	targets   map[*Target]struct{}
	uses      map[neigh.Key]*neighborUse
	// dirty holds targets whose route is to be looked up, dirtyLow those of low priority.
	dirty, dirtyLow map[*Target]struct{}

	lastResync time.Time
	// abilities holds what is known of the devices that were asked about.
	abilities map[int]ability
}

// Target is one address being followed.
type Target struct {
	resolver   *Resolver
	addr, from netip.Addr
	low        bool
	report     func(NextHop)
	devices    *devices // of a target whose next hop nobody asks for
	route      route
	evaluated  time.Time
	// known says that current has been reported.
	known   bool
	current NextHop
}

// New starts a Resolver in the current network namespace. It stops when ctx ends; Wait returns
// when it has.
func New(ctx context.Context, o Options) (*Resolver, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket for routes: %w", err)
	}
	socket, err := subscribe(o.ReceiveBuffer)
	if err != nil {
		handle.Close()
		return nil, err
	}
	r := &Resolver{
		handle:    handle,
		socket:    socket,
		onError:   o.OnError,
		vlan:      o.VLAN,
		source:    o.Source,
		kernel:    o.Kernel,
		messages:  make(chan message, 64),
		stopped:   make(chan struct{}),
		wake:      make(chan struct{}, 1),
		targets:   map[*Target]struct{}{},
		uses:      map[neigh.Key]*neighborUse{},
		dirty:     map[*Target]struct{}{},
		dirtyLow:  map[*Target]struct{}{},
		abilities: map[int]ability{},
	}
	// Without the family there is nothing to learn, and every device counts as able.
	r.xdp, _ = netdev.Open(netdev.XDPFamily)
	if r.onError == nil {
		r.onError = func(error) {}
	}
	if err := r.resync(); err != nil {
		socket.Close()
		r.close()
		return nil, err
	}
	go r.read(ctx)
	go r.run(ctx)
	return r, nil
}

func (r *Resolver) close() {
	r.handle.Close()
	if r.xdp != nil {
		r.xdp.Close()
	}
}

// Wait blocks until the Resolver has stopped.
func (r *Resolver) Wait() { <-r.stopped }

// Track follows addr as a destination of packets from the local address from, which may be
// invalid for any. Report is called with the first finding and with every change. While a
// neighbor is still being asked for the first time nothing is reported. Report must not block;
// it may call Track and Stop. After Stop it may be called once more.
func (r *Resolver) Track(addr, from netip.Addr, report func(NextHop)) *Target {
	return r.track(&Target{resolver: r, addr: addr.Unmap(), from: from.Unmap(), report: report})
}

// TrackLow is Track for addresses that strangers choose, any number of them. Those of Track come first in
// everything, and when an address is stopped that nobody has answered for, it leaves the kernel's neighbor table.
func (r *Resolver) TrackLow(addr, from netip.Addr, report func(NextHop)) *Target {
	return r.track(&Target{resolver: r, addr: addr.Unmap(), from: from.Unmap(), low: true, report: report})
}

func (r *Resolver) track(t *Target) *Target {
	r.do(func() {
		r.targets[t] = struct{}{}
		r.mark(t)
	})
	return t
}

// mark has a target's route looked up soon.
func (r *Resolver) mark(t *Target) {
	if t.low {
		r.dirtyLow[t] = struct{}{}
	} else {
		r.dirty[t] = struct{}{}
	}
}

// Stop ends the following of the target.
func (t *Target) Stop() {
	t.resolver.do(func() {
		t.resolver.setRoute(t, route{})
		delete(t.resolver.targets, t)
		delete(t.resolver.dirty, t)
		delete(t.resolver.dirtyLow, t)
	})
}

// do has fn called on the Resolver's goroutine.
func (r *Resolver) do(fn func()) {
	r.mu.Lock()
	r.commands = append(r.commands, fn)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *Resolver) runCommands() {
	r.mu.Lock()
	commands := r.commands
	r.commands = nil
	r.mu.Unlock()
	for _, fn := range commands {
		fn()
	}
}

func (r *Resolver) run(ctx context.Context) {
	defer close(r.stopped)
	defer r.close()
	ticker := time.NewTicker(tickPeriod)
	defer ticker.Stop()
	ready := make(chan struct{})
	close(ready)
	read := 0
	for {
		r.runCommands()
		var more <-chan struct{}
		if len(r.dirty)+len(r.dirtyLow) > 0 {
			more = ready
			// Messages never end while strangers have new neighbors asked for.
			if read >= messageBatch {
				r.evaluateSome()
				read = 0
			}
		}
		select {
		case <-ctx.Done():
			return
		case m := <-r.messages:
			r.handleMessage(m)
			read++
			continue
		case <-r.wake:
			continue
		case <-ticker.C:
			r.tick(time.Now())
			continue
		case <-more:
		}
		// Messages go first: several changes often concern one target.
		select {
		case m := <-r.messages:
			r.handleMessage(m)
			read++
		default:
			r.evaluateSome()
			read = 0
		}
	}
}

func (r *Resolver) evaluateSome() {
	n := r.evaluateOf(r.dirty, evaluateBatch)
	r.evaluateOf(r.dirtyLow, min(lowBatch, evaluateBatch-n))
}

// evaluateOf evaluates targets of a set, at most so many, and takes them out of it.
func (r *Resolver) evaluateOf(set map[*Target]struct{}, most int) (n int) {
	for t := range set {
		if n == most {
			break
		}
		n++
		delete(set, t)
		r.evaluate(t)
	}
	return n
}

func (r *Resolver) markAll() {
	for t := range r.targets {
		r.mark(t)
	}
}

// evaluate looks the target's route up and reports what has changed.
func (r *Resolver) evaluate(t *Target) {
	if t.devices != nil {
		r.evaluateDevices(t)
		return
	}
	found, err := r.lookup(t.addr, t.from)
	if err != nil {
		r.onError(err)
	}
	t.evaluated = time.Now()
	r.setRoute(t, found)
	r.update(t)
}

// update derives the target's next hop from its route, the devices and the neighbors.
func (r *Resolver) update(t *Target) {
	next, pending := r.nextHop(&t.route)
	if pending && !t.known {
		return
	}
	if t.known && next == t.current {
		return
	}
	t.known, t.current = true, next
	t.report(next)
}

func (r *Resolver) nextHop(rt *route) (next NextHop, pending bool) {
	var via Via
	if r.kernel {
		via = Via{IfIndex: rt.via.IfIndex, Gateway: rt.gateway}
	}
	if !rt.via.Addr.IsValid() {
		return kernelHop(r.kernel && rt.kernel, via), false
	}
	dev, ok := r.devices[rt.via.IfIndex]
	if !ok || !dev.usable {
		return kernelHop(r.kernel && dev.ready, via), false
	}
	port, vlan, ok := r.portOf(rt.via.IfIndex)
	ok = ok && !r.ability(port).deaf
	if !ok && !r.kernel {
		return NextHop{}, false
	}
	n, known := r.neighbors[rt.via]
	if !known || n.State&unix.NUD_INCOMPLETE != 0 || n.State == unix.NUD_NONE {
		return NextHop{}, true
	}
	if r.kernel {
		via.MAC = n.MAC
	}
	if !n.Usable() || !ok {
		return kernelHop(n.Usable(), via), false
	}
	mtu := dev.mtu
	if rt.mtu > 0 {
		mtu = min(mtu, rt.mtu)
	}
	next = NextHop{IfIndex: port, VLAN: vlan, SrcMAC: dev.mac, DstMAC: n.MAC, MTU: uint16(min(mtu, 65535)),
		LinearOnly: r.ability(port).linearOnly, Via: via}
	if r.source {
		next.Source = rt.source
	}
	return next, false
}

// kernelHop is the next hop of what the kernel has a way to, or of what nobody has.
func kernelHop(has bool, via Via) NextHop {
	if !has {
		return NextHop{}
	}
	return NextHop{Kernel: true, Via: via}
}

// tick looks after neighbors and renews old findings.
func (r *Resolver) tick(now time.Time) {
	r.askDue(now)
	r.askDevices()
	for t := range r.targets {
		if now.Sub(t.evaluated) > refreshAfter {
			r.mark(t)
		}
	}
}

// read passes the kernel's notifications on until ctx ends.
func (r *Resolver) read(ctx context.Context) {
	stop := context.AfterFunc(ctx, r.socket.Close)
	defer stop()
	for {
		batch, from, err := r.socket.Receive()
		m := message{resync: err != nil}
		switch {
		case ctx.Err() != nil || errors.Is(err, os.ErrClosed):
			return
		case err == nil && from.Pid != nl.PidKernel:
			continue
		case err == nil:
			m.batch = batch
		case !errors.Is(err, unix.ENOBUFS):
			r.onError(fmt.Errorf("receiving netlink notifications: %w", err))
			time.Sleep(100 * time.Millisecond)
		}
		select {
		case r.messages <- m:
		case <-ctx.Done():
			return
		}
	}
}
