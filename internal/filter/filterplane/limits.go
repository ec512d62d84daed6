// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"crypto/rand"
	"fmt"
	"math/bits"
	"time"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
)

// Bounds of a rate. With higher rates the rounding to ticks (bpf/filter/limit.h) would be noticeable.
const (
	MaxPacketRate = 1_000_000_000
	MaxByteRate   = 50_000_000_000
	// MaxEntries is for how many addresses or prefixes a limit can have room, 16 bytes each.
	MaxEntries     = 1 << 24
	defaultEntries = 1 << 16
	// maxBurst bounds the time in which the rate fills a burst.
	maxBurst = time.Hour
	// maxLimits is how many limits a filter can have.
	maxLimits = 4096
)

// The default burst is what the rate gives in a fiftieth of a second. That is longer than an interrupt or a busy CPU delays
// packets, and 2 % of what passes in a second. It is two packets at least: with one, evenly spaced packets at just over the rate
// would pass at half of it.
const (
	burstShare = 50
	leastBurst = 2
	fullFrame  = 1514 // bytes
)

// Numbers of bpf/filter/limit.h.
const (
	ticks     = 16 * uint64(time.Second) // per second
	limitWays = 4                        // entries in a bucket
	// A frame has less than 2^19 bytes, so the product with a factor below 2^44 does not overflow.
	multBits = 44
	maxShift = 40
)

// Numbers of bpf/filter/limit.h.
const (
	limitPerRule = iota
	limitPerSrc
	limitPerDst
)

// Validate returns an error if the programs cannot keep the rate, or if parts of r contradict each other.
func (r Rate) Validate() error {
	most, unit := uint64(MaxPacketRate), "packets"
	if r.Bytes {
		most, unit = MaxByteRate, "bytes"
	}
	switch {
	case r.Rate == 0 || r.Rate > most:
		return fmt.Errorf("rate of %d %s a second: use 1 to %d", r.Rate, unit, most)
	case r.Burst/r.Rate >= uint64(maxBurst/time.Second):
		return fmt.Errorf("burst of %d %s: use less than what the rate gives in an hour, %d, or 0 for the default",
			r.Burst, unit, r.Rate*uint64(maxBurst/time.Second))
	case r.Per != PerRule && r.Per != PerSrc && r.Per != PerDst:
		return fmt.Errorf("rate per %q: use src or dst, or none for one rate", string(r.Per))
	case r.Per == PerRule && (r.Prefix4 != 0 || r.Prefix6 != 0 || r.Entries != 0):
		return fmt.Errorf("prefix lengths or entries for a rate that is not per address: add per src or dst, or leave them out")
	case r.Prefix4 > 32:
		return fmt.Errorf("rate per /%d of IPv4: use 1 to 32, or 0 for whole addresses", r.Prefix4)
	case r.Prefix6 > 128:
		return fmt.Errorf("rate per /%d of IPv6: use 1 to 128, or 0 for whole addresses", r.Prefix6)
	case r.Entries < 0 || r.Entries > MaxEntries:
		return fmt.Errorf("%d entries for a rate: use 1 to %d, or 0 for %d", r.Entries, MaxEntries, defaultEntries)
	}
	return nil
}

// effectiveBurst returns how many packets or bytes may come at once: Burst or its default.
func (r Rate) effectiveBurst() uint64 {
	if r.Burst != 0 {
		return r.Burst
	}
	least := uint64(leastBurst)
	if r.Bytes {
		least *= fullFrame
	}
	return max(r.Rate/burstShare, least)
}

// effectiveEntries returns for how many addresses the table has room, 0 for a rate that is not per address.
func (r Rate) effectiveEntries() int {
	if r.Per == PerRule {
		return 0
	}
	return limitWays << r.order()
}

// order returns the binary logarithm of the number of buckets.
func (r Rate) order() int {
	n := r.Entries
	if n == 0 {
		n = defaultEntries
	}
	return bits.Len(uint((n+limitWays-1)/limitWays) - 1)
}

// raw returns the rate as the programs read it, without the secret of its hash.
func (r Rate) raw() bpfobj.FilterFilterLimit {
	raw := bpfobj.FilterFilterLimit{Order: uint8(r.order())}
	burst := r.effectiveBurst()
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

// masks returns the masks of prefixes in network byte order, as addresses are in a packet. A length of 0 is a whole address.
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

// putLimit writes limit n, which no program uses yet. It begins without history: its table is empty.
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
			return fmt.Errorf("making room for %d addresses of limit %d: %w", r.effectiveEntries(), n, err)
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

// dropLimit frees the memory of limit n, which no program uses any more. It is no error if it has none.
func dropLimit(limits, tables *ebpf.Map, n uint32) error {
	if err := limits.Put(n, bpfobj.FilterFilterLimit{}); err != nil {
		return fmt.Errorf("clearing limit %d: %w", n, err)
	}
	if err := tables.Delete(n); err != nil && !bpfobj.NotExist(err) {
		return fmt.Errorf("deleting the table of limit %d: %w", n, err)
	}
	return nil
}
