// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"net/netip"

	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterview"
	"culvert/internal/scion/scionplane"
)

// BeforeLB returns a line for each stage that may decide about a packet before the load balancer does.
func BeforeLB(inst *datapath.Instance) ([]string, error) {
	f, err := filterplane.Read(inst)
	if err != nil {
		return nil, err
	}
	what := filterview.Summary(len(f.Rules), 0, len(f.Services))
	if what == "" {
		return nil, nil
	}
	return []string{fmt.Sprintf("the filter in front with %s, see 'culvert filter test'", what)}, nil
}

// BeforeRoute returns a line for each stage that may decide about a packet to an address before the IP router does.
func BeforeRoute(inst *datapath.Instance, to netip.Addr) ([]string, error) {
	lines, err := BeforeLB(inst)
	if err != nil {
		return nil, err
	}
	vips, err := vipsOf(inst)
	if err != nil {
		return nil, err
	}
	for _, v := range vips {
		if v.Service.Addr == to {
			lines = append(lines, fmt.Sprintf("the load balancer, which has VIP %s, see 'culvert lb explain'", v.Service))
			break
		}
	}
	for _, l := range scionplane.Of(inst).Config().Links {
		if l.Local.Addr() == to {
			lines = append(lines, fmt.Sprintf("the SCION router, which has link %s at %s, see 'culvert status'", l.Name, l.Local))
			break
		}
	}
	return lines, nil
}
