// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netlink"

	"culvert/internal/config"
	"culvert/internal/scion/handover"
	"culvert/internal/stats"
)

// routerSeries returns the time series that the process exports under the reference's names.
func routerSeries(t *testing.T) map[string]bool {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	check(t, err)
	series := map[string]bool{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "router_") {
			continue
		}
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			series[name] = true
		}
	}
	return series
}

// TestMetricLabels checks that the fast path's counters are added to series which the reference's data plane has made. A
// wrong label would make another series.
func TestMetricLabels(t *testing.T) {
	newTwoHosts(t)
	r, err := Load(writeTOML(t, "wire", "br1", ""))
	check(t, err)
	slow, err := NewSlowPath(r)
	check(t, err)
	defer slow.Close()
	before := routerSeries(t)
	plane := &printingPlane{links: len(r.Datapath.Links)}
	sync, err := newCounterSync(r, slow.connector.DataPlane.Metrics, plane, nil)
	check(t, err)
	check(t, sync.sync())
	after := routerSeries(t)
	if len(before) < len(r.Datapath.Links)*stats.SizeClasses*(4+2*stats.TrafficTypes) {
		t.Errorf("the reference has made only %d series", len(before))
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if !before[name] {
			t.Errorf("the reference has no series %s", name)
		}
	}
}

func TestSizeClasses(t *testing.T) {
	for size, want := range map[int]string{
		0: "0_63", 63: "0_63", 64: "64_127", 127: "64_127", 128: "128_255", 8191: "4096_8191",
		8192: "8192_16383", 9000: "8192_16383", 65535: "8192_16383",
	} {
		if got := sizeLabel(stats.SizeClass(size)); got != want {
			t.Errorf("%d bytes are in class %s, want %s", size, got, want)
		}
	}
}

func TestInterfaces(t *testing.T) {
	newTwoHosts(t)
	r, err := Load(writeTOML(t, "wire", "br1", ""))
	check(t, err)
	names, err := r.Interfaces()
	check(t, err)
	if !slices.Equal(names, []string{"cvs0"}) {
		t.Errorf("interfaces %q, want cvs0: the internal address is on loopback", names)
	}
	r, err = Load(writeTOML(t, "v4", "br1", ""))
	check(t, err)
	_, err = r.Interfaces()
	want := "reading " + r.TopologyPath() + ": border_routers.br1.internal_addr: " +
		"no network interface has the address 10.0.0.1: add it to one or correct the file"
	// Each address has one error, though siblings share the first.
	if all := config.All(err); len(all) != 3 || all[0].Error() != want {
		t.Errorf("errors %q, want 3, the first %s", all, want)
	}
}

// TestDownAndUnreachable checks that the errors name the interface that is down or the route that is missing, and say how
// to fix that.
func TestDownAndUnreachable(t *testing.T) {
	h := newTwoHosts(t)
	r, err := Load(writeTOML(t, "wire", "br1", ""))
	check(t, err)
	const field = ": border_routers.br1.interfaces.1.underlay.local: "
	check(t, h.links[0].LinkSetDown(h.veth(0)))
	_, err = r.Interfaces()
	want := "reading " + r.TopologyPath() + field +
		"the interface cvs0, which has the address 192.0.2.1, is down: ip link set cvs0 up"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}

	check(t, h.links[0].LinkSetUp(h.veth(0)))
	narrow, err := netlink.ParseAddr("192.0.2.1/32")
	check(t, err)
	wide, err := netlink.ParseAddr("192.0.2.1/24")
	check(t, err)
	check(t, h.links[0].AddrDel(h.veth(0), wide))
	check(t, h.links[0].AddrAdd(h.veth(0), narrow))
	_, err = NewSlowPath(r)
	want = "reading " + r.TopologyPath() + field + "no route from 192.0.2.1 to 192.0.2.2: see 'ip route get 192.0.2.2'"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestLock(t *testing.T) {
	newTwoHosts(t)
	lock, err := TakeLock("br1")
	check(t, err)
	other, err := TakeLock("br2")
	check(t, err)
	check(t, other.Release())
	if _, err := TakeLock("br1"); err == nil {
		t.Error("the lock was taken twice")
	}
	check(t, lock.Release())
	lock, err = TakeLock("br1")
	check(t, err)
	check(t, lock.Release())
}

// failingPlane refuses the key.
type failingPlane struct{ printingPlane }

func (p *failingPlane) SetOwnKey([16]byte) error { return errors.New("no room for a key") }

// TestKeyRefused has the data plane refuse the key. The start fails with that error and releases the router's lock. The
// engine restores what was attached (TestBeginFails in datapath).
func TestKeyRefused(t *testing.T) {
	newTwoHosts(t)
	path := writeTOML(t, "wire", "br1", "")
	err := runOn(context.Background(), Table{Config: path}, func(r *Router, _ []string) (DataPlane, error) {
		return &failingPlane{printingPlane{links: len(r.Datapath.Links)}}, nil
	})
	if err == nil || err.Error() != "no room for a key" {
		t.Errorf("error %v, want that of the key", err)
	}
	lock, err := TakeLock("br1")
	check(t, err)
	check(t, lock.Release())
}

// TestRunChecksFirst checks that nothing is attached when another step of the start fails.
func TestRunChecksFirst(t *testing.T) {
	newTwoHosts(t)
	taken, err := net.Listen("tcp", "127.0.0.1:30442")
	check(t, err)
	defer taken.Close()
	attach := func(*Router, []string) (DataPlane, error) {
		t.Error("attached")
		return nil, errors.New("unexpected")
	}
	path := writeTOML(t, "wire", "br1", "[metrics]\nprometheus = \"127.0.0.1:30442\"")
	for _, tc := range []struct{ name, path, want string }{
		{"metrics address", path, "reading " + path + ": metrics.prometheus: listen tcp 127.0.0.1:30442: bind: address already in use: stop the process that has it ('ss -tlnp') or write another port"},
		{"log level", writeTOML(t, "wire", "br1", "[log.console]\nlevel = \"loud\""), "log.console.level: "},
		{"addresses", writeTOML(t, "v4", "br1", ""), "no network interface has the address"},
		{"file", "/nowhere/br.toml", "reading /nowhere/br.toml: no such file or directory"},
	} {
		err := runOn(context.Background(), Table{Config: tc.path}, attach)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want %s", tc.name, err, tc.want)
		}
	}
}

// TestListenBeside has a slow path take an HTTP address that overlaps with the one of its former, which still listens.
func TestListenBeside(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	former := &SlowPath{router: &Router{}, metrics: handover.NewEndpoint(l.Addr().String(), l)}
	defer former.metrics.Drop()
	_, port, err := net.SplitHostPort(l.Addr().String())
	check(t, err)
	if _, err := (&SlowPath{router: &Router{}}).listen(fieldMetrics, "0.0.0.0:"+port); err == nil || !strings.Contains(err.Error(), "stop the process that has it") {
		t.Errorf("without a former one: %v", err)
	}
	e, err := (&SlowPath{router: &Router{}, former: former}).listen(fieldMetrics, "0.0.0.0:"+port)
	check(t, err)
	e.Drop()
}
