// SPDX-License-Identifier: Apache-2.0

package filterplane

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
)

// Numbers of bpf/filter/syn.h.
const (
	serviceForwarded = 1
	maxServices      = 4096
)

// Defaults of what the answers to SYNs for forwarded services announce.
const (
	defaultMSS         = 1460
	defaultWindowScale = 7
)

const (
	minServiceMSS  = 536 // RFC 9293, 3.7.1
	maxWindowScale = 14  // RFC 7323, 2.3
)

// Check returns an error if the service cannot be protected.
func (s Service) Check() error {
	addr := s.Addr.Addr().Unmap()
	switch {
	case !s.Addr.IsValid() || s.Addr.Port() == 0:
		return fmt.Errorf("service %s: needs an address and a port, as in 192.0.2.1:80", s.Addr)
	case addr.Zone() != "":
		return fmt.Errorf("service %s: leave the zone out", s.Addr)
	case addr.IsUnspecified():
		return fmt.Errorf("service %s: name each address of its own, packets to other hosts would be answered too", s.Addr)
	case addr.IsMulticast() || addr.IsLoopback() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("service %s: not an address that TCP comes in for", s.Addr)
	case s.MSS != 0 && s.MSS < minServiceMSS:
		return fmt.Errorf("service %s: mss %d is below %d", s.Addr, s.MSS, minServiceMSS)
	case s.WindowScale > maxWindowScale:
		return fmt.Errorf("service %s: window scale %d is above %d", s.Addr, s.WindowScale, maxWindowScale)
	case s.WindowScale != 0 && !s.Forwarded:
		return fmt.Errorf("service %s: the window scale of a service on this host is the kernel's: leave it out", s.Addr)
	}
	return nil
}

// checkServices returns an error if one of the services cannot be protected, or all of them together.
func checkServices(services []Service) error {
	if len(services) > maxServices {
		return fmt.Errorf("%d protected services: %d at most", len(services), maxServices)
	}
	seen := make(map[netip.AddrPort]bool)
	for _, s := range services {
		if err := s.Check(); err != nil {
			return err
		}
		addr := netip.AddrPortFrom(s.Addr.Addr().Unmap(), s.Addr.Port())
		if seen[addr] {
			return fmt.Errorf("service %s: named twice", addr)
		}
		seen[addr] = true
	}
	return nil
}

func serviceKey(s Service) bpfobj.FilterFilterServiceKey {
	var key bpfobj.FilterFilterServiceKey
	addr := s.Addr.Addr().Unmap()
	b := addr.As16() // an IPv4 address is IPv4-mapped
	for n := range key.Addr.W {
		key.Addr.W[n] = bpfobj.Native.Uint32(b[4*n:])
	}
	key.Port = s.Addr.Port()>>8 | s.Addr.Port()<<8
	key.Ip = ipVersion(addr)
	return key
}

func serviceValue(s Service) bpfobj.FilterFilterService {
	v := bpfobj.FilterFilterService{Mss: s.MSS, Wscale: s.WindowScale}
	if s.Forwarded {
		v.Flags |= serviceForwarded
		if v.Mss == 0 {
			v.Mss = defaultMSS
		}
		if v.Wscale == 0 {
			v.Wscale = defaultWindowScale
		}
	}
	return v
}

// setServices sets the variables about protected services in spec, which is not loaded yet.
func setServices(spec *ebpf.CollectionSpec, services []Service) error {
	if err := spec.Variables[bpfobj.FilterVarFilterProtects].Set(len(services) > 0); err != nil {
		return fmt.Errorf("turning the protected services on: %w", err)
	}
	if err := spec.Variables[bpfobj.FilterVarFilterRmemMax].Set(rmemMax()); err != nil {
		return fmt.Errorf("setting the largest receive buffer: %w", err)
	}
	return nil
}

// rmemMax returns net.core.rmem_max in bytes. It returns 0 if the sysctl cannot be read: older kernels have it in the first
// network namespace only. Answers to SYNs then announce no window scale.
func rmemMax() uint32 {
	b, err := os.ReadFile("/proc/sys/net/core/rmem_max")
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 31)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// putServices adds services to the map of those for which the programs answer SYNs.
func putServices(m *ebpf.Map, services []Service) error {
	for _, s := range services {
		if err := m.Put(serviceKey(s), serviceValue(s)); err != nil {
			return fmt.Errorf("writing protected service %s: %w", s.Addr, err)
		}
	}
	return nil
}
