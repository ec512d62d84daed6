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

// Offsets in struct fib_rule_hdr, its size, and the values in it that matter here.
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

// Attributes without a condition on packets. Any other attribute narrows a rule down.
const (
	fraPriority          = 6
	fraSuppressPrefixLen = 14
	fraTable             = 15
	fraProtocol          = 21
	suppressNothing      = ^uint32(0)
)

// Attributes with conditions on the transport header.
const (
	fraIPProto    = 22
	fraSportRange = 23
	fraDportRange = 24
)

// Priorities of the kernel's default rules. The rule for table local has priority 0.
const (
	priorityMain    = 32766
	priorityDefault = 32767
)

// rule is a policy rule. ports is true if it has conditions on the transport protocol or ports.
type rule struct {
	priority, table uint32
	ports           bool
}

// defaultRules returns the rules that the kernel sets up in a new network namespace.
func defaultRules(is6 bool) []rule {
	own := []rule{{table: unix.RT_TABLE_LOCAL}, {priority: priorityMain, table: unix.RT_TABLE_MAIN}}
	if !is6 {
		own = append(own, rule{priority: priorityDefault, table: unix.RT_TABLE_DEFAULT})
	}
	return own
}

// parseRule reads the payload of an RTM_NEWRULE. plain is false for a rule with conditions, or another action than
// to look a table up.
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

// readRules reports whether the policy rules of a family are exactly the default ones, and whether any has conditions
// on the transport protocol or ports.
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
		return false, false, fmt.Errorf("listing the policy rules: %w", err)
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
	return own && slices.Equal(found, defaultRules(is6)), ports, nil
}

// handleRule handles an RTM_NEWRULE or RTM_DELRULE. Until the rules have been read again, they count as not the
// default ones.
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
	f.rulesDefault[i], f.rulesDirty[i] = false, true
	ports := false
	if r, _ := parseRule(m.data); m.kind == unix.RTM_NEWRULE {
		ports = r.ports
	}
	f.noteRules(i, ports)
	f.withdraw()
}

// noteRules records that a family has had a rule beside the default ones, and whether one with conditions on the
// transport protocol or ports. From the first such rule on the kernel checks more, even after the rule is removed.
func (f *feed) noteRules(family int, ports bool) {
	f.customRules[family] = true
	f.portRules[family] = f.portRules[family] || ports
	f.setPolicy()
}

// tickRules reads the policy rules of each family whose rules have changed.
func (f *feed) tickRules() {
	for i, dirty := range f.rulesDirty {
		if !dirty {
			continue
		}
		own, ports, err := readRules(i == 1)
		if err != nil {
			// The family stays dirty, and its rules still count as not the default ones.
			f.once("rules", "the policy rules could not be read: every packet asks the kernel", "err", err)
			continue
		}
		f.rulesDefault[i], f.rulesDirty[i] = own, false
		if !own {
			f.noteRules(i, ports)
		}
	}
}

// addressKey identifies an address of a device.
type addressKey struct {
	dev    int
	prefix netip.Prefix
}

// handleAddress applies an RTM_NEWADDR or RTM_DELADDR of IPv4.
func (f *feed) handleAddress(m message, notified bool) {
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
	if !key.prefix.IsValid() || !f.fresh(touchKey{kind: unix.RTM_NEWADDR, number: uint32(key.dev), addr: local, bits: int16(key.prefix.Bits())}, notified) {
		return
	}
	if m.kind == unix.RTM_DELADDR {
		delete(f.addresses, key)
		// The kernel removes routes with this address as preferred source without a notification.
		f.distrust(0)
	} else {
		f.addresses[key] = f.dump.serial
	}
	f.addressesChanged, f.devicesChanged = true, true
}

// pushAddresses writes the IPv4 addresses of the host into the data plane, if they have changed.
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
