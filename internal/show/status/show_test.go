// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/scion/scionplane"
	"culvert/internal/stats"
)

func testRouter() Router {
	loaded := epoch
	gone := port("eth2", 0)
	gone.Attached = false
	return Router{
		ID: "br1-ff00_0_110-1", NetNS: 4026532000, NetNSName: "red", Mode: "native", Served: true, PID: 77, LoadedAt: &loaded,
		Pins: "/pins/red",
		Interfaces: []Interface{
			port("eth1", 3, reason("punt", "scion-bfd", 12), reason("fwd", "scion-br-transit", 1234567), limited("scion-mac", 5)),
			gone,
		},
		Links: []Link{
			{Name: "internal", Scope: "internal", Local: "10.0.0.1:30042", Up: true},
			{Name: "1", Scope: "external", Local: "10.1.0.1:50000", Remote: "10.1.0.2:50000", Up: true,
				NextHop: &NextHop{IfIndex: 4, MAC: "02:00:00:00:00:01", MTU: 1500}, In: Traffic{12, 1200}, Dropped: 2, BFDRefused: 3},
			{Name: "22", Scope: "external", Local: "10.2.0.1:50000", Remote: "10.2.0.2:50000",
				NextHop: &NextHop{IfIndex: 5, Interface: "eth2", MAC: "02:00:00:00:00:02", MTU: 1500}, Out: Traffic{1234, 99}},
			{Name: "sibling->10.0.0.2:30042", Scope: "sibling", Local: "10.0.0.1:30042", Remote: "10.0.0.2:30042"},
		},
		Keys: []scionplane.KeyInfo{{Index: 0, ID: "0123456789abcdef"}},
	}
}

func TestText(t *testing.T) {
	bare := Router{ID: "br2", NetNS: 4026531840, Here: true, Mode: "generic", Pins: "/pins/1/br2"}
	var b bytes.Buffer
	if err := (Report{Routers: []Router{testRouter(), bare}}).WriteText(&b, epoch.Add(90*time.Second), false); err != nil {
		t.Fatal(err)
	}
	const want = `
router br2  netns 4026531840 (this one)  generic  not served
  its interfaces are gone: attach again, or remove it with 'culvert detach --all'
  no key: nothing is forwarded

router br1-ff00_0_110-1  netns 4026532000 (red)  native  served by process 77  loaded 1m30s ago
  interface eth1
    received                    1,234,584 packets   123MB
    fwd       scion-br-transit  1,234,567           123MB
    punt      scion-bfd                12          1.20kB
    limited   scion-mac                 5            500B
    lost      redirect                  3
  interface eth2  not attached: these are its counters so far
    received    0 packets  0B
  link internal                 internal  10.0.0.1:30042                   up                                     fast in 0   out 0
  link 1                        external  10.1.0.1:50000 > 10.1.0.2:50000  up    via 02:00:00:00:00:01 ifindex 4  fast in 12  out 0      dropped 2  BFD refused 3
  link 22                       external  10.2.0.1:50000 > 10.2.0.2:50000  down  via 02:00:00:00:00:02 dev eth2   fast in 0   out 1,234
  link sibling->10.0.0.2:30042  sibling   10.0.0.1:30042 > 10.0.0.2:30042  down  no next hop                      fast in 0   out 0
  key 0  id 0123456789abcdef
`
	if got := "\n" + b.String(); got != want {
		t.Errorf("got%s\nwant%s", got, want)
	}
}

// TestDetachedLinks has a router whose interfaces are gone. The state of its links is not known.
func TestDetachedLinks(t *testing.T) {
	r := Router{Links: []Link{{Name: "1", Scope: "external", Local: "10.1.0.1:50000", Remote: "10.1.0.2:50000", Up: true}}}
	want := "  link 1  external  10.1.0.1:50000 > 10.1.0.2:50000    no next hop  fast in 0  out 0"
	if got := r.linkText(); len(got) != 1 || got[0] != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestKeyProblem(t *testing.T) {
	loaded := []scionplane.KeyInfo{{Index: 1, ID: "aa"}}
	const own = "the process's own key is not loaded: packets that fail under the loaded keys are dropped"
	for _, tc := range []struct {
		r    Router
		want string
	}{
		{Router{Keys: loaded}, ""},
		{Router{Keys: loaded, Served: true}, ""},
		{Router{Keys: loaded, Served: true, ownKeyMissing: true}, own},
		{Router{Served: true, ownKeyMissing: true}, own},
		{Router{Served: true}, "no key: all packets go to the slow path"},
		{Router{}, "no key: nothing is forwarded"},
	} {
		if got := tc.r.keyProblem(); got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.r, got, tc.want)
		}
	}
}

// TestRemoval has a router whose interfaces are gone, alone and beside others.
func TestRemoval(t *testing.T) {
	dead := Router{ID: "dead"}
	served := Router{ID: "dead", Served: true}
	alive := Router{ID: "alive", Interfaces: []Interface{port("eth1", 1)}}
	here := alive
	here.Here = true
	for _, tc := range []struct {
		all  []Router
		want string
	}{
		{[]Router{dead}, "its interfaces are gone: attach again, or remove it with 'culvert detach --all'"},
		{[]Router{dead, alive}, "its interfaces are gone: attach again, or remove it with 'culvert detach --all'"},
		{[]Router{dead, here}, "its interfaces are gone: attach again, or remove it with 'unshare -n culvert detach --all'"},
		{[]Router{served}, "none of its interfaces exists: the process attaches when they do"},
	} {
		var b bytes.Buffer
		if err := (Report{Routers: tc.all}).WriteText(&b, epoch, false); err != nil {
			t.Fatal(err)
		}
		if want := "\n  " + tc.want + "\n"; strings.Count(b.String(), want) != 1 || strings.Count(b.String(), "its interfaces") != 1 {
			t.Errorf("want once %q in\n%s", want, b.String())
		}
	}
}

