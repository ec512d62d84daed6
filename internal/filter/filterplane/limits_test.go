// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/filter/cbpf"
	"culvert/internal/testbed"
)

// replaceFilterRules replaces the function of the rules in spec, which is not loaded yet.
func replaceFilterRules(t *testing.T, spec *ebpf.CollectionSpec, code asm.Instructions) {
	t.Helper()
	prog := spec.Programs[bpfobj.FilterProgFilter]
	ins, err := cbpf.ReplaceFunction(prog.Instructions, fnRules, code)
	if err != nil {
		t.Fatal(err)
	}
	prog.Instructions = cbpf.CalledFunctions(ins)
}

// limitBed is a filter with a single rule: the limit whose number is in the first two bytes of the frame.
type limitBed struct {
	prog                   *ebpf.Program
	limits, tables, counts *ebpf.Map
}

func newLimitBed(t *testing.T) *limitBed {
	t.Helper()
	spec, err := bpfobj.LoadFilter()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{bpfobj.FilterVarFilterNeedsKeys, bpfobj.FilterVarFilterRuled} {
		if err := spec.Variables[name].Set(true); err != nil {
			t.Fatal(err)
		}
	}
	replaceFilterRules(t, spec, asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.Mov.Reg(asm.R7, asm.R2),
		asm.Mov.Imm(asm.R2, 0),
		asm.Mov.Imm(asm.R3, 2),
		asm.Call.Label("filter_load"),
		asm.Mov.Reg(asm.R8, asm.R0),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.R7),
		asm.Mov.Reg(asm.R3, asm.R8),
		asm.Call.Label("filter_over"),
		asm.Mov.Reg(asm.R9, asm.R0),
		// counter FILTER_RULE(number), or the next one if the packet is over the rate
		asm.Mov.Reg(asm.R2, asm.R8),
		asm.LSh.Imm(asm.R2, 1),
		asm.Add.Imm(asm.R2, 2),
		asm.Add.Reg(asm.R2, asm.R9),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Call.Label("filter_hit"),
		asm.Mov.Imm(asm.R0, int32(bpfobj.PipelineReasonDROP_FILTER_LIMIT)),
		asm.JNE.Imm(asm.R9, 0, "out"),
		asm.Mov.Imm(asm.R0, 0),
		asm.Return().WithSymbol("out"),
	})
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(coll.Close)
	keepAttached(t, coll.Programs[bpfobj.FilterProgFilter])
	return &limitBed{
		coll.Programs[bpfobj.FilterProgFilter],
		coll.Maps[bpfobj.FilterMapFilterLimits], coll.Maps[bpfobj.FilterMapFilterLimitTables], coll.Maps[bpfobj.FilterMapFilterCounts],
	}
}

func (b *limitBed) put(t *testing.T, n uint32, r Rate) {
	t.Helper()
	if err := putLimit(b.limits, b.tables, n, r); err != nil {
		t.Fatal(err)
	}
}

// keepAttached attaches a program during the test. Otherwise each test run would add it to the kernel's dispatcher and remove it
// again, which takes 30 ms.
func keepAttached(t *testing.T, prog *ebpf.Program) {
	t.Helper()
	testbed.InNamespace(t)
	dev := testbed.AddVeth(t, "a0", "a1")
	l, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: dev.Index, Flags: link.XDPDriverMode})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

// run runs a frame through the program, several times. Several goroutines may call it.
func (b *limitBed) run(t *testing.T, frame []byte, times int) {
	_, err := b.prog.Run(&ebpf.RunOptions{Data: frame, Repeat: uint32(times)})
	if err != nil {
		t.Error(err)
	}
}

// passed returns how many packets of limit n have passed, and how many were over its rate.
func (b *limitBed) passed(t *testing.T, n uint32) (passed, over bpfobj.FilterCounter) {
	t.Helper()
	for counter, to := range map[uint32]*bpfobj.FilterCounter{counterRules + 2*n: &passed, counterRules + 2*n + 1: &over} {
		var each []bpfobj.FilterCounter
		if err := b.counts.Lookup(counter, &each); err != nil {
			t.Fatal(err)
		}
		for _, c := range each {
			to.Packets += c.Packets
			to.Bytes += c.Bytes
		}
	}
	return passed, over
}

