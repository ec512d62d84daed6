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
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"culvert/internal/api"
)

// showSocket is the path of the socket of the data plane of beds.
const showSocket = "/run/culvert/culvert.show.sock"

// fetch sends a request to a socket.
func fetch(t *testing.T, socket, method, path string) (status int, header http.Header, text string) {
	t.Helper()
	status, header, text, err := tryFetch(socket, method, path)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return status, header, text
}

func tryFetch(socket, method, path string) (status int, header http.Header, text string, err error) {
	client := http.Client{Timeout: 5 * time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}
	r, err := http.NewRequest(method, "http://culvert"+path, nil)
	if err != nil {
		return 0, nil, "", err
	}
	a, err := client.Do(r)
	if err != nil {
		return 0, nil, "", err
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	return a.StatusCode, a.Header, string(b), err
}

// answers checks answers by docs/api.yaml. Here they may have no members beyond those that the page has.
type answers struct {
	page     map[string]any
	compiler *jsonschema.Compiler
}

func newAnswers(t *testing.T) answers {
	t.Helper()
	text, err := os.ReadFile("../../docs/api.yaml")
	must(err)
	a := answers{compiler: jsonschema.NewCompiler()}
	must(yaml.Unmarshal(text, &a.page))
	for _, s := range a.page["components"].(map[string]any)["schemas"].(map[string]any) {
		if s := s.(map[string]any); s["properties"] != nil {
			s["additionalProperties"] = false
		}
	}
	text, err = json.Marshal(a.page)
	must(err)
	page, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	must(err)
	must(a.compiler.AddResource("file:///api.json", page))
	return a
}

// check wants an answer to GET to be as the page says.
func (a answers) check(t *testing.T, path string, status int, text string) {
	t.Helper()
	a.checkAt(t, "GET", path, status, text)
}

// printed wants what a verb prints with -j to be as the page says.
func (a answers) printed(t *testing.T, verb, text string) {
	t.Helper()
	a.validate(t, verb, "/x-culvert-verbs/"+strings.ReplaceAll(verb, " ", "%20"), text)
}

// checkAt wants an answer to be as the page says.
func (a answers) checkAt(t *testing.T, method, path string, status int, text string) {
	t.Helper()
	at := "/paths/" + strings.ReplaceAll(path, "/", "~1") + "/" + strings.ToLower(method) + "/responses/200/content/application~1json/schema"
	if status != http.StatusOK {
		at = "/components/schemas/api.Error"
	}
	a.validate(t, path, at, text)
}

// validate wants a JSON text to be as a schema at a place of the page says.
func (a answers) validate(t *testing.T, what, at, text string) {
	t.Helper()
	schema, err := a.compiler.Compile("file:///api.json#" + at)
	must(err)
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err == nil {
		err = schema.Validate(value)
	}
	if err != nil {
		t.Errorf("%s: %.2000s is not as docs/api.yaml says: %v", what, text, err)
	}
}

// allStages is a configuration with all stages but SCION's, without what changes by itself.
const allStages = `interfaces = ['ft0']
metrics = '127.0.0.1:9441'
[filter]
[[filter.set]]
name = 'bad'
entries = ['192.0.2.0/24', '198.51.100.7']
[[filter.rule]]
name = 'a'
action = 'limit'
rate = '1kpps'
expression = 'udp port 5'
[[filter.rule]]
name = 'b'
action = 'drop'
src = ['@bad']
[route]
[lb]
[[lb.vip]]
address = '192.0.2.9:80'
protocol = 'tcp'
[[lb.vip.backend]]
address = '10.0.0.9'
`

// TestShowSocket compares each answer with what the verb prints, and with docs/api.yaml.
func TestShowSocket(t *testing.T) {
	b := newPairsBed(t)
	page := newAnswers(t)
	file := b.file("c.toml", allStages)
	p := runAttached(t, file)
	p.waitFor(t, "only root may use the socket")
	b.eventually("changes nothing", "reload --dry-run")
	b.send(3, frame("198.51.100.1", 5))
	b.send(2, frame("192.0.2.7", 6))
	b.counted("a", 3)
	b.counted("b", 2)
	for _, path := range api.Paths() {
		if path.Content != "" { // it does not end
			continue
		}
		status, header, text := fetch(t, showSocket, "GET", path.Path)
		if path.Answer == nil {
			if status != 200 || !strings.Contains(text, "culvert_interface_attached{interface=\"ft0\"} 1") || !strings.HasPrefix(header.Get("Content-Type"), "text/plain") {
				t.Errorf("%s: %d %v %.300s", path.Path, status, header, text)
			}
			continue
		}
		want := http.StatusOK
		if path.Path == "/v1/scion/keys" || path.Path == "/v1/filter/top" {
			want = http.StatusNotFound
		}
		if status != want || header.Get("Content-Type") != "application/json" || strings.Count(text, "\n") != 1 {
			t.Errorf("%s: %d %v %.300s, want %d", path.Path, status, header, text, want)
		}
		page.check(t, path.Path, status, text)
		if status, with, body := fetch(t, showSocket, "HEAD", path.Path); status != want || body != "" || with.Get("Content-Length") == "" {
			t.Errorf("HEAD %s: %d %v %q", path.Path, status, with, body)
		}
		if path.Verb == "" || want != http.StatusOK {
			continue
		}
		words := strings.Fields(strings.NewReplacer("NAME", "culvert", " N ", " 1000 ").Replace(path.Verb))[1:]
		var printed string
		for range 50 { // counters and times may change between the two
			_, printed, _ = culvert(t, words...)
			if _, _, text = fetch(t, showSocket, "GET", path.Path); text == printed {
				break
			}
		}
		if text != printed {
			t.Errorf("%s\n%s, and culvert %q prints\n%s", path.Path, text, words, printed)
		}
	}
	if _, _, text := fetch(t, showSocket, "GET", "/v1/filter"); !strings.Contains(text, `"rule":"b","action":"drop"`) || !strings.Contains(text, `"packets":2`) {
		t.Errorf("the filter is shown as %s", text)
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"} {
		for _, path := range []string{"/v1/status", "/v1/reload"} {
			status, header, text := fetch(t, showSocket, method, path)
			if status != http.StatusMethodNotAllowed || header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d %v %s", method, path, status, header, text)
			}
			page.check(t, path, status, text)
		}
	}
	// What a reload switches off or on, the next answer has.
	rewrite(t, file, strings.Split(allStages, "[route]")[0])
	if status, r := reload(t); status != 0 {
		t.Fatalf("reload: %d %+v", status, r)
	}
	for path, want := range map[string]int{"/v1/lb": 404, "/v1/lb/flows": 404, "/v1/route": 404, "/v1/filter": 200, "/v1/status": 200, "/metrics": 200} {
		status, _, text := fetch(t, showSocket, "GET", path)
		if status != want {
			t.Errorf("%s without [route] and [lb]: %d %s", path, status, text)
		}
	}
	if files, _ := filepath.Glob("/run/culvert/*.sock"); !slices.Equal(files, []string{showSocket, "/run/culvert/culvert.sock"}) {
		t.Errorf("sockets %q", files)
	}
	p.interrupt(t)
	if files, _ := filepath.Glob("/run/culvert/*.sock*"); len(files) > 0 {
		t.Errorf("sockets at the end: %q", files)
	}
}

