// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestLB wants all backends to answer in both families, and checks the state, the summary and that nothing is left.
func TestLB(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	l := up(t, "lb", Options{Name: testName(t, "lb"), Culvert: filepath.Join(root, "bin", "culvert"), MTU: 1400, Out: t.Output()})
	for _, url := range []string{lbURL(lbVIP4), lbURL(lbVIP6)} {
		names := map[string]bool{}
		eventually(t, "all backends answer at "+url, func() bool {
			out, err := l.Run(t.Context(), "client", "curl", "-sS", "-m", "20", url)
			if err != nil {
				t.Fatal(err)
			}
			names[strings.TrimSpace(string(out))] = true
			return len(names) == lbBackends
		})
		for _, ns := range numbered("b", lbBackends) {
			if !names[ns] {
				t.Errorf("%s: %v have answered, %s has not", url, names, ns)
			}
		}
		file := filepath.Join(l.Dir, "bytes")
		if out, err := l.Run(t.Context(), "client", "curl", "-sS", "-m", "60", "-o", file, url+"bytes/3000000"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		want := make([]byte, 3000000)
		_, _ = (&WebBytes{}).Read(want)
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v: not the bytes of the server", url, len(got), err)
		}
	}
	checkLBState(t, l)
	checkLBBirds(t, l)
	inodes := l.inodes()
	pinned := 0
	for inode := range inodes {
		if _, err := os.Stat(filepath.Join(pinDir, strconv.FormatUint(inode, 10))); err == nil {
			pinned++
		}
	}
	if pinned != lbBalancers+lbBackends {
		t.Errorf("%d namespaces have pins, want those of balancers and backends", pinned)
	}
	if err := Down(l.Name); err != nil {
		t.Fatal(err)
	}
	wantNothingLeft(t, l.Name)
	for inode := range inodes {
		if _, err := os.Stat(filepath.Join(pinDir, strconv.FormatUint(inode, 10))); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("pins of namespace %d: %v", inode, err)
		}
	}
}

// checkLBState checks the state, the configuration files and the summary of a lab with an MTU of 1400.
func checkLBState(t *testing.T, l *Lab) {
	t.Helper()
	again, err := Open(l.Name)
	if err != nil {
		t.Fatal(err)
	}
	if !again.Ready || again.LB == nil || again.LB.VIP4 != lbVIP4 || again.LB.VIP6 != lbVIP6 || len(again.LB.Configs) != lbBalancers {
		t.Errorf("the state says %+v", again.LB)
	}
	var orders [lbBalancers][]string
	for n, ns := range numbered("lb", lbBalancers) {
		text, err := os.ReadFile(again.LB.Configs[ns])
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "address") && !strings.Contains(line, fmt.Sprintf(":%d::", lbNet(ns))) && !strings.Contains(line, fmt.Sprintf(".%d.1\"", lbNet(ns))) {
				orders[n] = append(orders[n], line)
			}
		}
	}
	if slices.Equal(orders[0], orders[1]) {
		t.Errorf("both balancers have their VIPs and backends in the same order: %q", orders[0])
	}
	for n := range orders {
		slices.Sort(orders[n])
	}
	if !slices.Equal(orders[0], orders[1]) {
		t.Errorf("the balancers' VIPs and backends are not the same: %q", orders)
	}
	for _, ns := range l.Namespaces {
		for _, i := range ns.Interfaces {
			want := 1400 + lbOverhead
			if ns.Name == "client" || i.PeerNS == "client" {
				want = 1400
			}
			wantOutput(t, l, ns.Name, []string{"ip", "link", "show", i.Name}, fmt.Sprintf("mtu %d", want))
		}
	}
	var list, summary bytes.Buffer
	if err := errors.Join(WriteList(&list, false), l.WriteSummary(&summary)); err != nil {
		t.Fatal(err)
	}
	wantRow := []string{l.Name, "lb", "up", "7", "of", "7"}
	if !slices.ContainsFunc(strings.Split(list.String(), "\n"), func(line string) bool {
		f := strings.Fields(line)
		return len(f) > len(wantRow) && slices.Equal(f[:len(wantRow)], wantRow)
	}) {
		t.Errorf("no row %q in\n%s", wantRow, list.String())
	}
	for _, want := range []string{"AS 64496, BIRD", "AS 64497, culvert", "web server, ipip over IPv4", "web server, gue over IPv6",
		"culvert lab exec " + l.Name + " client curl http://203.0.113.80:80/", "198.18.11.2/24", "port 80"} {
		if !strings.Contains(summary.String(), want) {
			t.Errorf("the summary does not say %q:\n%s", want, summary.String())
		}
	}
	list.Reset()
	if err := WriteList(&list, true); err != nil {
		t.Fatal(err)
	}
	var all []Listed
	if err := json.Unmarshal(list.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	alive := map[string]bool{}
	for _, entry := range all {
		if entry.Name == l.Name {
			for _, p := range entry.Processes {
				alive[p.Name] = p.Alive
			}
		}
	}
	for _, want := range []string{CulvertProcess("lb1"), CulvertProcess("lb2"), WebProcess("b1"), WebProcess("b4")} {
		if !alive[want] {
			t.Errorf("process %s does not run, by the list: %v", want, alive)
		}
	}
}

// checkLBBirds wants BIRD in router to have routes to the VIPs, and no others, from both balancers.
func checkLBBirds(t *testing.T, l *Lab) {
	t.Helper()
	for _, vip := range []string{lbVIP4.String() + "/32", lbVIP6.String() + "/128"} {
		out, err := l.Run(t.Context(), "router", "birdc", "-s", l.birdSocket("router"), "show", "route", vip)
		if err != nil || strings.Count(string(out), "via ") != lbBalancers {
			t.Errorf("BIRD has to %s: %v\n%s", vip, err, out)
		}
	}
	out, err := l.Run(t.Context(), "router", "birdc", "-s", l.birdSocket("router"), "show", "route", "count")
	if err != nil || strings.Count(string(out), "2 of 2 routes for 1 networks in table master") != 2 {
		t.Errorf("BIRD counts: %v\n%s", err, out)
	}
}

func TestLBOptionsRefused(t *testing.T) {
	for name, o := range map[string]Options{
		"routers":   {Routers: map[string]Router{"lb1": Culvert}},
		"routes":    {Routes: Routes{Limited: true, V4: 3}},
		"plain":     {Plain: true},
		"neighbors": {StaticNeighbors: true},
		"IPv6":      {IPv6: true},
		"time":      {Timeout: -time.Second},
		"MTU":       {MTU: 3401},
		"small MTU": {MTU: 1279},
		"queues":    {Queues: -1},
	} {
		o.Name = testName(t, "bad")
		l, err := Up(t.Context(), "lb", o)
		if l != nil || !errors.Is(err, ErrOptions) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		wantNothingLeft(t, o.Name)
	}
}
