// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"culvert/internal/api"
)

// rewrite writes the configuration of a bed again.
func rewrite(t *testing.T, path, text string) {
	t.Helper()
	// As editors do, so that the process never reads a half-written file.
	must(os.WriteFile(path+"~", []byte(text), 0o600))
	must(os.Rename(path+"~", path))
}

// refusedFor is an error with which a file is refused.
type refusedFor struct {
	File         string
	Line, Column int
	Error        string
}

// reload runs 'culvert reload -j' with arguments, and returns the exit status and what it says.
func reload(t *testing.T, args ...string) (status int, r struct {
	api.Reloaded
	OK     bool
	Errors []refusedFor
}) {
	t.Helper()
	status, stdout, stderr := culvert(t, append([]string{"reload", "-j"}, args...)...)
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("reload %v: status %d, %q, %q: %v", args, status, stdout, stderr, err)
	}
	return status, r
}

// TestReload goes through configurations, each of which is in force when the command returns.
func TestReload(t *testing.T) {
	b := newPairsBed(t)
	const head = "interfaces = ['ft0']\n"
	rule := func(port int) string {
		return fmt.Sprintf("[filter]\n[[filter.rule]]\nname = 'r'\naction = 'drop'\nexpression = 'udp port %d'\n", port)
	}
	file := b.file("c.toml", head+rule(5))
	p := runAttached(t, file)
	b.eventually("changes nothing", "reload --dry-run") // the process may not listen yet
	set := filepath.Join(filepath.Dir(file), "bad.txt")
	must(os.WriteFile(set, []byte("192.0.2.0/24\n"), 0o600))
	const sets = "[[filter.set]]\nname = 'bad'\nfile = 'bad.txt'\n[[filter.rule]]\nname = 's'\naction = 'drop'\nsrc = ['@bad']\n"
	for _, step := range []struct {
		name, text string
		newProgram bool
		changes    []string // that are among those reported
		want, line string   // in the output of a command line
	}{
		{"nothing", head + rule(5), false, nil, "udp port 5", "filter list"},
		{"another expression", head + rule(6), false, nil, "udp port 6", "filter list"},
		{"a set from a file", head + rule(6) + sets, false, nil, "192.0.2.0/24", "filter set show bad"},
		{"an interface more", "interfaces = ['ft0', 'fx0']\n" + rule(6), true, []string{"interface fx0 added"}, "interface fx0", "status"},
		{"an interface less", head + rule(6), true, []string{"interface fx0 removed"}, "filter of culvert on ft0 ", "filter list"},
		{"a stage more", head + rule(6) + "[route]\n", true, []string{"[route] switched on"}, "route  IPv4", "status"},
		{"a size of it", head + rule(6) + "[route]\nblocks4 = 8192\n", true, nil, "route  IPv4", "status"},
		{"a stage less", head + rule(6), true, []string{"[route] switched off"}, "filter of culvert on ft0 ", "filter list"},
		{"another stage", head + rule(6) + "[lb]\n[[lb.vip]]\naddress = '192.0.2.9:80'\nprotocol = 'tcp'\n[[lb.vip.backend]]\naddress = '10.0.0.9'\n", true,
			[]string{"[lb] switched on"}, "192.0.2.9:80", "lb show"},
		{"its backends", head + rule(6) + "[lb]\n[[lb.vip]]\naddress = '192.0.2.9:80'\nprotocol = 'tcp'\n[[lb.vip.backend]]\naddress = '10.0.0.8'\n", false,
			nil, "10.0.0.8", "lb show"},
		{"off", head + rule(6), true, []string{
			"[lb] switched off", "[lb] loses the flow table and the counters of VIPs and backends: they begin anew when it is switched on again",
		}, "filter of culvert on ft0 ", "filter list"},
		{"metrics", "metrics = '127.0.0.1:9441'\nlog_level = 'debug'\n" + head + rule(6), false,
			[]string{"metrics: none → 127.0.0.1:9441", "log_level: INFO → DEBUG"}, "udp port 6", "filter list"},
		{"metrics everywhere", "metrics = '0.0.0.0:9441'\n" + head + rule(6), false, []string{"metrics: 127.0.0.1:9441 → 0.0.0.0:9441"}, "udp port 6", "filter list"},
		{"a page", "metrics = '127.0.0.1:9441'\n" + head + rule(6) + "[web]\nlisten = '127.0.0.1:9480'\n", false,
			[]string{"web.listen: none → 127.0.0.1:9480"}, "page  http://127.0.0.1:9480/", "status"},
		{"page and metrics change places", "metrics = '127.0.0.1:9480'\n" + head + rule(6) + "[web]\nlisten = '127.0.0.1:9441'\n", false,
			[]string{"metrics: 127.0.0.1:9441 → 127.0.0.1:9480", "web.listen: 127.0.0.1:9480 → 127.0.0.1:9441"}, "page  http://127.0.0.1:9441/", "status"},
		{"a page for everybody", "metrics = '127.0.0.1:9441'\n" + head + rule(6) + "[web]\nlisten = ':9480'\n", false,
			[]string{"web.listen: 127.0.0.1:9441 → :9480"}, "page  http://127.0.0.1:9480/  OPEN to whoever reaches :9480: it has no password", "status"},
		{"no page", "metrics = '0.0.0.0:9441'\n" + head + rule(6), false, []string{"web.listen: :9480 → none"}, "udp port 6", "filter list"},
		{"metrics here", "metrics = '127.0.0.1:9441'\n" + head + rule(6), false, []string{"metrics: 0.0.0.0:9441 → 127.0.0.1:9441"}, "udp port 6", "filter list"},
	} {
		rewrite(t, file, step.text)
		if _, r := reload(t, "--dry-run"); !r.DryRun || !r.OK {
			t.Errorf("%s: the dry run says %+v", step.name, r)
		}
		status, r := reload(t)
		if status != 0 || !r.OK || r.NewProgram != step.newProgram || len(r.Errors) > 0 {
			t.Fatalf("%s: status %d, %+v", step.name, status, r)
		}
		for _, change := range step.changes {
			if !strings.Contains(strings.Join(r.Changes, "\n")+"\n", change+"\n") {
				t.Errorf("%s: changes %q, want %q", step.name, r.Changes, change)
			}
		}
		b.expect(0, step.want, strings.Fields(step.line)...)
		if _, r := reload(t, "--dry-run"); !r.OK || len(r.Changes) > 0 {
			t.Errorf("%s: once it is in force, the dry run says %+v", step.name, r)
		}
		if status, stdout, _ := culvert(t, "status"); status != 0 || strings.Contains(stdout, "configuration") {
			t.Errorf("%s: status says\n%s", step.name, stdout)
		}
	}
	b.metric("127.0.0.1:9441", "culvert_is_served_but_has_no_such_metric", "")
	const metric = "culvert_config_last_reload_successful"
	last, err := os.ReadFile(file)
	must(err)
	b.metric("127.0.0.1:9441", metric, "1")
	rewrite(t, file, "[")
	if status, _ := reload(t); status != 1 {
		t.Errorf("a file without sense: status %d", status)
	}
	b.metric("127.0.0.1:9441", metric, "0")
	rewrite(t, file, string(last))
	reload(t)
	b.metric("127.0.0.1:9441", metric, "1")
	b.send(4, frame("198.51.100.1", 6))
	b.eventually("dropped 4 packets", "status")
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.waitFor(t, "configuration reloaded")
	p.waitFor(t, "[lb] loses the flow table and the counters of VIPs and backends")
	p.interrupt(t)
}

