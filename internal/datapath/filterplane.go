// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/host/pins"
)

/*
Pins of the filter, below the instance's directory:

	filter/maps/<map>     counters, sets, limits: they stay whatever program runs
	filter/<number>/prog  the program in front of rx, if the filter does anything,
	filter/<number>/rest  its way to rx,
	filter/<number>/top   who sends most, if that is asked for, and
	filter/<number>/state what it was loaded for

As with generations, the links say which one is in force; without a program in front of rx it is the newest that has
none. A change is made by whoever holds the lock on the directory.
*/
const (
	filterDir      = "filter"
	filterMapsDir  = "maps"
	filterProgPin  = "prog"
	filterRestPin  = "rest"
	filterTopPin   = "top"
	filterStatePin = "state"
)

// filterPlane is the filter of an instance.
type filterPlane struct {
	dir    string // of its pins, "" without
	number int    // of the state's pins.Pin, 0 for none
	state  *filterState
	maps   map[string]*ebpf.Map
	fresh  []string       // maps that are not pinned yet
	prog   *filterProgram // nil if rx is attached itself
}

func (p *filterPlane) close() {
	if p == nil {
		return
	}
	closeMaps(p.maps)
	p.prog.close()
}

// openFilter opens the filter that is in force in an instance's directory while its links run a program, or with 0,
// while no interface is there, the newest; one without parts if there is none. A filter that runs and cannot be opened is an error: nobody may take it for none.
func openFilter(dir string, running ebpf.ProgramID) (_ *filterPlane, err error) {
	p := &filterPlane{dir: filepath.Join(dir, filterDir), state: &filterState{}, maps: make(map[string]*ebpf.Map)}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	for _, n := range generations(p.dir) {
		if p.prog != nil || running == 0 && p.number != 0 {
			break
		}
		if err := p.openState(n, running); err != nil {
			return nil, err
		}
	}
	if p.prog == nil && running != 0 && !isGenerations(dir, running) {
		return nil, fmt.Errorf("the filter that runs (program %d) is not among the pins of %s: 'culvert detach --all' removes it", running, p.dir)
	}
	if p.number == 0 { // maps without a state are what a change has left that failed
		return p, nil
	}
	entries, err := os.ReadDir(filepath.Join(p.dir, filterMapsDir))
	if err != nil {
		return nil, fmt.Errorf("opening the filter: %w", err)
	}
	for _, e := range entries {
		m, err := ebpf.LoadPinnedMap(filepath.Join(p.dir, filterMapsDir, e.Name()), nil)
		if err != nil {
			return nil, fmt.Errorf("opening map %s of the filter: %w", e.Name(), err)
		}
		p.maps[e.Name()] = m
	}
	return p, nil
}