// TestShowSocketFlows has a load balancer with flows and a neighbor that does not answer. As many flows are listed as are asked for,
// and all is as docs/api.yaml says.
func TestShowSocketFlows(t *testing.T) {
	b := newLBBed(t)
	loopback(t)
	page := newAnswers(t)
	p := startCulvert(t, "run", "-c", b.file(lbConfig+"[lb.bgp]\nasn = 65001\nrouter_id = '10.0.0.1'\n[[lb.bgp.neighbor]]\naddress = '10.0.0.1'\nasn = 65000\n"))
	for _, backend := range []string{"10.0.0.11", "10.0.0.12", "fd00::11"} {
		p.waitFor(t, "backend="+backend)
	}
	p.waitFor(t, "no connection: connection refused")
	for n := range uint32(5) {
		b.send(netip.MustParseAddrPort("192.0.2.1:80"), n+1)
	}
	b.wait("packets arrive", func() bool { return b.arrived("10.0.0.11")+b.arrived("10.0.0.12") >= 5 })
	for path, want := range map[string]int{"/v1/lb/flows": 5, "/v1/lb/flows?n=2": 2, "/v1/lb/flows?n=10000": 5} {
		status, _, text := fetch(t, showSocket, "GET", path)
		page.check(t, "/v1/lb/flows", status, text)
		if n := strings.Count(text, `"service":"192.0.2.1:80/tcp"`); n != want {
			t.Errorf("%s: %d flows, want %d: %s", path, n, want, text)
		}
	}
	b.wait("the neighbor is shown", func() bool {
		_, _, text := fetch(t, showSocket, "GET", "/v1/lb")
		return strings.Contains(text, `"error":"no connection`)
	})
	for _, path := range []string{"/v1/lb", "/v1/status"} {
		status, _, text := fetch(t, showSocket, "GET", path)
		page.check(t, path, status, text)
	}
	p.interrupt(t)
}

