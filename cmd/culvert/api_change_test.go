// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"culvert/internal/edit"
)

// controlSocket is the path of root's socket of the data plane of beds.
const controlSocket = "/run/culvert/culvert.sock"

// post sends a request that changes something.
func post(t *testing.T, path, body string) (status int, text string) {
	t.Helper()
	status, text, err := tryPost("POST", path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatalf("%s %.100s: %v", path, body, err)
	}
	if strings.Count(text, "\n") != 1 || !json.Valid([]byte(text)) {
		t.Errorf("%s %.100s: %d %q, want one line of JSON", path, body, status, text)
	}
	return status, text
}

func tryPost(method, path, kind string, body io.Reader) (status int, text string, err error) {
	client := http.Client{Timeout: 5 * time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", controlSocket)
		},
	}}
	r, err := http.NewRequest(method, "http://culvert"+path, body)
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Content-Type", kind)
	a, err := client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	return a.StatusCode, string(b), err
}

// changed is a step of TestChanges: a request and the command line that asks for the same. They are refused with the text refused,
// unless it is "". Their notes have the text note.
type changed struct{ words, body, line, refused, note string }

var changes = []changed{
	{"filter add", `{"rule": "h1", "action": "drop", "expression": "udp port 7"}`, "--name h1 drop udp port 7", "", ""},
	{"filter add", `{"action": "limit", "rate": "10kpps", "per": "src/24,48", "burst": "50", "entries": 100, "interfaces": ["ft0"], "src": ["!@bad"], "first": true}`,
		"-i ft0 --per src/24,48 --burst 50 --entries 100 --src !@bad --first limit 10kpps", "", ""},
	{"filter add", `{"rule": "h1", "action": "count", "expression": "udp port 8", "replace": true}`, "--name h1 --replace count udp port 8", "", ""},
	{"filter add", `{"rule": "h2", "action": "pass", "all": true, "before": "b"}`, "--name h2 --before b --all pass", "", ""},
	{"filter add", `{"rule": "h1", "action": "drop", "expression": "tcp"}`, "--name h1 drop tcp", "there is a rule h1", ""},
	{"filter add", `{"action": "drop", "expression": "udp porrt 5"}`, "drop udp porrt 5", "syntax error", ""},
	{"filter add", `{"action": "drop"}`, "drop", "use all: true", ""},
	{"filter add", `{"rule": "h1", "action": "drop", "all": true}`, "--name h1 --all drop", "replace it with replace: true, or choose another rule", ""},
	{"filter add", `{"action": "drop", "src": ["@none"]}`, "--src @none drop", "none", ""},
	{"filter add", `{"action": "drop", "interfaces": ["fx9"], "all": true}`, "-i fx9 --all drop", "not attached", ""},
	{"filter del", `{"rules": ["h2", "nope"]}`, "h2 nope", "nope", ""},
	{"filter del", `{"rules": ["h2", "a"]}`, "h2 a", "", ""},
	{"filter set add", `{"set": "hand", "entries": ["192.0.2.0/24", "2001:db8::7"], "timeout": "1d"}`, "hand 192.0.2.0/24 2001:db8::7 --timeout 1d", "", ""},
	{"filter set add", `{"set": "ends", "entries": ["192.0.2.1:53"], "type": "endpoint"}`, "ends 192.0.2.1:53 --type endpoint", "", ""},
	{"filter set add", `{"set": "hand", "entries": ["203.0.113.7", "203.0.113.0/99"]}`, "hand 203.0.113.7 203.0.113.0/99", "/99", ""},
	{"filter set replace", `{"set": "bad", "entries": ["198.51.100.0/24", "203.0.113.1"]}`, "bad 198.51.100.0/24 203.0.113.1", "", ""},
	{"filter set replace", `{"set": "new", "entries": ["198.51.100.0/24"]}`, "new 198.51.100.0/24", "no set new", ""},
	{"filter set del", `{"set": "bad", "entries": ["198.51.100.7", "192.0.2.1"]}`, "bad 198.51.100.7 192.0.2.1", "192.0.2.1", ""},
	{"filter set del", `{"set": "bad", "entries": ["198.51.100.7"]}`, "bad 198.51.100.7", "", ""},
	{"filter set del", `{"set": "ends"}`, "ends", "", ""},
	{"filter set del", `{"set": "bad"}`, "bad", "uses", ""},
	{"filter protect", `{"service": "192.0.2.77:80"}`, "192.0.2.77:80", "", ""},
	{"filter protect", `{"service": "192.0.2.78:80"}`, "192.0.2.78:80", "", ""},
	{"filter protect", `{"service": "192.0.2.79:80", "mss": 1400}`, "192.0.2.79:80 --mss 1400", "mss is for a service on another host", ""},
	{"filter unprotect", `{"service": "192.0.2.77:80"}`, "192.0.2.77:80", "", ""},
	{"filter set add", `{"set": "bad", "entries": ["10.0.0.1-10.0.0.9", "198.51.100.9"]}`, "bad 10.0.0.1-10.0.0.9 198.51.100.9", "", "2 entries given, 5 prefixes after splitting ranges"},
	{"filter set add", `{"set": "hand", "entries": ["203.0.113.7"], "timeout": "10"}`, "hand 203.0.113.7 --timeout 10", "no unit", ""},
	{"filter set add", `{"set": "hand"}`, "hand", "no entries: name some, or a text", ""},
	{"filter flush", `{}`, "", "", "the configuration file brings 1 rule back when it is read again"},
	{"filter add", `{"rule": "b", "action": "count", "src": ["@bad"], "dst": ["!@hand"]}`, "--name b --src @bad --dst !@hand count", "", ""},
	{"filter add", `{"action": "drop", "expression": "icmp"}`, "drop icmp", "", ""},
	{"lb vip add", `{"vip": "192.0.2.10:443/udp", "hash": "source", "on_failure": "move", "encapsulation": "gue", "quic_server_id": 2, "vlans": [100, 200],` +
		`"check": {"type": "http", "port": 81, "interval": "2s", "timeout": "250ms", "rise": 3, "fall": 4, "path": "/x", "host": "h", "status": "200"}}`,
		"192.0.2.10:443/udp --hash source --on-failure move --encap gue --quic-server-id 2 --vlans 100,200 --check http --check-port 81 --check-interval 2s " +
			"--check-timeout 250ms --check-rise 3 --check-fall 4 --check-path /x --check-host h --check-status 200", "", ""},
	{"lb vip add", `{"vip": "192.0.2.10:444"}`, "192.0.2.10:444", "protocol", ""},
	{"lb vip set", `{"vip": "192.0.2.10:443/udp", "vlans": [], "check": {"type": "none"}}`, "192.0.2.10:443/udp --vlans none --check none", "", ""},
	{"lb vip set", `{"vip": "192.0.2.10:443/udp"}`, "192.0.2.10:443/udp", "give a setting to change", ""},
	{"lb backend add", `{"vip": "192.0.2.10:443/udp", "backend": "10.0.0.20", "weight": 3, "gue_port": 6081, "server_id": "00aa"}`,
		"192.0.2.10:443/udp 10.0.0.20 --weight 3 --gue-port 6081 --server-id 00aa", "", ""},
	{"lb backend add", `{"vip": "192.0.2.9:80/tcp", "backend": "10.0.0.21"}`, "192.0.2.9:80/tcp 10.0.0.21", "", ""},
	{"lb backend add", `{"vip": "192.0.2.9:80/tcp", "backend": "10.0.0.22", "weight": 70000}`, "192.0.2.9:80/tcp 10.0.0.22 --weight 70000", "weight", ""},
	{"lb backend set", `{"vip": "192.0.2.9:80/tcp", "backend": "10.0.0.9", "weight": 7, "encapsulation": "gue"}`, "192.0.2.9:80/tcp 10.0.0.9 --weight 7 --encap gue", "", ""},
	{"lb backend set", `{"vip": "192.0.2.9:80/tcp", "backend": "10.0.0.99", "weight": 7}`, "192.0.2.9:80/tcp 10.0.0.99 --weight 7", "10.0.0.99", ""},
	{"lb backend del", `{"vip": "192.0.2.9:80/tcp", "backend": "10.0.0.21"}`, "192.0.2.9:80/tcp 10.0.0.21", "", ""},
	{"lb drain", `{"vip": "192.0.2.9:80/tcp", "backend": "10.0.0.9"}`, "192.0.2.9:80/tcp 10.0.0.9", "", ""},
	{"lb drain", `{"vip": "192.0.2.9:80/tcp"}`, "192.0.2.9:80/tcp", "", ""},
	{"lb drain", `{"vip": "192.0.2.9:80/tcp", "backend": ""}`, "192.0.2.9:80/tcp ", "no IP address", ""},
	{"lb undrain", `{"vip": "192.0.2.9:80/tcp"}`, "192.0.2.9:80/tcp", "", ""},
	{"lb vip add", `{"vip": "192.0.2.11/tcp"}`, "192.0.2.11/tcp", "", ""},
	{"lb vip del", `{"vip": "192.0.2.11/tcp"}`, "192.0.2.11/tcp", "", ""},
	{"key add", `{"index": 1, "key": "AAECAwQFBgcICQoLDA0ODw=="}`, "1 KEY", "no SCION router", ""},
	{"key del", `{"index": 1, "force": true}`, "1 --force", "no SCION router", ""},
}

