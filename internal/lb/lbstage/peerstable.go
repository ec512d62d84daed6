// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"culvert/internal/config"
	"culvert/internal/host/hostaddr"
	"culvert/internal/host/procnet"
	"culvert/internal/host/tcplisten"
	"culvert/internal/host/udpsock"
	"culvert/internal/lb/peers"
	"culvert/internal/stage"
)

// PeersTable is [lb.peers]: flows are exchanged with other machines that have the same VIPs.
type PeersTable struct {
	// Listen is the address by which the peers know this machine, Peers are theirs.
	Listen string   `toml:"listen,omitempty"`
	Peers  []string `toml:"peers,omitempty"`
	// KeyFile is a file with the key of all machines. A relative path starts at the configuration file's directory.
	KeyFile string `toml:"key_file,omitempty"`
	// Rate and Flows are nil for the defaults.
	Rate  *int       `toml:"rate,omitempty"`
	Flows *int       `toml:"flows,omitempty"`
	Bulk  *BulkTable `toml:"bulk,omitempty"`

	config.Position
}

// BulkTable is [lb.peers.bulk]: a start asks the peers for their flows by TLS before it announces addresses.
type BulkTable struct {
	CertFile string `toml:"cert_file,omitempty"`
	KeyFile  string `toml:"key_file,omitempty"`
	CAFile   string `toml:"ca_file,omitempty"`
	Timeout  string `toml:"timeout,omitempty"`

	config.Position
}

// check returns errors for missing keys, with positions. compilePeers looks at the values.
func (t *PeersTable) check(in config.Position) error {
	if t == nil {
		return nil
	}
	t.Position = in.In("peers")
	var errs config.Errors
	if t.Listen == "" {
		errs.Add(t.Locate("", errors.New(`lb.peers.listen is missing: give the address by which the peers know this machine, as listen = "10.0.0.1:9482"`)))
	}
	if t.KeyFile == "" {
		errs.Add(t.Locate("", errors.New("lb.peers.key_file is missing: name a file with the key of all machines, as 'openssl rand -base64 32' makes one")))
	}
	if t.Bulk == nil {
		return errs.Err()
	}
	t.Bulk.Position = t.In("bulk")
	for _, f := range []struct{ key, path string }{
		{"cert_file", t.Bulk.CertFile}, {"key_file", t.Bulk.KeyFile}, {"ca_file", t.Bulk.CAFile},
	} {
		if f.path == "" {
			errs.Add(t.Bulk.Locate("", fmt.Errorf("lb.peers.bulk.%s is missing: peers prove by certificates that they are peers", f.key)))
		}
	}
	return errs.Err()
}

// compilePeers returns the options of an [lb.peers] table, nil for a file without one. flows is the size of the flow table.
func compilePeers(t *PeersTable, flows int) (*peers.Options, error) {
	if t == nil {
		return nil, nil
	}
	var errs config.Errors
	o := &peers.Options{Rate: peers.DefaultRate}
	var err error
	if o.Listen, err = peerAddress(t.Listen); err != nil {
		errs.Add(t.Locate("listen", fmt.Errorf("listen = %w", err)))
	}
	for _, text := range t.Peers {
		at, err := peerAddress(text)
		if err != nil {
			errs.Add(t.Locate("peers", fmt.Errorf("peers: %w", err)))
			continue
		}
		o.Peers = append(o.Peers, at)
	}
	if len(errs) == 0 {
		if err := o.Check(); err != nil {
			errs.Add(t.Locate("", fmt.Errorf("[lb.peers]: %w", err)))
		}
	}
	if t.Rate != nil {
		if o.Rate = *t.Rate; o.Rate < 1 || o.Rate > peers.MaxRate {
			errs.Add(t.Locate("rate", fmt.Errorf("rate = %d: use 1 to %d flows a second", o.Rate, peers.MaxRate)))
		}
	}
	if t.Flows != nil {
		if o.Flows = *t.Flows; o.Flows < 1 || o.Flows > flows {
			errs.Add(t.Locate("flows", fmt.Errorf("flows = %d: use 1 to %d, the flows of the flow table", o.Flows, flows)))
		}
	}
	if o.Key, err = peers.ReadKey(t.Relative("key_file", t.KeyFile)); err != nil {
		errs.Add(t.Locate("key_file", fmt.Errorf("the key of the load balancer's peers: %w", err)))
	}
	o.Bulk, err = compileBulk(t.Bulk)
	errs.Add(err)
	if err := errs.Err(); err != nil {
		return nil, err
	}
	return o, nil
}

