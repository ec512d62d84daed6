// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/host/netdev"
	"culvert/internal/route"
	"culvert/internal/route/routeplane"
)

// patience bounds every wait. A test that passes does not wait nearly as long.
const patience = 30 * time.Second

// bed is a router in a network namespace. The interfaces west and east carry culvert, south does not.
type bed struct {
	t      *testing.T
	inst   *datapath.Instance
	plane  *routeplane.Plane
	status route.Status
	stop   func()
}

// pins are the pin directories of running tests, which TestMain removes on an interrupt.
var pins sync.Map

func TestMain(m *testing.M) {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-interrupted
		pins.Range(func(dir, _ any) bool {
			_ = os.RemoveAll(dir.(string))
			return true
		})
		os.Exit(130)
	}()
	os.Exit(m.Run())
}

// inNamespace moves the test to a thread of its own with an empty network namespace, which ends with it.
func inNamespace(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run 'make test-root'")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	for _, which := range []string{"all", "default"} {
		sysctl(t, "ipv6/conf/"+which+"/forwarding", "1")
		sysctl(t, "ipv4/conf/"+which+"/forwarding", "1")
		sysctl(t, "ipv4/conf/"+which+"/rp_filter", "0")
		sysctl(t, "ipv4/conf/"+which+"/send_redirects", "1")
		sysctl(t, "ipv6/conf/"+which+"/accept_dad", "0")
	}
}

func sysctl(t *testing.T, name, value string) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ip runs ip(8) in the test's network namespace.
func ip(t *testing.T, args string) {
	t.Helper()
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", args, err, out)
	}
}

func addVeth(t *testing.T, name string) {
	t.Helper()
	attrs := netlink.LinkAttrs{Name: name, NumTxQueues: 1, NumRxQueues: 1}
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name + "p"}))
	for _, end := range []string{name, name + "p"} {
		l, err := netlink.LinkByName(end)
		must(t, err)
		must(t, netlink.LinkSetUp(l))
	}
	// With GRO the peer uses NAPI, and takes redirected frames. It must be up for the kernel to apply that.
	_, err := netdev.Ethtool(name+"p", unix.ETHTOOL_SGRO, 1)
	must(t, err)
}

// newBed sets a router up with routes of all kinds.
func newBed(t *testing.T, o routeplane.Options) *bed {
	t.Helper()
	inNamespace(t)
	for _, name := range []string{"west", "east", "south"} {
		addVeth(t, name)
	}
	for n, dev := range []string{"west", "east", "south"} {
		ip(t, fmt.Sprintf("addr add 10.%d.0.1/24 dev %s", n+1, dev))
		ip(t, fmt.Sprintf("addr add fd0%d::1/64 dev %s nodad", n+1, dev))
	}
	for _, cmd := range []string{
		"link set lo up",
		"neigh replace 10.1.0.9 lladdr 02:00:00:00:00:19 dev west nud permanent",
		"neigh replace 10.2.0.9 lladdr 02:00:00:00:00:09 dev east nud permanent",
		"neigh replace 10.2.0.8 lladdr 02:00:00:00:00:08 dev east nud permanent",
		"neigh replace 10.3.0.9 lladdr 02:00:00:00:00:39 dev south nud permanent",
		"neigh replace fd02::9 lladdr 02:00:00:00:00:09 dev east nud permanent",
		"route add 192.0.2.0/24 via 10.2.0.9",
		"route add 192.0.2.128/25 via 10.2.0.8",
		"route add 203.0.113.0/24 via 10.2.0.77", // a gateway that does not exist
		"route add 10.50.0.0/16 via 10.3.0.9",
		"route add 10.60.0.0/16 via 10.1.0.9",
		"route add 10.70.0.0/16 nexthop via 10.2.0.9 nexthop via 10.2.0.8",
		"route add blackhole 198.51.100.0/25",
		"route add unreachable 198.51.100.128/26",
		"route add prohibit 198.51.100.192/26",
		"-6 route add 2001:db8:1::/48 via fd02::9",
		"-6 route add blackhole 2001:db8:2::/48",
	} {
		ip(t, cmd)
	}
	b := &bed{t: t}
	inst, err := datapath.Attach(datapath.Options{Name: "culvert", Interfaces: []string{"west", "east"}, Parts: []datapath.Part{routeplane.NewPart(o)}})
	must(t, err)
	b.inst = inst
	pins.Store(inst.Pins(), true)
	t.Cleanup(func() {
		pins.Delete(inst.Pins())
		if err := inst.DetachAll(); err != nil {
			t.Error(err)
		}
		inst.Close()
	})
	b.plane, err = routeplane.Open(inst)
	must(t, err)
	t.Cleanup(b.plane.Close)
	return b
}

// feed keeps the mirror current until stop or the end of the test.
func (b *bed) feed() {
	b.t.Helper()
	here, err := netns.Get()
	must(b.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	synced, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		defer here.Close()
		if err := netns.Set(here); err != nil {
			ended <- err
			return
		}
		ended <- route.Run(ctx, route.Options{Plane: b.plane, Status: &b.status, OnSynced: func() { close(synced) }})
	}()
	stopped := false
	b.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
	}
	b.t.Cleanup(b.stop)
	select {
	case <-synced:
	case err := <-ended:
		stopped = true
		b.t.Fatalf("the feed ended: %v", err)
	case <-time.After(patience):
		b.t.Fatal("the tables are not read")
	}
	// Neighbors on connected networks follow a little later.
	b.until("neighbors", func() bool {
		all, err := b.plane.Neighbors()
		must(b.t, err)
		return len(all) >= 4
	})
}

// mirror fills the mirror and makes it current forever, so that load on the machine cannot make it stale.
func (b *bed) mirror() {
	b.t.Helper()
	b.feed()
	b.stop()
	must(b.t, b.plane.SetCurrent(1<<62, 1<<62))
}

// setDev changes what the program knows of a device.
func (b *bed) setDev(name string, change func(*routeplane.Dev)) {
	b.t.Helper()
	devs, err := b.plane.Devs()
	must(b.t, err)
	dev := devs[b.index(name)]
	change(&dev)
	must(b.t, b.plane.SetDev(b.index(name), dev))
}

func (b *bed) until(what string, done func() bool) {
	b.t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("waited for %s in vain", what)
		}
	}
}

func (b *bed) index(name string) int {
	b.t.Helper()
	dev, err := net.InterfaceByName(name)
	must(b.t, err)
	return dev.Index
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }
