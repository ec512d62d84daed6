// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
)

// bucketBytes is the size of a bucket in the table of a limit.
const bucketBytes = 64

// tableUse is how full the table of a limit is.
type tableUse struct {
	entries int // for which there is room
	used    int // that have a key
	owing   int // whose rate is still used up, so that to forget them would let packets over the rate pass
}

// limitUse reads how full the table of limit n is. It is zero for a limit without a table.
func limitUse(t *testing.T, tables *ebpf.Map, n uint32) (use tableUse) {
	t.Helper()
	var table *ebpf.Map
	if err := tables.Lookup(n, &table); bpfobj.NotExist(err) {
		return use
	} else if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	size, page := int(table.MaxEntries())*bucketBytes, unix.Getpagesize()
	memory, err := unix.Mmap(table.FD(), 0, (size+page-1)/page*page, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(memory) }()
	var clock unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock); err != nil {
		t.Fatal(err)
	}
	now := uint64(clock.Nano()) * (ticks / uint64(time.Second))
	use.entries = int(table.MaxEntries()) * limitWays
	for e := memory[:size]; len(e) > 0; e = e[16:] {
		key, due := bpfobj.Native.Uint64(e), bpfobj.Native.Uint64(e[8:])
		if key == 0 {
			continue
		}
		use.used++
		if due > now {
			use.owing++
		}
	}
	return use
}
