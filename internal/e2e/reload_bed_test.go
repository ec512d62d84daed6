// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"culvert/internal/bench/load"
	"culvert/internal/datapath"
	"culvert/internal/lab"
	"culvert/internal/scion/scionpkt"
)

// everything is a lab of topology all, whose configuration is reloaded while a generator in as1 sends packets for each stage.
// They arrive at sinks in as3, peer and client, or the filter drops them. Each sink is the link of a backend, too.
type everything struct {
	*testing.T
	lab        *lab.Lab
	config     string // the lab's own file, its drop-in, and the SCION router's topology.json and TOML file
	dropIn     string
	topology   map[string]any
	router     string
	gen        *load.Generator
	into       load.End
	from       load.End
	sinks      []*load.Sink
	ends       map[string]load.End // of rut, by interface
	kinds      []string            // of the frames, by flow
	sent       uint64
	sending    time.Duration
	before     map[string]tally
	received   map[string]uint64
	dropped    uint64 // by the generator's veth, before the load
	refused    uint64 // by the veths of rut, of what the kernel forwarded, before the load
	seen       map[string]tally
	place      map[int]int // where the flows of the VIP that stays have come out, by flow
	bfd, since string
	took       time.Duration // by the reloads under load
	flows      sampleCollector
}

const (
	// reloadRate bounds the load, in packets a second. On two CPUs reloads take a tenth of it, and half a million are to be left.
	reloadRate = 560_000
	// reloadHold has packets leave in batches: a batch for each packet takes the generator more time than there is.
	reloadHold = 32 * time.Microsecond
	// reloadFrame is the length of the frames in bytes.
	reloadFrame = 200
	// reloadPort is the port of the VIPs under load.
	reloadPort = 9
)

var (
	steadyVIP, movingVIP = netip.MustParseAddr("203.0.113.90"), netip.MustParseAddr("203.0.113.91")
	// sinkBackends are backends whose links are those of the sinks.
	sinkBackends = []struct{ ns, iface, rut, addr string }{
		{"as3", "to-as2", "to-as3", "198.18.23.77"}, {"peer", "to-rut", "to-peer", "198.18.30.77"}, {"client", "to-rut", "to-client", "198.18.1.77"},
	}
)

func newEverything(t *testing.T) *everything {
	t.Helper()
	// Sessions with BFD stand a machine that is busy for some seconds.
	b := &everything{T: t, lab: up(t, "all", lab.Options{Name: "reload", BFD: time.Second}), ends: map[string]load.End{}, place: map[int]int{}}
	as, err := b.lab.AS("rut")
	check(t, err)
	b.config, b.dropIn = b.read(b.lab.All.Config), b.read(b.lab.All.DropIn)
	b.router = b.read(as.RouterConfig)
	check(t, json.Unmarshal([]byte(b.read(filepath.Join(as.ConfigDir, "topology.json"))), &b.topology))
	for _, i := range b.lab.Namespaces[0].Interfaces {
		b.ends[i.Name] = end(t, b.lab, "rut", i.Name)
	}
	b.from, b.into = end(t, b.lab, "as1", "to-as2"), b.ends["to-as1"]
	all := b.frames()
	for _, at := range sinkBackends {
		e := end(t, b.lab, at.ns, at.iface)
		b.sinks = append(b.sinks, newSink(t, e, load.SinkOptions{Flows: len(all)}))
		for _, addr := range []string{at.addr, "198.18.30.2"} {
			if addr == at.addr || at.ns == "peer" {
				b.run("rut", "ip", "neigh", "replace", addr, "lladdr", e.MAC.String(), "dev", at.rut, "nud", "permanent")
			}
		}
	}
	b.gen, err = load.NewGenerator(load.GeneratorOptions{
		Frames: all, From: b.from, Stamp: true, CPU: load.LastCPU(), Hold: reloadHold,
	})
	check(t, err)
	t.Cleanup(func() { check(t, b.gen.Close()) })
	b.gen.Pace(reloadRate)
	b.collect()
	return b
}