// TestReloadTakesBack changes by hand what the file has. A dry run lists what a reload takes back, and not what stays.
func TestReloadTakesBack(t *testing.T) {
	b := newPairsBed(t)
	const vip = "192.0.2.9:80/tcp"
	text := func(rate string) string {
		return "interfaces = ['ft0']\n[filter]\n[[filter.set]]\nname = 'bad'\nentries = ['192.0.2.1', '192.0.2.3']\n" +
			"[[filter.set]]\nname = 'open'\n[[filter.set]]\nname = 'brief'\nentries = ['192.0.2.7', '192.0.2.9']\ntimeout = '1h'\n" +
			"[[filter.rule]]\nname = 'a'\naction = 'limit'\nrate = '" + rate + "'\nexpression = 'udp port 5'\n" +
			"[[filter.rule]]\nname = 'b'\naction = 'drop'\nexpression = 'udp port 6'\n" +
			"[[filter.rule]]\nname = 'c'\naction = 'drop'\nsrc = ['@bad']\n" +
			"[lb]\n[[lb.vip]]\naddress = '192.0.2.9:80'\nprotocol = 'tcp'\n" +
			"[[lb.vip.backend]]\naddress = '10.0.0.8'\n[[lb.vip.backend]]\naddress = '10.0.0.9'\n"
	}
	file := b.file("c.toml", text("1kpps"))
	p := runAttached(t, file)
	b.eventually("changes nothing", "reload --dry-run")
	for _, line := range []string{
		"filter add --name hand drop icmp", "filter set add open 203.0.113.1", "lb backend add " + vip + " 10.0.0.7", "lb drain " + vip + " 10.0.0.8",
	} {
		b.expect(0, "", strings.Fields(line)...)
	}
	b.expect(0, "changes nothing", "reload", "--dry-run")
	for _, line := range []string{
		"filter add --replace --name a limit 5kpps udp", "filter del b", "filter set add bad 203.0.113.5 203.0.113.7", "filter set del bad 192.0.2.3",
		"filter set del brief 192.0.2.7", "lb backend set " + vip + " 10.0.0.8 --weight 5", "lb backend del " + vip + " 10.0.0.9",
		"lb vip set " + vip + " --hash source",
	} {
		b.expect(0, "", strings.Fields(line)...)
	}
	const byHand = " (takes back a change by hand)"
	want := []string{
		"rule a: rate 5kpps → 1kpps" + byHand, "rule a: expression udp → udp port 5" + byHand, "rule b added" + byHand,
		"set bad: 1 prefix added, 2 removed" + byHand, "set brief: 1 prefix added (changed by hand, or expired)",
		"VIP " + vip + ": hash source → flow" + byHand, "VIP " + vip + ": backend 10.0.0.8: weight 5 → 1" + byHand,
		"VIP " + vip + ": backend 10.0.0.9 added" + byHand,
	}
	if _, r := reload(t, "--dry-run"); !slices.Equal(r.Changes, want) {
		t.Errorf("the dry run says\n%s\nwant\n%s", strings.Join(r.Changes, "\n"), strings.Join(want, "\n"))
	}
	rewrite(t, file, text("2kpps"))
	want = append([]string{"rule a: rate 1kpps → 2kpps", "rule a: rate 5kpps → 2kpps" + byHand}, want[1:]...)
	if _, r := reload(t); !slices.Equal(r.Changes, want) {
		t.Errorf("the reload says\n%s\nwant\n%s", strings.Join(r.Changes, "\n"), strings.Join(want, "\n"))
	}
	b.expect(0, "2kpps", "filter", "list")
	b.expect(0, "changes nothing", "reload", "--dry-run")
	p.waitFor(t, "rule b added (takes back a change by hand)")
}

