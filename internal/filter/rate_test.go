// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"strings"
	"testing"

	"culvert/internal/filter/filterplane"
)

func TestRate(t *testing.T) {
	for text, want := range map[string]string{
		"1000/s": "1kpps", "1pps": "1pps", "10kpps": "10kpps", "1.5Mpps": "1.5Mpps", "1234/s": "1.234kpps", "12345/s": "12.345kpps",
		"1234567pps": "1234.567kpps", "0.5kpps": "500pps", "1Gpps": "1Gpps", "1M/s": "1Mpps",
		"500kB/s": "500kB/s", "10Mbit/s": "1.25MB/s", "8bit/s": "1B/s", "1GB/s": "1GB/s", "123456789B/s": "123456.789kB/s",
	} {
		r, err := ParseRate(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := FormatRate(r)
		if got != want {
			t.Errorf("%s is written as %s, want %s", text, got, want)
		}
		if again, err := ParseRate(got); err != nil || again != r {
			t.Errorf("%s: read back as %+v (%v), want %+v", text, again, err, r)
		}
	}
}

func TestBadRates(t *testing.T) {
	for text, want := range map[string]string{
		"": "is no rate", "1000": "is no rate", "fast": "is no rate", "10kbps": "is no rate", "10 pps": `"10 " is no number`,
		"pps": `"" is no number`, "-1pps": "is no number", "+1pps": "is no number", "1e3pps": "is no number", "0x10pps": "is no number",
		"1_000pps": "is no number", "1kkpps": "is no number", "1.pps": "is no number", ".5kpps": "is no number", "1..2kpps": "is no number",
		"0pps": "use 1pps to 1Gpps", "2Gpps": "use 1pps to 1Gpps", "1.5pps": "no whole number of packets", "9bit/s": "no whole number of bytes",
		"51GB/s": "use 1B/s to 50GB/s", "1KB/s": `"1K" is no number, for "K" is not "k": write`, "10mbit/s": `"10m" is no number, for "m" is not "M": write`,
		"2gpps": `"2g" is no number, for "g" is not "G": write`, "10mpps": "is no number", "1/3/s": "is no number",
		"99999999999999999999999999999pps": "is no number", "1000kB": "is no rate",
	} {
		if r, err := ParseRate(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q gives %+v and %v, want an error with %q", text, r, err, want)
		}
	}
}

func TestBurst(t *testing.T) {
	for _, tt := range []struct {
		text  string
		bytes bool
		want  uint64
		err   string
	}{
		{"200", false, 200, ""},
		{"2k", false, 2000, ""},
		{"64kB", true, 64000, ""},
		{"1.5k", true, 1500, ""},
		{"64kB", false, 0, "of bytes, and the rate of packets"},
		{"0", false, 0, "nothing would pass"},
		{"2G", false, 2e9, ""},
		{"99999999999999G", false, 0, "too large for any rate"},
		{"0.5", true, 0, "write it as"},
		{"many", true, 0, "write it as"},
		{"", false, 0, "write it as"},
	} {
		got, err := ParseBurst(tt.text, tt.bytes)
		if tt.err == "" && (err != nil || got != tt.want) || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: %d, %v", tt.text, got, err)
		}
	}
	for _, r := range []filterplane.Rate{{Burst: 2500}, {Burst: 7, Bytes: true}} {
		if got, err := ParseBurst(FormatBurst(r), r.Bytes); err != nil || got != r.Burst {
			t.Errorf("%+v: %s is read as %d, %v", r, FormatBurst(r), got, err)
		}
	}
}

func TestPer(t *testing.T) {
	for text, want := range map[string]Per{
		"src": {"src", 0, 0}, "dst": {"dst", 0, 0}, "src/24": {"src", 24, 0}, "dst/64": {"dst", 0, 64}, "src/24,48": {"src", 24, 48},
		"src/32,64": {"src", 0, 64}, "src/32": {"src", 0, 0}, "dst/128": {"dst", 0, 0}, "src/24,32": {"src", 24, 32}, "dst/32,24": {"dst", 0, 24},
	} {
		got, err := ParsePer(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, err, want)
		}
		if again, err := ParsePer(got.String()); err != nil || again != want {
			t.Errorf("%s: written as %s, read back as %+v, %v", text, got, again, err)
		}
	}
	for _, text := range []string{
		"", "host", "src/", "src/0", "src/129", "src/24,", "src/,48", "src/48,24", "src/24,48,64", "src/+24", "src/024", "src /24", "SRC", "src/a",
	} {
		if got, err := ParsePer(text); err == nil {
			t.Errorf("%q is taken as %+v", text, got)
		}
	}
}

func TestService(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1:80", "[2001:db8::1]:443": "[2001:db8::1]:443", "[::ffff:192.0.2.1]:80": "192.0.2.1:80",
	} {
		if got, err := ParseService(text); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "192.0.2.1", ":80", "192.0.2.1:0", "0.0.0.0:80", "[fe80::1%eth0]:80", "224.0.0.1:80", "host:80", "192.0.2.1:http"} {
		if got, err := ParseService(text); err == nil {
			t.Errorf("%q is taken as %v", text, got)
		}
	}
}
