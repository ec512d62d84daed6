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

// fronts holds what each part has in front of a pipeline, in the order in which packets meet the programs.
type fronts []*Front

func (all fronts) close() {
	for _, f := range all {
		f.Close()
	}
}

// of returns the Front of a part, nil if there is none.
func (all fronts) of(name string) *Front {
	if n := slices.IndexFunc(all, func(f *Front) bool { return f.name == name }); n >= 0 {
		return all[n]
	}
	return nil
}

// entry returns the program that packets meet first, rx if no part has a program.
func (all fronts) entry(rx *ebpf.Program) *ebpf.Program {
	for _, f := range slices.Backward(all) {
		rx = f.entry(rx)
	}
	return rx
}

// anyProgram tells whether packets meet a program before rx.
func (all fronts) anyProgram() bool {
	return slices.ContainsFunc(all, func(f *Front) bool { return f.Prog != nil })
}

// frontNames returns the names of the parts that have pins of their own in an instance's directory, sorted by inOrder.
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

// inOrder returns a comparison of names of parts. Names in order compare by their positions there; other names come first,
// by the alphabet.
func inOrder(order []string) func(a, b string) int {
	return func(a, b string) int {
		return cmp.Or(slices.Index(order, a)-slices.Index(order, b), strings.Compare(a, b))
	}
}

// nextInChain returns the program that id goes on to, 0 if id is no program in front of the instance in dir.
func nextInChain(dir string, id ebpf.ProgramID) (to ebpf.ProgramID) {
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
				to = tailCallTarget(rest)
				rest.Close()
			}
			return to
		}
	}
	return 0
}

// tailCallTarget returns the program in entry 0 of a program array, 0 if it is empty.
func tailCallTarget(rest *ebpf.Map) ebpf.ProgramID {
	var id uint32
	if rest.Lookup(uint32(0), &id) != nil {
		return 0
	}
	return ebpf.ProgramID(id)
}

// maxFronts bounds the length of a chain. The kernel allows 33 tail calls in a row.
const maxFronts = 33

// chainFrom returns the programs that a packet meets which enters at program id: id itself first, rx last. It is empty if
// id is 0.
func chainFrom(dir string, id ebpf.ProgramID) (chain []ebpf.ProgramID) {
	for ; id != 0 && len(chain) <= maxFronts; id = nextInChain(dir, id) {
		chain = append(chain, id)
	}
	return chain
}

// lastInChain returns the last program of the chain from id, which is rx. It returns 0 if id is 0.
func lastInChain(dir string, id ebpf.ProgramID) ebpf.ProgramID {
	if chain := chainFrom(dir, id); len(chain) > 0 {
		return chain[len(chain)-1]
	}
	return 0
}

// openFronts opens what is in force in an instance's directory, given the program that the links run. If running is 0, since
// the instance is on no interface, it opens the newest number of each part. It is an error if a program of the chain is not
// among the pins: to leave it out would let packets past it in silence.
func openFronts(dir string, order []string, running ebpf.ProgramID) (all fronts, err error) {
	defer func() {
		if err != nil {
			all.close()
		}
	}()
	chain := chainFrom(dir, running)
	opened := 0 // programs
	for _, name := range frontNames(dir, order) {
		f := &Front{name: name, dir: filepath.Join(dir, name)}
		all = append(all, f)
		for _, n := range generations(f.dir) {
			if f.Prog != nil || running == 0 && f.number != 0 {
				break
			}
			if err := f.openGenerationOf(n, chain); err != nil {
				return all, err
			}
		}
		if err := f.openMaps(); err != nil {
			return all, err
		}
		if f.Prog == nil {
			continue
		}
		if opened++; running == 0 && opened == 1 {
			chain = chainFrom(dir, pins.ProgramID(f.Prog)) // the first program says which ones are behind it
		}
	}
	if running != 0 && (opened != len(chain)-1 || !isPinnedRx(dir, chain[len(chain)-1])) {
		return all, fmt.Errorf("what runs (program %d) is not among the pins of %s: 'culvert detach --all' removes it", running, dir)
	}
	return all, nil
}

// openGenerationOf is openGeneration for a program that is one of ids, or for any program if ids is empty.
func (f *Front) openGenerationOf(n int, ids []ebpf.ProgramID) error {
	if len(ids) == 0 {
		return f.openGeneration(n, 0)
	}
	for _, id := range ids {
		if err := f.openGeneration(n, id); err != nil || f.Prog != nil {
			return err
		}
	}
	return nil
}

// isPinnedRx tells whether a program is rx of one of the generations in dir.
func isPinnedRx(dir string, id ebpf.ProgramID) bool {
	return slices.ContainsFunc(generations(dir), func(n int) bool {
		prog, err := ebpf.LoadPinnedProgram(filepath.Join(dir, strconv.Itoa(n), bpfobj.PipelineProgRx), nil)
		if err != nil {
			return false
		}
		defer prog.Close()
		return pins.ProgramID(prog) == id
	})
}

