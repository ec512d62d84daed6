// SPDX-License-Identifier: Apache-2.0

package filterset

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// checkSet compares a set, its image and what Decode makes of the image with the list of its entries.
func checkSet(t *testing.T, p *Prefixes, all naive, probes []netip.Addr) {
	t.Helper()
	image, err := p.Image()
	if err != nil {
		t.Fatal(err)
	}
	back, err := Decode(image)
	if err != nil {
		t.Fatalf("%v of %v", err, all)
	}
	if !slices.Equal(back.v4, p.v4) || !slices.Equal(back.v6, p.v6) {
		t.Fatalf("decoded %v and %v, encoded %v and %v", back.v4, back.v6, p.v4, p.v6)
	}
	if again, err := back.Image(); err != nil || !bytes.Equal(again, image) {
		t.Fatalf("the same members have made another image (%v)", err)
	}
	for _, a := range probes {
		until := all.until(a)
		for _, now := range []Time{0, 3, max(until, 1) - 1, min(until, Never-1)} {
			want := now < until
			if got, _ := lookUp(t, image, a, now); got != want {
				t.Fatalf("%s at %d: member: %t, want %t, in %v", a, now, got, want, all)
			}
			if got := p.Has(a, now); got != want {
				t.Fatalf("Has(%s) at %d: %t, want %t, in %v", a, now, got, want, all)
			}
		}
	}
}

// TestAgainstList compares random sets of all layouts and sizes with the list of their entries.
func TestAgainstList(t *testing.T) {
	families := map[string]func(n int) (v4 bool){
		"IPv4": func(int) bool { return true },
		"IPv6": func(int) bool { return false },
		"both": func(n int) bool { return n%2 == 0 },
	}
	sizes := []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 28, 31, 32, 33, 63, 64, 65, 100, 255, 256, 257, 500, 1100}
	for name, layout := range map[string]layout{
		"anywhere": anywhere, "edges": edges, "one network": oneNetwork, "mostly one subnet": mostlyOneSubnet,
	} {
		for _, times := range []bool{false, true} {
			for family, isV4 := range families {
				t.Run(fmt.Sprintf("%s/times=%t/%s", name, times, family), func(t *testing.T) {
					for _, size := range sizes {
						for seed := range uint64(2) {
							s := &source{rand.New(rand.NewPCG(seed, uint64(size))), layout, times}
							var all naive
							for n := range size {
								all = append(all, s.entry(isV4(n)))
							}
							checkSet(t, build(all), all, s.probes(all))
						}
					}
				})
			}
		}
	}
}

// single returns n single addresses: every other one from an address on.
func single(from string, n int) naive {
	var all naive
	for a := netip.MustParseAddr(from); n > 0 && a.IsValid(); n-- {
		all = append(all, naiveEntry{a, a, Never})
		a = a.Next().Next()
	}
	return all
}

// TestLines builds sets of all sizes up to several lines, also at the ends of the address space.
func TestLines(t *testing.T) {
	for _, from := range []string{"0.0.0.0", "192.0.2.0", "255.255.253.0", "::", "2001:db8::", "2001:db8::ffff:ffff:ffff:ff00"} {
		for n := range 140 {
			all := single(from, n)
			s := &source{Rand: rand.New(rand.NewPCG(1, 2))}
			checkSet(t, build(all), all, s.probes(all))
		}
	}
}