// TestReloadRefused has a process refuse configurations. What was in force goes on, and status and doctor say so.
func TestReloadRefused(t *testing.T) {
	b := newPairsBed(t)
	const head = "interfaces = ['ft0']\n"
	const good = head + "[filter]\n[[filter.rule]]\nname = 'r'\naction = 'drop'\nexpression = 'udp port 5'\n"
	file := b.file("c.toml", good)
	runAttached(t, file)
	set := filepath.Join(filepath.Dir(file), "bad.txt")
	must(os.WriteFile(set, []byte(strings.Repeat("192.0.2.0/24\n", 1000)+"foo\n"), 0o600))
	b.filter(0, "added", "add --name hand drop", "udp port 7")
	_, before, _ := culvert(t, "filter", "list")
	for _, tt := range []struct {
		name, text, want string
		line             int
	}{
		{"no TOML", good + "[", "", 7},
		{"a bad expression", strings.Replace(good, "udp port 5", "udp prot 5", 1), `compile "udp prot 5"`, 6},
		{"a bad line in a set", good + "[[filter.set]]\nname = 'bad'\nfile = 'bad.txt'\n", `bad.txt:1001: "foo"`, 9},
		{"an interface that is gone", "missing = 'refuse'\n" + strings.Replace(good, "'ft0'", "'ft0', 'gone'", 1), "interface gone does not exist: see 'ip link'", 2},
		{"errors of several kinds", "metrics = '198.51.100.7:1'\nmissing = 'refuse'\n" +
			strings.Replace(strings.Replace(good, "'ft0'", "'ft0', 'gone'", 1), "udp port 5", "udp prot 5", 1), "198.51.100.7:1", 1},
		{"a rule made by hand", strings.Replace(good, "'r'", "'hand'", 1), "hand", 0},
		{"another name", "name = 'b'\n" + good, "the data plane would be b instead of culvert", 1},
		{"another mode", "mode = 'generic'\n" + good, "is attached in native mode, and the kernel cannot change that while packets flow", 1},
		{"an address in use", "metrics = '127.0.0.1:9442'\n" + good, "127.0.0.1:9442 is in use by culvert.test", 1},
		{"an address that is not here", "metrics = '198.51.100.7:1'\n" + good, "198.51.100.7:1", 1},
		{"a page at an address in use", good + "[web]\nlisten = '127.0.0.1:9442'\n", "serving the page on 127.0.0.1:9442: 127.0.0.1:9442 is in use by culvert.test", 8},
		{"a page at an address that is not here", good + "[web]\nlisten = '198.51.100.7:1'\n", "this host does not have the address 198.51.100.7", 8},
		{"no file", "", "", 0},
	} {
		var held net.Listener
		if strings.Contains(tt.name, "an address in use") {
			l, err := net.Listen("tcp", "127.0.0.1:9442") // in the namespace of this thread
			must(err)
			held = l
		}
		if rewrite(t, file, tt.text); tt.text == "" {
			must(os.Remove(file))
		}
		status, r := reload(t)
		if status != 1 || r.OK || len(r.Errors) == 0 {
			t.Fatalf(tt.name+": status %d, %+v", status, r)
		}
		if e := r.Errors[0]; !strings.Contains(e.Error, tt.want) || strings.Contains(e.Error, "\n") || tt.line > 0 && e.Line != tt.line {
			t.Errorf(tt.name+": errors %+v, want %q in line %d", r.Errors, tt.want, tt.line)
		}
		if tt.name == "another mode" || tt.name == "an interface that is gone" || tt.name == "errors of several kinds" {
			// 'culvert check' says the same.
			var checked struct{ Errors []refusedFor }
			_, stdout, _ := culvert(t, "check", "-j", "-c", file)
			must(json.Unmarshal([]byte(stdout), &checked))
			byLine := func(a, b refusedFor) int { return a.Line - b.Line } // check has what is wrong in the file first
			slices.SortFunc(checked.Errors, byLine)
			if !slices.Equal(checked.Errors, r.Errors) {
				t.Errorf("%s: check says\n%+v, and reload\n%+v", tt.name, checked.Errors, r.Errors)
			}
		}
		if _, after, _ := culvert(t, "filter", "list"); after != before {
			t.Errorf(tt.name+": the filter is now\n%s\nand was\n%s", after, before)
		}
		b.expect(0, "NOT RELOADED", "status")
		if _, stdout, _ := culvert(t, "doctor"); !strings.Contains(stdout, "the last reload failed") {
			t.Errorf(tt.name+": doctor says\n%s", stdout)
		}
		if held != nil {
			held.Close()
		}
	}
	rewrite(t, file, "missing = 'wait'\n"+strings.Replace(good, "'ft0'", "'ft0', 'gone'", 1))
	const waits = "c.toml:2:22: interface gone does not exist yet: the data plane attaches to it when it does"
	b.expect(0, waits, "check", "-c", file)
	b.expect(0, waits, "reload", "--dry-run")
	rewrite(t, file, good+"# a comment\n")
	b.expect(0, "DIFFERS", "status")
	if status, r := reload(t); status != 0 || !r.OK {
		t.Errorf("after the errors: status %d, %+v", status, r)
	}
	if _, stdout, _ := culvert(t, "status"); strings.Contains(stdout, "configuration") {
		t.Errorf("status still says\n%s", stdout)
	}
	must(os.Mkdir(strings.TrimSuffix(file, ".toml")+".d", 0o700))
	must(os.WriteFile(strings.TrimSuffix(file, ".toml")+".d/more.toml", []byte("log_level = 'warn'\n"), 0o600))
	b.expect(0, "more.toml", "status")
}

