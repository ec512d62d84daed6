// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"culvert/internal/cluster"
)

// TestFleet walks through docs/fleet.md as far as that takes no minutes (TestFleetLong does): a canary that fails and goes back, an
// urgent drop, a balancer out of service and back, a member of etcd killed, and all of them.
func TestFleet(t *testing.T) {
	f := newFleetWalk(t)
	l := f.l
	f.part("canary", f.canary)
	f.part("urgent", f.urgent)
	f.part("where", f.where)
	f.part("maintain", f.maintain)
	f.part("member", func() { f.without("e1") })
	f.part("etcd", func() { f.withoutEtcd(20, 0) })
	f.part("revoked", f.revoked)
	var all strings.Builder
	if err := l.WriteSummary(&all); err != nil || !strings.Contains(all.String(), "culvert fleet status") {
		t.Errorf("%v, %s", err, &all)
	}
	if err := Down(l.Name); err != nil {
		t.Fatal(err)
	}
	wantNothingLeft(t, l.Name)
}

// fleetWalk is a lab of the topology fleet. t is the test of the part that runs.
type fleetWalk struct {
	t *testing.T
	l *Lab
}

func newFleetWalk(t *testing.T) *fleetWalk {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	l := up(t, "fleet", Options{Name: testName(t, "fleet"), Culvert: filepath.Join(root, "bin", "culvert"), Out: t.Output()})
	f := &fleetWalk{t, l}
	f.wantRevision(f.newest(), "f1", "f2", "lb1", "lb2", "lb3")
	return f
}

// part runs a part of the walk as a test of its own.
func (f *fleetWalk) part(name string, walk func()) {
	whole := f.t
	defer func() { f.t = whole }()
	whole.Run(name, func(t *testing.T) {
		f.t = t
		walk()
	})
}

// canary brings a health check to the balancers that no web server passes: the first one goes back, the others never run it.
func (f *fleetWalk) canary() {
	before := f.newest() // on a busy host the lab's first one may have gone back
	out, err := f.apply("lb", func(s string) string {
		return strings.ReplaceAll(s, `"/health"`, "\"/nowhere\"\ninterval = \"500ms\"\nfall = 1")
	}, "--wait", "10s")
	if err == nil || !strings.Contains(out, fmt.Sprintf("goes back to %d:", before)) || strings.Contains(out, "step 2") {
		f.t.Errorf("the canary: %v\n%s", err, out)
	}
	f.wantRevision(before, "lb1", "lb2", "lb3")
	eventually(f.t, "lb1 is in good health again", func() bool {
		for _, n := range f.status() {
			if n.Node == "lb1" {
				return n.Health == "good" && len(n.Announced) == 2
			}
		}
		return false
	})
}

// urgent drops pings on both filters, and takes that back.
func (f *fleetWalk) urgent() {
	ping := func() bool {
		_, err := f.l.Run(f.t.Context(), "client", "ping", "-c", "3", "-i", "0.2", "-W", "1", lbVIP4.String())
		return err == nil
	}
	eventually(f.t, "a VIP answers", ping)
	// A busy host may take longer than the command waits. Then it prints the ID beside an error.
	var reach struct {
		ID string `json:"id"`
	}
	out, _ := f.l.RunFleet(f.t.Context(), "filter", "add", "drop", "icmp", "--role", "filter", "-j")
	if err := json.NewDecoder(bytes.NewReader(out)).Decode(&reach); err != nil || reach.ID == "" {
		f.t.Fatalf("%v: %s", err, out)
	}
	having := func(want int) func() bool {
		return func() bool {
			n := 0
			for _, s := range f.status() {
				if slices.Contains(s.Urgent, reach.ID) {
					n++
				}
			}
			return n == want
		}
	}
	eventually(f.t, "the urgent change is in force on both filters", having(fleetFilters))
	if ping() {
		f.t.Error("pings pass a filter that drops them")
	}
	_, _ = f.l.RunFleet(f.t.Context(), "undo", reach.ID)
	eventually(f.t, "the urgent change is taken back", having(0))
	eventually(f.t, "a VIP answers again", ping)
}

