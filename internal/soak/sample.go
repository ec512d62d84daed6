// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io/fs"
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
	at     time.Duration // since the beginning
	values map[string]float64
}

// gauge is something that must not grow without end.
type gauge struct {
	name, unit string
	// share and more are how much larger the last quarter may be than the first: a share of it, and so much more.
	share, more float64
	// of is what a quarter's samples are taken for: median, or lowest where things stay until garbage is collected.
	of func([]float64) float64
}

// gauges are what samples have. The bounds leave room for what differs from one configuration to the next: sFlow, workers, the
// mirror's size, rules.
var gauges = []gauge{
	{"memory of the process", "MiB", 0.25, 24, median},
	{"goroutines", "", 0.1, 20, lowest},
	{"threads", "", 0.2, 8, lowest},
	{"open files", "", 0.1, 20, lowest},
	{"memory of pinned and open maps", "MiB", 0.1, 16, median},
	{"pinned and open maps", "", 0.1, 20, lowest},
	{"pinned and open programs", "", 0.1, 20, lowest},
	{"pins", "", 0.1, 20, lowest},
}

const (
	sampleEvery = 10 * time.Second
	sayEvery    = time.Minute
)

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
	x := sample{at: time.Since(s.began), values: map[string]float64{}}
	maps, programs := map[ebpf.MapID]uint64{}, map[ebpf.ProgramID]bool{}
	if p, err := s.lab.Process(lab.CulvertProcess("rut")); err == nil && p.Alive() {
		if s.sampleProcess(p.PID, x.values) == nil {
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
	for _, bytes := range maps {
		total += bytes
	}
	x.values["memory of pinned and open maps"] = float64(total) / (1 << 20)
	x.values["pinned and open maps"], x.values["pinned and open programs"] = float64(len(maps)), float64(len(programs))
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
	goroutines, err := s.metric("go_goroutines")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		switch f := strings.Fields(line); f[0] {
		case "VmRSS:":
			kib, _ := strconv.ParseFloat(f[1], 64)
			values["memory of the process"] = kib / 1024
		case "Threads:":
			values["threads"], _ = strconv.ParseFloat(f[1], 64)
		}
	}
	values["open files"], values["goroutines"] = float64(len(fds)), goroutines
	return nil
}

// metric reads a metric of culvert in rut.
func (s *soak) metric(name string) (value float64, err error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
			err = s.lab.Do("rut", func() (err error) { // the socket is made by this thread
				conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
				return err
			})
			return conn, err
		},
	}}
	resp, err := client.Get("http://" + s.lab.All.Protected.String() + "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(text, 64)
		}
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}

// openObjects finds the maps and programs that a process has open, with the memory of the maps.
func openObjects(pid int, maps map[ebpf.MapID]uint64, programs map[ebpf.ProgramID]bool) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		values := map[string]uint64{}
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok {
				values[key], _ = strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			}
		}
		if id := values["map_id"]; id != 0 {
			maps[ebpf.MapID(id)] = values["memlock"]
		}
		if id := values["prog_id"]; id != 0 {
			programs[ebpf.ProgramID(id)] = true
		}
	}
}

// pinnedObjects finds what is pinned below a directory, and returns how many pins there are.
func pinnedObjects(dir string, maps map[ebpf.MapID]uint64, programs map[ebpf.ProgramID]bool) (pins float64) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		pins++
		if m, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true}); err == nil {
			defer m.Close()
			if info, err := m.Info(); err == nil {
				if id, ok := info.ID(); ok {
					maps[id], _ = info.Memlock()
				}
			}
			return nil
		}
		if p, err := ebpf.LoadPinnedProgram(path, nil); err == nil {
			defer p.Close()
			if info, err := p.Info(); err == nil {
				if id, ok := info.ID(); ok {
					programs[id] = true
				}
			}
		}
		return nil
	})
	return pins
}

// growth is a gauge at the beginning and at the end.
type growth struct {
	gauge
	first, last, largest float64
	samples              int
}

// limit is how large the last quarter may be.
func (g growth) limit() float64 { return g.first*(1+g.share) + g.more }

// grown compares the first and the last quarter of all samples, which have to be eight at least.
func grown(samples []sample) (all []growth) {
	for _, g := range gauges {
		var values []float64
		for _, x := range samples {
			if v, ok := x.values[g.name]; ok {
				values = append(values, v)
			}
		}
		if len(values) < 8 {
			continue
		}
		quarter := len(values) / 4
		all = append(all, growth{
			gauge: g, first: g.of(values[:quarter]), last: g.of(values[len(values)-quarter:]), largest: slices.Max(values), samples: len(values),
		})
	}
	return all
}

func lowest(values []float64) float64 { return slices.Min(values) }

func median(values []float64) float64 {
	values = slices.Clone(values)
	slices.Sort(values)
	return values[len(values)/2]
}
