// SPDX-License-Identifier: Apache-2.0

package scionjudge

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"culvert/internal/scion/keyring"
	"culvert/internal/scion/scionpkt"
	"culvert/internal/scion/scionplane"
)

// rolloverPackets is how many packets are tried at each time of a rollover.
const rolloverPackets = 1500

// rollover is a network with two keys, of which the second takes the place of the first, and a reference router for each key.
type rollover struct {
	t       *testing.T
	rng     *rand.Rand
	net     *scionpkt.Network
	secrets [2][16]byte
	refs    [2]*Judge
}

// The old key ends two hours behind the start, and the new one begins after one.
const begins, ends = time.Hour, 2 * time.Hour

func newRollover(t *testing.T, mix int) *rollover {
	r := &rollover{t: t}
	r.rng, r.net = newNetwork(uint64(16+mix), scionpkt.Mixes()[mix])
	r.secrets[0] = r.net.Key
	for i := range r.secrets[1] {
		r.secrets[1][i] = byte(r.rng.Uint32())
	}
	for i := range r.refs {
		n := *r.net
		n.Key = r.secrets[i]
		r.refs[i] = start(t, &n)
	}
	return r
}

// keys returns the schedule, as seen from a time that is the offset behind the start.
func (r *rollover) keys(from time.Time, offset time.Duration) []keyring.Key {
	begin := from.Add(-offset)
	return []keyring.Key{
		{Secret: r.secrets[0], Span: keyring.Span{NotAfter: begin.Add(ends)}},
		{Secret: r.secrets[1], Span: keyring.Span{NotBefore: begin.Add(begins)}},
	}
}

// each makes packets, half of them damaged, with hop fields of either key in turn. Those that are not damaged come twice, with either
// key. try gets the index of the key that the packet is
// made with, and that of the reference whose result is right at the time: the one with that key while it is valid, else the one
// with the current key.
func (r *rollover) each(offset time.Duration, try func(s scionpkt.Spec, frame []byte, key, ref int) error) (forwarded int) {
	r.t.Helper()
	now := time.Now()
	keys := r.keys(now, offset)
	current := keyring.Current(keyring.Spans(keys), now)
	var s scionpkt.Spec
	for i := range rolloverPackets {
		key := i % 2
		damaged := i%8 >= 4
		if damaged || key == 0 { // else the same packet once more
			s = scionpkt.Random(r.rng, r.net)
		}
		if i%8 >= 6 {
			s, _ = scionpkt.Distort(r.rng, r.net, s)
		}
		s.Key = r.secrets[key]
		frame, err := s.Build()
		if err != nil {
			continue // damage can leave a packet without an encoding
		}
		if i%8 == 4 || i%8 == 5 {
			frame, _ = scionpkt.Mutate(r.rng, frame)
		}
		ref := current
		if keys[key].Valid(now) {
			ref = key
		}
		if r.refs[ref].Process(frame).Kind == Forwarded && ref == key {
			forwarded++
		}
		if err := try(s, frame, key, ref); err != nil {
			r.t.Fatalf("%s after the start, packet %d of key %d, judged by the reference with key %d: %v\nframe: %s", offset, i, key, ref, err, dump(frame))
		}
	}
	return forwarded
}

// TestSlowPathRollover compares the reference with a ring of two keys with one reference for each key, over a rollover. At a time of
// both keys it gives each packet the result of the reference with the packet's key. At any other, packets of the other key are
// refused as the reference with the one key refuses them.
func TestSlowPathRollover(t *testing.T) {
	for mix := range scionpkt.Mixes() {
		r := newRollover(t, mix)
		var offset time.Duration
		from := time.Now()
		ring := keyring.New(r.keys(from, 0), func() time.Time { return from.Add(offset) })
		rolling, err := NewRolling(r.net, ring)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(rolling.Close)
		for _, at := range []time.Duration{0, begins - time.Millisecond, begins, begins + time.Millisecond, ends - time.Millisecond, ends, ends + time.Hour, begins / 2} {
			offset = at
			both := at >= begins && at < ends
			forwarded := r.each(at, func(_ scionpkt.Spec, frame []byte, _, ref int) error {
				got, want := rolling.Process(frame), r.refs[ref].Process(frame)
				return sameResult(got, want)
			})
			if least := rolloverPackets / 4; forwarded < least || both && forwarded < 2*least {
				t.Errorf("%s after the start: only %d packets forwarded", at, forwarded)
			}
		}
	}
}

// sameResult compares what two references have done with a frame.
func sameResult(got, want Result) error {
	if got.Kind != want.Kind || got.Ingress != want.Ingress || got.Egress != want.Egress {
		return fmt.Errorf("%s, want %s", got, want)
	}
	if len(want.services) > 0 {
		return nil // a random one of them
	}
	if got.Dst != want.Dst || !bytes.Equal(got.Payload, want.Payload) {
		return fmt.Errorf("%s with %x, want %s with %x", got, got.Payload, want, want.Payload)
	}
	return nil
}

// TestXDPRollover compares the program in the kernel with a reference for each key over a rollover. The program follows the clock by
// itself: nothing but the schedule is written.
func TestXDPRollover(t *testing.T) {
	r := newRollover(t, 0)
	x := newXDP(t, r.net)
	for _, at := range []time.Duration{begins / 2, (begins + ends) / 2, ends + time.Hour} {
		now := time.Now()
		if err := x.plane.SetSlowPathKey(r.secrets[0]); err != nil { // the key that newXDP has loaded
			t.Fatal(err)
		}
		// The start has all keys, also one that has ended meanwhile.
		if err := x.plane.ScheduleKeys(r.keys(now, at), now.Add(-at)); err != nil {
			t.Fatal(err)
		}
		if err := x.unlimit(); err != nil {
			t.Fatal(err)
		}
		if keys, err := x.plane.Keys(); err != nil || len(keys) != scionplane.MaxKeys {
			t.Fatalf("keys %v, %v", keys, err)
		}
		passed := 0
		forwarded := r.each(at, func(s scionpkt.Spec, frame []byte, _, ref int) error {
			fast, err := x.Run(frame, r.net.Devices[r.net.Links[s.Link].Device].IfIndex)
			if err != nil {
				return err
			}
			if fast.Verdict == Pass {
				passed++
			}
			return r.refs[ref].Compare(fast, r.refs[ref].Process(frame))
		})
		both := at == (begins+ends)/2
		if least := rolloverPackets / 2; both && passed > least || !both && passed < least {
			t.Errorf("%s after the start: %d of %d packets passed up, %d forwarded by the reference", at, passed, rolloverPackets, forwarded)
		}
	}
}
