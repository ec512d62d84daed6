// SPDX-License-Identifier: Apache-2.0

package route

import (
	"net/netip"

	"github.com/gaissmai/bart"

	"culvert/internal/route/routeplane"
)

// mirror is the table that the programs read, an lpm.Table.
type mirror interface {
	Insert(p netip.Prefix, value uint32) bool
	Remove(p netip.Prefix, coverBits int, coverValue uint32)
}

// Ranks of the routing tables. With the default policy rules, the table of the highest rank that has a route decides.
const (
	rankNone uint8 = iota
	rankDefault
	rankMain
	rankLocal
	// rankUnsure is no table. It marks a prefix whose routes are not known for certain.
	rankUnsure
)

// Flags of a record.
const (
	// recordList means that the prefix has several routes. They are in rib.lists, under the number in desc.
	recordList uint8 = 1 << iota
	// recordECMP marks an IPv6 route with one next hop that can become one of several.
	recordECMP
	// recordMulti marks a route with several next hops.
	recordMulti
)

// record is one route. It is small, because a full table has a million of them.
type record struct {
	desc     uint32
	metric   uint32
	identity uint32
	epoch    uint16
	tos      uint8
	// packed has the rank in its low four bits and the flags in its high four.
	packed uint8
}

func (r record) rank() uint8        { return r.packed & 15 }
func (r record) is(f uint8) bool    { return r.packed>>4&f != 0 }
func packed(rank, flags uint8) byte { return rank | flags<<4 }

// rivals reports whether two routes of a prefix have the same table, tos and metric, so that neither takes precedence.
func (r record) rivals(o record) bool {
	return r.rank() == o.rank() && r.tos == o.tos && r.metric == o.metric
}

// same reports whether both records are the same route, maybe in different states.
func (r record) same(o record) bool {
	return r.rivals(o) && r.identity == o.identity && r.is(recordMulti) == o.is(recordMulti)
}

// rib holds the routes of the kernel's tables of one family.
type rib struct {
	is6    bool
	descs  *descriptors
	mirror mirror
	routes bart.Table[record]
	// lists are the routes of prefixes that have several.
	lists    map[uint32][]record
	nextList uint32
	// locals are the prefixes of table local, except single addresses. They affect longer prefixes of other
	// tables.
	locals bart.Table[struct{}]
	count  int
	// epoch counts the dumps. Each record has the epoch of the dump or notification that last showed it.
	epoch uint16
	// lost is true if the mirror had no room for a prefix.
	lost    bool
	scratch [8]record
}

func newRIB(is6 bool, descs *descriptors, m mirror) *rib {
	r := &rib{is6: is6, descs: descs, mirror: m, lists: map[uint32][]record{}}
	r.insert(r.defaultPrefix(), routeplane.HopNone)
	return r
}