// goes runs a frame several times and returns how many of the packets have passed.
func (b *limitBed) goes(t *testing.T, frame []byte, times int) int {
	t.Helper()
	n := uint32(binary.BigEndian.Uint16(frame))
	before, _ := b.passed(t, n)
	b.run(t, frame, times)
	after, _ := b.passed(t, n)
	return int(after.Packets - before.Packets)
}

// limitFrame returns a frame of size bytes for limit n, with a UDP packet.
func limitFrame(n uint32, src, dst string, size int) []byte {
	from, to := netip.MustParseAddr(src), netip.MustParseAddr(dst)
	f := make([]byte, size)
	binary.BigEndian.PutUint16(f, uint16(n))
	ip := f[14:]
	if from.Is4() {
		f[12] = 0x08
		ip[0], ip[8], ip[9] = 0x45, 64, 17
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		copy(ip[12:], from.AsSlice())
		copy(ip[16:], to.AsSlice())
		return f
	}
	f[12], f[13] = 0x86, 0xdd
	ip[0], ip[6], ip[7] = 0x60, 17, 64
	binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
	copy(ip[8:], from.AsSlice())
	copy(ip[24:], to.AsSlice())
	return f
}

// TestFilterLimitRate measures what passes in more than a second, on one CPU and on several. The burst lasts for 20 seconds, so
// that the test may be without a CPU for a while. The test uses the burst up before it measures.
func TestFilterLimitRate(t *testing.T) {
	b := newLimitBed(t)
	for n, c := range []struct {
		rate    Rate
		threads int
	}{
		{Rate{Rate: 1000}, 1},
		{Rate{Rate: 20_000}, 1},
		{Rate{Rate: 20_000}, 4},
		{Rate{Rate: 1_000_000, Bytes: true}, 1},
		{Rate{Rate: 1_000_000, Bytes: true}, 4},
		{Rate{Rate: 1000, Per: PerSrc}, 1},
		{Rate{Rate: 20_000, Per: PerDst}, 4},
	} {
		t.Run(fmt.Sprintf("%d-bytes=%v-per=%s-threads=%d", c.rate.Rate, c.rate.Bytes, c.rate.Per, c.threads), func(t *testing.T) {
			n := uint32(n)
			c.rate.Burst = 20 * c.rate.Rate
			b.put(t, n, c.rate)
			frame := limitFrame(n, "192.0.2.1", "198.51.100.1", 1000)
			start := time.Now()
			since := func() float64 { return time.Since(start).Seconds() }
			// drain sends until a packet is over the rate. That was between the times that it returns.
			drain := func() (from, to float64) {
				_, before := b.passed(t, n)
				for {
					from = since()
					b.run(t, frame, 1000)
					to = since()
					if _, over := b.passed(t, n); over.Packets != before.Packets || t.Failed() {
						return from, to
					}
				}
			}
			from, drained := drain()
			before, _ := b.passed(t, n)
			var stop atomic.Bool
			var wg sync.WaitGroup
			for i := range c.threads {
				wg.Go(func() {
					onCPU(t, i)
					for !stop.Load() {
						b.run(t, frame, 1000)
					}
				})
			}
			time.Sleep(1200 * time.Millisecond)
			stop.Store(true)
			wg.Wait()
			last, end := drain()
			after, over := b.passed(t, n)
			got := float64(after.Packets - before.Packets)
			if c.rate.Bytes {
				got = float64(after.Bytes - before.Bytes)
			}
			least, most := float64(c.rate.Rate)*(last-drained), float64(c.rate.Rate)*(end-from)
			t.Logf("%.0f passed in %.4f to %.4f s: %.4f to %.4f of the rate; %d over", got, last-drained, end-from,
				got/most, got/least, over.Packets)
			if got < 0.95*least || got > 1.05*most {
				t.Errorf("%.0f passed, want %.0f to %.0f", got, least, most)
			}
		})
	}
}

