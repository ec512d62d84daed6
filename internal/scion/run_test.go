// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/scionproto/scion/pkg/log"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"culvert/internal/host/netdev"
	"culvert/internal/scion/keyring"
	"culvert/internal/scion/scionplane"
	"culvert/internal/stage"
	"culvert/internal/stats"
	"culvert/internal/version"
)

// patience bounds every wait. A test that passes does not get near it.
const patience = 30 * time.Second

// childConfig names the environment variable that makes TestChildRouter a router.
const childConfig = "CULVERT_TEST_ROUTER"

// TestChildRouter is a router with a fast path that prints its calls, when the tests below start it in a process of its
// own. By itself it does nothing.
func TestChildRouter(t *testing.T) {
	path := os.Getenv(childConfig)
	if path == "" {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := runOn(ctx, Table{Config: path}, func(r *Router, interfaces []string) (DataPlane, error) {
		p := &printingPlane{links: len(r.Datapath.Links)}
		p.say("attach", strings.Join(interfaces, ","))
		return p, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// runOn runs a router as a node runs its stage, on the data plane that attach returns.
func runOn(ctx context.Context, file Table, attach func(r *Router, interfaces []string) (DataPlane, error)) error {
	p, err := newPlan(file)
	if err != nil {
		return err
	}
	_, on, err := p.Place(nil)
	if err != nil {
		return err
	}
	f, err := p.prepare(ctx, nil, nil)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := p.Check(stage.Situation{Interfaces: on}); err != nil {
		return err
	}
	plane, err := attach(p.router, on)
	if err != nil {
		return err
	}
	if err := f.commit(ctx, plane); err != nil {
		return err
	}
	return f.Serve(ctx, func() {})
}

// printingPlane is a fast path that prints its calls.
type printingPlane struct {
	mu    sync.Mutex
	links int
	reads uint64
	// noHosts is the error of Hosts, and said what the plane has printed.
	noHosts error
	said    []string
}

func (p *printingPlane) say(words ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, strings.TrimSpace(fmt.Sprintln(words...)))
	fmt.Fprintln(os.Stdout, append([]any{"plane"}, words...)...)
}

func (p *printingPlane) LinkCounters() ([]stats.LinkCounters, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The first reading is from before the process started. Later ones have five packets more.
	links := make([]stats.LinkCounters, p.links)
	links[1].In[2] = stats.PacketsBytes{Packets: 1000, Bytes: 200000}
	links[2].Out[stats.TrafficBRTransit][2] = stats.PacketsBytes{Packets: 1000, Bytes: 200000}
	if p.reads > 0 {
		links[1].In[2] = stats.PacketsBytes{Packets: 1005, Bytes: 201000}
		links[1].Dropped[2] = 2
		links[2].Out[stats.TrafficBRTransit][2] = stats.PacketsBytes{Packets: 1003, Bytes: 200600}
	}
	p.reads++
	return links, nil
}

func (p *printingPlane) Adopted() bool { return false }

func (p *printingPlane) Generic() bool { return true }

func (p *printingPlane) Attached() []string { return []string{"cvs0"} }

func (p *printingPlane) AttachedIndexes() []int { return nil }

func (p *printingPlane) Keys() ([]scionplane.KeyInfo, error) {
	return []scionplane.KeyInfo{{Index: 0, ID: "00112233"}}, nil
}

func (p *printingPlane) SetOwnKey([16]byte) error { p.say("key"); return nil }

func (p *printingPlane) ScheduleKeys([]keyring.Key, time.Time) error { p.say("keys"); return nil }

func (p *printingPlane) SetSlowPathKey([16]byte) error { return nil }

func (p *printingPlane) Keep() (func() error, error) {
	return func() error { p.say("back"); return nil }, nil
}

func (p *printingPlane) SetLinkUp(link int, up bool) error { p.say("link", link, "up", up); return nil }

func (p *printingPlane) SetLinkBFD(int, scionplane.BFDSession) error { return nil }

func (p *printingPlane) SetLinkNextHop(link int, nh scionplane.NextHop) error {
	p.say("link", link, "via", net.HardwareAddr(nh.DstMAC[:]), nh.MTU)
	return nil
}

func (p *printingPlane) SetLinkAccept(int, scionplane.Accept) error { return nil }

func (p *printingPlane) Hosts() (map[netip.Addr]uint32, error) { return nil, p.noHosts }

func (p *printingPlane) SetHost(addr netip.Addr, _ scionplane.NextHop) error {
	p.say("host", addr)
	return nil
}

func (p *printingPlane) DeleteHost(addr netip.Addr) error { p.say("no host", addr); return nil }

func (p *printingPlane) WantedHosts(ctx context.Context, _ func(netip.Addr)) error {
	<-ctx.Done()
	return ctx.Err()
}

func (p *printingPlane) Refresh() error { return nil }

func (p *printingPlane) Detach() error { p.say("detach"); return nil }

func (p *printingPlane) Close() error { p.say("close"); return nil }

// twoHosts is a pair of network namespaces with a veth between them, 192.0.2.1 and 192.0.2.2.
type twoHosts struct {
	t     *testing.T
	ns    [2]netns.NsHandle
	links [2]*netlink.Handle
}

// newTwoHosts moves the test's thread into the first namespace for good. The namespaces end with
// the thread and the processes in them.
func newTwoHosts(t *testing.T) *twoHosts {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root to make network namespaces: run the tests with sudo")
	}
	runtime.LockOSThread()
	h := &twoHosts{t: t}
	for i := range h.ns {
		ns, err := netns.New()
		check(t, err)
		t.Cleanup(func() { _ = ns.Close() })
		h.ns[i] = ns
		h.links[i], err = netlink.NewHandle()
		check(t, err)
		t.Cleanup(h.links[i].Close)
		lo, err := h.links[i].LinkByName("lo")
		check(t, err)
		check(t, h.links[i].LinkSetUp(lo))
	}
	h.enter(0)
	check(t, h.links[0].LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "cvs0"},
		PeerName: "cvs1", PeerNamespace: netlink.NsFd(h.ns[1])}))
	for i, prefix := range []string{"192.0.2.1/24", "192.0.2.2/24"} {
		addr, err := netlink.ParseAddr(prefix)
		check(t, err)
		check(t, h.links[i].AddrAdd(h.veth(i), addr))
		check(t, h.links[i].LinkSetUp(h.veth(i)))
	}
	for i := range h.ns {
		// A veth accepts redirected frames, and counts as a next hop, only with NAPI at its far end.
		h.enter(i)
		_, err := netdev.Ethtool(fmt.Sprintf("cvs%d", i), unix.ETHTOOL_SGRO, 1)
		check(t, err)
	}
	h.enter(0)
	return h
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (h *twoHosts) enter(i int) { check(h.t, netns.Set(h.ns[i])) }

