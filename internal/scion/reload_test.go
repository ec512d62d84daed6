// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"culvert/internal/scion/scionpkt"
	"culvert/internal/stage"
)

// childReload names the environment variable that makes TestChildReload a router.
const childReload = "CULVERT_TEST_RELOAD"

// TestChildReload is a router that follows other configurations as it is told on standard input, when the tests below start it
// in a process of its own. By itself it does nothing.
func TestChildReload(t *testing.T) {
	path := os.Getenv(childReload)
	if path == "" {
		return
	}
	out := &printingPlane{}
	p, err := newPlan(Table{Config: path})
	check(t, err)
	out.links = len(p.router.Datapath.Links)
	now, err := p.prepare(context.Background(), nil, nil)
	check(t, err)
	check(t, now.commit(context.Background(), out))
	serve := func(f *fastPath) (end func(error)) {
		ctx, cancel := context.WithCancelCause(context.Background())
		done := make(chan error)
		go func() { done <- f.Serve(ctx, func() {}) }()
		return func(cause error) {
			cancel(cause)
			check(t, <-done)
		}
	}
	end := serve(now)
	// reload follows the file at path. An undo is a data plane that takes no new program.
	reload := func(path string, undo bool) error {
		p, err := newPlan(Table{Config: path})
		if err != nil {
			return err
		}
		if p.ServedBy(now) {
			out.say("served")
		}
		prepared, err := p.Succeed(context.Background(), stage.Start{Process: true}, now)
		if err != nil {
			return err
		}
		next := prepared.(*fastPath)
		end(stage.ErrSucceeded)
		if undo {
			check(t, next.Close())
			end = serve(now)
			return nil
		}
		plane := &printingPlane{links: len(p.router.Datapath.Links)}
		check(t, next.commit(context.Background(), plane))
		check(t, now.Close())
		now = next
		end = serve(now)
		return nil
	}
	out.say("ready")
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		verb, path, _ := strings.Cut(commands.Text(), " ")
		switch verb {
		case "reload", "undo":
			if err := reload(path, verb == "undo"); err != nil {
				out.say("refused", err)
				break
			}
			out.say("done", verb)
		case "memory":
			ending.Wait()
			var m runtime.MemStats
			for range 3 { // goroutines that end take a moment
				time.Sleep(50 * time.Millisecond)
				runtime.GC()
			}
			runtime.ReadMemStats(&m)
			out.say("memory", m.HeapAlloc>>10, "goroutines", runtime.NumGoroutine())
		case "dump":
			buf := make([]byte, 1<<22)
			os.Stderr.Write(buf[:runtime.Stack(buf, true)])
			out.say("done dump")
		}
	}
	end(nil)
	check(t, now.Close())
	ending.Wait()
}

// reloadBed is a router that follows configurations. Its links 1 and 2 have BFD to a router on the other host. Of link 4 and 5
// the test holds the far ends.
type reloadBed struct {
	*twoHosts
	near, far *child
	tell      io.WriteCloser
	in, out   *net.UDPConn
}

const reloadBFD = "[router.bfd]\ndetect_mult = 3\ndesired_min_tx_interval = \"1s\"\nrequired_min_rx_interval = \"1s\"\n"

// interfaceJSON returns an interface with BFD, or without it, from port 50000+n to the same port.
func interfaceJSON(id, n int, own, far, toward, link string, bfd bool) string {
	return fmt.Sprintf(`"%d": {"underlay": {"local": "192.0.2.%s:%d", "remote": "192.0.2.%s:%d"}, "isd_as": "1-ff00:0:%s", `+
		`"link_to": "%s", "mtu": 1472, "bfd": {"disable": %v}}`, id, own, 50000+n, far, 50000+n, toward, link, !bfd)
}

// write writes the files of a router with interfaces, and returns the path of its TOML file.
func (b *reloadBed) write(as, more string, interfaces ...string) string {
	b.t.Helper()
	dir := copied(b.t, "testdata/wire")
	attributes := ""
	if as == "110" {
		attributes = `"core"`
	}
	text := fmt.Sprintf(`{"isd_as": "1-ff00:0:%s", "mtu": 1472, "dispatched_ports": "31000-32767", "attributes": [%s], "border_routers": {
"br1": {"internal_addr": "127.0.0.1:30042", "interfaces": {
%s}}}, "control_service": {"cs1": {"addr": "127.0.0.1:30252"}}}`, as, attributes, strings.Join(interfaces, ",\n"))
	check(b.t, os.WriteFile(filepath.Join(dir, "topology.json"), []byte(text), 0o600))
	path := filepath.Join(dir, "br.toml")
	check(b.t, os.WriteFile(path, fmt.Appendf(nil, "[general]\nid = \"br1\"\nconfig_dir = %q\n%s%s", dir, reloadBFD, more), 0o600))
	return path
}