// onCPU keeps the goroutine on the n-th of the CPUs that it may use, modulo their number, until it ends.
func onCPU(t *testing.T, n int) {
	runtime.LockOSThread()
	var allowed, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Error(err)
	}
	n %= allowed.Count()
	for cpu := range 64 * len(allowed) {
		if allowed.IsSet(cpu) {
			if n--; n < 0 {
				one.Set(cpu)
				break
			}
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Error(err)
	}
}

// slow returns r with a rate so low that only the burst passes while a test runs.
func slow(r Rate) Rate {
	r.Rate = 1
	if r.Burst == 0 {
		r.Burst = 10
	}
	return r
}

func TestFilterLimitKeys(t *testing.T) {
	b := newLimitBed(t)
	type step struct {
		src, dst string // empty for ARP
		size     int
		want     int // how many of 100 frames pass
	}
	arp := func(n uint32) []byte {
		f := make([]byte, 60)
		binary.BigEndian.PutUint16(f, uint16(n))
		f[12], f[13] = 0x08, 0x06
		return f
	}
	const d4, d6 = "198.51.100.1", "2001:db8:ffff::1"
	for n, c := range []struct { // n becomes the number of the limit
		name  string
		rate  Rate // with a burst of 10 packets and no refill, unless it says otherwise
		steps []step
	}{
		{"burst of packets", Rate{Burst: 17}, []step{{"192.0.2.1", d4, 60, 17}, {"192.0.2.2", d4, 60, 0}, {"2001:db8::1", d6, 80, 0}}},
		{"least burst", Rate{Burst: 1}, []step{{"192.0.2.1", d4, 60, 1}}},
		{"burst of bytes", Rate{Burst: 3400, Bytes: true, Rate: 7}, []step{{"192.0.2.1", d4, 1000, 3}, {"192.0.2.1", d4, 300, 1}, {"192.0.2.1", d4, 101, 0}, {"192.0.2.1", d4, 100, 1}}},
		{"frame above the burst", Rate{Burst: 100, Bytes: true}, []step{{"192.0.2.1", d4, 1500, 1}, {"192.0.2.1", d4, 60, 0}}},
		{"per source", Rate{Per: PerSrc}, []step{
			{"192.0.2.1", d4, 60, 10}, {"192.0.2.1", "198.51.100.2", 60, 0}, {"192.0.2.2", d4, 60, 10}, {"192.0.2.1", d4, 60, 0},
			{"", "", 0, 10}, {"", "", 0, 0},
			{"2001:db8::1", d6, 80, 10}, {"2001:db8::1", "2001:db8:ffff::2", 80, 0}, {"2001:db8::2", d6, 80, 10}, {"3001:db8::1", d6, 80, 10}, {"2001:db8::1", d6, 80, 0},
			{"::ffff:192.0.2.1", d6, 80, 10}, {"::", d6, 80, 10}, {"0.0.0.0", d4, 80, 10},
		}},
		{"per destination", Rate{Per: PerDst}, []step{
			{"192.0.2.1", d4, 60, 10}, {"192.0.2.2", d4, 60, 0}, {"192.0.2.1", "198.51.100.2", 60, 10},
			{"2001:db8::1", d6, 80, 10}, {"2001:db8::2", d6, 80, 0}, {"2001:db8::1", "2001:db8:ffff::2", 80, 10},
		}},
		{"per /24 and /48", Rate{Per: PerSrc, Prefix4: 24, Prefix6: 48}, []step{
			{"192.0.2.1", d4, 60, 10}, {"192.0.2.254", d4, 60, 0}, {"192.0.3.1", d4, 60, 10},
			{"2001:db8::1", d6, 80, 10}, {"2001:db8:0:ffff::1", d6, 80, 0}, {"2001:db8:1::1", d6, 80, 10},
			{"::1", d6, 80, 10}, {"::ffff:192.0.2.1", d6, 80, 0}, {"", "", 0, 10},
		}},
		{"per /9 and /65", Rate{Per: PerDst, Prefix4: 9, Prefix6: 65}, []step{
			{"192.0.2.1", "10.127.0.1", 60, 10}, {"192.0.2.1", "10.0.0.1", 60, 0}, {"192.0.2.1", "10.128.0.1", 60, 10},
			{"::1", "2001:db8::1", 80, 10}, {"::1", "2001:db8::7000:0:0:1", 80, 0}, {"::1", "2001:db8::8000:0:0:1", 80, 10},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, r := uint32(n), c.rate
			if r.Rate == 0 {
				r = slow(r)
			}
			b.put(t, n, r)
			for i, s := range c.steps {
				frame := arp(n)
				if s.src != "" {
					frame = limitFrame(n, s.src, s.dst, s.size)
				}
				if got := b.goes(t, frame, 100); got != s.want {
					t.Errorf("step %d, %s to %s: %d passed, want %d", i, s.src, s.dst, got, s.want)
				}
			}
			if use := limitUse(t, b.tables, n); (r.Per == PerRule) != (use.entries == 0) || use.used != use.owing {
				t.Errorf("use %+v", use)
			}
		})
	}
	// Without the limit all packets pass.
	if err := dropLimit(b.limits, b.tables, 4); err != nil {
		t.Fatal(err)
	}
	if got := b.goes(t, limitFrame(4, "192.0.2.1", d4, 60), 100); got != 100 {
		t.Errorf("without a limit %d of 100 passed", got)
	}
	var table *ebpf.Map
	if err := b.tables.Lookup(uint32(4), &table); !bpfobj.NotExist(err) {
		t.Errorf("table of a limit that was dropped: %v", err)
	}
}

