// SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/binary"
	"fmt"

	"github.com/gopacket/gopacket"
	"github.com/scionproto/scion/pkg/slayers"

	"culvert/internal/scion/scionpkt"
)

// StampLen is the length of a stamp in bytes. The stamp is at the end of a frame; bpf/bench/stamp.h describes its layout.
const StampLen = 16

// maxFlows is the number of flows that stamps can tell apart.
const maxFlows = 1 << 24

// stampRoom is the number of bytes after the headers of a frame: Ethernet, IP and UDP, and for a SCION packet also SCION
// and the UDP or SCMP header in it.
func stampRoom(frame []byte) int {
	l, ok := scionpkt.Locate(frame)
	if !ok {
		return len(frame) - MinFrame
	}
	room := len(frame) - l.SCION
	// The layer keeps pointers into the frame that it decodes, so it cannot be reused.
	var s slayers.SCION
	if s.DecodeFromBytes(frame[l.SCION:], gopacket.NilDecodeFeedback) != nil {
		return room
	}
	if header := int(s.HdrLen) * slayers.LineLen; int(s.PayloadLen) == room-header {
		// The headers of UDP and SCMP both have 8 bytes.
		room = int(s.PayloadLen) - scionpkt.UDPLen
	}
	return room
}

// CheckStampRoom returns an error if a stamp would overwrite the headers of a frame.
func CheckStampRoom(frames [][]byte) error {
	for i, f := range frames {
		if room := stampRoom(f); room < StampLen {
			return fmt.Errorf("frame %d of %d bytes has %d behind its headers: a stamp takes %d, so make it %d bytes longer",
				i, len(f), max(room, 0), StampLen, StampLen-room)
		}
	}
	return nil
}

// stamping has the values by which the generator stamps the packets of one frame.
type stamping struct {
	flow uint32
	// first is the sequence number of the first packet of the frame. Each further packet has a number larger by step.
	first, step uint32
	// sum is the one's complement sum of the bytes that the stamp overwrites. The stamp has the same sum, so that checksums
	// remain valid.
	sum uint16
}

// stampings assigns flows and sequence numbers: frame i belongs to flow i mod flows, and each flow counts its own packets.
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

// put writes s into the part of struct frame_template after the lengths, in native byte order.
func (s stamping) put(value []byte) {
	binary.NativeEndian.PutUint32(value[0:], s.flow)
	binary.NativeEndian.PutUint32(value[4:], s.first)
	binary.NativeEndian.PutUint32(value[8:], s.step)
	binary.NativeEndian.PutUint32(value[12:], uint32(s.sum))
}
