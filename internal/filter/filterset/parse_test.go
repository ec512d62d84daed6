// SPDX-License-Identifier: Apache-2.0

package filterset

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

const now = Time(1000)

// members returns the prefixes of a set, with the time until they expire.
func members(p *Prefixes) (all []string) {
	for prefix, until := range p.All() {
		s := prefix.String()
		if until != Never {
			s += " " + until.Until(now).Truncate(time.Second).String()
		}
		all = append(all, s)
	}
	return all
}

func TestReadPrefixes(t *testing.T) {
	for _, test := range []struct {
		text, want string
		timeout    time.Duration
	}{
		{text: "", want: ""},
		{text: "# nothing\n\n  \t\r\n#", want: ""},
		{text: "192.0.2.1", want: "192.0.2.1/32"},
		{text: "192.0.2.1\r\n198.51.100.0/24 # and this\r\n2001:db8::/32 # 10.0.0.1", want: "192.0.2.1/32,198.51.100.0/24,2001:db8::/32"},
		{text: " 192.0.2.1\t192.0.2.3 192.0.2.5", want: "192.0.2.1/32,192.0.2.3/32,192.0.2.5/32"},
		{text: "192.0.2.1 timeout 10m 192.0.2.3\n192.0.2.5 timeout 90s # seconds", want: "192.0.2.1/32 10m0s,192.0.2.3/32,192.0.2.5/32 1m30s"},
		{text: "192.0.2.1 192.0.2.3 timeout 0 192.0.2.5 timeout 1d", timeout: time.Hour, want: "192.0.2.1/32 1h0m0s,192.0.2.3/32,192.0.2.5/32 24h0m0s"},
		{text: "192.0.2.0/24 timeout 1h\n192.0.2.128/25 timeout 2h", want: "192.0.2.0/25 1h0m0s,192.0.2.128/25 2h0m0s"},
		{text: "192.0.2.0/24 timeout 2h\n192.0.2.128/25 timeout 1h", want: "192.0.2.0/24 2h0m0s"},
		{text: "2001:DB8::1-2001:db8::2", want: "2001:db8::1/128,2001:db8::2/128"},
	} {
		p, err := ReadPrefixes("set", []byte(test.text), Options{Now: now, Timeout: test.timeout})
		if err != nil {
			t.Errorf("%q: %v", test.text, err)
			continue
		}
		if got := strings.Join(members(p), ","); got != test.want {
			t.Errorf("%q: %s, want %s", test.text, got, test.want)
		}
	}
}

func TestBadPrefixes(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1\n192.0.2.1/24":          "set:2: prefix 192.0.2.1/24 has bits set behind its length: write 192.0.2.0/24, or 192.0.2.1 for the address alone",
		"\r\n\r\n2001:db8::1/32\r\n":       "set:3: prefix 2001:db8::1/32 has bits set",
		"::ffff:0:0/95":                    "set:1: prefix ::ffff:0:0/95 has bits set",
		"192.0.2":                          "set:1: \"192.0.2\" is no address, prefix or range",
		"192.0.2.0/33":                     "set:1: \"192.0.2.0/33\" is no prefix",
		"192.0.2.0/":                       "is no prefix",
		"example.com":                      "is no address",
		"192.0.2.1,192.0.2.2":              "is no address",
		"192.0.2.7-192.0.2.1":              "set:1: range 192.0.2.7-192.0.2.1 ends before it begins: write 192.0.2.1-192.0.2.7",
		"192.0.2.7-2001:db8::":             "two families",
		"192.0.2.7-":                       "is no address",
		"fe80::1%eth0":                     "has a zone",
		"192.0.2.1 timeout":                "\"\" is no timeout",
		"192.0.2.1\ntimeout 5m":            "set:2: a timeout without an entry",
		"192.0.2.1 timeout 5m timeout 6m":  "a timeout without an entry",
		"192.0.2.1 timeout -5m":            "\"-5m\" is no timeout",
		"192.0.2.1 timeout 5x":             "no timeout",
		"192.0.2.1 timeout 1d5":            "no timeout",
		"192.0.2.1 timeout 10":             "set:1: timeout 10 has no unit: use s, m, h or d, as in 10s",
		"192.0.2.1 timeout 3651d":          "timeout 3651d is too long: use at most 3650d",
		"192.0.2.1 timeout 99999999999999": "no timeout",
		strings.Repeat("9", 10000):         "is no address",
	} {
		p, err := ReadPrefixes("set", []byte(text), Options{Now: now})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "set:") {
			t.Errorf("%.50q: error %v, want %q", text, err, want)
			continue
		}
		if p != nil || len(err.Error()) > 200 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.50q: %v and %d bytes of error", text, p, len(err.Error()))
		}
	}
}

func TestParseTimeout(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"0": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "250ms": 250 * time.Millisecond,
		"1d": 24 * time.Hour, "1d12h": 36 * time.Hour, "3650d": maxTimeout,
	} {
		if got, err := ParseTimeout(s); err != nil || got != want {
			t.Errorf("%s: %s (%v), want %s", s, got, err, want)
		}
	}
}