// TestFilterLimitEviction has more sources than entries. The table does not grow, and a steady sender stays limited.
func TestFilterLimitEviction(t *testing.T) {
	b := newLimitBed(t)
	const n, entries, others = 1, 256, 4000
	b.put(t, n, slow(Rate{Per: PerSrc, Entries: entries}))
	heavy := limitFrame(n, "203.0.113.1", "198.51.100.1", 60)
	passed := b.goes(t, heavy, 100)
	for i := range others {
		src := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		if got := b.goes(t, limitFrame(n, src.String(), "198.51.100.1", 60), 1); got != 1 {
			t.Fatalf("the first packet of %s is over the rate", src)
		}
		if i%4 == 0 {
			passed += b.goes(t, heavy, 1)
		}
	}
	// The burst, and a packet for each second that this takes.
	if passed < 10 || passed > 10+60 {
		t.Errorf("%d packets of the heavy source passed, want 10 and one a second", passed)
	}
	if use := limitUse(t, b.tables, n); use.entries != entries || use.used != entries {
		t.Errorf("use %+v, want all of %d", use, entries)
	}
	// A source that was evicted has its whole burst again.
	gone := limitFrame(n, "10.1.0.0", "198.51.100.1", 60)
	if got := b.goes(t, gone, 100); got != 10 {
		t.Errorf("a source that was evicted: %d passed, want 10", got)
	}
}

// TestFilterLimitBurstOfAll uses up a burst on several CPUs at once. As many packets pass as on a single CPU.
func TestFilterLimitBurstOfAll(t *testing.T) {
	b := newLimitBed(t)
	const threads, burst, rate = 4, 300_000, 100
	for n, per := range []Per{PerRule, PerSrc} {
		n := uint32(n)
		b.put(t, n, Rate{Rate: rate, Burst: burst, Per: per})
		start := time.Now()
		var wg sync.WaitGroup
		for i := range threads {
			wg.Go(func() {
				onCPU(t, i)
				b.run(t, limitFrame(n, "192.0.2.1", "198.51.100.1", 60), burst/2)
			})
		}
		wg.Wait()
		passed, over := b.passed(t, n)
		most := burst + uint64(rate*time.Since(start).Seconds()) + 1 + threads
		t.Logf("per %q: %d passed, %d over", per, passed.Packets, over.Packets)
		if passed.Packets < burst || passed.Packets > most || passed.Packets+over.Packets != threads*burst/2 {
			t.Errorf("per %q: %d passed and %d were over, want %d to %d of %d", per, passed.Packets, over.Packets, burst, most, threads*burst/2)
		}
	}
}

