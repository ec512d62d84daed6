// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"culvert/internal/lab"
	"culvert/internal/testbed"
)

// testLab sets up a lab with the programs that the Makefile has built beforehand. It takes the lab down when the test ends.
func testLab(t *testing.T, kind string, o lab.Options) *lab.Lab {
	t.Helper()
	testbed.NeedRoot(t)
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	o.Culvert = filepath.Join(root, "bin", "culvert")
	o.Peers = lab.Peers{Module: filepath.Join(root, "peers"), Bin: filepath.Join(root, "bin", "peers")}
	o.Name, o.Out = fmt.Sprintf("b%d", os.Getpid()), t.Output()
	l, err := lab.Up(t.Context(), kind, o)
	if err != nil {
		t.Fatalf("%v: run 'make build peers' first", err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// Both routers forward, every packet is accounted for in spite of the lab's own traffic, and the lab is left as it was.
func TestScion3(t *testing.T) {
	testbed.CheckLeftovers(t)
	l := testLab(t, "scion3", lab.Options{})
	o := shortOptions(t)
	o.Lab = l.Name
	r, err := Scion3().Measure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 3 || r.Rows[0].Name != "culvert" || r.Rows[1].Name != "reference" ||
		r.Rows[2].Name != "culvert+reference" || r.Ratios["culvert/reference"] <= 0 || r.Ratios["culvert+reference/reference"] <= 0 {
		t.Fatalf("rows %+v, ratios %v", r.Rows, r.Ratios)
	}
	for _, row := range r.Rows {
		if !row.Valid || row.Received == 0 || row.Received > row.Sent || row.Note == "" {
			t.Errorf("row %+v", row)
		}
	}
	wantAsBefore(t, l.Name, lab.Culvert)
}

// In a lab over IPv6 where packets change segments at the middle router, the reference router runs there again after a
// measurement, also after one that was interrupted.
func TestScion3InterruptedLeavesTheLabAsItWas(t *testing.T) {
	testbed.CheckLeftovers(t)
	l := testLab(t, "scion3", lab.Options{
		SegmentSwitch: true, IPv6: true, Routers: map[string]lab.Router{"as2": lab.Reference},
	})
	o := shortOptions(t)
	o.Lab, o.Rows = l.Name, []string{"culvert"}
	if r, err := Scion3().Measure(t.Context(), o); err != nil || !r.Rows[0].Valid || r.Rows[0].Received == 0 {
		t.Errorf("error %v, report %+v", err, r)
	}
	wantAsBefore(t, l.Name, lab.Reference)
	for _, row := range []string{"culvert", "culvert+reference"} {
		ctx, cancel := context.WithCancel(t.Context())
		o.Progress, o.Rows = testbed.CancelOn{Prefix: "warming up " + row, Cancel: cancel}, []string{row}
		if _, err := Scion3().Measure(ctx, o); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v", row, err)
		}
		cancel()
		wantAsBefore(t, l.Name, lab.Reference)
	}
}

// wantAsBefore checks that the middle router of a lab runs and is of that kind, and that no sink is left.
func wantAsBefore(t *testing.T, name string, kind lab.Router) {
	t.Helper()
	l, err := lab.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	if as, err := l.AS("as2"); err != nil || as.Router != kind {
		t.Errorf("the router is %s, want %s; error %v", as.Router, kind, err)
	}
	if _, err := l.RouterPID("as2"); err != nil {
		t.Error(err)
	}
	hasProgram := func(ns, device string) (attached bool) {
		err := l.Do(ns, func() error {
			dev, err := netlink.LinkByName(device)
			attached = err == nil && dev.Attrs().Xdp != nil && dev.Attrs().Xdp.Attached
			return err
		})
		if err != nil {
			t.Error(err)
		}
		return attached
	}
	// The kernel detaches a program in the background after its link has been closed.
	remains := func(ns, device string) bool {
		for end := time.Now().Add(time.Minute); hasProgram(ns, device); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				return true
			}
		}
		return false
	}
	if remains("as3", "to-as2") {
		t.Error("the sink's XDP program is still attached")
	}
	if kind == lab.Reference && remains("as2", "to-as1") {
		t.Error("culvert is still in front of the reference router")
	}
}

func TestScion3RefusesOtherLabs(t *testing.T) {
	o := shortOptions(t)
	o.Lab = "nowhere"
	if _, err := Scion3().Measure(t.Context(), o); err == nil || !strings.Contains(err.Error(), "culvert lab list") {
		t.Errorf("no such lab: error %v", err)
	}
	o.Lab = testLab(t, "veth", lab.Options{}).Name
	if _, err := Scion3().Measure(t.Context(), o); err == nil || !strings.Contains(err.Error(), "culvert lab up scion3") {
		t.Errorf("a lab with one router: error %v", err)
	}
}
