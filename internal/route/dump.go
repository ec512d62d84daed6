// SPDX-License-Identifier: Apache-2.0

package route

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// dumpGap is the pause between dumps, since a dump of a full table takes seconds of a CPU. While the mirror
	// may be believed, the pause is at least idleFactor times the duration of the last dump.
	dumpGap    = time.Second
	idleFactor = 4
	// retryFirst and retryLast bound the pause before a step is repeated that changes have spoiled.
	retryFirst = 20 * time.Millisecond
	retryLast  = time.Second
	// smallTries is how often a short table is read again before Run makes do with what it has read.
	smallTries = 10
	// doubtfulTries is how often a dump of routes is read if routes are removed meanwhile. See spoil.
	doubtfulTries = 4
)

// dumpStep is one table that a dump reads.
type dumpStep struct {
	kind   uint16
	family byte
	// header is the size of the request's header after struct nlmsghdr.
	header int
}

var dumpSteps = []dumpStep{
	{unix.RTM_GETLINK, unix.AF_UNSPEC, unix.SizeofIfInfomsg},
	{unix.RTM_GETADDR, unix.AF_INET, unix.SizeofIfAddrmsg},
	{unix.RTM_GETNEIGH, unix.AF_INET, unix.SizeofNdMsg},
	{unix.RTM_GETNEIGH, unix.AF_INET6, unix.SizeofNdMsg},
	{unix.RTM_GETNEXTHOP, unix.AF_UNSPEC, 8},
	{unix.RTM_GETROUTE, unix.AF_INET, unix.SizeofRtMsg},
	{unix.RTM_GETROUTE, unix.AF_INET6, unix.SizeofRtMsg},
}

// touchKey identifies what a notification or an entry of a dump is about.
type touchKey struct {
	kind   uint16
	bits   int16
	number uint32
	addr   netip.Addr
}

// dump is the state of reading all tables, which goes on between notifications.
type dump struct {
	active bool
	// serial counts the dumps.
	serial uint64
	step   int
	seq    uint32
	// asked is true once the step's request has been sent, ended once its last message has been read.
	asked, ended bool
	// spoiled means that the step has to be repeated. doubtful means that it may lack routes: it is repeated
	// until doubts, which counts these cases, reaches doubtfulTries.
	spoiled, doubtful bool
	tries, doubts     int
	// notBefore is when the step may begin.
	notBefore time.Duration
	// sweeping is 0 while routes are read, and afterwards 1 + the first byte of the prefixes to sweep next.
	sweeping int
	started  time.Duration
	// last is the address of the latest prefix that the dump has shown.
	last netip.Addr
	// touched holds what notifications were about since the last part of the dump was read. The kernel may have
	// put the next part together before or after any of them.
	touched map[touchKey]struct{}
	// lost holds next hop objects and devices that went during the dump, whose routes the kernel removes without a
	// notification. It also holds prefixes that lost an IPv4 route, if the mirror was not in use or their routes were
	// not known for certain. See stale.
	lost map[touchKey]struct{}
	// neighbors are those that the dump has shown.
	neighbors map[gatewayKey]struct{}
}

// wantDump schedules a dump.
func (f *feed) wantDump() { f.dumpWanted = true }

// dumpDue returns when the next dump may begin.
func (f *feed) dumpDue() time.Duration {
	switch {
	case f.dumps == 0 || f.dumpAtOnce:
		return 0
	case f.trusted[0] < f.trustFrom[0] || f.trusted[1] < f.trustFrom[1]:
		return f.dumpEnded + dumpGap
	}
	return f.dumpEnded + max(dumpGap, idleFactor*f.dumpTook)
}

// distrust disables a family's mirror until a dump is complete that begins after now.
func (f *feed) distrust(i int) {
	f.trustFrom[i] = f.dump.serial + 1
	f.wantDump()
	f.withdraw()
}

// fresh reports whether to apply a message. An entry of a dump may be older than a notification about the same thing.
func (f *feed) fresh(key touchKey, notified bool) bool {
	if !f.dump.active {
		return notified
	}
	if notified {
		f.dump.touched[key] = struct{}{}
		return true
	}
	_, touched := f.dump.touched[key]
	return !touched
}

