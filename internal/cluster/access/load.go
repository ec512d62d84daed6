// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"culvert/internal/host/trust"
)

// Load reads a certificate and its key, which only its owner may read.
func Load(f Files) (tls.Certificate, error) {
	if err := trust.SecretFile(f.Key); err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return pair, fmt.Errorf("reading the certificate %s: %w", f.Cert, err)
	}
	return pair, nil
}

// ClientTLS returns how a client with these files connects.
func ClientTLS(f Files) (*tls.Config, error) {
	pair, err := Load(f)
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s has no certificate in PEM: it is the file %s of 'culvert cluster init'", f.CA, CAFile)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, Certificates: []tls.Certificate{pair}}, nil
}
