// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"encoding/binary"
	"fmt"
	"math/rand"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
	"culvert/internal/filter/talkers"
)

// topBed is a filter that only counts talkers.
type topBed struct {
	prog    *ebpf.Program
	buckets *ebpf.Map
	by      TopBy
}

// newTopBed loads the filter. A window lasts for 2^shift ns; with 63 all time is one window.
func newTopBed(t *testing.T, by TopBy, shift uint8) *topBed {
	t.Helper()
	spec, err := bpfobj.LoadFilter()
	if err != nil {
		t.Fatal(err)
	}
	if err := setTop(spec, by); err != nil {
		t.Fatal(err)
	}
	if err := spec.Variables[bpfobj.FilterVarFilterNeedsKeys].Set(true); err != nil {
		t.Fatal(err)
	}
	if err := spec.Variables[bpfobj.FilterVarFilterTopShift].Set(shift); err != nil {
		t.Fatal(err)
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(coll.Close)
	if err := fillTop(coll.Maps[bpfobj.FilterMapFilterTopSecret]); err != nil {
		t.Fatal(err)
	}
	keepAttached(t, coll.Programs[bpfobj.FilterProgFilter])
	return &topBed{coll.Programs[bpfobj.FilterProgFilter], coll.Maps[bpfobj.FilterMapFilterTopBuckets], by}
}

// run runs a frame several times, each with a call of its own. A call with a repeat count would start again when a signal
// interrupts it, and would count packets twice.
func (b *topBed) run(t *testing.T, frame []byte, times int) {
	for range times {
		if _, err := b.prog.Run(&ebpf.RunOptions{Data: frame}); err != nil {
			t.Error(err)
		}
	}
}

// all returns the talkers of the window 0.
func (b *topBed) all(t *testing.T) talkers.Top {
	t.Helper()
	buckets, err := readTopWindow(b.buckets, b.by, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	return talkers.Merge(buckets)
}

// topStream returns the senders of n packets.
type topStream func(r *rand.Rand, n int) []int

// topZipf returns senders with a Zipf distribution.
func topZipf(r *rand.Rand, n int) []int {
	z := rand.NewZipf(r, 1.1, 1, 1<<16)
	s := make([]int, n)
	for i := range s {
		s[i] = int(z.Uint64())
	}
	return s
}

// topFlood returns 20 steady senders with 1.5 to 0.55 % of the packets each. All other packets have senders of their own, with
// numbers from 1000 on.
func topFlood(r *rand.Rand, n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = 1000 + i
		if at := r.Intn(2000); at < 410 {
			for k := range 20 {
				if at -= 30 - k; at < 0 {
					s[i] = k
					break
				}
			}
		}
	}
	return s
}

// topEarly and topLate return the packets of topFlood, with the steady senders before or after all others.
func topEarly(r *rand.Rand, n int) []int { return topParted(topFlood(r, n), true) }
func topLate(r *rand.Rand, n int) []int  { return topParted(topFlood(r, n), false) }

func topParted(s []int, early bool) (parted []int) {
	for _, now := range []bool{early, !early} {
		for _, k := range s {
			if (k < 1000) == now {
				parted = append(parted, k)
			}
		}
	}
	return parted
}

// topTurns returns 5,000 senders by turns. That is more than there are entries, and none sends more than the others.
func topTurns(_ *rand.Rand, n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i % 5000
	}
	return s
}

// TestFilterTopBounds compares the talkers with exact counts. The bounds of all talkers hold, and the one for senders that are
// missing. The heaviest senders are found.
func TestFilterTopBounds(t *testing.T) {
	const packets, threads = 40_000, 2
	for _, c := range []struct {
		name   string
		stream topStream
		found  int // how many of the heaviest senders have to be found
	}{
		{"zipf", topZipf, 10}, {"flood", topFlood, 20}, {"early", topEarly, 20}, {"late", topLate, 20}, {"turns", topTurns, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newTopBed(t, TopSrc, 63)
			exact := make(map[talkers.Key]uint64)
			var streams [threads][]int
			var bytes uint64
			const size = 60
			addr := func(k int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(k >> 16), byte(k >> 8), byte(k)}) }
			for i := range streams {
				streams[i] = c.stream(rand.New(rand.NewSource(int64(i))), packets)
				for _, k := range streams[i] {
					exact[talkers.Key{IP: true, Prefix: netip.PrefixFrom(addr(k), 32)}]++
					bytes += size
				}
			}
			var wg sync.WaitGroup
			for i := range streams {
				wg.Go(func() {
					onCPU(t, i)
					frame := limitFrame(0, "10.0.0.0", "198.51.100.1", size)
					for _, k := range streams[i] {
						binary.BigEndian.PutUint32(frame[14+12:], 10<<24|uint32(k))
						b.run(t, frame, 1)
					}
				})
			}
			wg.Wait()
			top := b.all(t)
			if top.Packets != threads*packets || top.Bytes != bytes {
				t.Errorf("%d packets and %d bytes counted, want %d and %d", top.Packets, top.Bytes, threads*packets, bytes)
			}
			shown := make(map[talkers.Key]int)
			for i, talker := range top.Talkers {
				shown[talker.Key] = i
				n := exact[talker.Key]
				if n < talker.Surely() || n > talker.Packets || talker.Bytes > n*size || talker.Error == 0 && talker.Bytes != n*size {
					t.Errorf("%+v has sent %d packets", talker, n)
				}
			}
			var most uint64
			for key, n := range exact {
				if _, ok := shown[key]; !ok {
					most = max(most, n)
				}
			}
			if most > top.Missing {
				t.Errorf("somebody with %d packets is missing, said to be at most %d", most, top.Missing)
			}
			for k := range c.found {
				if at, ok := shown[talkers.Key{IP: true, Prefix: netip.PrefixFrom(addr(k), 32)}]; !ok || at >= c.found+c.found/10 {
					t.Errorf("sender %d is number %d (%v) in the list", k, at, ok)
				}
			}
			t.Logf("%d keys, %d talkers, heaviest %+v, missing at most %d, heaviest missing %d", len(exact), len(top.Talkers),
				top.Talkers[0], top.Missing, most)
		})
	}
}