// wire returns interface id of the near router on wire n.
func wire(id, n int, bfd bool) string { return interfaceJSON(id, n, "1", "2", "111", wireType(n), bfd) }

// wireType makes wire 4 one to a core AS, so that paths lead from it to others.
func wireType(n int) string {
	if n == 4 {
		return "core"
	}
	return "child"
}

const reloadMetrics = "[metrics]\nprometheus = \"127.0.0.1:30442\"\n"

func newReloadBed(t *testing.T) *reloadBed {
	b := &reloadBed{twoHosts: newTwoHosts(t)}
	r, w, err := os.Pipe()
	check(t, err)
	b.tell = w
	b.near = b.startChildWith(0, "TestChildReload", childReload+"="+b.first(""), r)
	t.Cleanup(func() { b.end() })
	b.near.await("plane ready")
	b.enter(1)
	b.in, err = net.DialUDP("udp4", udp("192.0.2.2:50004"), udp("192.0.2.1:50004"))
	check(t, err)
	b.out, err = net.DialUDP("udp4", udp("192.0.2.2:50005"), udp("192.0.2.1:50005"))
	check(t, err)
	b.enter(0)
	t.Cleanup(func() { b.in.Close(); b.out.Close() })
	far := func(id, n int) string { return interfaceJSON(id, n, "2", "1", "110", "parent", true) }
	b.far = b.start(1, b.write("111", "", far(6, 6), far(7, 1), far(8, 2)))
	b.far.awaitAll("plane link 2 up true", "plane link 3 up true")
	b.near.awaitAll("plane link 1 up true", "plane link 2 up true")
	return b
}

// awaitAll waits for lines in any order.
func (c *child) awaitAll(want ...string) {
	c.t.Helper()
	for _, w := range want {
		if !slices.ContainsFunc(c.seen, func(line string) bool { return strings.Contains(line, w) }) {
			c.await(w)
		}
	}
}

func udp(a string) *net.UDPAddr { return net.UDPAddrFromAddrPort(ap(a)) }

// first writes the configuration that the near router starts with.
func (b *reloadBed) first(more string) string {
	return b.write("110", reloadMetrics+more, wire(1, 1, true), wire(2, 2, true), wire(4, 4, false), wire(5, 5, false))
}

// end ends the near router and returns its log.
func (b *reloadBed) end() string {
	b.t.Helper()
	if b.near.cmd.ProcessState == nil {
		_ = b.tell.Close()
		b.near.rest()
		if err := b.near.cmd.Wait(); err != nil {
			b.t.Errorf("the router ended with %v:\n%s", err, b.near.stderr.String())
		}
	}
	return b.near.stderr.String()
}

// do has the near router follow a file.
func (b *reloadBed) do(verb, path string) {
	b.t.Helper()
	_, err := fmt.Fprintln(b.tell, verb, path)
	check(b.t, err)
	b.near.await("plane done " + verb)
}

// refused has the near router refuse a file with an error.
func (b *reloadBed) refused(path, want string) {
	b.t.Helper()
	_, err := fmt.Fprintln(b.tell, "reload", path)
	check(b.t, err)
	b.near.await("plane refused")
	if line := b.near.seen[len(b.near.seen)-1]; !strings.Contains(line, want) {
		b.t.Errorf("%s, want %s", line, want)
	}
}

// packets returns SCION packets of several flows from link in to link out of the router of a file.
func (b *reloadBed) packets(toml string, in, out int) (all [][]byte) {
	b.t.Helper()
	dir := filepath.Dir(toml)
	var file bytes.Buffer
	check(b.t, scionpkt.GenerateFile(scionpkt.GenerateOptions{Topology: filepath.Join(dir, "topology.json"), Router: "br1",
		Keys: filepath.Join(dir, "keys"), Flows: 8, HopFields: 4, Sizes: []int{300}, Family: "4", Ingress: in, Egress: out, Output: "-"}, &file))
	r, err := pcapgo.NewReader(&file)
	check(b.t, err)
	for {
		frame, _, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return all
		}
		check(b.t, err)
		packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
		all = append(all, packet.Layer(layers.LayerTypeUDP).LayerPayload())
	}
}

