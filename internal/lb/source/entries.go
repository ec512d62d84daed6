// SPDX-License-Identifier: Apache-2.0

package source

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"culvert/internal/lb"
)

// Most is the largest number of backends that a source may name. A load balancer has room for fewer unless it is told otherwise.
const Most = 65536

// ErrTooMany is the error of a source that names more than Most.
var ErrTooMany = fmt.Errorf("it names more than %d backends", Most)

// List collects the backends that a source names.
type List struct {
	all   []lb.Offer
	where map[netip.Addr]string
}

// Parse adds the entry at a place, such as "line 3". Errors begin with the place.
func (l *List) Parse(place, entry string) error {
	o, err := ParseEntry(entry)
	if err != nil {
		return fmt.Errorf("%s: %w", place, err)
	}
	return l.Add(place, o)
}

// Add adds a backend that is named at a place.
func (l *List) Add(place string, o lb.Offer) error {
	if other, twice := l.where[o.Addr]; twice {
		return fmt.Errorf("%s: backend %s is there twice, first in %s", place, o.Addr, other)
	}
	if len(l.all) == Most {
		return ErrTooMany
	}
	if l.where == nil {
		l.where = make(map[netip.Addr]string)
	}
	l.where[o.Addr] = place
	l.all = append(l.all, o)
	return nil
}

// Has returns whether a backend is in the list.
func (l *List) Has(a netip.Addr) bool {
	_, has := l.where[a]
	return has
}

// All returns the backends, by address.
func (l *List) All() []lb.Offer {
	slices.SortFunc(l.all, func(a, b lb.Offer) int { return a.Addr.Compare(b.Addr) })
	return l.all
}

// longestShown bounds how much of an entry that is none is shown.
const longestShown = 60

// ParseEntry parses an address of a backend, with settings behind it as in the configuration: "10.0.0.11 weight=2".
func ParseEntry(text string) (o lb.Offer, err error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return o, errors.New("the address of a backend is missing")
	}
	if shown := words[0]; len(shown) > longestShown {
		return o, fmt.Errorf("%.*q... is no address of a backend", longestShown, shown)
	}
	if o.Addr, err = lb.ParseBackend(words[0]); err != nil {
		return o, err
	}
	o.Weight = 1
	seen := make(map[string]bool)
	for _, word := range words[1:] {
		key, value, ok := strings.Cut(word, "=")
		if !ok || len(word) > longestShown {
			return o, fmt.Errorf("%.*q behind backend %s is no setting: write it as weight=2", longestShown, word, o.Addr)
		}
		if seen[key] {
			return o, fmt.Errorf("backend %s has %s twice", o.Addr, key)
		}
		seen[key] = true
		if err := set(&o, key, value); err != nil {
			return o, fmt.Errorf("backend %s: %w", o.Addr, err)
		}
	}
	return o, nil
}

func set(o *lb.Offer, key, value string) error {
	switch key {
	case lb.PartWeight:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return fmt.Errorf("weight %q is no number: use 0 to %d", value, lb.MaxWeight)
		}
		o.Weight, err = lb.ParseWeight(n)
		return err
	case lb.PartEncap:
		o.Encap = value
		return lb.BackendSpec{Encap: value}.Validate()
	case lb.PartGUEPort:
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil || n == 0 {
			return fmt.Errorf("gue_port %q: use 1 to 65535", value)
		}
		o.GUEPort = uint16(n)
	case lb.PartServerID:
		if _, err := hex.DecodeString(value); err != nil {
			return fmt.Errorf("server_id %q: use two hexadecimal digits for each byte", value)
		}
		o.ServerID = value
	default:
		return fmt.Errorf("unknown setting %q: there are weight, encapsulation, gue_port and server_id", key)
	}
	return nil
}
