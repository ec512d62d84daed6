// SPDX-License-Identifier: Apache-2.0

package routestage

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/datapath"
	"culvert/internal/route/routeplane"
)

// TestWatchLooksAtOnce adds rules after the start has looked for some. watch finds them at once, and not at the first tick.
func TestWatchLooksAtOnce(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run 'make test-root'")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "nw0"}, PeerName: "nw1"}); err != nil {
		t.Fatal(err)
	}
	o := datapath.Options{Name: "node-watch-test", Interfaces: []string{"nw0"}, Parts: []datapath.Part{routeplane.NewPart(routeplane.Options{Blocks4: 1, Blocks6: 1})}}
	inst, err := datapath.Attach(o)
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Close()
	defer func() { _ = inst.DetachAll() }()
	var log strings.Builder
	plane, err := routeplane.Open(inst)
	if err != nil {
		t.Fatal(err)
	}
	defer plane.Close()
	guard := &guardedPlane{Plane: plane, inst: inst}
	if err := guard.SetPolicy(routeplane.Policy{}); err != nil {
		t.Fatal(err)
	}
	once, cancel := context.WithCancel(t.Context())
	cancel()
	looks := func(kernel bool) {
		t.Helper()
		if err := guard.watch(once, slog.New(slog.NewTextHandler(&log, nil))); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		s, err := routeplane.ReadState(inst)
		if err != nil || s.Policy.Kernel4 != kernel || s.Policy.Kernel6 != kernel {
			t.Errorf("the kernel forwards: %+v, %v, want %v", s.Policy, err, kernel)
		}
	}
	looks(false)
	for _, line := range []string{"qdisc add dev nw0 clsact", "filter add dev nw0 ingress protocol ip u32 match u32 0 0 flowid 1:1"} {
		if out, err := exec.Command("tc", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("tc %s: %v: %s", line, err, out)
		}
	}
	looks(true)
	looks(true)
	if n := strings.Count(log.String(), "the kernel forwards them all from now on"); n != 1 {
		t.Errorf("logged %d times: %s", n, &log)
	}
	if out, err := exec.Command("tc", "qdisc", "del", "dev", "nw0", "clsact").CombinedOutput(); err != nil {
		t.Fatalf("tc: %v: %s", err, out)
	}
	looks(false)
}
