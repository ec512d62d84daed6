// SPDX-License-Identifier: Apache-2.0

// Package neigh reads entries of the kernel's neighbor tables and has the kernel resolve and confirm
// them in place of a fast path, whose packets the kernel does not see.
package neigh

import (
	"errors"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// ConfirmEvery keeps a neighbor in use: the kernel forgets those that nobody has used for
	// gc_stale_time, 60 s by default.
	ConfirmEvery = 15 * time.Second
	// AskFirst and AskLast bound the pause before an unresolved neighbor is asked for again.
	AskFirst = time.Second
	AskLast  = 8 * time.Second
	// dumpTries is how often a listing is begun that other changes interrupt.
	dumpTries = 10
)

// Key names an entry.
type Key struct {
	IfIndex int
	Addr    netip.Addr
}

// Entry is what the kernel knows of a neighbor.
type Entry struct {
	State int // NUD_ bits
	MAC   [6]byte
	// Managed says that somebody else maintains the entry, which must not be touched.
	Managed bool
}

// KeyOf names the entry; ok is false for those of proxies and without an IP address.
func KeyOf(n *netlink.Neigh) (key Key, ok bool) {
	addr, ok := netip.AddrFromSlice(n.IP)
	if !ok || n.Flags&unix.NTF_PROXY != 0 {
		return Key{}, false
	}
	return Key{IfIndex: n.LinkIndex, Addr: addr.Unmap()}, true
}

// EntryOf takes over what matters.
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

// Usable tells whether the kernel itself would send to the neighbor's MAC address.
func (e Entry) Usable() bool {
	const valid = unix.NUD_PERMANENT | unix.NUD_REACHABLE | unix.NUD_PROBE | unix.NUD_STALE | unix.NUD_DELAY
	return e.State&valid != 0 && e.MAC != [6]byte{}
}

// Stale tells whether the kernel would ask the neighbor again before relying on it.
func (e Entry) Stale() bool { return e.State&unix.NUD_STALE != 0 }

// Pause returns how long to wait before the neighbor is asked for again, given the last pause, and
// what to hand in as last pause then.
func (e Entry) Pause(last time.Duration) (wait, pause time.Duration) {
	if e.Usable() {
		return ConfirmEvery, 0
	}
	pause = min(max(2*last, AskFirst), AskLast)
	return pause, pause
}

// Table holds the entries that are known.
type Table map[Key]Entry

// Use has the kernel resolve or confirm a neighbor as if a packet were sent to it now, unless somebody
// else manages the entry. An entry that t lacks but the kernel has is added to t.
func (t Table) Use(h *netlink.Handle, key Key) error {
	entry, known := t[key]
	if entry.Managed {
		return nil
	}
	use := useOf(key)
	if !known {
		err := h.NeighAdd(use)
		if !errors.Is(err, unix.EEXIST) {
			return going(err)
		}
		// There is one that has not been reported yet. If somebody manages it, asking would take
		// that mark off.
		if err := t.read(h, key); err != nil {
			return going(err)
		}
		if t[key].Managed {
			return nil
		}
	}
	return going(h.NeighAppend(use))
}

// Begin is a cheaper Use for an entry that t lacks: if the kernel has it already, nothing is done, since what
// becomes of it will be reported.
func (t Table) Begin(h *netlink.Handle, key Key) error {
	if err := h.NeighAdd(useOf(key)); !errors.Is(err, unix.EEXIST) {
		return going(err)
	}
	return nil
}

// useOf is the request that stands for a packet being sent.
func useOf(key Key) *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex: key.IfIndex,
		IP:        key.Addr.AsSlice(),
		State:     unix.NUD_NONE,
		Flags:     unix.NTF_USE,
	}
}

// read takes one entry over from the kernel's table.
func (t Table) read(h *netlink.Handle, key Key) error {
	entries, err := Dump(func() ([]netlink.Neigh, error) { return h.NeighList(key.IfIndex, netlink.FAMILY_ALL) })
	for i := range entries {
		if found, ok := KeyOf(&entries[i]); ok && found == key {
			t[key] = EntryOf(&entries[i])
		}
	}
	return err
}

// going leaves out the failures of a device that is going away and takes no neighbors; its removal is
// reported by itself.
func going(err error) error {
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return err
}

// Dump repeats a listing that was interrupted by a change and may be incomplete.
func Dump[T any](list func() ([]T, error)) ([]T, error) {
	for try := 1; ; try++ {
		items, err := list()
		if err == nil || !errors.Is(err, netlink.ErrDumpInterrupted) || try == dumpTries {
			return items, err
		}
	}
}
