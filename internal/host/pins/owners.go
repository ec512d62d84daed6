// SPDX-License-Identifier: Apache-2.0

package pins

import "github.com/cilium/ebpf"

// Owner is a package that attaches programs. Owners are registered, so that each can name the program of another that is in
// its way.
type Owner struct {
	// Whose describes the owner of a program for errors, such as "culvert's router br1" in "interface v0 carries XDP program 7
	// (culvert's router br1)". It returns "" if the program is not this owner's.
	Whose func(id ebpf.ProgramID) string
	// Ports returns the interfaces of a network namespace, given by its inode number, that should carry a program of this
	// owner, and whether they do. Here says that it is the namespace of the calling thread. For another one, interfaces that
	// have lost the program may be missing. Ports may be nil.
	Ports func(inode uint32, here bool) map[string]bool
}

var owners []Owner

// RegisterOwner registers an owner. It is not safe for concurrent use: init functions call it.
func RegisterOwner(o Owner) { owners = append(owners, o) }

// ownerOf describes the owner of a program, by the registered owners or else by the program's name in the kernel.
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

// Ports merges what Owner.Ports of all owners return. An interface counts as attached if one of them says so.
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
