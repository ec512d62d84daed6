// SPDX-License-Identifier: Apache-2.0

package route

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"culvert/internal/route/routeplane"
)

// staleBed is a feed that has read the tables of a namespace and reads nothing more by itself. The kernel has no route for its
// prefix.
type staleBed struct {
	t      *testing.T
	f      *feed
	plane  *fakePlane
	index  int
	prefix netip.Prefix
	family int
	own    netip.Addr // a gateway by cv0
}

func newStaleBed(t *testing.T, is6 bool) *staleBed {
	t.Helper()
	f, plane, index := newStill(t)
	for f.dumps == 0 || f.dump.active || f.dumpWanted {
		f.turn()
		check(t, f.err)
	}
	s := &staleBed{t: t, f: f, plane: plane, index: index, prefix: netip.MustParsePrefix("20.1.2.0/24"), own: netip.MustParseAddr("10.9.0.2")}
	if is6 {
		s.family, s.prefix, s.own = 1, netip.MustParsePrefix("2001:db8:1::/48"), netip.MustParseAddr("fd09::2")
	}
	return s
}

// nexthop notifies of a next hop object with the number 402.
func (s *staleBed) nexthop(kind uint16) {
	family := byte(unix.AF_INET)
	if s.family == 1 {
		family = unix.AF_INET6
	}
	b := []byte{family, 0, unix.RTPROT_STATIC, 0, 0, 0, 0, 0}
	for _, attr := range []struct {
		kind  uint16
		value []byte
	}{
		{unix.NHA_ID, binary.NativeEndian.AppendUint32(nil, 402)},
		{unix.NHA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(s.index))},
		{unix.NHA_GATEWAY, s.own.AsSlice()},
	} {
		b = binary.NativeEndian.AppendUint16(b, uint16(sizeofAttr+len(attr.value)))
		b = binary.NativeEndian.AppendUint16(b, attr.kind)
		b = append(b, attr.value...)
	}
	s.f.handle(message{kind: kind, data: b}, true)
}

// byObject is the payload of a message about the route of the prefix by the next hop object.
func (s *staleBed) byObject() []byte {
	b := s.byGateway()
	b = binary.NativeEndian.AppendUint16(b, sizeofAttr+4)
	b = binary.NativeEndian.AppendUint16(b, rtaNexthopID)
	return binary.NativeEndian.AppendUint32(b, 402)
}

// byGateway is the same for the route by the gateway.
func (s *staleBed) byGateway() []byte { return routeMessageData(s.prefix, s.own, s.index) }

func (s *staleBed) notify(kind uint16, data []byte) {
	s.f.handle(message{kind: kind, data: data}, true)
}

// nextPart begins another part of the dump.
func (s *staleBed) nextPart() { clear(s.f.dump.touched) }

// show applies an entry of the dump.
func (s *staleBed) show(data []byte) {
	s.f.handle(message{kind: unix.RTM_NEWROUTE, flags: unix.NLM_F_MULTI, data: data}, false)
}

// nextDump begins a dump, which shows the given routes of the prefix, and ends it.
func (s *staleBed) nextDump(entries ...[]byte) {
	s.f.startDump()
	for _, data := range entries {
		s.show(data)
	}
	s.endDump()
}

// endDump removes what the dump has not shown.
func (s *staleBed) endDump() {
	r := s.f.ribs[s.family]
	for first := range 256 {
		r.sweep(byte(first))
	}
	s.f.trusted[s.family] = s.f.dump.serial
	s.f.dump.active = false
}

func (s *staleBed) want(when string, action routeplane.Action) {
	s.t.Helper()
	if got := s.plane.ask(s.prefix.Addr()); got.Action != action {
		s.t.Errorf("%s: the mirror has action %d, want %d: %+v", when, got.Action, action, got)
	}
}

func (s *staleBed) wantDump(when string, want bool) {
	s.t.Helper()
	if s.f.dumpWanted != want {
		s.t.Errorf("%s: another dump is wanted: %v, want %v", when, s.f.dumpWanted, want)
	}
}

func staleTest(t *testing.T, fn func(*staleBed)) {
	for name, is6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) { fn(newStaleBed(t, is6)) })
	}
}

// TestStaleRouteOfObject has a part of a dump that the kernel put together before it removed a next hop object, and with it the
// route in the part. The object then comes back, which the route does not.
func TestStaleRouteOfObject(t *testing.T) {
	staleTest(t, func(s *staleBed) {
		s.nexthop(unix.RTM_NEWNEXTHOP)
		s.notify(unix.RTM_NEWROUTE, s.byObject())
		s.want("the route", routeplane.Forward)
		s.f.startDump()
		s.nexthop(unix.RTM_DELNEXTHOP)
		s.want("without the object", routeplane.Ask)
		s.show(s.byObject())
		s.nexthop(unix.RTM_NEWNEXTHOP)
		s.want("after the stale part", routeplane.Ask)
		s.wantDump("after the stale part", true)
		s.endDump()
		s.want("at the end of the dump", routeplane.Ask)
		s.nextDump()
		s.want("after a dump without the route", routeplane.None)
		s.wantDump("at the end", false)
	})
}

