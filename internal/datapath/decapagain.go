// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf/link"

	"culvert/internal/bpfobj"
)

// LostDecaps are the ends of tunnels of this network namespace whose interfaces were deleted, or moved to another one. It
// reads less than Decaps.
func LostDecaps() ([]Unattached, error) {
	dir, ok, err := decapHere()
	if err != nil || !ok {
		return nil, err
	}
	var all []Unattached
	pins := readPins(dir)
	for _, at := range pins {
		if at.now != "" {
			continue
		}
		r, err := lostDecap(at)
		if err != nil {
			continue // taken off meanwhile
		}
		name, why, err := r.lost(at)
		if err != nil {
			return nil, err
		}
		if name != "" && !slices.ContainsFunc(pins, func(p pin) bool { return p.now == name }) {
			all = append(all, Unattached{Interface: name, Why: why, Moved: at.index != 0})
		}
	}
	return all, nil
}

// lostDecap reads what a link was loaded with.
func lostDecap(at pin) (*decapRecord, error) {
	l, err := link.LoadPinnedLink(at.path, nil)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	p, err := openDecap(l)
	if err != nil {
		return nil, err
	}
	defer p.close()
	r := new(decapRecord)
	return r, p.readRecord(r)
}

// AttachDecapAgain attaches the end of tunnels that an interface had before it was deleted and made again, with its
// options and counters. One that was moved to another network namespace keeps its own program and counters. Outer destinations that were the host's own are those of then, which the interface may not have
// yet, and of now. It returns false if somebody else did so, or took it off.
func AttachDecapAgain(iface string) (bool, error) {
	ports, err := findPorts([]string{iface}, false)
	if err != nil {
		return false, err
	}
	dir, ok, err := decapHere()
	if err != nil || !ok {
		return false, err
	}
	unlock, err := lockDecap(dir)
	if err != nil {
		return false, err
	}
	defer unlock()
	at := pinAt(dir, linkPath(dir, iface))
	if at.now != "" {
		return false, nil
	}
	r, err := lostDecap(at)
	if bpfobj.NotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the end of tunnels on %s: %w", iface, err)
	}
	if err := checkForeign(dir, ports); err != nil {
		return false, err
	}
	if len(ports[0].HardwareAddr) != 6 {
		return false, noEthernet(iface)
	}
	o := r.DecapOptions
	if o.OwnLocal {
		if now, err := hostAddrs(); err == nil {
			for _, a := range now {
				if !slices.Contains(o.Local, a) {
					o.Local = append(o.Local, a)
				}
			}
		}
	}
	_, err = attachDecap(dir, ports[0], o)
	return err == nil, err
}

func noEthernet(iface string) error {
	return fmt.Errorf("interface %s has no Ethernet address: tunnels end on Ethernet interfaces only", iface)
}

// decapPorts tells of the interfaces where tunnels end, in the network namespace of an instance, whether they carry it.
func (i *Instance) decapPorts() map[string]bool {
	all := make(map[string]bool)
	dir := filepath.Join(filepath.Dir(i.dir), decapDir)
	if !i.Here() { // all that is known is that there is an interface
		for _, path := range linkPins(dir) {
			if pinnedOn(path) != 0 {
				all[linkName(path)] = true
			}
		}
		return all
	}
	for _, at := range readPins(dir) {
		if at.now != "" {
			all[at.now] = true
			continue
		}
		r, err := lostDecap(at)
		if err != nil {
			continue
		}
		if name, _, err := r.lost(at); err == nil && name != "" && !all[name] {
			all[name] = false
		}
	}
	return all
}