// frames makes frames for each stage, which take turns.
func (b *everything) frames() (all [][]byte) {
	b.Helper()
	kinds := map[string][][]byte{
		"scion": frames(b.T, b.lab, "rut", b.from, b.into, scionpkt.GenerateOptions{Sizes: []int{reloadFrame}, Ingress: 201, Egress: 203, Flows: 32}),
	}
	client := netip.MustParseAddr("198.18.1.2")
	for kind, u := range map[string]load.UDPTraffic{
		"routed":  {Src: client, Dst: netip.MustParseAddr("9.9.9.9")},
		"blocked": {Src: b.lab.All.Blocked, Dst: netip.MustParseAddr("9.9.9.9")},
		"steady":  {Src: client, Dst: steadyVIP},
		"moving":  {Src: client, Dst: movingVIP},
	} {
		u.Sizes, u.Flows, u.Port, u.DstMAC, u.SrcMAC = []int{reloadFrame}, 32, reloadPort, b.into.MAC, b.from.MAC
		check(b.T, u.Check())
		made, err := u.Frames(b.from)
		check(b.T, err)
		kinds[kind] = made
	}
	for i := range 32 {
		for _, kind := range []string{"scion", "routed", "blocked", "steady", "moving"} {
			all = append(all, kinds[kind][i])
			b.kinds = append(b.kinds, kind)
		}
	}
	return all
}

func (b *everything) read(path string) string {
	b.Helper()
	text, err := os.ReadFile(path)
	check(b.T, err)
	return string(text)
}

func (b *everything) run(ns string, argv ...string) string {
	b.Helper()
	out, err := b.lab.Run(b.Context(), ns, argv...)
	check(b.T, err)
	return string(out)
}

// reload reads the configuration again.
func (b *everything) reload() (newProgram bool) {
	b.Helper()
	out, err := b.lab.Run(b.Context(), "rut", program(), "reload", "-j")
	var r struct {
		NewProgram bool `json:"new_program"`
		OK         bool
	}
	if err := errors.Join(err, json.Unmarshal(out, &r)); err != nil || !r.OK {
		b.Fatalf("reload: %v\n%s", err, out)
	}
	return r.NewProgram
}

// underLoad calls do while the generator sends.
func (b *everything) underLoad(do func()) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	done := make(chan error, 1)
	go func() {
		start := time.Now()
		sent, err := b.gen.Run(ctx, 1<<62)
		b.sent += sent.Packets
		b.sending += time.Since(start)
		if ctx.Err() != nil {
			err = nil
		}
		done <- err
	}()
	defer func() { stop(); check(b.T, <-done) }()
	do()
}

// ports reads the counters of all interfaces.
func (b *everything) ports() map[string]tally {
	b.Helper()
	var here []*datapath.Instance
	check(b.T, b.lab.Do("rut", func() (err error) {
		here, err = datapath.ListHere()
		return err
	}))
	if len(here) != 1 {
		b.Fatalf("%d data planes in rut, want one", len(here))
	}
	defer here[0].Close()
	all := map[string]tally{}
	ports, err := here[0].Ports()
	check(b.T, err)
	for _, p := range ports {
		all[p.Interface] = countOf(p)
	}
	return all
}

// verdicts returns how many packets of an interface are counted: under a reason, or as lost before the verdict.
func (c tally) verdicts() (n uint64) {
	for k, v := range c {
		if !strings.HasPrefix(k, "lost ") || k == "lost worker-queue" {
			n += v
		}
	}
	return n
}

// still reads the counters of interfaces beside the kernel's: of each at a moment when nothing arrives there.
func (b *everything) still() (ports map[string]tally, received map[string]uint64) {
	b.Helper()
	stats := func() map[string]uint64 {
		all := map[string]uint64{}
		for name, e := range b.ends {
			s, err := e.Stats()
			check(b.T, err)
			all[name] = s.Received
		}
		return all
	}
	ports, received = map[string]tally{}, map[string]uint64{}
	wait(b.T, "a moment in which nothing arrives", func() bool {
		before := stats()
		now := b.ports()
		for name, n := range stats() {
			if _, done := ports[name]; !done && n == before[name] {
				ports[name], received[name] = now[name], n
			}
		}
		return len(ports) == len(b.ends)
	})
	return ports, received
}

// begin notes what was counted and in which state sessions were before the load.
func (b *everything) begin() {
	b.Helper()
	b.before, b.received = b.still()
	b.seen = b.before
	s, err := b.from.Stats()
	check(b.T, err)
	b.dropped, b.refused = s.SendDropped, b.stackDropped()
	b.bfd, b.since = b.bfdChanges(), b.sessions()
}

