// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Features are the features of a device that are on, by the kernel's names, as "ethtool -k" shows them, such as
// "tx-checksum-ip-generic". The value tells whether the driver lets it be changed.
type Features map[string]bool

// StripsTags tells whether the device takes VLAN tags off frames, of 802.1Q or of 802.1ad.
func (f Features) StripsTags() bool {
	_, inner := f["rx-vlan-hw-parse"]
	_, outer := f["rx-vlan-stag-hw-parse"]
	return inner || outer
}

// KeepTags is the command by which a device leaves VLAN tags in frames.
func KeepTags(device string) string {
	features, err := ReadFeatures(device)
	if _, outer := features["rx-vlan-stag-hw-parse"]; err == nil && outer {
		return "ethtool -K " + device + " rxvlan off rx-vlan-stag-hw-parse off"
	}
	return "ethtool -K " + device + " rxvlan off"
}

// ReadFeatures reads the features of a device in the calling thread's network namespace.
func ReadFeatures(device string) (Features, error) {
	c, err := Open(unix.ETHTOOL_GENL_NAME)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	attrs, err := c.Get(unix.ETHTOOL_MSG_FEATURES_GET, EthtoolHeader(unix.ETHTOOL_A_FEATURES_HEADER, device))
	if err != nil {
		return nil, fmt.Errorf("read the offloads of %s: %w", device, err)
	}
	var active, changeable map[string]bool
	for _, a := range attrs {
		switch a.Kind {
		case unix.ETHTOOL_A_FEATURES_ACTIVE:
			active, err = parseBitset(a.Value)
		case unix.ETHTOOL_A_FEATURES_HW:
			changeable, err = parseBitset(a.Value)
		}
		if err != nil {
			return nil, fmt.Errorf("read the offloads of %s: %w", device, err)
		}
	}
	all := Features{}
	for name := range active {
		all[name] = changeable[name]
	}
	return all, nil
}

// parseBitset returns the names of the bits that are set in an ethtool bitset.
func parseBitset(b []byte) (map[string]bool, error) {
	attrs, err := ParseAttrs(b)
	if err != nil {
		return nil, err
	}
	// A bitset without a mask lists the bits that are set. One with a mask lists all bits of the mask, and marks those that
	// are set.
	var listed []byte
	listIsSet := false
	for _, a := range attrs {
		switch a.Kind {
		case unix.ETHTOOL_A_BITSET_NOMASK:
			listIsSet = true
		case unix.ETHTOOL_A_BITSET_BITS:
			listed = a.Value
		}
	}
	bits, err := ParseAttrs(listed)
	if err != nil {
		return nil, err
	}
	set := map[string]bool{}
	for _, bit := range bits {
		fields, err := ParseAttrs(bit.Value)
		if err != nil {
			return nil, err
		}
		name, on := "", listIsSet
		for _, f := range fields {
			switch f.Kind {
			case unix.ETHTOOL_A_BITSET_BIT_NAME:
				name = unix.ByteSliceToString(f.Value)
			case unix.ETHTOOL_A_BITSET_BIT_VALUE:
				on = true
			}
		}
		if on {
			set[name] = true
		}
	}
	return set, nil
}