// A reader takes no lock. When a change was made while it read, it reads again: this often, with this pause.
const (
	frontReadTries = 50
	frontReadPause = 10 * time.Millisecond
)

// readFronts opens what is in force for reading, without the edit lock. The result is valid until done is called.
func (i *Instance) readFronts() (all fronts, done func(), err error) {
	if i.temporary {
		return i.fronts, func() {}, nil
	}
	for range frontReadTries {
		running := pins.Running(i.dir)
		chain := chainFrom(i.dir, running)
		all, err = openFronts(i.dir, i.meta.Fronts, running)
		if slices.Equal(chainFrom(i.dir, pins.Running(i.dir)), chain) && (err == nil || !errors.Is(err, os.ErrNotExist)) {
			break
		}
		if err == nil {
			all.close()
			all, err = nil, fmt.Errorf("the programs in front of %s keep changing: try again", i.Name())
		}
		time.Sleep(frontReadPause)
	}
	if err != nil {
		return nil, nil, err
	}
	return all, all.close, nil
}

// Front opens what a part has in front of the data plane, for reading until done is called. F is the zero Front if the part
// has nothing there.
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

// EditFront replaces what a part has in front of the data plane, as a whole or, on an error, not at all. Each packet meets
// the old program or the new one. EditFront works without a process that serves the instance. It waits for the edit lock.
//
// Change gets what is in force and returns what replaces it, which EditFront owns from then on. Old is closed afterwards:
// what goes on from it has to be cloned. Change returns old itself if nothing is to change. Settle may be nil. It is called
// before what replaces old is closed, when no CPU runs the program any more that is out: old's if the change is in force, the
// new one if it is given up. What only that program used may change then.
//
// In Options.Begin, a part can be changed once: what it had before must stay until the start cannot fail any more.
func (i *Instance) EditFront(part string, change func(old *Front, on Behind) (next *Front, settle func(inForce bool), err error)) error {
	return i.Edit(func(now *Instance) error { return now.changeFront(part, nil, change) })
}

// frontChange works out what replaces a Front, as EditFront wants it.
type frontChange func(old *Front, on Behind) (next *Front, settle func(inForce bool), err error)

// changeFront is EditFront for a caller that holds the edit lock. Index becomes Behind.Index; nil stands for portIndex.
func (i *Instance) changeFront(part string, index func(string) (int, bool), change frontChange) error {
	if b := i.beginning; b != nil && slices.ContainsFunc(b.begun, func(f begunFront) bool { return f.next.name == part }) {
		return fmt.Errorf("the %s was changed already while %s starts: change it once", part, i.Name())
	}
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
	next, settle, err := change(old, Behind{Inst: i, Index: index, fronts: all})
	if err != nil || next == old {
		return err
	}
	rest := all[at+1:].entry(i.prog)
	if settle == nil {
		settle = func(bool) {}
	}
	if err = next.place(old, rest); err == nil {
		err = i.swapFront(all[:at], next.entry(rest), old.entry(rest))
	}
	made := begunFront{next: next, settle: settle}
	if err != nil {
		made.giveUp()
		return err
	}
	if b := i.beginning; b != nil {
		if b.recommitting {
			if made.back, err = old.entry(rest).Clone(); err != nil {
				err = errors.Join(err, i.swapFront(all[:at], old.entry(rest), next.entry(rest)))
				made.giveUp()
				return err
			}
		}
		b.begun = append(b.begun, made)
		return nil
	}
	WaitForRCU()
	next.forgetOthers()
	settle(true)
	if !i.temporary {
		next.Close()
		return nil
	}
	all[at] = next
	i.fronts = all
	old.Close()
	return nil
}

// openFronts is readFronts for a caller that holds the edit lock.
func (i *Instance) openFronts() (all fronts, done func(), err error) {
	if i.temporary {
		return slices.Clone(i.fronts), func() {}, nil
	}
	all, err = openFronts(i.dir, i.meta.Fronts, pins.Running(i.dir))
	return all, all.close, err
}

// swapFront replaces program from by program to. It redirects the last program of before, or the interfaces if before has
// no program.
func (i *Instance) swapFront(before fronts, to, from *ebpf.Program) error {
	for _, f := range slices.Backward(before) {
		if f.Prog != nil {
			return f.setTailCall(to)
		}
	}
	if i.temporary {
		return i.updateHeld(to, from)
	}
	return i.updatePinned(to, from)
}

// portIndex returns the index of an interface that carries the instance. The name is the one that it was attached under.
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

// updatePinned replaces the program on all interfaces, or on none.
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
		if pins.Ifindex(l) == 0 { // the interface was deleted
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

// updateHeld is updatePinned for a temporary instance.
func (i *Instance) updateHeld(to, from *ebpf.Program) error {
	var done []link.Link
	for _, l := range i.held {
		if pins.Ifindex(l) == 0 { // the link of a tracepoint
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
