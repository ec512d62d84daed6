// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"
)

func TestParseSNMP(t *testing.T) {
	got := parseSNMP("Ip: Forwarding InDiscards\nIp: 1 7\nUdp: InDatagrams NoPorts\nUdp: 1355 3\nIp6InNoRoutes                   \t23\nIpExt: InNoRoutes InOctets\nIpExt: 5 6\n")
	for name, want := range map[string]uint64{"IpInDiscards": 7, "UdpNoPorts": 3, "Ip6InNoRoutes": 23, "IpExtInNoRoutes": 5, "IpForwarding": 1} {
		if got[name] != want {
			t.Errorf("%s is %d, want %d: %v", name, got[name], want, got)
		}
	}
}

// TestMayExplain wants a counter to explain only traffic that it can have counted.
func TestMayExplain(t *testing.T) {
	for cause, want := range map[string]string{
		"to-as1: punt scion-link-down": "scion as1 > as3, scion, former key",
		"to-as3: lost transmit":        "scion as3 > as1",
		"to-as1: limited scion-mac":    "scion, former key",
		"to-client: lost redirect":     "routed IPv4, balanced IPv6",
		"to-b1: lost redirect":         "its answers, IPv4",
		"to-peer: lost redirect":       "",
		"kernel: rut IpInDiscards":     "routed IPv4, its answers, IPv4",
		"kernel: b1 Udp6InErrors":      "balanced IPv6",
		"kernel: rut Ip6InNoRoutes":    "balanced IPv6",
		"kernel: rut UdpRcvbufErrors":  "scion as1 > as3, scion as3 > as1, scion, former key",
	} {
		var got []string
		for _, kind := range []string{"scion as1 > as3", "scion as3 > as1", "scion, former key", "routed IPv4", "balanced IPv6", "its answers, IPv4"} {
			if mayExplain(kind, cause) {
				got = append(got, kind)
			}
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s may explain %q, want %q", cause, text, want)
		}
	}
}

// TestLosses wants reasons that are forwarded all the same to explain nothing.
func TestLosses(t *testing.T) {
	for reason, want := range map[string]bool{
		"drop filter": false, "drop filter-limit": false, "drop lb-empty": true, "fwd route": false, "punt route-neighbor": false,
		"limited route-neighbor": true, "punt scion-link-down": true, "punt scion-bfd": false, "lost transmit": true, "pass other": false,
	} {
		if isLoss(reason) != want {
			t.Errorf("%s: %t, want %t", reason, !want, want)
		}
	}
}

// TestExcused wants a broken connection to be excused by a server that was away meanwhile, and by no other.
func TestExcused(t *testing.T) {
	w := &web{}
	before := time.Now()
	if w.excused(before) {
		t.Error("excused though no server was away")
	}
	back := w.serverGone()
	if !w.excused(time.Now()) {
		t.Error("not excused while a server is away")
	}
	back()
	if !w.excused(before) || w.excused(time.Now().Add(webGrace+time.Second)) {
		t.Error("excused by a server that is back for long, or not by one that was away")
	}
}