func TestTime(t *testing.T) {
	for _, d := range []time.Duration{1, time.Millisecond, time.Second, time.Hour, maxTimeout} {
		for _, at := range []time.Duration{0, 1, time.Second, time.Hour + 7*time.Millisecond} {
			end := TimeOf(at).After(d)
			if TimeOf(at+d) >= end {
				t.Errorf("%s after %s: too early", d, at)
			}
			if TimeOf(at+d+600*time.Millisecond) < end {
				t.Errorf("%s after %s: too late", d, at)
			}
		}
	}
	if Time(5).After(0) != Never || (Never-2).After(time.Hour) == Never {
		t.Error("for ever is not kept apart")
	}
}

func TestEndpoints(t *testing.T) {
	e, err := ReadEndpoints("set", []byte("192.0.2.1:53 timeout 10m\n[2001:db8::1]:53 # DNS\n[::ffff:192.0.2.2]:80 192.0.2.1:53 timeout 5m"), Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	a, b, c := netip.MustParseAddrPort("192.0.2.1:53"), netip.MustParseAddrPort("[2001:db8::1]:53"), netip.MustParseAddrPort("192.0.2.2:80")
	if want := (Endpoints{a: now.After(10 * time.Minute), b: Never, c: Never}); !maps.Equal(e, want) {
		t.Fatalf("%v, want %v", e, want)
	}
	if _, missing := e.Missing(Endpoints{a: 1, b: 1}); missing {
		t.Error("something is missing")
	}
	e.Remove(Endpoints{b: 1})
	if got, missing := e.Missing(Endpoints{a: 1, b: 1}); !missing || got != b {
		t.Errorf("%s is missing, want %s", got, b)
	}
	e.Add(Endpoints{a: 1, c: 1, b: now + 5})
	if want := (Endpoints{a: now.After(10 * time.Minute), b: now + 5, c: Never}); !maps.Equal(e, want) {
		t.Fatalf("%v, want %v", e, want)
	}
	e.Expire(now + 5)
	if len(e) != 2 {
		t.Errorf("%d members left, want 2", len(e))
	}
	for text, want := range map[string]string{
		"\n192.0.2.1":      "set:2: \"192.0.2.1\" is no address with a port",
		"2001:db8::1:53":   "no address with a port",
		"192.0.2.1:0":      "port 0",
		"192.0.2.1:65536":  "no address with a port",
		"192.0.2.0/24:53":  "no address with a port",
		"[fe80::1%eth0]:1": "has a zone",
	} {
		if e, err := ReadEndpoints("set", []byte(text), Options{}); e != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

// FuzzRead looks for a text whose members do not read back as the same set.
func FuzzRead(f *testing.F) {
	f.Add("192.0.2.1 timeout 10m\r\n# x\n192.0.2.0/24 2001:db8::/32 ::-::7")
	f.Add("0.0.0.0/0 ::/0 255.255.255.255 timeout 1d2h")
	f.Add("192.0.2.1:53 [2001:db8::1]:53 timeout 5")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = ReadEndpoints("set", []byte(text), Options{Now: now})
		p, err := ReadPrefixes("set", []byte(text), Options{Now: now})
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("an error of several lines: %q", err)
			}
			return
		}
		var all []string
		for prefix := range p.All() {
			if all = append(all, prefix.String()); len(all) > 1000 {
				return
			}
		}
		q, err := ReadPrefixes("set", []byte(strings.Join(all, "\n")), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, missing := q.Missing(p); missing {
			t.Error("something was lost")
		}
		if _, missing := p.Missing(q); missing {
			t.Error("something was added")
		}
	})
}

// FuzzImage compares sets of ranges from random bytes with the list of the ranges.
func FuzzImage(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7}, uint8(0))
	f.Add(slices.Repeat([]byte{255, 3, 254, 9}, 100), uint8(7))
	f.Fuzz(func(t *testing.T, b []byte, how uint8) {
		var all naive
		var probes []netip.Addr
		for ; len(b) >= 8 && len(all) < 300; b = b[8:] {
			var a [16]byte
			// Random bytes at the end of an address make adjacent addresses. Those before them make trees of all shapes.
			fill := byte(how & 128 >> 7 * 255)
			for n := range a {
				a[n] = fill
			}
			copy(a[how&7:], b[:2])
			copy(a[14:], b[2:4])
			from := netip.AddrFrom16(a)
			if how&8 != 0 {
				from = netip.AddrFrom4([4]byte{a[how&7], a[how&7+1], a[14], a[15]})
			}
			to := addrOf(from).end(int(b[4]) % 20).ip(from.Is4())
			if from.Is6() && b[4]&64 != 0 {
				to = addrOf(from).end(int(b[4])).ip(false)
			}
			until := Never
			if how&16 != 0 {
				until = Time(1 + binary.LittleEndian.Uint16(b[5:])%8)
			}
			all = append(all, naiveEntry{from, to, until})
			probes = append(probes, from, to)
			if p := from.Prev(); p.IsValid() {
				probes = append(probes, p)
			}
			if n := to.Next(); n.IsValid() {
				probes = append(probes, n)
			}
		}
		checkSet(t, build(all), all, probes)
	})
}
