// SPDX-License-Identifier: Apache-2.0

package scionjudge

import (
	"fmt"
	"math/rand/v2"
	"time"

	"culvert/internal/scion/scionpkt"
)

// Trial sends the same packets through a fast path and through the reference.
type Trial struct {
	Net   *scionpkt.Network
	Judge *Judge
	Fast  FastPath
	// Rand decides everything about the packets but their timestamps, which follow the clock.
	Rand *rand.Rand
	// Stats adds up what has happened.
	Stats Stats
}

// Run tries the given number of packets, alternately a valid and a damaged one. It returns an error that
// describes the first packet that the fast path treats wrongly.
func (t *Trial) Run(packets int) error {
	for i := range packets {
		if i%4096 == 0 {
			t.Net.Now = uint32(time.Now().Unix())
		}
		s := scionpkt.Random(t.Rand, t.Net)
		damage := ""
		if i%2 == 1 && t.Rand.IntN(3) == 0 {
			s, damage = scionpkt.Distort(t.Rand, t.Net, s)
		}
		frame, err := s.Build()
		if err != nil {
			// Damage can leave a packet that has no encoding. There is nothing to try then.
			if damage != "" {
				continue
			}
			return fmt.Errorf("packet %d: %w", i, err)
		}
		if i%2 == 1 && damage == "" {
			frame, damage = scionpkt.Mutate(t.Rand, frame)
			s.MustForward = false
		}
		if err := t.Try(&s, frame, damage); err != nil {
			return fmt.Errorf("packet %d (%s, %s, damage: %q): %w\nframe: %s",
				i, s.Direction, s.Payload.Kind, damage, err, dump(frame))
		}
	}
	return nil
}

// dump writes a frame's headers, which fit 1200 bytes, and how long it is.
func dump(frame []byte) string {
	return fmt.Sprintf("%x (%d bytes)", frame[:min(len(frame), 1200)], len(frame))
}

// Try sends one frame through both. damage is the name of the damage to the packet of the spec, empty for
// a valid packet.
func (t *Trial) Try(s *scionpkt.Spec, frame []byte, damage string) error {
	dev := t.Net.Devices[t.Net.Links[s.Link].Device].IfIndex
	ref := t.Judge.Process(frame)
	if damage == "" && ref.Kind != Forwarded && !t.Judge.anyDown() {
		return fmt.Errorf("a valid packet was %s by the reference", ref)
	}
	fast, err := t.Fast.Run(frame, dev)
	if err != nil {
		return fmt.Errorf("fast path: %w", err)
	}
	t.Stats.count(s, damage, fast.Verdict, ref.Kind)
	if err := t.Judge.Compare(fast, ref); err != nil {
		return fmt.Errorf("%s: %w", fast.Verdict, err)
	}
	if s.MustForward && ref.Kind == Forwarded && fast.Verdict == Pass {
		return fmt.Errorf("%s: left a valid packet to the slow path", fast.Verdict)
	}
	return nil
}
