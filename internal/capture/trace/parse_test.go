// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	const (
		eth      = "020000000001" + "020000000002"
		ip4, ip6 = "c0000201" + "c0000202", "20010db8000000000000000000000001" + "20010db8000000000000000000000002"
		udp4     = "4500001c00000000401" + "1f6cd" + ip4 + "04d2003500080000"
	)
	own := [6]byte{2, 0, 0, 0, 0, 1}
	a4, b4 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	a6, b6 := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	for _, tt := range []struct {
		name, frame string
		length      int // 0: all of it
		want        Packet
		err         error
	}{
		{name: "to another host", frame: "020000000009" + "020000000002" + "0800" + udp4},
		{name: "ARP", frame: eth + "0806" + strings.Repeat("00", 28), want: Packet{Own: true}},
		{
			name: "UDP", frame: eth + "0800" + udp4,
			want: Packet{
				Own: true, IP: 4, L3: 14, Src: a4, Dst: b4, Protocol: UDP, TTL: 64, IPLength: 28, Ports: true, SrcPort: 1234, DstPort: 53, UDP: true,
			},
		},
		{
			name: "UDP in a VLAN", frame: eth + "8100" + "0064" + "0800" + udp4,
			want: Packet{Own: true, VLAN: 100, IP: 4, L3: 18, Src: a4, Dst: b4, Protocol: UDP, TTL: 64, IPLength: 28, Ports: true, SrcPort: 1234, DstPort: 53},
		},
		{
			name: "another length of UDP", frame: eth + "0800" + strings.Replace(udp4, "0035"+"0008", "0035"+"0007", 1),
			want: Packet{Own: true, IP: 4, L3: 14, Src: a4, Dst: b4, Protocol: UDP, TTL: 64, IPLength: 28, Ports: true, SrcPort: 1234, DstPort: 53},
		},
		{
			name: "a wrong checksum", frame: eth + "0800" + strings.Replace(udp4, "f6cd", "f6ce", 1),
			want: Packet{Own: true, IP: 4, L3: 14, Src: a4, Dst: b4, Protocol: UDP, TTL: 64, NoForward: true},
		},
		{
			name: "a fragment", frame: eth + "0800" + "4500001c000020b94011" + "d614" + ip4 + "04d2003500080000",
			want: Packet{Own: true, IP: 4, L3: 14, Src: a4, Dst: b4, Protocol: UDP, TTL: 64, IPLength: 28, Fragment: true},
		},
		{
			name: "options", frame: eth + "0800" + "46000020000000004011" + "0000" + ip4 + "01010101" + "04d2003500080000",
			want: Packet{Own: true, IP: 4, L3: 14, Src: a4, Dst: b4, Protocol: UDP, TTL: 64, NoForward: true, Options: true},
		},
		{
			name: "UDP over IPv6 without checksum", frame: eth + "86dd" + "6000000000081140" + ip6 + "04d2003500080000",
			want: Packet{Own: true, IP: 6, L3: 14, Src: a6, Dst: b6, Protocol: UDP, TTL: 64, IPLength: 48, Ports: true, SrcPort: 1234, DstPort: 53},
		},
		{
			name: "hop-by-hop options", frame: eth + "86dd" + "6000000000080040" + ip6 + "3a00050200000000",
			want: Packet{Own: true, IP: 6, L3: 14, Src: a6, Dst: b6, TTL: 64, IPLength: 48, NoForward: true, Options: true},
		},
		{name: "cut within IP", frame: eth + "0800" + udp4[:20], length: 42, want: Packet{Own: true}, err: ErrCut},
		{
			name: "cut within UDP", frame: eth + "0800" + udp4[:44], length: 42, err: ErrCut,
			want: Packet{Own: true, IP: 4, L3: 14, Src: a4, Dst: b4, Protocol: UDP, TTL: 64, IPLength: 28},
		},
		{name: "short, and all of it", frame: eth + "0800" + udp4[:20], want: Packet{Own: true}},
	} {
		b, err := hex.DecodeString(tt.frame)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		length := tt.length
		if length == 0 {
			length = len(b)
		}
		got, err := Parse(Frame{Data: b, Length: length}, own)
		if !errors.Is(err, tt.err) {
			t.Errorf("%s: error %v, want %v", tt.name, err, tt.err)
		}
		plain := *got
		plain.Frame, plain.Payload = Frame{}, nil
		if g, w := fmt.Sprintf("%+v", plain), fmt.Sprintf("%+v", tt.want); g != w {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, g, w)
		}
	}
}
