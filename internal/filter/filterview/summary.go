// SPDX-License-Identifier: Apache-2.0

package filterview

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// summary returns a frame in words: its addresses, its protocols and its length.
func summary(frame []byte) string {
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{NoCopy: true, Lazy: true})
	var words []string
	src, dst := "", ""
	for _, l := range p.Layers() {
		switch l := l.(type) {
		case *layers.Ethernet:
			src, dst = l.SrcMAC.String(), l.DstMAC.String()
			words = []string{fmt.Sprintf("ethertype 0x%04x", uint16(l.EthernetType))}
		case *layers.Dot1Q:
			words = append([]string{fmt.Sprintf("vlan %d", l.VLANIdentifier)}, fmt.Sprintf("ethertype 0x%04x", uint16(l.Type)))
		case *layers.ARP:
			words = replaceLast(words, "arp")
		case *layers.IPv4:
			if l.SrcIP == nil { // truncated
				break
			}
			src, dst = l.SrcIP.String(), l.DstIP.String()
			words = replaceLast(words, strings.ToLower(l.Protocol.String()))
			if l.FragOffset != 0 {
				words = append(words, fmt.Sprintf("fragment at %d", 8*int(l.FragOffset)))
			}
		case *layers.IPv6:
			if l.SrcIP == nil {
				break
			}
			src, dst = l.SrcIP.String(), l.DstIP.String()
			words = replaceLast(words, strings.ToLower(l.NextHeader.String()))
		case *layers.TCP:
			src, dst = withPort(src, int(l.SrcPort)), withPort(dst, int(l.DstPort))
			words = replaceLast(words, "tcp")
			if f := tcpFlags(l); f != "" {
				words = append(words, f)
			}
		case *layers.UDP:
			src, dst = withPort(src, int(l.SrcPort)), withPort(dst, int(l.DstPort))
			words = replaceLast(words, "udp")
		case *layers.ICMPv4:
			words = replaceLast(words, "icmp "+dashed(l.TypeCode.String()))
		case *layers.ICMPv6:
			words = replaceLast(words, "icmp6 "+dashed(l.TypeCode.String()))
		}
	}
	if src == "" {
		return fmt.Sprintf("%d bytes, no Ethernet frame", len(frame))
	}
	return fmt.Sprintf("%s > %s %s, %d bytes", src, dst, strings.Join(words, " "), len(frame))
}

func replaceLast(words []string, word string) []string {
	if len(words) == 0 {
		return []string{word}
	}
	words[len(words)-1] = word
	return words
}

// dashed converts EchoRequest to echo-request.
func dashed(name string) string {
	var b strings.Builder
	for n, r := range name {
		if n > 0 && unicode.IsUpper(r) && unicode.IsLower(rune(name[n-1])) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func withPort(address string, port int) string {
	if strings.Contains(address, ":") {
		return fmt.Sprintf("[%s]:%d", address, port)
	}
	return fmt.Sprintf("%s:%d", address, port)
}

func tcpFlags(t *layers.TCP) string {
	var set []string
	for _, f := range []struct {
		on   bool
		name string
	}{{t.SYN, "syn"}, {t.FIN, "fin"}, {t.RST, "rst"}, {t.PSH, "psh"}, {t.ACK, "ack"}, {t.URG, "urg"}} {
		if f.on {
			set = append(set, f.name)
		}
	}
	return strings.Join(set, ",")
}
