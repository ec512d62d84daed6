// SPDX-License-Identifier: Apache-2.0

package pins

import "github.com/cilium/ebpf"

// Owner is a package that attaches programs. Owners need not know each other to tell whose program is on an interface.
type Owner struct {
	// Whose says whose a program is, as in "interface v0 carries XDP program 7 (culvert's router br1)", "" for one that is
	// nobody's of this owner.
	Whose func(id ebpf.ProgramID) string
	// Ports tells, of the network namespace of an inode, which interfaces carry such a program, or have lost it. Here says
	// that it is the calling thread's; of another one only the former may be known. It may be nil.
	Ports func(inode uint32, here bool) map[string]bool
}

var owners []Owner

// RegisterOwner is for functions init.
func RegisterOwner(o Owner) { owners = append(owners, o) }

// ownerOf says whose program it is, as well as the kernel can tell.
func ownerOf(id ebpf.ProgramID) string {
	for _, o := range owners {
		if whose := o.Whose(id); whose != "" {
			return whose
		}
	}
	if p, err := ebpf.NewProgramFromID(id); err == nil {
		defer p.Close()
		if info, err := p.Info(); err == nil && info.Name != "" {
			return "named " + info.Name
		}
	}
	return "not culvert's"
}

// Ports puts together what the owners tell of interfaces.
func Ports(inode uint32, here bool) map[string]bool {
	all := make(map[string]bool)
	for _, o := range owners {
		if o.Ports == nil {
			continue
		}
		for name, on := range o.Ports(inode, here) {
			all[name] = all[name] || on
		}
	}
	return all
}
