// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
)

// Constants of bpf/lb/vip_cache.h. The lower bits of an entry's sequence number are flags.
const (
	vipCacheBits = 12
	vipCacheBusy = 1 // the entry is being written
	vipCacheMore = 2 // other VIPs share the slot: look into lb_vips
	vipCacheStep = 4 // the sequence number proper counts in steps of this
)

// vipCacheSlot returns the slot of a VIP in the VIP cache (lb_vip_cache_index), and its address and service as they stand
// in the entry.
func vipCacheSlot(k bpfobj.PipelineLbVipKey) (slot uint32, addr [2]uint64, service uint32) {
	w := k.Addr.W
	addr = [2]uint64{uint64(w[1])<<32 | uint64(w[0]), uint64(w[3])<<32 | uint64(w[2])}
	service = uint32(k.Port) | uint32(k.Proto)<<16 | 1<<31
	h := (addr[0]*0x9e3779b97f4a7c15 + addr[1]) ^ uint64(service)
	return uint32(h * 0xd6e8feb86659fd93 >> (64 - vipCacheBits)), addr, service
}

// fillVIPCache brings the VIP cache up to date with lb_vips. Programs that read an entry meanwhile find the old one or the
// new one, or look into lb_vips.
func (p *Plane) fillVIPCache() error {
	var (
		key  bpfobj.PipelineLbVipKey
		raw  bpfobj.PipelineLbVip
		want = make([]bpfobj.PipelineLbVipCacheEntry, 1<<vipCacheBits)
	)
	it := p.inst.Map(bpfobj.PipelineMapLbVips).Iterate()
	for it.Next(&key, &raw) {
		if key.Any != 0 {
			continue
		}
		slot, addr, service := vipCacheSlot(key)
		if e := &want[slot]; e.Service == 0 {
			e.Addr, e.Service, e.Vip = addr, service, raw
		} else {
			e.Seq = vipCacheMore
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("listing the VIPs of %s: %w", p.Name(), err)
	}
	m := p.inst.Map(bpfobj.PipelineMapLbVipCache)
	size := len(want) * int(unsafe.Sizeof(want[0]))
	b, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping the VIPs of %s: %w", p.Name(), err)
	}
	cache := unsafe.Slice((*bpfobj.PipelineLbVipCacheEntry)(unsafe.Pointer(unsafe.SliceData(b))), len(want))
	for n := range want {
		replaceVIPCacheEntry(&cache[n], &want[n])
	}
	return unix.Munmap(b)
}

// replaceVIPCacheEntry overwrites an entry in the steps of a writer of bpf/core/seqcount.h. Programs look into lb_vips
// while the entry is busy. If a process dies in the middle, the entry stays busy until the next call.
func replaceVIPCacheEntry(e, to *bpfobj.PipelineLbVipCacheEntry) {
	seq := atomic.LoadUint32(&e.Seq)
	if e.Addr == to.Addr && e.Service == to.Service && e.Vip == to.Vip && seq&(vipCacheStep-1) == to.Seq {
		return
	}
	atomic.StoreUint32(&e.Seq, seq|vipCacheBusy)
	atomic.StoreUint64(&e.Addr[0], to.Addr[0])
	atomic.StoreUint64(&e.Addr[1], to.Addr[1])
	atomic.StoreUint32(&e.Service, to.Service)
	// The VIP has 8 bytes, which are written at once.
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&e.Vip)), *(*uint64)(unsafe.Pointer(&to.Vip)))
	atomic.StoreUint32(&e.Seq, seq&^(vipCacheStep-1)+vipCacheStep|to.Seq)
}