// TestReloadConfirm has configurations that go back, and one that is kept.
func TestReloadConfirm(t *testing.T) {
	b := newPairsBed(t)
	text := func(port int, interfaces string) string {
		return fmt.Sprintf("interfaces = [%s]\n[filter]\n[[filter.rule]]\nname = 'r'\naction = 'drop'\nexpression = 'udp port %d'\n", interfaces, port)
	}
	file := b.file("c.toml", text(5, "'ft0'"))
	p := runAttached(t, file)
	b.expect(1, "nothing to keep", "reload", "--keep")

	rewrite(t, file, text(6, "'ft0', 'fx0'"))
	if status, r := reload(t, "--confirm", "1s"); status != 0 || r.Until == nil || time.Until(*r.Until) > time.Second {
		t.Fatalf("status %d, %+v", status, r)
	}
	b.eventually("udp port 5", "filter list")
	b.eventually("filter of culvert on ft0 ", "filter list")
	b.expect(0, "DIFFERS", "status")
	p.waitFor(t, "nobody has kept the configuration in time")
	b.eventually("WENT BACK", "status")
	b.expect(0, "nobody has kept the configuration in time", "status")
	b.expect(1, "nothing to keep", "reload", "--keep")

	// A second reload on trial goes back to what was kept last.
	reload(t, "--confirm", "1h")
	b.expect(0, "goes back to the one before", "status")
	rewrite(t, file, text(7, "'ft0'"))
	// The times are long enough for a command on a busy machine.
	reload(t, "--confirm", "5s")
	b.expect(0, "udp port 7", "filter", "list")
	b.eventually("udp port 5", "filter list")

	_, r := reload(t, "--confirm", "5s")
	b.expect(0, "the configuration is kept", "reload", "--keep")
	time.Sleep(time.Until(*r.Until) + 200*time.Millisecond)
	b.expect(0, "udp port 7", "filter", "list")
	if _, stdout, _ := culvert(t, "status"); strings.Contains(stdout, "configuration") {
		t.Errorf("status says\n%s", stdout)
	}
}

