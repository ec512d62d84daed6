// SPDX-License-Identifier: Apache-2.0

package scionplane_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"culvert/internal/scion/scionpkt"
	"culvert/internal/scion/scionplane"
	"culvert/internal/scion/scionplane/scionbed"
	"culvert/internal/testbed"
)

// bfdFrame returns a frame with a BFD packet over a link, with the given path type and fields of the BFD header. A TTL of 0
// leaves the default.
func bfdFrame(t *testing.T, in *net.Interface, l scionplane.Link, path byte, b bfdFields) []byte {
	t.Helper()
	frame := scionbed.SizedTransitFrame(t, in, scionbed.Key, 64, func(s *scionpkt.Spec) { s.Outer.Src, s.Outer.Dst = l.Remote, l.Local })
	at, ok := scionpkt.Locate(frame)
	if !ok {
		t.Fatal("no SCION packet in the frame")
	}
	frame[at.SCION+4], frame[at.SCION+8] = 203, path
	bfd := frame[at.SCION+4*int(frame[at.SCION+5]):]
	bfd[0], bfd[1], bfd[2], bfd[3] = 1<<5, b.state<<6, 3, 24
	binary.BigEndian.PutUint32(bfd[4:], b.mine)
	binary.BigEndian.PutUint32(bfd[8:], b.yours)
	if b.ttl != 0 {
		frame[scionpkt.EthernetLen+map[bool]int{false: 8, true: 7}[at.IPv6]] = b.ttl
	}
	scionpkt.FixOuter(frame)
	return frame
}

type bfdFields struct {
	state       byte
	mine, yours uint32
	ttl         byte
}

// bfdConfigs returns configurations by the IP version of link 1.
func bfdConfigs() map[string]scionplane.Config {
	v4, v6 := scionbed.Config(1), scionbed.Config(1)
	v6.Links[1].Local, v6.Links[1].Remote = netip.MustParseAddrPort("[fd00::1]:50000"), netip.MustParseAddrPort("[fd00::2]:50000")
	return map[string]scionplane.Config{"IPv4": v4, "IPv6": v6}
}

// wantBFD puts a frame through the program and checks that it is counted under a reason.
func wantBFD(t *testing.T, inst scionplane.Plane, in *net.Interface, what string, frame []byte, want string) {
	t.Helper()
	_, before, _ := testbed.Counted(t, inst, in.Name)
	testbed.Feed(t, inst, frame, in.Name, 1)
	if _, after, _ := testbed.Counted(t, inst, in.Name); after[want] != before[want]+1 {
		t.Errorf("%s: %v, then %v, want one more %s", what, before, after, want)
	}
}

// TestBFDDiscriminators checks that BFD packets which cannot be of the link's session are dropped and use up none of its
// limit (RFC 5880, 6.8.6).
func TestBFDDiscriminators(t *testing.T) {
	testbed.InNamespace(t)
	in := testbed.AddVeth(t, "a0", "a1")
	const own, far, other = 0x01020304, 0xf0e0d0c0, 0x04030201
	const adminDown, down, initial, up = 0, 1, 2, 3
	const punt, drop = "punt scion-bfd", "drop scion-bfd"
	for version, c := range bfdConfigs() {
		inst := scionbed.Attach(t, c, "a0")
		for _, session := range []struct {
			what string
			set  scionplane.BFDSession
			want map[bfdFields]string
		}{
			{"no session", scionplane.BFDSession{}, map[bfdFields]string{
				{adminDown, far, other, 0}: punt, {up, far, 0, 0}: punt,
			}},
			{"session down", scionplane.BFDSession{LocalDisc: own}, map[bfdFields]string{
				{adminDown, far, own, 0}: punt, {down, far, own, 0}: punt, {initial, far, own, 0}: punt, {up, far, own, 0}: punt,
				{adminDown, far, 0, 0}: punt, {down, far, 0, 0}: punt, {initial, far, 0, 0}: drop, {up, far, 0, 0}: drop,
				{adminDown, far, other, 0}: drop, {down, far, other, 0}: drop, {initial, far, other, 0}: drop, {up, far, other, 0}: drop,
			}},
			{"session up", scionplane.BFDSession{LocalDisc: own, RemoteDisc: far}, map[bfdFields]string{
				{adminDown, far, own, 0}: punt, {down, other, own, 0}: punt, {up, other, own, 0}: punt,
				{adminDown, far, 0, 0}: punt, {down, far, 0, 0}: punt, {initial, far, 0, 0}: drop, {up, far, 0, 0}: drop,
				{adminDown, other, 0, 0}: drop, {down, other, 0, 0}: drop, {down, 0, 0, 0}: drop,
				{adminDown, far, other, 0}: drop, {up, far, other, 0}: drop,
			}},
		} {
			session.set.Refused = 3
			if err := inst.SetLinkBFD(1, session.set); err != nil {
				t.Fatal(err)
			}
			for fields, want := range session.want {
				for _, path := range []byte{0, 2} {
					wantBFD(t, inst, in, version+" "+session.what, bfdFrame(t, in, c.Links[1], path, fields), want)
				}
			}
		}
		if states, err := inst.LinkStates(); err != nil || states[1].BFD != (scionplane.BFDSession{LocalDisc: own, RemoteDisc: far, Refused: 3}) {
			t.Errorf("link states %+v, %v", states, err)
		}
		// A packet that ends within the BFD header has no discriminators to compare, and is passed up.
		frame := bfdFrame(t, in, c.Links[1], 2, bfdFields{adminDown, far, other, 0})
		at, _ := scionpkt.Locate(frame)
		frame = frame[:at.SCION+4*int(frame[at.SCION+5])+4]
		scionpkt.FixOuter(frame)
		wantBFD(t, inst, in, version+" cut off", frame, punt)
		// The drops are in the link's counters too, as the reference counts them.
		links, err := inst.LinkCounters()
		if err != nil {
			t.Fatal(err)
		}
		var dropped uint64
		for class := range links[1].Dropped {
			dropped += links[1].Dropped[class]
		}
		if _, byReason, _ := testbed.Counted(t, inst, "a0"); dropped == 0 || dropped != byReason[drop] {
			t.Errorf("%s: link 1 has dropped %d, the interface %d", version, dropped, byReason[drop])
		}
		if err := inst.DetachAll(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBFDMinTTL checks that BFD packets with a TTL below bfd_min_ttl are dropped.
func TestBFDMinTTL(t *testing.T) {
	testbed.InNamespace(t)
	in := testbed.AddVeth(t, "a0", "a1")
	const own = 7
	for version, c := range bfdConfigs() {
		for _, o := range []struct {
			name        string
			minTTL, ttl byte
			want        string
		}{
			{"no minimum", 0, 1, "punt scion-bfd"},
			{"the minimum", 64, 64, "punt scion-bfd"},
			{"above the minimum", 64, 255, "punt scion-bfd"},
			{"below the minimum", 64, 63, "drop scion-bfd"},
		} {
			c.BFDMinTTL = o.minTTL
			inst := scionbed.Attach(t, c, "a0")
			if err := inst.SetLinkBFD(1, scionplane.BFDSession{LocalDisc: own}); err != nil {
				t.Fatal(err)
			}
			wantBFD(t, inst, in, version+", "+o.name, bfdFrame(t, in, c.Links[1], 2, bfdFields{3, 9, own, o.ttl}), o.want)
			if err := inst.DetachAll(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
