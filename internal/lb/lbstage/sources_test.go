// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/host/runstate"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/source/etcdsource"
	"culvert/internal/lb/sourcestate"
	"culvert/internal/stage"
	"culvert/internal/testbed"
)

// clients are as many flows that go on sending.
const clients = 200

// sourceBed is a load balancer one of whose VIPs has backends from a file, and flows that never stop.
type sourceBed struct {
	*process
	list string
	// was has the backends of the flows, by client.
	was map[netip.AddrPort]netip.Addr
}

func newSourceBed(t *testing.T) *sourceBed {
	b := &sourceBed{process: newProcess(t), list: filepath.Join(t.TempDir(), "backends")}
	for n := 2; n < 20; n++ {
		testbed.IP(t, fmt.Sprintf("neigh add 10.9.1.%d lladdr 02:00:00:00:00:%02x dev lb0 nud permanent", n, n))
	}
	b.router.Must(t, func() error {
		testbed.IP(t, "route add 192.0.2.2/32 via 10.9.1.1")
		return nil
	})
	return b
}

// file returns a configuration with the list as a source, and more lines for the source, or without a source for "-".
func (b *sourceBed) file(more, ofLB string) string {
	text := "interfaces = [\"lb0\"]\n[lb]\nring_size = 257\nseed = \"secret\"\n" + ofLB +
		"[[lb.vip]]\naddress = \"192.0.2.2:53\"\nprotocol = \"udp\"\nencapsulation = \"l2\"\n[[lb.vip.backend]]\naddress = \"10.9.1.2\"\nweight = 2\n"
	if more == "-" {
		return text
	}
	return text + "[[lb.vip.source]]\nkind = \"file\"\nname = \"list\"\nfile = \"" + b.list + "\"\n" + more
}

// write replaces the list by backends with these last bytes. Words with = belong to the backend before.
func (b *sourceBed) write(backends string) {
	b.t.Helper()
	var text strings.Builder
	for _, word := range strings.Fields(backends) {
		if strings.Contains(word, "=") {
			text.WriteString(" " + word)
		} else {
			text.WriteString("\n10.9.1." + word)
		}
	}
	b.must(os.WriteFile(b.list+".new", []byte(text.String()), 0o644))
	b.must(os.Rename(b.list+".new", b.list))
}

// restart ends the process and starts another one on its data plane.
func (b *sourceBed) restart(text string) {
	b.t.Helper()
	b.stop(nil)
	b.must(b.serving.Close())
	b.inst.Close()
	plan, err := compile(b.t, text)
	b.must(err)
	b.serving, err = plan.Prepare(b.t.Context(), b.started())
	b.must(err)
	b.must(plan.Check(stage.Situation{Interfaces: []string{"lb0"}}))
	o := b.options(b.serving)
	o.Begin = func(inst *datapath.Instance) error {
		return b.serving.Commit(b.t.Context(), inst, func() error { return nil })
	}
	b.inst, err = datapath.Attach(o)
	b.must(err)
	b.serve()
}

// backends returns the backends that are in force, by the last byte, with their weights.
func (b *sourceBed) backends() string {
	plane, err := lbplane.View(b.inst)
	b.must(err)
	s, err := lb.Load(plane)
	b.must(err)
	var all []string
	for _, one := range s.VIPs[0].Backends {
		word := fmt.Sprintf("%s*%d", strings.TrimPrefix(one.Addr.String(), "10.9.1."), one.Share())
		if one.Offered != "" {
			word += "@" + one.Offered
		}
		all = append(all, word)
	}
	return strings.Join(all, " ")
}

