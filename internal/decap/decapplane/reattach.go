// SPDX-License-Identifier: Apache-2.0

package decapplane

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/link"

	"culvert/internal/bpfobj"
	"culvert/internal/host/pins"
)

// Lost returns the ends of tunnels of this network namespace whose interfaces were deleted or moved to another one. It is cheaper
// than List.
func Lost() ([]pins.Unattached, error) {
	dir, ok, err := dirHere()
	if err != nil || !ok {
		return nil, err
	}
	var lost []pins.Unattached
	all := pins.Read(dir)
	for _, at := range all {
		if at.Now != "" {
			continue
		}
		r, err := recordAt(at)
		if err != nil {
			continue // detached meanwhile
		}
		name, why, err := r.lost(at)
		if err != nil {
			return nil, err
		}
		if name != "" && !slices.ContainsFunc(all, func(p pins.Pin) bool { return p.Now == name }) {
			lost = append(lost, pins.Unattached{Interface: name, Why: why, Moved: at.Index != 0})
		}
	}
	return lost, nil
}

// recordAt reads what is stored with the program of a pinned link.
func recordAt(at pins.Pin) (*record, error) {
	l, err := link.LoadPinnedLink(at.Path, nil)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	p, err := open(l)
	if err != nil {
		return nil, err
	}
	defer p.close()
	r := new(record)
	return r, p.readRecord(r)
}

// Reattach attaches the end of tunnels that an interface had before it was deleted and made again, with its options and
// counters. If Options.OwnLocal is set, it adds the host's present addresses to the former ones, which the interface may not have
// got back yet. An interface that was moved to another network namespace keeps its program and counters. Reattach returns false
// if another process has attached or detached the end of tunnels meanwhile.
func Reattach(iface string) (bool, error) {
	ports, err := pins.Interfaces([]string{iface}, false)
	if err != nil {
		return false, err
	}
	dir, ok, err := dirHere()
	if err != nil || !ok {
		return false, err
	}
	unlock, err := lock(dir)
	if err != nil {
		return false, err
	}
	defer unlock()
	at := pins.At(dir, pins.LinkPath(dir, iface))
	if at.Now != "" {
		return false, nil
	}
	r, err := recordAt(at)
	if bpfobj.NotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the end of tunnels on %s: %w", iface, err)
	}
	if err := pins.CheckForeign(dir, ports); err != nil {
		return false, err
	}
	if len(ports[0].HardwareAddr) != 6 {
		return false, noEthernet(iface)
	}
	o := r.Options
	if o.OwnLocal {
		if now, err := hostAddrs(); err == nil {
			for _, a := range now {
				if !slices.Contains(o.Local, a) {
					o.Local = append(o.Local, a)
				}
			}
		}
	}
	_, err = attachOne(dir, ports[0], o)
	return err == nil, err
}

// noEthernet is the error for an interface without a MAC address.
func noEthernet(iface string) error {
	return fmt.Errorf("interface %s has no Ethernet address: tunnels end on Ethernet interfaces only", iface)
}

// ports returns the interfaces of a network namespace that should carry an end of tunnels, and whether they do (pins.Owner). Here
// says that it is the namespace of the calling thread. For another one, interfaces that have lost it are missing.
func ports(inode uint32, here bool) map[string]bool {
	all := make(map[string]bool)
	root, ok, err := pins.Root()
	if !ok || err != nil {
		return all
	}
	dir := dirOf(root, inode)
	if !here {
		for _, path := range pins.Links(dir) {
			if pins.Index(path) != 0 {
				all[pins.LinkName(path)] = true
			}
		}
		return all
	}
	for _, at := range pins.Read(dir) {
		if at.Now != "" {
			all[at.Now] = true
			continue
		}
		r, err := recordAt(at)
		if err != nil {
			continue
		}
		if name, _, err := r.lost(at); err == nil && name != "" && !all[name] {
			all[name] = false
		}
	}
	return all
}
