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

// channels are the counts of receive queues of a device, 0 if the driver does not report them.
type channels struct {
	rx, rxMax int
	// combined tells whether receive and transmit queues come in pairs.
	combined bool
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

func ethtoolHeader(kind int, device string) *nl.RtAttr {
	header := nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil)
	header.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_NAME, nl.ZeroTerminated(device))
	return header
}

// readOffloads reads the features of a device in the calling thread's network namespace.
func readOffloads(device string) (offloads, error) {
	attrs, err := query(unix.ETHTOOL_GENL_NAME, unix.ETHTOOL_MSG_FEATURES_GET,
		ethtoolHeader(unix.ETHTOOL_A_FEATURES_HEADER, device))
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

// readChannels reads the counts of receive queues. They are 0 if the driver does not report them.
func readChannels(device string) channels {
	attrs, err := query(unix.ETHTOOL_GENL_NAME, unix.ETHTOOL_MSG_CHANNELS_GET,
		ethtoolHeader(unix.ETHTOOL_A_CHANNELS_HEADER, device))
	if err != nil {
		return channels{}
	}
	count := map[uint16]int{}
	for _, a := range attrs {
		count[a.Kind] = a.Uint32()
	}
	if n := count[unix.ETHTOOL_A_CHANNELS_COMBINED_COUNT]; n > 0 {
		return channels{rx: n, rxMax: count[unix.ETHTOOL_A_CHANNELS_COMBINED_MAX], combined: true}
	}
	return channels{
		rx:    count[unix.ETHTOOL_A_CHANNELS_RX_COUNT],
		rxMax: count[unix.ETHTOOL_A_CHANNELS_RX_MAX],
	}
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

// readDriver returns the name of the driver, or "" if the device has none.
func readDriver(device string) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, device)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(info.Driver[:])
}
