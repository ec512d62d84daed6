// SPDX-License-Identifier: Apache-2.0

package route

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// add takes in a route that the kernel reports, with the flags of the message; told says that it is news
// and not part of a dump. It returns false when it is not clear what routes the prefix has now: then the
// mirror says so until the next dump.
func (r *rib) add(p netip.Prefix, rec record, flags uint16, told bool) bool {
	rec.epoch = r.epoch
	list := r.load(p)
	rivals := 0
	for i := range list {
		if list[i].rivals(rec) {
			rivals++
		}
	}
	replace := told && flags&unix.NLM_F_REPLACE != 0
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
		// Messages tell all next hops of a route of IPv6 that has several, so this is the whole.
		before := len(list)
		list = without(list, succeeds, rec)
		if replace && len(list) == before && rivals > 0 {
			// It has taken the place of the first one.
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

// remove takes out a route that the kernel reports as gone. It returns as add does.
func (r *rib) remove(p netip.Prefix, rec record) bool {
	list := r.load(p)
	for i := range list {
		if list[i].same(rec) {
			r.store(p, slices.Delete(list, i, i+1))
			return true
		}
	}
	if rec.is(recordMulti) && r.is6 {
		if left := without(slices.Clone(list), succeeds, rec); len(left) < len(list) {
			r.store(p, left)
			return true
		}
	}
	for i := range list {
		// One next hop of several, or a route that has changed unseen.
		if list[i].rivals(rec) {
			return r.unsure(p)
		}
	}
	return true
}

// unsure has the mirror ask for a prefix until the next dump is through.
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

// has tells whether the very route is there.
func (r *rib) has(p netip.Prefix, rec record) bool {
	return slices.ContainsFunc(r.load(p), rec.same)
}

// succeeds tells whether a route of IPv6 with next hops of rec's kind gives way to rec.
func succeeds(old, rec record) bool {
	return old.rivals(rec) && old.is(recordECMP|recordMulti)
}

// without leaves out the routes that gives holds for.
func without(list []record, gives func(old, rec record) bool, rec record) []record {
	return slices.DeleteFunc(list, func(old record) bool { return gives(old, rec) })
}
