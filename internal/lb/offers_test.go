// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

var offeredVIP = Service{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Protocol: TCP}

// offers returns offers of weight 7, or 0 for those that leave, by the last bytes of their addresses.
func offers(text string) (all []Offer) {
	for _, word := range strings.Fields(text) {
		n, leaving := strings.CutSuffix(word, "!")
		all = append(all, Offer{Addr: netip.MustParseAddr("10.0.0." + n), Weight: 7, Leaving: leaving})
	}
	return all
}

// fileWith returns the state of a file with backends of weight 1, and with sources that have named nothing yet.
func fileWith(backends string, sources ...string) State {
	v := VIP{Service: offeredVIP, Encap: EncapIPIP, Hash: HashFlow, OnFailure: FailKeep, File: true}
	for _, o := range offers(backends) {
		v.Backends = append(v.Backends, Backend{Addr: o.Addr, Encap: EncapIPIP, Weight: 1, File: true})
	}
	for _, s := range sources {
		v.Offers = append(v.Offers, Offers{Source: s})
	}
	return State{VIPs: []VIP{v}}
}

// described returns the backends of the VIP: weight, and where each is from.
func described(s State) string {
	var all []string
	for _, b := range s.VIPs[0].Backends {
		from := "hand"
		switch {
		case b.File:
			from = "file"
		case b.Offered != "":
			from = b.Offered
		}
		if b.Drained {
			from += " drained"
		}
		if b.Encap != EncapIPIP {
			from += " " + b.Encap
		}
		all = append(all, fmt.Sprintf("%s*%d %s", strings.TrimPrefix(b.Addr.String(), "10.0.0."), b.Weight, from))
	}
	return strings.Join(all, ", ")
}

// TestOffers changes what sources name, the file, and backends by hand, one after the other.
func TestOffers(t *testing.T) {
	s, err := Merge(State{}, fileWith("1 2", "a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	step := func(what, want string, err error) {
		t.Helper()
		if got := described(s); got != want || err != nil {
			t.Errorf("%s: %s, %v; want %s", what, got, err, want)
		}
	}
	set := func(source, backends string) {
		t.Helper()
		if !s.SetOffers(offeredVIP, source, offers(backends)) {
			t.Errorf("source %s is not there", source)
		}
	}
	addr := func(n string) netip.Addr { return netip.MustParseAddr("10.0.0." + n) }
	reload := func(file State) (err error) {
		before := s
		s, err = Merge(before, file)
		return err
	}
	step("at the start", "1*1 file, 2*1 file", nil)
	set("b", "2 3 4")
	step("a source that names one of the file", "1*1 file, 2*1 file, 3*7 b, 4*7 b", nil)
	set("a", "4 5!")
	step("two sources", "1*1 file, 2*1 file, 4*7 a, 3*7 b, 5*0 a", nil)
	set("b", "2 3 4 5")
	step("one names what another one names no more", "1*1 file, 2*1 file, 4*7 a, 3*7 b, 5*7 b", nil)
	step("drained", "1*1 file, 2*1 file, 4*7 a, 3*7 b drained, 5*7 b", s.Drain(offeredVIP, addr("3"), true))
	set("b", "2 3")
	step("it stays so", "1*1 file, 2*1 file, 4*7 a, 3*7 b drained, 5*0 a", nil)
	step("by hand", "1*1 file, 2*1 file, 6*1 hand, 4*7 a, 3*7 b drained, 5*0 a", func() error {
		err := s.AddBackend(offeredVIP, addr("6"), BackendSpec{})
		set("a", "4 6")
		set("a", "4 6 5!")
		return err
	}())
	if err := s.AddBackend(offeredVIP, addr("4"), BackendSpec{}); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("adding a backend that a source names: %v", err)
	}
	if _, err := s.SetBackend(offeredVIP, addr("4"), BackendSpec{}); err == nil || !strings.Contains(err.Error(), `comes from source "a"`) {
		t.Errorf("changing a backend of a source: %v", err)
	}
	_, err = s.DeleteBackend(offeredVIP, addr("6"))
	step("deleted by hand, and a source names it", "1*1 file, 2*1 file, 4*7 a, 6*7 a, 3*7 b drained, 5*0 a", err)
	_, err = s.DeleteBackend(offeredVIP, addr("2"))
	step("one of the file deleted by hand", "1*1 file, 4*7 a, 6*7 a, 2*7 b, 3*7 b drained, 5*0 a", err)
	_, err = s.SetVIP(offeredVIP, VIPSpec{Encap: EncapGUE})
	step("another encapsulation", "1*1 file, 4*7 a gue, 6*7 a gue, 2*7 b gue, 3*7 b drained gue, 5*0 a gue", err)
	step("read again", "1*1 file, 2*1 file, 4*7 a, 6*7 a, 3*7 b drained, 5*0 a", reload(fileWith("1 2", "a", "b")))
	step("the file has one no more that a source names", "1*1 file, 4*7 a, 6*7 a, 2*7 b, 3*7 b drained, 5*0 a", reload(fileWith("1", "a", "b")))
	step("the file has one that a source names", "1*1 file, 4*1 file, 6*7 a, 2*7 b, 3*7 b drained, 5*0 a", reload(fileWith("1 4", "a", "b")))
	before := s
	step("a source is gone, another one is new", "1*1 file, 2*7 b, 3*7 b drained", reload(fileWith("1", "c", "b")))
	if got, want := fmt.Sprint(Gone(before, s)), "[VIP 192.0.2.1:80/tcp backend 10.0.0.4 VIP 192.0.2.1:80/tcp backend 10.0.0.6 VIP 192.0.2.1:80/tcp backend 10.0.0.5]"; got != want {
		t.Errorf("gone are %s, want %s", got, want)
	}
	if got := fmt.Sprint(len(s.OffersOf(offeredVIP, "b")), len(s.OffersOf(offeredVIP, "a"))); got != "2 0" {
		t.Errorf("offers of b and a: %s", got)
	}
	if s.SetOffers(offeredVIP, "a", nil) || s.SetOffers(Service{}, "b", nil) {
		t.Error("a source that is gone, or one of another VIP, may name backends")
	}
	if err := reload(State{}); err != nil || len(s.VIPs) != 0 {
		t.Errorf("a file without the VIP: %+v, %v", s, err)
	}
}

// TestOffersCloned wants a change that fails to leave the state from before.
func TestOffersCloned(t *testing.T) {
	s := fileWith("1", "a")
	s.SetOffers(offeredVIP, "a", offers("2"))
	c := s.clone()
	c.SetOffers(offeredVIP, "a", offers("3 4"))
	if got := described(s); got != "1*1 file, 2*7 a" || s.VIPs[0].Offers[0].Backends[0].Addr != netip.MustParseAddr("10.0.0.2") {
		t.Errorf("the state from before has %s, %+v", got, s.VIPs[0].Offers)
	}
}