// TestFilterLimitRaces sends a new source from several CPUs at the same time, again and again into the same bucket. Each source
// gets one burst, and at most one packet more for each CPU.
func TestFilterLimitRaces(t *testing.T) {
	b := newLimitBed(t)
	const n, threads, rounds, burst = 1, 4, 500, 5
	b.put(t, n, Rate{Rate: 1, Burst: burst, Per: PerSrc, Entries: 4})
	var meet sync.WaitGroup
	begin := make([]chan []byte, threads)
	for i := range threads {
		begin[i] = make(chan []byte)
		go func() {
			onCPU(t, i)
			for frame := range begin[i] {
				b.run(t, frame, 100)
				meet.Done()
			}
		}()
	}
	start := time.Now()
	for r := range rounds {
		src := netip.AddrFrom4([4]byte{10, 2, byte(r >> 8), byte(r)}).String()
		meet.Add(threads)
		for i := range threads {
			begin[i] <- limitFrame(n, src, "198.51.100.1", 60)
		}
		meet.Wait()
	}
	for i := range threads {
		close(begin[i])
	}
	passed, over := b.passed(t, n)
	if passed.Packets+over.Packets != threads*rounds*100 {
		t.Errorf("%d passed and %d over of %d", passed.Packets, over.Packets, threads*rounds*100)
	}
	// Each second that the test takes gives a source one packet more.
	most := rounds*(burst+threads) + uint64(time.Since(start).Seconds()) + 1
	t.Logf("%d passed, %d bursts are %d", passed.Packets, rounds, rounds*burst)
	if passed.Packets < rounds*burst || passed.Packets > most {
		t.Errorf("%d passed, want %d to %d", passed.Packets, rounds*burst, most)
	}
}

func TestFilterRateValidate(t *testing.T) {
	for _, c := range []struct {
		rate Rate
		want string // in the error, "" for none
	}{
		{Rate{Rate: 1}, ""},
		{Rate{Rate: MaxPacketRate}, ""},
		{Rate{Rate: MaxByteRate, Bytes: true, Per: PerDst, Prefix4: 32, Prefix6: 128, Entries: MaxEntries}, ""},
		{Rate{Rate: 1, Burst: 3599}, ""},
		{Rate{}, "use 1 to 1000000000"},
		{Rate{Rate: MaxPacketRate + 1}, "use 1 to 1000000000"},
		{Rate{Rate: MaxByteRate + 1, Bytes: true}, "use 1 to 50000000000"},
		{Rate{Rate: 1, Burst: 3600}, "use less than"},
		{Rate{Rate: 1, Burst: math.MaxUint64}, "use less than"},
		{Rate{Rate: 1, Per: "net"}, "use src or dst"},
		{Rate{Rate: 1, Prefix4: 24}, "add per src or dst"},
		{Rate{Rate: 1, Entries: 5}, "add per src or dst"},
		{Rate{Rate: 1, Per: PerSrc, Prefix4: 33}, "use 1 to 32"},
		{Rate{Rate: 1, Per: PerSrc, Prefix6: 129}, "use 1 to 128"},
		{Rate{Rate: 1, Per: PerSrc, Entries: -1}, "use 1 to 16777216"},
		{Rate{Rate: 1, Per: PerSrc, Entries: MaxEntries + 1}, "use 1 to 16777216"},
	} {
		err := c.rate.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.rate, err, c.want)
		}
	}
}

