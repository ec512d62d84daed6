// SPDX-License-Identifier: Apache-2.0

package pins

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
	"golang.org/x/sys/unix"
)

const linkPrefix = "link-"

// LinkPath is where the link of an interface is pinned.
func LinkPath(dir, iface string) string {
	return filepath.Join(dir, linkPrefix+Escape(iface))
}

// LinkName is the interface that a pin was made for.
func LinkName(path string) string {
	return Unescape(strings.TrimPrefix(filepath.Base(path), linkPrefix))
}

// Links lists the pins of the links in dir.
func Links(dir string) []string {
	paths, _ := readLinks(dir)
	return paths
}

func readLinks(dir string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), linkPrefix) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, err
}

// Ifindex is the index of the interface that a link is on, 0 if that has gone, or if it is no link of XDP.
func Ifindex(l link.Link) int {
	info, err := l.Info()
	if err != nil || info.XDP() == nil {
		return 0
	}
	return int(info.XDP().Ifindex)
}

// Nowhere tells whether all links of dir are sure to be attached to nothing any more.
func Nowhere(dir string) bool {
	paths, err := readLinks(dir)
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

// Renamed maps the names of ports to those that they are pinned under, where that is another one:
// the interface has got its name since.
func Renamed(dir string, ports []*net.Interface) map[string]string {
	before := make(map[string]string)
	for _, p := range ports {
		if path, ok := On(dir, p.Index); ok && LinkName(path) != p.Name {
			before[p.Name] = LinkName(path)
		}
	}
	return before
}

// Rename sees to it that a pin with the name of a port is that port's, which interfaces that
// have changed their names make necessary. What stands in the way makes room; if it is no other
// port's, it is for the caller. Undo turns all back.
func Rename(dir string, ports []*net.Interface) (undo []func(), err error) {
	move := func(from, to string) error {
		if err := os.Rename(from, to); err != nil {
			return fmt.Errorf("renaming the pin of a renamed interface: %w", err)
		}
		undo = append(undo, func() { _ = os.Rename(to, from) })
		return nil
	}
	for _, p := range ports {
		to := LinkPath(dir, p.Name)
		from, ok := On(dir, p.Index)
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

// Running is the program that the links of dir run, 0 if none of them is on an interface.
func Running(dir string) ebpf.ProgramID {
	_, id := RunningAt(dir)
	return id
}

// RunningAt is Running with the pin of a link that runs it.
func RunningAt(dir string) (path string, id ebpf.ProgramID) {
	for _, path := range Links(dir) {
		if id := ProgramAt(path); id != 0 {
			return path, id
		}
	}
	return "", 0
}

// ProgramAt is the program that a pinned link runs, 0 if it is attached to nothing or not there.
func ProgramAt(path string) ebpf.ProgramID {
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

// Detach detaches at once, whoever else holds the link open.
func Detach(path string) error {
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

// Index is the index of the interface that a pinned link is on, 0 if that has gone.
func Index(path string) int {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return 0
	}
	defer l.Close()
	return Ifindex(l)
}
