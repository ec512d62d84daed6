// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"culvert/internal/lb/lbplane"
)

// Parts of VIPs and backends, for Error. They are keys of the configuration file.
const (
	PartAddress  = "address"
	PartProtocol = "protocol"
	PartHash     = "hash"
	PartFailure  = "on_failure"
	PartEncap    = "encapsulation"
	PartServerID = "server_id"
	PartQUIC     = "quic_server_id"
	PartConfig   = "quic_config"
	PartGUEPort  = "gue_port"
	PartWeight   = "weight"
	PartCheck    = "check"
	PartVLANs    = "vlans"
	PartSource4  = "source4"
	PartSource6  = "source6"
)

// Error is an error about a backend of a VIP, about a VIP if Backend is invalid, or about the load balancer if both are.
type Error struct {
	VIP     Service
	Backend netip.Addr
	// Part is the key that is wrong, "" if it is none in particular.
	Part string
	Err  error
}

func (e *Error) Error() string {
	switch {
	case e.Backend.IsValid():
		return fmt.Sprintf("VIP %s: backend %s: %v", e.VIP, e.Backend, e.Err)
	case e.VIP.Addr.IsValid():
		return fmt.Sprintf("VIP %s: %v", e.VIP, e.Err)
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// maxServerID is the largest length of a server ID in bytes.
const maxServerID = lbplane.MaxServerID

// maxIDConfig is the largest config rotation. In QUIC-LB, 7 marks connection IDs that cannot be routed.
const maxIDConfig = 6

// Validate returns an *Error for a state that the data plane cannot carry out.
func (s *State) Validate(o lbplane.Options) error {
	if err := s.checkSources(); err != nil {
		return err
	}
	seen := make(map[Service]bool)
	addrs := make(map[netip.Addr]Service)
	backends := 0
	for _, v := range s.VIPs {
		if seen[v.Service] {
			return &Error{VIP: v.Service, Part: PartAddress, Err: errors.New("it is there twice")}
		}
		seen[v.Service] = true
		if _, ok := addrs[v.Service.Addr]; !ok {
			addrs[v.Service.Addr] = v.Service
		}
		if part, err := v.check(); err != nil {
			return &Error{VIP: v.Service, Part: part, Err: err}
		}
		backends += len(v.Backends)
	}
	if len(s.VIPs) > o.VIPs {
		return &Error{VIP: s.VIPs[o.VIPs].Service, Err: fmt.Errorf("one VIP more than the %d there is room for: set lb.vips", o.VIPs)}
	}
	if backends > o.Backends {
		return &Error{Err: fmt.Errorf("%d backends of all VIPs are more than the %d there is room for: set lb.backends", backends, o.Backends)}
	}
	for _, v := range s.VIPs {
		if len(v.Backends) > o.RingSize {
			return &Error{VIP: v.Service, Err: fmt.Errorf("%d backends do not fit into a ring of %d: set lb.ring_size", len(v.Backends), o.RingSize)}
		}
		for n, b := range v.Backends {
			if slices.ContainsFunc(v.Backends[:n], func(o Backend) bool { return o.Addr == b.Addr }) {
				return &Error{VIP: v.Service, Backend: b.Addr, Part: PartAddress, Err: errors.New("it is there twice")}
			}
			part, err := b.check(v)
			if other, loop := addrs[b.Addr]; err == nil && loop {
				part, err = PartAddress, fmt.Errorf("its address is that of VIP %s: packets would come back", other)
			}
			if err != nil {
				return &Error{VIP: v.Service, Backend: b.Addr, Part: part, Err: err}
			}
		}
		if err := v.checkServerIDs(); err != nil {
			return err
		}
	}
	return nil
}

func (s *State) checkSources() error {
	for _, f := range []struct {
		part   string
		prefix netip.Prefix
		four   bool
	}{{PartSource4, s.Source4, true}, {PartSource6, s.Source6, false}} {
		if f.prefix == (netip.Prefix{}) {
			continue
		}
		err := usableAddr(f.prefix.Masked().Addr())
		switch {
		case err != nil:
		case f.prefix.Addr().Is4() != f.four:
			err = errors.New("it is of the other family")
		default:
			continue
		}
		return &Error{Part: f.part, Err: fmt.Errorf("%s = %q: %w", f.part, f.prefix, err)}
	}
	return nil
}

// usableAddr returns an error for an address that cannot be that of a VIP or a backend.
func usableAddr(a netip.Addr) error {
	switch {
	case !a.IsValid():
		return errors.New("the address is missing")
	case a.Is4In6():
		return fmt.Errorf("%s is an IPv4 address written as IPv6: write %s", a, a.Unmap())
	case a.Zone() != "", a.IsLinkLocalUnicast():
		return errors.New("the address is link-local")
	case a.IsUnspecified():
		return errors.New("the address is unspecified")
	case a.IsMulticast():
		return errors.New("the address is multicast")
	case a.IsLoopback():
		return errors.New("the address is loopback")
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return errors.New("the address is broadcast")
	}
	return nil
}

func oneOf(what, got string, of ...string) error {
	if slices.Contains(of, got) {
		return nil
	}
	if len(of) == 2 {
		return fmt.Errorf("%s %q: use %s or %s", what, got, of[0], of[1])
	}
	return fmt.Errorf("%s %q: use %s, %s or %s", what, got, of[0], of[1], of[2])
}

// check validates the VIP without its backends. It returns an error with the part that it is about.
func (v *VIP) check() (part string, err error) {
	if err := usableAddr(v.Service.Addr); err != nil {
		return PartAddress, err
	}
	if v.Service.Protocol != TCP && v.Service.Protocol != UDP {
		return PartProtocol, fmt.Errorf("protocol %s: use tcp or udp", v.Service.Protocol)
	}
	if part, err := v.checkWords(); err != nil {
		return part, err
	}
	switch {
	case v.ServerID > maxServerID:
		return PartQUIC, fmt.Errorf("quic_server_id %d: use 1 to %d bytes", v.ServerID, maxServerID)
	case v.ServerID > 0 && v.Service.Protocol != UDP:
		return PartQUIC, errors.New("quic_server_id goes with UDP")
	case v.IDConfig > maxIDConfig:
		return PartConfig, fmt.Errorf("quic_config %d: use 0 to %d", v.IDConfig, maxIDConfig)
	case v.IDConfig > 0 && v.ServerID == 0:
		return PartConfig, errors.New("quic_config goes with quic_server_id")
	}
	if err := CheckVLANs(v.VLANs); err != nil {
		return PartVLANs, err
	}
	if v.Check == nil {
		return "", nil
	}
	if v.Service.Port == 0 && v.Check.Port == 0 {
		return PartCheck, errors.New("the check needs a port, as the VIP has all of them")
	}
	return PartCheck, v.Check.Validate()
}

func (v *VIP) checkWords() (part string, err error) {
	if err := oneOf(PartHash, v.Hash, HashFlow, HashSource, HashSourcePort); err != nil {
		return PartHash, err
	}
	if err := oneOf(PartFailure, v.OnFailure, FailKeep, FailMove); err != nil {
		return PartFailure, err
	}
	return PartEncap, oneOf(PartEncap, v.Encap, EncapIPIP, EncapGUE, EncapL2)
}

// check validates a backend of v. It returns an error with the part that it is about.
func (b *Backend) check(v VIP) (part string, err error) {
	if err := usableAddr(b.Addr); err != nil {
		return PartAddress, err
	}
	if err := oneOf(PartEncap, b.Encap, EncapIPIP, EncapGUE, EncapL2); err != nil {
		return PartEncap, err
	}
	switch {
	case b.Encap == EncapL2 && b.Addr.Is4() != v.Service.Addr.Is4():
		return PartEncap, errors.New("l2 cannot reach a backend of another family than the VIP's: use ipip or gue")
	case b.Encap != EncapGUE && b.GUEPort != 0:
		return PartGUEPort, fmt.Errorf("gue_port goes with gue, not with %s", b.Encap)
	case b.Encap == EncapGUE && b.GUEPort == 0:
		return PartGUEPort, errors.New("gue_port 0: use 1 to 65535")
	case b.Weight > MaxWeight:
		return PartWeight, weightError(int64(b.Weight))
	}
	return "", nil
}

func weightError(w int64) error { return fmt.Errorf("weight %d: use 0 to %d", w, MaxWeight) }

// ParseWeight returns w as a weight, or an error if it is out of range.
func ParseWeight(w int64) (uint32, error) {
	if w < 0 || w > MaxWeight {
		return 0, weightError(w)
	}
	return uint32(w), nil
}

func (v *VIP) checkServerIDs() error {
	backends := make(map[string]netip.Addr) // by server ID
	for _, b := range v.Backends {
		if b.ServerID == "" {
			continue
		}
		fail := func(format string, args ...any) error {
			return &Error{VIP: v.Service, Backend: b.Addr, Part: PartServerID, Err: fmt.Errorf(format, args...)}
		}
		id, err := hex.DecodeString(b.ServerID)
		switch {
		case v.ServerID == 0:
			return fail("server_id goes with quic_server_id of the VIP")
		case err != nil:
			return fail("server_id %q: use two hexadecimal digits for each byte", b.ServerID)
		case len(id) != int(v.ServerID):
			return fail("server_id %q has %d bytes: quic_server_id says %d", b.ServerID, len(id), v.ServerID)
		}
		if other, ok := backends[string(id)]; ok {
			return fail("server_id %q is that of backend %s too", b.ServerID, other)
		}
		backends[string(id)] = b.Addr
	}
	return nil
}
