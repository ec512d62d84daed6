// SPDX-License-Identifier: Apache-2.0

// Package nexthop finds the device and the MAC addresses that lead to an IP address, and follows
// every change. It asks the kernel over netlink for the route of packets that this host sends, so it
// does not depend on forwarding being on.
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

// NextHop is how packets to an address leave this host. The zero value means that they must not
// bypass the kernel: there is no route, no neighbor, or the address is this host's own.
type NextHop struct {
	// IfIndex is the device to which frames are redirected. For a VLAN device it is the one below.
	IfIndex int
	// VLAN is the 802.1Q tag that frames need: 0x1000 + VLAN ID, or 0 for none. See Options.VLAN.
	VLAN uint16
	// SrcMAC is the address of the device, or of the VLAN device above it. DstMAC is the address of the
	// neighbor or gateway.
	SrcMAC, DstMAC [6]byte
	// MTU is the size in bytes of the largest IP packet that the device (the VLAN device if there is one)
	// and the route allow.
	MTU uint16
	// LinearOnly is true if the device takes no redirected frames of several buffers.
	LinearOnly bool
	// Source is the address from which the kernel would send, invalid if it has none. See Options.Source.
	Source netip.Addr
	// Kernel is true for a next hop that is not resolved, but to which the kernel can send: it is this host, or
	// frames cannot be redirected to the device. See Options.Kernel.
	Kernel bool
	// Via is who receives the packets, zero for this host itself. See Options.Kernel.
	Via Via
}

// Via is the neighbor that receives packets to an address. Gateway distinguishes a neighbor that has the
// address from one that passes packets on, so that nobody knows whether the address exists.
type Via struct {
	// IfIndex is the route's device.
	IfIndex int
	// MAC is the address of the neighbor, zero on devices without neighbors.
	MAC [6]byte
	// Gateway is true if the neighbor passes the packets on.
	Gateway bool
}

// Resolved reports whether packets can be sent.
func (n NextHop) Resolved() bool { return n.IfIndex != 0 }

const (
	// defaultBuffer is large enough for the notifications of a routing daemon that installs a full table.
	defaultBuffer = 16 << 20
	// evaluateBatch bounds how many routes are looked up before new messages are read. lowBatch bounds those of
	// low priority among them.
	evaluateBatch = 128
	lowBatch      = 32
	// messageBatch bounds how many messages are read before routes are looked up.
	messageBatch = 64
	// lowAsks bounds for how many neighbors of low priority one tick asks the kernel.
	lowAsks = 1024
	// refreshAfter is when a route is looked up again without a notification. This picks up path MTUs,
	// of which the kernel does not notify.
	refreshAfter = 30 * time.Second
	tickPeriod   = 500 * time.Millisecond
)

// Options are the options of a Resolver. The zero value is useful.
type Options struct {
	// ReceiveBuffer is the size in bytes of the netlink receive buffer, 16 MiB if zero.
	ReceiveBuffer int
	// OnError is called with errors after which the Resolver goes on. It may be nil.
	OnError func(error)
	// VLAN is for callers that can write tags. Addresses behind an 802.1Q device then resolve to the device
	// below it and a tag. Otherwise they do not resolve.
	VLAN bool
	// Source makes the Resolver fill in NextHop.Source, and report changes of it.
	Source bool
	// Kernel makes the Resolver fill in NextHop.Kernel and NextHop.Via.
	Kernel bool
	// Generic is for programs that run in generic mode. The kernel sends their frames as the stack does, so that every device takes
	// them.
	Generic bool
}