// where asks all nodes about flows: which rule of the filters they hit, and which backend they get.
func (f *fleetWalk) where() {
	for _, flow := range []struct{ from, rule string }{{"192.0.2.7:40000", "drop by bad"}, {"198.18.1.2:40000", ""}} {
		to := fmt.Sprintf("%s:%d", lbVIP4, lbHTTPPort)
		var all struct {
			Answers []struct {
				Node  string        `json:"node"`
				Where cluster.Where `json:"where"`
			} `json:"answers"`
			Silent []string `json:"silent"`
		}
		// A busy host may take longer for an answer than the command waits.
		eventually(f.t, "all nodes answer", func() bool {
			out := f.fleet("where", flow.from, to, "tcp", "-j")
			if err := json.Unmarshal([]byte(out), &all); err != nil {
				f.t.Fatalf("%v: %s", err, out)
			}
			return len(all.Silent) == 0 && len(all.Answers) == fleetFilters+fleetBalancers
		})
		var explained struct {
			Ring struct {
				Position uint32 `json:"position"`
				Size     int    `json:"size"`
				Backend  string `json:"backend"`
			} `json:"ring"`
		}
		out, err := f.l.Run(f.t.Context(), "lb2", f.l.Culvert, "lb", "explain", to+"/tcp", flow.from, "-j", "--on", "lb2")
		if err == nil {
			err = json.Unmarshal(out, &explained)
		}
		if err != nil || explained.Ring.Backend == "" {
			f.t.Fatalf("%v: %s", err, out)
		}
		for _, a := range all.Answers {
			w, r := a.Where, explained.Ring
			switch {
			case fleetRole(a.Node) == "filter" && (w.Rule != flow.rule || w.Backend != ""):
				f.t.Errorf("%s about %s: %+v", a.Node, flow.from, w)
			case fleetRole(a.Node) == "lb" && (w.Backend != r.Backend || w.Ring != r.Backend || w.Position != r.Position || w.RingSize != r.Size || w.Rule != ""):
				f.t.Errorf("%s about %s: %+v, want %+v", a.Node, flow.from, w, r)
			}
		}
	}
}

// without kills a member of etcd, changes the configuration, and starts the member again.
func (f *fleetWalk) without(ns string) {
	f.kill(ns)
	if out, err := f.apply("filter", func(s string) string { return s + "# without " + ns + "\n" }, "--wait", "1s"); err != nil {
		f.t.Errorf("without %s: %v\n%s", ns, err, out)
	}
	f.startMember(ns)
}

// withoutEtcd kills all members of etcd and asks for a page so many times: the services go on, and the fleet changes again when members are
// back.
func (f *fleetWalk) withoutEtcd(requests int, apart time.Duration) {
	for _, ns := range numbered("e", fleetMembers) {
		f.kill(ns)
	}
	if _, err := f.l.RunFleet(f.t.Context(), "filter", "add", "drop", "udp"); err == nil {
		f.t.Error("a change without etcd")
	}
	eventually(f.t, "nodes say that etcd is gone", func() bool { return f.etcdGone("lb1") })
	for n := range requests {
		if out, err := f.l.Run(f.t.Context(), "client", "curl", "-sS", "-m", "20", lbURL(lbVIP4)); err != nil {
			f.t.Fatalf("without etcd, request %d: %v: %s", n, err, out)
		}
		time.Sleep(apart)
	}
	for _, ns := range numbered("e", fleetMembers) {
		if err := f.l.StartMember(ns); err != nil {
			f.t.Fatal(err)
		}
	}
	eventually(f.t, "the fleet is whole again", func() bool {
		_, err := f.l.RunFleet(f.t.Context(), "status")
		return err == nil && len(f.status()) == fleetFilters+fleetBalancers
	})
}

// etcdGone tells whether a node says that etcd does not answer it.
func (f *fleetWalk) etcdGone(ns string) bool {
	out, err := f.l.Run(f.t.Context(), ns, f.l.Culvert, "status")
	return err == nil && strings.Contains(string(out), "etcd NOT REACHED")
}

// allAnnounce waits until all balancers announce the VIP.
func (f *fleetWalk) allAnnounce() {
	f.t.Helper()
	eventually(f.t, "all balancers announce the VIP", func() bool {
		n, err := f.l.NextHops("router", lbVIP4)
		return err == nil && n == fleetBalancers
	})
}

