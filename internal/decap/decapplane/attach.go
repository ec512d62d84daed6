// SPDX-License-Identifier: Apache-2.0

package decapplane

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"culvert/internal/bpfobj"
	"culvert/internal/host/pins"
)

/*
Pins are <bpffs>/culvert/<inode of the network namespace>/%decap/link-<interface>. The name of the directory is reserved
(pins.Reserved). Only the link is pinned: it holds the program, and the program holds its maps, the one with the options
included. So the pins always agree with what runs.
*/
const pinDir = "%decap"

// dirOf returns the directory of the pins for a network namespace, given its inode number.
func dirOf(root string, inode uint32) string { return filepath.Join(pins.Dir(root, inode), pinDir) }

// Attach attaches ends of tunnels to interfaces. Where one is attached already, a program with the new options replaces it
// atomically, and its counters go on. On an error nothing has changed.
func Attach(interfaces []string, o Options) error {
	ports, err := pins.Interfaces(interfaces, false)
	if err != nil {
		return err
	}
	here, err := pins.Here()
	if err != nil {
		return err
	}
	root, err := pins.MakeRoot()
	if err != nil {
		return err
	}
	dir := dirOf(root, here.Inode)
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	if err := pins.CheckForeign(dir, ports); err != nil {
		return err
	}
	for _, p := range ports {
		if len(p.HardwareAddr) != 6 {
			return noEthernet(p.Name)
		}
		if err := checkMode(dir, p, o.Generic); err != nil {
			return err
		}
	}
	if len(o.Local) == 0 {
		if o.Local, err = hostAddrs(); err != nil {
			return err
		}
		o.OwnLocal = true
	}
	var undo []func()
	for _, p := range ports {
		back, err := attachOne(dir, p, o)
		if err != nil {
			for _, u := range slices.Backward(undo) {
				u()
			}
			return err
		}
		undo = append(undo, back)
	}
	return nil
}

// lock keeps other processes from attaching and detaching below dir. Unlock removes dir if it is empty.
func lock(dir string) (unlock func(), err error) {
	unlock, err = pins.WaitForLock(func() (func(), error) { return tryLock(dir) })
	if err == nil && unlock == nil {
		err = fmt.Errorf("another command has been attaching or detaching for %v: try again when it has ended", pins.LockWait)
	}
	return unlock, err
}

// tryLock is lock without waiting: unlock is nil if another process has the lock.
func tryLock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil && !errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("making %s: %w", filepath.Dir(dir), err)
	}
	if err := pins.TrustOwner(dir); err != nil {
		return nil, err
	}
	f, err := pins.TryLock(dir)
	if errors.Is(err, pins.ErrGone) { // another process has just removed the parent
		err = nil
	}
	if f == nil || err != nil {
		return nil, err
	}
	return func() {
		_ = os.Remove(dir)
		_ = os.Remove(filepath.Dir(dir))
		f.Close()
	}, nil
}

// attachOne attaches to one interface, or replaces the program there. Undo reverses it.
func attachOne(dir string, dev *net.Interface, o Options) (undo func(), err error) {
	path, running := pins.On(dir, dev.Index)
	if running {
		return swap(path, dev, o)
	}
	// A pin of that name may be left of an interface that was deleted, whose counters go on, or belong to one that was renamed
	// or moved to another network namespace.
	path = pins.LinkPath(dir, dev.Name)
	dead, back, err := makeRoom(dir, path)
	if err != nil {
		return nil, err
	}
	var counters *ebpf.Map
	if dead != nil {
		if before, err := open(dead); err == nil {
			before.prog.Close()
			counters = before.counters
			defer counters.Close()
		}
	}
	if err := attachNew(path, dev, o, counters); err != nil {
		back()
		return nil, err
	}
	return func() {
		_ = pins.Detach(path)
		back()
	}, nil
}

// attachNew attaches to an interface that carries nothing.
func attachNew(path string, dev *net.Interface, o Options, counters *ebpf.Map) error {
	p, err := load(dev, o, counters)
	if err != nil {
		return err
	}
	defer p.close()
	return pins.AttachPinned(p.prog, dev, o.Generic, path)
}

// swap replaces the program of a link. The new program shares the counters of the old one. Undo reverses it.
func swap(path string, dev *net.Interface, o Options) (undo func(), err error) {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	defer l.Close()
	before, err := open(l)
	if err != nil {
		return nil, fmt.Errorf("reading what runs on %s: %w", dev.Name, err)
	}
	defer before.counters.Close()
	p, err := load(dev, o, before.counters)
	if err == nil {
		err = l.Update(p.prog)
		p.close()
	}
	if err != nil {
		before.prog.Close()
		return nil, fmt.Errorf("swapping the program on %s: %w", dev.Name, err)
	}
	return func() {
		if l, err := link.LoadPinnedLink(path, nil); err == nil {
			_ = l.Update(before.prog)
			l.Close()
		}
	}, nil
}

