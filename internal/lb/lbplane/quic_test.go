// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"culvert/internal/bpfobj"
)

// quicLong returns a QUIC packet with a long header. first is its first byte without the form bit.
func quicLong(first byte, version uint32, dcid []byte) []byte {
	p := binary.BigEndian.AppendUint32([]byte{0x80 | first}, version)
	p = append(append(p, byte(len(dcid))), dcid...)
	return append(p, bytes.Repeat([]byte{0xee}, 30)...)
}

// quicShort returns a QUIC packet with a short header.
func quicShort(dcid []byte) []byte {
	return append(append([]byte{0x41}, dcid...), bytes.Repeat([]byte{0xee}, 30)...)
}

// TestQUIC sends packets with and without server IDs in their connection IDs, for several lengths of server IDs.
func TestQUIC(t *testing.T) {
	b := newBed(t, Options{})
	for n, vip := range []string{"192.0.2.1:443", "[2001:db8::1]:443"} {
		for _, length := range []int{1, 2, 3, 8} {
			number := uint32(n*8 + length - 1)
			var backends []Backend
			for k := range uint32(3) {
				backends = append(backends, b.backend(100*number+k, number, fmt.Sprintf("10.0.%d.%d", number, 11+k)))
			}
			byRing, named, drained := backends[0], backends[1], backends[2]
			b.vip(number, vip, protoUDP, []Backend{byRing}, func(v *VIP) { v.ServerID, v.IDConfig = uint8(length), 2 })
			id := bytes.Repeat([]byte{0xab, 0xcd}, 4)[:length]
			gone := bytes.Repeat([]byte{0x77, 0x11}, 4)[:length]
			drain := bytes.Repeat([]byte{0x99}, length)
			b.must(b.plane.SetServerID(number, id, named.ID))
			b.must(b.plane.SetServerID(number, drain, drained.ID)) // not in the ring
			b.must(b.plane.SetServerID(number, gone, NewBackendID(100*number+1, 9)))
			cid := func(config byte, id []byte) []byte {
				return append(append([]byte{config<<5 | 9}, id...), 1, 2, 3)
			}
			port := 1000 * (1 + int(number))
			fresh := func(payload []byte) []byte {
				port++
				from := fmt.Sprintf("203.0.113.7:%d", port)
				if n == 1 {
					from = fmt.Sprintf("[2001:db8:7::7]:%d", port)
				}
				return b.packet(from, vip, &layers.UDP{}, payload)
			}
			b.expectSent(fresh(quicShort(cid(2, id))), "fwd lb-quic", named)
			b.expectSent(tagged(fresh(quicShort(cid(2, id))), 5), "fwd lb-quic", named)
			b.expectSent(fresh(quicShort(cid(2, drain))), "fwd lb-quic", drained)
			b.expectSent(fresh(quicLong(0x60, 1, cid(2, id))), "fwd lb-quic", named)          // Handshake of version 1
			b.expectSent(fresh(quicLong(0x70, 0x6b3343cf, cid(2, id))), "fwd lb-quic", named) // Handshake of version 2
			for what, payload := range map[string][]byte{
				"another config":      quicShort(cid(3, id)),
				"an unknown ID":       quicShort(cid(2, bytes.Repeat([]byte{1}, length))),
				"a deleted backend's": quicShort(cid(2, gone)),
				"Initial":             quicLong(0x40, 1, cid(2, id)),
				"0-RTT":               quicLong(0x50, 1, cid(2, id)),
				"Retry":               quicLong(0x70, 1, cid(2, id)),
				"Initial, version 2":  quicLong(0x50, 0x6b3343cf, cid(2, id)),
				"0-RTT, version 2":    quicLong(0x60, 0x6b3343cf, cid(2, id)),
				"another version":     quicLong(0x60, 5, cid(2, id)),
				"a short ID":          quicLong(0x60, 1, cid(2, id)[:length]),
				"no QUIC":             append([]byte{0x01}, quicShort(cid(2, id))[1:]...),
				"nothing":             nil,
				"a truncated ID":      quicShort(cid(2, id))[:1+length],
			} {
				if b.expectSent(fresh(payload), "fwd lb-new", byRing); t.Failed() {
					t.Fatalf("VIP %d: %s", number, what)
				}
			}
			// Packets with the server ID do not change the entry of a known flow, which packets without it follow. Without an
			// entry, they add one.
			first := fresh(quicLong(0x40, 1, cid(2, id)))
			b.expectSent(first, "fwd lb-new", byRing)
			b.expectSent(b.changedUDP(first, quicShort(cid(2, id))), "fwd lb-quic", named)
			b.expectSent(first, "fwd lb-flow", byRing)
			b.expectSent(b.changedUDP(first, quicShort(cid(2, id))), "fwd lb-quic", named)
			unseen := fresh(quicShort(cid(2, id)))
			b.expectSent(unseen, "fwd lb-quic", named)
			b.expectSent(b.changedUDP(unseen, nil), "fwd lb-flow", named)

			ids, err := b.plane.ServerIDs(number)
			b.must(err)
			want := map[string]BackendID{string(id): named.ID, string(drain): drained.ID, string(gone): NewBackendID(100*number+1, 9)}
			if !maps.Equal(ids, want) {
				t.Errorf("server IDs %v, want %v", ids, want)
			}
			b.must(b.plane.DeleteServerID(number, id))
			b.must(b.plane.DeleteServerID(number, id)) // deleting it again is no error
			b.expectSent(fresh(quicShort(cid(2, id))), "fwd lb-new", byRing)
			if n, err := b.event(number, bpfobj.PipelineLbEventLB_EVENT_QUIC); err != nil || n != 8 {
				t.Errorf("counted %d packets by their ID, want 8, %v", n, err)
			}
		}
	}
}

// changedUDP returns a copy of an untagged UDP frame with other data.
func (b *bed) changedUDP(f []byte, data []byte) []byte {
	head := 14 + 20
	if f[12] == 0x86 {
		head = 14 + 40
	}
	out := append(bytes.Clone(f[:head+8]), data...)
	binary.BigEndian.PutUint16(out[head+4:], uint16(8+len(data)))
	setIPLen(out, 8+len(data))
	return out
}

func TestServerIDLength(t *testing.T) {
	b := newBed(t, Options{})
	for _, n := range []int{0, 9} {
		id := make([]byte, n)
		if b.plane.SetServerID(0, id, 1) == nil || b.plane.DeleteServerID(0, id) == nil {
			t.Errorf("a server ID of %d bytes is taken", n)
		}
	}
}