func TestTextWithoutInstances(t *testing.T) {
	var b bytes.Buffer
	if err := (Report{}).WriteText(&b, epoch, false); err != nil || b.String() != "culvert is not attached anywhere on this machine\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}

// TestFieldNames wants the names of JSON members to stay, since other programs read them.
func TestFieldNames(t *testing.T) {
	var b bytes.Buffer
	r := testRouter()
	r.Interfaces, r.Links = r.Interfaces[:1], r.Links[2:3]
	if err := (Report{Routers: []Router{r}}).WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	const text = `{"routers":[{
		"router":"br1-ff00_0_110-1","netns":4026532000,"netns_name":"red","here":false,"mode":"native","served":true,
		"pid":77,"loaded_at":"2026-01-02T03:04:05Z","pins":"/pins/red",
		"interfaces":[{"interface":"eth1","attached":true,"packets":1234584,"bytes":123458400,
			"reasons":[
				{"reason":"scion-bfd","verdict":"punt","packets":12,"bytes":1200},
				{"reason":"scion-br-transit","verdict":"fwd","packets":1234567,"bytes":123456700},
				{"reason":"scion-mac","verdict":"punt","limited":true,"packets":5,"bytes":500}],
			"losses":{"redirect":3,"transmit":0}}],
		"links":[{"link":"22","scope":"external","local":"10.2.0.1:50000","remote":"10.2.0.2:50000","up":false,
			"next_hop":{"ifindex":5,"interface":"eth2","mac":"02:00:00:00:00:02","mtu":1500},
			"in":{"packets":0,"bytes":0},"out":{"packets":1234,"bytes":99},"dropped":0}],
		"keys":[{"index":0,"id":"0123456789abcdef"}]}]}`
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	if !bytes.Equal(g, w) {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

// TestProblem has a router that cannot be read. Its error is shown, and none of its fields.
func TestProblem(t *testing.T) {
	var b strings.Builder
	r := Report{Routers: []Router{{ID: "br1", Mode: "native", Problem: "cannot be read: because"}}}
	if err := r.WriteText(&b, time.Now(), false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "router br1") || !strings.HasSuffix(b.String(), "\n  cannot be read: because\n") {
		t.Errorf("got %q", b.String())
	}
}

// TestStageText wants a line for a stage that has failed, for one that is starting and for one whose tables are too small, and none
// for one that is ready.
func TestStageText(t *testing.T) {
	r := testRouter()
	r.Stages = []datapath.StageState{
		{Stage: "filter", State: datapath.StageReady, Short: "because"}, {Stage: "scion", State: datapath.StageOut, Why: "no sockets"},
		{Stage: "route", State: datapath.StageStarting}, {Stage: "lb", State: datapath.StageReady},
	}
	got := strings.Join(r.text(epoch, "", false), "\n")
	want := "\n  stage filter  TOO SMALL: because\n  stage scion  OUT, try it again with 'culvert reload': no sockets\n  stage route  starting\n"
	if !strings.Contains(got, want) || strings.Contains(got, "stage lb") {
		t.Errorf("got\n%s\nwant it with%s", got, want)
	}
}

// TestDeviceText has the states of an interface that carries the program.
func TestDeviceText(t *testing.T) {
	for want, change := range map[string]func(*Interface){
		"  interface eth1": func(i *Interface) { i.State = "up" },
		"  interface eth1  DOWN: ip link set dev eth1 up":                        func(i *Interface) { i.State = "down" },
		"  interface eth1  NO CARRIER":                                           func(i *Interface) { i.State = "no carrier" },
		"  interface eth1  renamed to wan0 since":                                func(i *Interface) { i.State, i.Renamed = "up", "wan0" },
		"  interface eth1  DOWN: ip link set dev wan0 up  renamed to wan0 since": func(i *Interface) { i.State, i.Renamed = "down", "wan0" },
	} {
		i := port("eth1", 0)
		change(&i)
		if got := i.text("", false)[0]; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestKind wants only a SCION router and an IP router called a router.
func TestKind(t *testing.T) {
	for want, all := range map[string][]Router{
		"router":     {{}, {noSCION: true, Route: &Route{}}},
		"data plane": {{noSCION: true}, {noSCION: true, LB: &LB{}, Filter: &Filter{}}},
	} {
		for _, r := range all {
			if got := r.kind(); got != want {
				t.Errorf("%+v: %s, want %s", r, got, want)
			}
		}
	}
}

// TestFilterDropped has reasons of the filter and others.
func TestFilterDropped(t *testing.T) {
	var f Filter
	f.add([]stats.Reason{
		{Name: "filter", Verdict: "drop", Packets: 1, Bytes: 60}, {Name: "filter-limit", Verdict: "drop", Packets: 2, Bytes: 120},
		{Name: "filter-synack", Verdict: "xmit", Packets: 4, Bytes: 240}, {Name: "scion-mac", Verdict: "drop", Packets: 8, Bytes: 480},
	})
	if f.Packets != 3 || f.Bytes != 180 {
		t.Errorf("dropped %d packets, %d bytes", f.Packets, f.Bytes)
	}
}