// TestReloadUnderLoad reloads under load: rules, sets, backends, stages and interfaces change. Every packet arrives, and every one
// is counted.
func TestReloadUnderLoad(t *testing.T) {
	b := newLBBed(t)
	text := func(n int) string {
		more, route := "", ""
		if n%4 == 1 {
			more = ", 'lb9'"
		}
		if n%6 == 2 {
			route = "[route]\n"
		}
		return fmt.Sprintf("interfaces = ['lb0'%s]\nmissing = 'wait'\n[filter]\n[[filter.set]]\nname = 's'\nentries = ['198.51.%d.0/24']\n"+
			"[[filter.rule]]\nname = 'r'\naction = 'drop'\nsrc = ['@s']\n%s"+
			"[lb]\nflows = %d\n[[lb.vip]]\naddress = '192.0.2.1:80'\nprotocol = 'tcp'\n[[lb.vip.backend]]\naddress = '10.0.0.11'\nweight = %d\n"+
			"[[lb.vip.backend]]\naddress = '10.0.0.%d'\n", more, n%200, route, 1<<(16+n/10%2), 1+n%3, 12+n%2)
	}
	file := b.file(text(0))
	p := runAttached(t, file)
	warm := b.load("192.0.2.1:80")
	b.reaches("10.0.0.11")
	b.reaches("10.0.0.12")
	warm()
	received, _ := b.counts()
	b.wait("all packets arrive", func() bool { return b.all.Load() > 0 && b.all.Load() == b.forwarded() })
	before := b.all.Load()
	stop := b.load("192.0.2.1:80")
	const reloads = 24
	programs := 0
	for n := 1; n <= reloads; n++ {
		rewrite(t, file, text(n))
		status, r := reload(t)
		if status != 0 || !r.OK {
			t.Fatalf("reload %d: status %d, %+v", n, status, r)
		}
		if r.NewProgram {
			programs++
		}
	}
	sent := stop()
	b.wait("all packets arrive", func() bool { return b.all.Load()-before == sent })
	if now, _ := b.counts(); now-received != sent {
		t.Errorf("%d packets were sent, and %d counted as received", sent, now-received)
	}
	if n := b.forwarded(); n-before != sent {
		t.Errorf("%d packets were sent, and %d counted as forwarded", sent, n-before)
	}
	if programs == 0 || programs == reloads {
		t.Errorf("%d of %d reloads loaded a new program", programs, reloads)
	}
	p.interrupt(t)
}

// forwarded returns how many packets of lb0 are counted as forwarded.
func (b *lbBed) forwarded() uint64 { _, n := b.counts(); return n }

// counts returns how many packets of lb0 are counted as received, and how many of them as forwarded.
func (b *lbBed) counts() (received, forwarded uint64) {
	b.t.Helper()
	var s struct {
		Routers []struct {
			Interfaces []struct {
				Interface string
				Packets   uint64
				Reasons   []struct {
					Reason  string
					Packets uint64
				}
			}
		}
	}
	_, stdout, _ := culvert(b.t, "status", "-j")
	must(json.Unmarshal([]byte(stdout), &s))
	for _, i := range s.Routers[0].Interfaces {
		if i.Interface != "lb0" {
			continue
		}
		for _, r := range i.Reasons {
			if r.Reason == "lb-new" || r.Reason == "lb-flow" {
				forwarded += r.Packets
			}
		}
		return i.Packets, forwarded
	}
	b.t.Fatalf("no counters of lb0 in %s", stdout)
	return 0, 0
}

