// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/filter/talkers"
)

// Numbers of bpf/filter/top.h.
const (
	filterTopWindows = 4
	filterTopBuckets = 256
	filterTopShift   = 30
)

const (
	// FilterTopWindow is how long one window lasts.
	FilterTopWindow = time.Duration(1 << filterTopShift)
	// FilterTopWindows is how many of those that have ended can be read.
	FilterTopWindows = filterTopWindows - 1
)

// The default prefixes of FilterTopPrefix.
const (
	filterTopPrefix4 = 24
	filterTopPrefix6 = 48
)

// setFilterTop prepares programs that have not been loaded yet for what packets are told apart by. The tables of
// programs that tell nothing apart take no room.
func setFilterTop(spec *ebpf.CollectionSpec, by FilterTopBy) error {
	if by > FilterTopPort {
		return fmt.Errorf("talkers by %d: use %d to %d", by, FilterTopOff, FilterTopPort)
	}
	if err := spec.Variables[bpfobj.FilterVarFilterTopBy].Set(uint8(by)); err != nil {
		return fmt.Errorf("setting %s: %w", bpfobj.FilterVarFilterTopBy, err)
	}
	if by == FilterTopOff {
		spec.Maps[bpfobj.FilterMapFilterTopBuckets].MaxEntries = 1
	}
	return nil
}

// fillFilterTop gives a table the secret of its hash, unless it has one: it stays as long as the table.
func fillFilterTop(secret *ebpf.Map) error {
	var raw bpfobj.FilterTopSecret
	if err := secret.Lookup(uint32(0), &raw); err != nil {
		return fmt.Errorf("reading the secret of the talkers: %w", err)
	}
	if raw != (bpfobj.FilterTopSecret{}) {
		return nil
	}
	var b [len(raw.Key) * 4]byte
	_, _ = rand.Read(b[:]) // never fails
	for i := range raw.Key {
		raw.Key[i] = bpfobj.Native.Uint32(b[4*i:])
	}
	if err := secret.Put(uint32(0), raw); err != nil {
		return fmt.Errorf("writing the secret of the talkers: %w", err)
	}
	return nil
}

// FilterTopSample is who has sent how much in windows that have ended.
type FilterTopSample struct {
	talkers.Top
	// From and To are when the windows began and ended, on CLOCK_MONOTONIC.
	From, To time.Duration
}

// FilterTop reads who has sent most in the last windows that have ended, 1 to FilterTopWindows.
func (i *Instance) FilterTop(windows int) (FilterTopSample, error) {
	p, done, err := i.readFilter()
	if err != nil {
		return FilterTopSample{}, err
	}
	defer done()
	if p.prog == nil || p.prog.top == nil {
		return FilterTopSample{}, fmt.Errorf("the filter of %s does not look for talkers now", i.Name())
	}
	return readFilterTop(p.prog.top, p.state.Filter.Top, windows)
}

// readFilterTop reads the last windows that have ended, 1 to FilterTopWindows.
func readFilterTop(buckets *ebpf.Map, by FilterTopBy, windows int) (FilterTopSample, error) {
	if windows < 1 || windows > FilterTopWindows {
		return FilterTopSample{}, fmt.Errorf("%d windows of talkers: use 1 to %d", windows, FilterTopWindows)
	}
	// A reader that is kept from its CPU for a window finds the oldest overwritten, and starts again.
	for range 5 {
		now, err := filterTopNow()
		if err != nil {
			return FilterTopSample{}, err
		}
		last := now >> filterTopShift
		first := last - min(last, uint64(windows))
		var all []talkers.Bucket
		for w := first; w < last; w++ {
			if all, err = readFilterTopWindow(buckets, by, w, all); err != nil {
				return FilterTopSample{}, err
			}
		}
		if now, err = filterTopNow(); err != nil {
			return FilterTopSample{}, err
		}
		if now>>filterTopShift < first+filterTopWindows {
			return FilterTopSample{talkers.Merge(all), time.Duration(first << filterTopShift), time.Duration(last << filterTopShift)}, nil
		}
	}
	return FilterTopSample{}, fmt.Errorf("reading the talkers takes longer than they are kept: this host is busy, ask for 1 window")
}

// filterTopNow is the time that the programs go by, ns.
func filterTopNow() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		return 0, fmt.Errorf("reading the clock: %w", err)
	}
	return uint64(now.Nano()), nil
}

// readFilterTopWindow appends the buckets of one window, of all CPUs.
func readFilterTopWindow(buckets *ebpf.Map, by FilterTopBy, window uint64, to []talkers.Bucket) ([]talkers.Bucket, error) {
	stamp := window<<3 | uint64(by)
	var each []bpfobj.FilterTopBucket
	for n := range uint32(filterTopBuckets) {
		if err := buckets.Lookup(uint32(window%filterTopWindows)*filterTopBuckets+n, &each); err != nil {
			return nil, fmt.Errorf("reading the talkers: %w", err)
		}
		for _, raw := range each {
			if raw.Stamp == stamp {
				to = append(to, talkersBucket(&raw, int(n), by))
			}
		}
	}
	return to, nil
}

func talkersBucket(b *bpfobj.FilterTopBucket, number int, by FilterTopBy) talkers.Bucket {
	to := talkers.Bucket{Number: number, Bytes: b.Bytes}
	for i, packets := range b.Packets {
		if packets == 0 {
			continue
		}
		to.Entries = append(to.Entries, talkers.Entry{
			Key: filterTopKey(b.Key[i].W, by), Packets: uint64(packets), Error: uint64(b.Error[i]), Bytes: b.Seen[i],
		})
	}
	to.Full = len(to.Entries) == len(b.Packets)
	return to
}

// filterTopKey reads a struct top_key.
func filterTopKey(w [3]uint64, by FilterTopBy) (key talkers.Key) {
	version := uint8(w[2] >> 24)
	if key.IP = version != 0; !key.IP {
		return talkers.Key{}
	}
	if by == FilterTopPort {
		var port [2]byte
		bpfobj.Native.PutUint16(port[:], uint16(w[2]))
		key.Port, key.Proto = binary.BigEndian.Uint16(port[:]), uint8(w[2]>>16)
		return key
	}
	var b [16]byte
	bpfobj.Native.PutUint64(b[:], w[0])
	bpfobj.Native.PutUint64(b[8:], w[1])
	addr, length := netip.AddrFrom16(b), 128
	if version == 4 {
		addr, length = netip.AddrFrom4([4]byte(b[12:])), 32
	}
	if by == FilterTopPrefix {
		length = filterTopPrefix6
		if version == 4 {
			length = filterTopPrefix4
		}
	}
	key.Prefix = netip.PrefixFrom(addr, length)
	return key
}
