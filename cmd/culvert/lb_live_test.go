// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

const lbConfig = `interfaces = ["lb0"]
[lb]
source4 = "10.200.0.0/16"
[[lb.vip]]
address = "192.0.2.1:80"
protocol = "tcp"
[[lb.vip.backend]]
address = "10.0.0.11"
[[lb.vip.backend]]
address = "10.0.0.12"
encapsulation = "gue"
weight = 3
[[lb.vip]]
address = "[2001:db8::1]:80"
protocol = "tcp"
[[lb.vip.backend]]
address = "fd00::11"
`

// TestLBEdits changes a load balancer under load. No packet is lost, and changes made by hand stay.
func TestLBEdits(t *testing.T) {
	b := newLBBed(t)
	const vip4, vip6 = "192.0.2.1:80/tcp", "[2001:db8::1]:80/tcp"
	path := b.file(lbConfig)
	b.lb(1, "no load balancer in this network namespace", "vip del "+vip4)
	run := startCulvert(t, "run", "-c", path)
	for _, backend := range []string{"10.0.0.11", "10.0.0.12", "fd00::11"} {
		run.waitFor(t, `msg="backend is up" vip=`+map[bool]string{true: vip4, false: vip6}[backend[0] == '1'])
		run.waitFor(t, "backend="+backend)
	}
	stop4, stop6 := b.load("192.0.2.1:80"), b.load("[2001:db8::1]:80")
	b.reaches("10.0.0.11")
	b.reaches("10.0.0.12")
	b.reaches("fd00::11")

	b.lb(0, "VIP 192.0.2.1:80/tcp: backend 10.0.0.13 added\n", "backend add "+vip4+" 10.0.0.13 --weight 2")
	b.reaches("10.0.0.13")
	b.lb(1, "VIP 192.0.2.1:80/tcp has backend 10.0.0.13 already", "backend add "+vip4+" 10.0.0.13")
	b.lb(0, "VIP [2001:db8::1]:80/tcp: backend 10.0.0.11 added\n", "backend add "+vip6+" 10.0.0.11 --encap gue")
	b.lb(0, "backend 10.0.0.12 is drained\n", "drain "+vip4+" 10.0.0.12")
	b.leaves("10.0.0.12")
	run.waitFor(t, `msg="backend is drained by hand, until 'culvert lb undrain'" vip=192.0.2.1:80/tcp backend=10.0.0.12`)
	b.lb(0, "the configuration file says otherwise", "backend set "+vip4+" 10.0.0.11 --weight 5 --encap gue")
	b.lb(0, "backend 10.0.0.12 is not drained any more\n", "undrain "+vip4+" 10.0.0.12")
	b.reaches("10.0.0.12")
	b.lb(0, "VIP 192.0.2.9/udp added\n", "vip add 192.0.2.9/udp --hash source --check udp --check-port 53")
	b.lb(0, "VIP 192.0.2.9/udp changed\n", "vip set 192.0.2.9/udp --check none --on-failure move")
	b.lb(1, "VIP 192.0.2.9/udp: backend 192.0.2.1: its address is that of VIP 192.0.2.1:80/tcp", "backend add 192.0.2.9/udp 192.0.2.1")
	b.lb(0, "VIP 192.0.2.9/udp deleted\n", "vip del 192.0.2.9/udp")
	b.lb(1, "no VIP 192.0.2.9/udp", "vip del 192.0.2.9/udp")
	b.lb(0, "VIP 192.0.2.1:80/tcp: backend 10.0.0.13 deleted\n", "backend del "+vip4+" 10.0.0.13")
	b.leaves("10.0.0.13")
	b.lb(0, "", "backend add "+vip4+" 10.0.0.13")
	b.lb(0, "", "drain "+vip4+" 10.0.0.11")
	b.lb(0, "", "drain "+vip6)
	sent := stop4() + stop6()
	b.wait("all packets arrive", func() bool { return b.all.Load() >= sent })
	if got := b.all.Load(); got != sent {
		t.Errorf("of %d packets %d have arrived: %v", sent, got, b.got)
	}

	// VIPs and backends made by hand stay, and so do drains. Settings of the file are restored.
	id, before := b.backend(vip4, "10.0.0.12").ID, b.all.Load()
	stop4 = b.load("192.0.2.1:80")
	run.interrupt(t)
	b.lb(0, "VIP 192.0.2.7:443/tcp added", "vip add 192.0.2.7:443/tcp")
	run = startCulvert(t, "run", "-c", path)
	run.waitFor(t, "adopted=true")
	b.wait("the file's backend has the file's weight", func() bool { return b.backend(vip4, "10.0.0.11").Weight == 1 })
	if r := b.backend(vip4, "10.0.0.11"); !r.Drained || !r.File || r.Encap != "ipip" || r.GUEPort != 0 {
		t.Errorf("got %+v", r)
	}
	if r := b.backend(vip4, "10.0.0.13"); r.ID == 0 || r.File || b.backend(vip4, "10.0.0.12").ID != id {
		t.Errorf("got %+v", r)
	}
	if s := b.state(); len(s.VIPs) != 3 || s.VIPs[2].File || !s.VIPs[1].Drained {
		t.Errorf("got %+v", s)
	}
	b.reaches("10.0.0.13")
	sent = stop4()
	b.wait("all packets arrive", func() bool { return b.all.Load() >= before+sent })
	run.interrupt(t)

	// A file that contradicts what was made by hand is refused before anything is touched.
	const more = "[[lb.vip]]\nprotocol = \"tcp\"\naddress = \"192.0.2.7:443\"\nhash = \"source\"\n"
	b.expect(1, "c.toml:20:11: VIP 192.0.2.7:443/tcp: it is there already, made by hand and in another way", "run", "-c", b.file(lbConfig+more))
	b.expect(1, "c.toml:8:11: VIP 192.0.2.1:80/tcp: backend 10.0.0.13: it is there already, made by hand",
		"attach", "-c", b.file(strings.Replace(lbConfig, "10.0.0.11\"\n", "10.0.0.13\"\nweight = 7\n", 1)), "lb0")
	b.expect(1, "VIP [2001:db8::1]:80/tcp: backend 10.0.0.11: it was made by hand, and the file has the VIP no more",
		"attach", "-c", b.file(lbConfig[:strings.LastIndex(lbConfig, "[[lb.vip]]")]), "lb0")
	if s := b.state(); len(s.VIPs) != 3 || b.backend(vip4, "10.0.0.13").Weight != 1 {
		t.Errorf("got %+v", s)
	}
	// What is the same in both becomes the file's. The rings have another size, and there is no process.
	ring := strings.Replace(lbConfig, "[lb]\n", "[lb]\nring_size = 1021\n", 1)
	b.expect(0, "culvert attached to lb0", "attach", "-c", b.file(ring+strings.Replace(more, "hash = \"source\"\n", "", 1)), "lb0")
	if s := b.state(); len(s.VIPs) != 3 || !s.VIPs[2].File {
		t.Errorf("got %+v", s)
	}
	stop4 = b.load("192.0.2.1:80")
	b.reaches("10.0.0.12")
	b.lb(0, "", "undrain "+vip4+" 10.0.0.11")
	b.reaches("10.0.0.11")
	b.lb(0, "no way to backend 10.9.9.9 yet", "backend add "+vip4+" 10.9.9.9")
	stop4()
}
