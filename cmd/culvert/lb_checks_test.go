// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/lb/lbplane"
)

// host makes backend 10.0.0.11 a network namespace, with 192.0.2.1 on its loopback interface. It returns a function that runs
// other functions there.
func (b *lbBed) host() (do func(func())) {
	b.t.Helper()
	out1, err := netlink.LinkByName("out1")
	must(err)
	space, work := make(chan int), make(chan func())
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the test
		must(unix.Unshare(unix.CLONE_NEWNET))
		fd, err := unix.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(err)
		space <- fd
		for f := range work {
			f()
		}
	}()
	b.t.Cleanup(func() { close(work) })
	fd := <-space
	must(netlink.LinkSetNsFd(out1, fd))
	unix.Close(fd)
	do = func(f func()) {
		done := make(chan bool)
		work <- func() { f(); close(done) }
		<-done
	}
	do(func() {
		for name, text := range map[string]string{"out1": "10.0.0.11/24", "lo": "192.0.2.1/32"} {
			l, err := netlink.LinkByName(name)
			must(err)
			if name == "out1" {
				must(netlink.LinkSetHardwareAddr(l, net.HardwareAddr{2, 0, 0, 0, 0, 11}))
			}
			addr, err := netlink.ParseAddr(text)
			must(err)
			must(netlink.AddrAdd(l, addr))
			must(netlink.LinkSetUp(l))
		}
	})
	return do
}

// TestLBChecks starts, stops and starts the service of a backend.
func TestLBChecks(t *testing.T) {
	b := newLBBed(t)
	on := b.host()
	out, err := netlink.LinkByName("out0")
	must(err)
	must(netlink.RouteAdd(&netlink.Route{
		LinkIndex: out.Attrs().Index, Dst: &net.IPNet{IP: net.IPv4(192, 0, 2, 1).To4(), Mask: net.CIDRMask(32, 32)}, Gw: net.IPv4(10, 0, 0, 11),
	}))
	var service net.Listener
	listen := func() {
		on(func() {
			var err error
			service, err = net.Listen("tcp", "192.0.2.1:80")
			must(err)
		})
	}
	listen()
	const check = "[lb.vip.check]\ntype = \"tcp\"\ninterval = \"1s\"\ntimeout = \"1s\"\n"
	path := b.file("interfaces = [\"lb0\"]\n[lb]\n[[lb.vip]]\naddress = \"192.0.2.1:80\"\nprotocol = \"tcp\"\nencapsulation = \"l2\"\n" +
		"on_failure = \"move\"\n" + check + "[[lb.vip.backend]]\naddress = \"10.0.0.11\"\n")
	run := startCulvert(t, "run", "-c", path)
	const vip = "192.0.2.1:80/tcp"
	health := func(want lbplane.HealthState, down bool) lbplane.Health {
		t.Helper()
		var h lbplane.Health
		b.wait("the backend is "+want.String(), func() bool {
			all, err := datapath.ListHere()
			must(err)
			defer all[0].Close()
			p, err := lbplane.View(all[0])
			must(err)
			id := b.backend(vip, "10.0.0.11").ID
			h, err = p.Health(id.Number())
			must(err)
			m, err := p.Backend(id.Number())
			must(err)
			vips, err := p.VIPs()
			must(err)
			empty := false
			for _, v := range vips {
				empty = v.Empty
			}
			return h.State == want && h.Backend == id && m.Down == down && empty == down
		})
		return h
	}
	run.waitFor(t, `msg="backend is up" vip=`+vip)
	health(lbplane.Up, false)
	service.Close()
	run.waitFor(t, `msg="backend is down" vip=192.0.2.1:80/tcp backend=10.0.0.11 why="its checks fail" check="`)
	run.waitFor(t, `msg="no backend takes new flows" vip=`+vip)
	before := health(lbplane.Down, true)
	if !strings.Contains(before.Text, "refused") {
		t.Errorf("it says %q", before.Text)
	}

	// A new process does not take the backend for healthy again.
	run.interrupt(t)
	run = startCulvert(t, "run", "-c", path)
	run.waitFor(t, "adopted=true")
	b.wait("checks go on", func() bool { return health(lbplane.Down, true).Checks > before.Checks+2 })
	listen()
	run.waitFor(t, `msg="backend is up" vip=`+vip)
	health(lbplane.Up, false)

	// A backend without checks is not down.
	service.Close()
	run.waitFor(t, `msg="backend is down"`)
	b.lb(0, "VIP "+vip+" changed\n", "vip set "+vip+" --check none")
	health(lbplane.Down, false)
	run.interrupt(t)
}
