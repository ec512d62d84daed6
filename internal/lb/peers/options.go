// SPDX-License-Identifier: Apache-2.0

// Package peers exchanges flows between load balancers of the same VIPs: each tells the others which flows have another backend
// than the rings would give them. If one of them is lost, the others go on with its flows as it did.
package peers

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"culvert/internal/host/trust"
)

// Options of a Service.
type Options struct {
	// Listen is the address of this machine that the others know: UDP, and TCP with Bulk.
	Listen netip.AddrPort
	// Peers are the addresses of the others.
	Peers []netip.AddrPort
	// Key is the key that all machines have, as ReadKey returns it.
	Key [sha256.Size]byte
	// Rate is the largest number of flows that are told in a second. Twice as many are taken from each peer.
	Rate int
	// Flows is the largest number of flows that are told, and of those from peers that are kept; 0 for a quarter of the flow table.
	Flows int
	// Bulk has the files for asking peers at the start, nil if they are not asked.
	Bulk *Bulk
	// Log receives what the user has to know.
	Log *slog.Logger
}

// Bulk has the files with which a machine proves by TLS that it is one of the peers, and how long a start waits for the others.
type Bulk struct {
	Cert, Key, CA string
	Timeout       time.Duration
}

// Defaults and bounds.
const (
	DefaultRate        = 20_000
	MaxRate            = 1_000_000
	DefaultBulkTimeout = 5 * time.Second
	MaxBulkTimeout     = time.Minute
	// MaxPeers is the largest number of peers.
	MaxPeers = 64
	// minKey is the length of the shortest key, in bytes of its file.
	minKey = 32
)

// ReadKey reads the key of all machines from a file, which has to be root's alone.
func ReadKey(path string) (key [sha256.Size]byte, err error) {
	text, err := trust.Secret(path)
	if err != nil {
		return key, err
	}
	secret := strings.TrimSpace(string(text))
	if len(secret) < minKey {
		return key, fmt.Errorf("%s has %d bytes, and a key has at least %d: make one with 'openssl rand -base64 32'", path, len(secret), minKey)
	}
	return sha256.Sum256([]byte("culvert lb peers\x00" + secret)), nil
}

// Check returns an error for addresses that cannot be right. It does not look at the host.
func (o *Options) Check() error {
	if !o.Listen.IsValid() || o.Listen.Port() == 0 || o.Listen.Addr().IsUnspecified() || o.Listen.Addr().Zone() != "" {
		return fmt.Errorf("listen %s: give the address by which the peers know this machine, with a port", o.Listen)
	}
	if len(o.Peers) > MaxPeers {
		return fmt.Errorf("%d peers: there may be %d", len(o.Peers), MaxPeers)
	}
	for n, p := range o.Peers {
		switch {
		case p.Port() == 0 || p.Addr().IsUnspecified() || p.Addr().Zone() != "":
			return fmt.Errorf("peer %s: give its address and port, as in its own listen", p)
		case p == o.Listen:
			return fmt.Errorf("peer %s is listen of this machine: name the others", p)
		case p.Addr().Is4() != o.Listen.Addr().Is4():
			return fmt.Errorf("peer %s is of another family than listen %s", p, o.Listen)
		case slices.Contains(o.Peers[:n], p):
			return fmt.Errorf("peer %s is there twice", p)
		}
	}
	return nil
}

// Load reads the files.
func (b *Bulk) Load() (cert tls.Certificate, ca *x509.CertPool, err error) {
	secret, err := trust.Secret(b.Key)
	if err != nil {
		return cert, nil, err
	}
	public, err := os.ReadFile(b.Cert)
	if err != nil {
		return cert, nil, err
	}
	if cert, err = tls.X509KeyPair(public, secret); err != nil {
		return cert, nil, fmt.Errorf("%s and %s: %w", b.Cert, b.Key, err)
	}
	roots, err := os.ReadFile(b.CA)
	if err != nil {
		return cert, nil, err
	}
	ca = x509.NewCertPool()
	if !ca.AppendCertsFromPEM(roots) {
		return cert, nil, errors.New(b.CA + " has no certificate in PEM")
	}
	return cert, ca, nil
}
