// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/filter/talkers"
)

// Numbers of bpf/filter/top.h.
const (
	topWindows = 4
	topBuckets = 256
	topShift   = 30
)

const (
	// TopWindow is the length of a window.
	TopWindow = time.Duration(1 << topShift)
	// TopWindows is how many windows that have ended can be read.
	TopWindows = topWindows - 1
)

// Prefix lengths of TopPrefix.
const (
	topPrefix4 = 24
	topPrefix6 = 48
)

// setTop sets in spec, which is not loaded yet, by what packets are attributed to talkers. With TopOff the table of talkers
// takes no memory.
func setTop(spec *ebpf.CollectionSpec, by TopBy) error {
	if by > TopPort {
		return fmt.Errorf("talkers by %d: use %d to %d", by, TopOff, TopPort)
	}
	if err := spec.Variables[bpfobj.FilterVarFilterTopBy].Set(uint8(by)); err != nil {
		return fmt.Errorf("setting %s: %w", bpfobj.FilterVarFilterTopBy, err)
	}
	if by == TopOff {
		spec.Maps[bpfobj.FilterMapFilterTopBuckets].MaxEntries = 1
	}
	return nil
}

// fillTop makes a secret for the hash of the talkers, unless there is one. The secret stays as long as its map, because the
// table of talkers goes from program to program.
func fillTop(secret *ebpf.Map) error {
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

// TopSample holds the talkers of windows that have ended.
type TopSample struct {
	talkers.Top
	// From and To are the begin of the first window and the end of the last one, on CLOCK_MONOTONIC.
	From, To time.Duration
}

// Top returns the talkers of the last windows that have ended, 1 to TopWindows. It is an error if top is off.
func Top(inst *datapath.Instance, windows int) (TopSample, error) {
	p, done, err := read(inst)
	if err != nil {
		return TopSample{}, err
	}
	defer done()
	if p.prog == nil || p.prog.top == nil {
		return TopSample{}, fmt.Errorf("the filter of %s does not look for talkers now", inst.Name())
	}
	return readTop(p.prog.top, p.state.Filter.Top, windows)
}

// readTop is Top for a table of talkers.
func readTop(buckets *ebpf.Map, by TopBy, windows int) (TopSample, error) {
	if windows < 1 || windows > TopWindows {
		return TopSample{}, fmt.Errorf("%d windows of talkers: use 1 to %d", windows, TopWindows)
	}
	// If the reader does not get the CPU for a window, the oldest window may be overwritten. Then it reads again.
	for range 5 {
		now, err := topNow()
		if err != nil {
			return TopSample{}, err
		}
		last := now >> topShift
		first := last - min(last, uint64(windows))
		var all []talkers.Bucket
		for w := first; w < last; w++ {
			if all, err = readTopWindow(buckets, by, w, all); err != nil {
				return TopSample{}, err
			}
		}
		if now, err = topNow(); err != nil {
			return TopSample{}, err
		}
		if now>>topShift < first+topWindows {
			return TopSample{talkers.Merge(all), time.Duration(first << topShift), time.Duration(last << topShift)}, nil
		}
	}
	return TopSample{}, fmt.Errorf("reading the talkers takes longer than they are kept: this host is busy, ask for 1 window")
}

// topNow returns the time on the clock of the programs, CLOCK_MONOTONIC_COARSE, in ns.
func topNow() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		return 0, fmt.Errorf("reading the clock: %w", err)
	}
	return uint64(now.Nano()), nil
}

// readTopWindow appends the buckets of a window, of all CPUs, to to.
func readTopWindow(buckets *ebpf.Map, by TopBy, window uint64, to []talkers.Bucket) ([]talkers.Bucket, error) {
	stamp := window<<3 | uint64(by)
	var each []bpfobj.FilterTopBucket
	for n := range uint32(topBuckets) {
		if err := buckets.Lookup(uint32(window%topWindows)*topBuckets+n, &each); err != nil {
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

// talkersBucket converts a bucket, given its number.
func talkersBucket(b *bpfobj.FilterTopBucket, number int, by TopBy) talkers.Bucket {
	to := talkers.Bucket{Number: number, Bytes: b.Bytes}
	for i, packets := range b.Packets {
		if packets == 0 {
			continue
		}
		to.Entries = append(to.Entries, talkers.Entry{
			Key: topKey(b.Key[i].W, by), Packets: uint64(packets), Error: uint64(b.Error[i]), Bytes: b.Seen[i],
		})
	}
	to.Full = len(to.Entries) == len(b.Packets)
	return to
}

// topKey converts a struct top_key.
func topKey(w [3]uint64, by TopBy) (key talkers.Key) {
	version := uint8(w[2] >> 24)
	if key.IP = version != 0; !key.IP {
		return talkers.Key{}
	}
	if by == TopPort {
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
	if by == TopPrefix {
		length = topPrefix6
		if version == 4 {
			length = topPrefix4
		}
	}
	key.Prefix = netip.PrefixFrom(addr, length)
	return key
}
