// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"testing"
	"time"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/scrypto"
	"github.com/scionproto/scion/pkg/slayers"
	"github.com/scionproto/scion/pkg/slayers/path"
	"github.com/scionproto/scion/pkg/slayers/path/epic"
	"github.com/scionproto/scion/pkg/slayers/path/onehop"
	"github.com/scionproto/scion/pkg/slayers/path/scion"

	"github.com/gopacket/gopacket"
)

var secrets = [2][16]byte{{1}, {2}}

// newRing returns a ring of two keys that overlap between the hours 4 and 10, and its clock.
func newRing() (*Ring, *time.Time) {
	now := zero
	keys := []Key{{Secret: secrets[0], Span: span(0, 10)}, {Secret: secrets[1], Span: span(4, 20)}}
	return New(keys, func() time.Time { return now }), &now
}

func macUnder(t *testing.T, secret [16]byte, info path.InfoField, hop path.HopField) [path.MacLen]byte {
	t.Helper()
	h, err := scrypto.InitMac(secret[:])
	if err != nil {
		t.Fatal(err)
	}
	return path.MAC(h, info, hop, nil)
}

// packet returns a SCION packet with a path.
func packet(t *testing.T, typ path.Type, p path.Path) []byte {
	t.Helper()
	s := slayers.SCION{NextHdr: slayers.L4UDP, PathType: typ, Path: p, SrcIA: addr.MustParseIA("1-ff00:0:110"), DstIA: addr.MustParseIA("1-ff00:0:111"),
		DstAddrType: slayers.T4Ip, SrcAddrType: slayers.T16Ip, RawDstAddr: make([]byte, 4), RawSrcAddr: make([]byte, 16)}
	b := gopacket.NewSerializeBuffer()
	if err := s.SerializeTo(b, gopacket.SerializeOptions{FixLengths: true}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestNote has packets of each path type with a hop field under the key that is not the current one.
func TestNote(t *testing.T) {
	info := path.InfoField{ConsDir: true, SegID: 7, Timestamp: 1000}
	hop := path.HopField{ExpTime: 63, ConsIngress: 1, ConsEgress: 2}
	hop.Mac = macUnder(t, secrets[0], info, hop)
	against := path.InfoField{SegID: info.SegID ^ (uint16(hop.Mac[0])<<8 | uint16(hop.Mac[1])), Timestamp: info.Timestamp}
	other := path.HopField{ExpTime: 9}
	segments := func(current uint8, infos []path.InfoField, hops ...path.HopField) scion.Decoded {
		d := scion.Decoded{Base: scion.Base{NumINF: len(infos), NumHops: len(hops)}, InfoFields: infos, HopFields: hops}
		for i := range infos {
			d.PathMeta.SegLen[i] = uint8(len(hops) / len(infos))
		}
		d.PathMeta.CurrHF, d.PathMeta.CurrINF = current, current/d.PathMeta.SegLen[0]
		return d
	}
	first := segments(0, []path.InfoField{info}, hop, other)
	behind := segments(1, []path.InfoField{{SegID: 1}, info}, other, other, hop, other)
	turned := segments(1, []path.InfoField{against}, other, hop)
	epicPath := epic.Path{PHVF: make([]byte, 4), LHVF: make([]byte, 4)}
	raw, err := first.ToRaw()
	if err != nil {
		t.Fatal(err)
	}
	epicPath.ScionPath = raw
	for name, p := range map[string][]byte{
		"SCION":                        packet(t, scion.PathType, &first),
		"first of the next segment":    packet(t, scion.PathType, &behind),
		"against the construction":     packet(t, scion.PathType, &turned),
		"EPIC":                         packet(t, epic.PathType, &epicPath),
		"one-hop":                      packet(t, onehop.PathType, &onehop.Path{Info: info, FirstHop: hop}),
		"one-hop with bytes behind it": append(packet(t, onehop.PathType, &onehop.Path{Info: info, FirstHop: hop}), 1, 2, 3),
	} {
		ring, now := newRing()
		*now = zero.Add(5 * time.Hour)
		mac := ring.Hash()
		if got := path.MAC(mac, info, hop, nil); got == hop.Mac {
			t.Fatalf("%s: the old key is the current one", name)
		}
		ring.Reader().Note(p)
		if got := path.MAC(mac, info, hop, nil); got != hop.Mac {
			t.Errorf("%s: not noted", name)
		}
		if got, want := path.MAC(mac, info, other, nil), macUnder(t, secrets[1], info, other); got != want {
			t.Errorf("%s: another hop field has MAC %x, want %x of the current key", name, got, want)
		}
		*now = zero.Add(10 * time.Hour)
		if got := path.MAC(mac, info, hop, nil); got == hop.Mac {
			t.Errorf("%s: valid though the old key has ended", name)
		}
		for n := range p { // a cut packet is left to the reference
			ring.Reader().Note(p[:n])
		}
	}
}

// TestRingAlone has times at which one key is valid, or none.
func TestRingAlone(t *testing.T) {
	ring, now := newRing()
	info, hop := path.InfoField{SegID: 7}, path.HopField{ExpTime: 63}
	mac := ring.Hash()
	under := [2][path.MacLen]byte{macUnder(t, secrets[0], info, hop), macUnder(t, secrets[1], info, hop)}
	for _, c := range []struct {
		hour int
		key  int // -1 for none
	}{{0, 0}, {3, 0}, {4, 1}, {10, 1}, {19, 1}, {20, -1}} {
		*now = zero.Add(time.Duration(c.hour) * time.Hour)
		got := path.MAC(mac, info, hop, nil)
		if c.key >= 0 && got != under[c.key] || c.key < 0 && (got == under[0] || got == under[1]) {
			t.Errorf("hour %d: MAC %x, want key %d", c.hour, got, c.key)
		}
	}
	other, then := newRing()
	*then = zero.Add(20 * time.Hour)
	if path.MAC(mac, info, hop, nil) == path.MAC(other.Hash(), info, hop, nil) {
		t.Error("without a valid key two rings have the same MAC")
	}
}

// TestNotedForgotten notes more hop fields than there is room for: the last mostNoted are known.
func TestNotedForgotten(t *testing.T) {
	ring, now := newRing()
	*now = zero.Add(5 * time.Hour)
	number := func(i int) (b block) {
		b[0], b[1], b[2] = byte(i), byte(i>>8), byte(i>>16)
		return b
	}
	const all = 3 * mostNoted
	for i := range all {
		ring.note([]hopKey{{number(i), 0}}, false)
	}
	for i := all - mostNoted; i < all; i++ {
		b := number(i)
		if ring.pick(b[:]) != 0 {
			t.Fatalf("hop field %d of %d is forgotten", i, all)
		}
	}
	if b := number(0); ring.pick(b[:]) != 1 || len(ring.noted)+len(ring.older) > 2*mostNoted {
		t.Errorf("the first is still known, %d in all", len(ring.noted)+len(ring.older))
	}
}

// TestSameHopField has two packets whose hop fields differ in key and MAC alone. The second waits until the first is verified, but not
// for ever.
func TestSameHopField(t *testing.T) {
	ring, now := newRing()
	*now = zero.Add(5 * time.Hour)
	info, hop := path.InfoField{ConsDir: true, SegID: 7}, path.HopField{ExpTime: 63}
	var packets [2][]byte
	var valid [2][path.MacLen]byte
	for i := range packets {
		valid[i] = macUnder(t, secrets[i], info, hop)
		h := hop
		h.Mac = valid[i]
		packets[i] = packet(t, onehop.PathType, &onehop.Path{Info: info, FirstHop: h})
	}
	mac, reader := ring.Hash(), ring.Reader()
	for i := range 10 {
		for range 2 {
			if !reader.Try(packets[i%2]) {
				t.Fatalf("round %d: a packet waits for others under the same key, or for verified ones", i)
			}
		}
		if reader.Try(packets[1-i%2]) {
			t.Fatalf("round %d: a packet does not wait", i)
		}
		for range 2 {
			if got := path.MAC(mac, info, hop, nil); got != valid[i%2] {
				t.Fatalf("round %d: MAC %x, want %x", i, got, valid[i%2])
			}
		}
	}
	reader.Note(packets[0])
	begin := time.Now()
	reader.Note(packets[1]) // the first one is never verified
	if waited := time.Since(begin); waited < longestWait/2 {
		t.Errorf("waited %s", waited)
	}
	if got := path.MAC(mac, info, hop, nil); got != valid[1] {
		t.Errorf("MAC %x, want %x of the last packet", got, valid[1])
	}
	ring.second, ring.waited = time.Now().Add(time.Hour), mostWaiting // no more waiting in this second
	reader.Note(packets[0])
	reader.Note(packets[1])
	if got := path.MAC(mac, info, hop, nil); got != valid[1] {
		t.Errorf("MAC %x, want %x of the last packet", got, valid[1])
	}
}
