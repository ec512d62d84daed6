// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const linkPrefix = "link-"

func linkPath(dir, iface string) string {
	return filepath.Join(dir, linkPrefix+pinName(iface))
}

// linkName is the interface that a pin was made for.
func linkName(path string) string {
	return pinnedName(strings.TrimPrefix(filepath.Base(path), linkPrefix))
}

// linkPins lists the pins of the links in dir.
func linkPins(dir string) []string {
	paths, _ := readLinkPins(dir)
	return paths
}

func readLinkPins(dir string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), linkPrefix) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, err
}

func linkIfindex(l link.Link) int {
	info, err := l.Info()
	if err != nil || info.XDP() == nil {
		return 0
	}
	return int(info.XDP().Ifindex)
}

// nowhere tells whether all links of dir are sure to be attached to nothing any more.
func nowhere(dir string) bool {
	paths, err := readLinkPins(dir)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(paths, func(path string) bool {
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return true
		}
		defer l.Close()
		info, err := l.Info()
		return err != nil || info.XDP() == nil || info.XDP().Ifindex != 0
	})
}

// renamed maps the names of ports to those that they are pinned under, where that is another one:
// the interface has got its name since.
func renamed(dir string, ports []*net.Interface) map[string]string {
	before := make(map[string]string)
	for _, p := range ports {
		if path, ok := pinOn(dir, p.Index); ok && linkName(path) != p.Name {
			before[p.Name] = linkName(path)
		}
	}
	return before
}

// renamePins sees to it that a pin with the name of a port is that port's, which interfaces that
// have changed their names make necessary. What stands in the way makes room; if it is no other
// port's, it is for detachOthers. Undo turns all back.
func renamePins(dir string, ports []*net.Interface) (undo []func(), err error) {
	move := func(from, to string) error {
		if err := os.Rename(from, to); err != nil {
			return fmt.Errorf("renaming the pin of a renamed interface: %w", err)
		}
		undo = append(undo, func() { _ = os.Rename(to, from) })
		return nil
	}
	for _, p := range ports {
		to := linkPath(dir, p.Name)
		from, ok := pinOn(dir, p.Index)
		if ok && from == to {
			continue
		}
		if _, err := os.Lstat(to); err == nil {
			if err := move(to, asidePath(dir)); err != nil {
				return undo, err
			}
		}
		if !ok {
			continue
		}
		if err := move(from, to); err != nil {
			return undo, err
		}
	}
	return undo, nil
}

func runningProgram(dir string) ebpf.ProgramID {
	_, id := runningAt(dir)
	return id
}

// runningAt is runningProgram with the pin of a link that runs it.
func runningAt(dir string) (path string, id ebpf.ProgramID) {
	for _, path := range linkPins(dir) {
		if id := programAt(path); id != 0 {
			return path, id
		}
	}
	return "", 0
}

// programAt is the program that a pinned link runs, 0 if it is attached to nothing or not there.
func programAt(path string) ebpf.ProgramID {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return 0
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil || info.XDP() == nil || info.XDP().Ifindex == 0 {
		return 0
	}
	return info.Program
}

// checkForeign refuses interfaces that carry an XDP program other than this instance's own.
func checkForeign(dir string, ports []*net.Interface) error {
	for _, p := range ports {
		nl, err := netlink.LinkByIndex(p.Index)
		if err != nil {
			return fmt.Errorf("reading interface %s: %w", p.Name, err)
		}
		xdp := nl.Attrs().Xdp
		if xdp == nil || !xdp.Attached {
			continue
		}
		if _, own := pinOn(dir, p.Index); own {
			continue
		}
		return fmt.Errorf("interface %s carries XDP program %d already (%s): detach that one first",
			p.Name, xdp.ProgId, programOwner(ebpf.ProgramID(xdp.ProgId)))
	}
	return nil
}

// programOwner says whose program it is, as well as the kernel can tell.
func programOwner(id ebpf.ProgramID) string {
	all, _ := List()
	defer closeAll(all)
	for _, i := range all {
		if programID(i.prog) == id || filterGeneration(i.dir, id) != 0 {
			return "culvert's router " + i.Name()
		}
	}
	if isDecap(id) {
		return "of 'culvert lb decap'"
	}
	if p, err := ebpf.NewProgramFromID(id); err == nil {
		defer p.Close()
		if info, err := p.Info(); err == nil && info.Name != "" {
			return "named " + info.Name
		}
	}
	return "not culvert's"
}

// detachLink detaches at once, whoever else holds the link open.
func detachLink(path string) error {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return fmt.Errorf("opening %s: %w", path, err)
	}
	defer l.Close()
	if err := l.Detach(); err != nil && !errors.Is(err, unix.ENOLINK) {
		return fmt.Errorf("detaching %s: %w", filepath.Base(path), err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	return nil
}
