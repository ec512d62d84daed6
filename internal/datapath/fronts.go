// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"culvert/internal/bpfobj"
	"culvert/internal/host/pins"
)

// fronts are all that is in front of a pipeline, in the order in which packets meet it.
type fronts []*Front

func (all fronts) close() {
	for _, f := range all {
		f.Close()
	}
}

// of is that of a part, nil for none.
func (all fronts) of(name string) *Front {
	if n := slices.IndexFunc(all, func(f *Front) bool { return f.name == name }); n >= 0 {
		return all[n]
	}
	return nil
}

// entry is the program that packets meet first.
func (all fronts) entry(rx *ebpf.Program) *ebpf.Program {
	for _, f := range slices.Backward(all) {
		rx = f.entry(rx)
	}
	return rx
}

// programs tells whether packets meet anything.
func (all fronts) programs() bool {
	return slices.ContainsFunc(all, func(f *Front) bool { return f.Prog != nil })
}

// frontNames lists the parts that have something pinned in front of an instance's pipeline, those that order has in its
// order and others before.
func frontNames(dir string, order []string) []string {
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil && e.IsDir() && e.Name() != editsDir {
			names = append(names, e.Name())
		}
	}
	slices.SortFunc(names, inOrder(order))
	return names
}

// inOrder compares names of parts.
func inOrder(order []string) func(a, b string) int {
	return func(a, b string) int {
		return cmp.Or(slices.Index(order, a)-slices.Index(order, b), strings.Compare(a, b))
	}
}

// next is the program that one of those in front goes on to, 0 if it is none of them.
func next(dir string, id ebpf.ProgramID) (to ebpf.ProgramID) {
	for _, name := range frontNames(dir, nil) {
		for _, n := range generations(filepath.Join(dir, name)) {
			at := filepath.Join(dir, name, strconv.Itoa(n))
			prog, err := ebpf.LoadPinnedProgram(filepath.Join(at, frontProgPin), nil)
			if err != nil {
				continue
			}
			found := pins.ProgramID(prog) == id
			prog.Close()
			if !found {
				continue
			}
			if rest, err := ebpf.LoadPinnedMap(filepath.Join(at, frontRestPin), nil); err == nil {
				to = leadsTo(rest)
				rest.Close()
			}
			return to
		}
	}
	return 0
}

// leadsTo is the program in a table of one, 0 for none.
func leadsTo(rest *ebpf.Map) ebpf.ProgramID {
	var id uint32
	if rest.Lookup(uint32(0), &id) != nil {
		return 0
	}
	return ebpf.ProgramID(id)
}

// maxFronts bounds the way of a packet: the kernel ends one after 33 tail calls.
const maxFronts = 33

// wayFrom lists the programs that packets meet which a program gets first, itself first and rx last.
func wayFrom(dir string, id ebpf.ProgramID) (way []ebpf.ProgramID) {
	for ; id != 0 && len(way) <= maxFronts; id = next(dir, id) {
		way = append(way, id)
	}
	return way
}

// behind is the last program on the way of packets that a program gets first: rx, 0 for no program.
func behind(dir string, id ebpf.ProgramID) ebpf.ProgramID {
	if way := wayFrom(dir, id); len(way) > 0 {
		return way[len(way)-1]
	}
	return 0
}

// openFronts opens what is in force in an instance's directory while its links run a program, or with 0, while no
// interface is there, the newest. What runs and cannot be opened is an error: nobody may take it for nothing.
func openFronts(dir string, order []string, running ebpf.ProgramID) (all fronts, err error) {
	defer func() {
		if err != nil {
			all.close()
		}
	}()
	way := wayFrom(dir, running)
	met := 0
	for _, name := range frontNames(dir, order) {
		f := &Front{name: name, dir: filepath.Join(dir, name)}
		all = append(all, f)
		for _, n := range generations(f.dir) {
			if f.Prog != nil || running == 0 && f.number != 0 {
				break
			}
			if err := f.openOneOf(n, way); err != nil {
				return all, err
			}
		}
		if err := f.openMaps(); err != nil {
			return all, err
		}
		if f.Prog == nil {
			continue
		}
		if met++; running == 0 && met == 1 {
			way = wayFrom(dir, pins.ProgramID(f.Prog)) // what stands behind it is what it leads to
		}
	}
	if running != 0 && (met != len(way)-1 || !isGenerations(dir, way[len(way)-1])) {
		return all, fmt.Errorf("what runs (program %d) is not among the pins of %s: 'culvert detach --all' removes it", running, dir)
	}
	return all, nil
}