// requestOf returns an empty request of a verb.
func requestOf(words string) edit.Request {
	all := edit.Verbs()
	return all[slices.IndexFunc(all, func(v edit.Verb) bool { return v.Words == words })].New()
}

// timeouts finds what is left of the timeouts of entries.
var timeouts = regexp.MustCompile(`timeout [0-9dhms]+'`)

// states returns what the data plane has, without counters and times.
func states(b *filterBed) (all string) {
	b.t.Helper()
	for _, line := range []string{"filter dump", "lb dump"} {
		status, stdout, stderr := culvert(b.t, strings.Fields(line)...)
		if status != 0 {
			b.t.Fatalf("%s: status %d, %s", line, status, stderr)
		}
		all += stdout
	}
	return timeouts.ReplaceAllString(all, "timeout T'")
}

// TestChanges asks for the same changes in three ways: over the socket, on the command line beside a process, and without one. All
// have the same results, refuse the same, and end in the same state. The process logs each change once.
func TestChanges(t *testing.T) {
	b := newPairsBed(t)
	page := newAnswers(t)
	file, key := b.file("c.toml", allStages), b.file("key", "AAECAwQFBgcICQoLDA0ODw==\n")
	for _, v := range edit.Verbs() {
		if !slices.ContainsFunc(changes, func(c changed) bool { return c.words == v.Words }) {
			t.Errorf("no step for %s", v.Words)
		}
	}
	words := func(c changed) []string {
		args := strings.Split("-j "+c.words, " ")
		if c.line != "" {
			args = append(args, strings.Split(c.line, " ")...)
		}
		for i := range args {
			args[i] = strings.Replace(args[i], "KEY", key, 1)
		}
		return args
	}
	type outcome struct{ Router, Done, Rule, Notes, Refused string }
	printed := func(text string) (o outcome) {
		var r edit.Result
		must(json.Unmarshal([]byte(text), &r))
		// Without a process nobody looks for the way to backends later.
		r.Notes = slices.DeleteFunc(r.Notes, func(note string) bool { return strings.HasPrefix(note, "no way to backend ") })
		return outcome{Router: r.Router, Done: r.Done, Rule: r.Rule, Notes: strings.Join(r.Notes, "\n")}
	}
	var outcomes [3][]outcome
	var ends [3]string
	var flags [3]int // so many texts speak of flags
	for way := range 3 {
		var p *running
		if way < 2 {
			p = runAttached(t, file)
			b.eventually("changes nothing", "reload --dry-run")
		} else {
			b.expect(0, "", "attach", "-c", file)
		}
		before, done := "", 0
		for _, c := range changes {
			var one outcome
			switch way {
			case 0:
				path := "/v1/" + strings.ReplaceAll(c.words, " ", "/")
				status, text := post(t, path, c.body)
				page.checkAt(t, "POST", path, status, text)
				if one = printed(text); status == 200 {
					page.validate(t, path, "/paths/"+strings.ReplaceAll(path, "/", "~1")+"/post/requestBody/content/application~1json/schema", c.body)
				}
				var e struct{ Error string }
				must(json.Unmarshal([]byte(text), &e))
				if request := requestOf(c.words); edit.InMembers(request, text) != text {
					flags[way]++
				}
				if one.Refused = e.Error; (status == 200) != (e.Error == "") || status != 200 && (status < 400 || status > 422) {
					t.Errorf("%s %s: %d %s", path, c.body, status, text)
				}
			default:
				status, stdout, stderr := culvert(t, words(c)...)
				if status == 0 {
					one = printed(stdout)
				} else if stdout != "" {
					t.Errorf("%q: status %d and %q", words(c), status, stdout)
				}
				one.Refused = strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(stderr, "\n"), "culvert: "), "usage: ")
				if request := requestOf(c.words); edit.InMembers(request, one.Refused) != one.Refused || edit.InMembers(request, one.Notes) != one.Notes {
					flags[way]++
					one.Refused, one.Notes = edit.InMembers(request, one.Refused), edit.InMembers(request, one.Notes)
				}
			}
			if (one.Refused == "") != (c.refused == "") || !strings.Contains(one.Refused, c.refused) {
				t.Errorf("way %d: %s %s: %+v, want %q", way, c.words, c.body, one, c.refused)
			}
			if one.Refused == "" {
				before = ""
				done++
			} else if now := states(b); before == "" {
				before = now
			} else if now != before {
				t.Errorf("way %d: %s %s has left\n%s\nbefore:\n%s", way, c.words, c.body, now, before)
			}
			if strings.HasPrefix(c.words, "key") { // the command line looks on the whole machine
				one.Refused = c.refused
			}
			outcomes[way] = append(outcomes[way], one)
		}
		ends[way] = states(b) + b.filter(0, "", "list -j") + b.filter(0, "", "set list -j")
		if p != nil {
			p.interrupt(t)
			log := p.errs.String()
			if n := strings.Count(log, `msg="changed by hand"`); n != done {
				t.Errorf("way %d: %d changes are in the log, want %d: %s", way, n, done, log)
			}
			if way == 0 && !strings.Contains(log, fmt.Sprintf(`verb="filter add" done="rule h1 added" by="uid 0 pid %d"`, os.Getpid())) {
				t.Errorf("the log does not say who: %s", log)
			}
		}
		b.expect(0, "", "detach", "--all")
	}
	if flags[0] > 0 || flags[1] == 0 || flags[1] != flags[2] {
		t.Errorf("%v texts speak of flags, want none over the socket, and the same on the command line with and without a process", flags)
	}
	for way := 1; way < 3; way++ {
		if ends[way] != ends[0] {
			t.Errorf("way %d ends in\n%s\nand over the socket\n%s", way, ends[way], ends[0])
		}
		for n := range changes {
			if want := changes[n].note; !strings.Contains(outcomes[way][n].Notes, want) {
				t.Errorf("way %d, step %d: notes %q, want %q", way, n, outcomes[way][n].Notes, want)
			}
			if outcomes[way][n] != outcomes[0][n] {
				t.Errorf("way %d, step %d: %+v, over the socket %+v", way, n, outcomes[way][n], outcomes[0][n])
			}
		}
	}
}

