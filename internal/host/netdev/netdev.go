// SPDX-License-Identifier: Apache-2.0

// Package netdev asks the kernel about network devices what rtnetlink does not answer: over generic
// netlink and ethtool. It also says for which VLAN devices a fast path can tag frames.
package netdev

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Client sends requests to one generic netlink family, in the network namespace in which it was opened.
type Client struct {
	family  uint16
	sockets map[int]*nl.SocketHandle
}

// Open connects to a family in the calling thread's network namespace.
func Open(family string) (*Client, error) {
	f, err := netlink.GenlFamilyGet(family)
	if err != nil {
		return nil, fmt.Errorf("generic netlink family %s: %w", family, err)
	}
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("generic netlink: %w", err)
	}
	return &Client{
		family:  f.ID,
		sockets: map[int]*nl.SocketHandle{unix.NETLINK_GENERIC: {Socket: s}},
	}, nil
}

// Close closes the connection.
func (c *Client) Close() { c.sockets[unix.NETLINK_GENERIC].Close() }

// header is struct genlmsghdr: command, version and two reserved bytes. The netlink package's own type
// does not clear the reserved bytes, and newer families return EINVAL if they are not zero.
type header [nl.SizeofGenlmsg]byte

func (h header) Len() int          { return len(h) }
func (h header) Serialize() []byte { return h[:] }

// Get sends a command about one device and returns the attributes of the answer.
func (c *Client) Get(command uint8, device *nl.RtAttr) ([]Attr, error) {
	req := nl.NewNetlinkRequest(int(c.family), 0)
	req.Sockets = c.sockets
	req.AddData(header{command, 1})
	req.AddData(device)
	messages, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, err
	}
	if len(messages) == 0 {
		return nil, errors.New("no answer")
	}
	return ParseAttrs(messages[0][nl.SizeofGenlmsg:])
}

// Attr is a netlink attribute. Kind is its type without the flags.
type Attr struct {
	Kind  uint16
	Value []byte
}

// Uint32 returns the value of an attribute of 4 bytes, 0 for a shorter one.
func (a Attr) Uint32() int {
	if len(a.Value) < 4 {
		return 0
	}
	return int(nl.NativeEndian().Uint32(a.Value))
}

// ParseAttrs reads a list of attributes, such as the value of a nested one.
func ParseAttrs(b []byte) ([]Attr, error) {
	raw, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil, err
	}
	attrs := make([]Attr, len(raw))
	for i, a := range raw {
		attrs[i] = Attr{a.Attr.Type & nl.NLA_TYPE_MASK, a.Value}
	}
	return attrs, nil
}
