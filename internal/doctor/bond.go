// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"culvert/internal/host/netdev"
)

// interfaceFindings makes all checks of an interface. The kernel runs a bond's program on the members, so what depends on a driver is
// checked there.
func interfaceFindings(l netlink.Link, o Options, forwards bool) (found []Finding, err error) {
	n, err := readInterface(l)
	if err != nil {
		return nil, err
	}
	n.stages, n.forwards = o.stages(), forwards
	bond, err := netdev.BondOf(l.Attrs().Index)
	if err != nil {
		return nil, err
	}
	if bond == nil {
		found = checkInterface(n)
		if above := netdev.BondAbove(l); above != "" {
			found = append(found, memberByItself(n.name, above, o.File != nil && slices.Contains(o.Interfaces, above), programAbove(l)))
		}
		return found, nil
	}
	found = named(n.name, checkUp(n), checkBond(bond, n.generic()), checkProgram(n), checkSourceFilter(n))
	for _, member := range bond.Members {
		l, err := netlink.LinkByIndex(member.Index)
		if err != nil {
			continue // it has left meanwhile
		}
		m, err := readInterface(l)
		if err != nil {
			return nil, err
		}
		m.above = &n
		m.stages, m.forwards, m.vlans = n.stages, n.forwards, append(m.vlans, n.vlans...)
		found = append(found, named(m.name, checkNative(m), checkProgram(m), checkMTU(m), checkQueues(m), checkMerging(m), checkVLAN(m),
			checkPeerNAPI(m), checkChecksum(m), checkPeerChecksum(m), checkUnfinished(m))...)
	}
	return found, nil
}

// named makes those findings that are not nil ones about an interface.
func named(iface string, all ...*Finding) (found []Finding) {
	for _, f := range all {
		if f != nil {
			f.Interface = iface
			found = append(found, *f)
		}
	}
	return found
}

// checkBond looks whether the kernel runs XDP on the bond, as it does on all of them in generic mode, and which of its members carry traffic.
func checkBond(b *netdev.Bond, generic bool) *Finding {
	f := &Finding{Check: "bond"}
	live := 0
	var members []string
	for _, m := range b.Members {
		members = append(members, m.Name+" "+m.State())
		if m.Live {
			live++
		}
	}
	f.Finding = fmt.Sprintf("%s of %s", b.Mode, strings.Join(members, ", "))
	wrong, command := b.WithoutXDP()
	switch {
	case wrong != "" && !generic:
		f.Status, f.Finding, f.Command = Fail, wrong, command
	case len(b.Members) == 0:
		f.Status = Fail
		f.Finding = "it has no members: nothing comes in or goes out"
		f.Command = fmt.Sprintf("ip link set dev IFACE master %s", b.Name)
	case live == 0:
		f.Status = Fail
		f.Finding += ": none is live, so nothing comes in or goes out"
	case len(b.Members) == 1:
		f.Status = Warn
		f.Finding += ": if that is lost, there is no other"
		f.Command = fmt.Sprintf("ip link set dev IFACE master %s", b.Name)
	default:
		for _, m := range b.Members {
			if m.State() == "down" {
				f.Status = Warn
				f.Command = "ip -details link show dev " + m.Name
				break
			}
		}
	}
	return f
}

// memberByItself is the finding about a member of a bond that is examined as an interface. named tells whether the bond is to be attached
// to as well, and above is the program of the bond, nil if it carries none.
func memberByItself(name, bond string, named bool, above *program) Finding {
	f := Finding{
		Status: Warn, Check: "bond", Interface: name,
		Finding: fmt.Sprintf("it is a member of %s, to which routes lead: only the filter works on it by itself", bond),
		Command: "culvert doctor -i " + bond,
	}
	foreign := checkProgram(netif{name: bond, program: above})
	switch {
	case named:
		f.Status = Fail
		f.Finding = fmt.Sprintf("it is a member of %s and runs the program of that: an attach to both is refused", bond)
		f.Command = fmt.Sprintf("take %s or %s out of interfaces in the file", name, bond)
	case foreign.Status == Fail:
		f.Status = Fail
		f.Finding = fmt.Sprintf("it is a member of %s, which %s: the kernel takes no other program below that", bond, foreign.Finding)
		f.Command = foreign.Command
	}
	return f
}

// programAbove returns the program of the bond that a device is a member of, nil if it carries none.
func programAbove(l netlink.Link) *program {
	above, err := netlink.LinkByIndex(l.Attrs().MasterIndex)
	if err != nil {
		return nil // it has left meanwhile
	}
	return readProgram(above.Attrs())
}
