// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
)

// As in bpf/lb/vip_cache.h.
const (
	vipCacheBits = 12
	vipCacheBusy = 1
	vipCacheMore = 2
	vipCacheStep = 4 // of the number above these bits
)

// vipCacheSlot is where a VIP stands in the table in front of lb_vips (lb_vip_cache_index), and what it is called there.
func vipCacheSlot(k bpfobj.PipelineLbVipKey) (slot uint32, addr [2]uint64, what uint32) {
	w := k.Addr.W
	addr = [2]uint64{uint64(w[1])<<32 | uint64(w[0]), uint64(w[3])<<32 | uint64(w[2])}
	what = uint32(k.Port) | uint32(k.Proto)<<16 | 1<<31
	h := (addr[0]*0x9e3779b97f4a7c15 + addr[1]) ^ uint64(what)
	return uint32(h * 0xd6e8feb86659fd93 >> (64 - vipCacheBits)), addr, what
}

// fillVIPCache brings the table in front of lb_vips in step with it. Programs that read meanwhile find what was there
// or what is to be there, or look into lb_vips.
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
		slot, addr, what := vipCacheSlot(key)
		if f := &want[slot]; f.Service == 0 {
			f.Addr, f.Service, f.Vip = addr, what, raw
		} else {
			f.Seq = vipCacheMore
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
	fronts := unsafe.Slice((*bpfobj.PipelineLbVipCacheEntry)(unsafe.Pointer(unsafe.SliceData(b))), len(want))
	for n := range want {
		exchangeVIPCacheEntry(&fronts[n], &want[n])
	}
	return unix.Munmap(b)
}

// exchangeVIPCacheEntry makes an entry another one, in the steps of a writer: bpf/core/seqcount.h. The programs look into lb_vips
// meanwhile. An entry that somebody has died over is busy until then.
func exchangeVIPCacheEntry(f, to *bpfobj.PipelineLbVipCacheEntry) {
	seq := atomic.LoadUint32(&f.Seq)
	if f.Addr == to.Addr && f.Service == to.Service && f.Vip == to.Vip && seq&(vipCacheStep-1) == to.Seq {
		return
	}
	atomic.StoreUint32(&f.Seq, seq|vipCacheBusy)
	atomic.StoreUint64(&f.Addr[0], to.Addr[0])
	atomic.StoreUint64(&f.Addr[1], to.Addr[1])
	atomic.StoreUint32(&f.Service, to.Service)
	// number and flags, of 8 bytes, at once
	atomic.StoreUint64((*uint64)(unsafe.Pointer(&f.Vip)), *(*uint64)(unsafe.Pointer(&to.Vip)))
	atomic.StoreUint32(&f.Seq, seq&^(vipCacheStep-1)+vipCacheStep|to.Seq)
}
