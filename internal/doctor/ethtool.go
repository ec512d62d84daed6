// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"culvert/internal/host/netdev"
)

// offload is the state of one offload of a device, as ethtool -k shows it.
type offload struct {
	on bool
	// fixed tells whether the driver does not let it be changed.
	fixed bool
}

// offloads has the offloads that are on, by the kernel's names, such as "tx-checksum-ip-generic".
type offloads map[string]offload

// txChecksum tells whether the stack hands packets with unfinished checksums to the device.
func (o offloads) txChecksum() bool {
	return o["tx-checksum-ip-generic"].on || o["tx-checksum-ipv4"].on || o["tx-checksum-ipv6"].on
}

// xdpSupport is what the driver can do with XDP in its present state. Kernels since 6.3 report it.
type xdpSupport struct {
	known bool
	// acts is a mask of netdev.Act*.
	acts uint64
}

func (x xdpSupport) can(acts uint64) bool { return x.acts&acts == acts }

// query sends a command about one device to a generic netlink family and returns the attributes of the answer.
func query(family string, command uint8, device *nl.RtAttr) ([]netdev.Attr, error) {
	c, err := netdev.Open(family)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Get(command, device)
}

// readOffloads reads the features of a device in the calling thread's network namespace.
func readOffloads(device string) (offloads, error) {
	attrs, err := query(unix.ETHTOOL_GENL_NAME, unix.ETHTOOL_MSG_FEATURES_GET,
		netdev.EthtoolHeader(unix.ETHTOOL_A_FEATURES_HEADER, device))
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
	all := offloads{}
	for name := range active {
		all[name] = offload{on: true, fixed: !changeable[name]}
	}
	return all, nil
}

// parseBitset returns the names of the bits that are set in an ethtool bitset.
func parseBitset(b []byte) (map[string]bool, error) {
	attrs, err := netdev.ParseAttrs(b)
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
	bits, err := netdev.ParseAttrs(listed)
	if err != nil {
		return nil, err
	}
	set := map[string]bool{}
	for _, bit := range bits {
		fields, err := netdev.ParseAttrs(bit.Value)
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

// readXDPSupport reads what the driver can do with XDP. On kernels before 6.3 that is not known.
func readXDPSupport(index int) xdpSupport {
	c, err := netdev.Open(netdev.XDPFamily)
	if err != nil {
		return xdpSupport{}
	}
	defer c.Close()
	acts, known := c.XDPActs(index)
	return xdpSupport{known: known, acts: acts}
}
