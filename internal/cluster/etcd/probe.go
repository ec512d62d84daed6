// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
)

// probeTime bounds what a member has for an answer.
const probeTime = 2 * time.Second

// Probe tries to be let in by a member at one of the endpoints, and returns why none does. Calls of a client say after their time that
// there was no answer: a probe says within 2 s for each endpoint that nothing listens there, or which side does not take the other's
// certificate. config is nil without TLS.
func Probe(ctx context.Context, endpoints []string, config *tls.Config) error {
	var errs []string
	for _, e := range endpoints {
		err := probe(ctx, e, config)
		if err == nil {
			return nil
		}
		errs = append(errs, err.Error())
	}
	return errors.New(strings.Join(errs, "; "))
}

// hello is what a client of HTTP/2 begins with (RFC 9113, section 3.4): the preface and empty SETTINGS.
const hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

func probe(ctx context.Context, endpoint string, config *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	u, err := url.Parse(endpoint)
	if err != nil {
		return err
	}
	c, err := dial(ctx, u.Host, config)
	if err == nil {
		defer c.Close()
		err = greet(c)
	}
	var timeout net.Error
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "signed by unknown authority"):
		return fmt.Errorf("etcd at %s is of another cluster: the certificate that it shows is not of the authority in this cluster's ca.pem", endpoint)
	case strings.Contains(err.Error(), "unknown certificate authority"):
		return fmt.Errorf("etcd at %s refuses the certificate, which is of another cluster: use one that its own cluster has issued", endpoint)
	case strings.Contains(err.Error(), "remote error: tls: expired certificate"):
		return fmt.Errorf("etcd at %s refuses the certificate, which has expired: issue another one", endpoint)
	case strings.Contains(err.Error(), "remote error: tls"):
		return fmt.Errorf("etcd at %s refuses the certificate: %w", endpoint, err)
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("etcd at %s does not answer within %v", endpoint, probeTime)
	}
	return fmt.Errorf("etcd at %s: %w", endpoint, err)
}

func dial(ctx context.Context, at string, config *tls.Config) (net.Conn, error) {
	if config == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", at)
	}
	h2 := config.Clone()
	h2.NextProtos = []string{"h2"}
	return (&tls.Dialer{Config: h2}).DialContext(ctx, "tcp", at)
}

// greet tells whether the server answers. With TLS 1.3 it looks at the client's certificate after the client's part is done, and so
// the first read has its refusal.
func greet(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(probeTime)); err != nil {
		return err
	}
	_, wrote := c.Write([]byte(hello))
	if _, err := c.Read(make([]byte, 1)); err != nil {
		return err
	}
	return wrote
}
