// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// attachProbe attaches the program to the egress of an interface, in front of others. It lets all packets but probes pass.
func attachProbe(h *netlink.Handle, prog *ebpf.Program, ifIndex int) (io.Closer, error) {
	l, err := link.AttachTCX(link.TCXOptions{
		Interface: ifIndex, Program: prog, Attach: ebpf.AttachTCXEgress, Anchor: link.Head(),
	})
	if errors.Is(err, ebpf.ErrNotSupported) { // Linux before 6.6 has no TCX
		return attachProbeFilter(h, prog, ifIndex)
	}
	if err != nil {
		return nil, fmt.Errorf("attaching to egress of interface %d: %w", ifIndex, err)
	}
	return l, nil
}

// probePriority is the priority of the filter. It comes before those that the kernel assigns, and is unlikely to be in use.
const probePriority = 0xc01

// probeFilter is a classifier of tc(8). If a killed process leaves one behind, the next process replaces it.
type probeFilter struct {
	h         *netlink.Handle
	filter    netlink.BpfFilter
	id        ebpf.ProgramID
	madeQdisc bool // the clsact qdisc was added for this filter
}

func attachProbeFilter(h *netlink.Handle, prog *ebpf.Program, ifIndex int) (io.Closer, error) {
	info, err := prog.Info()
	if err != nil {
		return nil, fmt.Errorf("attaching to egress of interface %d: %w", ifIndex, err)
	}
	c := &probeFilter{h: h, filter: netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: ifIndex, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Priority: probePriority, Protocol: unix.ETH_P_ALL,
		},
		Fd: prog.FD(), Name: "culvert_probe", DirectAction: true,
	}}
	c.id, _ = info.ID()
	err = h.QdiscAdd(c.qdisc())
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("adding a clsact qdisc to interface %d: %w (it takes the modules sch_ingress and cls_bpf)", ifIndex, err)
	}
	c.madeQdisc = err == nil
	if err := h.FilterReplace(&c.filter); err != nil {
		return nil, errors.Join(fmt.Errorf("adding a filter to egress of interface %d, which takes a clsact qdisc: %w", ifIndex, err), c.Close())
	}
	return c, nil
}

func (c *probeFilter) qdisc() netlink.Qdisc {
	return &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: c.filter.LinkIndex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
}

// Close deletes the filter unless another process has replaced it. It deletes the qdisc if it was added for this filter and
// has no other.
func (c *probeFilter) Close() error {
	dev := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: c.filter.LinkIndex}}
	var left int
	for _, parent := range []uint32{netlink.HANDLE_MIN_EGRESS, netlink.HANDLE_MIN_INGRESS} {
		filters, err := c.h.FilterList(dev, parent)
		if errors.Is(err, unix.ENODEV) {
			return nil // gone with the interface
		}
		if err != nil {
			return fmt.Errorf("listing the filters of interface %d: %w", c.filter.LinkIndex, err)
		}
		for _, f := range filters {
			ours, ok := f.(*netlink.BpfFilter)
			if !ok || ours.Id != int(c.id) || ours.Priority != probePriority || parent != netlink.HANDLE_MIN_EGRESS {
				left++
				continue
			}
			if err := c.h.FilterDel(&c.filter); err != nil {
				return fmt.Errorf("deleting the filter of interface %d: %w", c.filter.LinkIndex, err)
			}
		}
	}
	if !c.madeQdisc || left > 0 {
		return nil
	}
	if err := c.h.QdiscDel(c.qdisc()); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("deleting the clsact qdisc of interface %d: %w", c.filter.LinkIndex, err)
	}
	return nil
}