func (h *twoHosts) veth(i int) netlink.Link {
	h.t.Helper()
	l, err := h.links[i].LinkByName(fmt.Sprintf("cvs%d", i))
	check(h.t, err)
	return l
}

// child is a router process.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	events chan string
	seen   []string
	stderr bytes.Buffer
}

// start runs the router of a TOML file on one of the hosts.
func (h *twoHosts) start(host int, path string) *child {
	h.t.Helper()
	return h.startChild(host, "TestChildRouter", childConfig+"="+path)
}

// startChild runs a test with a variable in its environment in a process on one of the hosts.
func (h *twoHosts) startChild(host int, test, env string) *child {
	h.t.Helper()
	return h.startChildWith(host, test, env, nil)
}

// startChildWith is startChild with a standard input.
func (h *twoHosts) startChildWith(host int, test, env string, in io.Reader) *child {
	h.t.Helper()
	h.enter(host)
	defer h.enter(0)
	c := &child{t: h.t, cmd: exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.count=1"),
		events: make(chan string, 1000)}
	c.cmd.Env = append(os.Environ(), env)
	c.cmd.Stdin, c.cmd.Stderr = in, &c.stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := c.cmd.StdoutPipe()
	check(h.t, err)
	check(h.t, c.cmd.Start())
	h.t.Cleanup(func() { _ = c.cmd.Process.Kill() })
	go func() {
		defer close(c.events)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			c.events <- lines.Text()
		}
	}()
	return c
}

// await waits for a line that the fast path or the test framework prints.
func (c *child) await(want string) {
	c.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case line, ok := <-c.events:
			if !ok {
				c.t.Fatalf("router ended without %q; seen %q; errors:\n%s", want, c.seen, c.stderr.String())
			}
			c.seen = append(c.seen, line)
			if strings.Contains(line, want) {
				return
			}
		case <-deadline:
			c.t.Fatalf("no %q; seen %q; errors:\n%s", want, c.seen, c.stderr.String())
		}
	}
}