// flow sends numbered packets from one far end to the other until stop, at most some at a time on their way, and then
// reports how many were sent and which were lost.
func (b *reloadBed) flow(packets [][]byte) (stop func() (sent, lost int)) {
	const window = 64
	var (
		mu   sync.Mutex
		seen = map[uint64]bool{}
		n    uint64
		end  = make(chan struct{})
		done sync.WaitGroup
	)
	arrived := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(seen)
	}
	done.Go(func() {
		buf := make([]byte, 2000)
		for {
			size, err := b.out.Read(buf)
			if err != nil {
				return
			}
			mu.Lock()
			seen[binary.BigEndian.Uint64(buf[size-8:])] = true
			mu.Unlock()
		}
	})
	var sender sync.WaitGroup
	sender.Go(func() {
		for stuck := time.Now(); ; {
			select {
			case <-end:
				return
			default:
			}
			if int(n)-arrived() >= window && time.Since(stuck) < time.Second {
				time.Sleep(200 * time.Microsecond)
				continue
			}
			stuck = time.Now()
			p := packets[n%uint64(len(packets))]
			binary.BigEndian.PutUint64(p[len(p)-8:], n)
			if _, err := b.in.Write(p); err == nil {
				n++
			}
		}
	})
	return func() (sent, lost int) {
		close(end)
		sender.Wait()
		for until := time.Now().Add(3 * time.Second); arrived() < int(n) && time.Now().Before(until); {
			time.Sleep(10 * time.Millisecond)
		}
		check(b.t, b.out.SetReadDeadline(time.Now()))
		done.Wait()
		check(b.t, b.out.SetReadDeadline(time.Time{}))
		return int(n), int(n) - arrived()
	}
}

// noFlap checks that no session of the far router with BFD has left Up since newReloadBed.
func (b *reloadBed) noFlap(links ...string) {
	b.t.Helper()
	for done := false; !done; {
		select {
		case line := <-b.far.events:
			b.far.seen = append(b.far.seen, line)
		default:
			done = true
		}
	}
	for _, link := range links {
		up := false
		for _, line := range b.far.seen {
			if strings.Contains(line, "plane link "+link+" up true") {
				up = true
			}
			if up && strings.Contains(line, "plane link "+link+" up false") {
				b.t.Errorf("the far router's link %s went down", link)
				break
			}
		}
	}
}

