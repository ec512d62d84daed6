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
	"culvert/internal/route/routeplane"
)

const (
	// believeFor is how long the programs may believe the mirror after it was known to be right, and
	// believeEvery how often they are told so.
	believeFor   = 80 * time.Millisecond
	believeEvery = 20 * time.Millisecond
	// readsPerTurn bounds how many datagrams are read before anything else gets its turn.
	readsPerTurn = 2048

	tickEvery        = 100 * time.Millisecond
	tickSlowly       = 500 * time.Millisecond
	tickNeighbourly  = 250 * time.Millisecond
	tickSettings     = time.Second
	rulesEvery       = 50 * time.Millisecond
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

// Options tunes Run.
type Options struct {
	Plane Plane
	Log   *slog.Logger
	// ReceiveBuffer is the size in bytes of the netlink receive buffer, 64 MiB if zero.
	ReceiveBuffer int
	// Status, if there is one, is kept up to date.
	Status *Status
	// OnSynced is called once, when the tables have been read for the first time. It may be nil.
	OnSynced func()
	// dumpAlways has the tables read over and over again, for tests.
	dumpAlways bool
}

// feed is the state of Run, all of which belongs to its goroutine. Where there is one of a thing for each
// family, IPv4 is 0 and IPv6 is 1.
type feed struct {
	plane            Plane
	log              *slog.Logger
	logged           map[string]bool
	err              error
	listener, dumper *socket
	rtnl             *netlink.Handle
	xdp              *netdev.Client // nil on kernels before 6.3

	ribs    [2]*rib
	mirrors [2]*mirrorTable
	descs   *descriptors
	numbers *numbers
	parsed  routeMessage

	devices    map[int]device
	abilities  map[int]ability
	attached   map[string]bool
	carrying   map[int]string // the same by index, with the names that they had
	pushedDevs map[int]routeplane.Dev
	nexthops   map[uint32]nexthopObject
	neighbours neigh.Table
	uses       map[gatewayKey]*gatewayUse
	connected  map[gatewayKey]*connected
	addresses  map[addressKey]uint64
	pushedOwn  []netip.Addr
	// devicesChanged and addressesChanged say that the data plane has to be told.
	devicesChanged, addressesChanged bool

	confs        map[int]conf
	confQueue    []int
	all          conf
	hash4, hash6 uint8
	pathMTU4     bool
	// lowestMTU is the lowest that any route, of whatever table, has had of its own; 0 for none.
	lowestMTU        [2]uint32
	ipsec4, ipsec6   bool
	ipsecCounts      [3]uint32
	ipsecListed      time.Duration
	customRules      [2]bool
	portRules        [2]bool
	realms4          bool
	customLocal4     bool
	policy           routeplane.Policy
	policyPushed     bool
	rulesOwn         [2]bool
	rulesDirty       [2]bool
	rulesRead        time.Duration
	dump             dump
	dumpWanted       bool
	dumpSeen         bool // by the Stats
	dumpEnded        time.Duration
	dumpAtOnce       bool
	dumpAlways       bool
	lastOverrun      time.Duration
	trustFrom        [2]uint64 // the mirror is right from the dump with this serial on
	trusted          [2]uint64 // the latest dump that is through
	reasons          [2]string // why the mirror is not believed
	believed         time.Duration
	drainedAt        time.Duration
	status           *Status
	published        time.Duration
	onSynced         func()
	dumps, overruns  uint64
	dumpTook         time.Duration
	ticked, slow     time.Duration
	neighbourly, set time.Duration
}

// monotonic reads the clock that the programs read.
func monotonic() time.Duration {
	var now unix.Timespec
	// It cannot fail for this clock.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano())
}

func (f *feed) now() time.Duration { return monotonic() }

// Run keeps the plane current with the network namespace of the caller until ctx ends. It returns an error
// if it cannot begin, or cannot write to the plane.
func Run(ctx context.Context, o Options) error {
	// Sockets and settings are those of the thread's network namespace.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f, err := newFeed(o)
	if err != nil {
		return err
	}
	defer f.close()
	for ctx.Err() == nil && f.err == nil {
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
		plane: o.Plane, log: o.Log, logged: map[string]bool{}, status: o.Status, onSynced: o.OnSynced,
		devices: map[int]device{}, abilities: map[int]ability{}, attached: map[string]bool{},
		pushedDevs: map[int]routeplane.Dev{}, nexthops: map[uint32]nexthopObject{},
		neighbours: neigh.Table{}, uses: map[gatewayKey]*gatewayUse{}, connected: map[gatewayKey]*connected{},
		addresses: map[addressKey]uint64{}, confs: map[int]conf{},
		rulesDirty: [2]bool{true, true}, trustFrom: [2]uint64{1, 1}, dumpWanted: true, devicesChanged: true,
		addressesChanged: true, dumpAlways: o.dumpAlways,
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	if err := f.plane.SetCurrent(0, 0); err != nil {
		return nil, fmt.Errorf("taking the routing mirror out of use before filling it: %w", err)
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
		return nil, fmt.Errorf("opening a netlink socket for neighbours: %w", err)
	}
	// Without the family there is nothing to learn, and every device counts as able.
	f.xdp, _ = netdev.Open(netdev.XDPFamily)

	f.numbers = newNumbers(f.now)
	f.descs = newDescriptors(f.numbers)
	f.descs.onNew, f.descs.onGone = f.newHop, f.goneHop
	root4, blocks4 := f.plane.Table4()
	root6, blocks6 := f.plane.Table6()
	f.mirrors = [2]*mirrorTable{newMirrorTable(root4, blocks4, 32, f.now()), newMirrorTable(root6, blocks6, 128, f.now())}
	for i, m := range f.mirrors {
		f.ribs[i] = newRIB(i == 1, f.descs, m)
	}
	f.setFixedHops()
	f.tickAttached()
	f.tickIPsec()
	f.readAll()
	return f, f.err
}

// setFixedHops gives the fixed numbers their meaning.
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

// turn waits for something to do, and does it.
func (f *feed) turn() {
	f.wait()
	before := f.now()
	drained := f.drain(&before)
	f.tick()
	f.settle()
	if drained {
		f.drainedAt = before
		f.believe(before)
		f.continueDump()
		return
	}
	if f.now()-f.drainedAt > believeFor {
		f.judge()
	}
}

// wait returns when there is something to read, or to tell.
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
	// Interruption is no reason to worry: whoever calls looks at everything anyway.
	_, _ = unix.Poll(fds, int((timeout+time.Millisecond-1)/time.Millisecond))
}

// drain reads notifications until there are none, and returns whether it got there. At tells when that was:
// what the kernel has told before has been applied.
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

// settle tells the data plane what follows from the messages.
func (f *feed) settle() {
	now := f.now()
	if (f.rulesDirty[0] || f.rulesDirty[1]) && now-f.rulesRead >= rulesEvery {
		f.rulesRead = now
		f.tickRules()
	}
	// Before the first dump has shown them, an answer about devices and addresses would be wrong.
	if f.dump.serial == 1 && f.dump.active && f.dump.step < 2 || f.dump.serial == 0 {
		return
	}
	if f.devicesChanged {
		f.syncDevices()
	}
	if f.addressesChanged {
		f.pushAddresses()
	}
}

func (f *feed) tick() {
	now := f.now()
	if now-f.published > tickEvery || f.dumpWanted && !f.dumpSeen {
		f.publish()
	}
	f.dumpSeen = f.dumpWanted
	if now-f.ticked >= tickEvery {
		f.tickMirrors()
		f.tickIPsec()
		f.tickConfs(now - f.ticked)
		f.ticked = now
	}
	if now-f.neighbourly >= tickNeighbourly {
		f.neighbourly = now
		f.tickNeighbours()
	}
	if now-f.slow >= tickSlowly {
		f.slow = now
		f.tickAttached()
		f.tickAbilities()
	}
	if now-f.set >= tickSettings {
		f.set = now
		f.readAll()
	}
}

// judge works out whether the mirror is right, apart from its age.
func (f *feed) judge() (reasons [2]string) {
	for i := range reasons {
		switch {
		case f.mirrors[i].table == nil:
			reasons[i] = reasonOff
		case f.mirrors[i].emptying:
			reasons[i] = reasonEmptying
		case !f.rulesOwn[i]:
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

// believe lets the programs believe what was right at the given time.
func (f *feed) believe(at time.Duration) {
	before := f.reasons
	now := f.judge()
	if now == before && f.now()-f.believed < believeEvery {
		return
	}
	f.believed = f.now()
	f.setCurrent(at + believeFor)
	if f.onSynced != nil && f.trusted[0] > 0 && f.trusted[1] > 0 {
		f.onSynced()
		f.onSynced = nil
	}
}

// withdraw takes at once what is not right out of use.
func (f *feed) withdraw() {
	f.judge()
	// What is still right stays so for as long as was said before.
	f.setCurrent(f.drainedAt + believeFor)
}

func (f *feed) setCurrent(until time.Duration) {
	var each [2]time.Duration
	for i, reason := range f.reasons {
		// What is behind has passed its deadline, and is no less right than it was.
		if reason == "" || reason == reasonBehind {
			each[i] = until
		}
	}
	if err := f.plane.SetCurrent(each[0], each[1]); err != nil {
		f.fail(fmt.Errorf("telling the data plane until when the routing mirror is right: %w", err))
	}
}

// fail ends Run.
func (f *feed) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// once logs the first of its kind.
func (f *feed) once(kind, text string, args ...any) {
	if !f.logged[kind] {
		f.logged[kind] = true
		f.log.Warn(text, args...)
	}
}
