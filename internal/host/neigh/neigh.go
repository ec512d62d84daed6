// SPDX-License-Identifier: Apache-2.0

// Package neigh reads the kernel's neighbor tables. It makes the kernel resolve and confirm neighbors on
// behalf of a fast path, whose packets the kernel does not see.
package neigh

import (
	"errors"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// ConfirmEvery is how often a neighbor has to be used to stay in the kernel's table. The kernel
	// removes those that have not been used for gc_stale_time, 60 s by default.
	ConfirmEvery = 15 * time.Second
	// AskFirst and AskLast bound the pause before the kernel is asked again for an unresolved neighbor.
	AskFirst = time.Second
	AskLast  = 8 * time.Second
	// dumpTries is how often Dump tries a listing that changes interrupt.
	dumpTries = 10
)

// Key identifies an entry by the index of its device and its address.
type Key struct {
	IfIndex int
	Addr    netip.Addr
}

// Entry is what the kernel knows of a neighbor.
type Entry struct {
	State int // NUD_ bits
	MAC   [6]byte
	// Managed is true if an administrator or a daemon maintains the entry. It must not be changed.
	Managed bool
}

// KeyOf returns the key of an entry. ok is false for proxy entries and for those without an IP address.
func KeyOf(n *netlink.Neigh) (key Key, ok bool) {
	addr, ok := netip.AddrFromSlice(n.IP)
	if !ok || n.Flags&unix.NTF_PROXY != 0 {
		return Key{}, false
	}
	return Key{IfIndex: n.LinkIndex, Addr: addr.Unmap()}, true
}

// EntryOf converts an entry of the netlink package.
func EntryOf(n *netlink.Neigh) Entry {
	e := Entry{
		State:   n.State,
		Managed: n.State&(unix.NUD_PERMANENT|unix.NUD_NOARP) != 0 || n.Flags&unix.NTF_EXT_LEARNED != 0,
	}
	if len(n.HardwareAddr) == 6 {
		copy(e.MAC[:], n.HardwareAddr)
	}
	return e
}

// Valid reports whether the kernel takes the neighbor for one that can be reached (NUD_VALID).
func (e Entry) Valid() bool {
	const valid = unix.NUD_PERMANENT | unix.NUD_NOARP | unix.NUD_REACHABLE | unix.NUD_PROBE | unix.NUD_STALE | unix.NUD_DELAY
	return e.State&valid != 0
}

// Usable reports whether the kernel itself would send to the neighbor's MAC address.
func (e Entry) Usable() bool {
	const valid = unix.NUD_PERMANENT | unix.NUD_REACHABLE | unix.NUD_PROBE | unix.NUD_STALE | unix.NUD_DELAY
	return e.State&valid != 0 && e.MAC != [6]byte{}
}

// Stale reports whether the kernel would probe the neighbor after sending to it.
func (e Entry) Stale() bool { return e.State&unix.NUD_STALE != 0 }

// Pause returns how long to wait before asking for the neighbor again. last is the pause that the previous
// call returned, 0 at first.
func (e Entry) Pause(last time.Duration) (wait, pause time.Duration) {
	if e.Usable() {
		return ConfirmEvery, 0
	}
	pause = min(max(2*last, AskFirst), AskLast)
	return pause, pause
}

// Table is a copy of the kernel's neighbor tables.
type Table map[Key]Entry

// Use makes the kernel resolve or confirm a neighbor as if a packet were sent to it now, unless the entry
// is managed. An entry that the kernel has and t lacks is added to t.
func (t Table) Use(h *netlink.Handle, key Key) error {
	entry, known := t[key]
	if entry.Managed {
		return nil
	}
	use := useOf(key)
	if !known {
		err := h.NeighAdd(use)
		if !errors.Is(err, unix.EEXIST) {
			return ignoreGoing(err)
		}
		// The kernel has an entry for which no notification has come. If it is managed, the request
		// below would clear that mark.
		if err := t.read(h, key); err != nil {
			return ignoreGoing(err)
		}
		if t[key].Managed {
			return nil
		}
	}
	return ignoreGoing(h.NeighAppend(use))
}

// Begin is a cheaper Use for an entry that t lacks. If the kernel has the entry already, it does nothing, since a
// notification of it is on its way.
func (t Table) Begin(h *netlink.Handle, key Key) error {
	if err := h.NeighAdd(useOf(key)); !errors.Is(err, unix.EEXIST) {
		return ignoreGoing(err)
	}
	return nil
}

// useOf is the request with the effect of sending a packet (NTF_USE).
func useOf(key Key) *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex: key.IfIndex,
		IP:        key.Addr.AsSlice(),
		State:     unix.NUD_NONE,
		Flags:     unix.NTF_USE,
	}
}

// read copies one entry from the kernel's table.
func (t Table) read(h *netlink.Handle, key Key) error {
	entries, err := Dump(func() ([]netlink.Neigh, error) { return h.NeighList(key.IfIndex, netlink.FAMILY_ALL) })
	for i := range entries {
		if found, ok := KeyOf(&entries[i]); ok && found == key {
			t[key] = EntryOf(&entries[i])
		}
	}
	return err
}

// ignoreGoing returns nil for the errors of a device that is going away. A notification of its removal follows.
func ignoreGoing(err error) error {
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

// Dump calls list, and repeats it while changes interrupt the listing, which may then be incomplete. After several
// attempts it returns the last one with its error.
func Dump[T any](list func() ([]T, error)) ([]T, error) {
	for try := 1; ; try++ {
		items, err := list()
		if err == nil || !errors.Is(err, netlink.ErrDumpInterrupted) || try == dumpTries {
			return items, err
		}
	}
}
