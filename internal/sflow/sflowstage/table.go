// SPDX-License-Identifier: Apache-2.0

package sflowstage

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"culvert/internal/config"
	"culvert/internal/sflow"
	"culvert/internal/sflow/sflowplane"
)

// Table is the table [sflow] of the configuration file.
type Table struct {
	// Collector is where samples go: host, or host:port.
	Collector string `toml:"collector"`
	// Rate samples one packet of so many.
	Rate *int `toml:"rate"`
	// Drops is how many dropped packets are told of in a second at most.
	Drops int `toml:"drops"`
	// Header is how many bytes of a frame are sent.
	Header *int `toml:"header"`
	// Polling is how often counters are sent: "30s", or "0s" for never.
	Polling string `toml:"polling"`
	// Agent is the address in whose name samples are sent, and SubAgent a number that tells several senders with that address apart.
	Agent    string `toml:"agent"`
	SubAgent int64  `toml:"sub_agent"`
	// Source is the source address of the datagrams.
	Source string `toml:"source"`

	config.Position
	settings settings
}

// settings are a table that was read.
type settings struct {
	sflowplane.Options
	host    string
	port    uint16
	polling time.Duration // 0: never
	agent   sflow.Agent
	source  netip.Addr
}

// Defaults.
const (
	DefaultRate    = 1000
	DefaultHeader  = 128
	DefaultPolling = 30 * time.Second

	maxDrops   = 10_000
	minHeader  = 14
	maxPolling = 24 * time.Hour
)

// Check implements config.Table.
func (t *Table) Check(in config.Position) error {
	t.Position = in
	var errs config.Errors
	bad := func(key, format string, args ...any) { errs.Add(in.Locate(key, fmt.Errorf(format, args...))) }
	s := settings{port: sflow.Port, polling: DefaultPolling, Options: sflowplane.Options{Rate: DefaultRate, Drops: t.Drops, Header: DefaultHeader}}
	if t.Collector == "" {
		errs.Add(in.Locate("", errors.New("collector is missing: name who receives the samples, as in \"192.0.2.1:6343\"")))
	} else if err := s.setCollector(t.Collector); err != nil {
		errs.Add(in.Locate("collector", err))
	}
	if t.Rate != nil {
		if s.Rate = *t.Rate; s.Rate < 1 || s.Rate > sflowplane.MaxRate {
			bad("rate", "rate = %d: one packet of so many is sampled: use 1 to %d", s.Rate, sflowplane.MaxRate)
		}
	}
	if t.Drops < 0 || t.Drops > maxDrops {
		bad("drops", "drops = %d: as many dropped packets a second are told of at most: use 0 to %d", t.Drops, maxDrops)
	}
	if t.Header != nil {
		if s.Header = *t.Header; s.Header < minHeader || s.Header > sflowplane.MaxHeader {
			bad("header", "header = %d: as many bytes of a frame are sent: use %d to %d", s.Header, minHeader, sflowplane.MaxHeader)
		}
	}
	if t.Polling != "" {
		d, err := time.ParseDuration(t.Polling)
		if err != nil || d != 0 && (d < time.Second || d > maxPolling) {
			bad("polling", "polling = %q: write a time from 1s to 24h, or 0s to send no counters", t.Polling)
		}
		s.polling = d
	}
	if t.SubAgent < 0 || t.SubAgent > 1<<32-1 {
		bad("sub_agent", "sub_agent = %d: use 0 to %d", t.SubAgent, uint32(1<<32-1))
	}
	s.agent.Sub = uint32(t.SubAgent)
	for key, a := range map[string]struct {
		text string
		to   *netip.Addr
		use  string
	}{
		"agent":  {t.Agent, &s.agent.Address, "use an IP address by which the collector knows this host"},
		"source": {t.Source, &s.source, "use an IP address of this host"},
	} {
		if a.text == "" {
			continue
		}
		addr, err := netip.ParseAddr(a.text)
		if err != nil || addr.Zone() != "" || noHost(addr) || addr.IsMulticast() {
			bad(key, "%s = %q: %s", key, a.text, a.use)
		}
		*a.to = addr.Unmap()
	}
	if addr, err := netip.ParseAddr(s.host); err == nil && s.source.IsValid() && addr.Is4() != s.source.Is4() {
		bad("source", "source = %q: the collector has an address of the other IP version", t.Source)
	}
	t.settings = s
	return errs.Err()
}

// setCollector reads host, host:port or [host]:port.
func (s *settings) setCollector(text string) error {
	wrong := fmt.Errorf("collector = %q: use host:port, as in \"192.0.2.1:6343\", \"[2001:db8::1]:6343\" or \"flows.example.net\"", text)
	s.host = text
	if addr, err := netip.ParseAddr(text); err == nil {
		s.host = addr.Unmap().String()
	} else if host, port, err := net.SplitHostPort(text); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		switch {
		case errors.Is(err, strconv.ErrRange), err == nil && n == 0:
			return fmt.Errorf("collector = %q: there is no port %s: use 1 to 65535", text, port)
		case err != nil:
			return wrong
		}
		s.host, s.port = host, uint16(n)
		if addr, err := netip.ParseAddr(host); err == nil {
			s.host = addr.Unmap().String()
		}
	}
	if s.host == "" || strings.ContainsAny(s.host, " /\\[]\t") || strings.Contains(s.host, ":") && !isAddr(s.host) {
		return wrong
	}
	if addr, err := netip.ParseAddr(s.host); err == nil && (noHost(addr) || addr.IsInterfaceLocalMulticast() && addr.Zone() == "") {
		return fmt.Errorf("collector = %q: no other host can have %s: use the collector's address", text, addr)
	}
	return nil
}

// noHost tells whether an address is one that no host can have: 0.0.0.0/8 (RFC 1122, 3.2.1.3), 255.255.255.255 and ::.
func noHost(addr netip.Addr) bool {
	addr = addr.Unmap()
	return addr.IsUnspecified() || addr.Is4() && (addr.As4()[0] == 0 || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}))
}

func isAddr(text string) bool {
	_, err := netip.ParseAddr(text)
	return err == nil
}

// collector returns the collector with its port.
func (s *settings) collector() string { return net.JoinHostPort(s.host, strconv.Itoa(int(s.port))) }
