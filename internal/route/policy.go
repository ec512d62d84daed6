// SPDX-License-Identifier: Apache-2.0

package route

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Parts of struct fib_rule_hdr, by their place.
const (
	ruleDstLen   = 1
	ruleSrcLen   = 2
	ruleTOS      = 3
	ruleTable8   = 4
	ruleAction   = 7
	ruleFlags    = 8
	sizeofRule   = 12
	actionLookup = 1 // FR_ACT_TO_TBL
	flagInvert   = 2 // FIB_RULE_INVERT
)

// Attributes that every rule has; any other narrows a rule down.
const (
	fraPriority          = 6
	fraSuppressPrefixLen = 14
	fraTable             = 15
	fraProtocol          = 21
	suppressNothing      = ^uint32(0)
)

// Attributes of rules that look at what is behind the IP header.
const (
	fraIPProto    = 22
	fraSportRange = 23
	fraDportRange = 24
)

// Priorities of the kernel's own rules; that for table local has 0.
const (
	priorityMain    = 32766
	priorityDefault = 32767
)

// rule is what a policy rule without conditions says, and whether its conditions are about protocol or ports.
type rule struct {
	priority, table uint32
	ports           bool
}

// ownRules are those that the kernel makes.
func ownRules(is6 bool) []rule {
	own := []rule{{table: unix.RT_TABLE_LOCAL}, {priority: priorityMain, table: unix.RT_TABLE_MAIN}}
	if !is6 {
		own = append(own, rule{priority: priorityDefault, table: unix.RT_TABLE_DEFAULT})
	}
	return own
}

// parseRule reads a rule; plain is false for one with conditions.
func parseRule(b []byte) (r rule, plain bool) {
	if len(b) < sizeofRule {
		return r, false
	}
	plain = b[ruleDstLen] == 0 && b[ruleSrcLen] == 0 && b[ruleTOS] == 0 &&
		b[ruleAction] == actionLookup && binary.NativeEndian.Uint32(b[ruleFlags:])&flagInvert == 0
	r.table = uint32(b[ruleTable8])
	for b = b[sizeofRule:]; ; {
		kind, value, rest, more := nextAttr(b)
		if !more {
			return r, plain
		}
		b = rest
		switch kind {
		case fraPriority:
			r.priority = u32(value)
		case fraTable:
			r.table = u32(value)
		case fraSuppressPrefixLen:
			plain = plain && u32(value) == suppressNothing
		case fraProtocol:
		case fraIPProto, fraSportRange, fraDportRange:
			r.ports, plain = true, false
		default:
			plain = false
		}
	}
}

// readRules looks whether the policy rules of a family are exactly those of the kernel.
func readRules(is6 bool) (own, ports bool, err error) {
	family := unix.AF_INET
	if is6 {
		family = unix.AF_INET6
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETRULE, unix.NLM_F_DUMP)
	header := make([]byte, sizeofRule)
	header[0] = byte(family)
	req.AddRawData(header)
	answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWRULE)
	if err != nil {
		return false, false, fmt.Errorf("listing the policy rules of routing: %w", err)
	}
	var found []rule
	own = true
	for _, b := range answers {
		if len(b) == 0 || int(b[0]) != family {
			continue
		}
		r, plain := parseRule(b)
		own, ports = own && plain, ports || r.ports
		found = append(found, r)
	}
	return own && slices.Equal(found, ownRules(is6)), ports, nil
}

// handleRule takes in RTM_NEWRULE and RTM_DELRULE. Until the rules have been read again, they count as others
// than the kernel's.
func (f *feed) handleRule(m message) {
	if len(m.data) == 0 {
		return
	}
	i := 0
	switch m.data[0] {
	case unix.AF_INET:
	case unix.AF_INET6:
		i = 1
	default:
		return
	}
	f.rulesOwn[i], f.rulesDirty[i] = false, true
	ports := false
	if r, _ := parseRule(m.data); m.kind == unix.RTM_NEWRULE {
		ports = r.ports
	}
	f.haveRules(i, ports)
	f.withdraw()
}

// haveRules keeps in mind that there were policy rules, and some that look at transport protocols or ports: from the
// first one on the kernel looks at more, and does not go back.
func (f *feed) haveRules(family int, ports bool) {
	f.customRules[family] = true
	f.portRules[family] = f.portRules[family] || ports
	f.setPolicy()
}

// tickRules reads the rules again that have changed.
func (f *feed) tickRules() {
	for i, dirty := range f.rulesDirty {
		if !dirty {
			continue
		}
		own, ports, err := readRules(i == 1)
		if err != nil {
			// It stays dirty, and what it was, not the kernel's.
			f.once("rules", "the policy rules could not be read; every packet asks the kernel", "err", err)
			continue
		}
		f.rulesOwn[i], f.rulesDirty[i] = own, false
		if !own {
			f.haveRules(i, ports)
		}
	}
}

// addressKey names an address of a device.
type addressKey struct {
	dev    int
	prefix netip.Prefix
}

// handleAddress takes in RTM_NEWADDR and RTM_DELADDR.
func (f *feed) handleAddress(m message, told bool) {
	if len(m.data) < unix.SizeofIfAddrmsg || m.data[0] != unix.AF_INET {
		return
	}
	key := addressKey{dev: int(binary.NativeEndian.Uint32(m.data[4:]))}
	var local, peer netip.Addr
	for b := m.data[unix.SizeofIfAddrmsg:]; ; {
		kind, value, rest, more := nextAttr(b)
		if !more {
			break
		}
		b = rest
		switch kind {
		case unix.IFA_LOCAL:
			local, _ = netip.AddrFromSlice(value)
		case unix.IFA_ADDRESS:
			peer, _ = netip.AddrFromSlice(value)
		}
	}
	if !local.IsValid() {
		local = peer
	}
	key.prefix = netip.PrefixFrom(local, int(m.data[1]))
	if !key.prefix.IsValid() || !f.fresh(touchKey{kind: unix.RTM_NEWADDR, number: uint32(key.dev), addr: local, bits: int16(key.prefix.Bits())}, told) {
		return
	}
	if m.kind == unix.RTM_DELADDR {
		delete(f.addresses, key)
		// The kernel removes routes with this address as preferred source without telling.
		f.distrust(0)
	} else {
		f.addresses[key] = f.dump.serial
	}
	f.addressesChanged, f.devicesChanged = true, true
}

// pushAddresses gives the data plane the addresses of the host.
func (f *feed) pushAddresses() {
	f.addressesChanged = false
	seen := map[netip.Addr]struct{}{}
	list := []netip.Addr{}
	for key := range f.addresses {
		a := key.prefix.Addr()
		if _, ok := seen[a]; !ok {
			seen[a] = struct{}{}
			list = append(list, a)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	if f.pushedOwn != nil && slices.Equal(list, f.pushedOwn) {
		return
	}
	f.pushedOwn = list
	if err := f.plane.SetOwn4(slices.Clone(list)); err != nil {
		f.fail(fmt.Errorf("writing this host's addresses into the data plane: %w", err))
	}
}
