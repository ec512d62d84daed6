// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// EachUint16 calls do with each 16-bit number, such as a checksum, and ends the test when do reports a failure.
func EachUint16(t testing.TB, do func(n uint16)) {
	for n := range 1 << 16 {
		if do(uint16(n)); t.Failed() {
			t.Fatalf("with %#04x", n)
		}
	}
}

// CheckIPv4Sum checks the checksum of an IPv4 header without options. It must be the value that a sender computes, and not the
// other representation of zero.
func CheckIPv4Sum(t testing.TB, ip []byte) {
	t.Helper()
	if got, want := binary.BigEndian.Uint16(ip[10:]), ^OnesSum(ip[:10], ip[12:20]); got != want {
		t.Errorf("header checksum %#04x, want %#04x: %x", got, want, ip[:20])
	}
}

// CheckICMPSum checks the ICMP or ICMPv6 checksum of an IP packet without options or extension headers.
func CheckICMPSum(t testing.TB, packet []byte) {
	t.Helper()
	at := 22
	var pseudo []byte
	if packet[0]>>4 == 6 {
		at = 42
		pseudo = append(append(bytes.Clone(packet[8:40]), packet[4:6]...), 0, 58)
	}
	if got, want := binary.BigEndian.Uint16(packet[at:]), ^OnesSum(pseudo, packet[at-2:at], packet[at+2:]); got != want {
		t.Errorf("ICMP checksum %#04x, want %#04x: %x", got, want, packet)
	}
}

// CheckL4Sum checks the UDP or TCP checksum of such a packet. It is at bytes into the UDP or TCP header. UDP sends 0xffff for
// 0.
func CheckL4Sum(t testing.TB, packet []byte, at int) {
	t.Helper()
	src, l4, proto := packet[12:20], packet[20:], packet[9]
	if packet[0]>>4 == 6 {
		src, l4, proto = packet[8:40], packet[40:], packet[6]
	}
	size := binary.BigEndian.AppendUint16(nil, uint16(len(l4)))
	want := ^OnesSum(src, []byte{0, proto}, size, l4[:at], l4[at+2:])
	if proto == 17 && want == 0 {
		want = 0xffff
	}
	if got := binary.BigEndian.Uint16(l4[at:]); got != want {
		t.Errorf("checksum %#04x, want %#04x: %x", got, want, packet)
	}
}

// SetIPv4ID sets the identification of an IPv4 header without options, and the checksum that goes with it.
func SetIPv4ID(ip []byte, id uint16) {
	binary.BigEndian.PutUint16(ip[4:], id)
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^OnesSum(ip[:20]))
}

// OnesSum returns the one's complement sum of RFC 1071 over the parts, each padded to whole 16-bit words. The sum over data
// with a right checksum is 0xffff. OnesSum shares no code with the programs under test.
func OnesSum(parts ...[]byte) uint16 {
	sum := 0
	for _, b := range parts {
		for n, v := range b {
			if n%2 == 0 {
				sum += int(v) << 8
			} else {
				sum += int(v)
			}
		}
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}
