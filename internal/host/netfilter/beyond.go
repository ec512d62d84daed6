// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// More values of Finding.Backend: other parts of the network stack that forwarded packets pass.
const (
	IPVS = "ipvs"
	TC   = "tc"
	// TCX is for programs of tc that are attached by a link, since Linux 6.6.
	TCX = "tcx"
	BPF = "bpf"
)

// FindOn is Find, and also looks for services of IPVS, and for filters and programs of tc at ingress and egress of the named
// devices and of the VLAN devices above them.
func FindOn(devices []string) ([]Finding, error) {
	found, err := Find()
	if err != nil {
		return nil, err
	}
	services, err := findIPVS("/proc/thread-self/net/ip_vs")
	if err != nil {
		return nil, err
	}
	filters, err := findTC(devices)
	return slices.Concat(found, services, filters), err
}

// findIPVS counts the services in a file of the form of /proc/net/ip_vs. A kernel without IPVS has no such file, and looking
// for it loads no module.
func findIPVS(path string) ([]Finding, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the services of IPVS: %w", err)
	}
	services := 0
	for line := range strings.Lines(string(text)) {
		// The lines of servers begin with "  ->", and those of the header with "IP Virtual Server" and "Prot".
		switch name, _, _ := strings.Cut(line, " "); name {
		case "TCP", "UDP", "SCTP", "FWM":
			services++
		}
	}
	if services == 0 {
		return nil, nil
	}
	return []Finding{{Backend: IPVS, Rules: services}}, nil
}

// The filter and the program with which culvert itself sends health checks (internal/lb/lbplane/probeattach.go) do not count.
const (
	ownFilter   = "culvert_probe"
	ownPriority = 0xc01
	ownProgram  = "lb_probe"
)

// findTC counts the filters and programs of tc on the devices and on the VLAN devices above them.
func findTC(devices []string) (found []Finding, err error) {
	if len(devices) == 0 {
		return nil, nil
	}
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("listing interfaces for tc: %w", err)
	}
	var indexes []int
	for _, l := range links {
		if slices.Contains(devices, l.Attrs().Name) {
			indexes = append(indexes, l.Attrs().Index)
		}
	}
	for _, l := range links {
		a := l.Attrs()
		if !slices.Contains(indexes, a.Index) && (l.Type() != "vlan" || !slices.Contains(indexes, a.ParentIndex)) {
			continue
		}
		for _, side := range []struct {
			hook   string
			parent uint32
			attach ebpf.AttachType
		}{{"ingress", netlink.HANDLE_MIN_INGRESS, ebpf.AttachTCXIngress}, {"egress", netlink.HANDLE_MIN_EGRESS, ebpf.AttachTCXEgress}} {
			filters, err := tcFilters(l, side.parent)
			if err != nil {
				return nil, fmt.Errorf("listing the filters of tc at %s of %s: %w", side.hook, a.Name, err)
			}
			programs := tcxPrograms(a.Index, side.attach)
			for backend, n := range map[string]int{TC: filters, TCX: programs} {
				if n > 0 {
					found = append(found, Finding{Backend: backend, Chain: side.hook, Hook: side.hook, Devices: []string{a.Name}, Rules: n})
				}
			}
		}
	}
	return found, nil
}

// tcFilters counts the filters at ingress or egress of a device, without culvert's own.
func tcFilters(l netlink.Link, parent uint32) (n int, err error) {
	filters, err := netlink.FilterList(l, parent)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
		return 0, nil // there is no such qdisc, or the device is gone
	}
	for _, f := range filters {
		a := f.Attrs()
		if a.Parent != parent || a.Handle == 0 || f.Type() == "u32" && a.Handle&0xfffff == 0 {
			continue // not a filter, but the head of a list or a hash table of u32
		}
		if own, ok := f.(*netlink.BpfFilter); ok && a.Priority == ownPriority && strings.HasPrefix(own.Name, ownFilter) {
			continue
		}
		n++
	}
	return n, err
}

// tcxPrograms counts the programs at ingress or egress of a device, without culvert's own. A kernel without TCX returns an
// error, and counts as having none.
func tcxPrograms(index int, attach ebpf.AttachType) (n int) {
	all, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: attach})
	if err != nil {
		return 0
	}
	for _, p := range all.Programs {
		if !named(p.ID, ownProgram) {
			n++
		}
	}
	return n
}

// named reports whether a program has a name.
func named(id ebpf.ProgramID, name string) bool {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return false
	}
	defer p.Close()
	info, err := p.Info()
	return err == nil && info.Name == name
}

// Programs finds eBPF programs at netfilter's hooks that forwarded packets pass. They exist since Linux 6.4. The kernel does
// not report their network namespace, which may be another one.
func Programs() (found []Finding, err error) {
	hooks := map[link.NetfilterInetHook]string{
		link.NetfilterInetPreRouting: "prerouting", link.NetfilterInetForward: "forward", link.NetfilterInetPostRouting: "postrouting",
	}
	families := map[link.NetfilterProtocolFamily]string{link.NetfilterProtoIPv4: "ip", link.NetfilterProtoIPv6: "ip6"}
	var it link.Iterator
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err != nil || info.Netfilter() == nil {
			continue
		}
		hook, family := hooks[info.Netfilter().Hook], families[info.Netfilter().ProtocolFamily]
		if hook != "" && family != "" {
			found = append(found, Finding{Backend: BPF, Family: family, Chain: fmt.Sprintf("%s program %d", hook, info.Program), Hook: hook, Rules: 1})
		}
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("listing eBPF programs at netfilter's hooks: %w", err)
	}
	return found, nil
}
