// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/host/neigh"
	"culvert/internal/host/netdev"
	"culvert/internal/host/pulse"
	"culvert/internal/route/routeplane"
)

const (
	// believeFor is how long the programs may believe the mirror after it was known to be right. believeEvery is
	// how often that deadline moves.
	believeFor   = 80 * time.Millisecond
	believeEvery = 20 * time.Millisecond
	// readsPerTurn bounds how many datagrams one turn reads before it does anything else.
	readsPerTurn = 2048
)

// Periods of the tasks in tick and settle.
const (
	tickEvery      = 100 * time.Millisecond
	devicesEvery   = 500 * time.Millisecond
	neighborsEvery = 250 * time.Millisecond
	settingsEvery  = time.Second
	rulesEvery     = 50 * time.Millisecond
)

// Reasons why the programs may not believe the mirror of a family.
const (
	reasonOff        = "off"
	reasonReading    = "reading the tables"
	reasonOverrun    = "overrun"
	reasonRules      = "policy rules"
	reasonPathMTU    = "ip_forward_use_pmtu"
	reasonEmptying   = "writing the mirror anew"
	reasonBehind     = "behind the notifications"
	reasonNotRunning = "not running"
)

var familyNames = [2]string{"IPv4", "IPv6"}

// Options are the arguments of Run.
type Options struct {
	Plane Plane
	Log   *slog.Logger
	// ReceiveBuffer is the size in bytes of the netlink receive buffer, 64 MiB if zero.
	ReceiveBuffer int
	// Status receives the Stats several times a second. It may be nil.
	Status *Status
	// OnSynced is called once, when the tables have been read for the first time, and the programs may remember the kernel's
	// choices. It may be nil.
	OnSynced func()
	// Generic tells that the programs run in generic mode. The kernel sends their frames as the stack does, so that every device
	// takes them.
	Generic bool
	// Turns is the pulse of the loop that keeps the mirror. It may be nil.
	Turns *pulse.Pulse
	// dumpAlways makes Run read the tables over and over again, for tests.
	dumpAlways bool
}

// feed is the state of Run. Only Run's goroutine uses it. Arrays of two have IPv4 at index 0 and IPv6 at index 1.
type feed struct {
	plane            Plane
	log              *slog.Logger
	logged           map[string]bool
	err              error
	listener, dumper *socket
	rtnl             *netlink.Handle
	xdp              *netdev.Client // nil on kernels before 6.3
	generic          bool

	ribs    [2]*rib
	mirrors [2]*mirrorTable
	descs   *descriptors
	numbers *numbers
	parsed  routeMessage

	devices    map[int]device
	abilities  map[int]netdev.Egress
	attached   map[string]bool
	carrying   map[int]string // the same by index, with their names at that time
	pushedDevs map[int]routeplane.Dev
	nexthops   map[uint32]nexthopObject
	neighbors  neigh.Table
	uses       map[gatewayKey]*gatewayUse
	connected  map[gatewayKey]*connected
	addresses  map[addressKey]uint64
	pushedOwn  []netip.Addr
	// devicesChanged and addressesChanged mean that the data plane has to be updated.
	devicesChanged, addressesChanged bool

	confs        map[int]conf
	confQueue    []int
	all          conf
	hash4, hash6 uint8
	hashSeed     int
	// useNeighbors4 is the sysctl fib_multipath_use_neigh.
	useNeighbors4 bool
	pathMTU4      bool
	// choosing means that there was something for the kernel to choose from. unsettled means that the programs may not remember
	// some choices. settledAt is when that was last ended. See choice.go.
	choosing, unsettled bool
	settledAt           time.Duration
	// lowestMTU is the lowest MTU that a route of any table has had, 0 for none.
	lowestMTU      [2]uint32
	ipsec4, ipsec6 bool
	ipsecCounts    [3]uint32
	ipsecListed    time.Duration
	customRules    [2]bool
	portRules      [2]bool
	realms4        bool
	customLocal4   bool
	policy         routeplane.Policy
	policyPushed   bool
	// policyHeld: settings, policy rules or IPsec policies have not been read yet. The policy that an earlier Run has left stays in force.
	policyHeld      bool
	rulesDefault    [2]bool // the policy rules are the kernel's default ones
	rulesDirty      [2]bool
	rulesRead       time.Duration
	dump            dump
	dumpWanted      bool
	dumpPublished   bool // the Stats say that a dump is wanted
	dumpEnded       time.Duration
	dumpAtOnce      bool
	dumpAlways      bool
	lastOverrun     time.Duration
	behind          bool             // an overrun has been logged, and logCaughtUp has not logged its end
	trustFrom       [2]uint64        // serial of the first dump that makes the mirror right
	trusted         [2]uint64        // serial of the latest complete dump
	reasons         [2]string        // why the programs may not believe the mirror, "" if they may
	rightAt         [2]time.Duration // when the mirror was last known to be right
	believed        time.Duration
	drainedAt       time.Duration
	status          *Status
	published       time.Duration
	onSynced        func()
	dumps, overruns uint64
	dumpTook        time.Duration
	ticked          time.Duration
	devicesTicked   time.Duration
	neighborsTicked time.Duration
	settingsTicked  time.Duration
}

