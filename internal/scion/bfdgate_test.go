// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/segment/iface"
	"github.com/scionproto/scion/pkg/slayers"
	"github.com/scionproto/scion/pkg/slayers/path"
	"github.com/scionproto/scion/pkg/slayers/path/empty"
	"github.com/scionproto/scion/pkg/slayers/path/onehop"
	"github.com/scionproto/scion/private/topology"
	"github.com/scionproto/scion/private/underlay/conn"
	scionrouter "github.com/scionproto/scion/router"
	"github.com/scionproto/scion/router/bfd"
	"github.com/scionproto/scion/router/control"

	"culvert/internal/scion/scionplane"
	"culvert/internal/stats"
)

// bfdPacket returns a BFD packet as the reference sends it behind the given extension headers: with a one-hop path over an
// external link, without a path to a sibling.
func bfdPacket(t *testing.T, oneHop bool, b layers.BFD, headers ...slayers.L4ProtocolType) []byte {
	t.Helper()
	b.Version, b.DetectMultiplier = 1, 3
	h := &slayers.SCION{NextHdr: slayers.L4BFD, PathType: empty.PathType, Path: empty.Path{},
		SrcIA: addr.MustParseIA("1-ff00:0:2"), DstIA: addr.MustParseIA("1-ff00:0:1")}
	if oneHop {
		h.PathType, h.Path = onehop.PathType, &onehop.Path{
			Info: path.InfoField{ConsDir: true, Timestamp: 7}, FirstHop: path.HopField{ConsEgress: 3, ExpTime: 63}}
	}
	check(t, h.SetSrcAddr(addr.MustParseHost("192.0.2.2")))
	check(t, h.SetDstAddr(addr.MustParseHost("192.0.2.1")))
	stack := []gopacket.SerializableLayer{h}
	next := &h.NextHdr
	for _, class := range headers {
		*next = class
		if class == slayers.HopByHopClass {
			e := &slayers.HopByHopExtn{}
			e.NextHdr, next = slayers.L4BFD, &e.NextHdr
			stack = append(stack, e)
		} else {
			e := &slayers.EndToEndExtn{}
			e.NextHdr, next = slayers.L4BFD, &e.NextHdr
			stack = append(stack, e)
		}
	}
	buf := gopacket.NewSerializeBuffer()
	check(t, gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, append(stack, &b)...))
	return slices.Clone(buf.Bytes())
}

const (
	ownDisc, farDisc, otherDisc = 0x01020304, 0xf1f2f3f4, 0x55555555
	adminDown                   = layers.BFDStateAdminDown
	down                        = layers.BFDStateDown
	initial                     = layers.BFDStateInit
	sessionUp                   = layers.BFDStateUp
)

// testBFDGate returns the gate of a session that is up as long as *up is set.
func testBFDGate(up *bool) *bfdGate {
	g := &bfdGate{link: "1", localDisc: ownDisc, up: func() bool { return *up }}
	g.remoteDisc.Store(farDisc)
	return g
}