// TestControlShows wants the answers of the socket that shows from root's socket too.
func TestControlShows(t *testing.T) {
	b := newFilterBed(t)
	p := runAttached(t, b.file("c.toml", onFt0))
	b.eventually("changes nothing", "reload --dry-run")
	for _, path := range []string{"/v1/filter", "/v1/version", "/v1/reasons", "/v1/filter/sets"} {
		_, _, want := fetch(t, showSocket, "GET", path)
		if status, _, got := fetch(t, controlSocket, "GET", path); status != 200 || got != want {
			t.Errorf("%s: %d %s, want %s", path, status, got, want)
		}
	}
	_, _, shown := fetch(t, showSocket, "GET", "/v1/")
	if _, _, all := fetch(t, controlSocket, "GET", "/v1/"); strings.Contains(shown, "filter/add") || !strings.Contains(all, `{"path":"/v1/filter/add","method":"POST"`) {
		t.Errorf("paths: %s and %s", shown, all)
	}
	p.interrupt(t)
}

// TestControlRefuses sends root's socket what it cannot carry out. It says so in a line, and nothing changes.
func TestControlRefuses(t *testing.T) {
	b := newFilterBed(t)
	page := newAnswers(t)
	p := runAttached(t, b.file("c.toml", onFt0+"[[filter.rule]]\nname = 'a'\naction = 'drop'\nexpression = 'udp port 5'\n"))
	b.eventually("changes nothing", "reload --dry-run")
	before := b.filter(0, "", "list -j")
	const json, rule = "application/json", `{"rule": "x", "action": "drop", "expression": "udp"}`
	for _, c := range []struct {
		method, path, kind, body string
		status                   int
		want                     string
	}{
		{"GET", "/v1/filter/add", json, "", 405, "use POST"},
		{"DELETE", "/v1/filter/flush", json, "", 405, "use POST"},
		{"POST", "/v1/filter", json, "", 405, "only shows"},
		{"POST", "/v1/none", json, "", 404, "is no path here"},
		{"GET", "/v1/none", json, "", 404, "is no path here"},
		{"POST", "/v1/filter/add?on=x", json, rule, 400, "no parameter on"},
		{"POST", "/v1/filter/add", "text/plain", rule, 415, "--json"},
		{"POST", "/v1/filter/add", "application/x-www-form-urlencoded", rule, 415, "--json"},
		{"POST", "/v1/filter/add", json, "", 400, "no body"},
		{"POST", "/v1/filter/flush", json, "", 400, "no body"},
		{"POST", "/v1/reload", json, " \n", 400, "no body"},
		{"POST", "/v1/filter/add", json, "{}", 400, "lacks the member action"},
		{"POST", "/v1/key/del", json, "{}", 400, "lacks the member index"},
		{"POST", "/v1/filter/add", json, `{"Rule": "x", "action": "drop", "expression": "udp"}`, 400, "no member Rule:"},
		{"POST", "/v1/filter/add", json, `{"rule": "x", "action": "drop", "expression": "udp", "rule": "y"}`, 400, "member rule twice"},
		{"POST", "/v1/lb/vip/add", json, `{"vip": "192.0.2.1:80/tcp", "check": {"type": "tcp", "Port": 1}}`, 400, "no member Port:"},
		{"POST", "/v1/filter/set/add", json, `{"set": "x", "entries": ["x"]}`, 400, "no address, prefix or range"},
		{"POST", "/v1/filter/set/add", json, `{"set": "x", "entries": ["192.0.2.1:0"]}`, 400, "port 0"},
		{"POST", "/v1/filter/set/add", json, `{"set": "x", "entries": ["192.0.2.1"], "timeout": "10"}`, 400, "no unit"},
		{"POST", "/v1/filter/set/add", json, `{"set": "x", "text": "192.0.2.1", "timeout": "-5m"}`, 400, "no timeout"},
		{"POST", "/v1/filter/set/replace", json, `{"set": "x", "entries": ["x"], "text": "x"}`, 400, "entries beside text:"},
		{"POST", "/v1/filter/set/del", json, `{"set": "x", "entries": ["x"]}`, 400, "no address, prefix or range"},
		{"POST", "/v1/filter/set/del", json, `{"set": "x", "entries": ["192.0.2.1"]}`, 422, "no set x"},
		{"POST", "/v1/filter/add", json, `{"action": "drop"}`, 400, "use all: true to confirm"},
		{"POST", "/v1/filter/add", json, `{"rule": "a", "action": "drop", "expression": "udp"}`, 422, "replace it with replace: true, or choose another rule"},
		{"POST", "/v1/filter/add", json, `{"action": "drop", "first": true, "before": "a", "all": true}`, 400, "first: true beside before:"},
		{"POST", "/v1/filter/protect", json, `{"service": "192.0.2.1:80", "mss": 1400}`, 400, "\"mss is for a service on another host: add forwarded: true,"},
		{"GET", "/v1/capture?verdict=x", json, "", 400, "verdict"},
		{"POST", "/v1/filter/add", json, "null", 400, "no JSON object"},
		{"POST", "/v1/filter/flush", json, "[]", 400, "no JSON object"},
		{"POST", "/v1/filter/flush", json, "true", 400, "no JSON object"},
		{"POST", "/v1/filter/add", json, rule + rule, 400, "follows"},
		{"POST", "/v1/filter/add", json, rule[:20], 400, "cut off"},
		{"POST", "/v1/filter/add", json, `{"rule": "x", "action": "drop", "expression": "udp", "Progress": 1}`, 400, "no member Progress"},
		{"POST", "/v1/filter/flush", json, `{"al": true}`, 400, "no member al:"},
		{"POST", "/v1/filter/add", json, `{"rule": 7}`, 400, "rule is a JSON number"},
		{"POST", "/v1/filter/protect", json, `{"service": "192.0.2.1:80", "forwarded": true, "wscale": 999}`, 400, "wscale is a JSON number 999"},
		{"POST", "/v1/filter/add", json, "\x00\xff", 400, "no JSON object"},
		{"POST", "/v1/filter/add", json, strings.Repeat(`{"rule":`, 20000), 400, "cannot be read"},
		{"POST", "/v1/lb/vip/add", json, `{"vip": "192.0.2.1:80/tcp"}`, 404, "no load balancer"},
		{"POST", "/v1/reload", json, `{"keep": true, "dry_run": true}`, 400, "keep goes alone"},
		{"POST", "/v1/reload", json, `{"keep": true}`, 422, "nothing to keep"},
		{"POST", "/v1/reload", json, `{"confirm": 9}`, 400, "confirm"},
		{"POST", "/v1/reload", json, `{"confirm": "5"}`, 400, "as 500ms or 90s"},
		{"POST", "/v1/reload", json, `{"confirm": "-1s"}`, 400, "more than 0"},
	} {
		status, text, err := tryPost(c.method, c.path, c.kind, strings.NewReader(c.body))
		if err != nil || status != c.status || !strings.Contains(text, c.want) || strings.Count(text, "\n") != 1 || len(text) > 400 {
			t.Errorf("%s %s %.60q: %d %.300s %v, want %d and %q", c.method, c.path, c.body, status, text, err, c.status, c.want)
		}
		if strings.Contains(text, "--") && !strings.Contains(text, "curl --json") {
			t.Errorf("%s %.60q: %.300s: a program has no flags", c.path, c.body, text)
		}
		page.checkAt(t, c.method, c.path, status, text)
		if operations, ok := page.page["paths"].(map[string]any)[c.path].(map[string]any); ok {
			for method, o := range operations {
				if _, ok := o.(map[string]any)["responses"].(map[string]any)[fmt.Sprint(status)]; !ok {
					t.Errorf("%s %s: %d is not in docs/api.yaml", method, c.path, status)
				}
			}
		}
	}
	if now := b.filter(0, "", "list -j"); now != before {
		t.Errorf("the rules were %s, and are %s", before, now)
	}
	p.interrupt(t)
	if strings.Contains(p.errs.String(), "changed by hand") || strings.Contains(p.errs.String(), "panic") {
		t.Errorf("the log has %s", &p.errs)
	}
}

