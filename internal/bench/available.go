// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"

	"culvert/internal/bench/report"
)

// Peer is a Device that a machine may lack.
type Peer interface {
	Device
	// Available returns an error that says what is missing and how to get it.
	Available() error
}

// available leaves out the rows whose peers the machine lacks, and reports them as not measured. It is an error if
// they were asked for by name.
func (o Options) available(chosen []candidate) (there []candidate, absent []report.Row, err error) {
	for _, c := range chosen {
		var missing error
		if c.device != nil {
			if peer, ok := c.device(o).(Peer); ok {
				missing = peer.Available()
			}
		}
		switch {
		case missing == nil:
			there = append(there, c)
		case slices.Contains(o.Rows, c.name):
			return nil, nil, fmt.Errorf("set %s up: %w", c.name, missing)
		default:
			fmt.Fprintf(o.Progress, "leaving %s out: %v\n", c.name, missing)
			absent = append(absent, report.Row{Name: c.name, Note: "not measured: " + missing.Error()})
		}
	}
	if len(there) == 0 {
		return nil, nil, errors.New("nothing to measure: no row is left")
	}
	return there, absent, nil
}

// enoughCPUs leaves out the groups that need more CPUs than the process may use. It is an error if they were asked for.
func (o Options) enoughCPUs(groups []group) ([]group, error) {
	allowed := allowedCPUs()
	var there []group
	for _, g := range groups {
		if g.cpus <= allowed {
			there = append(there, g)
			continue
		}
		missing := fmt.Errorf("rows %q need %d CPUs, and this process may use %d (see taskset(1) and 'nproc --all')",
			"..."+g.suffix(), g.cpus, allowed)
		if len(o.CPUs) > 0 {
			return nil, fmt.Errorf("%w: use --cpus 1", missing)
		}
		fmt.Fprintf(o.Progress, "leaving rows out: %v\n", missing)
	}
	return there, nil
}

// Available tells whether the kernel has bridges, by making one.
func (*bridge) Available() (err error) {
	s, err := NewSpace()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "cvbridge"
	if err := s.nl.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return fmt.Errorf("make a bridge: %w: load the module with 'modprobe bridge', or use a kernel with "+
			"CONFIG_BRIDGE, such as Debian's linux-image-cloud-amd64", err)
	}
	return nil
}
