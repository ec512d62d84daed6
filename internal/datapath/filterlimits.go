// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"crypto/rand"
	"fmt"
	"math/bits"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
)

// Bounds of a rate, of bpf/filter/limit.h: with more, the rounding of its ticks would count.
const (
	FilterMaxPacketRate = 1_000_000_000
	FilterMaxByteRate   = 50_000_000_000
	// FilterMaxBurst is the time in which the rate fills a burst, at most.
	FilterMaxBurst = time.Hour
	// FilterEntries is how many addresses a limit keeps in mind unless it says otherwise, 16 bytes each.
	FilterEntries    = 1 << 16
	FilterMaxEntries = 1 << 24
	// FilterMaxLimits is how many limits there can be.
	FilterMaxLimits = 4096
)

// The default burst is what the rate gives in a fiftieth of a second: more than an interrupt or a busy CPU delays
// packets, and 2 % of what passes in a second. Two packets at least: with one, packets that come in step at just over
// the rate would pass at half of it.
const (
	filterBurstShare  = 50
	filterLeastBurst  = 2
	filterFullFrame   = 1514 // bytes
	filterTicks       = 16 * uint64(time.Second)
	filterLimitWays   = 4
	filterBucketBytes = 64
	// Bytes are multiplied by up to 2^44, frames are shorter than 2^19.
	filterMultBits = 44
	filterMaxShift = 40
)

// Numbers of bpf/filter/limit.h.
const (
	filterLimitPerRule = iota
	filterLimitPerSrc
	filterLimitPerDst
)

// Validate refuses a rate that cannot be kept.
func (r FilterRate) Validate() error {
	most, unit := uint64(FilterMaxPacketRate), "packets"
	if r.Bytes {
		most, unit = FilterMaxByteRate, "bytes"
	}
	switch {
	case r.Rate == 0 || r.Rate > most:
		return fmt.Errorf("rate of %d %s a second: use 1 to %d", r.Rate, unit, most)
	case r.Burst/r.Rate >= uint64(FilterMaxBurst/time.Second):
		return fmt.Errorf("burst of %d %s: use less than what the rate gives in an hour, %d, or 0 for the default",
			r.Burst, unit, r.Rate*uint64(FilterMaxBurst/time.Second))
	case r.Per != FilterPerRule && r.Per != FilterPerSrc && r.Per != FilterPerDst:
		return fmt.Errorf("rate per %q: use src or dst, or none for one rate", string(r.Per))
	case r.Per == FilterPerRule && (r.Prefix4 != 0 || r.Prefix6 != 0 || r.Entries != 0):
		return fmt.Errorf("prefix lengths or entries for a rate that is not per address: add per src or dst, or leave them out")
	case r.Prefix4 > 32:
		return fmt.Errorf("rate per /%d of IPv4: use 1 to 32, or 0 for whole addresses", r.Prefix4)
	case r.Prefix6 > 128:
		return fmt.Errorf("rate per /%d of IPv6: use 1 to 128, or 0 for whole addresses", r.Prefix6)
	case r.Entries < 0 || r.Entries > FilterMaxEntries:
		return fmt.Errorf("%d entries for a rate: use 1 to %d, or 0 for %d", r.Entries, FilterMaxEntries, FilterEntries)
	}
	return nil
}

// EffectiveBurst is how many packets or bytes may come at once.
func (r FilterRate) EffectiveBurst() uint64 {
	if r.Burst != 0 {
		return r.Burst
	}
	least := uint64(filterLeastBurst)
	if r.Bytes {
		least *= filterFullFrame
	}
	return max(r.Rate/filterBurstShare, least)
}

// EffectiveEntries is how many addresses have room in the table, 0 for a rate that is not per address.
func (r FilterRate) EffectiveEntries() int {
	if r.Per == FilterPerRule {
		return 0
	}
	return filterLimitWays << r.order()
}

// order is the logarithm of the number of buckets.
func (r FilterRate) order() int {
	n := r.Entries
	if n == 0 {
		n = FilterEntries
	}
	return bits.Len(uint((n+filterLimitWays-1)/filterLimitWays) - 1)
}

// raw is the rate as the programs read it, without the secret.
func (r FilterRate) raw() bpfobj.FilterFilterLimit {
	raw := bpfobj.FilterFilterLimit{Order: uint8(r.order())}
	burst := r.EffectiveBurst()
	if r.Bytes {
		raw.Bytes = 1
		for shift := filterMaxShift; ; shift-- {
			hi, lo := bits.Mul64(filterTicks, 1<<shift)
			if hi >= r.Rate {
				continue
			}
			mult, _ := bits.Div64(hi, lo, r.Rate)
			if bits.Len64(mult) <= filterMultBits {
				raw.Mult, raw.Shift = mult, uint8(shift)
				break
			}
		}
		hi, lo := bits.Mul64(burst, raw.Mult)
		raw.Burst = hi<<(64-raw.Shift) | lo>>raw.Shift
	} else {
		raw.Mult = (filterTicks + r.Rate/2) / r.Rate
		raw.Burst = burst * raw.Mult
	}
	switch r.Per {
	case FilterPerSrc:
		raw.Per = filterLimitPerSrc
	case FilterPerDst:
		raw.Per = filterLimitPerDst
	}
	raw.Mask4, raw.Mask6 = filterMasks(r.Prefix4, r.Prefix6)
	return raw
}

