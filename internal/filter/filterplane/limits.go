// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"crypto/rand"
	"fmt"
	"math/bits"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// Bounds of a rate, of bpf/filter/limit.h: with more, the rounding of its ticks would count.
const (
	MaxPacketRate = 1_000_000_000
	MaxByteRate   = 50_000_000_000
	// MaxBurst is the time in which the rate fills a burst, at most.
	MaxBurst = time.Hour
	// Entries is how many addresses a limit keeps in mind unless it says otherwise, 16 bytes each.
	Entries    = 1 << 16
	MaxEntries = 1 << 24
	// MaxLimits is how many limits there can be.
	MaxLimits = 4096
)

// The default burst is what the rate gives in a fiftieth of a second: more than an interrupt or a busy CPU delays
// packets, and 2 % of what passes in a second. Two packets at least: with one, packets that come in step at just over
// the rate would pass at half of it.
const (
	burstShare  = 50
	leastBurst  = 2
	fullFrame   = 1514 // bytes
	ticks       = 16 * uint64(time.Second)
	limitWays   = 4
	bucketBytes = 64
	// Bytes are multiplied by up to 2^44, frames are shorter than 2^19.
	multBits = 44
	maxShift = 40
)

// Numbers of bpf/filter/limit.h.
const (
	limitPerRule = iota
	limitPerSrc
	limitPerDst
)

// Validate refuses a rate that cannot be kept.
func (r Rate) Validate() error {
	most, unit := uint64(MaxPacketRate), "packets"
	if r.Bytes {
		most, unit = MaxByteRate, "bytes"
	}
	switch {
	case r.Rate == 0 || r.Rate > most:
		return fmt.Errorf("rate of %d %s a second: use 1 to %d", r.Rate, unit, most)
	case r.Burst/r.Rate >= uint64(MaxBurst/time.Second):
		return fmt.Errorf("burst of %d %s: use less than what the rate gives in an hour, %d, or 0 for the default",
			r.Burst, unit, r.Rate*uint64(MaxBurst/time.Second))
	case r.Per != PerRule && r.Per != PerSrc && r.Per != PerDst:
		return fmt.Errorf("rate per %q: use src or dst, or none for one rate", string(r.Per))
	case r.Per == PerRule && (r.Prefix4 != 0 || r.Prefix6 != 0 || r.Entries != 0):
		return fmt.Errorf("prefix lengths or entries for a rate that is not per address: add per src or dst, or leave them out")
	case r.Prefix4 > 32:
		return fmt.Errorf("rate per /%d of IPv4: use 1 to 32, or 0 for whole addresses", r.Prefix4)
	case r.Prefix6 > 128:
		return fmt.Errorf("rate per /%d of IPv6: use 1 to 128, or 0 for whole addresses", r.Prefix6)
	case r.Entries < 0 || r.Entries > MaxEntries:
		return fmt.Errorf("%d entries for a rate: use 1 to %d, or 0 for %d", r.Entries, MaxEntries, Entries)
	}
	return nil
}

// EffectiveBurst is how many packets or bytes may come at once.
func (r Rate) EffectiveBurst() uint64 {
	if r.Burst != 0 {
		return r.Burst
	}
	least := uint64(leastBurst)
	if r.Bytes {
		least *= fullFrame
	}
	return max(r.Rate/burstShare, least)
}

// EffectiveEntries is how many addresses have room in the table, 0 for a rate that is not per address.
func (r Rate) EffectiveEntries() int {
	if r.Per == PerRule {
		return 0
	}
	return limitWays << r.order()
}

// order is the logarithm of the number of buckets.
func (r Rate) order() int {
	n := r.Entries
	if n == 0 {
		n = Entries
	}
	return bits.Len(uint((n+limitWays-1)/limitWays) - 1)
}

// raw is the rate as the programs read it, without the secret.
func (r Rate) raw() bpfobj.FilterFilterLimit {
	raw := bpfobj.FilterFilterLimit{Order: uint8(r.order())}
	burst := r.EffectiveBurst()
	if r.Bytes {
		raw.Bytes = 1
		for shift := maxShift; ; shift-- {
			hi, lo := bits.Mul64(ticks, 1<<shift)
			if hi >= r.Rate {
				continue
			}
			mult, _ := bits.Div64(hi, lo, r.Rate)
			if bits.Len64(mult) <= multBits {
				raw.Mult, raw.Shift = mult, uint8(shift)
				break
			}
		}
		hi, lo := bits.Mul64(burst, raw.Mult)
		raw.Burst = hi<<(64-raw.Shift) | lo>>raw.Shift
	} else {
		raw.Mult = (ticks + r.Rate/2) / r.Rate
		raw.Burst = burst * raw.Mult
	}
	switch r.Per {
	case PerSrc:
		raw.Per = limitPerSrc
	case PerDst:
		raw.Per = limitPerDst
	}
	raw.Mask4, raw.Mask6 = masks(r.Prefix4, r.Prefix6)
	return raw
}