// openOneOf is openNumber for one of some programs, or any if there are none.
func (f *Front) openOneOf(n int, ids []ebpf.ProgramID) error {
	if len(ids) == 0 {
		return f.openNumber(n, 0)
	}
	for _, id := range ids {
		if err := f.openNumber(n, id); err != nil || f.Prog != nil {
			return err
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

// How often a reader looks again when somebody else was making a change meanwhile.
const (
	frontReadTries = 50
	frontReadPause = 10 * time.Millisecond
)

// readFronts opens what is in force for reading.
func (i *Instance) readFronts() (all fronts, done func(), err error) {
	if i.temporary {
		return i.fronts, func() {}, nil
	}
	for range frontReadTries {
		running := pins.Running(i.dir)
		way := wayFrom(i.dir, running)
		all, err = openFronts(i.dir, i.meta.Fronts, running)
		if slices.Equal(wayFrom(i.dir, pins.Running(i.dir)), way) && (err == nil || !errors.Is(err, os.ErrNotExist)) {
			break
		}
		if err == nil {
			all.close()
			all, err = nil, fmt.Errorf("what is in front of %s changes all the time: try again", i.Name())
		}
		time.Sleep(frontReadPause)
	}
	if err != nil {
		return nil, nil, err
	}
	return all, all.close, nil
}

// Front opens what a part has in front of the data plane, to be read until done is called: the zero value if that is
// nothing.
func (i *Instance) Front(part string) (f *Front, done func(), err error) {
	all, done, err := i.readFronts()
	if err != nil {
		return nil, nil, err
	}
	if f = all.of(part); f == nil {
		f = &Front{}
	}
	return f, done, nil
}

// EditFront changes what a part has in front of the data plane: all of it, or nothing if there is an error. Each packet
// meets it as it was or as it is to be. It needs no process that serves the instance, and waits for other changes to end.
// Change gets what is in force, and returns what is to be, old itself if that is the same; of old it takes clones. Settle,
// which may be nil, is called when no packet meets old any more.
func (i *Instance) EditFront(part string, change func(old *Front, on Behind) (next *Front, settle func(), err error)) error {
	return i.Edit(func(now *Instance) error { return now.changeFront(part, nil, change) })
}

// changeFront is EditFront for whoever holds the lock. Index is that of Behind, nil for portIndex.
func (i *Instance) changeFront(part string, index func(string) (int, bool), change func(*Front, Behind) (*Front, func(), error)) error {
	all, done, err := i.openFronts()
	if err != nil {
		return err
	}
	defer done()
	old := all.of(part)
	if old == nil {
		old = &Front{name: part}
		if !i.temporary {
			old.dir = filepath.Join(i.dir, part)
		}
		all = append(all, old)
		compare := inOrder(i.meta.Fronts)
		slices.SortFunc(all, func(a, b *Front) int { return compare(a.name, b.name) })
	}
	at := slices.Index(all, old)
	if index == nil {
		index = i.portIndex
	}
	next, settle, err := change(old, Behind{Inst: i, Index: index})
	if err != nil || next == old {
		return err
	}
	rest := all[at+1:].entry(i.prog)
	if err := next.place(old, rest); err != nil {
		next.forget()
		next.Close()
		return err
	}
	if err := i.swapFront(all[:at], next.entry(rest), old.entry(rest)); err != nil {
		next.forget()
		next.Close()
		return err
	}
	UntilUnused()
	next.forgetOthers()
	if settle != nil {
		settle()
	}
	if !i.temporary {
		next.Close()
		return nil
	}
	all[at] = next
	i.fronts = all
	old.Close()
	return nil
}

// openFronts is readFronts for whoever holds the lock for edits.
func (i *Instance) openFronts() (all fronts, done func(), err error) {
	if i.temporary {
		return slices.Clone(i.fronts), func() {}, nil
	}
	all, err = openFronts(i.dir, i.meta.Fronts, pins.Running(i.dir))
	return all, all.close, err
}

// swapFront puts a program in the place of another one behind what packets meet before, which is the interfaces if that is
// nothing.
func (i *Instance) swapFront(before fronts, to, from *ebpf.Program) error {
	for _, f := range slices.Backward(before) {
		if f.Prog != nil {
			return f.lead(to)
		}
	}
	if i.temporary {
		return i.updateHeld(to, from)
	}
	return i.updatePinned(to, from)
}

// portIndex gives the index of an interface that carries the instance, by the name it had when it was attached.
func (i *Instance) portIndex(name string) (int, bool) {
	if i.temporary {
		index, ok := i.heldPorts[name]
		return index, ok
	}
	path := pins.LinkPath(i.dir, name)
	live := i.livePins()
	for _, p := range live {
		if p.Path == path {
			return p.Index, true
		}
	}
	p, ok := live[name]
	return p.Index, ok
}

// updatePinned swaps the program on all interfaces, or on none.
func (i *Instance) updatePinned(to, from *ebpf.Program) (err error) {
	var done []link.Link
	defer func() {
		for _, l := range done {
			if err != nil {
				_ = l.Update(from)
			}
			l.Close()
		}
	}()
	for _, path := range pins.Links(i.dir) {
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return fmt.Errorf("opening %s: %w", path, err)
		}
		if pins.Ifindex(l) == 0 { // its interface is gone
			l.Close()
			continue
		}
		if err := l.Update(to); err != nil {
			l.Close()
			return fmt.Errorf("swapping the program on %s: %w", pins.LinkName(path), err)
		}
		done = append(done, l)
	}
	return nil
}

// updateHeld is the same for a temporary instance.
func (i *Instance) updateHeld(to, from *ebpf.Program) error {
	var done []link.Link
	for _, l := range i.held {
		if pins.Ifindex(l) == 0 { // a tracepoint's
			continue
		}
		if err := l.Update(to); err != nil {
			for _, d := range done {
				_ = d.Update(from)
			}
			return fmt.Errorf("swapping the program: %w", err)
		}
		done = append(done, l)
	}
	return nil
}
