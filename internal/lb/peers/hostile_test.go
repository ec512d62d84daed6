// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/peerstate"
	"culvert/internal/testbed"
)

// impostor has a socket with the address of a machine that does not run.
type impostor struct {
	*machine
	conn *net.UDPConn
}

func (m *machine) impostor() *impostor {
	m.t.Helper()
	opened := make(chan error, 1)
	i := &impostor{machine: m}
	go func() { // on a thread of the process's namespace
		conn, err := new(net.ListenConfig).ListenPacket(context.Background(), "udp", m.at.String())
		if err == nil {
			i.conn = conn.(*net.UDPConn)
		}
		opened <- err
	}()
	m.must(<-opened)
	m.t.Cleanup(func() { i.conn.Close() })
	return i
}

func (i *impostor) send(to *machine, b []byte) {
	i.t.Helper()
	_, err := i.conn.WriteToUDPAddrPort(b, to.at)
	i.must(err)
}

// sealed returns a datagram with a flow, made with a key.
func (i *impostor) sealed(c *codec, h header, flows ...toldFlow) []byte {
	b, _ := appendFlows(h.append(nil), flows)
	return c.seal(b)
}

// receive returns the next datagram of a kind, other than flows.
func (i *impostor) receive(c *codec, kind uint8) (h header, body []byte) {
	i.t.Helper()
	_ = i.conn.SetReadDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 2000)
	for {
		n, err := i.conn.Read(b)
		i.must(err)
		if h, body, err = c.open(b[:n]); err == nil && h.kind == kind {
			return h, slices.Clone(body)
		}
	}
}

// TestHostile sends a machine all that is wrong, from the address of a peer and from a stranger. Nothing gets into its table, and
// each kind is counted and said.
func TestHostile(t *testing.T) {
	all := tier(t, 3)
	a, peer, stranger := all[0], all[1].impostor(), all[2].impostor()
	a.start(a.options(all[:2]))
	o := a.options(all[:2])
	right, wrong := newCodec(o.Key[:]), newCodec([]byte("wrong"))
	told := toldFlow{service, a.state.VIPs[0].Backends[1].Addr, flow(9), service.Port, lbplane.FlowOpen, 0}
	h := header{kind: kindFlows, sender: peer.at, epoch: 4711, seq: 1}
	whole := peer.sealed(right, h, told)
	count := func(result string, send func()) {
		t.Helper()
		before := a.datagrams(peer.at, result)
		send()
		a.wait(result, func() bool { return a.datagrams(peer.at, result) > before })
	}
	count(peerstate.WrongMAC, func() { peer.send(a, peer.sealed(wrong, h, told)) })
	count(peerstate.Cut, func() { peer.send(a, whole[:20]) })
	count(peerstate.WrongMAC, func() { peer.send(a, whole[:len(whole)-1]) })
	count(peerstate.OtherVersion, func() { b := slices.Clone(whole); b[4]++; peer.send(a, b) })
	other := h
	other.sender = stranger.at // a datagram of another peer, with the address of this one
	count(peerstate.WrongMAC, func() { peer.send(a, peer.sealed(right, other, told)) })
	other = h
	other.kind = 77
	count(peerstate.Cut, func() { peer.send(a, peer.sealed(right, other)) })
	if p := a.peer(peer.at); p.Wrong == "" || p.Up {
		t.Errorf("it is not said: %+v", p)
	}
	before := a.s.State().Strangers
	stranger.send(a, whole)
	a.wait("a stranger", func() bool { return a.s.State().Strangers == before+1 })

	t.Log("an epoch that nobody has confirmed")
	count(peerstate.Unconfirmed, func() { peer.send(a, whole) })
	_, nonce := peer.receive(right, kindAsk)
	answer := func(epoch, seq uint64, nonce []byte) {
		h := header{kind: kindAnswer, sender: peer.at, epoch: epoch, seq: seq}
		peer.send(a, right.seal(append(h.append(nil), nonce...)))
	}
	wrongNonce := slices.Clone(nonce)
	wrongNonce[0]++
	count(peerstate.Replayed, func() { answer(4711, 0, wrongNonce) })
	if n, _, _ := a.find(flow(9)); n != -1 || a.peer(peer.at).Up {
		t.Fatal("a flow is taken that nobody has confirmed")
	}
	answer(4711, 0, nonce)
	a.wait("the peer is up", func() bool { return a.peer(peer.at).Up })
	a.s.mu.Lock()
	if a.s.peers[peer.at].asked.IsZero() {
		t.Error("datagrams of another epoch make it ask again at once")
	}
	a.s.mu.Unlock()
	count(peerstate.Replayed, func() { answer(4712, 0, nonce) }) // a nonce counts once
	count(peerstate.Accepted, func() { peer.send(a, whole) })
	if n, _, _ := a.find(flow(9)); n != 1 {
		t.Error("a flow is not taken")
	}
	count(peerstate.Replayed, func() { peer.send(a, whole) })
	h.seq = 500
	count(peerstate.Lost, func() { peer.send(a, peer.sealed(right, h)) })

	t.Log("a datagram with the right key that makes no sense")
	h.seq++
	count(peerstate.Cut, func() { b := append(h.append(nil), 1, 2, 3); peer.send(a, right.seal(b)) })

	t.Log("the peer starts again: what it sent before is not taken any more")
	earlier := h
	h.epoch, h.seq = 4712, 1
	a.s.mu.Lock()
	a.s.peers[peer.at].asked = time.Time{}
	a.s.mu.Unlock()
	count(peerstate.Unconfirmed, func() { peer.send(a, peer.sealed(right, h)) })
	_, nonce = peer.receive(right, kindAsk)
	answer(4712, 1, nonce)
	h.seq = 2
	count(peerstate.Accepted, func() { peer.send(a, peer.sealed(right, h)) })
	earlier.seq += 100
	count(peerstate.Unconfirmed, func() { peer.send(a, peer.sealed(right, earlier, told)) })

	t.Log("a flood")
	accepted := a.datagrams(peer.at, peerstate.Accepted)
	flood := wrongFlood(right, peer, h)
	count(peerstate.Flood, func() {
		for _, b := range flood {
			peer.send(a, b)
		}
	})
	if n := a.datagrams(peer.at, peerstate.Accepted) - accepted; n > uint64(len(flood))*9/10 {
		t.Errorf("of a flood of %d datagrams %d were taken", len(flood), n)
	}
}

