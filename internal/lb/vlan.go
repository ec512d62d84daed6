// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"culvert/internal/lb/lbplane"
)

// noVLANs is written for an empty list of VLANs.
const noVLANs = "none"

// ParseVLANs reads "100,200", or "none".
func ParseVLANs(text string) ([]uint16, error) {
	if text == noVLANs {
		return nil, nil
	}
	var ids []uint16
	for word := range strings.SplitSeq(text, ",") {
		id, err := strconv.ParseUint(strings.TrimSpace(word), 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%q is no list of VLANs: write it as 100,200, or %s", text, noVLANs)
		}
		ids = append(ids, uint16(id))
	}
	return ids, CheckVLANs(ids)
}

// VLANWords returns VLANs as ParseVLANs reads them, "" for none.
func VLANWords(ids []uint16) string {
	var words []string
	for _, id := range ids {
		words = append(words, strconv.Itoa(int(id)))
	}
	return strings.Join(words, ",")
}

// CheckVLANs refuses what no list of VLANs has.
func CheckVLANs(ids []uint16) error {
	if len(ids) > lbplane.MaxVLANs {
		return fmt.Errorf("%d VLANs: use %d at most", len(ids), lbplane.MaxVLANs)
	}
	for n, id := range ids {
		if id < 1 || id > 4094 {
			return fmt.Errorf("VLAN %d: use 1 to 4094", id)
		}
		if slices.Contains(ids[:n], id) {
			return fmt.Errorf("VLAN %d is there twice", id)
		}
	}
	return nil
}

// namedVLANs returns the VLANs that VIPs name, with their addresses.
func (s *State) namedVLANs() map[lbplane.NamedVLAN]bool {
	all := make(map[lbplane.NamedVLAN]bool)
	for _, v := range s.VIPs {
		for _, id := range v.VLANs {
			all[lbplane.NamedVLAN{Addr: v.Service.Addr, ID: id}] = true
		}
	}
	return all
}

// writeVLANs adds and deletes the named VLANs that differ.
func writeVLANs(p plane, old, now map[lbplane.NamedVLAN]bool) error {
	for v := range now {
		if !old[v] {
			if err := p.SetNamedVLAN(v); err != nil {
				return err
			}
		}
	}
	for v := range old {
		if !now[v] {
			if err := p.DeleteNamedVLAN(v); err != nil {
				return err
			}
		}
	}
	return nil
}
