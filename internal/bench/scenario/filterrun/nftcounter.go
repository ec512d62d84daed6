// SPDX-License-Identifier: Apache-2.0

package filterrun

import (
	"encoding/binary"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Constants of linux/netfilter/nfnetlink.h and linux/netfilter/nf_tables.h.
const (
	nfnlSubsysNFTables = 10
	nftMsgGetObj       = 19
	nftaObjTable       = 1
	nftaObjName        = 2
	nftaObjType        = 3
	nftaObjData        = 4
	nftaCounterPackets = 2
	nftObjectCounter   = 1
	nfgenmsgLen        = 4
)

// nfgenmsg is struct nfgenmsg: the family of the tables, a version, and a resource ID.
type nfgenmsg [nfgenmsgLen]byte

func (m nfgenmsg) Len() int          { return len(m) }
func (m nfgenmsg) Serialize() []byte { return m[:] }

// nftCounter reads the packets of a named counter in a table of family netdev, in the calling thread's namespace.
func nftCounter(table, name string) (uint64, error) {
	const netdevFamily = 5 // NFPROTO_NETDEV
	req := nl.NewNetlinkRequest(nfnlSubsysNFTables<<8|nftMsgGetObj, 0)
	req.AddData(nfgenmsg{netdevFamily})
	req.AddData(nl.NewRtAttr(nftaObjTable, nl.ZeroTerminated(table)))
	req.AddData(nl.NewRtAttr(nftaObjName, nl.ZeroTerminated(name)))
	req.AddData(nl.NewRtAttr(nftaObjType, binary.BigEndian.AppendUint32(nil, nftObjectCounter)))
	answers, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return 0, fmt.Errorf("read the counter %s of nftables: %w", name, err)
	}
	for _, answer := range answers {
		attrs, err := nl.ParseRouteAttr(answer[min(nfgenmsgLen, len(answer)):])
		if err != nil {
			return 0, fmt.Errorf("read the counter %s of nftables: %w", name, err)
		}
		for _, attr := range attrs {
			if attr.Attr.Type&nl.NLA_TYPE_MASK != nftaObjData {
				continue
			}
			inner, err := nl.ParseRouteAttr(attr.Value)
			if err != nil {
				return 0, fmt.Errorf("read the counter %s of nftables: %w", name, err)
			}
			for _, in := range inner {
				if in.Attr.Type&nl.NLA_TYPE_MASK == nftaCounterPackets && len(in.Value) == 8 {
					return binary.BigEndian.Uint64(in.Value), nil
				}
			}
		}
	}
	return 0, fmt.Errorf("read the counter %s of nftables: the kernel gave none", name)
}