// TestComplaints sends what is wrong in ever other ways. Each kind is logged once a while.
func TestComplaints(t *testing.T) {
	var log testbed.Output
	s := &Service{o: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}}
	p := newPeer(netip.MustParseAddrPort("10.0.0.2:9482"), DefaultRate)
	complain := func(want int) {
		t.Helper()
		for n := range 10 {
			s.complain(p, peerstate.OtherVersion, fmt.Sprint("it has version ", n))
			s.complain(p, peerstate.WrongMAC, "it was changed")
		}
		if got := strings.Count(log.String(), "level=WARN"); got != want {
			t.Errorf("%d lines of the log, want %d", got, want)
		}
	}
	complain(2)
	p.logged[peerstate.OtherVersion] = p.logged[peerstate.OtherVersion].Add(-wrongFor - time.Second)
	complain(3)
	if p.datagrams[peerstate.OtherVersion] != 20 || p.wrong != "it was changed" {
		t.Errorf("%v, %q", p.datagrams, p.wrong)
	}
}

// wrongFlood returns more datagrams than a second may have.
func wrongFlood(c *codec, peer *impostor, h header) (all [][]byte) {
	for range DefaultRate {
		h.seq++
		all = append(all, peer.sealed(c, h))
	}
	return all
}

// TestFlowsFlood sends more flows than the rate allows. They are dropped, not delayed.
func TestFlowsFlood(t *testing.T) {
	all := tier(t, 2)
	a, peer := all[0], all[1].impostor()
	o := a.options(all)
	o.Rate = 10
	a.start(o)
	c := newCodec(o.Key[:])
	h := header{kind: kindFlows, sender: peer.at, epoch: 1, seq: 1}
	peer.send(a, peer.sealed(c, h))
	_, nonce := peer.receive(c, kindAsk)
	answer := h
	answer.kind = kindAnswer
	peer.send(a, c.seal(append(answer.append(nil), nonce...)))
	a.wait("the peer is up", func() bool { return a.peer(peer.at).Up })
	told := someFlows(50)
	for range 30 {
		h.seq++
		peer.send(a, peer.sealed(c, h, told...))
	}
	a.wait("flows are dropped", func() bool { return a.datagrams(peer.at, peerstate.Flood) > 0 })
	if n := a.datagrams(peer.at, peerstate.Accepted); n > 21 { // a thousand at once, and some while the test takes its time
		t.Errorf("%d datagrams were taken", n)
	}
}

