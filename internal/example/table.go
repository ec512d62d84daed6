// SPDX-License-Identifier: Apache-2.0

//go:build example

package example

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"culvert/internal/config"
)

// Table is [example].
type Table struct {
	// Tunnel is this host's end of a tunnel of IPv4 in IPv4, "" for none.
	Tunnel   string         `toml:"tunnel"`
	Services []ServiceTable `toml:"service"`

	options Options
}

// ServiceTable is [[example.service]]: a service that is somewhere else.
type ServiceTable struct {
	Address  string `toml:"address"`
	Protocol string `toml:"protocol"`
	To       string `toml:"to"`

	config.Position
}

// protocols are numbers of transport protocols (IANA's registry) by the names in the file.
var protocols = map[string]uint8{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP}

// Check implements config.Table.
func (t *Table) Check(in config.Position) error {
	if t.Tunnel != "" {
		end, err := netip.ParseAddr(t.Tunnel)
		if err != nil || !end.Is4() {
			return in.Locate("tunnel", fmt.Errorf("tunnel = %q: use an IPv4 address of this host", t.Tunnel))
		}
		t.options.Tunnel = end
	}
	t.options.Services = make(map[Service]netip.AddrPort)
	for n, s := range t.Services {
		s.Position = in.In(fmt.Sprintf("service[%d]", n))
		if err := t.options.add(s); err != nil {
			return err
		}
	}
	return nil
}

// add adds a service of the file.
func (o *Options) add(s ServiceTable) error {
	if s.Address == "" {
		return s.Locate("", errors.New("address is missing: name the service, as in \"192.0.2.1:80\""))
	}
	addr, err := netip.ParseAddrPort(s.Address)
	if err != nil {
		return s.Locate("address", fmt.Errorf("address = %q: use address:port", s.Address))
	}
	proto, ok := protocols[s.Protocol]
	if !ok {
		return s.Locate("protocol", fmt.Errorf("service %s: protocol = %q: use \"tcp\" or \"udp\"", addr, s.Protocol))
	}
	to, err := netip.ParseAddrPort(s.To)
	if err != nil || to.Addr().Is4() != addr.Addr().Is4() {
		return s.Locate("to", fmt.Errorf("service %s: to = %q: use address:port, of the same IP version", addr, s.To))
	}
	key := Service{Addr: addr, Proto: proto}
	if _, ok := o.Services[key]; ok {
		return s.Locate("address", fmt.Errorf("a second service %s/%s", addr, s.Protocol))
	}
	o.Services[key] = to
	return nil
}