// monotonic reads the clock that the programs read.
func monotonic() time.Duration {
	var now unix.Timespec
	// This clock exists everywhere, so there is no error.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano())
}

func (f *feed) now() time.Duration { return monotonic() }

// Run keeps the plane in step with the network namespace of the caller until ctx ends. It returns an error if it
// cannot start, or cannot write to the plane. When it returns, the programs no longer believe the mirror.
func Run(ctx context.Context, o Options) error {
	// Sockets and sysctls belong to the network namespace of the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f, err := newFeed(o)
	if err != nil {
		return err
	}
	defer f.close()
	defer o.Turns.End()
	for ctx.Err() == nil && f.err == nil {
		o.Turns.Beat()
		f.turn()
	}
	for i := range f.reasons {
		f.reasons[i] = reasonNotRunning
	}
	f.publish()
	return errors.Join(f.err, f.plane.SetCurrent(0, 0))
}

func newFeed(o Options) (*feed, error) {
	f := &feed{
		plane: o.Plane, generic: o.Generic, log: o.Log, logged: map[string]bool{}, status: o.Status, onSynced: o.OnSynced,
		devices: map[int]device{}, abilities: map[int]netdev.Egress{}, attached: map[string]bool{},
		nexthops:  map[uint32]nexthopObject{},
		neighbors: neigh.Table{}, uses: map[gatewayKey]*gatewayUse{}, connected: map[gatewayKey]*connected{},
		addresses: map[addressKey]uint64{}, confs: map[int]conf{},
		rulesDirty: [2]bool{true, true}, trustFrom: [2]uint64{1, 1}, dumpWanted: true, devicesChanged: true,
		addressesChanged: true, dumpAlways: o.dumpAlways, policyHeld: true,
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	if err := f.plane.SetCurrent(0, 0); err != nil {
		return nil, fmt.Errorf("disabling the routing mirror before filling it: %w", err)
	}
	if err := f.takeOver(); err != nil {
		return nil, err
	}
	buffer := o.ReceiveBuffer
	if buffer == 0 {
		buffer = defaultBuffer
	}
	var err error
	if f.listener, err = openListener(buffer); err != nil {
		return nil, err
	}
	if f.dumper, err = openDumper(); err != nil {
		f.close()
		return nil, err
	}
	if f.rtnl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		f.close()
		return nil, fmt.Errorf("opening a netlink socket for neighbors: %w", err)
	}
	// A kernel without this netlink family cannot say what drivers take: netdev.Egress knows what to expect.
	f.xdp, _ = netdev.Open(netdev.XDPFamily)

	f.numbers = newNumbers(f.now)
	f.descs = newDescriptors(f.numbers)
	f.descs.onNew, f.descs.onGone = f.newHop, f.goneHop
	root4, blocks4 := f.plane.Table4()
	root6, blocks6 := f.plane.Table6()
	f.mirrors = [2]*mirrorTable{newMirrorTable(root4, blocks4, 32, f.now(), f.touch), newMirrorTable(root6, blocks6, 128, f.now(), f.touch)}
	for i, m := range f.mirrors {
		f.ribs[i] = newRIB(i == 1, f.descs, m)
	}
	f.setFixedHops()
	f.tickAttached()
	f.tickIPsec()
	f.readAll()
	return f, f.err
}

