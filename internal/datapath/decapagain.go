// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf/link"
)

// LostDecaps are the ends of tunnels of this network namespace whose interfaces were deleted. It reads less than Decaps.
func LostDecaps() ([]Unattached, error) {
	dir, ok, err := decapHere()
	if err != nil || !ok {
		return nil, err
	}
	var all []Unattached
	for _, path := range linkPins(dir) {
		r, err := lostDecap(path)
		if err != nil || r == nil {
			continue // taken off meanwhile
		}
		name, why, err := r.lost(path)
		if err != nil {
			return nil, err
		}
		if dev, err := net.InterfaceByName(name); err == nil {
			if _, on := pinOn(dir, dev.Index); on {
				continue
			}
		}
		if name != "" {
			all = append(all, Unattached{Interface: name, Why: why})
		}
	}
	return all, nil
}

// lostDecap reads what a dead link was loaded with; nil if it is not dead.
func lostDecap(path string) (*decapRecord, error) {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	info, err := l.Info()
	if err != nil || info.XDP() == nil || info.XDP().Ifindex != 0 {
		return nil, err
	}
	p, err := openDecap(l)
	if err != nil {
		return nil, err
	}
	defer p.close()
	r := new(decapRecord)
	return r, p.readRecord(r)
}

// AttachDecapAgain attaches the end of tunnels that an interface had before it was deleted and made again, with its
// options and counters. Outer destinations that were the host's own are those of then, which the interface may not have
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
	r, err := lostDecap(linkPath(dir, iface))
	if isNotExist(err) || err == nil && r == nil {
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
	for _, path := range linkPins(dir) {
		if index := pinnedOn(path); index != 0 {
			if dev, err := net.InterfaceByIndex(index); err == nil {
				all[dev.Name] = true
			}
			continue
		}
		r, err := lostDecap(path)
		if err != nil || r == nil {
			continue
		}
		if name, _, err := r.lost(path); err == nil && name != "" && !all[name] {
			all[name] = false
		}
	}
	return all
}