// TestEdges has sets at the ends of the address space, and of prefixes that touch or overlap. They are encoded and decoded.
func TestEdges(t *testing.T) {
	for _, test := range []struct{ set, want string }{
		{"", ""},
		{"0.0.0.0/0", "0.0.0.0/0"},
		{"::/0", "::/0"},
		{"::/0 0.0.0.0/0", "0.0.0.0/0 ::/0"},
		{"255.255.255.255", "255.255.255.255/32"},
		{"0.0.0.0", "0.0.0.0/32"},
		{"0.0.0.0 255.255.255.255", "0.0.0.0/32 255.255.255.255/32"},
		{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"},
		{":: ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128", "::/128 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"},
		{"0.0.0.0/1 128.0.0.0/1", "0.0.0.0/0"},
		{"::/1 8000::/1", "::/0"},
		{"192.0.2.0/25 192.0.2.128/25", "192.0.2.0/24"},
		{"192.0.2.0/24 192.0.2.7", "192.0.2.0/24"},
		{"192.0.2.1-192.0.2.6", "192.0.2.1/32 192.0.2.2/31 192.0.2.4/31 192.0.2.6/32"},
		{"0.0.0.0-255.255.255.254", "0.0.0.0/1 128.0.0.0/2 192.0.0.0/3 224.0.0.0/4 240.0.0.0/5 248.0.0.0/6 252.0.0.0/7 254.0.0.0/8 255.0.0.0/9 255.128.0.0/10 255.192.0.0/11 255.224.0.0/12 255.240.0.0/13 255.248.0.0/14 255.252.0.0/15 255.254.0.0/16 255.255.0.0/17 255.255.128.0/18 255.255.192.0/19 255.255.224.0/20 255.255.240.0/21 255.255.248.0/22 255.255.252.0/23 255.255.254.0/24 255.255.255.0/25 255.255.255.128/26 255.255.255.192/27 255.255.255.224/28 255.255.255.240/29 255.255.255.248/30 255.255.255.252/31 255.255.255.254/32"},
		{"::ffff:192.0.2.0/120", "192.0.2.0/24"},
		{"::ffff:192.0.2.1", "192.0.2.1/32"},

		{"::ffff:ffff:ffff:ffff 0:0:0:1::", "::ffff:ffff:ffff:ffff/128 0:0:0:1::/128"},
		{"fe80::-fe80::ffff:ffff:ffff:ffff fe80:0:0:1::/64", "fe80::/63"},
	} {
		p, err := ParsePrefixes([]string{test.set}, Options{})

		if err != nil {
			t.Errorf("%s: %v", test.set, err)
			continue
		}
		image, err := p.Image()
		if err != nil {
			t.Fatal(err)
		}
		if p, err = Decode(image); err != nil {
			t.Errorf("%s: %v", test.set, err)
			continue
		}
		var got []string
		var all naive
		for prefix, until := range p.All() {
			got = append(got, prefix.String())
			all = append(all, naiveEntry{prefix.Addr(), last(prefix), until})
		}
		want := strings.Fields(test.want)
		for n, w := range want {
			want[n] = netip.MustParsePrefix(w).String()
		}
		if !slices.Equal(got, want) || p.Len() != len(want) {
			t.Errorf("%s has become %s, want %s", test.set, got, want)
		}
		s := &source{Rand: rand.New(rand.NewPCG(1, 2))}
		checkSet(t, p, all, s.probes(all))
	}
}

// TestAddRemove adds random entries to sets and removes others.
func TestAddRemove(t *testing.T) {
	for seed := range uint64(300) {
		s := &source{rand.New(rand.NewPCG(seed, 7)), layout(seed % 4), seed%3 == 0}
		var all naive
		p := new(Prefixes)
		var touched naive
		for range 12 {
			change := naive{s.entry(seed%2 == 0), s.entry(seed%2 == 0)}
			touched = append(touched, change...)
			q := build(change)
			if s.IntN(3) != 0 {
				p.Add(q)
				all = append(all, change...)
				if m, missing := p.Missing(q); missing {
					t.Fatalf("%s is missing after it was added", m)
				}
				checkSet(t, p, all, s.probes(touched))
				continue
			}
			p.Remove(q)
			var left naive
			for _, e := range all {
				left = append(left, e.minus(change)...)
			}
			all = left
			if !slices.Equal(p.v4, normal(slices.Clone(p.v4))) || !slices.Equal(p.v6, normal(slices.Clone(p.v6))) {
				t.Fatal("what is left is not normal")
			}
			checkSet(t, p, all, s.probes(touched))
			for _, e := range change {
				if m, missing := p.Missing(build(naive{e})); !missing {
					t.Fatalf("%v is still there (%v)", e, m)
				}
			}
		}
	}
}

// minus returns what is left of an entry without others.
func (e naiveEntry) minus(others naive) naive {
	left := naive{e}
	for _, o := range others {
		var next naive
		for _, l := range left {
			if o.from.BitLen() != l.from.BitLen() || o.to.Less(l.from) || l.to.Less(o.from) {
				next = append(next, l)
				continue
			}
			if l.from.Less(o.from) {
				next = append(next, naiveEntry{l.from, o.from.Prev(), l.until})
			}
			if o.to.Less(l.to) {
				next = append(next, naiveEntry{o.to.Next(), l.to, l.until})
			}
		}
		left = next
	}
	return left
}

// TestRenew adds an entry with a timeout again, which renews the timeout. An entry that does not expire stays so.
func TestRenew(t *testing.T) {
	add := func(p *Prefixes, now Time, args ...string) {
		q, err := ParsePrefixes(args, Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		p.Add(q)
	}
	p := new(Prefixes)
	a := netip.MustParseAddr("192.0.2.1")
	add(p, 100, "192.0.2.1", "timeout", "10s")
	if end := Time(100).After(10e9); !p.Has(a, end-1) || p.Has(a, end) {
		t.Fatal("the entry does not expire after its timeout")
	}
	if next := p.Next(100); next < 10e9 || next > 10.5e9 {
		t.Fatalf("the next entry expires in %s, want 10s", next)
	}
	add(p, 120, "192.0.2.1", "timeout", "10s")
	if end := Time(120).After(10e9); !p.Has(a, end-1) || p.Has(a, end) {
		t.Fatal("not renewed")
	}
	p.Expire(130)
	if p.Len() != 1 {
		t.Fatal("gone before its time")
	}
	p.Expire(Time(120).After(10e9))
	if p.Len() != 0 {
		t.Fatal("there after its time")
	}
	add(p, 100, "192.0.2.0/24")
	add(p, 100, "192.0.2.1", "timeout", "10s")
	if !p.Has(a, 1<<20) {
		t.Fatal("an address of a prefix without a timeout has expired")
	}
}

// TestDamaged decodes damaged images. Decode does not panic. It refuses truncated images and those of another format.
func TestDamaged(t *testing.T) {
	s := &source{Rand: rand.New(rand.NewPCG(3, 4)), layout: mostlyOneSubnet, times: true}
	var all naive
	for n := range 300 {
		all = append(all, s.entry(n%2 == 0))
	}
	image, err := build(all).Image()
	if err != nil {
		t.Fatal(err)
	}
	for n := range 4 * LineSize {
		for _, v := range []byte{0, 1, 0x7f, 0xff} {
			b := slices.Clone(image)
			at := n
			if n >= 2*LineSize {
				at = s.IntN(len(b))
			}
			b[at] = v
			_, _ = Decode(b)
		}
	}
	for _, n := range []int{0, 1, LineSize, 2 * LineSize, len(image) - LineSize, len(image) - 1} {
		if _, err := Decode(image[:n]); err == nil {
			t.Errorf("%d bytes of %d were taken", n, len(image))
		}
	}
	image[0]++
	if _, err := Decode(image); err == nil || !strings.Contains(err.Error(), "format") {
		t.Errorf("another format was taken (%v)", err)
	}
}

// TestHeader checks fields of the header as in bpf/filter/set.h.
func TestHeader(t *testing.T) {
	p, err := ParsePrefixes([]string{"192.0.2.1 2001:db8::1 timeout 1m"}, Options{Now: 1})
	if err != nil {
		t.Fatal(err)
	}
	image, err := p.Image()
	if err != nil {
		t.Fatal(err)
	}
	if got := ne.Uint32(image[4:]); int(got)*LineSize != len(image) {
		t.Errorf("the header has %d lines, the image %d", got, len(image)/LineSize)
	}
	if first := image[128:]; ne.Uint32(image[16+32:]) != 1 || ne.Uint32(image[16+44:]) != 1 || ne.Uint32(first) != 2<<5|1<<1 {
		t.Error("the table of IPv4 is not in line 1, its tree not in line 2")
	}
	if got := ne.Uint32(image[16+52:]); got != 0 {
		t.Errorf("IPv4 has times, in line %d", got)
	}
	if got := ne.Uint32(image[72+52:]); got == 0 {
		t.Error("IPv6 has no times")
	}
}

func million(v4 bool) []byte {
	r := rand.New(rand.NewPCG(5, 6))
	var b bytes.Buffer
	for range 1_000_000 {
		var a [16]byte
		binary.BigEndian.PutUint64(a[:], r.Uint64()>>3|0x2000<<48)
		binary.BigEndian.PutUint64(a[8:], r.Uint64())
		ip, n := netip.AddrFrom16(a), 32+r.IntN(97)
		if v4 {
			ip, n = netip.AddrFrom4([4]byte(a[8:])), 20+r.IntN(13)
		}
		p, _ := ip.Prefix(n)
		fmt.Fprintln(&b, p)
	}
	return b.Bytes()
}

func BenchmarkMillion(b *testing.B) {
	for _, v4 := range []bool{true, false} {
		name := "6"
		if v4 {
			name = "4"
		}
		data := million(v4)
		p, err := ReadPrefixes("set", data, Options{})
		if err != nil {
			b.Fatal(err)
		}
		image, err := p.Image()
		if err != nil {
			b.Fatal(err)
		}
		b.Run("Read"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := ReadPrefixes("set", data, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("Image"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := p.Image(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(image)), "bytes")
		})
		b.Run("Decode"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Decode(image); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("AddOne"+name, func(b *testing.B) {
			one, err := ParsePrefixes([]string{"192.0.2.1 2001:db8::1"}, Options{})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				q, err := Decode(image)
				if err != nil {
					b.Fatal(err)
				}
				q.Add(one)
				if _, err := q.Image(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("Lines"+name, func(b *testing.B) {
			r := rand.New(rand.NewPCG(7, 8))
			var lines, worst, has, n int
			for b.Loop() {
				s := p.v6[r.IntN(max(len(p.v6), 1)):]
				if v4 {
					s = p.v4[r.IntN(len(p.v4)):]
				}
				got, read := lookUp(b, image, s[0].from.ip(v4), 0)
				lines, worst, n = lines+read, max(worst, read), n+1
				if got {
					has++
				}
			}
			b.ReportMetric(float64(lines)/float64(n), "lines")
			b.ReportMetric(float64(worst), "most-lines")
		})
	}
}
