// SPDX-License-Identifier: Apache-2.0

// Package etcd connects to the etcd of a cluster.
package etcd

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"culvert/internal/config"
	"culvert/internal/host/trust"
)

// DialTime bounds how long the machine of a member has for taking a connection.
const DialTime = 3 * time.Second

// Times of a connection. A member that falls silent is noticed after keepAlive and keepAliveWait: gRPC alone may wait for two minutes.
const (
	// greetTime is what a member has for TLS and its first words. A thousand nodes that come at once may keep it busy for longer than DialTime,
	// and each that gives up and comes again is one more.
	greetTime = 30 * time.Second
	keepAlive = 10 * time.Second
	// keepAliveWait is what a member has for the answer to a sign of life. It is long for the same reason.
	keepAliveWait = 10 * time.Second
	// longestPause bounds the time between two attempts to connect to a member.
	longestPause = 2 * time.Second
)

// CallTime bounds a call. A member without a leader may answer never.
const CallTime = 5 * time.Second

// mostMessage bounds an answer, in bytes: a whole read of urgent changes and documents is larger than gRPC's default.
const mostMessage = 64 << 20

// Connect returns a client of the cluster's etcd. It does not wait for a member.
func Connect(c *config.Cluster) (*clientv3.Client, error) {
	o := clientv3.Config{Endpoints: c.Endpoints}
	if c.TLS != nil {
		var err error
		if o.TLS, err = TLS(c.TLS); err != nil {
			return nil, err
		}
	}
	return Dial(o)
}

// Dial makes a client with the times that all parts of a fleet use.
func Dial(o clientv3.Config) (*clientv3.Client, error) {
	o.DialTimeout, o.DialKeepAliveTime, o.DialKeepAliveTimeout = DialTime, keepAlive, keepAliveWait
	o.MaxCallRecvMsgSize, o.MaxCallSendMsgSize = mostMessage, mostMessage
	o.Logger = zap.NewNop() // what calls return says it
	pauses := backoff.DefaultConfig
	pauses.BaseDelay, pauses.MaxDelay = 100*time.Millisecond, longestPause
	o.DialOptions = append([]grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: pauses, MinConnectTimeout: greetTime}),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{Timeout: DialTime}).DialContext(ctx, "tcp", addr)
		}),
	}, o.DialOptions...)
	client, err := clientv3.New(o)
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd at %s: %w", strings.Join(o.Endpoints, ", "), err)
	}
	return client, nil
}

// TLS returns how a client with these files connects. A new certificate in the same files is used from the next connection on.
func TLS(files *config.ClusterTLS) (*tls.Config, error) {
	ca, err := os.ReadFile(files.CA)
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s has no certificate in PEM: it is the file ca.pem of 'culvert cluster init'", files.CA)
	}
	own := func() (*tls.Certificate, error) {
		if err := trust.SecretFile(files.Key); err != nil {
			return nil, fmt.Errorf("reading the key of the certificate: %w", err)
		}
		pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate %s: %w", files.Cert, err)
		}
		return &pair, nil
	}
	if _, err := own(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: pool,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own() },
	}, nil
}

// Expiry returns until when the certificate of a node is valid.
func Expiry(files *config.ClusterTLS) (time.Time, error) {
	cert, err := Certificate(files)
	if err != nil {
		return time.Time{}, err
	}
	return cert.NotAfter, nil
}

// PairID tells one certificate from another, by its hash. It is "" as long as files are not whole, for example while
// somebody copies them.
func PairID(files *config.ClusterTLS) string {
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(pair.Certificate[0]))
}

// Certificate reads the certificate that files name.
func Certificate(files *config.ClusterTLS) (*x509.Certificate, error) {
	text, err := os.ReadFile(files.Cert)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s has no certificate in PEM", files.Cert)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate %s: %w", files.Cert, err)
	}
	return cert, nil
}

// Unanswered tells whether a call has failed because no member has answered it: with the next attempt one may.
func Unanswered(err error) bool {
	code := status.Code(err)
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		code = e.Code()
	}
	return code == codes.Unavailable || code == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// Reason returns in one line for people why a call has failed.
func Reason(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", " ")
	var shut *ShutError
	switch {
	case errors.As(err, &shut):
		return shut.Error()
	case strings.Contains(text, "certificate signed by unknown authority"), strings.Contains(text, "unknown certificate authority"):
		return "the certificate is of another cluster: its authority is not that of the other side (" + text + ")"
	case strings.Contains(text, "tls: expired certificate"), strings.Contains(text, "certificate has expired"):
		return "a certificate has expired (" + text + ")"
	case strings.Contains(text, "mvcc: database space exceeded"):
		return "etcd is full: compact it, defragment it and disarm its alarm NOSPACE"
	case strings.Contains(text, "no leader"):
		return "etcd has no leader: too few of its members reach each other"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time (" + text + ")"
	}
	return text
}