func (f *feed) startDump() {
	f.dumpWanted, f.dumpAtOnce = f.dumpAlways, f.dumpAlways
	serial, seq := f.dump.serial+1, f.dump.seq
	f.dump = dump{active: true, serial: serial, seq: seq, started: f.now(),
		touched: map[touchKey]struct{}{}, lost: map[touchKey]struct{}{}, neighbors: map[gatewayKey]struct{}{}}
	f.dumps++
	for _, r := range f.ribs {
		r.epoch++
	}
}

// abortDump gives up the running dump, if there is one, and schedules another.
func (f *feed) abortDump() {
	f.wantDump()
	if !f.dump.active {
		return
	}
	f.dump.active = false
	f.reopenDumper()
}

// reopenDumper discards the rest of a dump by opening a new socket.
func (f *feed) reopenDumper() {
	f.dumper.close()
	s, err := openDumper()
	if err != nil {
		f.fail(err)
		return
	}
	f.dumper = s
}

// continueDump does the next part of the dump. All notifications must have been read before.
func (f *feed) continueDump() {
	d := &f.dump
	switch {
	case !d.active:
		if f.dumpWanted && f.now() >= f.dumpDue() {
			f.startDump()
		}
	case d.sweeping > 0:
		f.continueSweep()
	case d.ended:
		f.endStep()
	case !d.asked:
		if f.now() < d.notBefore {
			return
		}
		d.asked, d.spoiled, d.doubtful = true, false, false
		d.seq++
		step := dumpSteps[d.step]
		header := make([]byte, step.header)
		header[0] = step.family
		if err := f.dumper.request(step.kind, d.seq, header); err != nil {
			f.once("request", "a dump of a routing table could not be requested: trying again", "err", err)
			d.spoiled, d.ended = true, true
		}
	default:
		f.readDump()
	}
}

// readDump applies the next datagram of the dump.
func (f *feed) readDump() {
	d := &f.dump
	err := f.dumper.read(d.seq, func(m message) {
		if m.flags&unix.NLM_F_DUMP_INTR != 0 {
			d.spoiled = true
		}
		switch m.kind {
		case unix.NLMSG_DONE:
			d.ended = true
			d.spoiled = d.spoiled || int32(u32(m.data)) < 0
		case unix.NLMSG_ERROR:
			d.ended = true
			errno := unix.Errno(-int32(u32(m.data)))
			// A kernel without the feature has no such entries.
			if errno != unix.EOPNOTSUPP && errno != unix.EAFNOSUPPORT {
				f.once("dump", "a routing table could not be read: trying again", "err", errno)
				d.spoiled = true
			}
		default:
			f.handle(m, false)
		}
	})
	clear(d.touched)
	if err != nil && !errors.Is(err, errAgain) {
		f.once("dump", "a routing table could not be read: trying again", "err", err)
		d.spoiled, d.ended = true, true
		f.reopenDumper()
	}
}

// endStep decides whether a step is complete or has to be repeated. All notifications from before its end have been
// read.
func (f *feed) endStep() {
	d := &f.dump
	step := dumpSteps[d.step]
	routes := step.kind == unix.RTM_GETROUTE
	if d.doubtful {
		d.doubts++
		d.spoiled = d.spoiled || d.doubts < doubtfulTries
	}
	if d.spoiled && (routes || d.tries < smallTries) {
		// Keep what this attempt has shown: had it gone since, there would have been a notification.
		d.tries++
		d.asked, d.ended = false, false
		d.notBefore = f.now() + min(retryFirst<<min(d.tries, 6), retryLast)
		return
	}
	if routes {
		d.sweeping = 1
		return
	}
	if !d.spoiled {
		f.sweepStep(step)
	} else {
		f.wantDump() // this one cannot show what is gone
	}
	f.nextStep()
}

func familyOf(step dumpStep) int {
	if step.family == unix.AF_INET6 {
		return 1
	}
	return 0
}

// continueSweep removes routes that the dump has not shown: in each call those with one first byte.
func (f *feed) continueSweep() {
	d := &f.dump
	i := familyOf(dumpSteps[d.step])
	f.ribs[i].sweep(byte(d.sweeping - 1))
	if d.sweeping++; d.sweeping <= 256 {
		return
	}
	f.trusted[i] = d.serial
	f.nextStep()
}

