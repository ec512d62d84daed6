// SPDX-License-Identifier: Apache-2.0

package route

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// add applies an RTM_NEWROUTE with the given flags of the netlink message. notified is true for a notification and
// false for an entry of a dump. It returns false if it is not certain which routes the prefix has now. The programs
// then ask the kernel for the prefix until the next dump is complete.
func (r *rib) add(p netip.Prefix, rec record, flags uint16, notified bool) bool {
	rec.epoch = r.epoch
	list := r.load(p)
	rivals := 0
	for i := range list {
		if list[i].rivals(rec) {
			rivals++
		}
	}
	replace := notified && flags&unix.NLM_F_REPLACE != 0
	for i := range list {
		if !list[i].same(rec) {
			continue
		}
		if replace && r.is6 && rivals > 1 {
			return r.unsure(p)
		}
		if list[i].desc == rec.desc && list[i].packed == rec.packed {
			list[i].epoch = rec.epoch
			r.touch(p, list)
			return true
		}
		list[i] = rec
		r.store(p, list)
		return true
	}
	switch {
	case !r.is6:
		if replace && rivals == 1 {
			list = without(list, record.rivals, rec)
		} else if replace && rivals > 1 {
			return r.unsure(p)
		}
	case rec.is(recordECMP | recordMulti):
		// Messages list all next hops of an IPv6 route with several, so this replaces what was known.
		before := len(list)
		list = without(list, replacedBy, rec)
		if replace && len(list) == before && rivals > 0 {
			// It has replaced the first of its rivals.
			if rivals > 1 {
				return r.unsure(p)
			}
			list = without(list, record.rivals, rec)
		}
	case replace && rivals == 1:
		list = without(list, record.rivals, rec)
	case replace && rivals > 1:
		return r.unsure(p)
	}
	r.store(p, append(list, rec))
	return true
}

// remove applies an RTM_DELROUTE. It returns the same as add.
func (r *rib) remove(p netip.Prefix, rec record) bool {
	list := r.load(p)
	for i := range list {
		if list[i].same(rec) {
			r.store(p, slices.Delete(list, i, i+1))
			return true
		}
	}
	if rec.is(recordMulti) && r.is6 {
		if left := without(slices.Clone(list), replacedBy, rec); len(left) < len(list) {
			r.store(p, left)
			return true
		}
	}
	for i := range list {
		// This is one next hop of several, or a route that has changed without a notification.
		if list[i].rivals(rec) {
			return r.unsure(p)
		}
	}
	return true
}

// unsure makes the programs ask for a prefix until the next dump is complete. It always returns false, for add and
// remove to return.
func (r *rib) unsure(p netip.Prefix) bool {
	list := r.load(p)
	for i := range list {
		if list[i].rank() == rankUnsure {
			list[i].epoch = r.epoch
			r.touch(p, list)
			return false
		}
	}
	r.store(p, append(list, record{desc: descAsk, epoch: r.epoch, packed: packed(rankUnsure, 0)}))
	return false
}

// find returns the record of this very route.
func (r *rib) find(p netip.Prefix, rec record) (known record, ok bool) {
	known, ok = r.routes.Get(p)
	if !ok || !known.is(recordList) {
		return known, ok && known.same(rec)
	}
	list := r.lists[known.desc]
	at := slices.IndexFunc(list, rec.same)
	if at < 0 {
		return known, false
	}
	return list[at], true
}

// unsureSince reports whether the routes of the prefix are not known for certain, and in which epoch that was found.
func (r *rib) unsureSince(p netip.Prefix) (epoch uint16, unsure bool) {
	rec, ok := r.routes.Get(p)
	if !ok {
		return 0, false
	}
	for _, one := range r.view(rec) {
		if one.rank() == rankUnsure {
			return one.epoch, true
		}
	}
	return 0, false
}

// doubt adds a route that may be gone, unless it is known, and makes the programs ask for its prefix until the next
// dump is complete. That dump shows the route or removes it. It always returns false, as unsure does.
func (r *rib) doubt(p netip.Prefix, rec record) bool {
	rec.epoch = r.epoch
	list := r.load(p)
	at := slices.IndexFunc(list, rec.same)
	if at < 0 {
		r.store(p, append(list, rec))
		return r.unsure(p)
	}
	list[at].epoch = r.epoch
	r.touch(p, list)
	return r.unsure(p)
}

// replacedBy reports whether an IPv6 route with next hops of rec's kind is replaced by rec.
func replacedBy(old, rec record) bool {
	return old.rivals(rec) && old.is(recordECMP|recordMulti)
}

// without removes the routes for which drop returns true.
func without(list []record, drop func(old, rec record) bool, rec record) []record {
	return slices.DeleteFunc(list, func(old record) bool { return drop(old, rec) })
}