// traffic has clients send from now on until the test ends.
func (b *sourceBed) traffic() {
	var socks []net.Conn
	b.router.Must(b.t, func() error {
		for range clients {
			c, err := net.Dial("udp", "192.0.2.2:53")
			if err != nil {
				return err
			}
			socks = append(socks, c)
		}
		return nil
	})
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, c := range socks {
				_, _ = c.Write([]byte("x"))
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	b.t.Cleanup(func() {
		end()
		<-done
		for _, c := range socks {
			c.Close()
		}
	})
	b.eventually("flows", fmt.Sprint(clients), b.flows)
	b.was = b.of()
}

// of returns the backends of the flows, by client.
func (b *sourceBed) of() map[netip.AddrPort]netip.Addr {
	plane, err := lbplane.View(b.inst)
	b.must(err)
	s, err := lb.Load(plane)
	b.must(err)
	name := make(map[lbplane.BackendID]netip.Addr)
	for _, one := range s.VIPs[0].Backends {
		name[one.ID] = one.Addr
	}
	now := make(map[netip.AddrPort]netip.Addr)
	b.must(plane.Flows(func(f lbplane.Flow) bool { now[f.Client] = name[f.Backend]; return true }))
	return now
}

// stayed fails if a flow has moved whose backend is still there.
func (b *sourceBed) stayed(what string) {
	b.t.Helper()
	time.Sleep(50 * time.Millisecond) // for packets after the change
	plane, err := lbplane.View(b.inst)
	b.must(err)
	s, err := lb.Load(plane)
	b.must(err)
	there := make(map[netip.Addr]bool)
	for _, one := range s.VIPs[0].Backends {
		there[one.Addr] = true
	}
	now, moved := b.of(), 0
	for client, backend := range b.was {
		if there[backend] && now[client] != backend {
			moved++
		}
	}
	if moved > 0 || len(now) != clients {
		b.t.Errorf("%s: %d of %d flows have moved whose backends are still there", what, moved, len(now))
	}
	b.was = now
}

// sources returns the states of the sources as the process publishes them.
func (b *sourceBed) sources() (all []sourcestate.Source) {
	known, err := runstate.Read(sourcestate.Kind, b.inst.NetNS(), b.inst.Name(), b.inst.ID(), &all)
	b.must(err)
	if !known {
		return nil
	}
	return all
}

func (b *sourceBed) state() string {
	all := b.sources()
	if len(all) != 1 {
		return fmt.Sprint(len(all), " sources")
	}
	s := all[0]
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %d+%d %s", s.VIP, s.Kind, s.State, s.Backends, s.Leaving, s.Why))
}

// logged counts the lines of the log with a text.
func (b *sourceBed) logged(text string) int { return strings.Count(b.log.String(), text) }

// TestSources changes what a source names while flows go on: only those of backends that are gone move.
func TestSources(t *testing.T) {
	if !testbed.InProcess(t) {
		return
	}
	b := newSourceBed(t)
	b.write("3 4 5 weight=3")
	rules := "damp = \"100ms\"\ndrain = \"1s\"\nkeep_for = \"1h\"\n"
	b.start(b.file(rules, "flows = 4096\n"))
	all := "2*2 3*1@list 4*1@list 5*3@list"
	b.eventually("backends", all, b.backends)
	b.eventually("state", "192.0.2.2:53/udp file ok 3+0", b.state)
	b.eventually("backends in service", "4", func() string { return fmt.Sprint(b.logged("backend is up")) })
	b.traffic()
	if used := len(uniq(b.was)); used != 4 {
		t.Fatalf("the flows have %d backends, want all 4", used)
	}

	b.write("3 4 5 weight=3 6 7")
	b.eventually("more backends", all+" 6*1@list 7*1@list", b.backends)
	b.stayed("backends added")
	b.write("3 4 weight=9 5 6 7 2 weight=50") // the configuration's settings win
	b.eventually("other weights", "2*2 3*1@list 4*9@list 5*1@list 6*1@list 7*1@list", b.backends)
	b.stayed("weights changed")

	// A backend that leaves keeps its flows for a while.
	b.write("3 4 weight=9 6 7 2")
	drained := "2*2 3*1@list 4*9@list 6*1@list 7*1@list 5*0@list"
	b.eventually("a backend drained", drained, b.backends)
	b.stayed("a backend drained")
	fewer := "2*2 3*1@list 4*9@list 6*1@list 7*1@list"
	b.eventually("a backend removed", fewer, b.backends)
	b.stayed("a backend removed")

	// What is wrong leaves everything as it is, and is said once.
	for _, c := range []struct {
		what, list, state string
		logged            int
	}{
		{"no list", "[x]", `failing 5+0 ` + b.list + `: line 2: "10.9.1.[x]" is no IP address: write a backend's as 10.0.0.11 or fd00::11`, 1},
		{"too few", "3 4 weight=9", `held 5+0 it leaves 2 of 6 backends, less than keep = "50%" says: all 5 stay until it has said the same for 1h0m0s`, 1},
		{"nothing", "", "held 5+0 it names no backends: the last 5 stay", 0},
		{"twice", "3 4 weight=9 6 7 2 3", `failing 5+0 ` + b.list + `: line 7: backend 10.9.1.3 is there twice, first in line 2`, 1},
	} {
		before := b.logged("level=WARN")
		b.write(c.list)
		b.eventually(c.what, "192.0.2.2:53/udp file "+c.state, b.state)
		if got := b.backends(); got != fewer {
			t.Errorf("%s: backends are %s", c.what, got)
		}
		if n := b.logged("level=WARN") - before; n != c.logged {
			t.Errorf("%s: %d lines in the log, want %d", c.what, n, c.logged)
		}
		b.stayed(c.what)
	}
	b.write("3 4 weight=9 6 7 2")
	b.eventually("well again", fewer, b.backends)
	b.must(os.WriteFile(b.list, []byte("fd00::3\n10.9.1.3\n10.9.1.4 weight=9\n10.9.1.6\n10.9.1.7\n10.9.1.2\n"), 0o644))
	b.eventually("another family", "192.0.2.2:53/udp file refused 5+0 VIP 192.0.2.2:53/udp: backend fd00::3: l2 cannot reach a backend of another family than the VIP's: use ipip or gue", b.state)
	b.stayed("another family")
	if got := b.backends(); got != fewer {
		t.Errorf("another family: backends are %s", got)
	}
	b.write("3 4 weight=9 6 7 2")
	b.eventually("well again", "192.0.2.2:53/udp file ok 5+0", b.state)

	// By hand, a source's backend can be drained and not deleted.
	b.must(lb.Edit(b.inst, func(s *lb.State) error {
		k, a := s.VIPs[0].Service, netip.MustParseAddr("10.9.1.6")
		if _, err := s.DeleteBackend(k, a); err == nil || !strings.Contains(err.Error(), `comes from source "list": change it there, or keep new flows from it with 'culvert lb drain 192.0.2.2:53/udp 10.9.1.6'`) {
			t.Errorf("deleting a backend of a source: %v", err)
		}
		return s.Drain(k, a, true)
	}))
	b.write("3 4 weight=9 6 weight=7 7 2")
	drainedByHand := "2*2 3*1@list 4*9@list 6*0@list 7*1@list"
	b.eventually("changes", "3", func() string { return fmt.Sprint(b.changesOf("changed=10.9.1.6") + 2) })
	if got := b.backends(); got != drainedByHand {
		t.Errorf("a drained backend: %s, want %s", got, drainedByHand)
	}
	b.must(lb.Edit(b.inst, func(s *lb.State) error { return s.Drain(s.VIPs[0].Service, netip.MustParseAddr("10.9.1.6"), false) }))
	b.stayed("drained by hand")
	whole := "2*2 3*1@list 4*9@list 6*7@list 7*1@list"

	// A reload keeps them, on the same program and on a new one, also if the source fails just then.
	b.must(os.Remove(b.list))
	for _, c := range []struct{ more, ofLB, how string }{
		{rules + "keep = \"90%\"\n", "flows = 4096\n", "followed"}, {rules, "flows = 9000\n", "loaded"}, {rules, "flows = 9000\n", "served"},
	} {
		how := b.reload(b.file(c.more, c.ofLB), nil)
		if how != c.how || b.backends() != whole {
			t.Errorf("the file was %s, want %s, and the backends are %s", how, c.how, b.backends())
		}
		b.stayed("reload")
	}
	b.eventually("failing", "192.0.2.2:53/udp file failing 5+0 open "+b.list+": no such file or directory", b.state)

	// So does another process.
	b.restart(b.file(rules, "flows = 9000\n"))
	b.eventually("failing", "192.0.2.2:53/udp file failing 5+0 open "+b.list+": no such file or directory", b.state)
	if got := b.backends(); got != whole {
		t.Errorf("after a start the backends are %s", got)
	}
	b.stayed("another process")

	// A configuration without the source has its own backends alone.
	b.reload(b.file("-", "flows = 9000\n"), nil)
	if got := b.backends(); got != "2*2" {
		t.Errorf("without the source the backends are %s", got)
	}
	b.stayed("without the source")
	b.eventually("sources", "0 sources", b.state)
}

// TestSourceOfDeletedVIP deletes a VIP by hand, which the file brings back: its source's backends come back too, although the source says
// the same all the time.
func TestSourceOfDeletedVIP(t *testing.T) {
	if !testbed.InProcess(t) {
		return
	}
	b := newSourceBed(t)
	b.write("3 4")
	text := b.file("damp = \"0s\"\n", "")
	b.start(text)
	b.eventually("backends", "2*2 3*1@list 4*1@list", b.backends)
	b.must(lb.Edit(b.inst, func(s *lb.State) error {
		_, err := s.DeleteVIP(s.VIPs[0].Service)
		return err
	}))
	b.eventually("state", "192.0.2.2:53/udp file refused 2+0 the VIP was deleted by hand: it comes back when the file is read again", b.state)
	b.reload(text, nil)
	b.eventually("backends", "2*2 3*1@list 4*1@list", b.backends)
	b.eventually("state", "192.0.2.2:53/udp file ok 2+0", b.state)
}

// changesOf counts lines about changes by sources with a text.
func (b *sourceBed) changesOf(text string) (n int) {
	for _, line := range strings.Split(b.log.String(), "\n") {
		if strings.Contains(line, "a source has changed backends") && strings.HasSuffix(line, text) {
			n++
		}
	}
	return n
}

func uniq(m map[netip.AddrPort]netip.Addr) map[netip.Addr]bool {
	all := make(map[netip.Addr]bool)
	for a := range maps.Values(m) {
		all[a] = true
	}
	return all
}

func sourceOf(text string) string { return lbHead + lbVIP + "[[lb.vip.source]]\n" + text }

// TestSourceErrors wants errors of [[lb.vip.source]] with their position.
func TestSourceErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "c.toml:6:3: VIP 192.0.2.1:80/tcp: source: kind is missing: use \"file\", \"dns\" or \"etcd\""},
		{"kind = \"consul\"\n", "c.toml:7:8: VIP 192.0.2.1:80/tcp: source: kind \"consul\": use file, dns or etcd"},
		{"kind = \"file\"\n", "source: file is missing"},
		{"kind = \"dns\"\n", "source: host is missing"},
		{"kind = \"etcd\"\n", "source: prefix is missing"},
		{"kind = \"etcd\"\nprefix = \"/x\"\n", "endpoints are missing, and there is no [cluster] whose etcd could be asked"},
		{"kind = \"file\"\nfile = \"x\"\nhost = \"y\"\n", "c.toml:9:8: VIP 192.0.2.1:80/tcp: source: host goes with kind \"dns\", not with \"file\""},
		{"kind = \"dns\"\nhost = \"a b\"\n", "host \"a b\" is no name"},
		{"kind = \"dns\"\nhost = \"" + strings.Repeat("a", 64) + ".b\"\n", "is no name"},
		{"kind = \"dns\"\nhost = \"x\"\nrecords = [\"mx\"]\n", "records \"mx\": use a, aaaa and srv"},
		{"kind = \"dns\"\nhost = \"x\"\nresolver = \"ns1\"\n", "resolver \"ns1\": write it as 192.0.2.53"},
		{"kind = \"dns\"\nhost = \"x\"\nmin_ttl = \"1h\"\n", "min_ttl 1h0m0s is longer than max_ttl 5m0s"},
		{"kind = \"etcd\"\nprefix = \"/x\"\nendpoints = [\"192.0.2.1:2379\"]\n", "write it as https://ADDRESS:PORT"},
		{"kind = \"etcd\"\nprefix = \"/x\"\nendpoints = [\"https://192.0.2.1:2379\"]\n", "set ca"},
		{"kind = \"etcd\"\nprefix = \"/x\"\nendpoints = [\"http://192.0.2.1:2379\"]\n", "is on another machine: use https"},
		{"kind = \"etcd\"\nprefix = \"/x\"\nendpoints = [\"http://127.0.0.1:2379\"]\nca = \"x\"\n", "beside ca: it begins with https"},
		{"kind = \"etcd\"\nprefix = \"/x\"\nendpoints = [\"https://192.0.2.1:2379\"]\nca = \"x\"\ncert = \"y\"\n", "cert and key go together"},
		{"kind = \"etcd\"\nprefix = \"/x\"\nca = \"x\"\n", "endpoints are missing beside ca"},
		{"kind = \"file\"\nfile = \"x\"\nkeep = \"50\"\n", "c.toml:9:8: VIP 192.0.2.1:80/tcp: source: keep \"50\": write a share from \"0%\" to \"100%\""},
		{"kind = \"file\"\nfile = \"x\"\nkeep = \"101%\"\n", "keep \"101%\""},
		{"kind = \"file\"\nfile = \"x\"\ndamp = \"soon\"\n", "damp = \"soon\" is not a duration"},
		{"kind = \"file\"\nfile = \"x\"\nkeep_for = \"0s\"\n", "keep_for = \"0s\" is too short"},
		{"kind = \"file\"\nfile = \"x\"\nname = \"a\\nb\"\n", "control characters"},
		{"kind = \"file\"\nfile = \"x\"\n[[lb.vip.source]]\nkind = \"file\"\nfile = \"x\"\n", "c.toml:9:3: VIP 192.0.2.1:80/tcp: source \"x\": there is one of this name already"},
	} {
		_, err := compile(t, sourceOf(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: error %v, want one with %s", c.text, err, c.want)
		}
	}
}