// TestFilterTopKeys attributes packets to talkers by each property.
func TestFilterTopKeys(t *testing.T) {
	arp := make([]byte, 60)
	arp[12], arp[13] = 0x08, 0x06
	udp := func(src, dst string, port uint16) []byte {
		f := limitFrame(0, src, dst, 100)
		at := 14 + 20
		if netip.MustParseAddr(src).Is6() {
			at = 14 + 40
		}
		binary.BigEndian.PutUint16(f[at+2:], port)
		return f
	}
	icmp := limitFrame(0, "192.0.2.7", "198.51.100.1", 100)
	icmp[14+9] = 1
	frames := [][]byte{
		udp("192.0.2.1", "198.51.100.1", 53), udp("192.0.2.9", "198.51.100.1", 53), udp("192.0.3.1", "198.51.100.2", 80),
		udp("2001:db8:1:2::3", "2001:db8::1", 53), udp("2001:db8:1:ffff::4", "2001:db8::2", 80), icmp, arp,
	}
	for by, want := range map[TopBy]map[string]uint64{
		TopSrc: {"192.0.2.1/32": 1, "192.0.2.9/32": 2, "192.0.3.1/32": 3, "2001:db8:1:2::3/128": 4, "2001:db8:1:ffff::4/128": 5,
			"192.0.2.7/32": 6, "other": 7},
		TopDst:    {"198.51.100.1/32": 9, "198.51.100.2/32": 3, "2001:db8::1/128": 4, "2001:db8::2/128": 5, "other": 7},
		TopPrefix: {"192.0.2.0/24": 9, "192.0.3.0/24": 3, "2001:db8:1::/48": 9, "other": 7},
		TopPort:   {"17:53": 7, "17:80": 8, "1:0": 6, "other": 7},
	} {
		b := newTopBed(t, by, 63)
		for i, f := range frames {
			b.run(t, f, i+1)
		}
		got := make(map[string]uint64)
		for _, talker := range b.all(t).Talkers {
			name := "other"
			switch {
			case talker.Key.Prefix.IsValid():
				name = talker.Key.Prefix.String()
			case talker.Key.IP:
				name = fmt.Sprintf("%d:%d", talker.Key.Proto, talker.Key.Port)
			}
			got[name] = talker.Packets
			if talker.Error != 0 || talker.Bytes != 100*talker.Packets && name != "other" {
				t.Errorf("by %d: %+v", by, talker)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("by %d: %v, want %v", by, got, want)
		}
		// A program with another property does not use these buckets.
		if other, err := readTopWindow(b.buckets, by%TopPort+1, 0, nil); err != nil || len(other) != 0 {
			t.Errorf("by %d: %d buckets of others, %v", by, len(other), err)
		}
	}
}

// TestFilterTopWindows sends packets in a window. They can be read when the window has ended, and no more some windows later.
func TestFilterTopWindows(t *testing.T) {
	b := newTopBed(t, TopSrc, topShift)
	frame := limitFrame(0, "192.0.2.1", "198.51.100.1", 60)
	// If the test does not get the CPU for as long as the windows last, it tries again.
	for try := range 5 {
		const sent = 1000
		b.run(t, frame, sent)
		now, err := topNow()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration((now>>topShift+1)<<topShift-now) + 20*time.Millisecond)
		sample, err := readTop(b.buckets, b.by, TopWindows)
		if err != nil {
			t.Fatal(err)
		}
		if sample.From > time.Duration(now)-TopWindow {
			t.Logf("try %d came too late", try)
			time.Sleep(sample.To - sample.From)
			continue
		}
		if len(sample.Talkers) != 1 || sample.Talkers[0].Surely() != sent || sample.Packets != sent || sample.To-sample.From != 3*TopWindow {
			t.Errorf("%+v, want %d packets", sample, sent)
		}
		time.Sleep(TopWindow * (TopWindows + 1))
		if sample, err = readTop(b.buckets, b.by, TopWindows); err != nil || len(sample.Talkers) != 0 || sample.Packets != 0 {
			t.Errorf("some windows later %+v, %v", sample, err)
		}
		return
	}
	t.Error("never read in time")
}

func TestFilterTopRefused(t *testing.T) {
	spec, err := bpfobj.LoadFilter()
	if err != nil {
		t.Fatal(err)
	}
	if err := setTop(spec, TopPort+1); err == nil {
		t.Error("talkers by an unknown number")
	}
	if err := setTop(spec, TopOff); err != nil || spec.Maps[bpfobj.FilterMapFilterTopBuckets].MaxEntries != 1 {
		t.Errorf("off: %v, %d buckets", err, spec.Maps[bpfobj.FilterMapFilterTopBuckets].MaxEntries)
	}
	for _, windows := range []int{0, TopWindows + 1} {
		if _, err := readTop(nil, TopSrc, windows); err == nil {
			t.Errorf("%d windows were read", windows)
		}
	}
}
