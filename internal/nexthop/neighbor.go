// SPDX-License-Identifier: Apache-2.0

package nexthop

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// confirmEvery keeps a neighbour in use: the kernel forgets those that nobody has used for
	// gc_stale_time, 60 s by default, and does not see the fast path using them.
	confirmEvery = 15 * time.Second
	// askFirst and askLast bound the pause before an unresolved neighbour is asked for again.
	askFirst = time.Second
	askLast  = 8 * time.Second
)

type neighborKey struct {
	ifIndex int
	addr    netip.Addr
}

type neighbor struct {
	state int // NUD_ bits
	mac   [6]byte
	// managed says that somebody else maintains the entry, which must not be touched.
	managed bool
}

// usable tells whether the kernel itself would send to the neighbour's MAC address.
func (n neighbor) usable() bool {
	const valid = unix.NUD_PERMANENT | unix.NUD_REACHABLE | unix.NUD_PROBE | unix.NUD_STALE | unix.NUD_DELAY
	return n.state&valid != 0 && n.mac != [6]byte{}
}

// neighborUse holds the targets that one neighbour leads to.
type neighborUse struct {
	targets map[*Target]struct{}
	next    time.Time
	pause   time.Duration
}

func keyOf(n *netlink.Neigh) (neighborKey, bool) {
	addr, ok := netip.AddrFromSlice(n.IP)
	if !ok || n.Flags&unix.NTF_PROXY != 0 {
		return neighborKey{}, false
	}
	return neighborKey{ifIndex: n.LinkIndex, addr: addr.Unmap()}, true
}

func neighborOf(n *netlink.Neigh) neighbor {
	out := neighbor{
		state:   n.State,
		managed: n.State&(unix.NUD_PERMANENT|unix.NUD_NOARP) != 0 || n.Flags&unix.NTF_EXT_LEARNED != 0,
	}
	if len(n.HardwareAddr) == 6 {
		copy(out.mac[:], n.HardwareAddr)
	}
	return out
}

// setRoute moves the target from its old neighbour to the new one, which is asked for at once
// unless it is known.
func (r *Resolver) setRoute(t *Target, to route) {
	old := t.route.via
	t.route = to
	if old == to.via {
		return
	}
	if use := r.uses[old]; use != nil {
		delete(use.targets, t)
		if len(use.targets) == 0 {
			delete(r.uses, old)
		}
	}
	if !to.via.addr.IsValid() {
		return
	}
	use := r.uses[to.via]
	if use == nil {
		use = &neighborUse{targets: map[*Target]struct{}{}}
		r.uses[to.via] = use
		r.askFor(to.via, use, time.Now())
	}
	use.targets[t] = struct{}{}
}

// neighborChanged takes in a new state of a neighbour in use.
func (r *Resolver) neighborChanged(key neighborKey, use *neighborUse) {
	n, known := r.neighbors[key]
	switch {
	case !known || n.state&unix.NUD_STALE != 0:
		// The kernel would ask again with the next packet that it sends. The fast path sends
		// without the kernel noticing, so ask in its place.
		r.askFor(key, use, time.Now())
	case n.usable():
		use.pause = 0
		use.next = time.Now().Add(confirmEvery)
	}
	for t := range use.targets {
		r.update(t)
	}
}

// askFor has the kernel resolve or confirm a neighbour as if a packet were sent to it now.
func (r *Resolver) askFor(key neighborKey, use *neighborUse, now time.Time) {
	n, known := r.neighbors[key]
	if n.usable() {
		use.pause, use.next = 0, now.Add(confirmEvery)
	} else {
		use.pause = min(max(2*use.pause, askFirst), askLast)
		use.next = now.Add(use.pause)
	}
	if dev, ok := r.devices[key.ifIndex]; n.managed || !ok || !dev.usable {
		return
	}
	ask := &netlink.Neigh{
		LinkIndex: key.ifIndex,
		IP:        key.addr.AsSlice(),
		State:     unix.NUD_NONE,
		Flags:     unix.NTF_USE,
	}
	if !known {
		err := r.handle.NeighAdd(ask)
		if !errors.Is(err, unix.EEXIST) {
			r.reportAsk(key, err)
			return
		}
		// There is one that has not been reported yet. If somebody manages it, asking would take
		// that mark off.
		if n, err = r.readNeighbor(key); err != nil || n.managed {
			r.reportAsk(key, err)
			return
		}
	}
	r.reportAsk(key, r.handle.NeighAppend(ask))
}

// readNeighbor takes one entry over from the kernel's table.
func (r *Resolver) readNeighbor(key neighborKey) (neighbor, error) {
	entries, err := dump(func() ([]netlink.Neigh, error) {
		return r.handle.NeighList(key.ifIndex, netlink.FAMILY_ALL)
	})
	for i := range entries {
		if found, ok := keyOf(&entries[i]); ok && found == key {
			r.neighbors[key] = neighborOf(&entries[i])
		}
	}
	return r.neighbors[key], err
}

// reportAsk passes a failure on. A device that is going away takes no neighbours; its removal is
// reported by itself.
func (r *Resolver) reportAsk(key neighborKey, err error) {
	if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENETDOWN) && !errors.Is(err, unix.EINVAL) {
		r.onError(fmt.Errorf("asking for neighbour %s: %w", key.addr, err))
	}
}
