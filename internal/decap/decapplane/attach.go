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
Pins: <bpffs>/culvert/<inode of the network namespace>/%decap/link-<interface>, in a directory of a name that no data
plane's has (pins.Reserved). The link is all: it holds the program, the program its maps, among them the options. So there is no moment at
which what is pinned and what runs are not the same.
*/
const pinDir = "%decap"

// dirOf is the directory of the pins in the network namespace of an inode.
func dirOf(root string, inode uint32) string { return filepath.Join(pins.Dir(root, inode), pinDir) }

// Attach attaches the end of the tunnels to interfaces, or puts other options in force where it is attached: at
// once, and counters stay. Either all interfaces carry it in the end or nothing has changed.
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

// lock lets nobody else attach or detach below dir. What is empty in the end is removed.
func lock(dir string) (unlock func(), err error) {
	unlock, err = pins.WaitForLock(func() (func(), error) { return tryLock(dir) })
	if err == nil && unlock == nil {
		err = fmt.Errorf("another command has been attaching or detaching for %v: try again when it has ended", pins.LockWait)
	}
	return unlock, err
}

// tryLock is lock that does not wait: unlock is nil if somebody else has the lock.
func tryLock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil && !errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("making %s: %w", filepath.Dir(dir), err)
	}
	if err := pins.TrustOwner(dir); err != nil {
		return nil, err
	}
	f, err := pins.TryLock(dir)
	if errors.Is(err, pins.ErrGone) { // another one has removed the parent just now
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

// attachOne attaches to one interface, in the place of what runs there already. undo turns that back.
func attachOne(dir string, dev *net.Interface, o Options) (undo func(), err error) {
	path, running := pins.On(dir, dev.Index)
	if running {
		return swap(path, dev, o)
	}
	// A pin of that name is left of a device that has gone, whose counters stay, or of one with another name or in
	// another network namespace now.
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

// swap puts another program behind a link, with the counters of the one that runs.
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

// makeRoom makes room for a pin, as moveAside does, but a link that is on no interface any more is returned, open.
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

// checkMode refuses to change the mode of what is attached: no atomic swap leads from one to the other.
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

func xdpGeneric(dev *net.Interface) (bool, error) {
	l, err := netlink.LinkByIndex(dev.Index)
	if err != nil {
		return false, fmt.Errorf("reading interface %s: %w", dev.Name, err)
	}
	xdp := l.Attrs().Xdp
	return xdp != nil && xdp.AttachMode == nl.XDP_ATTACHED_SKB, nil
}

// Detach takes the end of the tunnels off an interface of this network namespace, or of one that was moved out of it,
// and forgets that of one that was deleted. It returns false if there is none.
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

// Forget removes what is left, in whatever network namespace, of ends of tunnels whose interfaces have gone.
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
			continue // anybody's pins
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
