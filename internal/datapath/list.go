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

	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/host/pins"
)

// List opens all instances of this machine, in all network namespaces.
func List() ([]*Instance, error) {
	root, ok, err := pins.Root()
	if !ok || err != nil {
		return nil, err
	}
	dirs, err := instanceDirs(root)
	if err != nil {
		return nil, err
	}
	var all []*Instance
	for _, dir := range dirs {
		inst, err := openInstance(dir)
		switch {
		case bpfobj.NotExist(err):
			continue
		case err != nil:
			closeAll(all)
			return nil, err
		}
		all = append(all, inst)
	}
	return all, nil
}

// instanceDirs returns the directories of all instances. A directory that disappears meanwhile is no error.
func instanceDirs(root string) ([]string, error) {
	spaces, err := os.ReadDir(root)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case errors.Is(err, os.ErrPermission):
		return nil, bpfobj.PermissionError("reading " + root)
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", root, err)
	}
	var dirs []string
	for _, s := range spaces {
		instances, _ := os.ReadDir(filepath.Join(root, s.Name()))
		for _, i := range instances {
			if pins.Reserved(i.Name()) {
				continue // not of an instance
			}
			dirs = append(dirs, filepath.Join(root, s.Name(), i.Name()))
		}
	}
	return dirs, nil
}

func closeAll(all []*Instance) {
	for _, i := range all {
		i.Close()
	}
}

// ListHere opens the instances of this network namespace.
func ListHere() ([]*Instance, error) {
	here, err := pins.Here()
	if err != nil {
		return nil, err
	}
	all, err := List()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(i *Instance) bool {
		if i.in(here) {
			return false
		}
		i.Close()
		return true
	}), nil
}

// OpenHere opens the instance of that name in this network namespace. It returns nil without an error if there is none.
func OpenHere(name string) (*Instance, error) {
	dir, err := instanceDir(name)
	if dir == "" || err != nil {
		return nil, err
	}
	here, err := pins.Here()
	if err != nil {
		return nil, err
	}
	inst, err := openInstance(dir)
	switch {
	case bpfobj.NotExist(err):
		return nil, nil
	case err != nil:
		return nil, err
	case !inst.in(here) || inst.Name() != name:
		inst.Close()
		return nil, nil
	}
	return inst, nil
}

// Served tells whether a process serves the instance.
func (i *Instance) Served() bool {
	if i.serves() {
		return true
	}
	f, err := os.Open(i.dir)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// Unattended tells whether the instance was attached to run without a process. An instance that is neither Unattended nor
// Served has lost its process.
func (i *Instance) Unattended() bool { return i.meta.Unattended }

// serves tells whether this process serves the instance.
func (i *Instance) serves() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.lock != nil
}

// Attached returns the names of the interfaces that carry the program, sorted. An interface that was renamed goes by the name
// under which it was attached, unless another interface has that name now: then it goes by its present name.
func (i *Instance) Attached() []string {
	if i.temporary && len(i.held) > 0 {
		return slices.Sorted(slices.Values(i.meta.Attached))
	}
	return slices.Sorted(maps.Keys(i.livePins()))
}

// AttachedNow is Attached with the present names of the interfaces, in the calling thread's network namespace.
func (i *Instance) AttachedNow() []string {
	var names []string
	for _, p := range pins.Read(i.dir) {
		if p.Now != "" {
			names = append(names, p.Now)
		}
	}
	slices.Sort(names)
	return names
}

// AttachedIndexes returns the indexes of the interfaces that carry the program, sorted.
func (i *Instance) AttachedIndexes() []int {
	var all []int
	for _, p := range i.livePins() {
		all = append(all, p.Index)
	}
	slices.Sort(all)
	return all
}

// Detach detaches the program from an interface, which goes by its name in Attached. Detaching the last one removes the
// instance with its counters and keys.
func (i *Instance) Detach(iface string) error {
	path := pins.LinkPath(i.dir, iface)
	p, live := i.livePins()[iface]
	if live {
		path = p.Path
	}
	// The link that is pinned under that name may be on an interface that has been renamed since.
	if _, err := os.Stat(path); err != nil || !live && pins.At(i.dir, path).Now != "" {
		return fmt.Errorf("data plane %s is not attached to %s: see 'culvert status'", i.Name(), iface)
	}
	unlock, err := lockEdits(i.dir) // EditFront updates all links, and must not meet one that is going
	if err != nil {
		return err
	}
	defer unlock()
	if err := pins.Detach(path); err != nil {
		return err
	}
	if len(i.Attached()) == 0 {
		return i.remove()
	}
	return nil
}

// DetachAll detaches the program from all interfaces and removes the instance. It is no error if the instance is gone.
func (i *Instance) DetachAll() error {
	if i.temporary {
		return i.release()
	}
	unlock, err := lockEdits(i.dir)
	if errors.Is(err, pins.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	for _, path := range pins.Links(i.dir) {
		if err := pins.Detach(path); err != nil {
			return err
		}
	}
	return i.remove()
}

// Forget removes the pins of an instance that is on no interface any more, in any network namespace, and that no process
// serves. It returns false and does nothing if the instance is on an interface or served.
func (i *Instance) Forget() (bool, error) {
	if i.Served() {
		return false, nil
	}
	lock, err := lockInstance(i.dir, i.Name())
	if err != nil {
		return false, err
	}
	defer lock.Close()
	if !pins.Nowhere(i.dir) {
		return false, nil
	}
	return true, i.remove()
}

// removeTries bounds how often remove starts again because another process has made the directory of the edit lock anew.
const removeTries = 100

// remove removes all pins of the instance, and the directory of the network namespace if it is empty.
func (i *Instance) remove() error {
	// The generations go first: KeepFronts takes an instance without one for removed.
	for _, n := range generations(i.dir) {
		if err := os.RemoveAll(filepath.Join(i.dir, strconv.Itoa(n))); err != nil {
			return fmt.Errorf("removing %s: %w", i.dir, err)
		}
	}
	err := os.RemoveAll(i.dir)
	for n := 0; errors.Is(err, unix.ENOTEMPTY) && n < removeTries; n++ { // a process waits for the edit lock and makes its directory
		err = os.RemoveAll(i.dir)
	}
	if err != nil {
		return fmt.Errorf("removing %s: %w", i.dir, err)
	}
	_ = os.Remove(filepath.Dir(i.dir))
	return nil
}