// forward wants no counter to go back.
func (b *everything) forward(step int) {
	b.Helper()
	now := b.ports()
	for name, c := range now {
		for k, n := range b.seen[name] {
			if c[k] < n {
				b.Errorf("reload %d: %s of %s went back from %d to %d", step, k, name, n, c[k])
			}
		}
	}
	b.seen = now
}

// settle waits until all packets have arrived, and wants each to be counted once.
func (b *everything) settle() {
	b.Helper()
	var problems []string
	var text string
	// On a machine with other work packets may wait for a worker or for the kernel longer than nothing is seen to arrive.
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
		if problems, text = b.account(); len(problems) == 0 || time.Now().After(end) {
			break
		}
	}
	for _, p := range problems {
		b.Error(p)
	}
	b.Log(text)
	for n, s := range b.sinks {
		orders, err := s.FlowOrders()
		check(b.T, err)
		for flow, o := range orders {
			if b.kinds[flow] != "steady" || o.Packets == 0 {
				continue
			}
			if at, ok := b.place[flow]; ok && at != n {
				b.Errorf("flow %d of the VIP that stays came to backend %d first, and to %d later", flow, at, n)
			}
			b.place[flow] = n
		}
	}
	if now := b.bfdChanges(); now != b.bfd {
		b.Errorf("BFD sessions have changed: %s, %s before", now, b.bfd)
	}
	if now := b.sessions(); !sameSessions(now, b.since) {
		b.Errorf("BGP sessions are\n%s\nand were\n%s", now, b.since)
	}
}

// account says what does not add up, nothing if every packet that was sent has arrived or is counted, and what was counted in a line.
func (b *everything) account() (problems []string, text string) {
	b.Helper()
	var arrived uint64
	for _, s := range b.sinks {
		arrived += settled(b.T, s).Packets
	}
	ports, received := b.still()
	for name, c := range ports {
		if name == "to-b2" { // is taken away
			continue
		}
		if got, want := c.verdicts()-b.before[name].verdicts(), received[name]-b.received[name]; got != want {
			problems = append(problems, fmt.Sprintf("%s: %d packets have come in, %d are counted", name, want, got))
		}
	}
	moved := ports["to-as1"].since(b.before["to-as1"])
	s, err := b.from.Stats()
	check(b.T, err)
	dropped := s.SendDropped - b.dropped
	elsewhere := moved["drop filter"] + moved.lost()
	// What the kernel forwards while the IP router is off may find a sink's queue full, too. Some of that may be the lab's own,
	// as may be some of what workers lose.
	refused := b.stackDropped() - b.refused
	own := received["to-as1"] - b.received["to-as1"] - (b.sent - dropped)
	missing := int64(b.sent - dropped - arrived - elsewhere)
	if missing < -int64(min(own, moved.lost())) || missing > int64(refused) {
		problems = append(problems, fmt.Sprintf("%d packets were sent, %d lost in the queue of the veth, %d have arrived, %d are counted as dropped or lost, "+
			"%d were lost by the kernel: %d are missing; %v", b.sent, dropped, arrived, elsewhere, refused, missing, moved))
	}
	return problems, fmt.Sprintf("%d packets sent, %.3f million a second, %d lost in the veth's queue before XDP, %d arrived, %d dropped by the filter, "+
		"%d lost after the verdict, %d behind the kernel", b.sent, float64(b.sent)/b.sending.Seconds()/1e6, dropped, arrived, moved["drop filter"], moved.lost(), missing)
}

// stackDropped returns how many packets that the kernel forwards it has lost in rut: the veths have refused them, or the kernel says that it has
// discarded packets, for want of a route or of memory.
func (b *everything) stackDropped() (n uint64) {
	b.Helper()
	for _, at := range sinkBackends {
		s, err := b.ends[at.rut].Stats()
		check(b.T, err)
		n += s.StackDropped
	}
	return n + b.discarded("rut")
}

// discarded returns how many packets the kernel has discarded in a namespace, of those that it has to forward.
func (b *everything) discarded(ns string) (n uint64) {
	b.Helper()
	// Counters of IPv4 are in pairs of lines, names and values; those of IPv6 one on each line.
	lines := strings.Split(b.run(ns, "cat", "/proc/net/snmp"), "\n")
	for at := 0; at+1 < len(lines); at += 2 {
		names, values := strings.Fields(lines[at]), strings.Fields(lines[at+1])
		if len(names) == 0 || names[0] != "Ip:" || len(names) != len(values) {
			continue
		}
		for i, name := range names {
			n += discard(name, values[i])
		}
	}
	for line := range strings.Lines(b.run(ns, "cat", "/proc/net/snmp6")) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.HasPrefix(name, "Ip6") {
			n += discard(strings.TrimPrefix(name, "Ip6"), strings.TrimSpace(value))
		}
	}
	return n
}

