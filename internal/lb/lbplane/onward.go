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

// Forwards returns, by interface, whether the kernel would forward a packet that it receives there. It asks the kernel as
// the programs do and sends no packet.
func (p *Plane) Forwards(protocol uint8, src, dst netip.Addr, interfaces []string) (map[string]bool, error) {
	spec, err := bpfobj.LoadExplain()
	if err != nil {
		return nil, err
	}
	var loaded bpfobj.ExplainPrograms // the program uses no maps, so none is created
	if err := spec.LoadAndAssign(&loaded, nil); err != nil {
		return nil, bpfobj.LoadError(err)
	}
	defer loaded.Close()
	forwards := make(map[string]bool)
	for _, name := range interfaces {
		dev, err := net.InterfaceByName(name)
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", name, err)
		}
		action, err := loaded.LbOnward.Run(&ebpf.RunOptions{Data: onwardHeaders(uint32(dev.Index), protocol, src, dst)})
		if err != nil {
			return nil, fmt.Errorf("asking the kernel for the way from %s: %w", name, err)
		}
		forwards[name] = action == xdpTX
	}
	return forwards, nil
}

// xdpTX is XDP_TX of linux/bpf.h, the program's answer for a packet that the kernel would forward.
const xdpTX = 3

// onwardHeaders returns the input of bpf/lb/explain.bpf.c: an Ethernet header with the interface index in its first four
// bytes, and an IP header.
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