// TestBFDGate checks what gets to a session, and as what (RFC 5880, 6.8.6).
func TestBFDGate(t *testing.T) {
	type packet struct {
		state       layers.BFDState
		mine, yours layers.BFDDiscriminator
	}
	for _, c := range []struct {
		name   string
		up     bool // the session
		in     packet
		want   bfdCause
		become layers.BFDState // what the session gets
	}{
		{"AdminDown for another session", true, packet{adminDown, farDisc, otherDisc}, bfdCauseDiscriminator, 0},
		{"AdminDown", true, packet{adminDown, farDisc, ownDisc}, bfdAccepted, down},
		{"AdminDown, no discriminator", true, packet{adminDown, farDisc, 0}, bfdAccepted, down},
		{"AdminDown from another far end", true, packet{adminDown, otherDisc, 0}, bfdCauseDiscriminator, 0},
		{"Down", true, packet{down, farDisc, ownDisc}, bfdAccepted, down},
		{"Down for another session", true, packet{down, farDisc, otherDisc}, bfdCauseDiscriminator, 0},
		{"Down, no discriminator", true, packet{down, farDisc, 0}, bfdAccepted, down},
		{"Down from another far end", true, packet{down, otherDisc, 0}, bfdCauseDiscriminator, 0},
		{"Init, no discriminator", true, packet{initial, farDisc, 0}, bfdCauseDiscriminator, 0},
		{"Up, no discriminator", true, packet{sessionUp, farDisc, 0}, bfdCauseDiscriminator, 0},
		{"Up for another session", true, packet{sessionUp, farDisc, otherDisc}, bfdCauseDiscriminator, 0},
		{"Up", true, packet{sessionUp, farDisc, ownDisc}, bfdAccepted, sessionUp},
		{"Up, the far end has a new discriminator", true, packet{sessionUp, otherDisc, ownDisc}, bfdAccepted, sessionUp},
		{"Up, discriminator 0", true, packet{sessionUp, 0, ownDisc}, bfdCauseMalformed, 0},
		{"AdminDown for another session", false, packet{adminDown, farDisc, otherDisc}, bfdCauseDiscriminator, 0},
		{"AdminDown", false, packet{adminDown, farDisc, ownDisc}, bfdCauseAdminDown, 0},
		{"AdminDown from another far end", false, packet{adminDown, otherDisc, 0}, bfdCauseAdminDown, 0},
		{"Down from another far end", false, packet{down, otherDisc, 0}, bfdAccepted, down},
		{"Down for another session", false, packet{down, farDisc, otherDisc}, bfdCauseDiscriminator, 0},
		{"Init", false, packet{initial, farDisc, ownDisc}, bfdAccepted, initial},
		{"Init, no discriminator", false, packet{initial, farDisc, 0}, bfdCauseDiscriminator, 0},
		{"Init for another session", false, packet{initial, farDisc, otherDisc}, bfdCauseDiscriminator, 0},
		{"Up, no discriminator", false, packet{sessionUp, farDisc, 0}, bfdCauseDiscriminator, 0},
		{"Down, both discriminators 0", false, packet{down, 0, 0}, bfdCauseMalformed, 0},
	} {
		for _, shape := range []struct {
			oneHop  bool
			headers []slayers.L4ProtocolType
		}{
			{false, nil}, {true, nil}, {true, []slayers.L4ProtocolType{slayers.HopByHopClass}},
			{false, []slayers.L4ProtocolType{slayers.HopByHopClass, slayers.End2EndClass}},
		} {
			g := testBFDGate(&c.up)
			raw := bfdPacket(t, shape.oneHop, layers.BFD{State: c.in.state, MyDiscriminator: c.in.mine,
				YourDiscriminator: c.in.yours, DesiredMinTxInterval: 100000, RequiredMinRxInterval: 100000}, shape.headers...)
			before := slices.Clone(raw)
			g.receive(raw)
			got := bfdAccepted
			for cause := range bfdCauses {
				if g.dropped[cause].Load() > 0 {
					got = cause
				}
			}
			if got != c.want {
				t.Errorf("%s, up %v, shape %+v: cause %q, want %q", c.name, c.up, shape, bfdCauseNames[got], bfdCauseNames[c.want])
				continue
			}
			if c.want != bfdAccepted {
				if before[4] = 0; !bytes.Equal(raw, before) || g.remoteDisc.Load() != farDisc {
					t.Errorf("%s, up %v: more than the next header has changed", c.name, c.up)
				}
				continue
			}
			at, _, _ := bfdAt(before)
			if before[at+1] = before[at+1]&0x3f | byte(c.become)<<6; !bytes.Equal(raw, before) || g.remoteDisc.Load() != uint32(c.in.mine) {
				t.Errorf("%s, up %v: the session gets\n%x, want\n%x", c.name, c.up, raw, before)
			}
		}
	}
}

