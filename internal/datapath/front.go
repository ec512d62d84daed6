// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/host/netdev"
	"culvert/internal/host/pins"
)

/*
Pins of the programs in front of the pipeline, below the instance's directory:

	<part>/maps/<map>      a map that the part keeps from program to program
	<part>/<number>/state  what the part has stored (Front.State)
	<part>/<number>/prog   the part's program, if it has one now
	<part>/<number>/rest   the program array through which that program goes on: to the next one in front, or to rx
	<part>/<number>/<map>  a map of this program alone

A part has several numbers only while it is being changed. The links say which program packets meet first, its program array
says which one is next, and so on: a number is in force if its program is in this chain. If none of a part's programs is, the
newest number without a program is in force. Only a process that holds the edit lock writes here.
*/
const (
	frontMapsDir  = "maps"
	frontProgPin  = "prog"
	frontRestPin  = "rest"
	frontStatePin = "state"
)

// Front is what a part has in front of the pipeline: a program that packets meet first, its maps, and the state that they
// were made from. The zero value says that the part has nothing there.
type Front struct {
	// State is stored for the part, which alone knows the format. Zeros may follow it when it is read back. It is nil if
	// the part has nothing in front of the pipeline, and then Prog has to be nil too.
	State []byte
	// Prog is the program. TailCall is its program array of one entry, which the engine fills: the program goes on by a
	// tail call through entry 0. Both are nil if packets need not meet a program now.
	Prog     *ebpf.Program
	TailCall *ebpf.Map
	// Own holds other maps of this program alone, by the names of their pins. They go with the program.
	Own map[string]*ebpf.Map
	// Maps holds the maps that the part keeps from program to program, by the names of their pins.
	Maps map[string]*ebpf.Map

	name   string   // the part's
	dir    string   // has the part's pins; "" for a temporary instance
	number int      // names the directory of the state's pin; 0 if nothing is pinned
	fresh  []string // names those of Maps that have no pin yet
}

// Behind is the data plane that a program is put in front of.
type Behind struct {
	// Inst is the instance, whose maps the program may use.
	Inst *Instance
	// Index returns the index of an interface that carries the data plane or is about to. It is false for any other.
	Index func(iface string) (int, bool)
	// Renamed maps the present names of interfaces that have been renamed since they were attached to their former names.
	Renamed map[string]string

	fronts fronts // of the data plane, as far as they are there
}

// AnyBond tells whether an interface of the data plane is a bond, or one that is about to carry it.
func (b Behind) AnyBond() bool {
	if b.Inst == nil {
		return false
	}
	return slices.ContainsFunc(b.Inst.meta.Attached, netdev.IsBond) || len(b.Inst.Bonds()) > 0
}

// Fronted is a Part that may have a program in front of the pipeline. Packets meet these programs in the order of
// Options.Parts. What a part has there changes by Instance.EditFront. The engine calls the methods below when something
// else changes.
type Fronted interface {
	Part
	// Rebuild returns what replaces old in front of a new generation of the pipeline, or when an interface is attached.
	// Old has no State if the part had nothing there. It is closed afterwards: what goes on from it has to be cloned.
	Rebuild(old *Front, on Behind) (*Front, error)
	// NeedsRebuild tells whether the program has to be rebuilt when the interface is attached to a running data plane,
	// which is so if the program knows the interface by its index.
	NeedsRebuild(old *Front, iface string) (bool, error)
}

// Close closes the program and the maps. What is pinned stays. F may be nil.
func (f *Front) Close() {
	if f == nil {
		return
	}
	f.Prog.Close()
	f.TailCall.Close()
	for _, maps := range []map[string]*ebpf.Map{f.Own, f.Maps} {
		for _, m := range maps {
			m.Close()
		}
	}
}

// entry returns the program that packets meet first: f's own if it has one, else behind. F may be nil.
func (f *Front) entry(behind *ebpf.Program) *ebpf.Program {
	if f != nil && f.Prog != nil {
		return f.Prog
	}
	return behind
}

// setTailCall makes the program, if there is one, go on to behind.
func (f *Front) setTailCall(behind *ebpf.Program) error {
	if f.Prog == nil {
		return nil
	}
	if err := f.TailCall.Put(uint32(0), behind); err != nil {
		return fmt.Errorf("leading %s to what is behind it: %w", f.name, err)
	}
	return nil
}

// at returns the directory of f's number.
func (f *Front) at() string { return filepath.Join(f.dir, strconv.Itoa(f.number)) }

// openGeneration opens what is pinned under number n if its program is id, or if id is 0. A number without a program is
// opened if nothing has been opened before.
func (f *Front) openGeneration(n int, id ebpf.ProgramID) error {
	at := filepath.Join(f.dir, strconv.Itoa(n))
	state, err := blobFromPin(filepath.Join(at, frontStatePin))
	if errors.Is(err, os.ErrNotExist) {
		return nil // a process died while it was pinning
	}
	if err != nil {
		return f.openError(err)
	}
	prog, err := ebpf.LoadPinnedProgram(filepath.Join(at, frontProgPin), nil)
	if errors.Is(err, os.ErrNotExist) {
		if f.number == 0 {
			f.number, f.State = n, state
		}
		return nil
	}
	if err != nil {
		return f.openError(err)
	}
	if id != 0 && pins.ProgramID(prog) != id {
		prog.Close()
		return nil
	}
	f.number, f.State, f.Prog = n, state, prog
	entries, err := os.ReadDir(at)
	if err != nil {
		return f.openError(err)
	}
	f.Own = make(map[string]*ebpf.Map)
	for _, e := range entries {
		if e.Name() == frontStatePin || e.Name() == frontProgPin {
			continue
		}
		m, err := ebpf.LoadPinnedMap(filepath.Join(at, e.Name()), nil)
		if err != nil {
			return f.openError(err)
		}
		if e.Name() == frontRestPin {
			f.TailCall = m
		} else {
			f.Own[e.Name()] = m
		}
	}
	if f.TailCall == nil {
		return f.openError(fmt.Errorf("%s has no map %s", at, frontRestPin))
	}
	return nil
}

