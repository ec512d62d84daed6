// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"net/netip"
	"slices"
)

// Offers are what a source beside the configuration file names as backends of a VIP.
type Offers struct {
	// Source is the name of the source, which no other one of the VIP has.
	Source   string  `json:"source"`
	Backends []Offer `json:"backends,omitempty"`
}

// Offer is a backend that a source names.
type Offer struct {
	Addr   netip.Addr `json:"addr"`
	Weight uint32     `json:"weight"`
	// Encap is "" for that of the VIP, and GUEPort 0 for the usual one.
	Encap    string `json:"encapsulation,omitempty"`
	GUEPort  uint16 `json:"gue_port,omitempty"`
	ServerID string `json:"server_id,omitempty"`
	// Leaving is set once the source names it no more: it gets no new flows, and keeps for a while those that it has.
	Leaving bool `json:"leaving,omitempty"`
}

// byHand returns whether a backend is neither of the configuration file nor of a source.
func (b *Backend) byHand() bool { return !b.File && b.Offered == "" }

// backend returns the backend that an offer makes of a VIP.
func (o *Offer) backend(v *VIP, source string) Backend {
	b := Backend{Addr: o.Addr, Encap: o.Encap, GUEPort: o.GUEPort, Weight: o.Weight, ServerID: o.ServerID, Offered: source}
	if b.Encap == "" {
		b.Encap = v.Encap
	}
	if b.Encap == EncapGUE && b.GUEPort == 0 {
		b.GUEPort = GUEPort
	}
	if o.Leaving {
		b.Weight = 0
	}
	return b
}

// join makes the backends of a VIP of those of the configuration file, those made by hand, and those of its sources. Of a backend that
// several name, the first of these says how it is. was are the backends from before, of which those that are drained stay so.
func (v *VIP) join(was []Backend) {
	drained := make(map[netip.Addr]bool)
	for _, b := range was {
		drained[b.Addr] = b.Drained
	}
	v.Backends = slices.DeleteFunc(slices.Clone(v.Backends), func(b Backend) bool { return b.Offered != "" })
	there := make(map[netip.Addr]bool)
	for _, b := range v.Backends {
		there[b.Addr] = true
	}
	for _, leaving := range []bool{false, true} { // of two sources, the one that still names a backend
		for _, from := range v.Offers {
			for _, o := range from.Backends {
				if there[o.Addr] || o.Leaving != leaving {
					continue
				}
				there[o.Addr] = true
				b := o.backend(v, from.Source)
				b.Drained = drained[b.Addr]
				v.Backends = append(v.Backends, b)
			}
		}
	}
}

// offers returns what a source of the VIP names.
func (v *VIP) offers(source string) []Offer {
	for _, o := range v.Offers {
		if o.Source == source {
			return o.Backends
		}
	}
	return nil
}

// takeOffers gives a VIP of the configuration file what its sources have named before, in was: they stay until the sources answer.
func (v *VIP) takeOffers(was *VIP) {
	v.Offers = slices.Clone(v.Offers)
	for n := range v.Offers {
		v.Offers[n].Backends = was.offers(v.Offers[n].Source)
	}
	v.join(was.Backends)
}

// SetOffers replaces what a source names as backends of a VIP. It returns false if there is no such VIP, or if it has no such source.
func (s *State) SetOffers(k Service, source string, offers []Offer) bool {
	v := s.find(k)
	if v == nil {
		return false
	}
	n := slices.IndexFunc(v.Offers, func(o Offers) bool { return o.Source == source })
	if n < 0 {
		return false
	}
	v.Offers = slices.Clone(v.Offers)
	v.Offers[n].Backends = slices.Clone(offers)
	v.join(v.Backends)
	return true
}

// OffersOf returns what a source has named as backends of a VIP.
func (s *State) OffersOf(k Service, source string) []Offer {
	if v := s.find(k); v != nil {
		return slices.Clone(v.offers(source))
	}
	return nil
}

// offeredError is the error of a change by hand of a backend that a source names: its next answer would take it back.
func offeredError(k Service, b *Backend) error {
	return fmt.Errorf("backend %s of VIP %s comes from source %q: change it there, or keep new flows from it with 'culvert lb drain %[2]s %[1]s'", b.Addr, k, b.Offered)
}
