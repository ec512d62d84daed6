// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"culvert/internal/lb/lbplane"
)

func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	}
	return fmt.Sprint(uint8(p))
}

// ParseProtocol reads "tcp" or "udp".
func ParseProtocol(s string) (Protocol, error) {
	switch s {
	case "tcp":
		return TCP, nil
	case "udp":
		return UDP, nil
	}
	return 0, fmt.Errorf("%q is no protocol of a VIP: use tcp or udp", s)
}

// ParseService parses what Service.String returns. An IPv6 address without a port may be in brackets.
func ParseService(s string) (Service, error) {
	addr, proto, ok := strings.Cut(s, "/")
	like := addr
	if _, err := NewService(addr, TCP); err != nil {
		if ok {
			return Service{}, err
		}
		return Service{}, fmt.Errorf("%q is no VIP: write it as 192.0.2.1:80/tcp, or 192.0.2.1/tcp for all ports", s)
	}
	if !ok {
		s, _ := NewService(addr, TCP)
		return Service{}, &NoProtocolError{Text: addr, Addr: s.Addr, Port: s.Port}
	}
	p, err := ParseProtocol(proto)
	if err != nil {
		return Service{}, fmt.Errorf("%w: write %s/tcp or %[2]s/udp", err, like)
	}
	return NewService(addr, p)
}

// NoProtocolError is the error of a VIP whose protocol is missing.
type NoProtocolError struct {
	// Text is the VIP as it was written.
	Text string
	Addr netip.Addr
	// Port is 0 for all ports.
	Port uint16
}

func (e *NoProtocolError) Error() string {
	return fmt.Sprintf("VIP %s lacks its protocol: write %[1]s/tcp or %[1]s/udp", e.Text)
}

// Among returns the error with the names of those VIPs that may be meant, if there are any.
func (e *NoProtocolError) Among(vips []VIP) error {
	var names []string
	for _, v := range vips {
		if v.Service.Addr == e.Addr && (e.Port == 0 || v.Service.Port == e.Port) {
			names = append(names, v.Service.String())
		}
	}
	if len(names) == 0 {
		return e
	}
	return fmt.Errorf("VIP %s lacks its protocol: there is %s", e.Text, strings.Join(names, " and "))
}

// NoVIPError is the error for a VIP that is not among those of a load balancer; on is "on NAME", or "". It names those of the
// same address.
func NoVIPError(vips []VIP, k Service, on string) error {
	var names []string
	for _, v := range vips {
		if v.Service.Addr == k.Addr {
			names = append(names, v.Service.String())
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("no VIP %s%s: 'culvert lb show' lists those that are there", k, on)
	}
	return fmt.Errorf("no VIP %s%s: of this address there is %s", k, on, strings.Join(names, " and "))
}

// ParseBackend parses the address of a backend.
func ParseBackend(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err == nil {
		return a, nil
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return a, fmt.Errorf("%q is no address of a backend: write it without a port, as %s", s, ap.Addr())
	}
	return a, fmt.Errorf("%q is no IP address: write a backend's as 10.0.0.11 or fd00::11", s)
}

// NewService parses an address with a port, or without one for all ports.
func NewService(addr string, p Protocol) (Service, error) {
	if ap, err := netip.ParseAddrPort(addr); err == nil {
		if ap.Port() == 0 {
			return Service{}, fmt.Errorf("%q has port 0: leave the port out to mean all of them", addr)
		}
		return Service{Addr: ap.Addr(), Port: ap.Port(), Protocol: p}, nil
	}
	bare := addr
	if inner, ok := strings.CutPrefix(addr, "["); ok && strings.HasSuffix(inner, "]") {
		bare = strings.TrimSuffix(inner, "]")
	}
	a, err := netip.ParseAddr(bare)
	if err != nil {
		return Service{}, fmt.Errorf("%q is no address of a VIP: write it as 192.0.2.1:80, [2001:db8::1]:80, or without a port for all of them", addr)
	}
	return Service{Addr: a, Protocol: p}, nil
}

// Address returns the part of String in front of the protocol.
func (s Service) Address() string {
	if s.Port == 0 {
		return s.Addr.String()
	}
	return netip.AddrPortFrom(s.Addr, s.Port).String()
}

func (s Service) String() string { return s.Address() + "/" + s.Protocol.String() }

// Compare orders services by address, port and protocol.
func (s Service) Compare(o Service) int {
	return cmp.Or(s.Addr.Compare(o.Addr), cmp.Compare(s.Port, o.Port), cmp.Compare(s.Protocol, o.Protocol))
}

// Key returns the key of the VIP in the data plane.
func (s Service) Key() lbplane.VIPKey {
	return lbplane.VIPKey{Addr: s.Addr, Proto: uint8(s.Protocol), Port: s.Port}
}