// TestFilterLimitParameters checks for rates of all sizes that the cost of a frame in ticks is within 5 % of the exact value, and
// that nothing overflows.
func TestFilterLimitParameters(t *testing.T) {
	for _, bytes := range []bool{false, true} {
		most, frames := uint64(MaxPacketRate), []uint64{1}
		if bytes {
			most, frames = MaxByteRate, []uint64{60, 61, 64, 1514, 65535, 1<<19 - 1}
		}
		for rate := uint64(1); ; rate = min(rate*13/10+1, most) {
			r := Rate{Rate: rate, Bytes: bytes}
			raw := r.raw()
			for _, size := range frames {
				exact := float64(size) * 16e9 / float64(rate)
				ticks := raw.Mult
				if bytes {
					if ticks = size * raw.Mult; ticks/size != raw.Mult {
						t.Fatalf("%+v: a frame of %d bytes overflows", r, size)
					}
					ticks >>= raw.Shift
				}
				if d := math.Abs(float64(ticks)-exact) / exact; d > 0.05 {
					t.Errorf("%+v: %d cost %d ticks, want %.1f", r, size, ticks, exact)
				}
			}
			burst := float64(r.effectiveBurst()) * 16e9 / float64(rate)
			if d := math.Abs(float64(raw.Burst)-burst) / burst; d > 0.04 {
				t.Errorf("%+v: a burst of %d ticks, want %.1f", r, raw.Burst, burst)
			}
			r.Burst = rate*3600 - 1
			if raw := r.raw(); math.Abs(float64(raw.Burst)/(3600*16e9)-1) > 0.04 && rate > 1000 {
				t.Errorf("%+v: a burst of %d ticks for an hour", r, raw.Burst)
			}
			if rate == most {
				break
			}
		}
	}
	for _, c := range []struct {
		rate  Rate
		burst uint64
	}{
		{Rate{Rate: 1}, 2}, {Rate{Rate: 100}, 2}, {Rate{Rate: 1000}, 20}, {Rate{Rate: 1000, Burst: 1}, 1},
		{Rate{Rate: 1000, Bytes: true}, 3028}, {Rate{Rate: 1_000_000, Bytes: true}, 20_000},
	} {
		if got := c.rate.effectiveBurst(); got != c.burst {
			t.Errorf("burst of %+v: %d, want %d", c.rate, got, c.burst)
		}
	}
	for _, c := range []struct{ entries, want int }{{0, 65536}, {1, 4}, {4, 4}, {5, 8}, {9, 16}, {256, 256}, {257, 512}, {1 << 24, 1 << 24}} {
		if got := (Rate{Per: PerSrc, Entries: c.entries}).effectiveEntries(); got != c.want {
			t.Errorf("%d entries become %d, want %d", c.entries, got, c.want)
		}
	}
}

// TestFilterLimitLayout checks that limits and buckets are as long as a cache line.
func TestFilterLimitLayout(t *testing.T) {
	spec, err := bpfobj.LoadFilter()
	if err != nil {
		t.Fatal(err)
	}
	inner := spec.Maps[bpfobj.FilterMapFilterLimitTables].InnerMap
	if inner.ValueSize != bucketBytes || spec.Maps[bpfobj.FilterMapFilterLimits].ValueSize != 64 {
		t.Errorf("a bucket has %d bytes, a limit %d, want 64", inner.ValueSize, spec.Maps[bpfobj.FilterMapFilterLimits].ValueSize)
	}
}

// TestAllRatesChange gives each rule of the largest filter another rate. The old limits are in use until that is in force.
func TestAllRatesChange(t *testing.T) {
	limits := func(rate uint64) (f Filter) {
		for n := range maxLimits {
			f.Rules = append(f.Rules, Rule{Name: fmt.Sprint("r", n), Action: Limit, Rate: &Rate{Rate: rate, Per: PerRule}})
		}
		return f
	}
	var none filterState
	before, err := none.succeed(limits(100), nil)
	if err != nil {
		t.Fatal(err)
	}
	after, err := before.succeed(limits(200), nil)
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[int]bool)
	for _, s := range []*filterState{before, after} {
		for _, l := range s.Limits {
			used[l.Number] = true
		}
	}
	if len(used) != 2*maxLimits {
		t.Errorf("%d numbers are in use, want %d", len(used), 2*maxLimits)
	}
}
