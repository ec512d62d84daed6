// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"strings"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// XDPRefusal returns why a device has refused an XDP program, in the words of the kernel or of the driver, "" if there are none. The link
// by which programs are attached has no room for words, so this attaches the program once more in the old way, over rtnetlink. If that
// succeeds, because the device has changed meanwhile, the program is detached at once. flags are XDP_FLAGS_DRV_MODE or
// XDP_FLAGS_SKB_MODE of linux/if_link.h. The device is in the network namespace of the calling thread.
func XDPRefusal(ifindex, prog int, flags uint32) string {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return ""
	}
	defer s.Close()
	if err := s.SetExtAck(true); err != nil {
		return ""
	}
	set := func(prog int, flags uint32) error {
		req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
		req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}
		message := nl.NewIfInfomsg(unix.AF_UNSPEC)
		message.Index = int32(ifindex)
		req.AddData(message)
		xdp := nl.NewRtAttr(unix.IFLA_XDP|unix.NLA_F_NESTED, nil)
		xdp.AddRtAttr(nl.IFLA_XDP_FD, nl.Uint32Attr(uint32(int32(prog))))
		xdp.AddRtAttr(nl.IFLA_XDP_FLAGS, nl.Uint32Attr(flags))
		req.AddData(xdp)
		_, err := req.Execute(unix.NETLINK_ROUTE, 0)
		return err
	}
	if err = set(prog, flags|nl.XDP_FLAGS_UPDATE_IF_NOEXIST); err == nil {
		_ = set(-1, flags)
		return ""
	}
	// The words follow the text of the error number.
	_, words, _ := strings.Cut(err.Error(), ": ")
	return strings.TrimSuffix(strings.TrimSpace(words), ".")
}
