// SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/binary"
	"fmt"

	"github.com/gopacket/gopacket"
	"github.com/scionproto/scion/pkg/slayers"

	"culvert/internal/scion/scionpkt"
)

// StampLen is the length of a stamp, the last bytes of a frame. bpf/bench/stamp.h says what is in it.
const StampLen = 16

// maxFlows is how many flows stamps can tell apart.
const maxFlows = 1 << 24

// stampRoom says how many bytes of a frame are neither headers of Ethernet, IP and UDP, nor of SCION and what it
// carries if the frame is a SCION packet.
func stampRoom(frame []byte) int {
	l, ok := scionpkt.Locate(frame)
	if !ok {
		return len(frame) - MinFrame
	}
	room := len(frame) - l.SCION
	// The layer keeps pointers into what it decodes, so it is made afresh.
	var s slayers.SCION
	if s.DecodeFromBytes(frame[l.SCION:], gopacket.NilDecodeFeedback) != nil {
		return room
	}
	if header := int(s.HdrLen) * slayers.LineLen; int(s.PayloadLen) == room-header {
		// UDP and SCMP have headers of 8 bytes.
		room = int(s.PayloadLen) - scionpkt.UDPLen
	}
	return room
}

// CheckStampRoom refuses frames whose headers a stamp would overwrite.
func CheckStampRoom(frames [][]byte) error {
	for i, f := range frames {
		if room := stampRoom(f); room < StampLen {
			return fmt.Errorf("frame %d of %d bytes has %d behind its headers: a stamp takes %d, so make it %d bytes longer",
				i, len(f), max(room, 0), StampLen, StampLen-room)
		}
	}
	return nil
}

// stamping is what the generator needs to know of one frame to stamp it.
type stamping struct {
	flow uint32
	// first is the number of the first packet made from the frame, step how much later ones have more.
	first, step uint32
	// sum is the one's complement sum of the bytes that make room, which the stamp keeps.
	sum uint16
}

// stampings numbers frames through: frame i is of flow i mod flows, and each flow counts its own packets.
func stampings(frames [][]byte, flows int) []stamping {
	out := make([]stamping, len(frames))
	for i, f := range frames {
		flow := i % flows
		out[i] = stamping{
			flow:  uint32(flow),
			first: uint32(i / flows),
			step:  uint32((len(frames) - flow + flows - 1) / flows),
			sum:   scionpkt.Sum(f[len(f)-StampLen:]),
		}
	}
	return out
}

// put writes s into a template, after the lengths.
func (s stamping) put(value []byte) {
	binary.NativeEndian.PutUint32(value[0:], s.flow)
	binary.NativeEndian.PutUint32(value[4:], s.first)
	binary.NativeEndian.PutUint32(value[8:], s.step)
	binary.NativeEndian.PutUint32(value[12:], uint32(s.sum))
}
