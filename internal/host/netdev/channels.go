// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Channels are the counts of receive queues of a device, 0 if the driver does not report them.
type Channels struct {
	RX, RXMax int
	// Combined tells whether receive and transmit queues come in pairs.
	Combined bool
}

// EthtoolHeader is the attribute by which requests to ethtool's netlink family name a device.
func EthtoolHeader(kind int, device string) *nl.RtAttr {
	header := nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil)
	header.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_NAME, nl.ZeroTerminated(device))
	return header
}

// ReadChannels reads the counts of receive queues of a device in the calling thread's network namespace.
func ReadChannels(device string) Channels {
	c, err := Open(unix.ETHTOOL_GENL_NAME)
	if err != nil {
		return Channels{}
	}
	defer c.Close()
	attrs, err := c.Get(unix.ETHTOOL_MSG_CHANNELS_GET, EthtoolHeader(unix.ETHTOOL_A_CHANNELS_HEADER, device))
	if err != nil {
		return Channels{}
	}
	count := map[uint16]int{}
	for _, a := range attrs {
		count[a.Kind] = a.Uint32()
	}
	if n := count[unix.ETHTOOL_A_CHANNELS_COMBINED_COUNT]; n > 0 {
		return Channels{RX: n, RXMax: count[unix.ETHTOOL_A_CHANNELS_COMBINED_MAX], Combined: true}
	}
	return Channels{RX: count[unix.ETHTOOL_A_CHANNELS_RX_COUNT], RXMax: count[unix.ETHTOOL_A_CHANNELS_RX_MAX]}
}

// Set returns the command that gives the device n receive queues, with as many to transmit where they come in pairs.
func (c Channels) Set(device string, n int) string {
	if c.Combined {
		return fmt.Sprintf("ethtool -L %s combined %d", device, n)
	}
	return fmt.Sprintf("ethtool -L %s rx %d", device, n)
}

// ReadDriver returns the name of the driver of a device in the calling thread's network namespace, or "" if it has none.
func ReadDriver(device string) string {
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

// halved are the drivers that take a queue of their own to transmit for each receive queue that XDP serves, out of the same number.
// They refuse XDP with more than half of their queues in use, and since Linux 6.3 they do not say before that they know XDP at all.
var halved = map[string]bool{"ena": true, "gve": true}

// MostForXDP returns the largest number of receive queues with which the driver takes XDP programs.
func (c Channels) MostForXDP(driver string) int {
	if halved[driver] {
		return c.RXMax / 2
	}
	return c.RXMax
}

// TooManyForXDP returns what is wrong with the number of receive queues of a device and the command that mends it, "" if XDP can have
// that many.
func (c Channels) TooManyForXDP(device, driver string) (wrong, command string) {
	most := c.MostForXDP(driver)
	if c.RX <= most {
		return "", ""
	}
	wrong = fmt.Sprintf("%s runs XDP with at most half of its queues, and %d of %d are in use", driver, c.RX, c.RXMax)
	if most == 0 {
		return wrong + ": only the hypervisor can give the device more", ""
	}
	if command = c.Set(device, most); !c.Combined {
		command += fmt.Sprintf(" tx %d", most) // as many as there are to receive
	}
	return wrong, command
}