// manyEntries returns lines with a million prefixes.
func manyEntries() []byte {
	var text bytes.Buffer
	for n := range 1_000_000 {
		fmt.Fprintf(&text, "%d.%d.%d.%d/32\n", 11+n>>19, n>>11&255, n>>3&255, n&7<<5)
	}
	return text.Bytes()
}

// TestControlMillion puts a million entries into a set: over the socket and by a file on the command line, beside a process. A bad
// line among them refuses all. A body that is too long is refused, and one that does not go on.
func TestControlMillion(t *testing.T) {
	b := newFilterBed(t)
	p := runAttached(t, b.file("c.toml", onFt0))
	b.eventually("changes nothing", "reload --dry-run")
	many := manyEntries()
	body := func(text []byte) string {
		b, err := json.Marshal(map[string]string{"set": "many", "text": string(text), "text_name": "many.txt"})
		must(err)
		return string(b)
	}
	if status, text := post(t, "/v1/filter/set/add", body(many)); status != 200 || !strings.Contains(text, "1,000,000") && !strings.Contains(text, "1000000") {
		t.Fatalf("%d %.300s", status, text)
	}
	shown := b.filter(0, "", "set list -j")
	bad := append(slices.Clone(many), "192.0.2.0/33\n"...)
	if status, text := post(t, "/v1/filter/set/replace", body(bad)); status != 422 || !strings.Contains(text, "many.txt:1000001: ") {
		t.Errorf("a bad line: %d %.300s", status, text)
	}
	b.filter(1, "bad.txt:1000001: ", "set replace many -f "+b.file("bad.txt", string(bad)))
	if now := b.filter(0, "", "set list -j"); now != shown {
		t.Errorf("the sets were %s, and are %s", shown, now)
	}
	b.filter(0, "set many has", "set replace many -f "+b.file("many.txt", string(many[:bytes.LastIndexByte(many[:1<<20], '\n')+1])))
	endless := io.LimitReader(zeros{}, 300<<20)
	if status, text, err := tryPost("POST", "/v1/filter/set/add", "application/json", endless); err == nil && (status != 413 || !strings.Contains(text, "more than 256 MiB")) {
		t.Errorf("a long body: %d %s", status, text)
	}
	p.interrupt(t)
	if n := strings.Count(p.errs.String(), "changed by hand"); n != 2 {
		t.Errorf("%d changes are in the log: %s", n, &p.errs)
	}
}