// openState opens what is pinned under a number if it is in force, or may be because it has no program.
func (p *filterPlane) openState(n int, running ebpf.ProgramID) error {
	at := filepath.Join(p.dir, strconv.Itoa(n))
	state, err := filterStateFromPin(filepath.Join(at, filterStatePin))
	if errors.Is(err, os.ErrNotExist) {
		return nil // left half-made
	}
	if err != nil {
		return fmt.Errorf("opening the filter: %w", err)
	}
	prog, err := ebpf.LoadPinnedProgram(filepath.Join(at, filterProgPin), nil)
	if errors.Is(err, os.ErrNotExist) {
		if p.number == 0 {
			p.number, p.state = n, state
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening the filter: %w", err)
	}
	if running != 0 && pins.ProgramID(prog) != running {
		prog.Close()
		return nil
	}
	p.number, p.state, p.prog = n, state, &filterProgram{prog: prog}
	if p.prog.rest, err = ebpf.LoadPinnedMap(filepath.Join(at, filterRestPin), nil); err != nil {
		return fmt.Errorf("opening the filter: %w", err)
	}
	if state.Filter.Top != FilterTopOff {
		if p.prog.top, err = ebpf.LoadPinnedMap(filepath.Join(at, filterTopPin), nil); err != nil {
			return fmt.Errorf("opening the filter: %w", err)
		}
	}
	return nil
}

// isGenerations tells whether a program is the rx of one of the generations in dir.
func isGenerations(dir string, id ebpf.ProgramID) bool {
	return slices.ContainsFunc(generations(dir), func(n int) bool {
		prog, err := ebpf.LoadPinnedProgram(filepath.Join(dir, strconv.Itoa(n), bpfobj.PipelineProgRx), nil)
		if err != nil {
			return false
		}
		defer prog.Close()
		return pins.ProgramID(prog) == id
	})
}

// filterGeneration is the generation of the pipeline behind a filter that runs, 0 if it is no filter.
func filterGeneration(dir string, running ebpf.ProgramID) int {
	if running == 0 {
		return 0
	}
	p, err := openFilter(dir, running)
	if err != nil || p.prog == nil {
		return 0
	}
	defer p.close()
	return p.state.Generation
}

// pin makes a plane last under the next number.
func (p *filterPlane) pin() (err error) {
	if p.dir == "" {
		return nil
	}
	mapsDir := filepath.Join(p.dir, filterMapsDir)
	if err := os.Mkdir(mapsDir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("making %s: %w", mapsDir, err)
	}
	defer func() {
		if err != nil {
			p.forgetFresh()
		}
	}()
	for _, name := range p.fresh {
		path := filepath.Join(mapsDir, name)
		_ = os.Remove(path) // of a change that failed
		if err := pinClone(p.maps[name], path); err != nil {
			return err
		}
	}
	p.number = 1
	if all := generations(p.dir); len(all) > 0 {
		p.number = all[0] + 1
	}
	at := p.at()
	if err := os.Mkdir(at, 0o700); err != nil {
		return fmt.Errorf("making %s: %w", at, err)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(at)
		}
	}()
	if p.prog != nil {
		prog, err := p.prog.prog.Clone() // which does not know the pin that it may have had
		if err == nil {
			err = prog.Pin(filepath.Join(at, filterProgPin))
			prog.Close()
		}
		if err != nil {
			return fmt.Errorf("pinning the filter: %w", err)
		}
		if err := pinClone(p.prog.rest, filepath.Join(at, filterRestPin)); err != nil {
			return err
		}
		if p.prog.top != nil {
			if err := pinClone(p.prog.top, filepath.Join(at, filterTopPin)); err != nil {
				return err
			}
		}
	}
	sm, err := p.state.toMap()
	if err != nil {
		return err
	}
	defer sm.Close()
	if err := sm.Pin(filepath.Join(at, filterStatePin)); err != nil {
		return fmt.Errorf("pinning the description of the filter: %w", err)
	}
	return nil
}

// pinClone pins a map that may be pinned elsewhere.
func pinClone(m *ebpf.Map, path string) error {
	c, err := m.Clone()
	if err == nil {
		err = c.Pin(path)
		c.Close()
	}
	if err != nil {
		return fmt.Errorf("pinning map %s: %w", filepath.Base(path), err)
	}
	return nil
}

func (p *filterPlane) at() string { return filepath.Join(p.dir, strconv.Itoa(p.number)) }

// forget removes the pins of p that no other plane has, forgetOthers those of all but p.
func (p *filterPlane) forget() {
	if p.dir != "" && p.number != 0 {
		os.RemoveAll(p.at())
		p.forgetFresh()
	}
}

func (p *filterPlane) forgetFresh() {
	for _, name := range p.fresh {
		_ = os.Remove(filepath.Join(p.dir, filterMapsDir, name))
	}
}

func (p *filterPlane) forgetOthers() {
	if p.dir == "" {
		return
	}
	removeOtherGenerations(p.dir, p.at())
	if p.number == 0 { // a filter that does nothing leaves nothing
		os.RemoveAll(filepath.Join(p.dir, filterMapsDir))
	}
}

