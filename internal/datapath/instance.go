// SPDX-License-Identifier: Apache-2.0

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

// Options are the arguments of Attach.
type Options struct {
	// Name is the name of the instance: the router's ID.
	Name string
	// Interfaces are the names of the interfaces to attach to.
	Interfaces []string
	// Wait allows interfaces that do not exist yet: AttachPort attaches them once they do.
	Wait bool
	// Begin is called once the interfaces carry the new program, with the edit lock held. It may change maps and programs in
	// front. If it fails, the interfaces carry again what they carried before. It may be nil.
	Begin func(*Instance) error
	// Generic attaches in the kernel's generic mode, for drivers without native XDP.
	Generic bool
	// Unattended says that no process will serve the instance and keep its next hops up to date: the programs ask the kernel
	// for next hops that they lack.
	Unattended bool
	// Workers are the CPUs that packets are spread over.
	Workers Workers
	// Temporary pins nothing: the data plane ends with Close or with the process, however that ends. It is for
	// measurements and tests.
	Temporary bool
	// General takes the straight ways out of the stages, so that their general code handles all packets. No configuration sets it: it
	// exists to compare both.
	General bool
	// RoundRobin spreads packets over the workers in turn, whatever their flow. No configuration sets it: it exists to
	// measure what reordering costs.
	RoundRobin bool
	// Parts are the parts of the stages that are on.
	Parts []Part
	// Former is the instance of the same name that this process serves, nil if it serves none. After Attach the process
	// serves the new one, and closes Former.
	Former *Instance
}

// Instance is a handle of a data plane in the kernel, which goes on when the process ends. Attach, List, OpenHere and Now
// return one; the caller closes it. Several processes may hold handles of one data plane. One of them may serve it, which is
// to keep it in step with the host.
type Instance struct {
	dir  string
	meta meta
	maps map[string]*ebpf.Map
	prog *ebpf.Program
	// parts are the parts that this process has loaded the data plane with. It is nil if another process has loaded it.
	parts   []Part
	general bool // Options.General
	// saved caches what Saved has decoded, by the name of the part.
	saved sync.Map
	// taiOffset is a variable of the pipeline, nil if another process has loaded it.
	taiOffset    *ebpf.Variable
	detachedFrom []string // interfaces that carried the data plane before this process attached
	adopted      bool     // whether it ran before this process attached
	lock         *os.File // held while this process serves the instance
	editing      bool     // whether the edit lock is held already: by Attach for Options.Begin, or by Edit
	// beginning is the instance whose Options.Begin makes the edits of this one, nil outside Begin. Only that instance has
	// begun: the changes in front that Begin has made, whose predecessors stay until Attach cannot fail any more.
	beginning *Instance
	begun     []begunFront
	// recommitting says that begun is of Recommit, not of Attach.
	recommitting bool
	// mu is shared with the handles that Recommit gives out.
	mu *sync.Mutex
	// members has the index of the bond of each member that this process has written into the map of interfaces.
	members map[int]int
	fronts  fronts     // of a temporary instance, or while they are put in place
	kept    keptFronts // for Restore
	tested  testedProgram

	// The rest is for a temporary instance: its open links and the functions that have made them, the programs on its
	// tracepoints, and the indexes of its interfaces by name.
	temporary   bool
	held        []link.Link
	attachments []func() (link.Link, error)
	lossProgs   []*ebpf.Program
	heldPorts   map[string]int
}

// Name returns the router's ID.
func (i *Instance) Name() string { return i.meta.Name }

// NetNS returns the inode number of the network namespace that the instance is attached in.
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
func (i *Instance) Adopted() bool { return i.adopted }

// DetachedFrom returns the interfaces that Attach detached the data plane from, since they are not in Options.Interfaces.
func (i *Instance) DetachedFrom() []string { return i.detachedFrom }

// Program returns rx, the entry of the pipeline, for measurements. Programs in front of it are not part of it (Entry).
func (i *Instance) Program() *ebpf.Program { return i.prog }

// Close closes the handle. What runs goes on running, but for a temporary instance, which ends.
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