// TestReload changes the topology of a router twenty times. The sessions of links that stay do not leave Up at the far end,
// packets over other links that stay are not lost, and counters go on.
func TestReload(t *testing.T) {
	b := newReloadBed(t)
	keep := []string{wire(1, 1, true), wire(4, 4, false), wire(5, 5, false)}
	first := b.write("110", reloadMetrics, append(keep, wire(2, 2, true))...)
	added := b.write("110", reloadMetrics, append(keep, wire(2, 2, true), wire(3, 3, true))...)
	renumbered := b.write("110", reloadMetrics, append(keep, wire(22, 2, true), wire(3, 6, true))...)
	const as = `isd_as="1-ff00:0:110",neighbor_isd_as="1-ff00:0:111"`
	_, changes, _ := strings.Cut(b.get("127.0.0.1:30442", "/metrics"), `router_bfd_state_changes_total{interface="1",`+as+"} ")
	changes, _, _ = strings.Cut(changes, "\n")
	stop := b.flow(b.packets(first, 4, 5))
	for i := range 20 {
		b.do("reload", []string{added, renumbered, first, first}[i%4])
		time.Sleep(200 * time.Millisecond) // longer than the detection time in all
	}
	b.do("reload", renumbered)
	sent, lost := stop()
	t.Logf("%d packets", sent)
	if sent < 100 || lost > 0 {
		t.Errorf("%d of %d packets lost", lost, sent)
	}
	b.noFlap("2", "3")
	metrics := b.get("127.0.0.1:30442", "/metrics")
	for _, want := range []string{
		fmt.Sprintf(`router_input_pkts_total{interface="4",%s,sizeclass="256_511"} %d`, as, sent),
		fmt.Sprintf(`router_output_pkts_total{interface="5",%s,sizeclass="256_511",type="br_transit"} %d`, as, sent),
		`router_interface_up{interface="1",` + as + `} 1`,
		`router_interface_up{interface="22",` + as + `} 1`,
		`router_bfd_state_changes_total{interface="1",` + as + `} ` + changes + "\n",
		`router_service_instance_count{isd_as="1-ff00:0:110",service="CS"} 1`,
		`router_service_instance_changes_total{isd_as="1-ff00:0:110",service="CS"} 1`,
		"process_running_seconds_total",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	if strings.Contains(metrics, `interface="2"`) {
		t.Error("metrics have interface 2, which is gone")
	}
	if text := b.end(); strings.Contains(text, "ERROR") {
		t.Errorf("errors in the log:\n%s", text)
	}
}

// TestReloadFreesMemory checks that former data planes are freed.
func TestReloadFreesMemory(t *testing.T) {
	b := newReloadBed(t)
	keep := []string{wire(1, 1, true), wire(2, 2, true), wire(4, 4, false), wire(5, 5, false)}
	other := b.write("110", reloadMetrics, append(keep, wire(3, 3, true))...)
	memory := func() (kB, goroutines int) {
		_, err := fmt.Fprintln(b.tell, "memory")
		check(t, err)
		b.near.await("plane memory")
		_, err = fmt.Sscanf(b.near.seen[len(b.near.seen)-1], "plane memory %d goroutines %d", &kB, &goroutines)
		check(t, err)
		return kB, goroutines
	}
	first := b.first("")
	b.do("reload", other)
	b.do("reload", first)
	kB, goroutines := memory()
	for range 10 {
		b.do("reload", other)
		b.do("reload", first)
	}
	kB2, goroutines2 := memory()
	t.Logf("%d kB and %d goroutines before, %d kB and %d goroutines after 20 changes of the topology", kB, goroutines, kB2, goroutines2)
	if kB2 > kB+4096 || goroutines2 > goroutines+5 {
		b.do("dump", "")
		t.Errorf("not freed: \n%s", b.end())
	}
	b.noFlap("2", "3")
}

// TestReloadRefused has a router refuse configurations, and fail to follow one. Everything goes on as before.
func TestReloadRefused(t *testing.T) {
	b := newReloadBed(t)
	keep := []string{wire(1, 1, true), wire(2, 2, true), wire(4, 4, false), wire(5, 5, false)}
	first := b.first("")
	stop := b.flow(b.packets(first, 4, 5))
	elsewhere := b.write("110", "", append(keep, strings.Replace(wire(3, 3, true), "192.0.2.1", "192.0.2.77", 1))...)
	b.refused(elsewhere, "border_routers.br1.interfaces.3.underlay.local: no network interface has the address 192.0.2.77")
	other := b.write("110", "", keep...)
	text, err := os.ReadFile(other)
	check(t, err)
	check(t, os.WriteFile(other, bytes.Replace(text, []byte("br1"), []byte("br2"), 1), 0o600))
	b.refused(other, "general.id: no router \"br2\"")
	added := b.write("110", reloadMetrics, append(keep, wire(3, 3, true))...)
	b.do("undo", added)
	b.do("reload", added)
	b.do("undo", first)
	taken, err := net.Listen("tcp", "127.0.0.1:30449")
	check(t, err)
	defer taken.Close()
	b.refused(b.write("110", strings.Replace(reloadMetrics, "30442", "30449", 1), append(keep, wire(9, 9, true))...),
		"metrics.prometheus: listen tcp 127.0.0.1:30449: bind: address already in use")
	if metrics := b.get("127.0.0.1:30442", "/metrics"); strings.Contains(metrics, `interface="9"`) {
		t.Error("metrics have an interface of the refused configuration")
	}
	b.do("reload", first)
	if sent, lost := stop(); sent < 100 || lost > 0 {
		t.Errorf("%d of %d packets lost", lost, sent)
	}
	b.noFlap("2", "3")
}

// TestReloadOfDeadLink ends the far router and changes the configuration at once. The sessions that go on find out by the
// detection time.
func TestReloadOfDeadLink(t *testing.T) {
	b := newReloadBed(t)
	added := b.write("110", reloadMetrics, wire(1, 1, true), wire(2, 2, true), wire(3, 3, true))
	check(t, b.far.cmd.Process.Kill())
	before := time.Now()
	b.do("reload", added)
	b.near.await("plane link 1 up false")
	t.Logf("down %v after the far end, the detection time is 3 s", time.Since(before))
	if text := b.end(); strings.Count(text, "Link up by BFD") > 2 {
		t.Errorf("the log reports links again:\n%s", text)
	}
}

// TestReloadHTTP changes addresses and settings that do not concern the data plane.
func TestReloadHTTP(t *testing.T) {
	b := newReloadBed(t)
	b.do("reload", b.first("[api]\naddr = \"127.0.0.1:30443\"\n[log.console]\nlevel = \"debug\"\n"))
	for page, want := range map[string]string{"/log/level": `"level":"debug"`, "/config": "level = 'debug'"} {
		if body := b.get("127.0.0.1:30442", page); !strings.Contains(body, want) {
			t.Errorf("%s lacks %s: %s", page, want, body)
		}
	}
	if body := b.get("127.0.0.1:30443", "/api/v1/interfaces"); !strings.Contains(body, `"state": "up"`) {
		t.Errorf("interfaces: %s", body)
	}
	b.do("reload", b.write("110", strings.Replace(reloadMetrics, "30442", "30443", 1), wire(1, 1, true), wire(2, 2, true)))
	if body := b.get("127.0.0.1:30443", "/metrics"); !strings.Contains(body, "router_interface_up") {
		t.Error("no metrics at the new address")
	}
	if c, err := net.Dial("tcp", "127.0.0.1:30442"); err == nil {
		c.Close()
		t.Error("the former address still answers")
	}
	if body := b.get("127.0.0.1:30443", "/log/level"); !strings.Contains(body, `"level":"info"`) {
		t.Errorf("level %s, want the default again", body)
	}
	b.noFlap("2", "3")
}