// TestSourceChanges looks at what a reload says of sources.
func TestSourceChanges(t *testing.T) {
	was, err := compile(t, sourceOf("kind = \"file\"\nfile = \"/a\"\n[[lb.vip.source]]\nkind = \"file\"\nname = \"b\"\nfile = \"/b\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	is, err := compile(t, sourceOf("kind = \"file\"\nname = \"b\"\nfile = \"/c\"\nkeep = \"0%\"\ndrain = \"0s\"\n[[lb.vip.source]]\nkind = \"dns\"\nhost = \"web.example\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"VIP 192.0.2.1:80/tcp: source b changed", "VIP 192.0.2.1:80/tcp: source b: keep 50% → 0%", "VIP 192.0.2.1:80/tcp: source b: drain 30s → 0s",
		"VIP 192.0.2.1:80/tcp: source web.example added", "VIP 192.0.2.1:80/tcp: source /a removed",
	}
	if got := is.Changes(was, nil); !slices.Equal(got, want) {
		t.Errorf("changes %q, want %q", got, want)
	}
	var counts []string
	for _, c := range is.Summary() {
		counts = append(counts, fmt.Sprint(c.Key, " ", c.N))
	}
	if !slices.Contains(counts, "sources 2") {
		t.Errorf("the summary has %v", counts)
	}
}

// TestSourceNotes has a check say what is wrong with the file of a source, which keeps no load balancer from starting.
func TestSourceNotes(t *testing.T) {
	p, err := compile(t, sourceOf("kind = \"file\"\nfile = \"/none\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	var notes []string
	if err := p.CheckHost(stage.Host{Note: func(err error) { notes = append(notes, err.Error()) }}); err != nil {
		t.Fatal(err)
	}
	if len(notes) != 1 || !strings.HasSuffix(notes[0], `c.toml:6:3: VIP 192.0.2.1:80/tcp: source "/none": no backends come from it until that is mended: open /none: no such file or directory`) {
		t.Errorf("notes %q", notes)
	}
}

// TestSourceOfCluster has a source ask the etcd of the file's cluster, unless it names another one.
func TestSourceOfCluster(t *testing.T) {
	const cluster = "[cluster]\nname = \"edge\"\nnode = \"lb1\"\nendpoints = [\"https://192.0.2.9:2379\"]\n" +
		"[cluster.tls]\nca = \"/ca.pem\"\ncert = \"/node.pem\"\nkey = \"/node.key\"\n"
	for own, want := range map[string]etcdsource.Source{
		"": {
			Prefix: "/x/", Endpoints: []string{"https://192.0.2.9:2379"}, TLS: etcdsource.TLS{CA: "/ca.pem", Cert: "/node.pem", Key: "/node.key"},
		},
		"endpoints = [\"http://127.0.0.1:2379\"]\n": {Prefix: "/x/", Endpoints: []string{"http://127.0.0.1:2379"}},
	} {
		p, err := compile(t, sourceOf("kind = \"etcd\"\nprefix = \"/x/\"\n"+own)+cluster)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.sources[0].source; !reflect.DeepEqual(got, want) {
			t.Errorf("with %q: %+v, want %+v", own, got, want)
		}
	}
}
