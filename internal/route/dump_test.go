// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/route/routeplane"
)

// routeMessageData is the payload of a route message as the kernel sends it.
func routeMessageData(p netip.Prefix, gateway netip.Addr, dev int) []byte {
	family, addr := byte(unix.AF_INET), p.Addr().AsSlice()
	if p.Addr().Is6() {
		family = unix.AF_INET6
	}
	b := []byte{family, byte(p.Bits()), 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, 0, unix.RTN_UNICAST, 0, 0, 0, 0}
	attr := func(kind uint16, value []byte) {
		b = binary.NativeEndian.AppendUint16(b, uint16(sizeofAttr+len(value)))
		b = binary.NativeEndian.AppendUint16(b, kind)
		b = append(b, value...)
	}
	attr(unix.RTA_DST, addr)
	attr(unix.RTA_GATEWAY, gateway.AsSlice())
	attr(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(dev)))
	return b
}

// newStill makes a feed that reads nothing by itself.
func newStill(t *testing.T) (f *feed, plane *fakePlane, index int) {
	t.Helper()
	b := newBed(t, newFakePlane(256, 1024))
	f, err := newFeed(Options{Plane: b.plane})
	check(t, err)
	t.Cleanup(f.close)
	return f, b.plane, b.index("cv0")
}

// TestStaleDump applies an entry of a dump that is older than the notifications before it.
func TestStaleDump(t *testing.T) {
	for prefix, gateway := range map[string]string{"10.1.0.0/16": "10.9.0.2", "2001:db8:1::/48": "fd09::2"} {
		t.Run(prefix, func(t *testing.T) {
			f, plane, index := newStill(t)
			p := netip.MustParsePrefix(prefix)
			data := routeMessageData(p, netip.MustParseAddr(gateway), index)
			f.startDump()
			f.handle(message{kind: unix.RTM_NEWROUTE, data: data}, true)
			f.handle(message{kind: unix.RTM_DELROUTE, data: data}, true)
			if got := plane.ask(p.Addr()); got.Action != routeplane.None {
				t.Fatalf("a route that came and went leaves %+v", got)
			}
			f.handle(message{kind: unix.RTM_NEWROUTE, flags: unix.NLM_F_MULTI, data: data}, false)
			if got := plane.ask(p.Addr()); got.Action != routeplane.Ask || !f.dumpWanted {
				t.Errorf("an old part of a dump brings %+v", got)
			}
			// The next dump does not show it.
			f.startDump()
			for i, r := range f.ribs {
				for first := range 256 {
					r.sweep(byte(first))
				}
				if r.count != 0 {
					t.Errorf("%d routes of %s are left", r.count, familyNames[i])
				}
			}
			if got := plane.ask(p.Addr()); got.Action != routeplane.None {
				t.Errorf("afterwards there is %+v", got)
			}
			if f.numbers.used != 0 {
				t.Errorf("%d next hops are left", f.numbers.used)
			}
		})
	}
}

func TestFresh(t *testing.T) {
	f := &feed{}
	key, other := touchKey{kind: unix.RTM_NEWNEIGH, number: 1}, touchKey{kind: unix.RTM_NEWNEIGH, number: 2}
	if !f.fresh(key, true) || f.fresh(key, false) {
		t.Error("without a dump, notifications and only they are fresh")
	}
	f.dump.active, f.dump.touched = true, map[touchKey]struct{}{}
	if !f.fresh(key, true) || f.fresh(key, false) || !f.fresh(other, false) {
		t.Error("an entry of a dump counts as newer than a notification")
	}
	// The kernel put the next part of the dump together later.
	clear(f.dump.touched)
	if !f.fresh(key, false) {
		t.Error("an entry of a dump is not fresh although no notification came")
	}
}

// TestDoubtfulDump checks which removals make a dump of routes doubtful, and how often such a dump is repeated.
func TestDoubtfulDump(t *testing.T) {
	f, _, index := newStill(t)
	f.startDump()
	text4 := routeMessageData(netip.MustParsePrefix("10.1.0.0/16"), netip.MustParseAddr("10.9.0.2"), index)
	longer4 := routeMessageData(netip.MustParsePrefix("10.1.0.0/24"), netip.MustParseAddr("10.9.0.2"), index)
	other4 := routeMessageData(netip.MustParsePrefix("10.2.0.0/16"), netip.MustParseAddr("10.9.0.2"), index)
	text6 := routeMessageData(netip.MustParsePrefix("2001:db8:1::/48"), netip.MustParseAddr("fd09::2"), index)
	for i, step := range dumpSteps {
		if step.kind != unix.RTM_GETROUTE {
			continue
		}
		f.dump.step, f.dump.asked, f.dump.last = i, true, netip.Addr{}
		f.handle(message{kind: unix.RTM_NEWROUTE, data: text4}, false)
		for _, c := range []struct {
			name string
			data []byte
			want bool
		}{
			{"IPv4 at the place of the dump", longer4, step.family == unix.AF_INET},
			{"IPv4 elsewhere", other4, false},
			{"IPv6", text6, step.family == unix.AF_INET6},
		} {
			f.dump.doubtful = false
			f.handle(message{kind: unix.RTM_DELROUTE, data: c.data}, true)
			if f.dump.doubtful != c.want {
				t.Errorf("step %d, removal of %s: %v, want %v", i, c.name, f.dump.doubtful, c.want)
			}
		}
		f.dump.ended = true
		for try := 1; f.dump.sweeping == 0; try++ {
			f.dump.doubtful, f.dump.spoiled = true, false
			f.endStep()
			if begun := f.dump.sweeping > 0; begun != (try == doubtfulTries) {
				t.Fatalf("step %d: ended %v after %d tries", i, begun, try)
			}
		}
		f.dump.sweeping = 0
		f.dump.doubts, f.dump.tries = 0, 0
	}
}

// brokenPlane is a data plane that refuses a policy.
type brokenPlane struct{ *fakePlane }

var errBroken = errors.New("broken")

func (brokenPlane) SetPolicy(routeplane.Policy) error { return errBroken }

func TestBrokenPlane(t *testing.T) {
	b := newBed(t, newFakePlane(256, 1024))
	if err := Run(context.Background(), Options{Plane: brokenPlane{b.plane}}); !errors.Is(err, errBroken) {
		t.Errorf("Run returns %v", err)
	}
}

// TestOverrunsInARow has overruns while the tables are read again and right after that: they are one episode for the log.
func TestOverrunsInARow(t *testing.T) {
	f, _, _ := newStill(t)
	log := &lockedLog{}
	f.log = slog.New(slog.NewTextHandler(log, nil))
	current := func() bool { return f.inUse(0) && f.inUse(1) }
	turnUntil := func(done func() bool) {
		t.Helper()
		for end := time.Now().Add(patience); !done(); {
			if time.Now().After(end) {
				t.Fatalf("the mirror is not current: %v", f.reasons)
			}
			f.turn()
			check(t, f.err)
		}
	}
	turnUntil(current)
	for range 2 {
		f.overrun()
		turnUntil(func() bool { return f.dump.active })
		f.overrun()
		turnUntil(current)
		f.overrun()
		turnUntil(func() bool { return !f.behind })
	}
	for text, want := range map[string]int{"level=WARN msg=\"notifications of the kernel were lost": 2, "level=INFO msg=\"the tables of the kernel have been read again": 2} {
		if got := strings.Count(log.String(), text); got != want {
			t.Errorf("%s: %d times, want %d:\n%s", text, got, want, log)
		}
	}
}
