// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"strconv"
	"strings"

	"culvert/internal/filter/filterplane"
)

// rateUnits are the units of rates. A unit comes before those that it ends with. Bits are converted to bytes.
var rateUnits = []struct {
	name     string
	bytes    bool
	divisor  int64
	quantity string
}{
	{"bit/s", true, 8, "bits"},
	{"pps", false, 1, "packets"},
	{"B/s", true, 1, "bytes"},
	{"/s", false, 1, "packets"},
}

const rateForms = "write packets as 1000/s or 10kpps, bytes as 500kB/s, bits as 10Mbit/s"

// ParseRate parses a rate: a number, perhaps a decimal prefix k, M or G, and a unit: pps or /s for packets, B/s for bytes, bit/s
// for bits.
func ParseRate(s string) (filterplane.Rate, error) {
	for _, u := range rateUnits {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := parseNumber(number)
		if err != nil {
			return filterplane.Rate{}, fmt.Errorf("rate %q: %w: %s", s, err, rateForms)
		}
		n.Quo(n, new(big.Rat).SetInt64(u.divisor))
		r := filterplane.Rate{Bytes: u.bytes}
		limit := int64(filterplane.MaxPacketRate)
		if u.bytes {
			limit = filterplane.MaxByteRate
		}
		if !n.IsInt() {
			return r, fmt.Errorf("rate %q is no whole number of %s a second", s, unit(r))
		}
		if n.Sign() == 0 || n.Cmp(new(big.Rat).SetInt64(limit)) > 0 {
			return r, fmt.Errorf("rate %q: use %s to %s", s, FormatRate(filterplane.Rate{Rate: 1, Bytes: u.bytes}),
				FormatRate(filterplane.Rate{Rate: uint64(limit), Bytes: u.bytes}))
		}
		r.Rate = n.Num().Uint64()
		return r, nil
	}
	return filterplane.Rate{}, fmt.Errorf("%q is no rate: %s", s, rateForms)
}

func unit(r filterplane.Rate) string {
	if r.Bytes {
		return "bytes"
	}
	return "packets"
}

// prefixes are the decimal prefixes.
var prefixes = []struct {
	name  string
	value int64
}{{"G", 1_000_000_000}, {"M", 1_000_000}, {"k", 1000}}

// parseNumber parses a decimal number, perhaps with a fraction, and perhaps a prefix.
func parseNumber(s string) (*big.Rat, error) {
	factor := int64(1)
	digits := s
	for _, p := range prefixes {
		if d, ok := strings.CutSuffix(s, p.name); ok {
			digits, factor = d, p.value
		}
	}
	if digits == s && s != "" {
		for _, p := range prefixes {
			if last := s[len(s)-1:]; strings.EqualFold(last, p.name) {
				return nil, fmt.Errorf("%q is no number, for %q is not %q", s, last, p.name)
			}
		}
	}
	whole, fraction, point := strings.Cut(digits, ".")
	if whole == "" || point && fraction == "" || strings.Trim(whole+fraction, "0123456789") != "" || len(digits) > 24 {
		return nil, fmt.Errorf("%q is no number", s)
	}
	n, ok := new(big.Rat).SetString(digits)
	if !ok {
		return nil, fmt.Errorf("%q is no number", s)
	}
	return n.Mul(n, new(big.Rat).SetInt64(factor)), nil
}

// FormatRate formats a rate as ParseRate parses it.
func FormatRate(r filterplane.Rate) string {
	if r.Bytes {
		return formatNumber(r.Rate) + "B/s"
	}
	return formatNumber(r.Rate) + "pps"
}

// formatNumber formats a number with the largest prefix that leaves at most three digits in the fraction.
func formatNumber(n uint64) string {
	for _, p := range prefixes {
		v := uint64(p.value)
		if n < v || n%(v/1000) != 0 {
			continue
		}
		s := strconv.FormatUint(n/v, 10)
		if rest := n % v / (v / 1000); rest != 0 {
			s += "." + strings.TrimRight(fmt.Sprintf("%03d", rest), "0")
		}
		return s + p.name
	}
	return strconv.FormatUint(n, 10)
}

// ParseBurst parses a burst: a number, perhaps with a prefix k, M or G. B after it is allowed if the rate is in bytes. The rate
// bounds the burst (filterplane.Rate.Validate).
func ParseBurst(s string, bytes bool) (uint64, error) {
	number, inBytes := strings.CutSuffix(s, "B")
	if inBytes && !bytes {
		return 0, fmt.Errorf("burst %q is of bytes, and the rate of packets: leave out the B", s)
	}
	n, err := parseNumber(number)
	switch {
	case err != nil || !n.IsInt():
		return 0, fmt.Errorf("burst %q: write it as 200, 2k or, of bytes, 64kB", s)
	case n.Sign() == 0:
		return 0, fmt.Errorf("burst %q: nothing would pass: use 1 or more, or leave it out", s)
	case !n.Num().IsUint64():
		return 0, fmt.Errorf("burst %q is too large for any rate", s)
	}
	return n.Num().Uint64(), nil
}