// openMaps opens the maps that the part keeps. Maps without a state are left over from a change that failed.
func (f *Front) openMaps() error {
	if f.number == 0 {
		return nil
	}
	entries, err := os.ReadDir(filepath.Join(f.dir, frontMapsDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return f.openError(err)
	}
	f.Maps = make(map[string]*ebpf.Map)
	for _, e := range entries {
		m, err := ebpf.LoadPinnedMap(filepath.Join(f.dir, frontMapsDir, e.Name()), nil)
		if err != nil {
			return f.openError(fmt.Errorf("map %s: %w", e.Name(), err))
		}
		f.Maps[e.Name()] = m
	}
	return nil
}

func (f *Front) openError(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return bpfobj.PermissionError("opening the pins of the " + f.name)
	}
	return fmt.Errorf("opening the %s: %w", f.name, err)
}

// place pins f as the successor of old, in front of the program behind. No packet meets f yet: the caller redirects to it
// the program or the interfaces in front.
func (f *Front) place(old *Front, behind *ebpf.Program) error {
	f.succeed(old)
	if err := f.setTailCall(behind); err != nil {
		return err
	}
	return f.pin()
}

// succeed takes the name and the directory of old, and notes which maps old does not have: they have no pin yet.
func (f *Front) succeed(old *Front) {
	f.name, f.dir, f.fresh = old.name, old.dir, nil
	for name := range f.Maps {
		if old.Maps[name] == nil {
			f.fresh = append(f.fresh, name)
		}
	}
	slices.Sort(f.fresh)
}

// pin pins f under the next number. It does nothing for a temporary instance and for an empty f.
func (f *Front) pin() (err error) {
	if f.dir == "" || f.State == nil {
		return nil
	}
	mapsDir := filepath.Join(f.dir, frontMapsDir)
	if err := os.MkdirAll(mapsDir, 0o700); err != nil {
		return fmt.Errorf("making %s: %w", mapsDir, err)
	}
	defer func() {
		if err != nil {
			f.forgetFresh()
		}
	}()
	for _, name := range f.fresh {
		path := filepath.Join(mapsDir, name)
		_ = os.Remove(path) // left over from a change that failed
		if err := pinClone(f.Maps[name], path); err != nil {
			return err
		}
	}
	f.number = newestNumber(f.dir) + 1
	at := f.at()
	if err := os.Mkdir(at, 0o700); err != nil {
		return fmt.Errorf("making %s: %w", at, err)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(at)
		}
	}()
	if f.Prog != nil {
		prog, err := f.Prog.Clone() // Pin of a program that is pinned already would move its pin
		if err == nil {
			err = prog.Pin(filepath.Join(at, frontProgPin))
			prog.Close()
		}
		if err != nil {
			return fmt.Errorf("pinning the %s: %w", f.name, err)
		}
		if err := pinClone(f.TailCall, filepath.Join(at, frontRestPin)); err != nil {
			return err
		}
		for name, m := range f.Own {
			if err := pinClone(m, filepath.Join(at, name)); err != nil {
				return err
			}
		}
	}
	sm, err := blobMap(frontStatePin, f.State)
	if err != nil {
		return fmt.Errorf("describing the %s: %w", f.name, err)
	}
	defer sm.Close()
	if err := sm.Pin(filepath.Join(at, frontStatePin)); err != nil {
		return fmt.Errorf("pinning the description of the %s: %w", f.name, err)
	}
	return nil
}

// pinClone pins a map once more, besides the pins that it may have already.
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

// forget removes the pins that f alone has. It undoes pin.
func (f *Front) forget() {
	if f.dir != "" && f.number != 0 {
		os.RemoveAll(f.at())
		f.forgetFresh()
		_ = os.Remove(f.dir)
	}
}

// forgetFresh removes the pins of the maps that f has brought.
func (f *Front) forgetFresh() {
	mapsDir := filepath.Join(f.dir, frontMapsDir)
	for _, name := range f.fresh {
		_ = os.Remove(filepath.Join(mapsDir, name))
	}
	_ = os.Remove(mapsDir) // fails unless it is empty
}

// forgetOthers removes the pins of all other numbers of the part. If f has none itself it removes all pins of the part.
func (f *Front) forgetOthers() {
	if f.dir == "" {
		return
	}
	if f.number == 0 {
		os.RemoveAll(f.dir)
		return
	}
	removeOtherGenerations(f.dir, f.at())
}

// newestNumber returns the highest number in dir, 0 if there is none.
func newestNumber(dir string) int {
	if all := generations(dir); len(all) > 0 {
		return all[0]
	}
	return 0
}
