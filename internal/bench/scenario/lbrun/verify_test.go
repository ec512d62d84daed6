// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario"
	"culvert/internal/testbed"
)

// Every balancer passes verify, forwards all packets, and tracks flows only if it does NAT.
func TestBalancers(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	for _, c := range candidates() {
		if c.Device == nil {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			for _, g := range []*group{{name: "known", flows: clients, cores: 1}, {name: "syn", flows: endless, syn: true, cores: 1}} {
				row := newRow(c, g, scenario.Options{})
				err := row.Setup(t.Context())
				if err == nil && row.Exclusive {
					err = row.Open(t.Context())
				}
				if err == nil {
					_, err = row.Gen.Run(t.Context(), 100)
				}
				if err == nil {
					seen, settleErr := row.Sink.Settled(scenario.SettleQuiet, scenario.SettleLimit)
					if seen.Packets != 100 {
						t.Errorf("%s: %d packets of 100 arrived", row.Label, seen.Packets)
					}
					tracked, sent := trackedFlows(t, row.Path.In.Netns), clients
					if g.syn {
						sent += 100
					}
					if nat := c.Name == "nft-jhash" || c.Name == "iptables-statistic"; nat != (tracked == sent) || !nat && tracked > 0 {
						t.Errorf("%s: %d flows are tracked, %d were sent", row.Label, tracked, sent)
					}
					err = settleErr
				}
				if err = errors.Join(err, row.Teardown()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// trackedFlows is the number of flows that connection tracking has in a namespace.
func trackedFlows(t *testing.T, s *load.Netns) (n int) {
	t.Helper()
	err := s.Do(func() error {
		text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
		if err == nil {
			n, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A balancer that does not do its work fails before it is measured.
func TestBalancersThatDoNotBalance(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	jhash := kernelPeers()["nft-jhash"]
	changed := func(old, new string) *kernelPeer {
		p := jhash()
		p.rules = func(peer.Path) string { return strings.ReplaceAll(nftJHash(), old, new) }
		return p
	}
	for name, tc := range map[string]struct {
		peer *kernelPeer
		want string
	}{
		"no rules":     {&kernelPeer{arrival: arrivesRewritten}, "it is for 192.0.2.1, not for 198.19.0.101"},
		"another port": {changed("dport 80", "dport 81"), "it is for 192.0.2.1"},
		"one backend": {func() *kernelPeer {
			p := jhash()
			p.rules = func(peer.Path) string {
				return fmt.Sprintf("table ip t {\n chain c {\n type nat hook prerouting priority dstnat\n%s dnat to %s\n}\n}\n", service, backendAddr(7))
			}
			return p
		}(), "of 3000 packets 3000 went to 198.19.0.108"},
		"few backends": {changed("mod 100", "mod 50"), "of 100 backends 50 got packets"},
		"drops":        {changed("dnat to", "ip saddr & 0.0.0.8 == 0 drop\n"+service+" dnat to"), "arrived"},
		"by packet": {func() *kernelPeer {
			p := kernelPeers()["nft-netdev"]()
			p.rules = func(path peer.Path) string { return strings.Replace(nftNetdev(path), hashExpr, "numgen inc mod 99", 1) }
			return p
		}(), "arrived at"},
		"no checksum": {func() *kernelPeer {
			p := kernelPeers()["nft-netdev"]()
			p.rules = func(path peer.Path) string {
				return strings.Replace(nftNetdev(path), service, service+" tcp checksum set 1", 1)
			}
			return p
		}(), "right length and checksum"},
	} {
		t.Run(name, func(t *testing.T) {
			row := newRow(peer.Candidate{Device: func(peer.DeviceOptions) peer.Device { return tc.peer }}, &group{flows: clients, cores: 1}, scenario.Options{})
			err := row.Setup(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if err := row.Teardown(); err != nil {
				t.Error(err)
			}
		})
	}
}

// read returns client and backend of packets in the right form, and an error for all others.
func TestArrivals(t *testing.T) {
	client := clientAddr(3)
	to := func(backend int, f []byte) []byte {
		return load.Addressed([][]byte{f}, backendMAC(backend), backendMAC(101))[0]
	}
	plain := to(5, makePacket(client, true))
	inner := plain[14:]
	// IPv4 with protocol 4 and a right checksum, from the balancer to backend 5.
	outer := []byte{0x45, 0, 0, 72, 0, 0, 0x40, 0, 64, 4, 0, 0, 198, 19, 0, 1, 198, 19, 0, 106}
	sum := ^load.OnesSum(outer)
	outer[10], outer[11] = byte(sum>>8), byte(sum)
	tunnelled := bytes.Join([][]byte{plain[:14], outer, inner}, nil)
	// The same in UDP: from some port to that of GUE, without a checksum.
	outer = append(bytes.Clone(outer), 0xc0, 1, 0x17, 0xc0, 0, 60, 0, 0)
	outer[3], outer[9], outer[10], outer[11] = 80, 17, 0, 0
	sum = ^load.OnesSum(outer[:20])
	outer[10], outer[11] = byte(sum>>8), byte(sum)
	inUDP := bytes.Join([][]byte{plain[:14], outer, inner}, nil)
	// corrupt returns a copy of a frame with one byte changed.
	corrupt := func(f []byte, offset int) []byte {
		f = bytes.Clone(f)
		f[offset]++
		return f
	}
	const ipChecksum, udpPort, udpLength = 14 + 10, 14 + 20 + 3, 14 + 20 + 5
	for _, tc := range []struct {
		name      string
		form      arrivalForm
		frame     []byte
		wantError string // empty for client at backend 5
	}{
		{"for a backend's Ethernet address", arrivesSent, plain, ""},
		{"unchanged", arrivesUnchanged, plain, ""},
		{"IP in IP", arrivesTunnelled, tunnelled, ""},
		{"in UDP", arrivesInUDP, inUDP, ""},
		{"not rewritten", arrivesRewritten, plain, "it is for 192.0.2.1, not for 198.19.0.106"},
		{"not tunnelled", arrivesTunnelled, plain, "it is for 192.0.2.1, not for 198.19.0.106"},
		{"tunnelled instead of plain", arrivesSent, tunnelled, "it is for 198.19.0.106, not for 192.0.2.1"},
		{"for an unknown backend", arrivesSent, to(backendCount, makePacket(client, true)), "Ethernet address"},
		{"cut by a byte", arrivesSent, plain[:len(plain)-1], "right length"},
		{"cut within the IP header", arrivesSent, plain[:30], "Ethernet address"},
		{"wrong IP checksum", arrivesSent, corrupt(plain, ipChecksum), "header"},
		{"tunnelled and cut within the inner header", arrivesTunnelled, tunnelled[:40], "no other packet"},
		{"in UDP instead of IP in IP", arrivesTunnelled, inUDP, "no other packet"},
		{"IP in IP instead of in UDP", arrivesInUDP, tunnelled, "no other packet"},
		{"in UDP and cut within the UDP header", arrivesInUDP, inUDP[:38], "no other packet"},
		{"in UDP for another port", arrivesInUDP, corrupt(inUDP, udpPort), "no other packet"},
		{"in UDP with a wrong length", arrivesInUDP, corrupt(inUDP, udpLength), "no other packet"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, backend, err := tc.form.read(tc.frame)
			switch {
			case tc.wantError == "" && (err != nil || backend != 5 || got != client):
				t.Errorf("%x: %s at %d, error %v", tc.frame, got, backend, err)
			case tc.wantError != "" && (err == nil || !strings.Contains(err.Error(), tc.wantError)):
				t.Errorf("%x: error %v, want %q", tc.frame, err, tc.wantError)
			}
		})
	}
}
