// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/gaissmai/bart"

	"culvert/internal/bpfobj"
	"culvert/internal/filter/cbpf"
	"culvert/internal/filter/filterset"
)

// setBed is a filter that looks up an address in set 3 for each packet. The addresses are in a map, and so are the answers.
type setBed struct {
	t                testing.TB
	prog             *ebpf.Program
	sets, endpoints  *ebpf.Map
	lookups, answers *ebpf.Map // indexed by the number of the look-up
	next             *ebpf.Map // has the number of the next look-up
}

// maxLookups is the size of the maps of look-ups and answers.
const maxLookups = 1 << 16

// newSetBed loads the filter. Its rules are replaced by code that reads a struct flow_keys from the map of look-ups, looks it up
// and stores the answer: 1 for no, 2 for yes. An answer no is kept when the look-up is repeated. Without lookUp the code does all
// but the look-up itself, to measure what that costs. Bytes of the struct that look-ups do not read have the side and the type of
// the set.
func newSetBed(t testing.TB, lookUp bool) *setBed {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("needs root: run 'make test-root'")
	}
	b := &setBed{t: t}
	array := func(size, n uint32) *ebpf.Map {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: size, MaxEntries: n})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	b.lookups, b.answers, b.next = array(48, maxLookups), array(8, maxLookups), array(8, 1)
	spec, err := bpfobj.LoadFilter()
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.Variables[bpfobj.FilterVarFilterRuled].Set(true); err != nil {
		t.Fatal(err)
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	prog := spec.Programs[bpfobj.FilterProgFilter]
	prog.Instructions = setBedRules(t, prog.Instructions, b, lookUp)
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		var refused *ebpf.VerifierError
		if errors.As(err, &refused) {
			t.Fatalf("%+v", refused)
		}
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	b.prog, b.sets, b.endpoints = c.Programs[bpfobj.FilterProgFilter], c.Maps[bpfobj.FilterMapFilterSets], c.Maps[bpfobj.FilterMapFilterEndpoints]
	return b
}

