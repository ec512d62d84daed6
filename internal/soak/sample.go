// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"culvert/internal/datapath"
	"culvert/internal/lab"
)

// background is the context of what must not be interrupted.
var background = context.Background()

func sorted[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// sample is what culvert takes at a moment. Values of the process are left out while there is none.
type sample struct {
	at time.Duration // since the beginning
	// pid is the process, 0 while there is none.
	pid int
	// usual says that the usual configuration was in force all the time, so that what it takes can be compared.
	usual  bool
	values map[string]float64
	// maps has the memory of maps in bytes, by name, of all of a name together.
	maps map[string]uint64
}

// gauge is something that must not grow without end.
type gauge struct {
	name, unit string
	// share and more are how much larger the last quarter may be than the first: a share of it, and so much more.
	share, more float64
	// of is what a quarter's samples are taken for: median, or lowest where things stay until garbage is collected.
	of func([]float64) float64
	// process says that it is of the process, and begins anew with each.
	process bool
}

const (
	processMemory = "memory of the process"
	liveHeap      = "heap of the process"
	heapObjects   = "objects in the heap"
	mapMemory     = "memory of pinned and open maps"
)

// pools is how many MiB of packet buffers the heap may have now and not before. Each data plane of the slow path has 22 MiB of them. A process
// begins with one, and up to five have been seen in use after reloads. They are few objects, so that leaks are seen by the objects: by
// what is left after a garbage collection, of which each sample has one. In an hour there are some 150 reloads and some 50,000 connections
// from the first quarter to the last one: less than one object kept by each connection is too many.
const pools = 4 * 22

// gauges are what samples have. Only samples with the usual configuration are compared, those of the process only while one process
// stays (endShare). The bounds leave room for what rules, sets and routes take at the moment.
var gauges = []gauge{
	{processMemory, "MiB", 0.25, 2 * pools, median, true},
	{liveHeap, "MiB", 0.05, pools, lowest, true},
	{heapObjects, "", 0.02, 10000, lowest, true},
	{"goroutines", "", 0.1, 20, lowest, true},
	{"threads", "", 0.2, 8, lowest, true},
	{"open files", "", 0.1, 20, lowest, true},
	{mapMemory, "MiB", 0.05, 2, median, false},
	{"pinned and open maps", "", 0.1, 10, lowest, false},
	{"pinned and open programs", "", 0.1, 10, lowest, false},
	{"pins", "", 0.1, 10, lowest, false},
}

const sayEvery = time.Minute

// sampleEvery is the time from one sample to the next. A short run has enough of them, too.
func (s *soak) sampleEvery() time.Duration { return min(10*time.Second, s.duration/120) }

// each calls do at each multiple of a period since the beginning, until ctx ends. Those that come while do works are left out.
func (s *soak) each(ctx context.Context, period time.Duration, do func()) {
	for {
		n := time.Since(s.began)/period + 1
		if !sleep(ctx, time.Until(s.began.Add(n*period))) {
			return
		}
		do()
	}
}

// watch takes a sample, and wants no counter to go back.
func (s *soak) watch() {
	s.sample()
	s.forward()
}

// progress says how far it is.
func (s *soak) progress() {
	var sent, arrived uint64
	for _, f := range s.flows {
		sent += f.sent.Load()
	}
	for _, sink := range s.sinks {
		if seen, err := sink.Seen(); err == nil {
			arrived += seen.Packets
		}
	}
	times := uint64(0)
	for _, a := range s.agitators {
		times += a.times.Load()
	}
	s.mu.Lock()
	troubles, memory := len(s.troubles), 0.0
	if len(s.samples) > 0 {
		memory = s.samples[len(s.samples)-1].values[gauges[0].name]
	}
	s.mu.Unlock()
	left := max(0, s.duration-time.Since(s.began)).Round(time.Second)
	s.say("%s  %s left  %d packets sent, %d counted at sinks, %d connections; %d disturbances, %d reloads; %.0f MiB; %d troubles",
		time.Now().UTC().Format(clock), left, sent, arrived, s.web.begun.Load(), times, s.reloads.Load(), memory, troubles)
}

// forward wants no counter to go back.
func (s *soak) forward() {
	now, err := s.ports()
	if err != nil {
		s.trouble("read the counters: %v", err)
		return
	}
	for port, c := range s.last.ports {
		for _, reason := range sorted(c) {
			if got := now[port][reason]; got < c[reason] {
				s.trouble("%s of %s went back from %d to %d", reason, port, c[reason], got)
			}
		}
	}
	s.last.ports = now
}

// sample takes a sample.
func (s *soak) sample() {
	x := sample{at: time.Since(s.began), values: map[string]float64{}, maps: map[string]uint64{}}
	changes, usual := s.inForce()
	maps, programs := map[ebpf.MapID]mapInfo{}, map[ebpf.ProgramID]bool{}
	if p, err := s.lab.Process(lab.CulvertProcess("rut")); err == nil && p.Alive() {
		if s.sampleProcess(p.PID, x.values) == nil {
			x.pid = p.PID
			openObjects(p.PID, maps, programs)
		}
	}
	err := s.plane(func(i *datapath.Instance) error {
		x.values["pins"] = pinnedObjects(filepath.Dir(i.Pins()), maps, programs)
		return nil
	})
	if err != nil {
		s.trouble("look at the pins: %v", err)
		return
	}
	total := uint64(0)
	for _, m := range maps {
		total += m.bytes
		x.maps[m.name] += m.bytes
	}
	x.values[mapMemory] = float64(total) / (1 << 20)
	x.values["pinned and open maps"], x.values["pinned and open programs"] = float64(len(maps)), float64(len(programs))
	after, _ := s.inForce()
	x.usual = usual && x.pid != 0 && changes == after
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples = append(s.samples, x)
}

// sampleProcess reads what the process takes. The process may end meanwhile.
func (s *soak) sampleProcess(pid int, values map[string]float64) error {
	proc := fmt.Sprintf("/proc/%d/", pid)
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		return err
	}
	fds, err := os.ReadDir(proc + "fd")
	if err != nil {
		return err
	}
	metrics, err := s.metrics("go_goroutines")
	if err != nil {
		return err
	}
	heap, objects, err := s.liveHeap()
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		switch f := strings.Fields(line); f[0] {
		case "RssAnon:": // the program's file is no memory of it, nor are maps, which are counted by themselves
			kib, _ := strconv.ParseFloat(f[1], 64)
			values[processMemory] = kib / 1024
		case "Threads:":
			values["threads"], _ = strconv.ParseFloat(f[1], 64)
		}
	}
	values["open files"], values["goroutines"], values[liveHeap], values[heapObjects] = float64(len(fds)), metrics[0], heap/(1<<20), objects
	return nil
}

