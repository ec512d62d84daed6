// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// offload is one feature of a device as ethtool -k shows it.
type offload struct {
	on bool
	// fixed features cannot be changed.
	fixed bool
}

// offloads are keyed by the kernel's names, such as "tx-checksum-ip-generic".
type offloads map[string]offload

// txChecksum says whether the device leaves the checksums of UDP to be finished later.
func (o offloads) txChecksum() bool {
	return o["tx-checksum-ip-generic"].on || o["tx-checksum-ipv4"].on || o["tx-checksum-ipv6"].on
}

// channels are the queue counts of a device, 0 when the driver does not tell.
type channels struct {
	rx, rxMax int
	// combined is true when receive and transmit queues come in pairs.
	combined bool
}

// Bits of the kernel's enum netdev_xdp_act.
const (
	xdpBasic    = 1 << 0
	xdpRedirect = 1 << 1
	// xdpXmit: frames can be redirected to the device. For a veth it says that the peer has NAPI on.
	xdpXmit = 1 << 2
	xdpRxSG = 1 << 5
)

// xdpSupport is what the kernel says (since 6.3) that the driver can do now.
type xdpSupport struct {
	known bool
	acts  uint64
}

func (x xdpSupport) can(acts uint64) bool { return x.acts&acts == acts }

// genlHeader is command, version and two reserved bytes. The netlink package's own leaves what
// happens to be in memory in the reserved ones, which newer families refuse with EINVAL.
type genlHeader [nl.SizeofGenlmsg]byte

func (h genlHeader) Len() int          { return len(h) }
func (h genlHeader) Serialize() []byte { return h[:] }

// genlGet asks a generic netlink family about one device. The answer is a list of attributes.
func genlGet(family string, command uint8, device *nl.RtAttr) ([]nlAttr, error) {
	f, err := netlink.GenlFamilyGet(family)
	if err != nil {
		return nil, err
	}
	req := nl.NewNetlinkRequest(int(f.ID), 0)
	req.AddData(genlHeader{command, 1})
	req.AddData(device)
	messages, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, err
	}
	if len(messages) == 0 {
		return nil, errors.New("no answer")
	}
	return parseAttrs(messages[0][nl.SizeofGenlmsg:])
}

type nlAttr struct {
	kind  uint16
	value []byte
}

func (a nlAttr) uint32() int {
	if len(a.value) < 4 {
		return 0
	}
	return int(nl.NativeEndian().Uint32(a.value))
}

func parseAttrs(b []byte) ([]nlAttr, error) {
	raw, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil, err
	}
	attrs := make([]nlAttr, len(raw))
	for i, a := range raw {
		attrs[i] = nlAttr{a.Attr.Type & nl.NLA_TYPE_MASK, a.Value}
	}
	return attrs, nil
}

func ethtoolHeader(kind int, device string) *nl.RtAttr {
	header := nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil)
	header.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_NAME, nl.ZeroTerminated(device))
	return header
}

// readOffloads reads the features of a device in the calling thread's network namespace.
func readOffloads(device string) (offloads, error) {
	attrs, err := genlGet(unix.ETHTOOL_GENL_NAME, unix.ETHTOOL_MSG_FEATURES_GET,
		ethtoolHeader(unix.ETHTOOL_A_FEATURES_HEADER, device))
	if err != nil {
		return nil, fmt.Errorf("read the offloads of %s: %w", device, err)
	}
	var active, changeable map[string]bool
	for _, a := range attrs {
		switch a.kind {
		case unix.ETHTOOL_A_FEATURES_ACTIVE:
			active, err = parseBitset(a.value)
		case unix.ETHTOOL_A_FEATURES_HW:
			changeable, err = parseBitset(a.value)
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
	attrs, err := parseAttrs(b)
	if err != nil {
		return nil, err
	}
	// Without a mask only the bits that are set are listed; with one, all that the mask covers.
	var listed []byte
	listIsSet := false
	for _, a := range attrs {
		switch a.kind {
		case unix.ETHTOOL_A_BITSET_NOMASK:
			listIsSet = true
		case unix.ETHTOOL_A_BITSET_BITS:
			listed = a.value
		}
	}
	bits, err := parseAttrs(listed)
	if err != nil {
		return nil, err
	}
	set := map[string]bool{}
	for _, bit := range bits {
		fields, err := parseAttrs(bit.value)
		if err != nil {
			return nil, err
		}
		name, on := "", listIsSet
		for _, f := range fields {
			switch f.kind {
			case unix.ETHTOOL_A_BITSET_BIT_NAME:
				name = unix.ByteSliceToString(f.value)
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

// readChannels reads the queue counts; a driver that does not tell gives zeros.
func readChannels(device string) channels {
	attrs, err := genlGet(unix.ETHTOOL_GENL_NAME, unix.ETHTOOL_MSG_CHANNELS_GET,
		ethtoolHeader(unix.ETHTOOL_A_CHANNELS_HEADER, device))
	if err != nil {
		return channels{}
	}
	count := map[uint16]int{}
	for _, a := range attrs {
		count[a.kind] = a.uint32()
	}
	if n := count[unix.ETHTOOL_A_CHANNELS_COMBINED_COUNT]; n > 0 {
		return channels{rx: n, rxMax: count[unix.ETHTOOL_A_CHANNELS_COMBINED_MAX], combined: true}
	}
	return channels{
		rx:    count[unix.ETHTOOL_A_CHANNELS_RX_COUNT],
		rxMax: count[unix.ETHTOOL_A_CHANNELS_RX_MAX],
	}
}

// Of the generic netlink family "netdev", which golang.org/x/sys does not list.
const (
	netdevCmdDevGet       = 1
	netdevADevIfindex     = 1
	netdevADevXDPFeatures = 3
)

// readXDPSupport asks the kernel what the driver can do; kernels before 6.3 do not know.
func readXDPSupport(index int) xdpSupport {
	attrs, err := genlGet("netdev", netdevCmdDevGet, nl.NewRtAttr(netdevADevIfindex, nl.Uint32Attr(uint32(index))))
	if err != nil {
		return xdpSupport{}
	}
	for _, a := range attrs {
		if a.kind == netdevADevXDPFeatures && len(a.value) == 8 {
			return xdpSupport{known: true, acts: nl.NativeEndian().Uint64(a.value)}
		}
	}
	return xdpSupport{}
}

// readDriver gives the name of the driver, or "" when the device has none.
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