// setBedRules replaces the function filter_rules.
func setBedRules(t testing.TB, all asm.Instructions, b *setBed, lookUp bool) asm.Instructions {
	t.Helper()
	from := -1
	to := len(all)
	for n, i := range all {
		switch {
		case i.Symbol() == "filter_rules":
			from = n
		case from >= 0 && i.Symbol() != "":
			to = min(to, n)
		}
	}
	if from < 0 {
		t.Fatal("there is no filter_rules")
	}
	lookUpIn := func(m *ebpf.Map, key int16, out string) asm.Instructions {
		return asm.Instructions{
			asm.LoadMapPtr(asm.R1, m.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, int32(key)),
			asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, out),
		}
	}
	body := asm.Instructions{asm.StoreImm(asm.RFP, -4, 0, asm.Word)}
	body = append(body, lookUpIn(b.next, -4, "out")...)
	body = append(body,
		asm.LoadMem(asm.R6, asm.R0, 0, asm.DWord), asm.Mov.Reg(asm.R1, asm.R6), asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.And.Imm(asm.R6, maxLookups-1), asm.StoreMem(asm.RFP, -4, asm.R6, asm.Word))
	body = append(body, lookUpIn(b.lookups, -4, "out")...)
	for off := int16(0); off < 48; off += 8 {
		body = append(body, asm.LoadMem(asm.R1, asm.R0, off, asm.DWord), asm.StoreMem(asm.RFP, off-56, asm.R1, asm.DWord))
	}
	body = append(body, lookUpIn(b.answers, -4, "out")...)
	body = append(body,
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, -56),
		asm.Mov.Imm(asm.R2, 3),
		asm.LoadMem(asm.R3, asm.RFP, 39-56, asm.Byte), // pad: the side
		asm.Mov.Imm(asm.R0, 0))
	if lookUp {
		body = append(body,
			asm.LoadMem(asm.R4, asm.RFP, 44-56, asm.Byte), // behind the last field: the kind
			asm.JNE.Imm(asm.R4, 0, "endpoint"),
			asm.Call.Label("filter_set_has"), asm.Ja.Label("answer"),
			asm.Call.Label("filter_set_has_endpoint").WithSymbol("endpoint"))
	}
	body = append(body,
		asm.Add.Imm(asm.R0, 1).WithSymbol("answer"),
		asm.LoadMem(asm.R1, asm.R7, 0, asm.DWord),
		asm.JEq.Imm(asm.R1, 1, "out"), // the answer no is kept
		asm.StoreMem(asm.R7, 0, asm.R0, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"), asm.Return())
	body[0].Metadata = all[from].Metadata
	return cbpf.CalledFunctions(append(append(append(asm.Instructions{}, all[:from]...), body...), all[to:]...))
}

var setPacket = make([]byte, 64)

// setLookup is a look-up of an address, in a set of prefixes or, with endpoint, in a set of addresses with ports.
type setLookup struct {
	addr     netip.Addr
	port     uint16
	dst      bool // the address is the destination
	endpoint bool
	noPorts  bool // the packet has no ports
	want     bool // the address is a member
}

// bytes returns the struct flow_keys of the look-up.

func (l setLookup) bytes() []byte {
	b := make([]byte, 48)
	other := netip.MustParseAddr("203.0.113.77").As16()
	side, otherSide, port := b[:16], b[16:32], b[32:34]
	if l.dst {
		side, otherSide, port = otherSide, side, b[34:36]
		b[39] = 1
	}
	copy(side, l.addr.AsSlice())
	copy(otherSide, other[:])
	b[36] = 6
	if l.addr.Is4() {
		mapped := l.addr.As16()
		copy(side, mapped[:])
		b[36] = 4
	}
	if !l.addr.IsValid() {
		b[36] = 0
	}
	binary.BigEndian.PutUint16(port, l.port)
	if !l.noPorts {
		b[38] = 1
	}
	if l.endpoint {
		b[44] = 1
	}
	return b
}

// fill fills the map of look-ups. It repeats them until the map is full.
func (b *setBed) fill(lookups []setLookup) {
	b.t.Helper()
	keys, values := make([]uint32, maxLookups), make([][48]byte, maxLookups)
	for n := range keys {
		keys[n] = uint32(n)
		values[n] = [48]byte(lookups[n%len(lookups)].bytes())
	}
	if _, err := b.lookups.BatchUpdate(keys, values, nil); err != nil {
		b.t.Fatal(err)
	}
	zeros := make([]uint64, maxLookups)
	if _, err := b.answers.BatchUpdate(keys, zeros, nil); err != nil {
		b.t.Fatal(err)
	}
	if err := b.next.Put(uint32(0), uint64(0)); err != nil {
		b.t.Fatal(err)
	}
}

// run does the first n look-ups, and returns how long one of them took.
func (b *setBed) run(n int) time.Duration {
	b.t.Helper()
	_, took, err := b.prog.Benchmark(setPacket, n, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return took
}

// check does all look-ups and compares the answers.
func (b *setBed) check(lookups []setLookup) {
	b.t.Helper()
	if len(lookups) > maxLookups {
		b.t.Fatalf("%d look-ups are too many", len(lookups))
	}
	b.fill(lookups)
	b.run(len(lookups))
	keys, answers := make([]uint32, maxLookups), make([]uint64, maxLookups)
	if _, err := b.answers.BatchLookup(new(ebpf.MapBatchCursor), keys, answers, nil); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		b.t.Fatal(err)
	}
	wrong := 0
	for n, l := range lookups {
		if want := map[bool]uint64{false: 1, true: 2}[l.want]; answers[n] != want {
			b.t.Errorf("%+v is answered with %d", l, int(answers[n])-1)
			if wrong++; wrong == 5 {
				b.t.FailNow()
			}
		}
	}
}

// load makes p set 3.
func (b *setBed) load(p *filterset.Prefixes) {
	b.t.Helper()
	image, err := p.Image()
	if err != nil {
		b.t.Fatal(err)
	}
	m, err := newSet(image)
	if err != nil {
		b.t.Fatal(err)
	}
	defer m.Close()
	if err := putSet(b.sets, 3, m); err != nil {
		b.t.Fatal(err)
	}
	back, err := readSet(b.sets, 3)
	if err != nil || string(back) != string(image) {
		b.t.Fatalf("what was read is not what was written (%v)", err)
	}
}

func parseSet(t testing.TB, o filterset.Options, args ...string) *filterset.Prefixes {
	t.Helper()
	p, err := filterset.ParsePrefixes(args, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// randomPrefix returns a prefix of at least 20 bits in IPv4 and 32 in IPv6, so that few contain others.
func randomPrefix(r *rand.Rand, v4 bool) netip.Prefix {
	ip, n := randomAddr(r, v4), 32+r.IntN(97)
	if v4 {
		n = 20 + r.IntN(13)
	}
	p, err := ip.Prefix(n)
	if err != nil {
		panic(err)
	}
	return p
}

func randomAddr(r *rand.Rand, v4 bool) netip.Addr {
	var a [16]byte
	binary.BigEndian.PutUint64(a[:], r.Uint64()>>3|0x2000<<48)
	binary.BigEndian.PutUint64(a[8:], r.Uint64())
	if v4 {
		return netip.AddrFrom4([4]byte(a[8:]))
	}
	return netip.AddrFrom16(a)
}

// randomSet writes a file with n prefixes. Families says by turns whether a prefix is of IPv4.
func randomSet(t testing.TB, n int, families ...bool) (file string, all []netip.Prefix) {
	t.Helper()
	r := rand.New(rand.NewPCG(uint64(n), 9))
	var text []byte
	for i := range n {
		p := randomPrefix(r, families[i%len(families)])
		all = append(all, p)
		text = append(p.AppendTo(text), '\n')
	}
	file = filepath.Join(t.TempDir(), "set")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, all
}

func mustReadSet(t testing.TB, file string) *filterset.Prefixes {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := filterset.ReadPrefixes(file, data, filterset.Options{Now: Now()})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// lookupsAround returns n look-ups of addresses at the edges of prefixes and elsewhere. A routing table says which of them are
// members.
func lookupsAround(r *rand.Rand, all []netip.Prefix, n int) []setLookup {
	var table bart.Lite
	for _, p := range all {
		table.Insert(p)
	}
	var lookups []setLookup
	for len(lookups) < n {
		a := randomAddr(r, len(lookups)%2 == 0)
		if len(all) > 0 && r.IntN(4) != 0 {
			p := all[r.IntN(len(all))]
			a = p.Addr()
			switch r.IntN(4) {
			case 0:
				a = a.Prev()
			case 1:
				a = lastOf(p)
			case 2:
				a = lastOf(p).Next()
			}
		}
		if a.IsValid() {
			lookups = append(lookups, setLookup{addr: a, dst: r.IntN(2) == 0, want: table.Contains(a)})
		}
	}
	return lookups
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for n := p.Bits(); n < len(b)*8; n++ {
		b[n/8] |= 0x80 >> (n % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func TestFilterSetLookUp(t *testing.T) {
	b := newSetBed(t, true)
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 10, 100, 10_000} {
		file, all := randomSet(t, n, true, false)
		b.load(mustReadSet(t, file))
		b.check(lookupsAround(r, all, 20_000))
	}
	for _, set := range []string{"0.0.0.0/0", "::/0", "255.255.255.255", "0.0.0.0", "::", "::/0 0.0.0.0/0",
		"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "0.0.0.0/1 ::/1", "128.0.0.0/1 8000::/1"} {
		p := parseSet(t, filterset.Options{}, set)
		b.load(p)
		var all []netip.Prefix
		for prefix := range p.All() {
			all = append(all, prefix)
		}
		b.check(lookupsAround(r, all, 500))
	}
	b.load(parseSet(t, filterset.Options{}, "0.0.0.0/0 ::/0"))
	b.check([]setLookup{{}}) // a packet without an address is in no set
	if err := deleteSet(b.sets, 3); err != nil {
		t.Fatal(err)
	}
	b.check([]setLookup{{addr: netip.MustParseAddr("192.0.2.1")}, {addr: netip.MustParseAddr("::1")}})
	if _, err := readSet(b.sets, 3); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("a set that was deleted is read: %v", err)
	}
}

func TestFilterSetMillion(t *testing.T) {
	b := newSetBed(t, true)
	file, all := randomSet(t, 1_000_000, true, false)
	b.load(mustReadSet(t, file))
	b.check(lookupsAround(rand.New(rand.NewPCG(1, 2)), all, 20_000))
}

// TestFilterSetHeights builds trees of all heights. Many prefixes are close together. A few are far away, so that all others
// are in the same bucket.
func TestFilterSetHeights(t *testing.T) {
	b := newSetBed(t, true)
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{30, 1000, 40_000, 150_000} {
		var all []netip.Prefix
		var args []string
		for _, far := range []string{"1.0.0.0/32", "223.0.0.0/24", "::1/128", "fd00::/8"} {
			all = append(all, netip.MustParsePrefix(far))
			args = append(args, far)
		}
		for i := range n {
			v4 := binary.BigEndian.AppendUint32(nil, 0x0a000000+uint32(i)*4+uint32(r.IntN(3)))
			v6 := netip.MustParseAddr("2001:db8::").As16()
			binary.BigEndian.PutUint32(v6[12:], uint32(i)*4+uint32(r.IntN(3)))
			all = append(all, netip.PrefixFrom(netip.AddrFrom4([4]byte(v4)), 32), netip.PrefixFrom(netip.AddrFrom16(v6), 128))
			args = append(args, all[len(all)-1].String(), all[len(all)-2].String())
		}
		b.load(parseSet(t, filterset.Options{}, args...))
		b.check(lookupsAround(r, all, 20_000))
	}
}

func TestFilterSetTimes(t *testing.T) {
	b := newSetBed(t, true)
	now := Now()
	r := rand.New(rand.NewPCG(5, 6))
	var over, soon, late, ever []string
	var all []netip.Prefix
	for n := range 400 {
		p := randomPrefix(r, n%2 == 0)
		all = append(all, p)
		list := []*[]string{&over, &soon, &late, &ever}[n/2%4]
		*list = append(*list, p.String())
	}
	var set filterset.Prefixes
	for _, part := range []struct {
		args []string
		filterset.Options
	}{
		{over, filterset.Options{Now: 0, Timeout: time.Nanosecond}},
		{soon, filterset.Options{Now: now, Timeout: 500 * time.Millisecond}},
		{late, filterset.Options{Now: now, Timeout: time.Hour}},
		{ever, filterset.Options{Now: now}},
	} {
		set.Add(parseSet(t, part.Options, part.args...))
	}
	b.load(&set)
	// Time goes on while the program runs. So wait until the entries of half a second have expired.
	time.Sleep(time.Second)
	end := Now()
	lookups := lookupsAround(r, all, 5000)
	some := 0
	for n := range lookups {
		lookups[n].want = set.Has(lookups[n].addr, end)
		if lookups[n].want {
			some++
		}
	}
	if some < 500 {
		t.Fatalf("only %d of %d are members", some, len(lookups))
	}
	b.check(lookups)
	// An entry is a member until it expires, without a change of the set.
	short := parseSet(t, filterset.Options{Now: Now(), Timeout: 3 * time.Second}, "192.0.2.1", "2001:db8::1")
	b.load(short)
	lookups = []setLookup{{addr: netip.MustParseAddr("192.0.2.1"), want: true}, {addr: netip.MustParseAddr("2001:db8::1"), want: true}}
	b.check(lookups)
	time.Sleep(3500 * time.Millisecond)
	lookups[0].want, lookups[1].want = false, false
	b.check(lookups)
}

func TestFilterSetEndpoints(t *testing.T) {
	b := newSetBed(t, true)
	now := Now()
	set, err := filterset.ParseEndpoints([]string{
		"192.0.2.1:53 [2001:db8::1]:53 timeout 1h", "192.0.2.2:65535", "0.0.0.0:1", "[::]:2"}, filterset.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	set[netip.MustParseAddrPort("192.0.2.3:80")] = now // over
	r := rand.New(rand.NewPCG(7, 8))
	for n := range 20_000 {
		set[netip.AddrPortFrom(randomAddr(r, n%2 == 0), uint16(1+r.IntN(65535)))] = filterset.Never
	}
	m, err := newEndpoints(set)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := putSet(b.endpoints, 3, m); err != nil {
		t.Fatal(err)
	}
	back, err := endpointsIn(b.endpoints, 3)
	if err != nil || !maps.Equal(back, set) {
		t.Fatalf("%d members are read of %d (%v)", len(back), len(set), err)
	}
	var lookups []setLookup
	for at, end := range set {
		l := setLookup{addr: at.Addr(), port: at.Port(), endpoint: true, dst: r.IntN(2) == 0, want: end > now}
		lookups = append(lookups, l)
		l.port++
		l.want = set[netip.AddrPortFrom(l.addr, l.port)] > now
		lookups = append(lookups, l)
		l = lookups[len(lookups)-2]
		l.noPorts, l.want = true, false
		lookups = append(lookups, l)
	}
	// An IPv4-mapped IPv6 address is not the IPv4 address.
	lookups = append(lookups,
		setLookup{addr: netip.MustParseAddr("192.0.2.1"), port: 53, endpoint: true, want: true},
		setLookup{addr: netip.MustParseAddr("::ffff:192.0.2.1"), port: 53, endpoint: true})
	b.check(lookups)
	empty, err := newEndpoints(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	if err := putSet(b.endpoints, 3, empty); err != nil {
		t.Fatal(err)
	}
	if back, err := endpointsIn(b.endpoints, 3); err != nil || len(back) != 0 {
		t.Fatalf("the empty set has %d members (%v)", len(back), err)
	}
	for n := range lookups {
		lookups[n].want = false
	}
	b.check(lookups)
}

// TestFilterSetReplace replaces a set again and again while packets look up addresses that all sets have. No look-up misses.
func TestFilterSetReplace(t *testing.T) {
	b := newSetBed(t, true)
	r := rand.New(rand.NewPCG(9, 10))
	var both, one, other []string
	var lookups []setLookup
	for n := range 1500 {
		a := randomAddr(r, n%2 == 0)
		both = append(both, a.String())
		lookups = append(lookups, setLookup{addr: a, want: true})
	}
	for n := range 30_000 {
		one = append(one, randomAddr(r, n%2 == 0).String())
		other = append(other, randomAddr(r, n%2 == 1).String(), randomAddr(r, n%4 == 1).String(), "timeout", "1h")
	}
	var images [][]byte
	for _, part := range [][]string{one, other, nil} {
		p := parseSet(t, filterset.Options{Now: Now()}, append(part, both...)...)
		image, err := p.Image()
		if err != nil {
			t.Fatal(err)
		}
		images = append(images, image)
	}
	b.load(parseSet(t, filterset.Options{}, both...))
	b.fill(lookups)
	stop, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(failed)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			m, err := newSet(images[n%len(images)])
			if err == nil {
				err = putSet(b.sets, 3, m)
				m.Close()
			}
			if err != nil {
				failed <- err
				return
			}
		}
	}()
	// One answer no is enough, because the program keeps it.
	ids := make(map[ebpf.MapID]bool)
	for round := 0; len(ids) < 20 || round < 40; round++ {
		b.run(len(lookups))
		var id ebpf.MapID
		if err := b.sets.Lookup(uint32(3), &id); err != nil {
			t.Fatal(err)
		}
		ids[id] = true
		if round == 100_000 {
			t.Fatal("the set is not replaced")
		}
	}
	close(stop)
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	keys, answers := make([]uint32, maxLookups), make([]uint64, maxLookups)
	if _, err := b.answers.BatchLookup(new(ebpf.MapBatchCursor), keys, answers, nil); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Fatal(err)
	}
	for n, answer := range answers[:40*len(lookups)] {
		if answer != 2 {
			t.Fatalf("%s was missed at least once", lookups[n%len(lookups)].addr)
		}
	}
}

// BenchmarkFilterSet measures a look-up by the difference to a program that does all but the look-up. With -short it is made
// for an emulator whose clock counts instructions.
func BenchmarkFilterSet(b *testing.B) {
	rounds, runs := 15, 4*maxLookups
	sizes := []int{10, 10_000, 1_000_000}
	if testing.Short() {
		rounds, runs, sizes = 1, 8192, []int{10, 10_000, 100_000}
	}
	empty, bed := newSetBed(b, false), newSetBed(b, true)
	measure := func(lookups []setLookup) float64 {
		empty.fill(lookups)
		bed.fill(lookups)
		best := [2]time.Duration{time.Hour, time.Hour}
		for range rounds {
			for n, x := range []*setBed{empty, bed} {
				best[n] = min(best[n], x.run(runs))
			}
		}
		return float64(best[1] - best[0])
	}
	for _, family := range []string{"4", "6"} {
		v4 := family == "4"
		for _, n := range sizes {
			file, all := randomSet(b, n, v4)
			started := time.Now()
			set := mustReadSet(b, file)
			read := time.Since(started)
			image, err := set.Image()
			if err != nil {
				b.Fatal(err)
			}
			m, err := newSet(image)
			if err != nil {
				b.Fatal(err)
			}
			if err := putSet(bed.sets, 3, m); err != nil {
				b.Fatal(err)
			}
			m.Close()
			took := time.Since(started)
			r := rand.New(rand.NewPCG(11, 12))
			var members, others []setLookup
			for len(members) < maxLookups || len(others) < maxLookups {
				a := randomAddr(r, v4)
				if len(members) < maxLookups {
					members = append(members, setLookup{addr: lastOf(all[r.IntN(n)])})
				}
				if !set.Has(a, 0) {
					others = append(others, setLookup{addr: a})
				}
			}
			b.Run(fmt.Sprintf("IPv%s/%d", family, n), func(b *testing.B) {
				for b.Loop() {
					b.ReportMetric(measure(members[:1]), "warm-member-ns")
					b.ReportMetric(measure(others[:1]), "warm-other-ns")
					b.ReportMetric(measure(members), "cold-member-ns")
					b.ReportMetric(measure(others[:maxLookups]), "cold-other-ns")
				}
				b.ReportMetric(read.Seconds()*1000, "read-ms")
				b.ReportMetric(took.Seconds()*1000, "load-ms")
				b.ReportMetric(float64(len(image))/1e6, "MB")
			})
		}
	}
}