// liveHeap collects the garbage of culvert in rut, and returns the bytes and the objects that are left.
func (s *soak) liveHeap() (bytes, objects float64, err error) {
	text, err := s.get(s.middle.RouterAPI.String(), "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, 0, err
	}
	return heapIn(string(text))
}

// heapIn finds the figures of a heap profile in text.
func heapIn(text string) (bytes, objects float64, err error) {
	for name, to := range map[string]*float64{"HeapAlloc": &bytes, "HeapObjects": &objects} {
		_, rest, ok := strings.Cut(text, "\n# "+name+" = ")
		line, _, _ := strings.Cut(rest, "\n")
		if *to, err = strconv.ParseFloat(line, 64); !ok || err != nil {
			return 0, 0, fmt.Errorf("there is no %s in the profile of the heap", name)
		}
	}
	return bytes, objects, nil
}

// get gets a page of culvert in rut.
func (s *soak) get(host, path string) ([]byte, error) {
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
			err = s.lab.Do("rut", func() (err error) { // the socket is made by this thread
				conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
				return err
			})
			return conn, err
		},
	}}
	resp, err := client.Get("http://" + host + path)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", path, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// metrics reads metrics of culvert in rut.
func (s *soak) metrics(names ...string) (values []float64, err error) {
	text, err := s.get(s.lab.All.Protected.String(), "/metrics")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		_, rest, ok := strings.Cut(string(text), "\n"+name+" ")
		line, _, _ := strings.Cut(rest, "\n")
		v, err := strconv.ParseFloat(line, 64)
		if !ok || err != nil {
			return nil, fmt.Errorf("there is no metric %s", name)
		}
		values = append(values, v)
	}
	return values, nil
}

// profile keeps what the heap of the process has, to be compared: 'go tool pprof -base heap-first.pb.gz heap-last.pb.gz'.
func (s *soak) profile(when string) {
	if s.dir == "" {
		return
	}
	text, err := s.get(s.middle.RouterAPI.String(), "/debug/pprof/heap?gc=1")
	if err == nil {
		err = os.WriteFile(filepath.Join(s.dir, "heap-"+when+".pb.gz"), text, 0o644)
	}
	if err != nil {
		s.trouble("profile of the heap: %v", err)
	}
}