// TestForgedFlood has somebody forge datagrams in the name of a peer, and repeat what it has sent. None of the peer's own is lost by that.
func TestForgedFlood(t *testing.T) {
	all := tier(t, 2)
	a, peer := all[0], all[1]
	o := a.options(all)
	o.Rate = 10
	a.start(o)
	right, wrong := newCodec(o.Key[:]), newCodec([]byte("wrong"))
	datagram := func(c *codec, kind uint8, epoch, seq uint64, body ...byte) []byte {
		h := header{kind: kind, sender: peer.at, epoch: epoch, seq: seq}
		return c.seal(append(h.append(nil), body...))
	}
	const epoch, other = 4711, 4712
	send := func(b []byte) { a.s.take(right, b, peer.at) } // in no time: what the limits allow again meanwhile is little
	send(datagram(right, kindFlows, epoch, 1))
	a.s.mu.Lock()
	nonce := a.s.peers[peer.at].nonce
	a.s.mu.Unlock()
	send(datagram(right, kindAnswer, epoch, 0, nonce[:]...))
	accepted := func() uint64 { return a.datagrams(peer.at, peerstate.Accepted) }
	seq := uint64(0)
	whole := func(what string) {
		t.Helper()
		before := accepted()
		seq++
		send(datagram(right, kindFlows, epoch, seq))
		if accepted() != before+1 {
			t.Errorf("%s: a datagram of the peer is not taken: %+v", what, a.peer(peer.at))
		}
	}
	whole("before")
	for what, b := range map[string][]byte{
		"forged":                 datagram(wrong, kindFlows, other, 5),
		"forged, with the epoch": datagram(wrong, kindFlows, epoch, 5),
		"heard again":            datagram(right, kindFlows, epoch, seq),
		"heard of another epoch": datagram(right, kindFlows, other, seq),
		"cut":                    datagram(right, kindFlows, epoch, 5)[:20],
		"too long":               datagram(wrong, kindFlows, epoch, 5, make([]byte, maxDatagram)...),
	} {
		for range 2 * claimRate {
			send(b)
		}
		whole(what)
	}
	if n := a.datagrams(peer.at, peerstate.Flood); n == 0 {
		t.Error("the MACs of all that is forged were checked")
	}
}

// TestBucket takes as much as the rate allows, at any speed of the machine.
func TestBucket(t *testing.T) {
	b, now := newBucket(10, 5), time.Unix(1000, 0)
	taken := 0
	for range 1000 { // in ten seconds
		if b.take(1, now) {
			taken++
		}
		now = now.Add(10 * time.Millisecond)
	}
	if taken < 100 || taken > 105 {
		t.Errorf("%d were taken, want 5 at once and 10 a second", taken)
	}
}

// TestCheck refuses addresses that cannot be right.
func TestCheck(t *testing.T) {
	at := netip.MustParseAddrPort
	for _, o := range []Options{
		{}, {Listen: at("0.0.0.0:9482")}, {Listen: at("10.0.0.1:0")},
		{Listen: at("10.0.0.1:9482"), Peers: []netip.AddrPort{at("10.0.0.1:9482")}},
		{Listen: at("10.0.0.1:9482"), Peers: []netip.AddrPort{at("10.0.0.2:0")}},
		{Listen: at("10.0.0.1:9482"), Peers: []netip.AddrPort{at("[fd00::1]:9482")}},
		{Listen: at("10.0.0.1:9482"), Peers: []netip.AddrPort{at("10.0.0.2:9482"), at("10.0.0.2:9482")}},
	} {
		if err := o.Check(); err == nil {
			t.Errorf("%v with %v is taken", o.Listen, o.Peers)
		}
	}
	if err := (&Options{Listen: at("10.0.0.1:9482"), Peers: []netip.AddrPort{at("10.0.0.2:9482")}}).Check(); err != nil {
		t.Error(err)
	}
}