// TestBFDGateMalformed checks what RFC 5880, 6.8.6 discards whatever the discriminators say.
func TestBFDGateMalformed(t *testing.T) {
	good := bfdPacket(t, true, layers.BFD{State: sessionUp, MyDiscriminator: farDisc, YourDiscriminator: ownDisc})
	at, _, _ := bfdAt(good)
	for _, c := range []struct {
		name     string
		edit     func(b []byte) []byte
		accepted bool
	}{
		{"version 0", func(b []byte) []byte { b[0] &= 0x1f; return b }, false},
		{"version 2", func(b []byte) []byte { b[0] = 2 << 5; return b }, false},
		{"length 23", func(b []byte) []byte { b[3] = 23; return b }, false},
		{"length above the payload's", func(b []byte) []byte { b[3] = 25; return b }, false},
		{"cut off", func(b []byte) []byte { return b[:23] }, false},
		{"no payload", func(b []byte) []byte { return b[:0] }, false},
		{"multiplier 0", func(b []byte) []byte { b[2] = 0; return b }, false},
		{"multipoint", func(b []byte) []byte { b[1] |= 1; return b }, false},
		{"authentication", func(b []byte) []byte { b[1] |= 4; return b }, false},
		{"discriminator 0", func(b []byte) []byte { copy(b[4:8], make([]byte, 4)); return b }, false},
		{"payload longer than BFD", func(b []byte) []byte { return append(b, 0) }, true},
		{"unchanged", func(b []byte) []byte { return b }, true},
		{"another diagnostic", func(b []byte) []byte { b[0] |= 7; return b }, true},
		{"control plane independent", func(b []byte) []byte { b[1] |= 8; return b }, true},
	} {
		up := true
		g := testBFDGate(&up)
		b := slices.Clone(good)
		raw := append(b[:at:at], c.edit(b[at:])...)
		g.receive(raw)
		if got := g.dropped[bfdCauseMalformed].Load() == 0 && raw[4] != 0; got != c.accepted {
			t.Errorf("%s: accepted %v, want %v", c.name, got, c.accepted)
		}
	}
	// With a minimum TTL no extension header may hide a BFD packet from the filter that checks it.
	up := true
	for _, refuseExtensions := range []bool{false, true} {
		g := testBFDGate(&up)
		g.refuseExtensions = refuseExtensions
		g.receive(bfdPacket(t, true, layers.BFD{State: sessionUp, MyDiscriminator: farDisc, YourDiscriminator: ownDisc}, slayers.HopByHopClass))
		if got := g.dropped[bfdCauseMalformed].Load() == 1; got != refuseExtensions {
			t.Errorf("refuseExtensions %v: dropped %v", refuseExtensions, got)
		}
	}
}

// TestBFDGateOthers checks that all packets but BFD pass unchanged, whatever their length.
func TestBFDGateOthers(t *testing.T) {
	up := true
	g := testBFDGate(&up)
	full := bfdPacket(t, true, layers.BFD{State: adminDown, MyDiscriminator: farDisc, YourDiscriminator: otherDisc},
		slayers.HopByHopClass, slayers.End2EndClass)
	at, _, _ := bfdAt(full)
	for n := range at {
		raw := slices.Clone(full[:n])
		g.receive(raw)
		if !bytes.Equal(raw, full[:n]) {
			t.Errorf("cut off at %d, before BFD begins: changed", n)
		}
	}
	const nextHeader, headerLen, pathType = 4, 5, 8
	for _, c := range []struct {
		name  string
		field int
		value byte
	}{
		{"UDP", nextHeader, 17},
		{"SCMP", nextHeader, 202},
		{"SCION path", pathType, 1},
		{"EPIC path", pathType, 3},
		{"header longer than the packet", headerLen, 255},
	} {
		raw := slices.Clone(full)
		raw[c.field] = c.value
		before := slices.Clone(raw)
		g.receive(raw)
		if !g.send(raw) || !bytes.Equal(raw, before) {
			t.Errorf("%s: changed", c.name)
		}
	}
	for cause := range bfdCauses {
		if n := g.dropped[cause].Load(); n != 0 {
			t.Errorf("%d dropped as %q", n, bfdCauseNames[cause])
		}
	}
}