// rest waits for the end of the process and returns the lines printed since the last await.
func (c *child) rest() (lines []string) {
	for line := range c.events {
		lines = append(lines, line)
	}
	return lines
}

// TestRun runs two routers against each other. BFD comes up, goes down with the link and comes up again.
func TestRun(t *testing.T) {
	h := newTwoHosts(t)
	const bfd = "[router.bfd]\ndetect_mult = 3\ndesired_min_tx_interval = \"1s\"\nrequired_min_rx_interval = \"1s\"\n" // a busy machine stalls for less
	toml := writeTOML(t, "wire", "br1", bfd+"[metrics]\nprometheus = \"127.0.0.1:30442\"\n[api]\naddr = \"127.0.0.1:30443\"")
	near := h.start(0, toml)
	near.await("plane attach cvs0")
	near.await("plane key")
	near.await("plane link 1 up false")
	far := h.start(1, writeTOML(t, "wirepeer", "br1", bfd))
	far.await("plane link 1 up true")
	near.await("plane link 1 up true")

	second := h.start(0, toml)
	second.await(fmt.Sprintf("router br1 is served by process %d: stop that process first", near.cmd.Process.Pid))
	var exit *exec.ExitError
	if err := second.cmd.Wait(); !errors.As(err, &exit) {
		t.Errorf("second router: %v, want a failure", err)
	}

	check(t, h.links[1].LinkSetDown(h.veth(1)))
	before := time.Now()
	near.await("plane link 1 up false")
	t.Logf("link down after %v, the detection time is 3 s", time.Since(before))
	check(t, h.links[1].LinkSetUp(h.veth(1)))
	near.await("plane link 1 up true")

	hop := fmt.Sprintf("plane link 1 via %s 1500", h.veth(1).Attrs().HardwareAddr)
	if !slices.Contains(near.seen, hop) {
		t.Errorf("seen %q, want %q", near.seen, hop)
	}

	h.checkMetrics()
	h.checkEndpoints()

	check(t, near.cmd.Process.Signal(syscall.SIGTERM))
	lines := near.rest()
	if err := near.cmd.Wait(); err != nil {
		t.Errorf("router ended with %v", err)
	}
	down := -1 // each link begins down
	for _, line := range append(near.seen, lines...) {
		if strings.Contains(line, "plane link 1 up false") {
			down++
		}
		if strings.Contains(line, "detach") {
			t.Errorf("the router ended and told the fast path %q", line)
		}
	}
	if byBFD := strings.Count(near.stderr.String(), "Link down by BFD"); down > byBFD {
		t.Errorf("the fast path was told %d times that link 1 is down, and BFD said so %d times", down, byBFD)
	}
	near.wantLog("Scion version: culvert "+version.Short()+", scionproto ", 1)
	near.wantLog("Fast path attached", 1)
	near.wantLog("Fast path key", 1)
	near.wantLog("Link up by BFD", 2)
	near.wantLog("Link down by BFD", 1)
}

// wantLog counts a message in the log of a process that has ended. Links may go up and down more
// often than the test makes them.
func (c *child) wantLog(message string, least int) {
	c.t.Helper()
	if got := strings.Count(c.stderr.String(), message); got < least {
		c.t.Errorf("%q is in the log %d times, want at least %d:\n%s", message, got, least, c.stderr.String())
	}
}

// get fetches a page from the first host.
func (h *twoHosts) get(addr, page string) string {
	h.t.Helper()
	status, body := h.ask(http.MethodGet, addr, page, "")
	if status != http.StatusOK {
		h.t.Errorf("%s: status %d", page, status)
	}
	return body
}