// connectAs connects to a socket as another user. Only this thread is of the user, and it is not used for anything else.
func connectAs(uid, gid int, path string) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		result <- func() error {
			for _, call := range [][4]uintptr{
				{unix.SYS_SETGROUPS, 0, 0, 0}, {unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)},
				{unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)},
			} {
				if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
					return fmt.Errorf("becoming user %d: %w", uid, errno)
				}
			}
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		}()
	}()
	return <-result
}

// socketIs wants owner, group and mode of a socket.
func socketIs(t *testing.T, path string, gid uint32, mode uint32) {
	t.Helper()
	var s unix.Stat_t
	if err := unix.Lstat(path, &s); err != nil || s.Uid != 0 || s.Gid != gid || s.Mode != unix.S_IFSOCK|mode {
		t.Errorf("%s: %v, owner %d:%d, mode %o, want 0:%d and %o", path, err, s.Uid, s.Gid, s.Mode, gid, unix.S_IFSOCK|mode)
	}
}

// TestShowSocketGroup has a group culvert, whose members may use the socket that shows, and no other one. The process has no
// CAP_CHOWN, as under systemd.
func TestShowSocketGroup(t *testing.T) {
	const group, other = 4711, 4712
	b := newFilterBed(t)
	file := b.file("c.toml", "interfaces = ['ft0']\n[filter]\n")
	groups := b.file("group", fmt.Sprintf("root:x:0:\nculvert:x:%d:\n", group))
	const control = "/run/culvert/culvert.sock"
	p := startCommand(t, exec.Command("unshare", "--mount", "sh", "-c", `mount --bind "$1" /etc/group &&
		exec setpriv --groups `+fmt.Sprint(group)+` --bounding-set -chown --inh-caps -chown "$2" run -c "$3"`, "sh", groups, os.Args[0], file))
	p.waitFor(t, "msg=attached ")
	b.eventually("changes nothing", "reload --dry-run")
	socketIs(t, control, 0, 0o600)
	socketIs(t, showSocket, group, 0o660)
	for _, c := range []struct {
		path     string
		uid, gid int
		want     error
	}{
		{showSocket, 65534, group, nil},
		{showSocket, 65534, other, unix.EACCES},
		{control, 65534, group, unix.EACCES},
	} {
		if err := connectAs(c.uid, c.gid, c.path); err != c.want {
			t.Errorf("%s as %d:%d: %v, want %v", c.path, c.uid, c.gid, err, c.want)
		}
	}
	p.interrupt(t)

	// Without the group, the socket is root's.
	p = runAttached(t, file)
	p.waitFor(t, "only root may use the socket that shows")
	b.eventually("changes nothing", "reload --dry-run")
	socketIs(t, showSocket, 0, 0o600)
	if err := connectAs(65534, group, showSocket); err != unix.EACCES {
		t.Errorf("without a group: %v", err)
	}
	p.interrupt(t)
	if n := strings.Count(p.errs.String(), "only root may use the socket"); n != 1 {
		t.Errorf("%d lines about the group: %s", n, &p.errs)
	}
}

// TestShowSocketClients has a thousand clients at a time, clients with half a request and some that read nothing. All complete
// requests are answered, 'culvert reload' works meanwhile, and nothing is left of them.
func TestShowSocketClients(t *testing.T) {
	b := newFilterBed(t)
	p := runAttached(t, b.file("c.toml", "interfaces = ['ft0']\n[filter]\n[[filter.rule]]\nname = 'a'\naction = 'drop'\nexpression = 'udp port 5'\n"))
	b.eventually("changes nothing", "reload --dry-run")
	open := func() int {
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
		must(err)
		return len(files)
	}
	before := open()
	for _, send := range []string{"", "GET /v1/status HTTP/1.1\r\nHost:", "GET /v1/reasons HTTP/1.1\r\nHost: a\r\n\r\n"} {
		for range 40 {
			c, err := net.Dial("unix", showSocket)
			must(err)
			defer c.Close()
			_, err = io.WriteString(c, send)
			must(err)
		}
	}
	var clients sync.WaitGroup
	var failed sync.Map
	for n := range 1000 {
		clients.Go(func() {
			path := []string{"/v1/version", "/v1/filter", "/v1/", "/none"}[n%4]
			status, _, text, err := tryFetch(showSocket, "GET", path)
			for end := time.Now().Add(time.Minute); status == http.StatusServiceUnavailable && time.Now().Before(end); {
				status, _, text, err = tryFetch(showSocket, "GET", path) // a slow machine, as the answer says
			}
			if err != nil || status != map[bool]int{true: 404, false: 200}[path == "/none"] {
				failed.Store(n, fmt.Sprintf("%s: %d %.200s, %v", path, status, text, err))
			}
		})
	}
	for range 3 {
		if status, r := reload(t); status != 0 || !r.OK {
			t.Errorf("reload: %d %+v", status, r)
		}
		b.send(1, frame("198.51.100.1", 5))
	}
	clients.Wait()
	failed.Range(func(n, what any) bool {
		t.Errorf("client %v: %v", n, what)
		return true
	})
	b.counted("a", 3)
	for end := time.Now().Add(time.Minute); open() > before+2; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d files are open, and %d were before", open(), before)
		}
	}
	if text := p.interrupt(t); text != "" {
		t.Errorf("the process prints %s", text)
	}
	if strings.Contains(p.errs.String(), "panic") || strings.Contains(p.errs.String(), "http:") {
		t.Errorf("the log has %s", &p.errs)
	}
}