// TestBFDGateInterval checks that a packet without the session's discriminator does not silence the session.
func TestBFDGateInterval(t *testing.T) {
	up := false
	for _, c := range []struct {
		name            string
		yours, in, want uint32
	}{
		{"long interval without the discriminator", 0, 1 << 31, 1_000_000},
		{"short interval without the discriminator", 0, 200_000, 200_000},
		{"long interval with the discriminator", ownDisc, 1 << 31, 1 << 31},
	} {
		g := testBFDGate(&up)
		raw := bfdPacket(t, true, layers.BFD{State: down, MyDiscriminator: farDisc,
			YourDiscriminator: layers.BFDDiscriminator(c.yours), RequiredMinRxInterval: layers.BFDTimeInterval(c.in)})
		g.receive(raw)
		at, _, _ := bfdAt(raw)
		if got := binary.BigEndian.Uint32(raw[at+16:]); got != c.want {
			t.Errorf("%s: the session gets %d, want %d", c.name, got, c.want)
		}
	}
}

// TestBFDGateSends checks that packets are sent with the far end's latest discriminator.
func TestBFDGateSends(t *testing.T) {
	up := true
	g := testBFDGate(&up)
	for _, c := range []struct {
		name     string
		in, want uint32
	}{
		{"an earlier discriminator", otherDisc, farDisc},
		{"the latest discriminator", farDisc, farDisc},
		{"no discriminator yet", 0, 0},
	} {
		raw := bfdPacket(t, false, layers.BFD{State: sessionUp, MyDiscriminator: ownDisc, YourDiscriminator: layers.BFDDiscriminator(c.in)})
		want := bfdPacket(t, false, layers.BFD{State: sessionUp, MyDiscriminator: ownDisc, YourDiscriminator: layers.BFDDiscriminator(c.want)})
		if !g.send(raw) || !bytes.Equal(raw, want) {
			t.Errorf("%s: sent\n%x, want\n%x", c.name, raw, want)
		}
	}
}

// TestBFDGateFallsSilent checks that a session is silent for a far end that uses the discriminator of an earlier session,
// so that it forgets that, and for no other.
func TestBFDGateFallsSilent(t *testing.T) {
	up := false
	checkAt := func(g *bfdGate, state layers.BFDState, yours layers.BFDDiscriminator, at time.Time) {
		raw := bfdPacket(t, true, layers.BFD{State: state, MyDiscriminator: farDisc, YourDiscriminator: yours})
		off, _, _ := bfdAt(raw)
		g.check(raw[off:], at)
	}
	start := time.Now()
	after := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	g := testBFDGate(&up)
	for s := 0.0; s < 4; s += 0.5 {
		checkAt(g, initial, otherDisc, after(s))
		if want := s > 3; g.silent(after(s)) != want {
			t.Errorf("stale packets for %v s: silent %v", s, !want)
		}
	}
	if up = true; g.silent(after(3.6)) {
		t.Error("silent though the session is up")
	}
	if up = false; g.silent(after(7)) {
		t.Error("silent though nobody has been heard for more than 3 s")
	}
	checkAt(g, initial, otherDisc, after(7))
	checkAt(g, down, 0, after(7.1))
	if g.silent(after(7.2)) {
		t.Error("silent towards a far end that has forgotten")
	}
	checkAt(g, initial, otherDisc, after(7.3))
	if g.silent(after(7.4)) {
		t.Error("silent at once")
	}
}

// bfdWire carries packets in one direction between two sessions.
type bfdWire struct {
	t  *testing.T
	mu sync.Mutex
	// out and in are the gates of sender and receiver, nil for none.
	out, in *bfdGate
	to      *bfd.Session
}

