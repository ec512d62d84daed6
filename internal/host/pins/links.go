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

// LinkPath returns the path of the pin for the link of an interface.
func LinkPath(dir, iface string) string {
	return filepath.Join(dir, linkPrefix+Escape(iface))
}

// LinkName returns the name of the interface that a pin was made for.
func LinkName(path string) string {
	return Unescape(strings.TrimPrefix(filepath.Base(path), linkPrefix))
}

// Links returns the paths of the links pinned in dir.
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

// Ifindex returns the index of the interface that a link is on. It is 0 if the interface was deleted or the link is not of XDP.
func Ifindex(l link.Link) int {
	info, err := l.Info()
	if err != nil || info.XDP() == nil {
		return 0
	}
	return int(info.XDP().Ifindex)
}

// Nowhere tells whether it is certain that no link in dir is on an interface.
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

// Renamed returns the ports that were renamed since their links were pinned: the former name by the present one.
func Renamed(dir string, ports []*net.Interface) map[string]string {
	renamed := make(map[string]string)
	for _, p := range ports {
		if path, ok := On(dir, p.Index); ok && LinkName(path) != p.Name {
			renamed[p.Name] = LinkName(path)
		}
	}
	return renamed
}

// Rename renames pins after their interfaces, so that the pin with the name of a port is that of the port's link. A pin of
// another interface that has the name gets a reserved one; if that interface is not among ports the caller has to remove the
// pin. Undo holds a function for each step, also if there is an error; the caller calls them in reverse order.
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

// Running returns the ID of the program that the links in dir run, 0 if none of them is on an interface.
func Running(dir string) ebpf.ProgramID {
	_, id := RunningAt(dir)
	return id
}

// RunningAt is Running with the path of a link that runs the program.
func RunningAt(dir string) (path string, id ebpf.ProgramID) {
	for _, path := range Links(dir) {
		if id := ProgramAt(path); id != 0 {
			return path, id
		}
	}
	return "", 0
}

// ProgramAt returns the ID of the program that a pinned link runs, 0 if there is no such pin or its link is on no interface.
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

// Detach detaches the program and removes the pin, also if another process has the link open.
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

// Index is Ifindex for a pinned link, 0 if there is no such pin.
func Index(path string) int {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return 0
	}
	defer l.Close()
	return Ifindex(l)
}
