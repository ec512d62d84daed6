// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
)

// GoesOn tells of each interface whether the kernel would send a packet of a protocol on that comes in by it, as the
// programs ask. No packet is made.
func (p *Plane) GoesOn(protocol uint8, src, dst netip.Addr, interfaces []string) (map[string]bool, error) {
	spec, err := bpfobj.LoadExplain()
	if err != nil {
		return nil, err
	}
	var loaded bpfobj.ExplainPrograms // the maps of the object are the programs', and are not made
	if err := spec.LoadAndAssign(&loaded, nil); err != nil {
		return nil, bpfobj.LoadError(err)
	}
	defer loaded.Close()
	on := make(map[string]bool)
	for _, name := range interfaces {
		dev, err := net.InterfaceByName(name)
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", name, err)
		}
		action, err := loaded.LbOnward.Run(&ebpf.RunOptions{Data: onwardHeaders(uint32(dev.Index), protocol, src, dst)})
		if err != nil {
			return nil, fmt.Errorf("asking the kernel for the way from %s: %w", name, err)
		}
		on[name] = action == xdpSendAction
	}
	return on, nil
}

// xdpSendAction is XDP_TX of linux/bpf.h.
const xdpSendAction = 3

// onwardHeaders is what bpf/lb/explain.bpf.c reads.
func onwardHeaders(dev uint32, protocol uint8, src, dst netip.Addr) []byte {
	h := append(bpfobj.Native.AppendUint32(nil, dev), make([]byte, 10)...)
	if dst.Is4() {
		binary.BigEndian.PutUint16(h[12:], 0x0800)
		h = append(h, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, protocol, 0, 0)
	} else {
		binary.BigEndian.PutUint16(h[12:], 0x86dd)
		h = append(h, 0x60, 0, 0, 0, 0, 0, protocol, 64)
	}
	return append(append(h, src.AsSlice()...), dst.AsSlice()...)
}