// Resolver keeps the next hops of its targets current. One goroutine does all its work. It also calls
// the targets' report functions, one at a time.
type Resolver struct {
	handle   *netlink.Handle
	socket   *nl.NetlinkSocket
	xdp      *netdev.Client // nil on kernels before 6.3
	onError  func(error)
	vlan     bool
	source   bool
	kernel   bool
	generic  bool
	messages chan message
	stopped  chan struct{}
	resyncs  atomic.Uint64

	mu       sync.Mutex
	commands []func()
	wake     chan struct{}

	// Only the goroutine of run uses the following fields.
	devices   map[int]device
	neighbors neigh.Table
	targets   map[*Target]struct{}
	uses      map[neigh.Key]*neighborUse
	// dirty and dirtyLow hold the targets, of normal and of low priority, whose route has to be looked up.
	dirty, dirtyLow map[*Target]struct{}

	lastResync time.Time
	// abilities has the answers for devices about which the kernel has been asked.
	abilities map[int]netdev.Egress
}

// Target is one address whose next hop is followed.
type Target struct {
	resolver   *Resolver
	addr, from netip.Addr
	low        bool
	report     func(NextHop)
	devices    *devices // set for a target of TrackDevices, which has no next hop
	route      route
	evaluated  time.Time
	// known is true once current has been reported.
	known   bool
	current NextHop
}

// New starts a Resolver in the network namespace of the calling thread. It stops when ctx ends. Wait
// returns when it has stopped.
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
		generic:   o.Generic,
		messages:  make(chan message, 64),
		stopped:   make(chan struct{}),
		wake:      make(chan struct{}, 1),
		targets:   map[*Target]struct{}{},
		uses:      map[neigh.Key]*neighborUse{},
		dirty:     map[*Target]struct{}{},
		dirtyLow:  map[*Target]struct{}{},
		abilities: map[int]netdev.Egress{},
	}
	// A kernel without this netlink family cannot say what drivers take: netdev.Egress knows what to expect.
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

// Track follows the next hop of packets to addr from the local address from. An invalid from means
// any. report is called with the first result and with every change, but not before the neighbor has
// been resolved, or has failed to resolve. It must not block. It may call Track and Stop. It may be
// called once more after Stop.
func (r *Resolver) Track(addr, from netip.Addr, report func(NextHop)) *Target {
	return r.track(&Target{resolver: r, addr: addr.Unmap(), from: from.Unmap(), report: report})
}

// TrackLow is Track for addresses that strangers choose, of which there may be any number. Addresses of Track
// always come first. When the target is stopped and its neighbor has not answered, the neighbor is removed from
// the kernel's table.
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

// mark makes run look up a target's route soon.
func (r *Resolver) mark(t *Target) {
	if t.low {
		r.dirtyLow[t] = struct{}{}
	} else {
		r.dirty[t] = struct{}{}
	}
}

// Stop stops following the target.
func (t *Target) Stop() {
	t.resolver.do(func() {
		t.resolver.setRoute(t, route{})
		delete(t.resolver.targets, t)
		delete(t.resolver.dirty, t)
		delete(t.resolver.dirtyLow, t)
	})
}

// do makes the Resolver's goroutine call fn.
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
			// Strangers can keep messages coming by making the host ask for new neighbors.
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

// evaluateOf evaluates at most most targets of a set and removes them from it. It returns how many.
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

// evaluate looks up the target's route, and reports its next hop if that has changed.
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

// update works out the target's next hop from its route, the devices and the neighbors, and reports a change.
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

// nextHop works out the next hop of a route. pending is true while the kernel resolves the neighbor.
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
	ok = ok && !r.ability(port).None
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
		LinearOnly: r.ability(port).LinearOnly, Via: via}
	if r.source {
		next.Source = rt.source
	}
	return next, false
}

// kernelHop is a next hop that is not resolved. kernel is true if the kernel can send there.
func kernelHop(kernel bool, via Via) NextHop {
	if !kernel {
		return NextHop{}
	}
	return NextHop{Kernel: true, Via: via}
}

// tick asks for the neighbors that are due, and marks the targets that have not been looked up for long.
func (r *Resolver) tick(now time.Time) {
	r.askDue(now)
	r.askDevices()
	for t := range r.targets {
		if now.Sub(t.evaluated) > refreshAfter {
			r.mark(t)
		}
	}
}

// read passes the kernel's notifications to run until ctx ends.
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
