// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestAll sets up all stages on one machine, and tries the commands that the summary names.
func TestAll(t *testing.T) {
	peers := testPeers(t)
	l := up(t, "all", Options{
		Name: testName(t, "all"), Culvert: filepath.Join(filepath.Dir(peers.Bin), "culvert"), Peers: peers, MTU: 1400, Out: t.Output(),
	})
	again, err := Open(l.Name)
	if err != nil {
		t.Fatal(err)
	}
	if !again.Ready || again.All == nil || *again.All != *l.All {
		t.Fatalf("the state says %+v", again.All)
	}
	var list, summary bytes.Buffer
	if err := errors.Join(WriteList(&list, false), again.WriteSummary(&summary)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"1-ff00:0:2, AS 64496, BIRD, culvert", "1-ff00:0:3 reference", "AS 64497, BIRD", "web server, gue over IPv4",
		"culvert lab exec " + l.Name + " rut culvert check -c " + l.All.Config, " rut culvert reload --dry-run\n", " rut culvert reload\n",
	} {
		if !strings.Contains(summary.String(), want) {
			t.Errorf("the summary does not say %q:\n%s", want, summary.String())
		}
	}
	wantOutput(t, l, "rut", []string{"culvert", "check", "-c", l.All.Config},
		" with 1 drop-in: ok: br1-ff00_0_2-1 on to-as1, ", "filter (2 rules, 1 set, 1 entry, 1 protected service)",
		"lb (2 VIPs, 4 backends, 2 BGP neighbors)", "scion (2 links)", ", route")
	wantOutput(t, l, "rut", []string{"culvert", "reload", "--dry-run"}, "changes nothing")
	blocked, err := os.ReadFile(l.file("blocked.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := writeFile(l.file("blocked.txt"), string(blocked)+"192.0.2.0/24\n"); err != nil {
		t.Fatal(err)
	}
	wantOutput(t, l, "rut", []string{"culvert", "reload", "--dry-run"}, "would change", "blocked")
	wantOutput(t, l, "rut", []string{"culvert", "filter", "set", "show", "blocked"}, l.All.Blocked.String())
	wantOutput(t, l, "rut", []string{"culvert", "reload"}, "is in force", "the program stays", "blocked")
	wantOutput(t, l, "rut", []string{"culvert", "filter", "set", "show", "blocked"}, "192.0.2.0/24")
	for _, reason := range []string{"scion-br-transit", "route", "filter", "filter-synack", "lb-new"} {
		wantOutput(t, l, "rut", []string{"culvert", "status", "-j"}, `"`+reason+`"`)
	}
	tryConnect(t, l)
	tryRestartServices(t, l)
	if err := l.Down(); err != nil {
		t.Fatal(err)
	}
	wantNothingLeft(t, l.Name)
}

// tryConnect adds a link to a lab, whose end keeps its IPv6 address while it is down.
func tryConnect(t *testing.T, l *Lab) {
	t.Helper()
	more := func(ns string, host int) Link {
		return Link{NS: ns, Name: "more", Addrs: both(77, host)}
	}
	if err := l.Connect(more("rut", 1), more("peer", 2)); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"down", "up"} {
		if _, err := l.Run(t.Context(), "peer", "ip", "link", "set", "more", step); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range both(77, 2) {
		wantOutput(t, l, "rut", []string{"ping", "-n", "-c", "1", "-w", "20", p.Addr().String()}, "1 received")
	}
	again, err := Open(l.Name)
	if err != nil {
		t.Fatal(err)
	}
	if i := again.Namespaces[0].Interfaces; i[len(i)-1].Name != "more" {
		t.Errorf("the state has the interfaces %+v", i)
	}
	if err := l.Connect(more("rut", 1), more("nobody", 2)); err == nil {
		t.Error("a link to a namespace that is not there was made")
	}
}

// tryRestartServices restarts the services of an AS, and nothing else.
func tryRestartServices(t *testing.T, l *Lab) {
	t.Helper()
	pids := func() map[string]int {
		all := map[string]int{}
		for _, p := range l.Processes {
			all[p.Name] = p.PID
		}
		return all
	}
	as, err := l.AS("as3")
	if err != nil {
		t.Fatal(err)
	}
	before := pids()
	if err := l.RestartServices(as, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	now := pids()
	for name, pid := range before {
		restarted := slices.Contains(as.services(), name)
		if (now[name] != pid) != restarted {
			t.Errorf("%s was process %d and is %d, restarted: %t", name, pid, now[name], restarted)
		}
	}
}

func TestAllOptionsRefused(t *testing.T) {
	for name, o := range map[string]Options{
		"routers":   {Routers: map[string]Router{"rut": Culvert}},
		"routes":    {Routes: Routes{Limited: true, V4: 3}},
		"neighbors": {StaticNeighbors: true},
		"time":      {Timeout: -time.Second},
		"MTU":       {MTU: 3401},
	} {
		o.Name = testName(t, "bad")
		l, err := Up(t.Context(), "all", o)
		if l != nil || !errors.Is(err, ErrOptions) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		wantNothingLeft(t, o.Name)
	}
}
