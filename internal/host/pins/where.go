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

// asidePrefix begins the reserved name of a pin that was moved aside.
const asidePrefix = "%old"

// Pin is the pin of a link, with the interface that the link is on.
type Pin struct {
	Path string
	// Name is the name of the interface that the pin was made for.
	Name string
	// Index is the index of the interface that the link is on, in that interface's network namespace. It is 0 if the interface
	// was deleted.
	Index int
	// Now is the present name of the interface, "" if it is not in the network namespace of the calling thread.
	Now string
}

// Aside tells whether the pin was moved aside for another one. Its Name is not that of an interface then.
func (p Pin) Aside() bool { return strings.HasPrefix(p.Name, asidePrefix) }

// readPin finds the interface that a pinned link is on. The kernel tells its index but not its network namespace. An interface
// that was moved to another namespace keeps its link and may have the index of an interface here. So the interface here counts
// only if it carries the link's program.
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
			return p // it is in another namespace; otherwise the program was swapped meanwhile
		}
	}
	return p
}

// carries tells whether an interface carries the program of a link.
func carries(xdp *netlink.LinkXdp, l *link.Info) bool {
	// The kernel gives no program ID if a second program is offloaded to the device.
	return xdp != nil && xdp.Attached && (xdp.ProgId == 0 || xdp.ProgId == uint32(l.Program))
}

// Read returns the pins of all links in dir. No two have the same interface in Now.
func Read(dir string) []Pin {
	var pins []Pin
	for _, path := range Links(dir) {
		pins = append(pins, readPin(path))
	}
	// If two links have the index of one interface here, one of them is in another network namespace. The lower rank wins.
	rank := func(p Pin) int {
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
		if m, taken := best[p.Index]; !taken || rank(p) < rank(pins[m]) {
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

// At returns the pin of one link in dir, as Read does.
func At(dir, path string) Pin {
	for _, p := range Read(dir) {
		if p.Path == path {
			return p
		}
	}
	return Pin{Path: path, Name: LinkName(path)}
}

// On returns the path of the link in dir that is on an interface of this network namespace, given by its index. It is false if
// there is none.
func On(dir string, ifindex int) (path string, ok bool) {
	for _, p := range Read(dir) {
		if p.Now != "" && p.Index == ifindex {
			return p.Path, true
		}
	}
	return "", false
}

// MoveAside makes room for a new pin at path. A pin there whose link is on no interface is removed. Otherwise the pin is renamed
// after the present name of its interface, or to a reserved name, and the link stays in force. Undo reverses the renaming.
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

// asidePath returns a reserved path in dir that is free. Renaming to a path in use would remove the pin there, and so detach
// its program.
func asidePath(dir string) string {
	for n := 0; ; n++ {
		path := filepath.Join(dir, linkPrefix+asidePrefix+strconv.Itoa(n))
		if _, err := os.Lstat(path); err != nil {
			return path
		}
	}
}