// takeOver prepares a plane that an earlier Run has left. The numbers of next hops get other meanings, so neighbors must not
// have them any more. Devices stay, until syncDevices knows which of them have gone.
func (f *feed) takeOver() error {
	neighbors, err := f.plane.Neighbors()
	if err != nil {
		return err
	}
	for n := range neighbors {
		if err := f.plane.DeleteNeighbor(n); err != nil {
			return err
		}
	}
	f.plane.Touch(false, 0, routeplane.Slots)
	f.plane.Touch(true, 0, routeplane.Slots)
	f.unsettled = true
	f.pushedDevs, err = f.plane.Devs()
	return err
}

// setFixedHops writes the next hops with fixed numbers.
func (f *feed) setFixedHops() {
	for number, action := range map[uint32]routeplane.Action{
		routeplane.HopAsk: routeplane.Ask, routeplane.HopNone: routeplane.None,
		routeplane.HopLocal: routeplane.Local, routeplane.HopUnreachable: routeplane.Unreachable,
		routeplane.HopProhibit: routeplane.Prohibit, routeplane.HopBlackhole: routeplane.Blackhole,
		routeplane.HopElsewhere: routeplane.Elsewhere,
	} {
		f.setHop(number, routeplane.Hop{Action: action})
	}
}

func (f *feed) close() {
	for _, s := range []*socket{f.listener, f.dumper} {
		if s != nil {
			s.close()
		}
	}
	if f.rtnl != nil {
		f.rtnl.Close()
	}
	if f.xdp != nil {
		f.xdp.Close()
	}
}

// turn waits for something to do and does it. The mirror becomes current only in a turn that has read all
// notifications.
func (f *feed) turn() {
	f.wait()
	before := f.now()
	drained := f.drain(&before)
	f.tick()
	f.settle()
	if drained {
		f.drainedAt = before
		f.believe(before)
		f.logCaughtUp()
		f.continueDump()
		return
	}
	if f.now()-f.drainedAt > believeFor {
		f.assess()
	}
}

// wait returns when there is something to read, when the next step of a dump is due, or after believeEvery.
func (f *feed) wait() {
	timeout := believeEvery
	d := &f.dump
	fds := []unix.PollFd{{Fd: int32(f.listener.fd), Events: unix.POLLIN}}
	switch {
	case !d.active && f.dumpWanted:
		timeout = min(timeout, max(f.dumpDue()-f.now(), 0))
	case d.active && (d.ended || d.sweeping > 0):
		timeout = 0
	case d.active && !d.asked:
		timeout = min(timeout, max(d.notBefore-f.now(), 0))
	case d.active:
		fds = append(fds, unix.PollFd{Fd: int32(f.dumper.fd), Events: unix.POLLIN})
	}
	// An interruption does no harm, since the caller looks at everything anyway.
	_, _ = unix.Poll(fds, int((timeout+time.Millisecond-1)/time.Millisecond))
}

// drain reads notifications until there are none left, and reports whether it got that far. It sets at to a time:
// notifications that the kernel sent before it have been applied.
func (f *feed) drain(at *time.Duration) bool {
	for range readsPerTurn {
		*at = f.now()
		err := f.listener.read(0, func(m message) { f.handle(m, true) })
		switch {
		case err == nil:
		case errors.Is(err, errAgain):
			return true
		case errors.Is(err, errOverrun):
			f.overrun()
		default:
			f.fail(err)
			return false
		}
	}
	return false
}