// TestShowSocketNames has data planes of one name in two network namespaces, and one whose name ends as the sockets do. Killed
// processes leave their sockets, and the next process of any data plane removes them.
func TestShowSocketNames(t *testing.T) {
	b := newFilterBed(t)
	b.veth("fx0", "fx1")
	const body = "interfaces = ['%s']\n[filter]\n"
	first := runAttached(t, b.file("c.toml", fmt.Sprintf(body, "ft0")))
	second := runAttached(t, b.file("show.toml", "name = 'culvert.show'\n"+fmt.Sprintf(body, "fx0")))
	third := startCommand(t, exec.Command("unshare", "--net", "sh", "-c", `ip link add ft0 type veth peer name ft1 && exec "$1" run -c "$2"`,
		"sh", os.Args[0], b.file("other.toml", fmt.Sprintf(body, "ft0"))))
	third.waitFor(t, "msg=attached ")
	var space unix.Stat_t
	must(unix.Stat(fmt.Sprintf("/proc/%d/ns/net", third.cmd.Process.Pid), &space))
	there := fmt.Sprintf("/run/culvert/culvert@%d.show.sock", space.Ino)
	const dotted = "/run/culvert/culvert%2Eshow.show.sock"
	names := func(socket string) (name string, netns uint64) {
		t.Helper()
		var r struct {
			Router string
			NetNS  uint64
		}
		_, _, text := fetch(t, socket, "GET", "/v1/filter")
		must(json.Unmarshal([]byte(text), &r))
		return r.Router, r.NetNS
	}
	waitForFile(t, there)
	if name, netns := names(there); name != "culvert" || netns != space.Ino {
		t.Errorf("%s shows %s of %d", there, name, netns)
	}
	if name, netns := names(showSocket); name != "culvert" || netns == space.Ino {
		t.Errorf("%s shows %s of %d", showSocket, name, netns)
	}
	if name, netns := names(dotted); name != "culvert.show" || netns == space.Ino {
		t.Errorf("%s shows %s of %d", dotted, name, netns)
	}
	for _, name := range []string{"culvert", "culvert.show"} { // sockets that show are no processes to reload
		b.expect(0, "changes nothing", "reload", "--dry-run", "--on", name)
	}
	for _, p := range []*running{third, first} {
		must(p.cmd.Process.Signal(syscall.SIGKILL))
		_ = p.cmd.Wait()
	}
	if _, _, _, err := tryFetch(showSocket, "GET", "/v1/"); err == nil {
		t.Error("a killed process answers")
	}
	again := runAttached(t, filepath.Join(b.dir, "c.toml"))
	b.eventually("changes nothing", "reload --dry-run --on culvert")
	if name, _ := names(showSocket); name != "culvert" {
		t.Errorf("after a new start %s shows %s", showSocket, name)
	}
	if _, err := os.Lstat(there); err == nil {
		t.Errorf("the socket of a killed process is left: %s", there)
	}
	again.interrupt(t)
	if name, _ := names(dotted); name != "culvert.show" {
		t.Errorf("another process has ended, and %s shows %s", dotted, name)
	}
	second.interrupt(t)
	if files, _ := filepath.Glob("/run/culvert/*.sock*"); len(files) > 0 {
		t.Errorf("sockets at the end: %q", files)
	}
}

// waitForFile waits until there is a file.
func waitForFile(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Lstat(path); err == nil {
			return
		}
	}
	t.Fatalf("no %s", path)
}