// revoked ends the certificate of a node, which goes on with what it runs, and is seen no more.
func (f *fleetWalk) revoked() {
	f.allAnnounce()
	if out, err := f.l.Run(f.t.Context(), "ops", f.l.Culvert, "cluster", "revoke", "lb3", "--dir", f.l.Fleet.Cluster); err != nil {
		f.t.Fatalf("%v: %s", err, out)
	}
	eventually(f.t, "lb3 is not seen any more", func() bool {
		return !slices.ContainsFunc(f.status(), func(n fleetNodeState) bool { return n.Node == "lb3" })
	})
	eventually(f.t, "lb3 says that it is not seen", func() bool {
		out, err := f.l.Run(f.t.Context(), "lb3", f.l.Culvert, "status")
		return err == nil && strings.Contains(string(out), "etcd REFUSES this node")
	})
	if n, err := f.l.NextHops("router", lbVIP4); err != nil || n != fleetBalancers {
		f.t.Errorf("%d balancers announce the VIP, %v: a node goes on when its certificate was revoked", n, err)
	}
}

// apply changes the document of a role that the lab has written.
func (f *fleetWalk) apply(role string, change func(string) string, options ...string) (string, error) {
	f.t.Helper()
	text, err := os.ReadFile(filepath.Join(f.l.Fleet.Documents, role+".toml"))
	if err != nil {
		f.t.Fatal(err)
	}
	file := filepath.Join(f.t.TempDir(), role+".toml")
	if err := os.WriteFile(file, []byte(change(string(text))), 0o600); err != nil {
		f.t.Fatal(err)
	}
	out, err := f.l.RunFleet(f.t.Context(), append([]string{"apply", "--role", role, file}, options...)...)
	return string(out), err
}

func (f *fleetWalk) fleet(verb ...string) string {
	f.t.Helper()
	out, err := f.l.RunFleet(f.t.Context(), verb...)
	if err != nil {
		f.t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func (f *fleetWalk) kill(ns string) {
	f.t.Helper()
	if err := f.l.Stop(MemberProcess(ns), syscall.SIGKILL); err != nil {
		f.t.Fatal(err)
	}
}

// startMember starts a member again, and waits until it serves.
func (f *fleetWalk) startMember(ns string) {
	f.t.Helper()
	starts := func() int {
		log, err := os.ReadFile(filepath.Join(f.l.Dir, "logs", MemberProcess(ns)+".log"))
		if err != nil {
			f.t.Fatal(err)
		}
		return strings.Count(string(log), "etcd serves")
	}
	before := starts()
	if err := f.l.StartMember(ns); err != nil {
		f.t.Fatal(err)
	}
	eventually(f.t, ns+" serves again", func() bool { return starts() > before })
}

// fleetNodeState is a part of cluster.State.
type fleetNodeState struct {
	Node      string   `json:"node"`
	Revision  int      `json:"revision"`
	Health    string   `json:"health"`
	Announced []string `json:"announced"`
	Urgent    []string `json:"urgent"`
	Maintain  string   `json:"maintain"`
}

// status returns the nodes that are there.
func (f *fleetWalk) status() []fleetNodeState {
	f.t.Helper()
	var s struct {
		Nodes []fleetNodeState `json:"nodes"`
	}
	out := f.fleet("status", "-j")
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		f.t.Fatalf("%v: %s", err, out)
	}
	return s.Nodes
}

// newest returns the newest of the revisions that nodes run.
func (f *fleetWalk) newest() (revision int) {
	f.t.Helper()
	for _, n := range f.status() {
		revision = max(revision, n.Revision)
	}
	return revision
}

// wantRevision waits until nodes run a revision.
func (f *fleetWalk) wantRevision(revision int, nodes ...string) {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("%v run revision %d", nodes, revision), func() bool {
		n := 0
		for _, s := range f.status() {
			if slices.Contains(nodes, s.Node) && s.Revision == revision {
				n++
			}
		}
		return n == len(nodes)
	})
}

// TestFleetOptionsRefused names the options of other topologies.
func TestFleetOptionsRefused(t *testing.T) {
	for name, o := range map[string]Options{"plain": {Plain: true}, "time": {Timeout: -time.Second}, "MTU": {MTU: 3401}} {
		o.Name = testName(t, "bad")
		if l, err := Up(t.Context(), "fleet", o); l != nil || err == nil {
			t.Errorf("%s: %v", name, err)
		}
		wantNothingLeft(t, o.Name)
	}
}
