// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// asidePrefix begins the name of a pin that has made room for another one. pinName gives it to no interface.
const asidePrefix = "%old"

// pin is the pin of a link, and where the link is.
type pin struct {
	path string
	// name is the interface that it was made for.
	name string
	// index is that of the interface that the link is on, in the network namespace which that is in; 0 if it is gone.
	index int
	// now is what the interface is called in the network namespace of the calling thread, "" if it is not there.
	now string
}

// readPin finds out where a link is. All that the kernel tells of it is an index, and not in which network namespace: an
// interface that was moved to another one keeps its link, and may have the index of one that is here. So the one here
// has to carry the program too.
func readPin(path string) pin {
	p := pin{path: path, name: linkName(path)}
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return p
	}
	defer l.Close()
	info, err := l.Info()
	for err == nil && info.XDP() != nil {
		p.index = int(info.XDP().Ifindex)
		if p.index == 0 {
			return p
		}
		dev, missing := netlink.LinkByIndex(p.index)
		if missing == nil && carries(dev.Attrs().Xdp, info) {
			p.now = dev.Attrs().Name
			return p
		}
		before := info.Program
		if info, err = l.Info(); err == nil && info.Program == before {
			return p // else the program was swapped meanwhile
		}
	}
	return p
}

func carries(xdp *netlink.LinkXdp, l *link.Info) bool {
	// The kernel names no program where one is offloaded besides.
	return xdp != nil && xdp.Attached && (xdp.ProgId == 0 || xdp.ProgId == uint32(l.Program))
}

// readPins finds out where the links of dir are. No two are on the same interface here.
func readPins(dir string) []pin {
	var pins []pin
	for _, path := range linkPins(dir) {
		pins = append(pins, readPin(path))
	}
	// One of those that seem to be is in another network namespace: rather that whose interface has another name.
	claim := func(p pin) int {
		switch {
		case p.name == p.now:
			return 0
		case !strings.HasPrefix(p.name, asidePrefix):
			return 1
		}
		return 2
	}
	best := make(map[int]int)
	for n, p := range pins {
		if p.now == "" {
			continue
		}
		if m, taken := best[p.index]; !taken || claim(p) < claim(pins[m]) {
			best[p.index] = n
		}
	}
	for n, p := range pins {
		if p.now != "" && best[p.index] != n {
			pins[n].now = ""
		}
	}
	return pins
}

// pinAt finds out where a link of dir is, and that of no other is there.
func pinAt(dir, path string) pin {
	for _, p := range readPins(dir) {
		if p.path == path {
			return p
		}
	}
	return pin{path: path, name: linkName(path)}
}

// pinOn finds the link of dir that is on a device of this network namespace, whatever the device was called when it was
// pinned.
func pinOn(dir string, ifindex int) (path string, ok bool) {
	for _, p := range readPins(dir) {
		if p.now != "" && p.index == ifindex {
			return p.path, true
		}
	}
	return "", false
}

// livePins are the links of the instance that are on an interface, by the name that the interface goes by: the one that
// it was attached with, also when it has another one now, as long as no other interface has it. Of an instance in another
// network namespace no more is known than that there is an interface.
func (i *Instance) livePins() map[string]pin {
	live := make(map[string]pin)
	if !i.Here() {
		for _, path := range linkPins(i.dir) {
			if on := pinnedOn(path); on != 0 {
				live[linkName(path)] = pin{path: path, name: linkName(path), index: on}
			}
		}
		return live
	}
	for _, p := range readPins(i.dir) {
		switch {
		case p.now == "":
		case p.name == p.now, slices.Contains(i.meta.Attached, p.now),
			strings.HasPrefix(p.name, asidePrefix), !NoInterface(p.name):
			live[p.now] = p
		default:
			live[p.name] = p
		}
	}
	return live
}

// portIndexes gives the index of each interface that the instance was told to be on: of the one that carries it for that
// name, whatever that is called now, else of the one that has the name, if there is one.
func (i *Instance) portIndexes() map[string]int {
	all := make(map[string]int)
	live := i.livePins()
	byPath := make(map[string]int)
	for _, p := range live {
		byPath[p.path] = p.index
	}
	for _, name := range i.meta.Attached {
		p, on := live[name]
		before, still := byPath[linkPath(i.dir, name)] // while another one has the name, and is not attached to yet
		switch {
		case on:
			all[name] = p.index
		case still:
			all[name] = before
		default:
			if dev, err := net.InterfaceByName(name); err == nil {
				all[name] = dev.Index
			}
		}
	}
	return all
}

// moveAside makes room for a pin: that of a link which is on no interface any more is removed, another one gets the name
// that its interface has now, and stays in force. Undo brings back what was moved.
func moveAside(dir, path string) (undo func(), err error) {
	undo = func() {}
	if _, err := os.Lstat(path); err != nil {
		return undo, nil
	}
	p := pinAt(dir, path)
	if p.index == 0 {
		if err := os.Remove(path); err != nil {
			return undo, fmt.Errorf("removing %s: %w", path, err)
		}
		return undo, nil
	}
	to := asidePath(dir)
	if p.now != "" && p.now != p.name {
		to = linkPath(dir, p.now)
		if _, err := os.Lstat(to); err == nil && pinnedOn(to) == 0 {
			_ = os.Remove(to)
		}
		if _, err := os.Lstat(to); !errors.Is(err, os.ErrNotExist) {
			to = asidePath(dir)
		}
	}
	if err := os.Rename(path, to); err != nil {
		return undo, fmt.Errorf("making room for a pin: %w", err)
	}
	return func() { _ = os.Rename(to, path) }, nil
}

// asidePath is where no pin is yet: renaming to where one is would take its link off.
func asidePath(dir string) string {
	for n := 0; ; n++ {
		path := filepath.Join(dir, linkPrefix+asidePrefix+strconv.Itoa(n))
		if _, err := os.Lstat(path); err != nil {
			return path
		}
	}
}