// FormatBurst formats a rate's burst as ParseBurst parses it.
func FormatBurst(r filterplane.Rate) string {
	if r.Bytes {
		return formatNumber(r.Burst) + "B"
	}
	return formatNumber(r.Burst)
}

// Per says which packets share a rate: those of one address, or of one prefix of these lengths. A length of 0 is a whole address.
type Per struct {
	By               filterplane.Per
	Prefix4, Prefix6 uint8
}

var errPer = errors.New("use src or dst, with prefix lengths if wanted: src, dst/24, src/64, src/24,48")

// ParsePer parses src or dst, perhaps followed by a slash and prefix lengths: "24,48" for IPv4 and IPv6, or one alone, which is for
// IPv4 up to 32 and for IPv6 above. A family without a length has a rate for each address.
func ParsePer(s string) (Per, error) {
	by, lengths, slash := strings.Cut(s, "/")
	p := Per{By: filterplane.Per(by)}
	if p.By != filterplane.PerSrc && p.By != filterplane.PerDst {
		return Per{}, fmt.Errorf("per %q: %w", s, errPer)
	}
	if !slash {
		return p, nil
	}
	first, second, both := strings.Cut(lengths, ",")
	a, err := prefixLength(first)
	if err != nil {
		return Per{}, fmt.Errorf("per %q: %w", s, errPer)
	}
	b := a
	if both {
		if b, err = prefixLength(second); err != nil {
			return Per{}, fmt.Errorf("per %q: %w", s, errPer)
		}
		if a > 32 {
			return Per{}, fmt.Errorf("per %q: the first length is of IPv4, at most 32", s)
		}
	}
	if both || a <= 32 {
		p.Prefix4 = a
	}
	if both || a > 32 {
		p.Prefix6 = b
	}
	// The length of a whole address is always stored as 0.
	if p.Prefix4 == 32 {
		p.Prefix4 = 0
	}
	if p.Prefix6 == 128 {
		p.Prefix6 = 0
	}
	return p, nil
}

func prefixLength(s string) (uint8, error) {
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil || n < 1 || n > 128 || s != strconv.FormatUint(n, 10) {
		return 0, errPer
	}
	return uint8(n), nil
}

// String returns p as ParsePer parses it.
func (p Per) String() string {
	switch {
	case p.Prefix4 == 0 && p.Prefix6 == 0:
		return string(p.By)
	case p.Prefix6 == 0:
		return fmt.Sprintf("%s/%d", p.By, p.Prefix4)
	case p.Prefix4 == 0 && p.Prefix6 > 32:
		return fmt.Sprintf("%s/%d", p.By, p.Prefix6)
	case p.Prefix4 == 0:
		return fmt.Sprintf("%s/32,%d", p.By, p.Prefix6)
	default:
		return fmt.Sprintf("%s/%d,%d", p.By, p.Prefix4, p.Prefix6)
	}
}

// ParseService parses the address and port of a protected service.
func ParseService(s string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(s)
	switch {
	case err != nil || a.Addr().Zone() != "":
		return a, fmt.Errorf("%q is no address with a port: write 192.0.2.1:80 or [2001:db8::1]:80", s)
	case a.Port() == 0:
		return a, fmt.Errorf("%q: port 0 is none", s)
	case a.Addr().IsUnspecified(), a.Addr().IsMulticast():
		return a, fmt.Errorf("%q: name an address that the service has", s)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}

// Bounds of what the answers to SYNs announce.
const (
	minMSS         = 536 // each host accepts it, RFC 9293, 3.7.1
	maxWindowScale = 14  // RFC 7323, 2.3
)

// CheckService refuses an MSS or a window scale that a service cannot have. It also returns the key of the configuration file that
// the error is about, with which the error begins.
func CheckService(s filterplane.Service) (key string, err error) {
	switch {
	case s.MSS != 0 && s.MSS < minMSS:
		return "mss", fmt.Errorf("mss %d: use %d to 65535", s.MSS, minMSS)
	case s.WindowScale > maxWindowScale:
		return "wscale", fmt.Errorf("wscale %d: use 0 to %d", s.WindowScale, maxWindowScale)
	case !s.Forwarded && (s.MSS != 0 || s.WindowScale != 0):
		key := "mss"
		if s.MSS == 0 {
			key = "wscale"
		}
		return key, fmt.Errorf("%s is for a service on another host: add --forwarded, in the file forwarded = true, or leave it out", key)
	}
	return "", nil
}
