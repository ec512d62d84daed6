// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"

	"culvert/internal/host/pins"
)

// Map returns a map of the data plane by its name in bpf/, nil if there is none. The instance owns it: it is closed by
// Instance.Close.
func (i *Instance) Map(name string) *ebpf.Map { return i.maps[name] }

// AddMap adds a map to a data plane that is being loaded. It is pinned with the others. The instance owns it from then on.
func (i *Instance) AddMap(name string, m *ebpf.Map) { i.maps[name] = m }

// PortSlot returns the slot of an interface: its place in the maps that have an entry for each interface. The slot is less
// than Loading.PortSlots. It stays the same as long as the instance lives, and is never given to another interface. The
// name has to be one that the instance was ever attached to.
func (i *Instance) PortSlot(name string) int { return i.meta.Ports[name] }

// Locked calls f while no other goroutine of this process is in Locked, EditPort or Refresh of the instance.
func (i *Instance) Locked(f func() error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return f()
}

// Edit calls change with the edit lock held, which keeps changes by other processes out. Change gets the data plane that
// runs now, which is another instance than i if a process has attached since i was opened. It is closed when change
// returns. Change may call Edit of that instance, but not of a temporary one.
func (i *Instance) Edit(change func(now *Instance) error) error {
	if i.temporary {
		return i.Locked(func() error { return change(i) })
	}
	unlock, err := i.lockEdits()
	if err != nil {
		return err
	}
	defer unlock()
	now, err := i.Now()
	if err != nil {
		return fmt.Errorf("changing %s: %w", i.Name(), err)
	}
	defer now.Close()
	now.editing, now.beginning = true, i.beginning // change may make edits of its own
	return change(now)
}

// Now opens the generation in force of the data plane of this name: another process may have attached since i was opened.
// The caller closes it. A Temporary instance cannot be opened.
func (i *Instance) Now() (*Instance, error) { return openInstance(i.dir) }

// General tells whether Options.General was set when this process loaded the data plane: programs in front have no straight way either.
func (i *Instance) General() bool { return i.general }

// Temporary tells whether the data plane has no pins, and so ends with the process that has loaded it.
func (i *Instance) Temporary() bool { return i.temporary }

// RunningProgram returns the ID of the program on the interfaces, whichever process has put it there. It is 0 if the
// instance is on no interface, and for a Temporary one.
func (i *Instance) RunningProgram() ebpf.ProgramID { return pins.Running(i.dir) }