// Attach brings a data plane up on the interfaces, in the network namespace of the calling thread. If a data plane of the
// same name runs there, Attach adopts it: counters and shared maps stay, and the program is swapped under load without
// losing a packet. On an error nothing has changed. This process serves the instance until Close.
func Attach(o Options) (*Instance, error) {
	for _, p := range o.Parts {
		if err := p.Check(); err != nil {
			return nil, err
		}
	}
	if err := o.normalize(); err != nil {
		return nil, err
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
	if o.Former != nil {
		return attachAfter(dir, here, o, ports)
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

// attachAfter is Attach for a process that serves the instance already: it gives its server lock to the new one.
func attachAfter(dir string, here pins.Space, o Options, ports []*net.Interface) (*Instance, error) {
	if err := o.Former.mayChange(); err != nil {
		return nil, err
	}
	if dir != o.Former.dir {
		return nil, fmt.Errorf("this process serves data plane %s, not %s", o.Former.Name(), o.Name)
	}
	inst, err := attach(dir, here, o, ports)
	if err != nil {
		return nil, err
	}
	o.Former.mu.Lock()
	defer o.Former.mu.Unlock()
	inst.lock, o.Former.lock = o.Former.lock, nil
	return inst, nil
}

// attach is Attach for an instance in dir, whose server lock the caller holds.
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
			old = nil // it belongs to a network namespace that is gone
		case old.Name() != o.Name: // an early version did not escape dots in names
			return nil, fmt.Errorf("%s holds the pins of data plane %s: detach that one first", dir, old.Name())
		}
	}
	if err := checkMode(old, o); err != nil {
		return nil, err
	}
	if err := pins.CheckForeign(dir, ports); err != nil {
		return nil, err
	}
	for _, p := range ports {
		if err := pins.CheckAbove(dir, p, ports); err != nil {
			return nil, err
		}
	}
	if err := checkSoftware(ports, o.Generic); err != nil {
		return nil, err
	}
	m, err := newMeta(old, here, o)
	if err != nil {
		return nil, err
	}
	renamed := pins.Renamed(dir, ports)
	m.renamePorts(renamed)
	if err := m.assignPorts(o.Interfaces); err != nil {
		return nil, err
	}
	inst, err := load(old, m, o, ports)
	if err != nil {
		return nil, err
	}
	inst.dir, inst.adopted = dir, old != nil
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
		err = inst.adoptFronts(old, ports, renamed)
	}
	if err == nil {
		err = inst.adopt(false)
	}
	if err == nil {
		err = inst.countLosses(number, func() error { return inst.swap(old, ports, o.Begin) })
	}
	if err != nil {
		inst.forgetFronts()
		os.RemoveAll(gen)
		inst.Close()
		return nil, err
	}
	if old != nil && old.fronts.anyProgram() || len(inst.begun) > 0 {
		WaitForRCU()
	}
	_ = inst.adopt(true) // the new program is in force: there is no way back
	removeOtherGenerations(dir, gen)
	inst.settleFronts()
	return inst, nil
}

// adopt calls the Adopters among the parts.
func (i *Instance) adopt(last bool) error {
	var errs []error
	for _, p := range i.parts {
		if c, ok := p.(Adopter); ok {
			errs = append(errs, c.Adopt(i, last))
		}
	}
	return errors.Join(errs...)
}

// indexes returns the indexes of interfaces by their names.
func indexes(ports []*net.Interface) map[string]int {
	byName := make(map[string]int)
	for _, p := range ports {
		byName[p.Name] = p.Index
	}
	return byName
}

// checkMode refuses to change between native and generic mode, which the kernel cannot do in one atomic step.
func checkMode(old *Instance, o Options) error {
	if old == nil || old.meta.Generic == o.Generic || len(old.Attached()) == 0 {
		return nil
	}
	mode := map[bool]string{false: "native", true: "generic"}
	return fmt.Errorf("data plane %s is attached in %s mode, and the kernel cannot change that while packets flow: to attach it in "+
		"%s mode, detach it first (culvert detach %s) and start again", o.Name, mode[old.meta.Generic], mode[o.Generic], strings.Join(old.Attached(), " "))
}

// attachLink attaches inst to an interface and pins the link at path.
func attachLink(inst *Instance, p *net.Interface, path string) error {
	return pins.AttachPinned(inst.Entry(), p, inst.meta.Generic, path)
}

func init() { pins.RegisterOwner(pins.Owner{Whose: routerOf}) }

// routerOf describes the data plane that a program belongs to, for errors. It returns "" if the program is of none.
func routerOf(id ebpf.ProgramID) string {
	all, _ := List()
	defer closeAll(all)
	for _, i := range all {
		if pins.ProgramID(i.prog) == id || nextInChain(i.dir, id) != 0 {
			return "culvert's data plane " + i.Name()
		}
	}
	return ""
}
