// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"culvert/internal/testbed"
)

// patience bounds every wait. Tests that pass wait much shorter.
const patience = time.Minute

// childOptions names the environment variable that makes TestChildSpeaker a speaker.
const childOptions = "CULVERT_TEST_SPEAKER"

// answer is what the process with the speaker prints after each command.
type answer struct {
	Neighbors []State
	Announced []netip.Prefix
	Error     string
}

// TestChildSpeaker is not a test but a process with a speaker, which reads commands from standard input. Other tests start it,
// because gobgp opens its sockets in the network namespace of the process. Without the environment variable it does nothing.
func TestChildSpeaker(t *testing.T) {
	text := os.Getenv(childOptions)
	if text == "" {
		return
	}
	var o Options
	check(t, json.Unmarshal([]byte(text), &o))
	o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := Start(ctx, o)
	check(t, err)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var err error
		switch words := strings.Fields(lines.Text()); words[0] {
		case "set":
			var prefixes []netip.Prefix
			for _, w := range words[1:] {
				prefixes = append(prefixes, netip.MustParsePrefix(w))
			}
			err = s.Set(ctx, prefixes)
		case "close":
			err = s.Close(ctx)
		case "cancel":
			cancel()
		case "update":
			var now Options
			check(t, json.Unmarshal([]byte(strings.Join(words[1:], " ")), &now))
			now.Log = o.Log
			err = s.Update(now)
		}
		a := answer{Neighbors: s.Neighbors(), Announced: s.announced()}
		if err != nil {
			a.Error = err.Error()
		}
		check(t, json.NewEncoder(os.Stdout).Encode(a))
	}
}

// announced returns the prefixes of the last Set, sorted.
func (s *Speaker) announced() []netip.Prefix {
	x := s.sessions[0]
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.prefixes)
}

// host is a network namespace.
type host struct {
	ns    netns.NsHandle
	links *netlink.Handle
}

// bed is a router and two machines, each on a link of its own to the router. The router is 10.9.N.254 and fd09:N::fe,
// machine N is 10.9.N.1 and fd09:N::1.
type bed struct {
	t        *testing.T
	router   host
	machines [2]host
}

// newBed locks the test to its thread, with which the namespaces end. Tests with a bed run in parallel, because most of the time
// they wait for BGP's timers.
func newBed(t *testing.T) *bed {
	t.Helper()
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("needs root to make network namespaces: run the tests with sudo")
	}
	runtime.LockOSThread()
	b := &bed{t: t}
	for _, h := range []*host{&b.machines[0], &b.machines[1], &b.router} {
		var err error
		h.ns, err = netns.New()
		check(t, err)
		t.Cleanup(func() { _ = h.ns.Close() })
		h.links, err = netlink.NewHandle()
		check(t, err)
		t.Cleanup(h.links.Close)
		lo, err := h.links.LinkByName("lo")
		check(t, err)
		check(t, h.links.LinkSetUp(lo))
	}
	// The thread is in the router now.
	for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		check(t, os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0o644))
	}
	for i, m := range b.machines {
		n := i + 1
		far := fmt.Sprintf("cvm%d", n)
		check(t, b.router.links.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: far}, PeerName: "cvr", PeerNamespace: netlink.NsFd(m.ns)}))
		b.router.address(t, far, fmt.Sprintf("10.9.%d.254/24", n), fmt.Sprintf("fd09:%d::fe/64", n))
		m.address(t, "cvr", fmt.Sprintf("10.9.%d.1/24", n), fmt.Sprintf("fd09:%d::1/64", n))
		m.route(t, "0.0.0.0/0", fmt.Sprintf("10.9.%d.254", n))
	}
	return b
}

func (h host) address(t *testing.T, name string, prefixes ...string) {
	t.Helper()
	link, err := h.links.LinkByName(name)
	check(t, err)
	check(t, h.links.LinkSetUp(link))
	for _, p := range prefixes {
		addr, err := netlink.ParseAddr(p)
		check(t, err)
		addr.Flags = unix.IFA_F_NODAD
		check(t, h.links.AddrAdd(link, addr))
	}
}