func (f *feed) nextStep() {
	d := &f.dump
	d.step++
	d.asked, d.ended, d.tries, d.doubts, d.notBefore, d.sweeping = false, false, 0, 0, 0, 0
	d.last = netip.Addr{}
	if d.step < len(dumpSteps) {
		return
	}
	d.active = false
	d.touched, d.lost, d.neighbors = nil, nil, nil
	f.dumpTook = f.now() - d.started
	f.dumpEnded = f.now()
}

// sweepStep removes the entries of a short table that the dump has not shown.
func (f *feed) sweepStep(step dumpStep) {
	serial := f.dump.serial
	switch step.kind {
	case unix.RTM_GETLINK:
		for index, dev := range f.devices {
			if dev.dump != serial {
				f.removeDevice(index)
			}
		}
	case unix.RTM_GETADDR:
		for key, seen := range f.addresses {
			if seen != serial {
				delete(f.addresses, key)
				f.addressesChanged = true
			}
		}
	case unix.RTM_GETNEIGH:
		if step.family == unix.AF_INET6 { // the IPv4 step came before
			f.sweepNeighbors()
		}
	case unix.RTM_GETNEXTHOP:
		for id, object := range f.nexthops {
			if object.dump != serial {
				f.unsettleAll(func(one *descriptor) bool { return f.hasMember(one, id) })
				delete(f.nexthops, id)
				f.condemn(func(one *descriptor) bool { return one.nexthop == id })
			}
		}
	}
}

// handleRoute applies an RTM_NEWROUTE or RTM_DELROUTE.
func (f *feed) handleRoute(m message, notified bool) {
	rt := &f.parsed
	if !parseRoute(m.data, rt) || rt.cloned {
		return
	}
	i, rank := 0, rankNone
	if rt.is6 {
		i = 1
	}
	if rt.realm && !f.realms4 && !rt.is6 {
		f.realms4 = true // to find a source's realm, the kernel looks its route up
		f.setPolicy()
	}
	if rt.mtu != 0 && (f.lowestMTU[i] == 0 || rt.mtu < f.lowestMTU[i]) {
		f.lowestMTU[i] = rt.mtu
		f.setPolicy()
	}
	switch {
	case rt.table == unix.RT_TABLE_LOCAL:
		rank = rankLocal
	case rt.table == unix.RT_TABLE_MAIN:
		rank = rankMain
	case rt.table == unix.RT_TABLE_DEFAULT && !rt.is6:
		rank = rankDefault
	}
	if f.dump.active {
		if notified {
			f.spoil(i, m.kind == unix.RTM_DELROUTE, rt.prefix.Addr())
		} else {
			f.dump.last = rt.prefix.Addr()
		}
	}
	if rank == rankNone {
		return
	}
	const kernelProtocol = 2 // RTPROT_KERNEL
	if !rt.is6 && rt.kind == unix.RTN_LOCAL && rt.proto != kernelProtocol && !f.customLocal4 {
		f.customLocal4 = true
		f.setPolicy()
	}
	r := f.ribs[i]
	rec := record{metric: rt.metric, identity: rt.identity, tos: rt.tos}
	if rt.is6 {
		// IPv6 has no tos. A route for some sources has the same effect: the answer depends on the packet.
		rec.tos = 0
		if rt.source {
			rec.tos = 1
		}
	}
	flags := uint8(0)
	const fromAdvertisement = 9 // RTPROT_RA
	switch {
	case rt.multi:
		flags = recordMulti
	case rt.is6 && rt.gateway.IsValid() && rt.nexthop == 0 && rt.proto != fromAdvertisement && rt.proto != kernelProtocol:
		flags = recordECMP
	}
	rec.packed = packed(rank, flags)

	sure := true
	if m.kind == unix.RTM_DELROUTE {
		f.touchRoute(rt.prefix)
		if _, unsure := r.unsureSince(rt.prefix); !rt.is6 && (unsure || !f.inUse(i)) {
			f.lose(routeTouch(rt.prefix))
		}
		sure = r.remove(rt.prefix, rec)
	} else {
		if notified {
			f.touchRoute(rt.prefix)
			if rt.multi || rt.nexthop != 0 {
				f.touch(rt.prefix) // the next hops may be the same in another order, which the message does not always tell
			}
		}
		stale := !notified && f.stale(i, rt, rec)
		rec.desc = f.descs.intern(f.keyOf(rt))
		if stale {
			sure = r.doubt(rt.prefix, rec)
		} else {
			sure = r.add(rt.prefix, rec, m.flags, notified)
		}
		f.descs.drop(rec.desc)
	}
	if !sure {
		f.wantDump()
	}
}