// connect makes to the receiver of the next packets, behind gate in.
func (w *bfdWire) connect(to *bfd.Session, in *bfdGate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to, w.in = to, in
}

// Send implements bfd.Sender.
func (w *bfdWire) Send(b *layers.BFD) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	raw := bfdPacket(w.t, false, *b)
	if w.out != nil && !w.out.send(raw) {
		return nil
	}
	if w.in != nil {
		w.in.receive(raw)
	}
	at, _, ok := bfdAt(raw)
	if !ok {
		return nil
	}
	var got layers.BFD
	if err := got.DecodeFromBytes(raw[at:], gopacket.NilDecodeFeedback); err != nil {
		return err
	}
	w.to.ReceiveMessage(&got)
	return nil
}

// TestBFDStaleFarEnd runs a session of the reference against a gated one that restarts with another discriminator before
// the far end notices. The far end uses the old one as long as it hears anything. Both sessions come up all the same.
func TestBFDStaleFarEnd(t *testing.T) {
	cfg := control.BFD{DetectMult: 3, DesiredMinTxInterval: time.Second, RequiredMinRxInterval: time.Second}
	run := func(s *bfd.Session) {
		done := make(chan error, 1)
		go func() { done <- s.Run(context.Background()) }()
		t.Cleanup(func() { check(t, <-done) })
	}
	back := &bfdWire{t: t}
	far, err := bfd.NewSession(back, cfg, bfd.Metrics{})
	check(t, err)
	begin := func() (near *bfd.Session, gate *bfdGate, stop func()) {
		forth := &bfdWire{t: t, to: far}
		near, err = bfd.NewSession(forth, cfg, bfd.Metrics{})
		check(t, err)
		forth.out = &bfdGate{link: "1", localDisc: uint32(near.LocalDiscriminator), up: near.IsUp}
		back.connect(near, forth.out)
		run(near)
		stop = sync.OnceFunc(func() { check(t, near.Close()) })
		t.Cleanup(stop)
		return near, forth.out, stop
	}
	bothUp := func(near *bfd.Session) {
		t.Helper()
		for end := time.Now().Add(patience); !near.IsUp() || !far.IsUp(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("near up %v, far up %v after %s", near.IsUp(), far.IsUp(), patience)
			}
		}
	}
	near, _, stop := begin()
	run(far)
	t.Cleanup(func() { check(t, far.Close()) })
	bothUp(near)
	near, gate, _ := begin()
	stop()
	bothUp(near)
	t.Logf("%d packets for the session before the restart", gate.dropped[bfdCauseDiscriminator].Load())
}

// TestBFDDiscriminator checks that each session has another discriminator, which is not 0 and the same after a restart.
func TestBFDDiscriminator(t *testing.T) {
	a, b := netip.MustParseAddrPort("192.0.2.1:50000"), netip.MustParseAddrPort("192.0.2.2:50000")
	k1, k2 := &[16]byte{1}, &[16]byte{2}
	seen := map[uint32]bool{}
	for _, d := range []uint32{discriminator(k1, a, b), discriminator(k1, b, a), discriminator(k2, a, b), discriminator(k1, a, a)} {
		if d == 0 || seen[d] {
			t.Errorf("discriminator %#x", d)
		}
		seen[d] = true
	}
	before := discriminator(k1, a, b)
	if after := discriminator(&[16]byte{1}, a, b); after != before {
		t.Errorf("%#x after a restart, %#x before", after, before)
	}
}

