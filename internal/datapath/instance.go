// SPDX-License-Identifier: Apache-2.0

// Package datapath is the engine: it loads the programs, attaches, pins, adopts and swaps them, and reads what they count.
// What a stage has in them is a Part, of a package of the stage.
package datapath

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"culvert/internal/bpfobj"
	"culvert/internal/host/pins"
)

// Options say how to attach.
type Options struct {
	// Name of the instance: the router's ID.
	Name string
	// Interfaces to attach to, by name.
	Interfaces []string
	// Wait leaves out the interfaces that do not exist: AttachPort attaches them when they do.
	Wait bool
	// Begin is called once the interfaces carry the new program, and may change maps and what is in front. If it fails,
	// they carry what they carried before. It may be nil.
	Begin func(*Instance) error
	// Generic attaches in the kernel's generic mode, for drivers without native XDP.
	Generic bool
	// Unattended says that no process will keep the next hops: the programs ask the kernel for
	// those they lack.
	Unattended bool
	// Workers are the CPUs that packets are spread over.
	Workers Workers
	// Temporary pins nothing: the data plane is gone with Close or with the process, however it
	// ends. For measurements.
	Temporary bool
	// Turns gives packets to the workers by turns, whatever their flow. It exists to measure what
	// that does; no configuration leads here.
	Turns bool
	// Parts are those of the stages that are on.
	Parts []Part
}

// Instance is a data plane in the kernel. It goes on when the process ends.
type Instance struct {
	dir  string
	meta meta
	maps map[string]*ebpf.Map
	prog *ebpf.Program
	// parts are those that this process has loaded it with, saved what the description tells of those of any process, as
	// far as somebody has asked: by name.
	parts []Part
	saved sync.Map
	// taiOffset is a variable of the program that this process has loaded.
	taiOffset *ebpf.Variable
	takenOff  []string // interfaces that carried it before this process attached
	old       bool     // it ran before this process took it over
	temporary bool
	held      []link.Link // what is attached, of a temporary instance
	// attachments do so, and lossProgs are the programs on its tracepoints.
	attachments []func() (link.Link, error)
	lossProgs   []*ebpf.Program
	lock        *os.File // held while this process serves the instance
	editing     bool     // the lock for changes is held too, by attach
	mu          sync.Mutex
	fronts      fronts         // of a temporary instance, or while they are put in place
	kept        keptFronts     // of an instance that this process may have to restore
	heldPorts   map[string]int // indexes of a temporary instance's interfaces, by name
	tested      testedProgram
}

// Name returns the router's ID.
func (i *Instance) Name() string { return i.meta.Name }

// NetNS returns the inode of the network namespace that the instance is attached in.
func (i *Instance) NetNS() uint32 { return i.meta.NetNS }

// Here tells whether the instance is attached in the network namespace of the calling thread.
func (i *Instance) Here() bool {
	here, err := pins.Here()
	return err == nil && i.in(here)
}

func (i *Instance) in(s pins.Space) bool {
	return i.meta.NetNS == s.Inode && i.meta.Cookie == s.Cookie
}

// Generic tells whether the programs are attached in generic mode.
func (i *Instance) Generic() bool { return i.meta.Generic }

// Adopted tells whether the data plane ran already when this process attached.
func (i *Instance) Adopted() bool { return i.old }

// TakenOff names the interfaces that Attach took the data plane off, because they were not among
// those to attach to.
func (i *Instance) TakenOff() []string { return i.takenOff }

// Program returns the program on the interfaces, for measurements.
func (i *Instance) Program() *ebpf.Program { return i.prog }

// Close lets go of the instance without touching what runs. A temporary one ends.
func (i *Instance) Close() {
	_ = i.release()
	for _, p := range i.lossProgs {
		p.Close()
	}
	i.fronts.close()
	i.kept.all.close()
	i.tested.close()
	for _, m := range i.maps {
		m.Close()
	}
	if i.prog != nil {
		i.prog.Close()
	}
	if i.lock != nil {
		i.lock.Close()
	}
}