// defaultPrefix is the prefix of length 0.
func (r *rib) defaultPrefix() netip.Prefix {
	if r.is6 {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

// load copies the routes of a prefix into scratch memory, valid until the next load. There is room to append.
func (r *rib) load(p netip.Prefix) []record {
	rec, ok := r.routes.Get(p)
	switch {
	case !ok:
		return r.scratch[:0]
	case rec.is(recordList):
		return append(r.scratch[:0], r.lists[rec.desc]...)
	}
	return append(r.scratch[:0], rec)
}

// view returns the routes that a stored record stands for. They must not be changed.
func (r *rib) view(rec record) []record {
	if rec.is(recordList) {
		return r.lists[rec.desc]
	}
	return []record{rec}
}

// touch writes routes back if only their epoch has changed.
func (r *rib) touch(p netip.Prefix, list []record) {
	if len(list) == 1 {
		r.routes.Insert(p, list[0])
		return
	}
	rec, _ := r.routes.Get(p)
	copy(r.lists[rec.desc], list)
}

// store replaces the routes of a prefix and brings the mirror up to date.
func (r *rib) store(p netip.Prefix, list []record) {
	old, had := r.routes.Get(p)
	for _, rec := range list {
		r.descs.hold(rec.desc)
	}
	wasLocal := false
	if had {
		for _, rec := range r.view(old) {
			wasLocal = wasLocal || rec.rank() == rankLocal
			defer r.descs.release(rec.desc)
			r.count--
		}
	}
	r.count += len(list)
	list = r.write(p, old, had, list)

	host := p.Bits() == p.Addr().BitLen()
	isLocal := false
	for _, rec := range list {
		isLocal = isLocal || rec.rank() == rankLocal
	}
	if !host && isLocal {
		r.locals.Insert(p, struct{}{})
	} else if !host && wasLocal {
		r.locals.Delete(p)
	}
	switch {
	case len(list) > 0:
		r.insert(p, r.value(p, list))
	case p.Bits() == 0:
		r.insert(p, routeplane.HopNone)
	case had:
		bits, value := r.cover(p)
		r.mirror.Remove(p, bits, value)
	}
	if !host && (isLocal || wasLocal) {
		for below, rec := range r.routes.Subnets(p) {
			if below != p {
				r.insert(below, r.value(below, r.view(rec)))
			}
		}
	}
}

// write stores the routes of a prefix, and returns the stored copy.
func (r *rib) write(p netip.Prefix, old record, had bool, list []record) []record {
	if had && old.is(recordList) && len(list) < 2 {
		// The caller still releases the descriptors of the old list.
		delete(r.lists, old.desc)
	}
	switch len(list) {
	case 0:
		r.routes.Delete(p)
	case 1:
		r.routes.Insert(p, list[0])
	default:
		number := old.desc
		if !had || !old.is(recordList) {
			for r.nextList++; r.lists[r.nextList] != nil; {
				r.nextList++
			}
			number = r.nextList
			r.routes.Insert(p, record{desc: number, packed: packed(rankNone, recordList)})
		}
		list = append([]record(nil), list...)
		r.lists[number] = list
	}
	return list
}

func (r *rib) insert(p netip.Prefix, value uint32) {
	if !r.mirror.Insert(p, value) {
		r.lost = true
	}
}

// cover returns the length and the value of the longest other prefix around p, which decides once p is removed.
func (r *rib) cover(p netip.Prefix) (bits int, value uint32) {
	around, err := p.Addr().Prefix(p.Bits() - 1)
	if err != nil {
		return 0, routeplane.HopAsk
	}
	found, rec, ok := r.routes.LookupPrefixLPM(around)
	if !ok {
		return 0, routeplane.HopNone
	}
	return found.Bits(), r.value(found, r.view(rec))
}

// value returns the number of the next hop that the mirror has for a prefix with the given routes.
func (r *rib) value(p netip.Prefix, list []record) uint32 {
	desc, rank := r.best(list)
	if rank == rankMain || rank == rankDefault {
		if local, ok := r.localAround(p); ok {
			if !r.is6 {
				// IPv4 looks in both tables at once until the host has had its first policy rule, and in table
				// local first ever after. Nothing shows which of the two applies.
				return routeplane.HopAsk
			}
			rec, _ := r.routes.Get(local)
			desc, _ = r.best(r.view(rec))
		}
	}
	return r.descs.number(desc)
}

// localAround returns the longest prefix of table local that contains p and is shorter.
func (r *rib) localAround(p netip.Prefix) (netip.Prefix, bool) {
	if p.Bits() == 0 || r.locals.Size() == 0 {
		return netip.Prefix{}, false
	}
	around, err := p.Addr().Prefix(p.Bits() - 1)
	if err != nil {
		return netip.Prefix{}, false
	}
	found, _, ok := r.locals.LookupPrefixLPM(around)
	return found, ok
}

// best returns the descriptor and the rank of the route that the kernel uses. The descriptor is descAsk if that
// depends on more than the destination.
func (r *rib) best(list []record) (desc uint32, rank uint8) {
	if len(list) == 1 {
		rec := list[0]
		if rec.tos != 0 || rec.rank() == rankDefault || rec.rank() == rankUnsure {
			return descAsk, rec.rank()
		}
		return rec.desc, rec.rank()
	}
	var first record
	alone := true
	for _, rec := range list {
		// An IPv6 route with descAsk may be for some sources alone. It then precedes others whatever its metric.
		if rec.tos != 0 || r.is6 && rec.desc == descAsk {
			return descAsk, max(rank, rec.rank())
		}
		switch {
		case rec.rank() > first.rank() || rec.rank() == first.rank() && rec.metric < first.metric:
			first, alone = rec, true
		case rec.rivals(first) && r.descs.number(rec.desc) != r.descs.number(first.desc):
			alone = false
		}
	}
	if !alone || first.rank() == rankDefault || first.rank() == rankUnsure {
		return descAsk, first.rank()
	}
	return first.desc, first.rank()
}

// slice calls fn for the prefixes that begin with the given byte, and for shorter ones that contain it. fn must not
// change the table.
func (r *rib) slice(first byte, fn func(netip.Prefix, record)) {
	var p netip.Prefix
	if r.is6 {
		p = netip.PrefixFrom(netip.AddrFrom16([16]byte{first}), 8)
	} else {
		p = netip.PrefixFrom(netip.AddrFrom4([4]byte{first}), 8)
	}
	for around, rec := range r.routes.Supernets(p) {
		if around != p {
			fn(around, rec)
		}
	}
	for below, rec := range r.routes.Subnets(p) {
		fn(below, rec)
	}
}

// sweep removes the routes that the last dump has not shown, of prefixes for which slice calls its function.
func (r *rib) sweep(first byte) {
	var old []netip.Prefix
	r.slice(first, func(p netip.Prefix, rec record) {
		if !rec.is(recordList) {
			if rec.epoch != r.epoch {
				old = append(old, p)
			}
			return
		}
		for _, one := range r.lists[rec.desc] {
			if one.epoch != r.epoch {
				old = append(old, p)
				return
			}
		}
	})
	for _, p := range old {
		list := r.load(p)
		kept := list[:0]
		for _, rec := range list {
			if rec.epoch == r.epoch {
				kept = append(kept, rec)
			}
		}
		r.store(p, kept)
	}
}
