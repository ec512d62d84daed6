// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"culvert/internal/route/routeplane"
)

func checked(t *testing.T, samples int) (Checked, error) {
	t.Helper()
	var out bytes.Buffer
	err := Check(CheckOptions{Samples: samples}, true, &out)
	var c Checked
	if out.Len() > 0 {
		must(t, json.Unmarshal(out.Bytes(), &c))
	}
	return c, err
}

func TestCheck(t *testing.T) {
	b := newBed(t, routeplane.Options{Blocks4: 4096, Blocks6: 4096})
	addRoutes(t)
	b.mirror()
	c, err := checked(t, 2000)
	if err != nil || !c.OK || c.IPv4.Differences != 0 || c.IPv6.Differences != 0 {
		t.Errorf("%v: %+v", err, c)
	}
	if c.IPv4.By != Mirror || c.IPv4.Prefixes < 1000 || c.IPv4.Addresses < 3000 || c.IPv4.Samples < 1500 || c.IPv4.Asked == 0 {
		t.Errorf("IPv4: %+v", c.IPv4)
	}
	if c.IPv6.By != Mirror || c.IPv6.Prefixes < 500 || c.IPv6.Addresses < 1500 || c.IPv6.Samples < 1000 {
		t.Errorf("IPv6: %+v", c.IPv6)
	}
	var out bytes.Buffer
	must(t, Check(CheckOptions{Name: "culvert", Samples: 10, Progress: &bytes.Buffer{}}, false, &out))
	if text := out.String(); strings.Count(text, "no differences\n") != 2 || !strings.HasPrefix(text, "router culvert\n  IPv4 by the mirror, ") {
		t.Errorf("got\n%s", text)
	}

	// An entry that asks the kernel is no difference. A wrong entry is.
	root, _ := b.plane.Table4()
	root[10<<16|50<<8] = 0
	root[192<<16|2] = 24<<23 | routeplane.HopNone
	c, err = checked(t, 0)
	if !errors.Is(err, errDiffers) || c.OK || c.IPv4.Differences == 0 || c.IPv6.Differences != 0 {
		t.Fatalf("%v: %+v", err, c)
	}
	want := Difference{
		Address: "192.0.2.0", FastPath: "no route, to the kernel (192.0.2.0/24)", Kernel: "192.0.2.0/24 via 10.2.0.9 dev east",
		Text: "the kernel says unicast",
	}
	found := false
	for _, d := range c.Differences {
		found = found || d == want
	}
	if !found {
		t.Errorf("%+v is not among %+v", want, c.Differences)
	}

	// All differences are counted, and only the first are shown.
	for i := range 1000 {
		root[10<<16|80<<8+i] = 24<<23 | routeplane.HopBlackhole
	}
	c, err = checked(t, 0)
	if !errors.Is(err, errDiffers) || c.IPv4.Differences < 1000 || len(c.Differences) != mostShown {
		t.Errorf("%v: %d differences, %d shown", err, c.IPv4.Differences, len(c.Differences))
	}
	out.Reset()
	_ = Check(CheckOptions{}, false, &out)
	if !strings.Contains(out.String(), "\n  and ") {
		t.Errorf("got\n%s", out.String())
	}

	must(t, b.plane.SetCurrent(0, 0))
	out.Reset()
	err = Check(CheckOptions{}, false, &out)
	if err == nil || !strings.Contains(err.Error(), "the mirror is not current") ||
		!strings.Contains(out.String(), "  IPv4 asks the kernel: the mirror is not current: the process is still reading the tables, or is behind (see its log): nothing to compare\n") {
		t.Errorf("%v, got\n%s", err, out.String())
	}
}

// addRoutes adds 1000 networks below 10.80.0.0/14 and 500 below 2001:db8:4000::/34, in one call of ip(8).
func addRoutes(t *testing.T) {
	t.Helper()
	var batch strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&batch, "route add 10.%d.%d.0/%d via 10.2.0.%d\n", 80+i/256, i%256, 24+i%3, 8+i%2)
	}
	for i := range 500 {
		fmt.Fprintf(&batch, "route add 2001:db8:%x::/%d via fd02::9\n", 0x4000+i, 48+i%17)
	}
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(batch.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ip -batch: %v: %s", err, out)
	}
}

func TestAround(t *testing.T) {
	for p, want := range map[string]string{
		"10.0.0.0/8":      "[10.0.0.0 10.255.255.255 9.255.255.255 11.0.0.0]",
		"192.0.2.64/27":   "[192.0.2.64 192.0.2.95 192.0.2.63 192.0.2.96]",
		"192.0.2.1/32":    "[192.0.2.1 192.0.2.1 192.0.2.0 192.0.2.2]",
		"0.0.0.0/0":       "[0.0.0.0 255.255.255.255 invalid IP invalid IP]",
		"2001:db8:8::/45": "[2001:db8:8:: 2001:db8:f:ffff:ffff:ffff:ffff:ffff 2001:db8:7:ffff:ffff:ffff:ffff:ffff 2001:db8:10::]",
	} {
		if got := fmt.Sprint(around(netip.MustParsePrefix(p))); got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
		for range 100 {
			if a := randomIn(netip.MustParsePrefix(p)); !netip.MustParsePrefix(p).Contains(a) {
				t.Fatalf("%s is not in %s", a, p)
			}
		}
	}
}