// TestGatedUnderlay checks that the reference's own sessions get gates: one for each link with BFD.
func TestGatedUnderlay(t *testing.T) {
	newTwoHosts(t)
	r, err := Load(writeTOML(t, "wire", "br1", ""))
	check(t, err)
	slow, err := NewSlowPath(r)
	check(t, err)
	defer slow.Close()
	for i, watched := range r.BFD {
		g := slow.gates[i]
		if (g != nil) != watched {
			t.Errorf("link %s: gate %v, watched %v", r.Datapath.Links[i].Name, g != nil, watched)
		}
		if g != nil && (g.link != r.Datapath.Links[i].Name || g.up() || g.localDisc != discriminator(r.discriminatorKey(), r.Datapath.Links[i].Local, g.remote)) {
			t.Errorf("gate %+v", g)
		}
	}
	if len(slow.gates) == 0 {
		t.Error("no link has a gate")
	}
}

// TestGatedSibling checks that the session with a sibling router gets a gate too, one for all interfaces behind it.
func TestGatedSibling(t *testing.T) {
	newTwoHosts(t)
	r, err := Load(writeTOML(t, "wire", "br1", ""))
	check(t, err)
	own, sibling := r.Datapath.Links[0].Local, netip.MustParseAddrPort("127.0.0.77:30042")
	r.Datapath.Links = append(r.Datapath.Links, scionplane.Link{Name: "sibling", Scope: scionplane.ScopeSibling, Local: own, Remote: sibling})
	c := scionrouter.NewConnector(r.Config.Router, r.Config.Features)
	underlay, err := gateSessions(c, r, nil)
	check(t, err)
	gates := underlay.gates
	ia, host := r.Control.IA, addr.HostIP(own.Addr())
	check(t, c.CreateIACtx(ia))
	check(t, c.SetKey(ia, 0, r.Keys[0].Secret[:]))
	check(t, c.AddInternalInterface(ia, host, "udpip", own.String()))
	for _, id := range []iface.ID{71, 72} {
		check(t, c.AddExternalInterface(id, control.LinkInfo{
			Provider: "udpip",
			Local:    control.LinkEnd{IA: ia, Addr: own.String(), IfID: id},
			Remote:   control.LinkEnd{IA: addr.MustParseIA("1-ff00:0:999"), Addr: sibling.String(), IfID: 1},
			Instance: "br2", LinkTo: topology.Core, MTU: 1400,
		}, host, addr.HostIP(sibling.Addr()), false))
	}
	at := len(r.Datapath.Links) - 1
	if g := gates[at]; len(gates) != 1 || g == nil || g.remote != sibling || g.localDisc != discriminator(r.discriminatorKey(), own, sibling) {
		t.Errorf("gates %+v, want one of link %d", gates, at)
	}
}

// batches is a connection that keeps what is written to it.
type batches struct {
	scionrouter.BatchConn
	wrote [][]byte
}

func (b *batches) WriteBatch(msgs conn.Messages, _ int) (int, error) {
	for _, m := range msgs {
		b.wrote = append(b.wrote, m.Buffers[0])
	}
	return len(msgs), nil
}

// TestGatedConn checks that the reference drops each packet that must not be sent, and no other.
func TestGatedConn(t *testing.T) {
	up := false
	inner := &batches{}
	c := &gatedConn{BatchConn: inner, gate: testBFDGate(&up)}
	now := time.Now()
	c.gate.staleSince.Store(now.Add(-time.Hour).UnixNano())
	c.gate.staleLast.Store(now.Add(time.Hour).UnixNano())
	held, other := bfdPacket(t, true, layers.BFD{State: down, MyDiscriminator: ownDisc}), []byte("not BFD")
	queue := [][]byte{held, other, other, held, held, other}
	given := 0
	for len(queue) > 0 { // as the reference's sender does
		msgs := make(conn.Messages, len(queue))
		for i := range msgs {
			msgs[i].Buffers = [][]byte{queue[i]}
		}
		n, err := c.WriteBatch(msgs, 0)
		check(t, err)
		if n < len(queue) {
			given++
			n++
		}
		queue = queue[n:]
	}
	if len(inner.wrote) != 3 || given != 3 || slices.ContainsFunc(inner.wrote, func(b []byte) bool { return !bytes.Equal(b, other) }) {
		t.Errorf("wrote %q, dropped %d", inner.wrote, given)
	}
}