// ask sends JSON to a page of the first host. It dials here, because only this thread is in the namespace.
func (h *twoHosts) ask(method, addr, page, send string) (status int, body string) {
	h.t.Helper()
	conn, err := net.Dial("tcp", addr)
	check(h.t, err)
	defer conn.Close()
	req, err := http.NewRequest(method, "http://"+addr+page, strings.NewReader(send))
	check(h.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	check(h.t, req.Write(conn))
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	check(h.t, err)
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	check(h.t, err)
	return resp.StatusCode, string(all)
}

// checkMetrics checks that the fast path's counters since the start are under the reference's names.
func (h *twoHosts) checkMetrics() {
	metrics := h.get("127.0.0.1:30442", "/metrics")
	const link1 = `interface="1",isd_as="1-ff00:0:110",neighbor_isd_as="1-ff00:0:111"`
	for _, want := range []string{
		`router_input_pkts_total{` + link1 + `,sizeclass="128_255"} 5`,
		`router_input_bytes_total{` + link1 + `,sizeclass="128_255"} 1000`,
		`router_processed_pkts_total{` + link1 + `,sizeclass="128_255"} 5`,
		`router_dropped_pkts_total{` + link1 + `,reason="invalid",sizeclass="128_255"} 2`,
		`router_output_pkts_total{interface="2",isd_as="1-ff00:0:110",neighbor_isd_as="1-ff00:0:111",sizeclass="128_255",type="br_transit"} 3`,
		`router_interface_up{` + link1 + `} 1`,
		`scion_elem_id{cfg="br1"} 1`,
		`scion_build_info{version="culvert ` + version.Short() + `, scionproto `,
	} {
		if !strings.Contains(metrics, want) {
			h.t.Errorf("metrics lack %s", want)
		}
	}
}

// checkEndpoints checks the pages of the metrics address and of the API, and that none of debug_http is served.
func (h *twoHosts) checkEndpoints() {
	for _, page := range []struct{ addr, path, want string }{
		{"127.0.0.1:30442", "/", "log/level"},
		{"127.0.0.1:30442", "/info", "Scion version: culvert " + version.Short() + ", scionproto "},
		{"127.0.0.1:30442", "/info", "cmd line"},
		{"127.0.0.1:30442", "/config", "id = 'br1'"},
		{"127.0.0.1:30442", "/topology", `"IA": "1-ff00:0:110"`},
		{"127.0.0.1:30442", "/log/level", `"level":"info"`},
		{"127.0.0.1:30442", "/all", "router_input_pkts_total"},
		{"127.0.0.1:30443", "/api/v1/interfaces", `"state": "up"`},
		{"127.0.0.1:30443", "/openapi.json", "openapi"},
	} {
		if body := h.get(page.addr, page.path); !strings.Contains(body, page.want) {
			h.t.Errorf("%s lacks %q:\n%.500s", page.path, page.want, body)
		}
	}
	for _, off := range []struct{ method, addr, path string }{
		{http.MethodGet, "127.0.0.1:30442", "/debug/pprof/cmdline"},
		{http.MethodGet, "127.0.0.1:30442", "/debug/pprof/"},
		{http.MethodPut, "127.0.0.1:30442", "/log/level"},
		{http.MethodPut, "127.0.0.1:30443", "/api/v1/log/level"},
	} {
		status, body := h.ask(off.method, off.addr, off.path, `{"level": "debug"}`)
		if status != http.StatusForbidden || !strings.Contains(body, "debug_http") {
			h.t.Errorf("%s %s: status %d, %q, want it to be off", off.method, off.path, status, body)
		}
	}
	if body := h.get("127.0.0.1:30442", "/log/level"); !strings.Contains(body, `"level":"info"`) {
		h.t.Errorf("the level was changed: %s", body)
	}
}

// TestDebugHTTP checks that the profiler and changes of the log level are served if and only if debug_http is set.
func TestDebugHTTP(t *testing.T) {
	check(t, log.Setup(log.Config{Console: log.ConsoleConfig{Level: "info", StacktraceLevel: "none"}}))
	for _, on := range []bool{false, true} {
		s := SlowPath{debugHTTP: on}
		for _, request := range []*http.Request{
			httptest.NewRequest(http.MethodGet, "/debug/pprof/cmdline", nil),
			httptest.NewRequest(http.MethodPut, "/log/level", strings.NewReader("level=info")),
		} {
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			handler := http.Handler(http.HandlerFunc(s.logLevelPage().Handler))
			if request.Method == http.MethodGet {
				handler = s.debugOnly(profiler())
			}
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, request)
			if want := map[bool]int{false: http.StatusForbidden, true: http.StatusOK}[on]; answer.Code != want {
				t.Errorf("on %v: %s %s: status %d, want %d: %s", on, request.Method, request.URL, answer.Code, want, answer.Body)
			}
		}
	}
}