// inUse reports whether a complete dump has made a family's mirror right. Notifications have kept it right since.
func (f *feed) inUse(i int) bool { return f.trusted[i] >= f.trustFrom[i] }

// stale reports whether a dump may show a route that is gone. The kernel may have put this part of the dump together
// before a notification that has been applied. Since Linux 6.9 it may even put it together later: it sends the
// notification about an IPv4 route or a next hop object before it removes them, and a dump of IPv4 routes does not wait
// for that. So nothing but the next dump tells whether the route exists, unless there was a notification of it. The
// dump of links, with which each dump begins, does wait for all removals that have been notified.
func (f *feed) stale(i int, rt *routeMessage, rec record) bool {
	r := f.ribs[i]
	known, ok := r.find(rt.prefix, rec)
	if _, hop := f.dump.lost[touchKey{kind: unix.RTM_NEWNEXTHOP, number: rt.nexthop}]; hop {
		return !ok || f.descs.all[known.desc].condemned
	}
	if ok {
		return false
	}
	_, dev := f.dump.lost[touchKey{kind: unix.RTM_NEWLINK, number: uint32(rt.dev)}]
	devicesOf(string(rt.hops), func(index int) bool {
		if _, lost := f.dump.lost[touchKey{kind: unix.RTM_NEWLINK, number: uint32(index)}]; lost {
			dev = true
		}
		return !dev
	})
	_, prefix := f.dump.lost[routeTouch(rt.prefix)]
	if dev || prefix || f.isTouched(rt.prefix) {
		return true
	}
	// While the mirror is in use there is a notification of each route, except where a dump has to tell.
	epoch, unsure := r.unsureSince(rt.prefix)
	return f.inUse(i) && !(unsure && epoch != r.epoch)
}

// lose notes for the running dump that something is gone, and that dumps may still show its routes.
func (f *feed) lose(key touchKey) {
	if f.dump.active {
		f.dump.lost[key] = struct{}{}
	}
}

// spoil marks a dump of routes as doubtful if a removal may have made it skip a route. After a change, the kernel
// resumes an IPv6 dump by counting the routes shown so far, and an IPv4 dump likewise among routes of one address. A
// removal shifts that count. Which route is skipped depends on where the dump was, so one of several dumps shows each
// route for all practical purposes. The number of repetitions is bounded, because routing daemons may never be quiet.
func (f *feed) spoil(i int, removed bool, addr netip.Addr) {
	d := &f.dump
	step := dumpSteps[d.step]
	if removed && d.asked && d.sweeping == 0 && step.kind == unix.RTM_GETROUTE && familyOf(step) == i && (i == 1 || addr == d.last) {
		d.doubtful = true
	}
}

func routeTouch(p netip.Prefix) touchKey {
	return touchKey{kind: unix.RTM_NEWROUTE, addr: p.Addr(), bits: int16(p.Bits())}
}

func (f *feed) touchRoute(p netip.Prefix) {
	if f.dump.active {
		f.dump.touched[routeTouch(p)] = struct{}{}
	}
}

func (f *feed) isTouched(p netip.Prefix) bool {
	if len(f.dump.touched) == 0 {
		return false
	}
	_, ok := f.dump.touched[routeTouch(p)]
	return ok
}

// handle applies one message. notified is true for a notification and false for an entry of a dump.
func (f *feed) handle(m message, notified bool) {
	switch m.kind {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		f.handleRoute(m, notified)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		f.handleNeighbor(m, notified)
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		f.handleLink(m, notified)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		f.handleAddress(m, notified)
	case unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		f.handleNexthop(m, notified)
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		f.handleRule(m)
	case unix.RTM_NEWNETCONF, unix.RTM_DELNETCONF:
		f.handleNetconf(m)
	}
}
