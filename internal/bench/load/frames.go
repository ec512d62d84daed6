// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
)

// MinUDPFrame is the length of Ethernet, IPv4 and UDP headers, in bytes.
const MinUDPFrame = 14 + 20 + 8

// UDPFrames makes n Ethernet frames whose lengths in bytes take turns, each of another UDP flow over IPv4. The IPv4 checksum
// is valid, the UDP checksum 0, and so are the Ethernet addresses.
func UDPFrames(n int, sizes ...int) ([][]byte, error) {
	for _, size := range sizes {
		if size < MinUDPFrame || size > MinFrame+0xffff {
			return nil, fmt.Errorf("frames of %d bytes asked for: a UDP packet takes %d to %d", size, MinUDPFrame,
				MinFrame+0xffff)
		}
	}
	frames := make([][]byte, n)
	for i := range frames {
		f := make([]byte, sizes[i%len(sizes)])
		binary.BigEndian.PutUint16(f[12:], 0x0800)
		ip := f[MinFrame:]
		ip[0] = 0x45
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		ip[8] = 64
		ip[9] = 17
		// 198.18.0.0/15 is for benchmarks (RFC 2544). The low 16 bits of the flow's number are in the source address, the
		// others in the source port.
		binary.BigEndian.PutUint32(ip[12:], 198<<24|18<<16|uint32(i)&0xffff)
		binary.BigEndian.PutUint32(ip[16:], 198<<24|19<<16|1)
		binary.BigEndian.PutUint16(ip[10:], ^OnesSum(ip[:20]))
		udp := ip[20:]
		binary.BigEndian.PutUint16(udp[0:], uint16(1024+i>>16))
		binary.BigEndian.PutUint16(udp[2:], 9)
		binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
		frames[i] = f
	}
	return frames, nil
}

// Addressed returns copies of frames with the given Ethernet addresses.
func Addressed(frames [][]byte, dst, src net.HardwareAddr) [][]byte {
	out := make([][]byte, len(frames))
	for i, f := range frames {
		out[i] = bytes.Clone(f)
		copy(out[i][0:6], dst)
		copy(out[i][6:12], src)
	}
	return out
}