// zeros reads as blanks.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// TestControlClients has clients with half a request, clients that go away in the middle, and a thousand changes at a time, half of
// them on the command line. A change is carried out as a whole or not at all, and 'culvert reload' works meanwhile.
func TestControlClients(t *testing.T) {
	b := newFilterBed(t)
	p := runAttached(t, b.file("c.toml", onFt0))
	b.eventually("changes nothing", "reload --dry-run")
	const head = "POST /v1/filter/set/add HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: "
	for _, send := range []string{"", "POST /v1/filter/add HTTP/1.1\r\nHost:", head + "60\r\n\r\n{\"set\": \"half\", \"entries\": [\"192.0.2.1\"", head + "99999999\r\n\r\n" + strings.Repeat(" ", 2<<20)} {
		for n := range 10 {
			c, err := net.Dial("unix", controlSocket)
			must(err)
			_, err = io.WriteString(c, send)
			must(err)
			if n%2 == 0 {
				c.Close()
			} else {
				defer c.Close()
			}
		}
	}
	for n := range 20 { // whole requests of clients that do not wait
		c, err := net.Dial("unix", controlSocket)
		must(err)
		body := fmt.Sprintf(`{"set": "gone", "entries": ["203.0.113.%d"]}`, n)
		_, err = fmt.Fprintf(c, "%s%d\r\n\r\n%s", head, len(body), body)
		must(err)
		c.Close()
	}
	const clients, many = 1000, 300 // so many of them change something
	var all sync.WaitGroup
	var failed sync.Map
	for n := range clients {
		all.Go(func() {
			status, text, err := 503, "", error(nil)
			for end := time.Now().Add(2 * time.Minute); status == 503 && time.Now().Before(end); {
				if n >= many {
					status, _, text, err = tryFetch(controlSocket, "GET", "/v1/version")
					continue
				}
				status, text, err = tryPost("POST", "/v1/filter/set/add", "application/json",
					strings.NewReader(fmt.Sprintf(`{"set": "many", "entries": ["10.%d.%d.1"]}`, n/250, n%250)))
			}
			if err != nil || status != 200 {
				failed.Store(n, fmt.Sprintf("%d %s %v", status, text, err))
			}
		})
	}
	for n := range 5 {
		b.filter(0, "set many has", fmt.Sprintf("set add many 10.200.0.%d", 2*n))
		if status, r := reload(t); status != 0 || !r.OK {
			t.Errorf("reload: %d %+v", status, r)
		}
	}
	all.Wait()
	failed.Range(func(n, what any) bool {
		t.Errorf("client %v: %v", n, what)
		return true
	})
	if n := strings.Count(b.filter(0, "", "set show many"), "\n"); n != many+5 {
		t.Errorf("%d entries, want %d", n, many+5)
	}
	if text := b.filter(0, "", "set list"); strings.Contains(text, "half") {
		t.Errorf("half a request has made a set: %s", text)
	}
	b.filter(0, "", "flush")
	p.interrupt(t)
	if strings.Contains(p.errs.String(), "panic") {
		t.Errorf("the log has %s", &p.errs)
	}
}

