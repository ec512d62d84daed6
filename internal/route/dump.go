// SPDX-License-Identifier: Apache-2.0

package route

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// dumpGap spaces dumps: each one of a full table takes seconds of a CPU. While the mirror is right as it is,
	// the pause is also idleFactor times as long as the last one took.
	dumpGap    = time.Second
	idleFactor = 4
	// retryFirst and retryLast bound the pause before a dump is begun again that changes have spoiled.
	retryFirst = 20 * time.Millisecond
	retryLast  = time.Second
	// smallTries is how often a short table is read again before what has been read is taken.
	smallTries = 10
	// shakyTries is how often a dump of routes is repeated during which others were removed. See spoil.
	shakyTries = 4
)

// dumpStep is a table that is read.
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

// touchKey names something that notifications and dumps tell about.
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
	// asked says that the step's request has been sent, ended that its last message has come.
	asked, ended bool
	// spoiled says that the step has to be repeated, shaky that it better should.
	spoiled, shaky bool
	tries, shakes  int
	// notBefore is when the step may begin, sweeping the next first byte of prefixes to sweep.
	notBefore time.Duration
	sweeping  int
	started   time.Duration
	// last is the address of the latest prefix seen.
	last netip.Addr
	// touched names what notifications have told of since the kernel may have put together the part of the
	// dump that is read next: a notification is news to it, or not.
	touched map[touchKey]struct{}
	// neighbours are those that there were.
	neighbours map[gatewayKey]struct{}
}

// wantDump schedules a dump.
func (f *feed) wantDump() { f.dumpWanted = true }

// dumpDue is when the next dump may begin.
func (f *feed) dumpDue() time.Duration {
	switch {
	case f.dumps == 0 || f.dumpAtOnce:
		return 0
	case f.trusted[0] < f.trustFrom[0] || f.trusted[1] < f.trustFrom[1]:
		return f.dumpEnded + dumpGap
	}
	return f.dumpEnded + max(dumpGap, idleFactor*f.dumpTook)
}

// distrust takes a family's mirror for wrong until a dump is through that begins after now.
func (f *feed) distrust(i int) {
	f.trustFrom[i] = f.dump.serial + 1
	f.wantDump()
	f.withdraw()
}

// fresh tells whether to believe a message: that of a dump may be older than what has been told since.
func (f *feed) fresh(key touchKey, told bool) bool {
	if !f.dump.active {
		return told
	}
	if told {
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
		touched: map[touchKey]struct{}{}, neighbours: map[gatewayKey]struct{}{}}
	f.dumps++
	for _, r := range f.ribs {
		r.epoch++
	}
}

// abortDump gives up the dump that is being read; another one has to follow.
func (f *feed) abortDump() {
	f.wantDump()
	if !f.dump.active {
		return
	}
	f.dump.active = false
	f.reopenDumper()
}

// reopenDumper gets rid of the rest of a dump.
func (f *feed) reopenDumper() {
	f.dumper.close()
	s, err := openDumper()
	if err != nil {
		f.fail(err)
		return
	}
	f.dumper = s
}

// continueDump does a part of the dump. All notifications must have been read.
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
		d.asked, d.spoiled, d.shaky = true, false, false
		d.seq++
		step := dumpSteps[d.step]
		header := make([]byte, step.header)
		header[0] = step.family
		if err := f.dumper.request(step.kind, d.seq, header); err != nil {
			f.once("request", "a routing table could not be asked for; trying again", "err", err)
			d.spoiled, d.ended = true, true
		}
	default:
		f.readDump()
	}
}

// readDump takes in the next part.
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
			// A kernel without the feature has nothing of the kind.
			if errno != unix.EOPNOTSUPP && errno != unix.EAFNOSUPPORT {
				f.once("dump", "a routing table could not be read; trying again", "err", errno)
				d.spoiled = true
			}
		default:
			f.handle(m, false)
		}
	})
	clear(d.touched)
	if err != nil && !errors.Is(err, errAgain) {
		f.once("dump", "a routing table could not be read; trying again", "err", err)
		d.spoiled, d.ended = true, true
		f.reopenDumper()
	}
}

