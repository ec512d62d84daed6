// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"testing"
)

// TestChangesUnderLoad changes rules, sets, VIPs and backends over root's socket while numbered packets flow. All arrive, but those that a
// rule of the file drops.
func TestChangesUnderLoad(t *testing.T) {
	b := newLBBed(t)
	const vip = "192.0.2.1:80"
	file := b.file("interfaces = ['lb0']\n[filter]\n[[filter.set]]\nname = 's'\nentries = ['198.51.100.0/24']\n" +
		"[[filter.rule]]\nname = 'asked'\naction = 'drop'\nexpression = 'src host 203.0.113.0 and tcp src portrange 100-199'\n" +
		"[[filter.rule]]\nname = 'r'\naction = 'drop'\nsrc = ['@s']\n" +
		"[lb]\nflows = 65536\n[[lb.vip]]\naddress = '" + vip + "'\nprotocol = 'tcp'\n[[lb.vip.backend]]\naddress = '10.0.0.11'\n" +
		"[[lb.vip.backend]]\naddress = '10.0.0.12'\n")
	p := runAttached(t, file)
	f := &filterBed{t: t, dir: b.dir}
	f.eventually("changes nothing", "reload --dry-run")
	// These packets are numbered apart from those that follow. The first ones are lost, until the way to a backend is known.
	const first = 1 << 20
	client := uint32(first)
	for _, backend := range []string{"10.0.0.11", "10.0.0.12"} {
		b.wait("the way to "+backend+" is known", func() bool {
			b.send(netip.MustParseAddrPort(vip), client)
			client++
			return b.arrived(backend) > 0
		})
	}
	arrived := func() (n uint64) {
		b.mu.Lock()
		defer b.mu.Unlock()
		for client, got := range b.clients {
			if client < first {
				n += uint64(got)
			}
		}
		return n
	}

	stop := b.load(vip)
	change := func(path, body string, args ...any) {
		t.Helper()
		if status, text := post(t, path, fmt.Sprintf(body, args...)); status != 200 {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	changes := 0
	for n := range 5 {
		for _, c := range []struct{ path, body string }{
			{"/v1/filter/add", fmt.Sprintf(`{"rule": "x", "action": "drop", "expression": "udp port %d", "first": true}`, 5+n)},
			{"/v1/filter/add", `{"rule": "seen", "action": "count", "expression": "tcp dst port 80"}`},
			{"/v1/filter/set/add", fmt.Sprintf(`{"set": "s", "entries": ["198.51.%d.0/24", "2001:db8::%d"]}`, 101+n, n)},
			{"/v1/lb/backend/add", `{"vip": "192.0.2.1:80/tcp", "backend": "10.0.0.13", "weight": 3}`},
			{"/v1/lb/vip/add", `{"vip": "192.0.2.2:443/tcp"}`},
			{"/v1/lb/drain", `{"vip": "192.0.2.1:80/tcp", "backend": "10.0.0.11"}`},
			{"/v1/lb/backend/set", fmt.Sprintf(`{"vip": "192.0.2.1:80/tcp", "backend": "10.0.0.12", "weight": %d}`, 2+n)},
			{"/v1/filter/set/replace", fmt.Sprintf(`{"set": "s", "entries": ["198.51.%d.0/24"]}`, 100+n)},
			{"/v1/lb/undrain", `{"vip": "192.0.2.1:80/tcp", "backend": "10.0.0.11"}`},
			{"/v1/filter/del", `{"rules": ["x", "seen"]}`},
			{"/v1/lb/backend/del", `{"vip": "192.0.2.1:80/tcp", "backend": "10.0.0.13"}`},
			{"/v1/lb/vip/del", `{"vip": "192.0.2.2:443/tcp"}`},
		} {
			change(c.path, "%s", c.body)
			changes++
		}
	}
	sent := stop()
	dropped := min(max(sent, 200), 400) - 200 // two packets of each client
	b.wait("all packets arrive", func() bool { return arrived() == sent-dropped })
	b.mu.Lock()
	defer b.mu.Unlock()
	var wrong []string
	for client := range uint32(sent+1) / 2 {
		want := int(min(2, sent-2*uint64(client)))
		if client >= 100 && client < 200 {
			want = 0
		}
		if got := b.clients[client]; got != want {
			wrong = append(wrong, fmt.Sprintf("%d of client %d instead of %d", got, client, want))
		}
	}
	if len(wrong) > 0 {
		t.Errorf("of %d packets, under %d changes, have arrived: %.500q", sent, changes, wrong)
	}
	if sent < uint64(changes) {
		t.Errorf("only %d packets were sent", sent)
	}
	t.Logf("%d packets, %d changes", sent, changes)
	p.interrupt(t)
}