// Attach brings a data plane up on the interfaces, or takes over the one of the same name that runs
// in this network namespace: its counters and keys stay, and the program is swapped under load
// without losing a packet. Either all interfaces are served in the end or nothing has changed.
func Attach(o Options) (*Instance, error) {
	for _, p := range o.Parts {
		if err := p.Check(); err != nil {
			return nil, err
		}
	}
	workers, err := o.Workers.normal()
	if err != nil {
		return nil, err
	}
	o.Workers = workers
	if len(o.Interfaces) > MaxPorts {
		return nil, fmt.Errorf("%d interfaces: one instance carries at most %d", len(o.Interfaces), MaxPorts)
	}
	ports, err := pins.Interfaces(o.Interfaces, o.Wait)
	if err != nil {
		return nil, err
	}
	here, err := pins.Here()
	if err != nil {
		return nil, err
	}
	if o.Temporary {
		return attachTemporary(here, o, ports)
	}
	dir, err := makeInstanceDir(here.Inode, o.Name)
	if err != nil {
		return nil, err
	}
	lock, err := lockInstance(dir, o.Name)
	if err != nil {
		return nil, err
	}
	inst, err := attach(dir, here, o, ports)
	if err != nil {
		lock.Close()
		removeIfEmpty(dir)
		return nil, err
	}
	inst.lock = lock
	return inst, nil
}

func attach(dir string, here pins.Space, o Options, ports []*net.Interface) (*Instance, error) {
	unlock, err := lockEdits(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	old, err := openInstance(dir)
	if err != nil && !bpfobj.NotExist(err) {
		return nil, err
	}
	if old != nil {
		defer old.Close()
		switch {
		case !old.in(here):
			old = nil // left by a namespace that is gone
		case old.Name() != o.Name: // by a version that took no care of dots
			return nil, fmt.Errorf("%s holds the pins of router %s: detach that one first", dir, old.Name())
		}
	}
	if err := checkMode(old, o); err != nil {
		return nil, err
	}
	if err := pins.CheckForeign(dir, ports); err != nil {
		return nil, err
	}
	m, err := newMeta(old, here, o)
	if err != nil {
		return nil, err
	}
	before := pins.Renamed(dir, ports)
	m.renamePorts(before)
	if err := m.assignPorts(o.Interfaces); err != nil {
		return nil, err
	}
	inst, err := load(old, m, o, ports)
	if err != nil {
		return nil, err
	}
	inst.dir, inst.old = dir, old != nil
	gen, err := inst.pinGeneration()
	if err != nil {
		inst.Close()
		return nil, err
	}
	number, err := generationNumber(gen)
	if err == nil {
		err = inst.watchLosses(gen, number, old)
	}
	if err == nil {
		err = inst.adoptFronts(old, ports, before)
	}
	if err == nil {
		err = inst.carry(false)
	}
	if err == nil {
		err = inst.countLosses(number, func() error { return inst.takeOver(old, ports, o.Begin) })
	}
	if err != nil {
		inst.forgetFronts()
		os.RemoveAll(gen)
		inst.Close()
		return nil, err
	}
	if old != nil && old.fronts.programs() {
		UntilUnused()
	}
	_ = inst.carry(true) // it has gone well before
	removeOtherGenerations(dir, gen)
	inst.settleFronts()
	return inst, nil
}

// carry has the parts take over what the program before goes on writing.
func (i *Instance) carry(last bool) error {
	var errs []error
	for _, p := range i.parts {
		if c, ok := p.(Carrier); ok {
			errs = append(errs, c.Carry(i, last))
		}
	}
	return errors.Join(errs...)
}

func indexes(ports []*net.Interface) map[string]int {
	byName := make(map[string]int)
	for _, p := range ports {
		byName[p.Name] = p.Index
	}
	return byName
}

// checkMode refuses to change the mode of what is attached: no atomic swap leads from one to the
// other.
func checkMode(old *Instance, o Options) error {
	if old == nil || old.meta.Generic == o.Generic || len(old.Attached()) == 0 {
		return nil
	}
	mode := map[bool]string{false: "native", true: "generic"}
	return fmt.Errorf("router %s is attached in %s mode: to attach it in %s mode, detach it first "+
		"(culvert detach %s)", o.Name, mode[old.meta.Generic], mode[o.Generic], strings.Join(old.Attached(), " "))
}

func attachLink(inst *Instance, p *net.Interface, path string) error {
	return pins.AttachPinned(inst.Entry(), p, inst.meta.Generic, path)
}

func init() { pins.RegisterOwner(pins.Owner{Whose: routerOf}) }

// routerOf names the data plane that a program is of.
func routerOf(id ebpf.ProgramID) string {
	all, _ := List()
	defer closeAll(all)
	for _, i := range all {
		if pins.ProgramID(i.prog) == id || next(i.dir, id) != 0 {
			return "culvert's router " + i.Name()
		}
	}
	return ""
}
