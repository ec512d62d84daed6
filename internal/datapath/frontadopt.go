// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/host/pins"
)

// Entry is the program for the interfaces: what packets meet first, or rx itself.
func (i *Instance) Entry() *ebpf.Program { return i.fronts.entry(i.prog) }

// adoptFronts puts what is in front of old, which is locked, in front of this generation. Before has the former names of
// interfaces that have got others.
func (i *Instance) adoptFronts(old *Instance, ports []*net.Interface, before map[string]string) (err error) {
	if old == nil { // what an instance has left that is gone
		for _, name := range frontNames(i.dir, nil) {
			os.RemoveAll(filepath.Join(i.dir, name))
		}
		return nil
	}
	if old.fronts, err = openFronts(i.dir, old.meta.Fronts, pins.Running(i.dir)); err != nil {
		return err
	}
	for _, f := range old.fronts {
		if f.State != nil && !slices.Contains(i.meta.Fronts, f.name) {
			return fmt.Errorf("a %s is in front of router %s, which this process does not know: attach with 'culvert attach' or 'culvert run'", f.name, i.Name())
		}
	}
	byName := indexes(ports)
	index := func(name string) (int, bool) { n, ok := byName[name]; return n, ok }
	for _, p := range slices.Backward(fronted(i.parts)) {
		was := old.fronts.of(p.Name())
		if was == nil {
			was = &Front{name: p.Name(), dir: filepath.Join(i.dir, p.Name())}
		}
		next, err := p.Follow(was, Behind{Inst: i, Index: index, Renamed: before})
		if err != nil {
			return fmt.Errorf("taking over the %s: %w", p.Name(), err)
		}
		rest := i.Entry()
		i.fronts = slices.Insert(i.fronts, 0, next)
		if err := next.place(was, rest); err != nil {
			return fmt.Errorf("taking over the %s: %w", p.Name(), err)
		}
	}
	return nil
}

// fronted are the parts that may have a program in front of the pipeline.
func fronted(parts []Part) (all []Fronted) {
	for _, p := range parts {
		if f, ok := p.(Fronted); ok {
			all = append(all, f)
		}
	}
	return all
}

// settleFronts lets go of what was in front of old, which nobody meets any more, and of what this generation has put in its
// place: others may change it from now on.
func (i *Instance) settleFronts() {
	if now, err := openFronts(i.dir, i.meta.Fronts, pins.Running(i.dir)); err == nil { // Begin may have put another in its place
		for _, f := range now {
			f.forgetOthers()
		}
		now.close()
	}
	i.fronts.close()
	i.fronts = nil
}

// forgetFronts undoes adoptFronts.
func (i *Instance) forgetFronts() {
	for _, f := range i.fronts {
		f.forget()
	}
}

// followPort has what is in front made anew for an interface that is about to carry the instance, where that makes a
// difference. The caller holds the lock for edits.
func (i *Instance) followPort(parts []Part, p *net.Interface) error {
	index := func(name string) (int, bool) {
		if name == p.Name {
			return p.Index, true
		}
		return i.portIndex(name)
	}
	for _, part := range fronted(parts) {
		err := i.changeFront(part.Name(), index, func(old *Front, on Behind) (*Front, func(), error) {
			if old.Prog == nil {
				return old, nil, nil
			}
			if follows, err := part.Follows(old, p.Name); err != nil || !follows {
				return old, nil, err
			}
			next, err := part.Follow(old, on)
			return next, nil, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// UntilUnused waits until no CPU runs a program any more that was taken off before: what it leads to may go then.
func UntilUnused() {
	// MEMBARRIER_CMD_GLOBAL of linux/membarrier.h waits for a grace period of RCU, under which XDP programs run.
	const global = 1
	if _, _, err := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); err != 0 {
		time.Sleep(50 * time.Millisecond) // where the kernel has none
	}
}

// keptFronts holds what is in front open, for its pins go when somebody else removes the instance.
type keptFronts struct {
	all   fronts
	known bool // it was looked at
	// at says what there was to see: the programs that packets meet, and the numbers of the last pins.
	way     []ebpf.ProgramID
	numbers []int
}

// KeepFronts has Restore bring back what is in front of the data plane now. It is for whoever serves the instance, and
// costs little while nothing has changed. Others do not wait for it: while one of them makes a change it keeps what it had.
func (i *Instance) KeepFronts() error {
	if i.temporary || i.Removed() {
		return nil
	}
	look := func() (k keptFronts) {
		for _, name := range frontNames(i.dir, nil) {
			k.numbers = append(k.numbers, newestNumber(filepath.Join(i.dir, name)))
		}
		k.way = wayFrom(i.dir, pins.Running(i.dir))
		return k
	}
	now := look()
	i.mu.Lock()
	same := i.kept.known && slices.Equal(now.numbers, i.kept.numbers) && slices.Equal(now.way, i.kept.way)
	i.mu.Unlock()
	if same {
		return nil
	}
	// Whoever detaches holds this lock until all is gone: what is half gone is not read.
	unlock, err := tryEdits(i.dir)
	if errors.Is(err, pins.ErrGone) || err == nil && unlock == nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	if i.Removed() {
		return nil
	}
	now = look()
	now.known = true
	if now.all, err = openFronts(i.dir, i.meta.Fronts, pins.Running(i.dir)); err != nil {
		return fmt.Errorf("keeping what is in front of %s: %w", i.Name(), err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.kept.all.close()
	i.kept = now
	return nil
}

// pin pins it all for the instance in dir that was made again.
func (k *keptFronts) pin(dir string) error {
	for _, f := range k.all {
		if f.State == nil {
			continue
		}
		f.dir, f.fresh = filepath.Join(dir, f.name), nil
		for name := range f.Maps {
			f.fresh = append(f.fresh, name)
		}
		slices.Sort(f.fresh)
		if err := f.pin(); err != nil {
			return fmt.Errorf("bringing the %s back: %w", f.name, err)
		}
	}
	k.numbers = nil // to be looked at again
	return nil
}
