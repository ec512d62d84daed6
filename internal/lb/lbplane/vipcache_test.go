// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"bytes"
	"net/netip"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/testbed"
)

// TestVIPCacheShared has two VIPs that share a slot of the VIP cache. One of them is written and deleted again and again, and the
// other one must always be found.
func TestVIPCacheShared(t *testing.T) {
	b := newBed(t, Options{})
	one, two := b.backend(1, 0, "10.0.0.11"), b.backend(2, 1, "10.0.0.12")
	var keys []VIPKey
	bySlot := make(map[uint32]VIPKey)
	for n := 0; keys == nil; n++ {
		k := VIPKey{Addr: netip.AddrFrom4([4]byte{192, 0, byte(n >> 8), byte(n)}), Proto: protoTCP, Port: 80}
		slot, _, _ := vipCacheSlot(k.raw())
		if other, ok := bySlot[slot]; ok {
			keys = []VIPKey{other, k}
		}
		bySlot[slot] = k
	}
	b.vip(0, keys[0].Addr.String()+":80", protoTCP, []Backend{one})
	b.vip(1, keys[1].Addr.String()+":80", protoTCP, []Backend{two})
	m := b.inst.Map(bpfobj.PipelineMapLbVipCache)
	mapped, err := unix.Mmap(m.FD(), 0, int(unsafe.Sizeof(bpfobj.PipelineLbVipCacheEntry{}))<<vipCacheBits, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	b.must(err)
	defer unix.Munmap(mapped)
	cache := unsafe.Slice((*bpfobj.PipelineLbVipCacheEntry)(unsafe.Pointer(unsafe.SliceData(mapped))), 1<<vipCacheBits)
	var states []bpfobj.PipelineLbVipCacheEntry // the slot with the first VIP and a mark that there are more, and with the second VIP alone
	for n, k := range keys {
		slot, addr, what := vipCacheSlot(k.raw())
		s := cache[slot]
		s.Addr, s.Service, s.Vip.Number, s.Seq = addr, what, uint32(n), uint32(1-n)*vipCacheMore
		states = append(states, s)
	}
	slot, _, _ := vipCacheSlot(keys[0].raw())
	frame := b.packet(client4, keys[1].Addr.String()+":80", syn(), nil)
	lost, wrong, sent := 0, 0, 0
	b.runs([][]byte{frame}, 3_000_000, nil, func(n int) error {
		replaceVIPCacheEntry(&cache[slot], &states[n&1])
		return nil
	}, func(_ int, action uint32, out []byte) error {
		sent++
		if action != testbed.XDPRedirect {
			lost++
		} else if !bytes.Equal(out[30:34], two.Addr.AsSlice()) {
			wrong++
		}
		return nil
	})
	if lost+wrong > 0 {
		t.Errorf("of %d packets %d were not sent, and %d were sent to the other VIP's backend", sent, lost, wrong)
	}
}