// settle writes to the data plane what the messages have changed.
func (f *feed) settle() {
	now := f.now()
	if (f.rulesDirty[0] || f.rulesDirty[1]) && now-f.rulesRead >= rulesEvery {
		f.rulesRead = now
		f.tickRules()
	}
	if f.policyHeld {
		f.policyHeld = false
		f.setPolicy()
	}
	// Until the first dump has shown all devices and addresses, the data plane would get an incomplete picture.
	if f.dump.serial == 1 && f.dump.active && f.dump.step < 2 || f.dump.serial == 0 {
		return
	}
	if f.devicesChanged {
		f.syncDevices()
	}
	if f.addressesChanged {
		f.pushAddresses()
	}
	f.settleChoices()
}

// tick runs the periodic tasks that are due.
func (f *feed) tick() {
	now := f.now()
	if now-f.published > tickEvery || f.dumpWanted && !f.dumpPublished {
		f.publish()
	}
	f.dumpPublished = f.dumpWanted
	if now-f.ticked >= tickEvery {
		f.tickMirrors()
		f.tickIPsec()
		f.tickConfs(now - f.ticked)
		f.ticked = now
	}
	if now-f.neighborsTicked >= neighborsEvery {
		f.neighborsTicked = now
		f.tickNeighbors()
	}
	if now-f.devicesTicked >= devicesEvery {
		f.devicesTicked = now
		f.tickAttached()
		f.tickAbilities()
	}
	if now-f.settingsTicked >= settingsEvery {
		f.settingsTicked = now
		f.readAll()
	}
}

// assess returns why the mirror of each family may not be believed, "" if it may. It stores and publishes changes.
func (f *feed) assess() (reasons [2]string) {
	for i := range reasons {
		switch {
		case f.mirrors[i].table == nil:
			reasons[i] = reasonOff
		case f.mirrors[i].emptying:
			reasons[i] = reasonEmptying
		case !f.rulesDefault[i]:
			reasons[i] = reasonRules
		case f.trusted[i] < f.trustFrom[i] && f.lastOverrun > 0 && f.trusted[i] > 0:
			reasons[i] = reasonOverrun
		case f.trusted[i] < f.trustFrom[i]:
			reasons[i] = reasonReading
		case i == 0 && f.pathMTU4:
			reasons[i] = reasonPathMTU
		case f.now()-f.drainedAt > believeFor:
			reasons[i] = reasonBehind
		}
	}
	if reasons != f.reasons {
		f.reasons = reasons
		f.publish()
	}
	return reasons
}

// believe moves the deadline until which the programs believe the mirror, which was right at the given time.
func (f *feed) believe(at time.Duration) {
	before := f.reasons
	now := f.assess()
	if now == before && f.now()-f.believed < believeEvery {
		return
	}
	f.believed = f.now()
	f.setCurrent(at + believeFor)
	// While tables change all the time, something may be unsettled again whenever this looks.
	if f.onSynced != nil && f.trusted[0] > 0 && f.trusted[1] > 0 && (!f.unsettled || f.settledAt > f.dumpEnded) {
		f.onSynced()
		f.onSynced = nil
	}
}

// withdraw disables at once the mirrors that are no longer right. The other keeps its deadline.
func (f *feed) withdraw() {
	before := f.reasons
	now := f.assess()
	f.setCurrent(f.drainedAt + believeFor)
	for i := range now {
		// Until this was known, the kernel may have decided by something else, and the programs have remembered that.
		if now[i] != before[i] || now[i] == reasonOverrun {
			f.touchFamily(i)
		}
	}
}

// setCurrent writes a deadline for the mirrors that may be believed, and zero for the others.
func (f *feed) setCurrent(until time.Duration) {
	var each [2]time.Duration
	for i, reason := range f.reasons {
		// A mirror that is only behind keeps its deadline, which has passed already.
		if reason == "" || reason == reasonBehind {
			each[i] = until
			f.rightAt[i] = until - believeFor
		}
	}
	if err := f.plane.SetCurrent(each[0], each[1]); err != nil {
		f.fail(fmt.Errorf("writing the deadline of the routing mirror into the data plane: %w", err))
	}
}

// fail makes Run return the first error that it is given.
func (f *feed) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// once logs a warning the first time that its kind occurs.
func (f *feed) once(kind, text string, args ...any) {
	if !f.logged[kind] {
		f.logged[kind] = true
		f.log.Warn(text, args...)
	}
}
