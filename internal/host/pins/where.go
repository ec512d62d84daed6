// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
)

// asidePrefix begins the name of a pin that has made room for another one. Escape gives it to no interface.
const asidePrefix = "%old"

// Pin is the pin of a link, and where the link is.
type Pin struct {
	Path string
	// Name is the interface that it was made for.
	Name string
	// Index is that of the interface that the link is on, in the network namespace which that is in; 0 if it is gone.
	Index int
	// Now is what the interface is called in the network namespace of the calling thread, "" if it is not there.
	Now string
}

// Aside tells whether the pin has made room for another one: which interface it was made for is not known any more.
func (p Pin) Aside() bool { return strings.HasPrefix(p.Name, asidePrefix) }

// readPin finds out where a link is. All that the kernel tells of it is an index, and not in which network namespace: an
// interface that was moved to another one keeps its link, and may have the index of one that is here. So the one here
// has to carry the program too.
func readPin(path string) Pin {
	p := Pin{Path: path, Name: LinkName(path)}
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return p
	}
	defer l.Close()
	info, err := l.Info()
	for err == nil && info.XDP() != nil {
		p.Index = int(info.XDP().Ifindex)
		if p.Index == 0 {
			return p
		}
		dev, missing := netlink.LinkByIndex(p.Index)
		if missing == nil && carries(dev.Attrs().Xdp, info) {
			p.Now = dev.Attrs().Name
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

// Read finds out where the links of dir are. No two are on the same interface here.
func Read(dir string) []Pin {
	var pins []Pin
	for _, path := range Links(dir) {
		pins = append(pins, readPin(path))
	}
	// One of those that seem to be is in another network namespace: rather that whose interface has another name.
	claim := func(p Pin) int {
		switch {
		case p.Name == p.Now:
			return 0
		case !p.Aside():
			return 1
		}
		return 2
	}
	best := make(map[int]int)
	for n, p := range pins {
		if p.Now == "" {
			continue
		}
		if m, taken := best[p.Index]; !taken || claim(p) < claim(pins[m]) {
			best[p.Index] = n
		}
	}
	for n, p := range pins {
		if p.Now != "" && best[p.Index] != n {
			pins[n].Now = ""
		}
	}
	return pins
}

// At finds out where a link of dir is, and that of no other is there.
func At(dir, path string) Pin {
	for _, p := range Read(dir) {
		if p.Path == path {
			return p
		}
	}
	return Pin{Path: path, Name: LinkName(path)}
}

// On finds the link of dir that is on a device of this network namespace, whatever the device was called when it was
// pinned.
func On(dir string, ifindex int) (path string, ok bool) {
	for _, p := range Read(dir) {
		if p.Now != "" && p.Index == ifindex {
			return p.Path, true
		}
	}
	return "", false
}

// MoveAside makes room for a pin: that of a link which is on no interface any more is removed, another one gets the name
// that its interface has now, and stays in force. Undo brings back what was moved.
func MoveAside(dir, path string) (undo func(), err error) {
	undo = func() {}
	if _, err := os.Lstat(path); err != nil {
		return undo, nil
	}
	p := At(dir, path)
	if p.Index == 0 {
		if err := os.Remove(path); err != nil {
			return undo, fmt.Errorf("removing %s: %w", path, err)
		}
		return undo, nil
	}
	to := asidePath(dir)
	if p.Now != "" && p.Now != p.Name {
		to = LinkPath(dir, p.Now)
		if _, err := os.Lstat(to); err == nil && Index(to) == 0 {
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