// masks returns the masks of prefixes as they stand in a packet; length 0 is a whole address.
func masks(length4, length6 uint8) (mask4 uint32, mask6 [2]uint64) {
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

// putLimit makes a number, which no program uses yet, stand for a rate. Nothing is owed, all keys are new.
func putLimit(limits, tables *ebpf.Map, n uint32, r Rate) error {
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
	if err := dropLimit(limits, tables, n); err != nil {
		return err
	}
	if r.Per != PerRule {
		table, err := newLimitTable(r)
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

func newLimitTable(r Rate) (*ebpf.Map, error) {
	spec, err := bpfobj.LoadFilter()
	if err != nil {
		return nil, err
	}
	inner := spec.Maps[bpfobj.FilterMapFilterLimitTables].InnerMap.Copy()
	inner.Name = "filter_limit"
	inner.MaxEntries = 1 << r.order()
	return ebpf.NewMap(inner)
}

// dropLimit frees the memory of a number that no program uses any more. It is no error if there is none.
func dropLimit(limits, tables *ebpf.Map, n uint32) error {
	if err := limits.Put(n, bpfobj.FilterFilterLimit{}); err != nil {
		return fmt.Errorf("clearing limit %d: %w", n, err)
	}
	if err := tables.Delete(n); err != nil && !bpfobj.NotExist(err) {
		return fmt.Errorf("deleting the table of limit %d: %w", n, err)
	}
	return nil
}

// LimitUse is how full the table of a limit per address is.
type LimitUse struct {
	// Entries is what there is room for, Used how many have a key, Owing how many of those have sent so much
	// lately that forgetting them would make a difference.
	Entries, Used, Owing int
}

// LimitUses returns how full the tables of rules with a rate per address are, by the rules' names.
func LimitUses(inst *datapath.Instance) (map[string]LimitUse, error) {
	p, done, err := read(inst)
	if err != nil {
		return nil, err
	}
	defer done()
	uses := make(map[string]LimitUse)
	for name, l := range p.state.Limits {
		if l.Rate.Per == PerRule {
			continue
		}
		if uses[name], err = limitUse(p.maps[bpfobj.FilterMapFilterLimitTables], uint32(l.Number)); err != nil {
			return nil, fmt.Errorf("rule %s: %w", name, err)
		}
	}
	return uses, nil
}

// limitUse reads how full the table of a limit is: all zero for one without a table.
func limitUse(tables *ebpf.Map, n uint32) (LimitUse, error) {
	var table *ebpf.Map
	if err := tables.Lookup(n, &table); bpfobj.NotExist(err) {
		return LimitUse{}, nil
	} else if err != nil {
		return LimitUse{}, fmt.Errorf("looking for the table of limit %d: %w", n, err)
	}
	defer table.Close()
	use := LimitUse{Entries: int(table.MaxEntries()) * limitWays}
	size, page := int(table.MaxEntries())*bucketBytes, unix.Getpagesize()
	memory, err := unix.Mmap(table.FD(), 0, (size+page-1)/page*page, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return LimitUse{}, fmt.Errorf("mapping the table of limit %d: %w", n, err)
	}
	defer func() { _ = unix.Munmap(memory) }()
	now, err := monotonic()
	if err != nil {
		return LimitUse{}, err
	}
	for e := memory[:size]; len(e) > 0; e = e[16:] {
		if bpfobj.Native.Uint64(e) == 0 {
			continue
		}
		use.Used++
		if bpfobj.Native.Uint64(e[8:]) > now*(ticks/uint64(time.Second)) {
			use.Owing++
		}
	}
	return use, nil
}

// monotonic is the time of the programs, CLOCK_MONOTONIC in ns.
func monotonic() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("reading the clock: %w", err)
	}
	return uint64(now.Nano()), nil
}