func (h host) route(t *testing.T, to, via string) {
	t.Helper()
	_, dst, err := net.ParseCIDR(to)
	check(t, err)
	check(t, h.links.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(via)}))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until see returns what is wanted.
func eventually(t *testing.T, what, want string, see func() string) {
	t.Helper()
	var seen string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if seen = see(); seen == want {
			return
		}
	}
	t.Fatalf("%s: %q, want %q", what, seen, want)
}

// routes returns the next hops, sorted, of the routes to a prefix that BIRD has added to the host's kernel.
func (h host) routes(t *testing.T, prefix string) string {
	t.Helper()
	_, dst, err := net.ParseCIDR(prefix)
	check(t, err)
	family := netlink.FAMILY_V4
	if strings.Contains(prefix, ":") {
		family = netlink.FAMILY_V6
	}
	all, err := h.links.RouteListFiltered(family, &netlink.Route{Dst: dst, Protocol: unix.RTPROT_BIRD}, netlink.RT_FILTER_DST|netlink.RT_FILTER_PROTOCOL)
	check(t, err)
	var hops []string
	for _, r := range all {
		if r.Gw != nil {
			hops = append(hops, r.Gw.String())
		}
		for _, hop := range r.MultiPath {
			hops = append(hops, hop.Gw.String())
		}
	}
	slices.Sort(hops)
	return strings.Join(hops, " ")
}

// bird is a BIRD in one of the namespaces.
type bird struct {
	t      *testing.T
	host   host
	config string
	dir    string
	cmd    *exec.Cmd
}

// birdCommon is the beginning of every configuration. With 'merge paths', equal paths become one route of the kernel.
const birdCommon = `log "%[1]s/log" all;
router id %[2]s;
protocol device { }
protocol direct { ipv4; ipv6; }
protocol kernel { merge paths on; ipv4 { import none; export where source = RTS_BGP; }; }
protocol kernel { merge paths on; ipv6 { import none; export where source = RTS_BGP; }; }
`

// birdSession returns the configuration of a BGP session. more is added to it.
func birdSession(name, local string, as int, neighbor string, neighborAS int, more string) string {
	return fmt.Sprintf("protocol bgp %s { local %s as %d; neighbor %s as %d; error wait time 1, 2; %s\n"+
		"ipv4 { import all; export all; }; ipv6 { import all; export all; }; }\n", name, local, as, neighbor, neighborAS, more)
}

// bird starts a BIRD with these sessions in a namespace.
func (b *bed) bird(h host, id string, sessions ...string) *bird {
	b.t.Helper()
	d := &bird{t: b.t, host: h, dir: b.t.TempDir()}
	d.config = fmt.Sprintf(birdCommon, d.dir, id) + strings.Join(sessions, "")
	check(b.t, os.WriteFile(d.file("conf"), []byte(d.config), 0o644))
	d.start()
	b.t.Cleanup(func() {
		if b.t.Failed() {
			log, _ := os.ReadFile(d.file("log"))
			b.t.Logf("BIRD's log:\n%s", log)
			b.t.Logf("BIRD's routes:\n%s", d.ask("show", "route", "all"))
			b.t.Logf("BIRD's protocols:\n%s", d.ask("show", "protocols", "all"))
		}
	})
	return d
}

func (d *bird) file(name string) string { return filepath.Join(d.dir, name) }

func (d *bird) start() {
	d.t.Helper()
	check(d.t, netns.Set(d.host.ns))
	d.cmd = exec.Command("bird", "-f", "-c", d.file("conf"), "-s", d.file("ctl"), "-P", d.file("pid"))
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(d.t, d.cmd.Start())
	d.t.Cleanup(d.kill)
}

func (d *bird) kill() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

