// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cilium/ebpf"
)

// mapInfo is a map of the kernel.
type mapInfo struct {
	name  string
	bytes uint64
}

// infoOf returns the name and the memory of a map.
func infoOf(m *ebpf.Map) (id ebpf.MapID, of mapInfo, ok bool) {
	info, err := m.Info()
	if err != nil {
		return 0, of, false
	}
	id, ok = info.ID()
	of.name = info.Name
	of.bytes, _ = info.Memlock()
	return id, of, ok
}

// openObjects finds the maps and programs that a process has open.
func openObjects(pid int, all map[ebpf.MapID]mapInfo, programs map[ebpf.ProgramID]bool) {
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
		if id := ebpf.MapID(values["map_id"]); id != 0 {
			all[id] = mapInfo{name: "?", bytes: values["memlock"]}
			if m, err := ebpf.NewMapFromID(id); err == nil {
				if _, of, ok := infoOf(m); ok {
					all[id] = of
				}
				m.Close()
			}
		}
		if id := values["prog_id"]; id != 0 {
			programs[ebpf.ProgramID(id)] = true
		}
	}
}

// pinnedObjects finds what is pinned below a directory, and returns how many pins there are.
func pinnedObjects(dir string, all map[ebpf.MapID]mapInfo, programs map[ebpf.ProgramID]bool) (pins float64) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		pins++
		if m, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true}); err == nil {
			defer m.Close()
			if id, of, ok := infoOf(m); ok {
				all[id] = of
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

// longRun is how long a run is that has to say of everything whether it grows.
const longRun = 30 * time.Minute

// fewest is how many samples can be compared.
const fewest = 8

// grown compares the first and the last quarter of the samples of each gauge with the usual configuration. Of the process it takes
// the one that there was last. short has the gauges of which there are too few samples.
func grown(samples []sample) (all []growth, short []string) {
	last := 0
	for _, x := range samples {
		if x.pid != 0 {
			last = x.pid
		}
	}
	for _, g := range gauges {
		of := compared(samples, g, last)
		if len(of) < fewest {
			short = append(short, g.name)
			continue
		}
		var values []float64
		for _, x := range of {
			values = append(values, x.values[g.name])
		}
		quarter := len(values) / 4
		all = append(all, growth{
			gauge: g, first: g.of(values[:quarter]), last: g.of(values[len(values)-quarter:]), largest: slices.Max(values), samples: len(values),
		})
	}
	return all, short
}

// compared returns the samples by which a gauge is judged.
func compared(samples []sample, g gauge, pid int) (of []sample) {
	for _, x := range samples {
		if _, ok := x.values[g.name]; ok && x.usual && (!g.process || x.pid == pid) {
			of = append(of, x)
		}
	}
	return of
}

func lowest(values []float64) float64 { return slices.Min(values) }

func median(values []float64) float64 {
	values = slices.Clone(values)
	slices.Sort(values)
	return values[len(values)/2]
}

// mapsGrown says which maps have more memory at the last sample than at the first one, the five that have grown most.
func mapsGrown(first, last sample) string {
	more := map[string]int{}
	for name := range last.maps {
		if n := int(last.maps[name]) - int(first.maps[name]); n > 0 {
			more[name] = n
		}
	}
	names := slices.SortedFunc(maps.Keys(more), func(a, b string) int { return cmp.Or(cmp.Compare(more[b], more[a]), cmp.Compare(a, b)) })
	var all []string
	for _, name := range names[:min(len(names), 5)] {
		all = append(all, fmt.Sprintf("%s by %d KiB", name, more[name]>>10))
	}
	return strings.Join(all, ", ")
}

// table writes samples as a table with tabs, to choose bounds by.
func table(samples []sample) string {
	var t strings.Builder
	t.WriteString("second\tpid\tusual")
	for _, g := range gauges {
		t.WriteString("\t" + g.name)
	}
	for _, x := range samples {
		fmt.Fprintf(&t, "\n%.0f\t%d\t%t", x.at.Seconds(), x.pid, x.usual)
		for _, g := range gauges {
			text := ""
			if v, ok := x.values[g.name]; ok {
				text = strconv.FormatFloat(v, 'f', -1, 64)
			}
			t.WriteString("\t" + text)
		}
	}
	return t.String() + "\n"
}

// memory writes what has grown, and returns what has grown too much.
func (s *soak) memory(w io.Writer) (troubles []string) {
	all, short := grown(s.samples)
	if len(all) > 0 {
		fmt.Fprintf(w, "\nfirst quarter, last quarter, at most so, largest, samples (one each %s, with the usual configuration alone; of the process from %s on, when it stayed; memory: medians, else the lowest; the heap after a garbage collection)\n",
			s.sampleEvery(), s.stays())
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	for _, g := range all {
		fmt.Fprintf(t, "%.0f\t%.0f\t%.0f\t%.0f\t%d\t  %s %s\n", g.first, g.last, g.limit(), g.largest, g.samples, g.name, g.unit)
		if g.last <= g.limit() {
			continue
		}
		text := fmt.Sprintf("%s has grown from %.0f to %.0f %s, at most %.0f is right", g.name, g.first, g.last, g.unit, g.limit())
		if g.name == mapMemory {
			of := compared(s.samples, g.gauge, 0)
			text += ": " + mapsGrown(of[0], of[len(of)-1])
		}
		troubles = append(troubles, text)
	}
	t.Flush()
	if len(short) > 0 {
		text := "too few samples to say whether it grows: " + strings.Join(short, ", ")
		fmt.Fprintln(w, text)
		if s.duration >= longRun {
			troubles = append(troubles, text)
		}
	}
	return troubles
}
