// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// Bond is a bond of the kernel (bonding) with its members.
type Bond struct {
	Name  string
	Index int
	// Mode and HashPolicy are the kernel's words, as in "802.3ad" and "layer3+4".
	Mode, HashPolicy string
	// Members are sorted by name.
	Members []BondMember
}

// BondMember is a member of a bond.
type BondMember struct {
	Name  string
	Index int
	// Up tells whether the bond holds the link for up.
	Up bool
	// Live tells whether the bond sends by the member and takes what comes in by it. The kernel drops what comes in by others.
	Live bool
}

// State is a word for the member: live, standby or down.
func (m BondMember) State() string {
	switch {
	case m.Live:
		return "live"
	case m.Up:
		return "standby"
	}
	return "down"
}

// BondOf reads the bond with an index in the calling thread's network namespace. It is nil if the device is none.
func BondOf(index int) (*Bond, error) {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return nil, err
	}
	bond, is := l.(*netlink.Bond)
	if !is {
		return nil, nil
	}
	all, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("reading the members of %s: %w", bond.Name, err)
	}
	b := &Bond{Name: bond.Name, Index: index, Mode: bond.Mode.String(), HashPolicy: bond.XmitHashPolicy.String()}
	for _, l := range all {
		a := l.Attrs()
		slave, is := a.Slave.(*netlink.BondSlave)
		if a.MasterIndex != index || !is {
			continue
		}
		m := BondMember{Name: a.Name, Index: a.Index, Up: slave.MiiStatus == netlink.BondLinkUp}
		// With all_slaves_active the bond takes what comes in by standby members.
		m.Live = m.Up && (slave.State == netlink.BondStateActive || bond.AllSlavesActive > 0)
		b.Members = append(b.Members, m)
	}
	slices.SortFunc(b.Members, func(a, b BondMember) int { return cmp.Compare(a.Name, b.Name) })
	return b, nil
}

// IsBond tells whether there is a bond of the name in the calling thread's network namespace.
func IsBond(name string) bool {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return false
	}
	_, is := l.(*netlink.Bond)
	return is
}

// ModesForXDP are the modes of bonds in which the kernel runs XDP programs on them.
var ModesForXDP = []string{"balance-rr", "active-backup", "balance-xor", "802.3ad"}

// hashed are those of them in which the kernel picks a member by a hash, and hashWithoutXDP is the one that it cannot compute for XDP.
var hashed = []string{"balance-xor", "802.3ad"}

const hashWithoutXDP = "vlan+srcmac"

// WithoutXDP returns why the kernel runs no XDP program on the bond, and the command that mends it, "" if it does as far as the bond
// goes. The kernel changes the mode of a bond only while the bond is down and has no members.
func (b *Bond) WithoutXDP() (wrong, command string) {
	switch {
	case !slices.Contains(ModesForXDP, b.Mode):
		return fmt.Sprintf("the kernel runs XDP on bonds of the modes %s, and this is %s", strings.Join(ModesForXDP, ", "), b.Mode),
			b.withoutMembers("mode active-backup")
	case slices.Contains(hashed, b.Mode) && b.HashPolicy == hashWithoutXDP:
		return fmt.Sprintf("the kernel runs no XDP on a bond that picks members by %s", b.HashPolicy),
			fmt.Sprintf("ip link set dev %s type bond xmit_hash_policy layer2+3", b.Name)
	}
	return "", ""
}

// withoutMembers returns the command that makes a change for which the bond must have no members.
func (b *Bond) withoutMembers(change string) string {
	all := []string{fmt.Sprintf("ip link set dev %s down", b.Name)}
	for _, m := range b.Members {
		all = append(all, fmt.Sprintf("ip link set dev %s nomaster", m.Name))
	}
	all = append(all, fmt.Sprintf("ip link set dev %s type bond %s", b.Name, change))
	for _, m := range b.Members {
		all = append(all, fmt.Sprintf("ip link set dev %s down", m.Name), fmt.Sprintf("ip link set dev %s master %s", m.Name, b.Name))
	}
	return strings.Join(append(all, fmt.Sprintf("ip link set dev %s up", b.Name)), " && ")
}

// ProgramOn returns the ID of the XDP program that is attached to a device itself, 0 for none. A member of a bond that carries one has none
// of its own by that.
func ProgramOn(index int) (id uint32, err error) {
	l, err := netlink.LinkByIndex(index)
	if err != nil {
		return 0, err
	}
	if xdp := l.Attrs().Xdp; xdp != nil && xdp.Attached {
		return xdp.ProgId, nil
	}
	return 0, nil
}

// BondAbove returns the name of the bond that a device is a member of, "" if it is of none.
func BondAbove(l netlink.Link) string {
	if _, member := l.Attrs().Slave.(*netlink.BondSlave); !member {
		return ""
	}
	master, err := netlink.LinkByIndex(l.Attrs().MasterIndex)
	if err != nil {
		return ""
	}
	return master.Attrs().Name
}