func peerAddress(text string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return at, fmt.Errorf("%q: write an address with a port, as 10.0.0.1:9482 or [fd00::1]:9482", text)
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), nil
}

func compileBulk(t *BulkTable) (*peers.Bulk, error) {
	if t == nil {
		return nil, nil
	}
	b := &peers.Bulk{
		Cert: t.Relative("cert_file", t.CertFile), Key: t.Relative("key_file", t.KeyFile), CA: t.Relative("ca_file", t.CAFile),
		Timeout: peers.DefaultBulkTimeout,
	}
	if t.Timeout != "" {
		if err := parseDurations(t, map[string]duration{"timeout": {t.Timeout, &b.Timeout}}); err != nil {
			return nil, err
		}
	}
	if b.Timeout < time.Second/10 || b.Timeout > peers.MaxBulkTimeout {
		return nil, t.Locate("timeout", fmt.Errorf("timeout = %q: use 100ms to %v", t.Timeout, peers.MaxBulkTimeout))
	}
	if _, _, err := b.Load(); err != nil {
		return nil, t.Locate("", fmt.Errorf("[lb.peers.bulk]: %w", err))
	}
	return b, nil
}

// checkPeers returns an error if another process has the sockets for the peers, and notes if this host does not have the address.
func (p *Plan) checkPeers(h stage.Host) error {
	if p.peers == nil {
		return nil
	}
	at := p.peers.Listen
	elsewhere, err := hostaddr.Elsewhere([]netip.AddrPort{at})
	if err != nil {
		return err
	}
	if len(elsewhere) > 0 {
		h.Note(p.file.Peers.Locate("listen", fmt.Errorf("this host does not have the address %s: no peer is heard until it has", at.Addr())))
		return nil
	}
	if !h.Process {
		return nil
	}
	if p.peers.Bulk != nil {
		if err := tcplisten.Check(at.String(), h.Served); err != nil {
			return p.file.Peers.Locate("listen", err)
		}
	}
	holders, err := udpsock.Others([]netip.AddrPort{at})
	if err != nil {
		return err
	}
	for _, other := range holders {
		if h.Served == 0 || other.PID != h.Served {
			return p.file.Peers.Locate("listen", inUse(at, other))
		}
	}
	return nil
}

func inUse(at netip.AddrPort, by procnet.Holder) error {
	return fmt.Errorf("%s is in use by %s: stop that ('ss -ulnp'), or use another port", at, by)
}

// peersChanges adds lines for what differs between two [lb.peers].
func peersChanges(c *stage.Changes, was, is *peers.Options) {
	if was == nil {
		was = new(peers.Options)
	}
	if is == nil {
		is = new(peers.Options)
	}
	address := func(a netip.AddrPort) string {
		if !a.IsValid() {
			return ""
		}
		return a.String()
	}
	c.Value("lb.peers.listen:", address(was.Listen), address(is.Listen))
	c.Value("lb.peers.peers:", addresses(was.Peers), addresses(is.Peers))
	c.Value("lb.peers.rate:", was.Rate, is.Rate)
	c.Value("lb.peers.flows:", was.Flows, is.Flows)
	if was.Key != is.Key {
		c.Add("lb.peers: another key")
	}
	c.Value("lb.peers.bulk:", bulkText(was.Bulk), bulkText(is.Bulk))
}

func addresses(all []netip.AddrPort) (texts []string) {
	for _, one := range all {
		texts = append(texts, one.String())
	}
	return texts
}

func bulkText(b *peers.Bulk) string {
	if b == nil {
		return ""
	}
	return fmt.Sprintf("%s, %s, %s, %v", b.Cert, b.Key, b.CA, b.Timeout)
}
