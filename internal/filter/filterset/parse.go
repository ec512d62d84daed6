// SPDX-License-Identifier: Apache-2.0

package filterset

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Options are options for parsing entries.
type Options struct {
	// Now is the present time, from which timeouts are counted.
	Now Time
	// Timeout is the timeout of entries that have none of their own. 0 means that they do not expire.
	Timeout time.Duration
}

// maxTimeout is the longest timeout.
const maxTimeout = 3650 * 24 * time.Hour

// ReadPrefixes parses the data of a file: entries with white space between them, and comments from # to the end of a line. An entry
// is an address, a prefix or a range, as in 192.0.2.1-192.0.2.7. A timeout may follow it, as in 'timeout 10m'. Errors begin with the
// name of the file and the number of the line.
func ReadPrefixes(name string, data []byte, o Options) (*Prefixes, error) {
	p := new(Prefixes)
	if err := readFile(name, data, o, p.parse); err != nil {
		return nil, err
	}
	p.parsed()
	return p, nil
}

// ParsePrefixes parses the entries of ReadPrefixes in arguments.
func ParsePrefixes(args []string, o Options) (*Prefixes, error) {
	p := new(Prefixes)
	if err := read(strings.Join(args, " "), o, p.parse); err != nil {
		return nil, err
	}
	p.parsed()
	return p, nil
}

// ReadEndpoints is ReadPrefixes for addresses with ports, as in 192.0.2.1:53 and [2001:db8::1]:53.
func ReadEndpoints(name string, data []byte, o Options) (Endpoints, error) {
	e := make(Endpoints)
	if err := readFile(name, data, o, e.parse); err != nil {
		return nil, err
	}
	return e, nil
}

// ParseEndpoints parses the entries of ReadEndpoints in arguments.
func ParseEndpoints(args []string, o Options) (Endpoints, error) {
	e := make(Endpoints)
	if err := read(strings.Join(args, " "), o, e.parse); err != nil {
		return nil, err
	}
	return e, nil
}

// readFile calls put for the entries of a file, with the time when they expire.
func readFile(name string, data []byte, o Options, put func(string, Time) error) error {
	text := string(data)
	for n := 1; text != ""; n++ {
		line, rest, _ := strings.Cut(text, "\n")
		text = rest
		if comment := strings.IndexByte(line, '#'); comment >= 0 {
			line = line[:comment]
		}
		if err := read(line, o, put); err != nil {
			return fmt.Errorf("%s:%d: %w", name, n, err)
		}
	}
	return nil
}

// read calls put for the entries of a text without comments.
func read(text string, o Options, put func(string, Time) error) error {
	entry, text := word(text)
	for entry != "" {
		if entry == "timeout" {
			return errors.New("a timeout without an entry: write it behind the entry, as in '192.0.2.1 timeout 10m'")
		}
		end := o.Now.After(o.Timeout)
		next, rest := word(text)
		if next == "timeout" {
			var value string
			value, rest = word(rest)
			timeout, err := ParseTimeout(value)
			if err != nil {
				return err
			}
			end = o.Now.After(timeout)
			next, rest = word(rest)
		}
		if err := put(entry, end); err != nil {
			return err
		}
		entry, text = next, rest
	}
	return nil
}

// word splits s after its first word. First is empty if there is none.
func word(s string) (first, rest string) {
	blank := func(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
	from := 0
	for from < len(s) && blank(s[from]) {
		from++
	}
	to := from
	for to < len(s) && !blank(s[to]) {
		to++
	}
	return s[from:to], s[to:]
}

// ParseTimeout parses a duration as in 90s, 10m, 1h30m, 1d or 1d12h. A number needs a unit, except for 0, which means for ever.
func ParseTimeout(s string) (time.Duration, error) {
	var d time.Duration
	bad := fmt.Errorf("%.40q is no timeout: write a duration as 90s, 10m, 12h or 1d, 0 for ever", s)
	rest := s
	if days, after, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, bad
		}
		d, rest = time.Duration(n)*24*time.Hour, after
	}
	if n, err := strconv.ParseUint(rest, 10, 32); err == nil {
		if rest != s {
			return 0, bad
		}
		if n != 0 {
			return 0, fmt.Errorf("timeout %s has no unit: use s, m, h or d, as in %[1]ss", s)
		}
	} else if rest != "" || rest == s {
		more, err := time.ParseDuration(rest)
		if err != nil || more < 0 {
			return 0, bad
		}
		d += more
	}
	if d > maxTimeout {
		return 0, fmt.Errorf("timeout %.40s is too long: use at most %dd", s, maxTimeout/(24*time.Hour))
	}
	return d, nil
}

// parse adds an entry.
func (p *Prefixes) parse(entry string, until Time) error {
	for n := range len(entry) {
		switch entry[n] {
		case '/':
			prefix, err := parsePrefix(entry)
			if err != nil {
				return err
			}
			s := span{from: addrOf(prefix.Addr()), until: until}
			s.to = s.from.end(prefix.Addr().BitLen() - prefix.Bits())
			p.put(prefix.Addr().Is4(), s)
			return nil
		case '-':
			return p.parseRange(entry, n, until)
		}
	}
	ip, err := parseAddr(entry)
	if err != nil {
		return err
	}
	a := addrOf(ip)
	p.put(ip.Is4(), span{a, a, until})
	return nil
}

// parseRange adds a range, given the index of its hyphen.
func (p *Prefixes) parseRange(entry string, at int, until Time) error {
	from, err := parseAddr(entry[:at])
	if err != nil {
		return err
	}
	to, err := parseAddr(entry[at+1:])
	switch {
	case err != nil:
		return err
	case from.Is4() != to.Is4():
		return fmt.Errorf("range %s has addresses of two families: use one", entry)
	case to.Less(from):
		return fmt.Errorf("range %s ends before it begins: write %s-%s", entry, to, from)
	}
	p.put(from.Is4(), span{addrOf(from), addrOf(to), until})
	return nil
}

// parsePrefix parses a prefix. A prefix of IPv4-mapped addresses (RFC 4291, 2.5.5.2) becomes one of IPv4.
func parsePrefix(s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("%.60q is no prefix: write it as 192.0.2.0/24 or 2001:db8::/32", s)
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p != p.Masked() {
		return p, fmt.Errorf("prefix %s has bits set behind its length: write %s, or %s for the address alone", s, p.Masked(), p.Addr())
	}
	return p, nil
}

func parseAddr(s string) (netip.Addr, error) {
	ip, err := netip.ParseAddr(s)
	if err != nil {
		return ip, fmt.Errorf("%.60q is no address, prefix or range: write it as 192.0.2.1, 2001:db8::/32 or 192.0.2.1-192.0.2.7", s)
	}
	if ip.Zone() != "" {
		return ip, fmt.Errorf("address %.60s has a zone: leave %q out", s, "%"+ip.Zone())
	}
	return ip.Unmap(), nil
}
