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

	"culvert/internal/host/netdev"
)

// These are the values of Unattached.Why.
const (
	// Gone says that there is no interface of the name.
	Gone = "gone"
	// Replaced says that the interface was deleted, renamed or moved to another network namespace, and that another one has
	// its name now.
	Replaced = "replaced"
	// Detached says that the interface exists and that the program was detached from it.
	Detached = "detached"
)

// Unattached is an interface that should carry a program and does not.
type Unattached struct {
	Interface string `json:"interface"`
	// Why is Gone, Replaced or Detached.
	Why string `json:"why"`
	// Renamed is the present name of the interface that was attached under this name and still carries the program. It is
	// empty if there is none.
	Renamed string `json:"renamed,omitempty"`
	// Moved says that the interface that was attached under this name is in another network namespace now.
	Moved bool `json:"moved,omitempty"`
}

// NoInterface tells whether it is certain that no interface of this network namespace has the name.
func NoInterface(name string) bool {
	_, err := netlink.LinkByName(name)
	return errors.As(err, &netlink.LinkNotFoundError{})
}

// Interfaces looks interfaces up by name. It returns each once. An interface that does not exist is an error, or left out if
// wait is set. One that is not of Ethernet is an error.
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
		if err := netdev.CheckEthernet(p); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(all, func(q *net.Interface) bool { return q.Index == p.Index }) {
			all = append(all, p)
		}
	}
	return all, nil
}

// Attach attaches a program to an interface that carries none, in native mode or in the kernel's generic mode. The caller
// closes the link, which detaches the program unless the link is pinned.
func Attach(prog *ebpf.Program, p *net.Interface, generic bool) (link.Link, error) {
	flags := link.XDPDriverMode
	if generic {
		flags = link.XDPGenericMode
	}
	l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: p.Index, Flags: flags})
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
		if dev, err := netlink.LinkByIndex(p.Index); err == nil {
			if above := masterOf(dev); above != nil {
				if err := occupied(p.Name, above); err != nil {
					return nil, err
				}
			}
		}
		return nil, fmt.Errorf("attaching to %s: it carries another XDP program: "+
			"see 'ip link show dev %s'", p.Name, p.Name)
	}
	return nil, refusal(prog, p, flags, err)
}

// noNative is a part of the kernel's words for a driver without XDP.
const noNative = "not support XDP in native mode"

// refusal is the error for a program that was not attached because of err, with the kernel's words and where to look.
func refusal(prog *ebpf.Program, p *net.Interface, flags link.XDPAttachFlags, err error) error {
	words := netdev.XDPRefusal(p.Index, prog.FD(), uint32(flags))
	switch {
	case errors.Is(err, unix.EOPNOTSUPP) && (words == "" || strings.Contains(words, noNative)):
		return fmt.Errorf("attaching to %s: its driver has no native XDP: use generic mode (mode = \"generic\") if its speed will do, or another device: see "+
			"'culvert doctor -i %[1]s'", p.Name)
	case words == "":
		return fmt.Errorf("attaching to %s: %w: see 'culvert doctor -i %[1]s'", p.Name, err)
	}
	return fmt.Errorf("attaching to %s: %s (%w): see 'culvert doctor -i %[1]s'", p.Name, words, err)
}

// AttachPinned is Attach with the link pinned at path, so that the program stays attached.
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

// CheckForeign returns an error if an interface carries an XDP program whose link is not pinned in dir.
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
		return fmt.Errorf("interface %s carries XDP program %d already (%s): detach that one first ('culvert doctor -i %[1]s' has the command)",
			p.Name, xdp.ProgId, ownerOf(ebpf.ProgramID(xdp.ProgId)))
	}
	return nil
}

// ProgramID returns the ID of a program, 0 if the kernel does not tell. It reads fdinfo first, since Info asks for details
// of all functions and fails for a program with thousands of them.
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