// TestMirrorBFDSessions checks that the fast path gets each change of a session once, and no discriminators of sessions
// that are down.
func TestMirrorBFDSessions(t *testing.T) {
	r, err := Load(writeTOML(t, "wire", "br1", ""))
	check(t, err)
	up := false
	m := newBFDMirror(r, &fakeSessions{}, false, func(int, bool) error { return nil })
	var written []scionplane.BFDSession
	var fail error
	gate := testBFDGate(&up)
	m.mirrorSessions(map[int]*bfdGate{1: gate}, func(link int, s scionplane.BFDSession) error {
		if fail == nil {
			written = append(written, s)
		}
		return fail
	})
	for _, step := range []struct {
		name string
		do   func()
		want []scionplane.BFDSession
	}{
		{"down", func() {}, []scionplane.BFDSession{{}}},
		{"no change", func() {}, nil},
		{"up", func() { up = true }, []scionplane.BFDSession{{LocalDisc: ownDisc, RemoteDisc: farDisc}}},
		{"no change while up", func() {}, nil},
		{"refused", func() { fail = errors.New("no"); gate.remoteDisc.Store(otherDisc) }, nil},
		{"tried again", func() { fail = nil }, []scionplane.BFDSession{{LocalDisc: ownDisc, RemoteDisc: otherDisc}}},
		{"down again", func() { up = false }, []scionplane.BFDSession{{}}},
		{"packets refused", func() {
			gate.dropped[bfdCauseDiscriminator].Add(2)
			gate.dropped[bfdCauseAdminDown].Add(1)
		}, []scionplane.BFDSession{{Refused: 2}}},
	} {
		written = nil
		step.do()
		if m.sync(); !slices.Equal(written, step.want) {
			t.Errorf("%s: written %+v, want %+v", step.name, written, step.want)
		}
	}
}

// countingPorts is a fast path that has dropped BFD packets.
type countingPorts struct {
	printingPlane
	dropped uint64
}

func (p *countingPorts) Ports() ([]stats.Port, error) {
	return []stats.Port{{Interface: "eth0", Reasons: []stats.Reason{
		{Name: "scion-bfd", Verdict: "drop", Packets: p.dropped}, {Name: "scion-bfd", Verdict: "punt", Packets: 99}}}}, nil
}

// TestBFDWatch checks that the log reports dropped packets once a minute, and not those that an adopted fast path dropped
// before.
func TestBFDWatch(t *testing.T) {
	up := true
	g := testBFDGate(&up)
	ports := &countingPorts{dropped: 5}
	w := newBFDWatch(map[int]*bfdGate{1: g}, ports)
	var lines []string
	w.info = func(_ string, fields ...any) { lines = append(lines, strings.TrimSpace(fmt.Sprintln(fields...))) }
	start := time.Now()
	for _, step := range []struct {
		name       string
		after      time.Duration
		gate, fast uint64 // packets dropped since the last step
		want       []string
	}{
		{"adopted", 0, 0, 0, nil},
		{"first drop", time.Second, 1, 0, []string{"link 1 packets 1"}},
		{"within the minute", 2 * time.Second, 10, 3, nil},
		{"after a minute", 62 * time.Second, 0, 0, []string{"interface eth0 packets 3", "link 1 packets 10"}},
		{"no more drops", 130 * time.Second, 0, 0, nil},
		{"drop after a quiet minute", 131 * time.Second, 0, 7, []string{"interface eth0 packets 7"}},
	} {
		g.dropped[bfdCauseDiscriminator].Add(step.gate)
		g.dropped[bfdCauseAdminDown].Add(100)
		ports.dropped += step.fast
		lines = nil
		w.look(start.Add(step.after))
		if !slices.Equal(lines, step.want) {
			t.Errorf("%s: logged %q, want %q", step.name, lines, step.want)
		}
	}
}