// discard returns the value of a counter of discarded packets, 0 for another counter.
func discard(name, value string) uint64 {
	switch name {
	case "InDiscards", "OutDiscards", "OutNoRoutes":
		n, _ := strconv.ParseUint(value, 10, 64)
		return n
	}
	return 0
}

var bfdChange = regexp.MustCompile(`(?m)^router_bfd_state_changes_total.*$`)

// bfdChanges returns what the far ends count of their sessions' changes.
func (b *everything) bfdChanges() (all string) {
	b.Helper()
	for _, ns := range []string{"as1", "as3"} {
		all += ns + " " + strings.Join(bfdChange.FindAllString(b.metrics(ns, "127.0.0.1:30442"), -1), " ") + "\n"
	}
	if !strings.Contains(all, "state_changes") {
		b.Fatalf("the far ends count no BFD sessions: %s", all)
	}
	return all
}

func (b *everything) metrics(ns, addr string) string {
	b.Helper()
	return b.run(ns, "curl", "-sS", "-m", "20", "http://"+addr+"/metrics")
}

// sessions returns since when the BGP sessions that stay are up, by peer's BIRD.
func (b *everything) sessions() (all string) {
	b.Helper()
	for _, name := range []string{"culvert4", "rut4", "rut6"} {
		out := b.run("peer", "birdc", "-s", filepath.Join(b.lab.Dir, "peer.ctl"), "show", "protocols", name)
		for line := range strings.Lines(out) {
			if strings.HasPrefix(line, name) {
				all += line
			}
		}
	}
	if strings.Count(all, "Established") != 3 {
		b.Fatalf("the BGP sessions are\n%s", all)
	}
	return all
}

// sameSessions tells whether two outputs of sessions say the same. BIRD works times out anew from two clocks each time.
func sameSessions(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	return slices.EqualFunc(x, y, func(x, y string) bool {
		const layout = "15:04:05.000"
		at, errX := time.Parse(layout, x)
		was, errY := time.Parse(layout, y)
		if errX != nil || errY != nil {
			return x == y
		}
		return at.Sub(was).Abs() < 100*time.Millisecond
	})
}

// use is what the process takes.
type use struct{ rssKiB, fds, threads, goroutines int }

func (u use) String() string {
	return fmt.Sprintf("RSS %d MiB, %d open files, %d threads, %d goroutines", u.rssKiB>>10, u.fds, u.threads, u.goroutines)
}

// use returns what culvert takes while the configuration is the first one. Files that are open for a moment, or until the next
// garbage collection, do not count: there must come a moment with no more of them than before (0: with few).
func (b *everything) use(before int) (u use) {
	b.Helper()
	for end, rounds := time.Now().Add(2*patience), 1; ; rounds++ {
		now := b.useNow()
		if u.fds == 0 || now.fds < u.fds {
			u = now
		}
		if before > 0 && u.fds <= before+3 {
			return now
		}
		if before == 0 && rounds == 4 {
			return u
		}
		if time.Now().After(end) {
			b.Errorf("the process has %d open files, and had %d", u.fds, before)
			return now
		}
		b.reload()
	}
}

func (b *everything) useNow() (u use) {
	b.Helper()
	p, err := b.lab.Process(lab.CulvertProcess("rut"))
	check(b.T, err)
	proc := fmt.Sprintf("/proc/%d/", p.PID)
	for line := range strings.Lines(b.read(proc + "status")) {
		f := strings.Fields(line)
		switch f[0] {
		case "VmRSS:":
			u.rssKiB, _ = strconv.Atoi(f[1])
		case "Threads:":
			u.threads, _ = strconv.Atoi(f[1])
		}
	}
	fds, err := os.ReadDir(proc + "fd")
	check(b.T, err)
	u.fds = len(fds)
	for line := range strings.Lines(b.metrics("rut", b.lab.All.Protected.String())) {
		if n, ok := strings.CutPrefix(line, "go_goroutines "); ok {
			u.goroutines, _ = strconv.Atoi(strings.TrimSpace(n))
		}
	}
	return u
}
