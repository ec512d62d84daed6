// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"bytes"
	"encoding/binary"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// attributes are the attributes of a message, or in a nested attribute, by type.
type attributes map[uint16][]byte

func (a attributes) text(kind uint16) string { return text(a[kind]) }

// number returns a 32-bit number, 0 if it is missing. Numbers of nfnetlink are in network byte order.
func (a attributes) number(kind uint16) uint32 {
	if len(a[kind]) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(a[kind])
}

func text(value []byte) string { return string(bytes.TrimRight(value, "\x00")) }

func parse(b []byte) attributes {
	a := attributes{}
	each(b, func(kind uint16, value []byte) { a[kind] = value })
	return a
}

// each calls visit for each attribute, and stops at a malformed one.
func each(b []byte, visit func(kind uint16, value []byte)) {
	// The upper two bits of the type say that the attribute is nested, or in network byte order.
	const kindMask = 1<<14 - 1
	for len(b) >= unix.SizeofNlAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofNlAttr || size > len(b) {
			return
		}
		visit(binary.NativeEndian.Uint16(b[2:])&kindMask, b[unix.SizeofNlAttr:size])
		b = b[min(len(b), (size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
	}
}

// ask sends a request of nf_tables to the kernel, and calls answer for each message of the answer. Each text
// that is not empty becomes an attribute of the request. Its index is the attribute's type.
func ask(message int, family uint8, texts []string, answer func(family uint8, a attributes)) error {
	return request(message, 0, family, texts, answer)
}

// dump is ask for a listing.
func dump(message int, family uint8, texts []string, answer func(family uint8, a attributes)) error {
	return request(message, unix.NLM_F_DUMP, family, texts, answer)
}

func request(message, flags int, family uint8, texts []string, answer func(family uint8, a attributes)) error {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|message, flags)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: unix.NFNETLINK_V0})
	for kind, value := range texts {
		if value != "" {
			r.AddData(nl.NewRtAttr(kind, nl.ZeroTerminated(value)))
		}
	}
	return r.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(b []byte) bool {
		if len(b) >= nl.SizeofNfgenmsg {
			answer(b[0], parse(b[nl.SizeofNfgenmsg:]))
		}
		return true
	})
}
