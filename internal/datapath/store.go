// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/host/pins"
	"culvert/internal/host/trust"
)

/*
Pins, below <bpffs>/culvert/<inode of the network namespace>/<router ID>/ (internal/host/pins):

	link-<interface>    the XDP link of an interface
	<number>/rx         the program of one generation
	<number>/<map>      a map of it
	<number>/trace-*    the link of a tracepoint that counts losses
	<number>/meta       a map with the description of the generation (meta.go)
	edits/              the edit lock
	<part>/             what a part has in front of the pipeline (front.go)

Router ID and interface are escaped (pins.Escape). Each Attach makes a new generation. The links say which one is in force:
whenever a process dies, the programs on the interfaces and the maps they use stay together.
*/

// Pins returns the directory of the instance's pins, as its path is in the host's mount namespace.
func (i *Instance) Pins() string {
	return pins.Shown(i.dir)
}

// makeInstanceDir makes the directory of an instance, mounting bpffs if need be, and checks that only root can change it.
func makeInstanceDir(netns uint32, name string) (string, error) {
	if name == "" || strings.ContainsAny(name, "/\x00") {
		return "", fmt.Errorf("router ID %q cannot be used as a file name", name)
	}
	root, err := pins.MakeRoot()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(pins.Dir(root, netns), pins.Escape(name))
	err = os.MkdirAll(dir, 0o700)
	if errors.Is(err, os.ErrPermission) {
		return "", bpfobj.PermissionError("making " + dir)
	}
	if err != nil {
		return "", fmt.Errorf("making %s: %w", dir, err)
	}
	return dir, pins.TrustOwner(dir)
}

// Served takes the server lock for a moment. LockInstance tries several times, so that this does not make an Attach fail.
const (
	lockTries = 20
	lockPause = 5 * time.Millisecond
)

// lockInstance takes the server lock: a second process cannot serve the same instance. The kernel releases the lock when the
// process ends.
func lockInstance(dir, name string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", dir, err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for range lockTries - 1 {
		if !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		time.Sleep(lockPause)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("data plane %s is served by %s: stop that process first", name, trust.HolderName(dir))
		}
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	return f, nil
}

// removeIfEmpty removes the directory of an instance that has no pins.
func removeIfEmpty(dir string) {
	_ = os.Remove(filepath.Join(dir, editsDir))
	_ = os.Remove(dir)
	_ = os.Remove(filepath.Dir(dir))
}

// generations returns the numbers of the numbered directories in dir, the newest first.
func generations(dir string) []int {
	entries, _ := os.ReadDir(dir)
	var gens []int
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && e.IsDir() {
			gens = append(gens, n)
		}
	}
	slices.Sort(gens)
	slices.Reverse(gens)
	return gens
}

// pinGeneration pins the program and its maps in a new numbered directory, and returns the directory.
func (i *Instance) pinGeneration() (gen string, err error) {
	next := 1
	if gens := generations(i.dir); len(gens) > 0 {
		next = gens[0] + 1
	}
	gen = filepath.Join(i.dir, strconv.Itoa(next))
	if err := os.Mkdir(gen, 0o700); err != nil {
		return "", fmt.Errorf("making %s: %w", gen, err)
	}
	defer func() {
		if err != nil {
			os.RemoveAll(gen)
		}
	}()
	for name, m := range i.maps {
		// A shared map gets a second pin; its first one goes with the old generation.
		c, err := m.Clone()
		if err != nil {
			return "", fmt.Errorf("pinning map %s: %w", name, err)
		}
		err = c.Pin(filepath.Join(gen, mapPin(name)))
		c.Close()
		if err != nil {
			return "", fmt.Errorf("pinning map %s: %w", name, err)
		}
	}
	mm, err := i.meta.toMap()
	if err != nil {
		return "", err
	}
	defer mm.Close()
	if err := mm.Pin(filepath.Join(gen, metaMap)); err != nil {
		return "", fmt.Errorf("pinning the description: %w", err)
	}
	prog, err := i.prog.Clone() // Pin of a program that is pinned already would move its pin
	if err != nil {
		return "", fmt.Errorf("pinning the program: %w", err)
	}
	defer prog.Close()
	if err := prog.Pin(filepath.Join(gen, bpfobj.PipelineProgRx)); err != nil {
		return "", fmt.Errorf("pinning the program: %w", err)
	}
	return gen, nil
}

// mapPin returns the name of a map's pin. Bpffs refuses the dot that begins the names of maps of global variables.
func mapPin(name string) string {
	return strings.TrimPrefix(name, ".")
}

// removeOtherGenerations removes all numbered directories in dir but keep, which is a path.
func removeOtherGenerations(dir, keep string) {
	for _, g := range generations(dir) {
		if p := filepath.Join(dir, strconv.Itoa(g)); p != keep {
			os.RemoveAll(p)
		}
	}
}

// openInstance opens the generation that the links in dir run, or the newest one if no link is on an interface. The error
// wraps os.ErrNotExist if there is none.
func openInstance(dir string) (*Instance, error) {
	if err := pins.TrustOwner(dir); err != nil {
		return nil, err
	}
	running := pins.Running(dir)
	rx := lastInChain(dir, running)
	var newest *Instance
	for _, g := range generations(dir) {
		inst, err := openGeneration(dir, filepath.Join(dir, strconv.Itoa(g)))
		if errors.Is(err, os.ErrPermission) {
			return nil, bpfobj.PermissionError("opening the pins of " + filepath.Base(dir))
		}
		if err != nil {
			continue // a process died while it was pinning
		}
		id := pins.ProgramID(inst.prog)
		if id == 0 {
			inst.Close()
			continue
		}
		if running == 0 || id == rx {
			if newest != nil {
				newest.Close()
			}
			return inst, nil
		}
		if newest == nil {
			newest = inst
		} else {
			inst.Close()
		}
	}
	if newest == nil {
		return nil, fmt.Errorf("%s: no data plane: %w", filepath.Base(dir), os.ErrNotExist)
	}
	return newest, nil
}

// openGeneration opens the generation in directory gen of the instance in dir.
func openGeneration(dir, gen string) (*Instance, error) {
	if err := pins.Trust(gen, gen); err != nil {
		return nil, err
	}
	m, err := metaFromPin(filepath.Join(gen, metaMap))
	if err != nil {
		return nil, err
	}
	inst := &Instance{dir: dir, meta: m, maps: make(map[string]*ebpf.Map), mu: new(sync.Mutex)}
	entries, err := os.ReadDir(gen)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(gen, e.Name())
		switch {
		case e.Name() == metaMap || strings.HasPrefix(e.Name(), tracePrefix):
		case e.Name() == bpfobj.PipelineProgRx:
			inst.prog, err = ebpf.LoadPinnedProgram(path, nil)
		default:
			inst.maps[e.Name()], err = ebpf.LoadPinnedMap(path, nil)
		}
		if err != nil {
			inst.Close()
			return nil, fmt.Errorf("opening %s: %w", path, err)
		}
	}
	if inst.prog == nil {
		inst.Close()
		return nil, fmt.Errorf("%s has no program", gen)
	}
	return inst, nil
}