// TestStaleRouteOfObjectUnknown is the same during a dump that shows the route for the first time.
func TestStaleRouteOfObjectUnknown(t *testing.T) {
	staleTest(t, func(s *staleBed) {
		s.nexthop(unix.RTM_NEWNEXTHOP)
		s.f.trustFrom[s.family] = s.f.dump.serial + 1
		s.f.startDump()
		s.nexthop(unix.RTM_DELNEXTHOP)
		s.show(s.byObject())
		s.nexthop(unix.RTM_NEWNEXTHOP)
		s.want("after the stale part", routeplane.Ask)
		s.wantDump("after the stale part", true)
		s.endDump()
		s.want("at the end of the dump", routeplane.Ask)
		s.nextDump()
		s.want("after a dump without the route", routeplane.None)
	})
}

// TestRouteOfObjectAgain has both the object and the route come back. Then the notification is newer than the part, whatever
// the part shows.
func TestRouteOfObjectAgain(t *testing.T) {
	staleTest(t, func(s *staleBed) {
		s.nexthop(unix.RTM_NEWNEXTHOP)
		s.notify(unix.RTM_NEWROUTE, s.byObject())
		s.f.startDump()
		s.nexthop(unix.RTM_DELNEXTHOP)
		s.nexthop(unix.RTM_NEWNEXTHOP)
		s.notify(unix.RTM_NEWROUTE, s.byObject())
		s.want("the new route", routeplane.Forward)
		s.nextPart()
		s.show(s.byObject())
		s.want("after the part", routeplane.Forward)
		s.nextDump(s.byObject())
		s.want("after another dump", routeplane.Forward)
		s.wantDump("at the end", false)
	})
}

// TestStaleRoute has a part of a dump that the kernel put together after it sent the notification of a removal, and before it
// carried the removal out.
func TestStaleRoute(t *testing.T) {
	for name, trusted := range map[string]bool{"mirror in use": true, "mirror not in use": false} {
		t.Run(name, func(t *testing.T) {
			s := newStaleBed(t, false)
			if !trusted {
				s.f.trustFrom[s.family] = s.f.dump.serial + 1
			}
			s.notify(unix.RTM_NEWROUTE, s.byGateway())
			s.f.startDump()
			s.notify(unix.RTM_DELROUTE, s.byGateway())
			s.want("after the removal", routeplane.None)
			s.nextPart()
			s.show(s.byGateway())
			s.want("after the stale part", routeplane.Ask)
			s.wantDump("after the stale part", true)
			s.endDump()
			s.want("at the end of the dump", routeplane.Ask)
			s.nextDump()
			s.want("after a dump without the route", routeplane.None)
			s.wantDump("at the end", false)
		})
	}
}

// TestStaleRouteOfUnsurePrefix is the same for a prefix whose routes the dump has to tell.
func TestStaleRouteOfUnsurePrefix(t *testing.T) {
	s := newStaleBed(t, false)
	s.notify(unix.RTM_NEWROUTE, s.byGateway())
	s.f.ribs[0].unsure(s.prefix)
	s.f.startDump()
	s.notify(unix.RTM_DELROUTE, s.byGateway())
	s.nextPart()
	s.show(s.byGateway())
	s.wantDump("after the stale part", true)
	s.endDump()
	s.want("at the end of the dump", routeplane.Ask)
	s.nextDump()
	s.want("after a dump without the route", routeplane.None)
}

// TestUnsurePrefix has a dump tell the routes of a prefix that were not known for certain.
func TestUnsurePrefix(t *testing.T) {
	staleTest(t, func(s *staleBed) {
		s.f.ribs[s.family].unsure(s.prefix)
		s.want("before the dump", routeplane.Ask)
		s.nextDump(s.byGateway())
		s.want("after the dump", routeplane.Forward)
		s.wantDump("after the dump", false)
	})
}

// TestUnknownRoute has dumps that show a route of which there was no notification. The second one decides.
func TestUnknownRoute(t *testing.T) {
	staleTest(t, func(s *staleBed) {
		s.nextDump(s.byGateway())
		s.want("after one dump", routeplane.Ask)
		s.wantDump("after one dump", true)
		s.nextDump(s.byGateway())
		s.want("after two dumps", routeplane.Forward)
		s.wantDump("after two dumps", false)
	})
}

// TestStaleRouteOfDevice has a part of a dump that the kernel put together before a device went down, and with it the route in
// the part. No other route was by the device. The device then comes up again.
func TestStaleRouteOfDevice(t *testing.T) {
	s := newStaleBed(t, false)
	const index = 77
	up := s.f.devices[s.index]
	up.name = "cv77"
	down := up
	down.flags &^= unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_LOWER_UP
	s.f.setDevice(index, up)
	s.f.trustFrom[s.family] = s.f.dump.serial + 1
	s.f.startDump()
	s.f.setDevice(index, down)
	s.show(routeMessageData(s.prefix, s.own, index))
	s.f.setDevice(index, up)
	s.f.syncDevices()
	s.want("after the stale part", routeplane.Ask)
	s.wantDump("after the stale part", true)
	s.endDump()
	s.want("at the end of the dump", routeplane.Ask)
}