// TestControlTrial changes rules while a reload waits for its confirmation, and while others are under way. What was made by hand
// stays when the configuration goes back.
func TestControlTrial(t *testing.T) {
	b := newPairsBed(t)
	const head = "interfaces = ['ft0']\n[filter]\n[[filter.rule]]\nname = 'a'\naction = 'drop'\nexpression = 'udp port 5'\n"
	file := b.file("c.toml", head)
	p := runAttached(t, file)
	b.eventually("changes nothing", "reload --dry-run")
	rewrite(t, file, head+"[[filter.rule]]\nname = 'b'\naction = 'drop'\nexpression = 'udp port 6'\n")
	if status, text := post(t, "/v1/reload", `{"dry_run": true}`); status != 200 || !strings.Contains(text, "rule b") || !strings.Contains(text, `"dry_run":true`) {
		t.Errorf("%d %s", status, text)
	}
	b.order("a")
	if status, text := post(t, "/v1/reload", `{"confirm": "8s"}`); status != 200 || !strings.Contains(text, `"until":"`) {
		t.Errorf("%d %s", status, text)
	}
	if status, text := post(t, "/v1/filter/add", `{"rule": "hand", "action": "count", "expression": "icmp"}`); status != 200 {
		t.Errorf("during a trial: %d %s", status, text)
	}
	b.filter(0, "added", "add --name cli count icmp6")
	b.order("a b hand cli")
	p.waitFor(t, "nobody has kept the configuration in time: the one before is in force again, and the file differs from it")
	b.order("a hand cli")
	if status, text := post(t, "/v1/reload", `{"confirm": "60s"}`); status != 200 {
		t.Errorf("%d %s", status, text)
	}
	if status, text := post(t, "/v1/reload", `{"keep": true}`); status != 200 || !strings.Contains(text, `"changes":[]`) {
		t.Errorf("%d %s", status, text)
	}
	b.order("a b hand cli")
	if status, text := post(t, "/v1/reload", `{"confirm": "1s"}`); status != 200 { // of a file that has not changed
		t.Errorf("%d %s", status, text)
	}
	p.waitFor(t, `nobody has kept the configuration in time: the one before is in force again" file=`)
	b.order("a b hand cli")
	rewrite(t, file, head+"[[filter.rule]]\nname = 'c'\naction = 'dropp'\nexpression = 'udp port 6'\n")
	if status, text := post(t, "/v1/reload", `{}`); status != 422 || !strings.Contains(text, `"errors":[{"file":`) || !strings.Contains(text, `"line":`) {
		t.Errorf("a bad file: %d %s", status, text)
	}
	rewrite(t, file, head)
	var both sync.WaitGroup
	both.Go(func() {
		for n := range 10 {
			if status, text := post(t, "/v1/filter/add", fmt.Sprintf(`{"rule": "r%d", "action": "count", "expression": "udp port %d"}`, n, n)); status != 200 {
				t.Errorf("beside a reload: %d %s", status, text)
			}
		}
	})
	for n := range 4 {
		if n%2 == 0 {
			rewrite(t, file, "workers = { cpus = '0' }\n"+head) // another program
		} else {
			rewrite(t, file, head)
		}
		if status, r := reload(t); status != 0 {
			t.Errorf("reload: %d %+v", status, r)
		}
	}
	both.Wait()
	b.order("a hand cli r0 r1 r2 r3 r4 r5 r6 r7 r8 r9")
	p.interrupt(t)
}

