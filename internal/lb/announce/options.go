// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// DefaultHoldTime is the hold time unless Options name one.
	DefaultHoldTime = 9 * time.Second
	// MaxRestart is the longest graceful restart: the capability has 12 bits for it.
	MaxRestart = 4095 * time.Second
)

// Check returns the error that Start would return for these options.
func (o Options) Check() error { return o.check() }

// check returns an error for wrong options, and sets defaults.
func (o *Options) check() error {
	if o.HoldTime == 0 {
		o.HoldTime = DefaultHoldTime
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case o.ASN == 0:
		return errors.New("BGP: our AS number is 0: give one, 64512 to 65534 are for private use")
	case !o.RouterID.Is4() || o.RouterID.IsUnspecified():
		return fmt.Errorf("BGP: router ID %v is not an IPv4 address: give one of this machine", o.RouterID)
	case o.HoldTime%time.Second != 0 || o.HoldTime < 3*time.Second || o.HoldTime > math.MaxUint16*time.Second:
		return fmt.Errorf("BGP: hold time %v: give whole seconds from 3 to %d", o.HoldTime, math.MaxUint16)
	case o.GracefulRestart%time.Second != 0 || o.GracefulRestart < 0 || o.GracefulRestart > MaxRestart:
		return fmt.Errorf("BGP: graceful restart within %v: give whole seconds from 1 to %d, or 0 for none", o.GracefulRestart, MaxRestart/time.Second)
	case len(o.Neighbors) == 0:
		return errors.New("BGP: no neighbors: give at least one")
	}
	seen := make(map[netip.Addr]bool)
	for _, n := range o.Neighbors {
		if err := n.check(o.ASN); err != nil {
			return fmt.Errorf("BGP neighbor %v: %w", n.Address, err)
		}
		if seen[n.Address] {
			return fmt.Errorf("BGP neighbor %v: it is there twice", n.Address)
		}
		seen[n.Address] = true
	}
	return nil
}

func (n *Neighbor) check(own uint32) error {
	if err := checkUnicast("address", n.Address); err != nil {
		return err
	}
	if n.LocalAddress.IsValid() {
		if err := checkUnicast("local address", n.LocalAddress); err != nil {
			return err
		}
	}
	for _, hop := range []struct {
		name string
		addr netip.Addr
		ipv4 bool
	}{{"IPv4 next hop", n.NextHop4, true}, {"IPv6 next hop", n.NextHop6, false}} {
		if !hop.addr.IsValid() {
			continue
		}
		if err := checkUnicast(hop.name, hop.addr); err != nil {
			return err
		}
		if hop.addr.Is4() != hop.ipv4 {
			return fmt.Errorf("%s %v is of the other family", hop.name, hop.addr)
		}
	}
	switch {
	case n.ASN == 0:
		return errors.New("its AS number is 0")
	case n.LocalAddress.IsValid() && n.LocalAddress.Is4() != n.Address.Is4():
		return fmt.Errorf("local address %v is of the other family", n.LocalAddress)
	case n.LocalAddress == n.Address:
		return errors.New("it is the local address too")
	case len(n.Password) > unix.TCP_MD5SIG_MAXKEYLEN:
		return fmt.Errorf("the password has %d bytes, %d at most", len(n.Password), unix.TCP_MD5SIG_MAXKEYLEN)
	case n.TTLSecurity && n.Multihop != 0:
		return errors.New("TTL security is for a router on the link: leave multihop out")
	case n.Multihop == 1:
		return errors.New("multihop 1: give 2 or more, or 0 for a router on the link")
	case n.Multihop != 0 && n.ASN == own:
		return errors.New("multihop is for routers of another AS: leave it out")
	}
	return nil
}

func checkUnicast(name string, a netip.Addr) error {
	switch {
	case !a.IsValid():
		return fmt.Errorf("no %s", name)
	case a.Is4In6():
		return fmt.Errorf("%s %v is an IPv4-mapped one: write %v", name, a, a.Unmap())
	case a.Zone() != "" || a.IsLinkLocalUnicast():
		return fmt.Errorf("%s %v is link-local: give a global or private one", name, a)
	case a.IsUnspecified() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%s %v is not of one host", name, a)
	}
	return nil
}

func checkPrefix(p netip.Prefix) error {
	switch {
	case !p.IsValid():
		return errors.New("announce prefixes: one of them is not valid")
	case p.Addr().Is4In6():
		return fmt.Errorf("announce %v: IPv4-mapped: write it as IPv4", p)
	case p != p.Masked():
		return fmt.Errorf("announce %v: it has host bits: write %v", p, p.Masked())
	}
	return nil
}