// TestReloadWhich has two processes. One of them is named, by its data plane or its file; one that was stopped is said to be silent.
func TestReloadWhich(t *testing.T) {
	b := newPairsBed(t)
	b.expect(1, "no process of this network namespace serves a data plane", "reload")
	b.expect(1, "'culvert run -c FILE' (without -c it reads /etc/culvert/culvert.toml), or 'systemctl start culvert'", "reload")
	const text = "name = '%s'\ninterfaces = ['%s']\n[filter]\n"
	one, two := b.file("one.toml", fmt.Sprintf(text, "a@1", "ft0")), b.file("two.toml", fmt.Sprintf(text, "b", "fx0"))
	p := runAttached(t, one)
	b.eventually("a@1: ", "reload")
	runAttached(t, two)
	b.eventually("several processes serve data planes here, a@1, b: name one with --on", "reload")
	b.expect(0, "b: "+two, "reload", "--on", "b")
	b.expect(0, "a@1: "+one, "reload", "-c", one)
	b.expect(1, "no process of this network namespace runs three.toml", "reload", "-c", "three.toml")
	b.expect(1, "'culvert run -c three.toml'; those that run have "+one+", "+two, "reload", "-c", "three.toml")
	b.expect(1, "no process of this network namespace serves data plane c", "reload", "--on", "c")
	b.expect(1, "with the FILE of c: 'culvert run -c FILE'; those that run serve a@1, b", "reload", "--on", "c")
	must(p.cmd.Process.Signal(syscall.SIGSTOP))
	b.expect(1, "no answer in 5s", "reload", "--on", "a@1")
	must(p.cmd.Process.Signal(syscall.SIGCONT))
	b.expect(0, "a@1: "+one, "reload", "--on", "a@1")
	b.expect(2, "--keep goes alone", "reload", "--keep", "--dry-run")
	b.expect(2, "--confirm needs a time", "reload", "--confirm", "0")
	b.expect(2, "there is nothing to confirm", "reload", "--confirm", "1s", "--dry-run")
}

// TestReloadsAtOnce has several commands ask for a reload at once: each is carried out or refused, and what is in force is whole.
func TestReloadsAtOnce(t *testing.T) {
	b := newPairsBed(t)
	text := func(port int) string {
		return fmt.Sprintf("interfaces = ['ft0']\n[filter]\n[[filter.rule]]\nname = 'r'\naction = 'drop'\nexpression = 'udp port %d'\n", port)
	}
	file := b.file("c.toml", text(5))
	runAttached(t, file)
	b.eventually("culvert: ", "reload")
	for n := 6; n < 9; n++ {
		rewrite(t, file, text(n))
		var commands []*running
		for range 4 {
			commands = append(commands, startCulvert(t, "reload")) // the child is in the namespace of this thread
		}
		done := 0
		for _, c := range commands {
			err := c.cmd.Wait()
			switch {
			case err == nil:
				done++
			case !strings.Contains(c.errs.String(), "another reload is under way: try again when it has ended"):
				t.Errorf("%v: %s", err, &c.errs)
			}
		}
		if done == 0 {
			t.Error("none of four reloads was carried out")
		}
		b.expect(0, fmt.Sprintf("udp port %d", n), "filter", "list")
	}
}

// TestReloadAttachesAgain detaches one of two interfaces by hand. A reload says that it attaches to it again, and does.
func TestReloadAttachesAgain(t *testing.T) {
	b := newPairsBed(t)
	file := b.file("c.toml", "interfaces = ['ft0', 'fx0']\n[filter]\n")
	p := runAttached(t, file)
	b.expect(0, "fx0", "detach", "fx0")
	b.expect(0, "fx0  NOT ATTACHED", "status")
	b.expect(0, "interface fx0 attached again", "reload", "--dry-run")
	b.expect(0, "fx0  NOT ATTACHED", "status")
	b.expect(0, "interface fx0 attached again", "reload")
	if _, stdout, _ := culvert(t, "status"); strings.Contains(stdout, "NOT ATTACHED") {
		t.Errorf("after the reload status says\n%s", stdout)
	}
	b.expect(0, "changes nothing", "reload")
	p.waitFor(t, "interface fx0 attached again")
}