// TestControlAbsent has processes that do not take changes: one that hangs, one of another version, and one without its socket.
func TestControlAbsent(t *testing.T) {
	b := newFilterBed(t)
	p := runAttached(t, b.file("c.toml", onFt0))
	b.eventually("changes nothing", "reload --dry-run")
	must(p.cmd.Process.Signal(syscall.SIGSTOP))
	start := time.Now()
	b.filter(1, fmt.Sprintf("no answer in 5s: see its log; nothing was changed. If it hangs, end it (kill -9 %d)", p.cmd.Process.Pid), "add --name x drop icmp")
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("that took %v", took)
	}
	must(p.cmd.Process.Signal(syscall.SIGCONT))
	aside := controlSocket + ".aside"
	must(os.Rename(controlSocket, aside))
	b.filter(0, "rule x added", "add --name x drop icmp") // by hand, as at a start

	l, err := net.Listen("unix", controlSocket)
	must(err)
	var answered string
	_, _, serving := fetch(t, aside, "GET", "/serving")
	old := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/serving" {
			_, _ = io.WriteString(w, serving)
			return
		}
		answered += r.URL.Path + "\n"
		http.NotFound(w, r)
	})}
	go func() { _ = old.Serve(l) }()
	b.filter(1, "is of another version of culvert and does not know 'filter add': start it again", "add --name y drop icmp")
	if answered != "/v1/filter/add\n" {
		t.Errorf("it was asked for %q", answered)
	}
	old.Close()
	must(os.Rename(aside, controlSocket))
	b.order("x")
	p.interrupt(t)
	if files, _ := filepath.Glob("/run/culvert/*.sock*"); len(files) > 0 {
		t.Errorf("sockets at the end: %q", files)
	}
	b.filter(0, "rule z added", "add --name z drop icmp")
}
