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
	"culvert/internal/host/pins"
)

/*
Pins of what is in front of the pipeline, below the instance's directory:

	<part>/maps/<map>      what a part keeps whatever program runs
	<part>/<number>/prog   its program, if packets have to meet one,
	<part>/<number>/rest   the table through which that goes on: to the next program in front, or to rx,
	<part>/<number>/<map>  maps of this program alone, and
	<part>/<number>/state  what it was loaded for

As with generations, the links say which program is in force, its table which one is behind it, and so on; of a part whose
programs are none of these it is the newest state without a program. A change is made by whoever holds the lock for edits.
*/
const (
	frontMapsDir  = "maps"
	frontProgPin  = "prog"
	frontRestPin  = "rest"
	frontStatePin = "state"
)

// Front is what a part has in front of the pipeline: a program that packets meet before, and what goes with it. The zero
// value is nothing.
type Front struct {
	// State says what the program was loaded for, in the words of the part; nil if the part has nothing, no program either.
	State []byte
	// Prog is the program, and Rest its table of one program, through which it goes on with a tail call. The engine fills
	// that. Both are nil as long as no packet has to meet it.
	Prog *ebpf.Program
	Rest *ebpf.Map
	// Own are other maps that are of this program alone, by the names of their pins.
	Own map[string]*ebpf.Map
	// Maps stay whatever program runs.
	Maps map[string]*ebpf.Map

	name   string // of the part
	dir    string // of its pins, "" without
	number int    // of the state's pin, 0 for none
	fresh  []string
}

// Behind is what a program is put in front of.
type Behind struct {
	// Inst has the pipeline's maps.
	Inst *Instance
	// Index gives the index of an interface that carries the data plane, or is about to.
	Index func(iface string) (int, bool)
	// Renamed has the former names of interfaces that have got others, by the new ones.
	Renamed map[string]string
}

// Fronted is a Part with a program in front of the pipeline, or with none at times. What packets meet first is that of the
// part that Options name first.
type Fronted interface {
	Part
	// Follow returns what stands in front of a data plane in the place of old: of another generation, or when an
	// interface comes. Of old it takes clones.
	Follow(old *Front, on Behind) (*Front, error)
	// Follows tells whether a program has to be made anew when an interface comes.
	Follows(old *Front, iface string) (bool, error)
}

// Close lets go of it.
func (f *Front) Close() {
	if f == nil {
		return
	}
	f.Prog.Close()
	f.Rest.Close()
	for _, maps := range []map[string]*ebpf.Map{f.Own, f.Maps} {
		for _, m := range maps {
			m.Close()
		}
	}
}

// entry is the program for whatever leads to it, with another one behind it.
func (f *Front) entry(behind *ebpf.Program) *ebpf.Program {
	if f != nil && f.Prog != nil {
		return f.Prog
	}
	return behind
}

// lead has the program go on to another one.
func (f *Front) lead(behind *ebpf.Program) error {
	if f.Prog == nil {
		return nil
	}
	if err := f.Rest.Put(uint32(0), behind); err != nil {
		return fmt.Errorf("leading %s to what is behind it: %w", f.name, err)
	}
	return nil
}

// at is the directory of what is pinned under the number.
func (f *Front) at() string { return filepath.Join(f.dir, strconv.Itoa(f.number)) }

// openNumber opens what is pinned under a number if its program is id, any if id is 0, or as long as nothing is open if
// it has no program.
func (f *Front) openNumber(n int, id ebpf.ProgramID) error {
	at := filepath.Join(f.dir, strconv.Itoa(n))
	state, err := blobFromPin(filepath.Join(at, frontStatePin))
	if errors.Is(err, os.ErrNotExist) {
		return nil // left half-made
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
			f.Rest = m
		} else {
			f.Own[e.Name()] = m
		}
	}
	if f.Rest == nil {
		return f.openError(fmt.Errorf("%s leads nowhere", at))
	}
	return nil
}

// openMaps opens what stays. Maps without a state are what a change has left that failed.
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

// place puts it in the place of old, in front of another program, but for what leads to it.
func (f *Front) place(old *Front, behind *ebpf.Program) error {
	f.succeed(old)
	if err := f.lead(behind); err != nil {
		return err
	}
	return f.pin()
}

// succeed takes the name and the directory of old. What old does not keep is pinned with it.
func (f *Front) succeed(old *Front) {
	f.name, f.dir, f.fresh = old.name, old.dir, nil
	for name := range f.Maps {
		if old.Maps[name] == nil {
			f.fresh = append(f.fresh, name)
		}
	}
	slices.Sort(f.fresh)
}

// pin makes it last under the next number, if there is anything.
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
		_ = os.Remove(path) // of a change that failed
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
		prog, err := f.Prog.Clone() // which does not know the pin that it may have had
		if err == nil {
			err = prog.Pin(filepath.Join(at, frontProgPin))
			prog.Close()
		}
		if err != nil {
			return fmt.Errorf("pinning the %s: %w", f.name, err)
		}
		if err := pinClone(f.Rest, filepath.Join(at, frontRestPin)); err != nil {
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

// forget removes the pins that no other of the part has, forgetOthers those of all others.
func (f *Front) forget() {
	if f.dir != "" && f.number != 0 {
		os.RemoveAll(f.at())
		f.forgetFresh()
		_ = os.Remove(f.dir)
	}
}

func (f *Front) forgetFresh() {
	mapsDir := filepath.Join(f.dir, frontMapsDir)
	for _, name := range f.fresh {
		_ = os.Remove(filepath.Join(mapsDir, name))
	}
	_ = os.Remove(mapsDir) // if nothing else is there
}

func (f *Front) forgetOthers() {
	if f.dir == "" {
		return
	}
	if f.number == 0 { // what does nothing leaves nothing
		os.RemoveAll(f.dir)
		return
	}
	removeOtherGenerations(f.dir, f.at())
}

func newestNumber(dir string) int {
	if all := generations(dir); len(all) > 0 {
		return all[0]
	}
	return 0
}

// blobMap stores bytes in a map of its own, as the only entry. Zeros may follow when they are read.
func blobMap(name string, b []byte) (*ebpf.Map, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(b)), MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("creating map %s: %w", name, bpfobj.LoadError(err))
	}
	if err := m.Put(uint32(0), b); err != nil {
		m.Close()
		return nil, fmt.Errorf("writing map %s: %w", name, err)
	}
	return m, nil
}

func blobFromPin(path string) ([]byte, error) {
	m, err := ebpf.LoadPinnedMap(path, nil)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	b, err := m.LookupBytes(uint32(0))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return b, nil
}