// endStep judges what has been read, now that all notifications from before its end have been read too.
func (f *feed) endStep() {
	d := &f.dump
	step := dumpSteps[d.step]
	routes := step.kind == unix.RTM_GETROUTE
	if d.shaky {
		d.shakes++
		d.spoiled = d.spoiled || d.shakes < shakyTries
	}
	if d.spoiled && (routes || d.tries < smallTries) {
		// What one attempt has shown counts: had it gone since, a notification would have told.
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
		f.wantDump() // what is gone has not been told apart from what is not
	}
	f.nextStep()
}

func familyOf(step dumpStep) int {
	if step.family == unix.AF_INET6 {
		return 1
	}
	return 0
}

// continueSweep removes the routes that the dump has not shown, some at a time.
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
	d.asked, d.ended, d.tries, d.shakes, d.notBefore, d.sweeping = false, false, 0, 0, 0, 0
	d.last = netip.Addr{}
	if d.step < len(dumpSteps) {
		return
	}
	d.active = false
	d.touched, d.neighbours = nil, nil
	f.dumpTook = f.now() - d.started
	f.dumpEnded = f.now()
}

// sweepStep forgets what a dump of a short table has not shown.
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
		if step.family == unix.AF_INET6 { // the last of two
			f.sweepNeighbours()
		}
	case unix.RTM_GETNEXTHOP:
		for id, object := range f.nexthops {
			if object.dump != serial {
				delete(f.nexthops, id)
				f.condemn(func(one *descriptor) bool { return one.nexthop == id })
			}
		}
	}
}

// handleRoute takes in RTM_NEWROUTE and RTM_DELROUTE.
func (f *feed) handleRoute(m message, told bool) {
	rt := &f.parsed
	if !parseRoute(m.data, rt) || rt.cloned {
		return
	}
	i, rank := 0, rankNone
	if rt.is6 {
		i = 1
	}
	if rt.realm && !f.realms4 && !rt.is6 {
		f.realms4 = true // the kernel checks sources for their realm's sake
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
		if told {
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
		// IPv6 has no tos, but sources, which have the same effect: all routes of the prefix depend on it.
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
		sure = r.remove(rt.prefix, rec)
	} else {
		if told {
			f.touchRoute(rt.prefix)
		} else if f.isTouched(rt.prefix) && !r.has(rt.prefix, rec) {
			// It is gone, or has come: what has been told is newer than this, or older.
			r.unsure(rt.prefix)
			f.wantDump()
			return
		}
		rec.desc = f.descs.intern(f.keyOf(rt))
		sure = r.add(rt.prefix, rec, m.flags, told)
		f.descs.drop(rec.desc)
	}
	if !sure {
		f.wantDump()
	}
}

// spoil marks a dump of routes that a removal may have kept from showing a route that is there: that of IPv6
// goes on, after a change, behind as many routes as it had shown, and that of IPv4 does so among routes of one
// address. Which route is left out depends on where the dump was. So such a dump is repeated; a route is in one of
// several for all practical purposes, and routing daemons need not be quiet for a dump to end.
func (f *feed) spoil(i int, removed bool, addr netip.Addr) {
	d := &f.dump
	step := dumpSteps[d.step]
	if removed && d.asked && d.sweeping == 0 && step.kind == unix.RTM_GETROUTE && familyOf(step) == i && (i == 1 || addr == d.last) {
		d.shaky = true
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

// handle takes in one message; told says that it is news and not part of a dump.
func (f *feed) handle(m message, told bool) {
	switch m.kind {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		f.handleRoute(m, told)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		f.handleNeighbour(m, told)
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		f.handleLink(m, told)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		f.handleAddress(m, told)
	case unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		f.handleNexthop(m, told)
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		f.handleRule(m)
	case unix.RTM_NEWNETCONF, unix.RTM_DELNETCONF:
		f.handleNetconf(m)
	}
}

// overrun follows the loss of notifications.
func (f *feed) overrun() {
	f.overruns++
	f.abortDump()
	for i := range f.trustFrom {
		f.trustFrom[i] = f.dump.serial + 1
	}
	for i := range f.rulesDirty {
		f.rulesOwn[i], f.rulesDirty[i] = false, true
	}
	f.lastOverrun = f.now()
	// Begin at once: the mirror is out of use until it is through.
	f.dumpAtOnce = true
	f.withdraw()
}