// makeRoom makes room for a new pin at path, as pins.MoveAside does. If the link there is on no interface, makeRoom unpins and
// returns it, for its counters.
func makeRoom(dir, path string) (dead link.Link, undo func(), err error) {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil || pins.Ifindex(l) != 0 {
		if err == nil {
			l.Close()
		}
		undo, err = pins.MoveAside(dir, path)
		return nil, undo, err
	}
	if err := l.Unpin(); err != nil {
		l.Close()
		return nil, nil, fmt.Errorf("making room for a pin: %w", err)
	}
	return l, func() { _ = l.Pin(path) }, nil
}

// checkMode refuses to change between native and generic mode, which the kernel cannot do in one atomic step.
func checkMode(dir string, dev *net.Interface, generic bool) error {
	if _, running := pins.On(dir, dev.Index); !running {
		return nil
	}
	is, err := xdpGeneric(dev)
	if err != nil || is == generic {
		return err
	}
	mode := map[bool]string{false: "native", true: "generic"}
	return fmt.Errorf("interface %s has it in %s mode: to attach it in %s mode, take it off first (culvert lb decap del %[1]s)",
		dev.Name, mode[is], mode[generic])
}

// xdpGeneric tells whether the program on an interface is attached in generic mode.
func xdpGeneric(dev *net.Interface) (bool, error) {
	l, err := netlink.LinkByIndex(dev.Index)
	if err != nil {
		return false, fmt.Errorf("reading interface %s: %w", dev.Name, err)
	}
	xdp := l.Attrs().Xdp
	return xdp != nil && xdp.AttachMode == nl.XDP_ATTACHED_SKB, nil
}

// Detach detaches the end of tunnels from an interface of this network namespace, or from one that was moved out of it. If the
// interface was deleted, Detach removes the pin. It returns false if there is no end of tunnels.
func Detach(iface string) (bool, error) {
	dir, ok, err := dirHere()
	if err != nil || !ok {
		return false, err
	}
	unlock, err := lock(dir)
	if err != nil {
		return false, err
	}
	defer unlock()
	if dev, err := net.InterfaceByName(iface); err == nil {
		if path, ok := pins.On(dir, dev.Index); ok {
			return true, pins.Detach(path)
		}
	}
	path := pins.LinkPath(dir, iface)
	if _, err := os.Lstat(path); err != nil || pins.At(dir, path).Now != "" {
		return false, nil
	}
	if err := os.Remove(path); err != nil {
		return false, fmt.Errorf("removing %s: %w", path, err)
	}
	return true, nil
}

// Forget removes the pins of ends of tunnels whose interfaces were deleted, in all network namespaces.
func Forget() error {
	root, ok, err := pins.Root()
	if !ok || err != nil {
		return err
	}
	dirs, err := filepath.Glob(filepath.Join(root, "*", pinDir))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := forgetIn(dir); err != nil {
			return err
		}
	}
	return nil
}

// forgetIn is Forget for one directory of pins.
func forgetIn(dir string) error {
	unlock, err := lock(dir)
	if err != nil {
		return err
	}
	defer unlock()
	for _, path := range pins.Links(dir) {
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			continue
		}
		info, err := l.Info()
		l.Close()
		if err == nil && info.XDP() != nil && info.XDP().Ifindex == 0 {
			if err := os.Remove(path); err != nil {
				return fmt.Errorf("removing %s: %w", path, err)
			}
		}
	}
	return nil
}

// dirHere returns the directory of the pins of this network namespace; false if there is none.
func dirHere() (string, bool, error) {
	root, ok, err := pins.Root()
	if !ok || err != nil {
		return "", false, err
	}
	here, err := pins.Here()
	if err != nil {
		return "", false, err
	}
	dir := dirOf(root, here.Inode)
	_, err = os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", false, nil
	case errors.Is(err, os.ErrPermission):
		return "", false, bpfobj.PermissionError("reading " + root)
	case err != nil:
		return "", false, fmt.Errorf("reading %s: %w", dir, err)
	}
	return dir, true, pins.TrustOwner(dir)
}

func init() { pins.RegisterOwner(pins.Owner{Whose: whose, Ports: ports}) }

// whose describes the owner of a program (pins.Owner).
func whose(id ebpf.ProgramID) string {
	if isEnd(id) {
		return "of 'culvert lb decap'"
	}
	return ""
}

// isEnd tells whether a program is the end of tunnels on an interface of this machine.
func isEnd(id ebpf.ProgramID) bool {
	root, ok, err := pins.Root()
	if !ok || err != nil {
		return false
	}
	dirs, _ := filepath.Glob(filepath.Join(root, "*", pinDir))
	for _, dir := range dirs {
		if pins.TrustOwner(dir) != nil {
			continue // anybody may have pinned there
		}
		for _, path := range pins.Links(dir) {
			l, err := link.LoadPinnedLink(path, nil)
			if err != nil {
				continue
			}
			info, err := l.Info()
			l.Close()
			if err == nil && info.Program == id {
				return true
			}
		}
	}
	return false
}
