// SPDX-License-Identifier: Apache-2.0

package etcdsource

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster/etcd"
	"culvert/internal/config"
)

// connect returns a client. It does not wait for a member.
func (s Source) connect() (*clientv3.Client, error) {
	o := clientv3.Config{Endpoints: s.Endpoints}
	var err error
	if o.TLS, err = s.TLS.config(); err != nil {
		return nil, err
	}
	return etcd.Dial(o)
}

// config returns nil without files. The files are read for each client, so that new ones are used after the next failure.
func (t TLS) config() (*tls.Config, error) {
	switch {
	case t == TLS{}:
		return nil, nil
	case t.Cert != "":
		return etcd.TLS(&config.ClusterTLS{CA: t.CA, Cert: t.Cert, Key: t.Key})
	}
	text, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", t.CA)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}, nil
}
