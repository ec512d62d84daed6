// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Device is what the kernel says now of an interface that carries the program.
type Device struct {
	// Name is what it is called now.
	Name string
	// Up tells whether it was set up (IFF_UP), Carrier whether its other end is there, too (IFF_LOWER_UP).
	Up, Carrier bool
}

// Devices are the interfaces that carry the instance, by the names that they go by in it. It is known for an instance of
// the calling thread's network namespace alone.
func (i *Instance) Devices() map[string]Device {
	all := make(map[string]Device)
	if i.temporary || !i.Here() {
		return all
	}
	for name, p := range i.livePins() {
		l, err := netlink.LinkByIndex(p.Index)
		if err != nil {
			continue // it has gone meanwhile
		}
		flags := l.Attrs().RawFlags
		all[name] = Device{Name: l.Attrs().Name, Up: flags&unix.IFF_UP != 0, Carrier: flags&unix.IFF_LOWER_UP != 0}
	}
	return all
}

// UpPorts implements stats.UpSource.
func (i *Instance) UpPorts() map[string]bool {
	all := make(map[string]bool)
	for name, d := range i.Devices() {
		all[name] = d.Up && d.Carrier
	}
	return all
}

// Starting tells whether the instance is attached to nothing because a start is under way that attaches it.
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
