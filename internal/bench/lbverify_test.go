// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"culvert/internal/testbed"
)

// Every balancer that this machine has does what it should with all packets, and is seen to.
func TestBalancers(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	for _, c := range lbCandidates() {
		if c.device == nil {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			for _, g := range []*lbGroup{{name: "known", flows: lbClients, cores: 1}, {name: "syn", flows: lbEndless, syn: true, cores: 1}} {
				row := newLBRow(c, g, Options{})
				err := row.Setup(t.Context())
				if err == nil && row.alone {
					err = row.open(t.Context())
				}
				if err == nil {
					_, err = row.gen.Run(t.Context(), 100)
				}
				if err == nil {
					seen, settleErr := row.sink.Settled(settleQuiet, settleLimit)
					if seen.Packets != 100 {
						t.Errorf("%s: %d packets of 100 arrived", row.name, seen.Packets)
					}
					tracked, known := tracks(t, row.path.In.Space), lbClients
					if g.syn {
						known += 100
					}
					if natted := c.name == "nft-jhash" || c.name == "iptables-statistic"; natted != (tracked == known) || !natted && tracked > 0 {
						t.Errorf("%s: %d flows are tracked, %d were sent", row.name, tracked, known)
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

// tracks is how many connections are tracked in a namespace.
func tracks(t *testing.T, s *Space) (n int) {
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

// A balancer that does not do its work is found out before it is measured.
func TestBalancersThatDoNot(t *testing.T) {
	testbed.NeedRoot(t)
	testbed.CheckLeftovers(t)
	jhash := lbPeers()["nft-jhash"]
	changed := func(old, new string) *lbPeer {
		p := jhash()
		p.rules = func(Path) string { return strings.ReplaceAll(nftJHash(), old, new) }
		return p
	}
	for name, tc := range map[string]struct {
		peer *lbPeer
		want string
	}{
		"no rules":     {&lbPeer{arrival: lbRewritten}, "it is for 192.0.2.1, not for 198.19.0.101"},
		"another port": {changed("dport 80", "dport 81"), "it is for 192.0.2.1"},
		"one backend": {func() *lbPeer {
			p := jhash()
			p.rules = func(Path) string {
				return fmt.Sprintf("table ip t {\n chain c {\n type nat hook prerouting priority dstnat\n%s dnat to %s\n}\n}\n", lbService, lbBackend(7))
			}
			return p
		}(), "of 3000 packets 3000 went to 198.19.0.108"},
		"few backends": {changed("mod 100", "mod 50"), "of 100 backends 50 got packets"},
		"drops":        {changed("dnat to", "ip saddr & 0.0.0.8 == 0 drop\n"+lbService+" dnat to"), "arrived"},
		"by packet": {func() *lbPeer {
			p := lbPeers()["nft-netdev"]()
			p.rules = func(path Path) string { return strings.Replace(nftNetdev(path), lbHash, "numgen inc mod 99", 1) }
			return p
		}(), "arrived at"},
		"no checksum": {func() *lbPeer {
			p := lbPeers()["nft-netdev"]()
			p.rules = func(path Path) string {
				return strings.Replace(nftNetdev(path), lbService, lbService+" tcp checksum set 1", 1)
			}
			return p
		}(), "right length and checksum"},
	} {
		t.Run(name, func(t *testing.T) {
			row := newLBRow(candidate{device: func(Terms) Device { return tc.peer }}, &lbGroup{flows: lbClients, cores: 1}, Options{})
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

// Packets are taken apart as they arrive, and what is not as it should be is found.
func TestArrivals(t *testing.T) {
	client := lbClient(3)
	to := func(backend int, f []byte) []byte {
		return Addressed([][]byte{f}, lbBackendMAC(backend), lbBackendMAC(101))[0]
	}
	same := to(5, lbPacket(client, true))
	inner := same[14:]
	// IPv4 with protocol 4 and a right checksum, from the balancer to backend 5.
	outer := []byte{0x45, 0, 0, 72, 0, 0, 0x40, 0, 64, 4, 0, 0, 198, 19, 0, 1, 198, 19, 0, 106}
	sum := ^onesSum(outer)
	outer[10], outer[11] = byte(sum>>8), byte(sum)
	tunnelled := bytes.Join([][]byte{same[:14], outer, inner}, nil)
	// The same in UDP: from some port to that of GUE, without a checksum.
	outer = append(bytes.Clone(outer), 0xc0, 1, 0x17, 0xc0, 0, 60, 0, 0)
	outer[3], outer[9], outer[10], outer[11] = 80, 17, 0, 0
	sum = ^onesSum(outer[:20])
	outer[10], outer[11] = byte(sum>>8), byte(sum)
	inUDP := bytes.Join([][]byte{same[:14], outer, inner}, nil)
	wrongPort, wrongLength := bytes.Clone(inUDP), bytes.Clone(inUDP)
	wrongPort[14+23]++
	wrongLength[14+25]++
	for _, tc := range []struct {
		a    lbArrival
		f    []byte
		want string
	}{
		{lbSent, same, ""}, {lbUnchanged, same, ""}, {lbTunnelled, tunnelled, ""}, {lbInUDP, inUDP, ""},
		{lbRewritten, same, "it is for 192.0.2.1, not for 198.19.0.106"},
		{lbTunnelled, same, "it is for 192.0.2.1, not for 198.19.0.106"},
		{lbSent, tunnelled, "it is for 198.19.0.106, not for 192.0.2.1"},
		{lbSent, to(lbBackends, lbPacket(client, true)), "Ethernet address"},
		{lbSent, same[:len(same)-1], "right length"},
		{lbSent, same[:30], "Ethernet address"},
		{lbTunnelled, tunnelled[:40], "no other packet"},
		{lbTunnelled, inUDP, "no other packet"},
		{lbInUDP, tunnelled, "no other packet"},
		{lbInUDP, inUDP[:38], "no other packet"},
		{lbInUDP, wrongPort, "no other packet"},
		{lbInUDP, wrongLength, "no other packet"},
	} {
		got, backend, err := tc.a.read(tc.f)
		switch {
		case tc.want == "" && (err != nil || backend != 5 || got != client):
			t.Errorf("%d of %x: %s at %d, error %v", tc.a, tc.f, got, backend, err)
		case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
			t.Errorf("%d of %x: error %v, want %q", tc.a, tc.f, err, tc.want)
		}
	}
	wrong := bytes.Clone(same)
	wrong[24]++
	if _, _, err := lbSent.read(wrong); err == nil || !strings.Contains(err.Error(), "header") {
		t.Errorf("a wrong checksum of IP: error %v", err)
	}
}