// ask returns the output of a command of BIRD, or the error message if BIRD does not run.
func (d *bird) ask(command ...string) string {
	out, _ := exec.Command("birdc", append([]string{"-s", d.file("ctl")}, command...)...).CombinedOutput()
	return string(out)
}

// hops returns the next hops that BIRD has for a prefix, sorted, each once.
func (d *bird) hops(prefix string) string {
	var hops []string
	for _, line := range strings.Split(d.ask("show", "route", "for", prefix), "\n") {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "via" {
			hops = append(hops, words[1])
		}
	}
	slices.Sort(hops)
	return strings.Join(slices.Compact(hops), " ")
}

// wantRoutes waits until BIRD and the router's kernel have a route to a prefix by these next hops, or no route if hops is empty.
func (d *bird) wantRoutes(prefix, hops string) {
	d.t.Helper()
	eventually(d.t, "BIRD's routes to "+prefix, hops, func() string { return d.hops(prefix) })
	eventually(d.t, "the kernel's routes to "+prefix, hops, func() string { return d.host.routes(d.t, prefix) })
}

// speaker is a Speaker in a process of its own.
type speaker struct {
	t       *testing.T
	cmd     *exec.Cmd
	in      *bufio.Writer
	answers chan answer
	stderr  testbed.Output
}

// speak starts a process with a speaker in a namespace.
func (b *bed) speak(h host, o Options) *speaker {
	b.t.Helper()
	check(b.t, netns.Set(h.ns))
	s := &speaker{t: b.t, cmd: exec.Command(os.Args[0], "-test.run=^TestChildSpeaker$", "-test.count=1"), answers: make(chan answer)}
	s.cmd.Env = append(os.Environ(), childOptions+"="+asJSON(b.t, o))
	s.cmd.Stderr = &s.stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := s.cmd.StdinPipe()
	check(b.t, err)
	s.in = bufio.NewWriter(in)
	out, err := s.cmd.StdoutPipe()
	check(b.t, err)
	check(b.t, s.cmd.Start())
	b.t.Cleanup(func() {
		s.kill()
		if b.t.Failed() {
			b.t.Logf("the speaker's log:\n%s", s.stderr.String())
		}
	})
	go func() {
		defer close(s.answers)
		lines := json.NewDecoder(out)
		for {
			var a answer
			if lines.Decode(&a) != nil {
				return
			}
			s.answers <- a
		}
	}()
	return s
}

// kill kills the process, so that the neighbors are not notified.
func (s *speaker) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// tell sends the speaker a command and returns its answer.
func (s *speaker) tell(command string) answer {
	s.t.Helper()
	fmt.Fprintln(s.in, command)
	check(s.t, s.in.Flush())
	select {
	case a, ok := <-s.answers:
		if !ok {
			s.t.Fatalf("the speaker ended at %q:\n%s", command, s.stderr.String())
		}
		return a
	case <-time.After(patience):
		s.t.Fatalf("no answer to %q", command)
	}
	panic("not reached")
}

// set makes the speaker announce prefixes.
func (s *speaker) set(prefixes ...string) {
	s.t.Helper()
	if a := s.tell("set " + strings.Join(prefixes, " ")); a.Error != "" {
		s.t.Fatal(a.Error)
	}
}

// update replaces the options of the speaker.
func (s *speaker) update(o Options) {
	s.t.Helper()
	if a := s.tell("update " + asJSON(s.t, o)); a.Error != "" {
		s.t.Fatal(a.Error)
	}
}

func asJSON(t *testing.T, o Options) string {
	t.Helper()
	text, err := json.Marshal(o)
	check(t, err)
	return string(text)
}

// state returns the state of the session with the first neighbor, the number of announced prefixes and the last error.
func (s *speaker) state() string {
	s.t.Helper()
	n := s.tell("state").Neighbors[0]
	return strings.TrimSpace(fmt.Sprintf("%s %d %s", n.State, n.Announced, n.LastError))
}

// await waits until state returns this.
func (s *speaker) await(state string) {
	s.t.Helper()
	eventually(s.t, "the session", state, s.state)
}
