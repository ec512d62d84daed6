// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Why an interface that something is to be attached to does not carry it.
const (
	// Gone: there is no interface of that name.
	Gone = "gone"
	// Replaced: it was deleted, renamed or moved to another network namespace, and there is another one of its name.
	Replaced = "replaced"
	// Detached: it is there, and the program was taken off it.
	Detached = "detached"
)

// Unattached is an interface that something was attached to, or was to be, and is not.
type Unattached struct {
	Interface string `json:"interface"`
	// Why is Gone, Replaced or Detached.
	Why string `json:"why"`
	// Renamed is what the interface is called now that carries it in the place of the one of that name.
	Renamed string `json:"renamed,omitempty"`
	// Moved tells that the one that carries it is in another network namespace now.
	Moved bool `json:"moved,omitempty"`
}

// NoInterface tells whether it is certain that no interface of this network namespace has the name.
func NoInterface(name string) bool {
	_, err := netlink.LinkByName(name)
	return errors.As(err, &netlink.LinkNotFoundError{})
}

// Interfaces looks interfaces up, so that a wrong name is found before anything is touched. With wait those that do not
// exist are left out.
func Interfaces(names []string, wait bool) ([]*net.Interface, error) {
	if len(names) == 0 {
		return nil, errors.New("no interfaces to attach to: name at least one")
	}
	var all []*net.Interface
	for _, name := range names {
		p, err := net.InterfaceByName(name)
		if err != nil && wait && NoInterface(name) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("interface %s does not exist: see 'ip link'", name)
		}
		if !slices.ContainsFunc(all, func(q *net.Interface) bool { return q.Index == p.Index }) {
			all = append(all, p)
		}
	}
	return all, nil
}

// Attach attaches a program to an interface that carries none, in the kernel's generic mode for drivers without native
// XDP.
func Attach(prog *ebpf.Program, p *net.Interface, generic bool) (link.Link, error) {
	flags := link.XDPDriverMode
	if generic {
		flags = link.XDPGenericMode
	}
	l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: p.Index, Flags: flags})
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return nil, fmt.Errorf("attaching to %s: its driver has no native XDP: "+
			"use generic mode if its speed will do", p.Name)
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		return nil, fmt.Errorf("attaching to %s: it carries another XDP program: "+
			"see 'ip link show dev %s'", p.Name, p.Name)
	case err != nil:
		return nil, fmt.Errorf("attaching to %s: %w", p.Name, err)
	}
	return l, nil
}

// AttachPinned is Attach with a link that is pinned, and stays.
func AttachPinned(prog *ebpf.Program, p *net.Interface, generic bool, path string) error {
	l, err := Attach(prog, p, generic)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := l.Pin(path); err != nil {
		return fmt.Errorf("pinning the link of %s to %s: %w", p.Name, path, err)
	}
	return nil
}

// CheckForeign refuses interfaces that carry an XDP program other than one that is pinned in dir.
func CheckForeign(dir string, ports []*net.Interface) error {
	for _, p := range ports {
		nl, err := netlink.LinkByIndex(p.Index)
		if err != nil {
			return fmt.Errorf("reading interface %s: %w", p.Name, err)
		}
		xdp := nl.Attrs().Xdp
		if xdp == nil || !xdp.Attached {
			continue
		}
		if _, own := On(dir, p.Index); own {
			continue
		}
		return fmt.Errorf("interface %s carries XDP program %d already (%s): detach that one first",
			p.Name, xdp.ProgId, ownerOf(ebpf.ProgramID(xdp.ProgId)))
	}
	return nil
}

// ProgramID is 0 if the kernel does not tell. It does not ask for all there is to know: of a program with thousands of
// functions that is more than the kernel gives out.
func ProgramID(prog *ebpf.Program) ebpf.ProgramID {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", prog.FD()))
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, "prog_id:"); ok {
				if id, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32); err == nil {
					return ebpf.ProgramID(id)
				}
			}
		}
	}
	if info, err := prog.Info(); err == nil {
		if id, ok := info.ID(); ok {
			return id
		}
	}
	return 0
}
