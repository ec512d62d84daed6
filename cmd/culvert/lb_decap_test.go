// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"culvert/internal/decap"
)

func TestLBDecapVerbs(t *testing.T) {
	b := newFilterBed(t)
	lb := func(status int, want, line string) string {
		t.Helper()
		return b.expect(status, want, append([]string{"lb", "decap"}, strings.Fields(line)...)...)
	}
	lb(0, "no tunnels end here", "show")
	lb(1, "interface nosuch", "add nosuch --vip 192.0.2.1")
	lb(1, "lo has no Ethernet address", "add lo --vip 192.0.2.1")
	lb(1, "no tunnels end on ft0", "del ft0")
	lb(0, "tunnels end on ft0", "add ft0 --local 10.0.0.11 --from 10.200.0.0/16 --vip 192.0.2.1 --gue-port 7000")
	list := lb(0, "no packets yet", "show")
	for _, want := range []string{"ft0  native, GUE on port 7000\n", "  to    10.0.0.11\n", "  from  10.200.0.0/16\n", "  VIPs  192.0.2.1\n"} {
		if !strings.Contains(list, want) {
			t.Errorf("the list lacks %q:\n%s", want, list)
		}
	}

	// Packets outside tunnels are counted too, to the interface's own address and to others.
	b.send(1, frame("198.51.100.1", 53))
	deadline := time.Now().Add(30 * time.Second)
	for !strings.Contains(lb(0, "ft0", "show"), "  pass     other") {
		if time.Now().After(deadline) {
			t.Fatal("the packet was not counted")
		}
		time.Sleep(10 * time.Millisecond)
	}
	var r decap.Report
	if err := json.Unmarshal([]byte(lb(0, "{", "show -j")), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Decap) != 1 || r.Decap[0].Name != "ft0" || r.Decap[0].Mode != "native" || r.Decap[0].GUEPort != 7000 ||
		len(r.Decap[0].Reasons) != 1 || r.Decap[0].Reasons[0].Name != "other" || r.Decap[0].Reasons[0].Verdict != "pass" ||
		r.Decap[0].Reasons[0].Packets != 1 || r.Decap[0].Reasons[0].Bytes == 0 {
		t.Errorf("%+v", r)
	}

	lb(1, "ft0 has it in native mode: to attach it in generic mode, take it off first (culvert lb decap del ft0)", "add ft0 --from any --local 10.0.0.11 --generic")
	config := b.file("c.toml", "interfaces = [\"ft0\"]\n[filter]\n")
	b.expect(1, "of 'culvert lb decap'", "attach", "-c", config, "ft0")
	lb(0, "taken off ft0", "del ft0")
	lb(0, `"decap":[]`, "show -j")

	lb(2, "say with --from where the balancers send from, or --from any", "add ft0 --local 10.0.0.11")
	lb(0, "no tunnels end here", "show")
	lb(0, "warning: ft0: anybody who reaches this host can put packets", "add ft0 --from any --local 10.0.0.11 --generic")
	lb(0, "ft0  generic", "show")
	lb(0, "  OPEN  anybody who reaches this host", "show")
	lb(0, `"open":true`, "show -j")
	if _, report, _ := culvert(t, "doctor", "-i", "ft0"); !strings.Contains(report, "decap-open") {
		t.Errorf("doctor does not warn:\n%s", report)
	}
	b.expect(0, "detached from ft0", "detach", "ft0")
	b.expect(1, "culvert is not attached to ft0", "detach", "ft0")
	lb(0, "tunnels end on ft1", "add ft0 ft1 --vip 192.0.2.1 --local 10.0.0.11")
	lb(0, `"open":false`, "show -j")
	b.expect(0, "the end of tunnels on ft1 detached", "detach", "--all")
	lb(0, "no tunnels end here", "show")

	// Tunnels cannot end on an interface of the data plane, and the error names that.
	b.expect(0, "", "attach", "-c", config, "ft0")
	lb(1, "interface ft0 carries XDP program", "add ft1 ft0 --vip 192.0.2.1 --local 10.0.0.11")
	lb(1, "culvert's data plane c", "add ft0 --vip 192.0.2.1 --local 10.0.0.11")
	lb(0, "no tunnels end here", "show")
}

// TestLBDecapOwnAddresses: by default tunnels end at all addresses of the host.
func TestLBDecapOwnAddresses(t *testing.T) {
	b := newFilterBed(t)
	b.expect(1, "this host has no address", "lb", "decap", "add", "ft0", "--vip", "192.0.2.1")
	l, err := netlink.LinkByName("ft0")
	if err != nil {
		t.Fatal(err)
	}
	addr, err := netlink.ParseAddr("10.0.0.12/24")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(l, addr); err != nil {
		t.Fatal(err)
	}
	b.expect(0, "tunnels end on ft0", "lb", "decap", "add", "ft0", "--vip", "192.0.2.1")
	b.expect(0, "  to    10.0.0.12\n", "lb", "decap", "show")
	b.expect(0, "", "lb", "decap", "del", "ft0")
}
