// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/host/netdev"
)

// Device is the state of an interface that carries the program, from the kernel.
type Device struct {
	// Name is the present name.
	Name string
	// Up tells whether the interface is set up (IFF_UP), and Carrier whether it has a carrier (IFF_LOWER_UP).
	Up, Carrier bool
	// Bridge is the bridge of which it is a port, "" for none.
	Bridge string
}

// Devices returns the interfaces that carry the instance, by their names in Attached. It is empty if the instance is in
// another network namespace than the calling thread.
func (i *Instance) Devices() map[string]Device {
	all := make(map[string]Device)
	if i.temporary || !i.Here() {
		return all
	}
	for name, p := range i.livePins() {
		l, err := netlink.LinkByIndex(p.Index)
		if err != nil {
			continue // deleted meanwhile
		}
		flags := l.Attrs().RawFlags
		all[name] = Device{Name: l.Attrs().Name, Up: flags&unix.IFF_UP != 0, Carrier: flags&unix.IFF_LOWER_UP != 0, Bridge: netdev.BridgeAbove(l)}
	}
	return all
}

// UpPorts implements stats.UpSource: an interface counts as up if it has a carrier too.
func (i *Instance) UpPorts() map[string]bool {
	all := make(map[string]bool)
	for name, d := range i.Devices() {
		all[name] = d.Up && d.Carrier
	}
	return all
}

// Starting tells whether the instance is on no interface because a process is about to attach it.
func (i *Instance) Starting() bool {
	if i.temporary || len(i.livePins()) > 0 {
		return false
	}
	f, err := os.Open(filepath.Join(i.dir, editsDir))
	if err != nil {
		return false
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == unix.EWOULDBLOCK
}