// next is the plane for another state, or for another generation of the pipeline, of which rx and maps are. It is
// complete but neither pinned nor in force.
func (p *filterPlane) next(state *filterState, members map[string]FilterMembers, inst *Instance,
	ifindex func(string) (int, bool)) (_ *filterPlane, err error) {
	q := &filterPlane{dir: p.dir, state: state}
	if state.Filter.empty() {
		return q, nil
	}
	defer func() {
		if err != nil {
			q.close()
		}
	}()
	if q.maps, q.fresh, err = newFilterMaps(p.maps); err != nil {
		return nil, err
	}
	if err := q.fill(p.state, members); err != nil {
		return nil, err
	}
	on := filterOn{steps: state.steps(ifindex), services: state.Filter.Services, top: state.Filter.Top}
	if p.prog != nil {
		on.talkers = p.prog.top
	}
	if !on.any() {
		return q, nil
	}
	if err := inst.sameReasons(); err != nil { // the filter counts in its maps
		return nil, err
	}
	q.prog, err = loadFilterProgram(&on, q.maps, inst.maps, inst.prog)
	return q, err
}

// fill writes what is new in a state: no program looks at it yet.
func (p *filterPlane) fill(old *filterState, members map[string]FilterMembers) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("counting the CPUs: %w", err)
	}
	for name, n := range p.state.Rules {
		if was, ok := old.Rules[name]; ok && was == n {
			continue
		}
		place := filterPlaceRules + 2*n
		for _, at := range []int{place, place + 1} {
			if err := p.maps[bpfobj.FilterMapFilterCounts].Put(uint32(at), make([]bpfobj.PipelineCounter, cpus)); err != nil {
				return fmt.Errorf("clearing the counters of rule %s: %w", name, err)
			}
		}
	}
	for name, l := range p.state.Limits {
		if was, ok := old.Limits[name]; ok && was.Number == l.Number {
			continue
		}
		if err := putFilterLimit(p.maps[bpfobj.FilterMapFilterLimits], p.maps[bpfobj.FilterMapFilterLimitTables], uint32(l.Number), l.Rate); err != nil {
			return fmt.Errorf("limit of rule %s: %w", name, err)
		}
	}
	for name, n := range p.state.Sets {
		if was, ok := old.Sets[name]; ok && was == n {
			continue
		}
		// Somebody who died over another change may have left members there.
		if err := dropFilterSet(p.maps, uint32(n)); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
		if m, ok := members[name]; ok {
			if err := putFilterMembers(p.maps, uint32(n), m); err != nil {
				return fmt.Errorf("set %s: %w", name, err)
			}
		}
	}
	return fillFilterTop(p.maps[bpfobj.FilterMapFilterTopSecret])
}

// settle frees what only the state before used, once no program does. What fails here is freed when its number is used
// again.
func (p *filterPlane) settle(old *filterState) {
	if p.maps == nil {
		return
	}
	for name, l := range old.Limits {
		if now, ok := p.state.Limits[name]; !ok || now.Number != l.Number {
			_ = dropFilterLimit(p.maps[bpfobj.FilterMapFilterLimits], p.maps[bpfobj.FilterMapFilterLimitTables], uint32(l.Number))
		}
	}
	for name, n := range old.Sets {
		if now, ok := p.state.Sets[name]; !ok || now != n {
			_ = dropFilterSet(p.maps, uint32(n))
		}
	}
}

// UntilUnused waits until no CPU runs a program any more that was taken off before: what it leads to may go then.
func UntilUnused() {
	// MEMBARRIER_CMD_GLOBAL of linux/membarrier.h waits for a grace period of RCU, under which XDP programs run.
	const global = 1
	if _, _, err := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); err != 0 {
		time.Sleep(50 * time.Millisecond) // where the kernel has none
	}
}

// layoutsFit tells whether the maps of a filter, perhaps another version's, are what these programs take.
func (p *filterPlane) layoutsFit() (map[string]string, bool, error) {
	spec, err := bpfobj.LoadFilter()
	if err != nil {
		return nil, false, err
	}
	layouts := MapLayouts(spec)
	maps.DeleteFunc(layouts, func(name, _ string) bool { return filterForeign(name) })
	if p.state.Filter.empty() { // nothing to keep
		closeMaps(p.maps)
		p.maps = nil
	}
	for name, m := range p.maps {
		ms := spec.Maps[name]
		if ms == nil || p.state.Layouts[name] != layouts[name] || ms.Compatible(m) != nil {
			return layouts, false, nil
		}
	}
	return layouts, true, nil
}
