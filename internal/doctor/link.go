// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"io/fs"
	"net"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func isUp(l netlink.Link) bool       { return l.Attrs().Flags&net.FlagUp != 0 }
func hasCarrier(l netlink.Link) bool { return l.Attrs().RawFlags&unix.IFF_LOWER_UP != 0 }
func isLoopback(l netlink.Link) bool { return l.Attrs().Flags&net.FlagLoopback != 0 }

// program is an XDP program attached to an interface.
type program struct {
	id   uint32
	name string
	// mode is the mode in words of ip-link(8): xdp (native), xdpgeneric or xdpoffload.
	mode string
	// link is the ID of the BPF link that attaches it, 0 if it was attached without one or the link is not known.
	link uint32
	// pin is the path where that link is pinned, "" if it is not pinned or the path is not known.
	pin string
	// holders are the processes that have the program open, as "comm[pid]".
	holders []string
}

// ours tells whether culvert attached the program. Culvert pins its links in a directory of its own.
func (p *program) ours() bool {
	for _, root := range bpffsRoots() {
		if strings.HasPrefix(p.pin, filepath.Join(root, "culvert")+"/") {
			return true
		}
	}
	return false
}

// attachModes has the words of ip-link(8) for the values of IFLA_XDP_ATTACHED.
var attachModes = map[uint32]string{1: "xdp", 2: "xdpgeneric", 3: "xdpoffload", 4: "xdp"}

func readProgram(a *netlink.LinkAttrs) *program {
	if a.Xdp == nil || !a.Xdp.Attached {
		return nil
	}
	p := &program{id: a.Xdp.ProgId, mode: attachModes[a.Xdp.AttachMode]}
	// What follows needs CAP_SYS_ADMIN. Without it the name of the program is not known.
	prog, err := ebpf.NewProgramFromID(ebpf.ProgramID(p.id))
	if err != nil {
		return p
	}
	defer prog.Close()
	if info, err := prog.Info(); err == nil {
		p.name = info.Name
	}
	// This process must not be among the holders that are looked for below.
	prog.Close()
	if p.link = linkOf(p.id, a.Index); p.link != 0 {
		p.pin = pinOf(p.link)
	}
	if !p.ours() {
		p.holders = holders(p.id)
	}
	return p
}

// linkOf returns the ID of the BPF link by which the program is attached to the interface, 0 if there is none.
func linkOf(programID uint32, ifindex int) uint32 {
	var it link.Iterator
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err != nil || uint32(info.Program) != programID {
			continue
		}
		if x := info.XDP(); x != nil && x.Ifindex == uint32(ifindex) {
			return uint32(info.ID)
		}
	}
	return 0
}

// pinOf returns the path where a BPF link is pinned, "" if it is not.
func pinOf(id uint32) string {
	for _, root := range bpffsRoots() {
		found := ""
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil
			}
			// Most pins are maps and programs, which do not open as a link.
			l, err := link.LoadPinnedLink(path, nil)
			if err != nil {
				return nil
			}
			defer l.Close()
			if info, err := l.Info(); err == nil && uint32(info.ID) == id {
				found = path
				return fs.SkipAll
			}
			return nil
		})
		if found != "" {
			return found
		}
	}
	return ""
}
