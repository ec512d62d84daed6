// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"errors"
	"fmt"

	"culvert/internal/config"
	"culvert/internal/lb/maglev"
)

// Table is [lb]. Compile validates VIPs and backends.
type Table struct {
	// RingSize, Flows, InsertRate, VIPs and Backends are 0 for the defaults of the data plane.
	RingSize   int `toml:"ring_size,omitempty"`
	Flows      int `toml:"flows,omitempty"`
	InsertRate int `toml:"insert_rate,omitempty"`
	VIPs       int `toml:"vips,omitempty"`
	Backends   int `toml:"backends,omitempty"`
	// Source4 and Source6 are the prefixes of the outer headers' sources.
	Source4 string `toml:"source4,omitempty"`
	Source6 string `toml:"source6,omitempty"`
	// Seed is "" for this machine's own seed.
	Seed       string `toml:"seed,omitempty"`
	TCPTimeout string `toml:"tcp_timeout,omitempty"`
	UDPTimeout string `toml:"udp_timeout,omitempty"`
	// Unclaimed is what happens to packets to the address of a VIP that belong to no VIP.
	Unclaimed  string     `toml:"unclaimed,omitempty"`
	SYNTimeout string     `toml:"syn_timeout,omitempty"`
	VIP        []VIPTable `toml:"vip,omitempty"`
	BGP        *BGPTable  `toml:"bgp,omitempty"`
	// Peers is nil if no flows are exchanged with other machines.
	Peers *PeersTable `toml:"peers,omitempty"`

	config.Position
}

// VIPTable is [[lb.vip]], a VIP.
type VIPTable struct {
	Address       string `toml:"address,omitempty"`
	Protocol      string `toml:"protocol,omitempty"`
	Hash          string `toml:"hash,omitempty"`
	OnFailure     string `toml:"on_failure,omitempty"`
	Encapsulation string `toml:"encapsulation,omitempty"`
	QUICServerID  int    `toml:"quic_server_id,omitempty"`
	QUICConfig    int    `toml:"quic_config,omitempty"`
	// VLANs are the VLANs on which it is served in addition to those of the host.
	VLANs   []int          `toml:"vlans,omitempty"`
	Check   *CheckTable    `toml:"check,omitempty"`
	Backend []BackendTable `toml:"backend,omitempty"`
	Source  []SourceTable  `toml:"source,omitempty"`

	config.Position
}

// CheckTable is [lb.vip.check], the health check of the backends.
type CheckTable struct {
	Type     string `toml:"type,omitempty"`
	Port     uint16 `toml:"port,omitempty"`
	Interval string `toml:"interval,omitempty"`
	Timeout  string `toml:"timeout,omitempty"`
	// Rise and Fall are nil for the defaults.
	Rise   *int   `toml:"rise,omitempty"`
	Fall   *int   `toml:"fall,omitempty"`
	Path   string `toml:"path,omitempty"`
	Host   string `toml:"host,omitempty"`
	Status string `toml:"status,omitempty"`
	Send   string `toml:"send,omitempty"`
	Expect string `toml:"expect,omitempty"`

	config.Position
}

// BackendTable is [[lb.vip.backend]], a backend of a VIP.
type BackendTable struct {
	Address string `toml:"address,omitempty"`
	// Weight is nil for the default, 1.
	Weight        *int64  `toml:"weight,omitempty"`
	Encapsulation string  `toml:"encapsulation,omitempty"`
	GUEPort       *uint16 `toml:"gue_port,omitempty"`
	ServerID      string  `toml:"server_id,omitempty"`

	config.Position
}

// Check implements config.Table. It returns errors for missing keys and for values that cannot be right, with positions.
func (b *Table) Check(in config.Position) error {
	b.Position = in
	var errs config.Errors
	if b.RingSize != 0 && !maglev.Prime(b.RingSize) {
		errs.Add(b.Locate("ring_size", fmt.Errorf("ring_size = %d: use a prime, as 65537 or 1048583", b.RingSize)))
		b.RingSize = 0
	}
	var right []VIPTable
	for n := range b.VIP {
		v := &b.VIP[n]
		v.Position = in.In(fmt.Sprintf("vip[%d]", n))
		before := len(errs)
		if v.Address == "" {
			errs.Add(v.Locate("", errors.New("address is missing: write the VIP's as \"192.0.2.1:80\"")))
		}
		if v.Protocol == "" {
			errs.Add(v.Locate("", fmt.Errorf("VIP %s: protocol is missing: use \"tcp\" or \"udp\"", v.Address)))
		}
		if v.Check != nil {
			v.Check.Position = v.In("check")
		}
		for m := range v.Backend {
			r := &v.Backend[m]
			r.Position = v.In(fmt.Sprintf("backend[%d]", m))
			if r.Address == "" {
				errs.Add(r.Locate("", fmt.Errorf("VIP %s/%s: a backend's address is missing", v.Address, v.Protocol)))
			}
		}
		for m := range v.Source {
			v.Source[m].Position = v.In(fmt.Sprintf("source[%d]", m))
		}
		if len(errs) == before {
			right = append(right, *v)
		}
	}
	b.VIP = right
	if err := b.BGP.check(in); err != nil {
		errs.Add(err)
		b.BGP = nil
	}
	if err := b.Peers.check(in); err != nil {
		errs.Add(err)
		b.Peers = nil
	}
	return errs.Err()
}

// Salvaged implements config.Salvager.
func (*Table) Salvaged() {}
