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

// Entry returns the program for the interfaces: the first program in front of the pipeline, or rx if there is none.
func (i *Instance) Entry() *ebpf.Program { return i.fronts.entry(i.prog) }

// adoptFronts rebuilds in front of this generation what is in front of old. Renamed becomes Behind.Renamed. The caller holds
// the edit lock.
func (i *Instance) adoptFronts(old *Instance, ports []*net.Interface, renamed map[string]string) (err error) {
	if old == nil { // pins that are there belong to an instance that is gone
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
			return fmt.Errorf("a %s is in front of data plane %s, and this process cannot rebuild it: attach with 'culvert attach' or 'culvert run'", f.name, i.Name())
		}
	}
	byName := indexes(ports)
	index := func(name string) (int, bool) { n, ok := byName[name]; return n, ok }
	for _, p := range slices.Backward(fronted(i.parts)) {
		was := old.fronts.of(p.Name())
		if was == nil {
			was = &Front{name: p.Name(), dir: filepath.Join(i.dir, p.Name())}
		}
		next, err := p.Rebuild(was, Behind{Inst: i, Index: index, Renamed: renamed, fronts: i.fronts})
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

// fronted returns the parts that may have a program in front of the pipeline.
func fronted(parts []Part) (all []Fronted) {
	for _, p := range parts {
		if f, ok := p.(Fronted); ok {
			all = append(all, f)
		}
	}
	return all
}

// begunFront is a change in front that may still be given up. If Options.Begin has made it and fails, what was there before is
// in force again. So the pins of that stay until then, and what only its program uses: without the pin of its program array it
// would go on to nothing.
type begunFront struct {
	next   *Front
	settle func(inForce bool)
	// back is what packets met before, for Recommit to put back. It is nil in Attach, which puts the whole program back.
	back *ebpf.Program
}

// giveUp removes what has replaced another Front, which is in force again.
func (b begunFront) giveUp() {
	WaitForRCU() // without its program array, the program passes packets to the kernel
	b.next.forget()
	b.settle(false)
	b.next.Close()
}

// settleBegun ends the changes of Options.Begin when the new generation is in force.
func (i *Instance) settleBegun() {
	for _, b := range i.begun {
		b.next.forgetOthers()
		b.settle(true)
		b.next.Close()
		b.back.Close()
	}
	i.begun = nil
}

// settleFronts ends adoptFronts when the new generation is in force, and no CPU runs what was in front of the old one. It
// removes the pins of that, and closes what i has opened: other processes may change it from now on.
func (i *Instance) settleFronts() {
	i.settleBegun()
	if now, err := openFronts(i.dir, i.meta.Fronts, pins.Running(i.dir)); err == nil { // Options.Begin may have changed it
		for _, f := range now {
			f.forgetOthers()
		}
		now.close()
	}
	i.fronts.close()
	i.fronts = nil
}

// forgetFronts undoes adoptFronts and the changes of Options.Begin.
func (i *Instance) forgetFronts() {
	for _, b := range slices.Backward(i.begun) {
		b.giveUp()
	}
	i.begun = nil
	for _, f := range i.fronts {
		f.forget()
	}
}

// rebuildFor rebuilds the programs in front that need it when another interface of a name is about to carry the instance.
// Index becomes Behind.Index; nil stands for portIndex. The caller holds the edit lock.
func (i *Instance) rebuildFor(parts []Part, iface string, index func(string) (int, bool)) error {
	for _, part := range fronted(parts) {
		err := i.changeFront(part.Name(), index, func(old *Front, on Behind) (*Front, func(bool), error) {
			if old.Prog == nil {
				return old, nil, nil
			}
			if needed, err := part.NeedsRebuild(old, iface); err != nil || !needed {
				return old, nil, err
			}
			next, err := part.Rebuild(old, on)
			return next, nil, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// WaitForRCU waits until no CPU runs a program that was replaced or detached before the call. What only such
// a program used may change or go then.
func WaitForRCU() {
	// MEMBARRIER_CMD_GLOBAL of linux/membarrier.h waits for a grace period of RCU, under which XDP programs run.
	const global = 1
	if _, _, err := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); err != 0 {
		time.Sleep(50 * time.Millisecond) // a kernel without membarrier(2): far longer than a program runs
	}
}

// keptFronts is an open copy of what is in front of an instance. It outlives the pins, which go when another process removes
// the instance.
type keptFronts struct {
	all   fronts
	known bool // whether KeepFronts has ever succeeded
	// chain and numbers tell whether something has changed since: the programs that packets meet, and the newest number of
	// each part.
	chain   []ebpf.ProgramID
	numbers []int
}

// KeepFronts remembers what is in front of the data plane now, for Restore to bring back. The process that serves the
// instance calls it regularly: it is cheap while nothing has changed. It never waits: while another process makes a change,
// the earlier copy stays.
func (i *Instance) KeepFronts() error {
	if i.temporary || i.Removed() {
		return nil
	}
	look := func() (k keptFronts) {
		for _, name := range frontNames(i.dir, nil) {
			k.numbers = append(k.numbers, newestNumber(filepath.Join(i.dir, name)))
		}
		k.chain = chainFrom(i.dir, pins.Running(i.dir))
		return k
	}
	now := look()
	i.mu.Lock()
	same := i.kept.known && slices.Equal(now.numbers, i.kept.numbers) && slices.Equal(now.chain, i.kept.chain)
	i.mu.Unlock()
	if same {
		return nil
	}
	// DetachAll holds this lock until all pins are gone, so that no half-removed state is read.
	unlock, err := tryEdits(i.dir)
	if errors.Is(err, pins.ErrGone) || err == nil && unlock == nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	if i.Removed() || len(generations(i.dir)) == 0 { // remove deletes the lock with the rest
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

// pin pins the copies in dir, the directory of an instance that is being restored.
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
	k.numbers = nil // makes KeepFronts open the new pins
	return nil
}