// filterMasks returns the masks of prefixes as they stand in a packet; length 0 is a whole address.
func filterMasks(length4, length6 uint8) (mask4 uint32, mask6 [2]uint64) {
	var b [16]byte
	fill := func(n int) {
		for i := range b {
			b[i] = 0xff << (8 - min(max(n-8*i, 0), 8))
		}
	}
	if length4 == 0 {
		length4 = 32
	}
	if length6 == 0 {
		length6 = 128
	}
	fill(int(length4))
	mask4 = bpfobj.Native.Uint32(b[:])
	fill(int(length6))
	return mask4, [2]uint64{bpfobj.Native.Uint64(b[:]), bpfobj.Native.Uint64(b[8:])}
}

// putFilterLimit makes a number, which no program uses yet, stand for a rate. Nothing is owed, all keys are new.
func putFilterLimit(limits, tables *ebpf.Map, n uint32, r FilterRate) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if n >= limits.MaxEntries() {
		return fmt.Errorf("limit %d: there is room for %d: use fewer rules with rates", n, limits.MaxEntries())
	}
	raw := r.raw()
	var secret [16]byte
	_, _ = rand.Read(secret[:]) // never fails
	for i := range raw.Key {
		raw.Key[i] = bpfobj.Native.Uint32(secret[4*i:])
	}
	raw.Key[len(raw.Key)-1] |= 1
	if err := dropFilterLimit(limits, tables, n); err != nil {
		return err
	}
	if r.Per != FilterPerRule {
		table, err := newFilterLimitTable(r)
		if err != nil {
			return fmt.Errorf("making room for %d addresses of limit %d: %w", r.EffectiveEntries(), n, err)
		}
		defer table.Close()
		if err := tables.Put(n, table); err != nil {
			return fmt.Errorf("putting the table of limit %d: %w", n, err)
		}
	}
	if err := limits.Put(n, raw); err != nil {
		return fmt.Errorf("writing limit %d: %w", n, err)
	}
	return nil
}

func newFilterLimitTable(r FilterRate) (*ebpf.Map, error) {
	spec, err := bpfobj.LoadFilter()
	if err != nil {
		return nil, err
	}
	inner := spec.Maps[bpfobj.FilterMapFilterLimitTables].InnerMap.Copy()
	inner.Name = "filter_limit"
	inner.MaxEntries = 1 << r.order()
	return ebpf.NewMap(inner)
}

// dropFilterLimit frees the memory of a number that no program uses any more. It is no error if there is none.
func dropFilterLimit(limits, tables *ebpf.Map, n uint32) error {
	if err := limits.Put(n, bpfobj.FilterFilterLimit{}); err != nil {
		return fmt.Errorf("clearing limit %d: %w", n, err)
	}
	if err := tables.Delete(n); err != nil && !bpfobj.NotExist(err) {
		return fmt.Errorf("deleting the table of limit %d: %w", n, err)
	}
	return nil
}

// FilterLimitUse is how full the table of a limit per address is.
type FilterLimitUse struct {
	// Entries is what there is room for, Used how many have a key, Owing how many of those have sent so much
	// lately that forgetting them would make a difference.
	Entries, Used, Owing int
}

// FilterLimitUses returns how full the tables of rules with a rate per address are, by the rules' names.
func (i *Instance) FilterLimitUses() (map[string]FilterLimitUse, error) {
	p, done, err := i.readFilter()
	if err != nil {
		return nil, err
	}
	defer done()
	uses := make(map[string]FilterLimitUse)
	for name, l := range p.state.Limits {
		if l.Rate.Per == FilterPerRule {
			continue
		}
		if uses[name], err = filterLimitUse(p.maps[bpfobj.FilterMapFilterLimitTables], uint32(l.Number)); err != nil {
			return nil, fmt.Errorf("rule %s: %w", name, err)
		}
	}
	return uses, nil
}

// filterLimitUse reads how full the table of a limit is: all zero for one without a table.
func filterLimitUse(tables *ebpf.Map, n uint32) (FilterLimitUse, error) {
	var table *ebpf.Map
	if err := tables.Lookup(n, &table); bpfobj.NotExist(err) {
		return FilterLimitUse{}, nil
	} else if err != nil {
		return FilterLimitUse{}, fmt.Errorf("looking for the table of limit %d: %w", n, err)
	}
	defer table.Close()
	use := FilterLimitUse{Entries: int(table.MaxEntries()) * filterLimitWays}
	size, page := int(table.MaxEntries())*filterBucketBytes, unix.Getpagesize()
	memory, err := unix.Mmap(table.FD(), 0, (size+page-1)/page*page, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return FilterLimitUse{}, fmt.Errorf("mapping the table of limit %d: %w", n, err)
	}
	defer func() { _ = unix.Munmap(memory) }()
	now, err := filterNow()
	if err != nil {
		return FilterLimitUse{}, err
	}
	for e := memory[:size]; len(e) > 0; e = e[16:] {
		if bpfobj.Native.Uint64(e) == 0 {
			continue
		}
		use.Used++
		if bpfobj.Native.Uint64(e[8:]) > now*(filterTicks/uint64(time.Second)) {
			use.Owing++
		}
	}
	return use, nil
}

// filterNow is the time of the programs, CLOCK_MONOTONIC in ns.
func filterNow() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("reading the clock: %w", err)
	}
	return uint64(now.Nano()), nil
}
