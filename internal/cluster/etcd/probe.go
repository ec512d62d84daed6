// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"culvert/internal/config"
)

// probeTime bounds what a member has for an answer.
const probeTime = 2 * time.Second

// ShutError says why no member lets this side in.
type ShutError struct {
	text string
	// Certain tells that waiting helps nothing: each member refuses, or shows a certificate of another cluster, or nobody listens where it is to be.
	Certain bool
}

// Error returns the error in one line.
func (e *ShutError) Error() string { return e.text }

// Probe tries to be let in by a member at one of the endpoints, and returns why none does: a ShutError. Calls of a client say after their time
// that there was no answer: a probe says within 2 s for each endpoint that nobody listens there, or which side does not take the other's
// certificate. config is nil without TLS.
func Probe(ctx context.Context, endpoints []string, config *tls.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	reasons := make([]reason, len(endpoints))
	var work sync.WaitGroup
	for n, e := range endpoints {
		work.Go(func() {
			if reasons[n] = probe(ctx, e, config); reasons[n].text == "" {
				cancel() // one is enough
			}
		})
	}
	work.Wait()
	if len(endpoints) == 0 || slices.ContainsFunc(reasons, func(r reason) bool { return r.text == "" }) {
		return nil
	}
	return &ShutError{together(endpoints, reasons), !slices.ContainsFunc(reasons, func(r reason) bool { return !r.certain })}
}

// ProbeOf returns a probe of the cluster's etcd.
func ProbeOf(c *config.Cluster) func(context.Context) error {
	return func(ctx context.Context) error {
		var files *tls.Config
		if c.TLS != nil {
			var err error
			if files, err = TLS(c.TLS); err != nil {
				return &ShutError{err.Error(), true}
			}
		}
		return Probe(ctx, c.Endpoints, files)
	}
}

// reason is why a member does not let this side in, "" if it does.
type reason struct {
	text    string
	certain bool
}

// together names the endpoints with the same reason together.
func together(endpoints []string, reasons []reason) string {
	var order []string
	at := make(map[string][]string)
	for n, r := range reasons {
		if at[r.text] == nil {
			order = append(order, r.text)
		}
		at[r.text] = append(at[r.text], endpoints[n])
	}
	for n, text := range order {
		order[n] = fmt.Sprintf("etcd at %s%s", strings.Join(at[text], ", "), text)
	}
	return strings.Join(order, "; ")
}

// hello is what a client of HTTP/2 begins with (RFC 9113, section 3.4): the preface and empty SETTINGS.
const hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

func probe(ctx context.Context, endpoint string, config *tls.Config) reason {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	u, err := url.Parse(endpoint)
	if err != nil {
		return reason{": " + err.Error(), true}
	}
	c, err := dial(ctx, u.Host, config)
	if err == nil {
		defer c.Close()
		defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(0, 1)) })() // nobody waits for it any more
		err = greet(c)
	}
	return reasonOf(err)
}

func reasonOf(err error) reason {
	var (
		timeout net.Error
		name    x509.HostnameError
		plain   tls.RecordHeaderError
	)
	switch text := fmt.Sprint(err); {
	case err == nil:
		return reason{}
	case strings.Contains(text, "signed by unknown authority"):
		return reason{" is of another cluster: the certificate that it shows is not of the authority in this cluster's ca.pem", true}
	case strings.Contains(text, "unknown certificate authority"):
		return reason{" refuses the certificate, which is of another cluster: use one that its own cluster has issued", true}
	case strings.Contains(text, "remote error: tls: expired certificate"):
		return reason{" refuses the certificate, which has expired: issue another one", true}
	case strings.Contains(text, "remote error: tls"):
		return reason{" refuses the certificate: " + text, true}
	case errors.As(err, &name):
		return reason{" shows a certificate for other addresses: 'culvert cluster issue member --host' makes one for this one too (" + text + ")", true}
	case errors.As(err, &plain):
		return reason{" speaks no TLS: mend the port in endpoints of [cluster]", true}
	case errors.Is(err, syscall.ECONNREFUSED):
		return reason{" is not there, since nobody listens (connection refused): start it, or mend endpoints in [cluster]", true}
	case errors.As(err, &timeout) && timeout.Timeout():
		return reason{fmt.Sprintf(" does not answer within %v: start it, or mend the network", probeTime), false}
	}
	return reason{": " + err.Error(), false}
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

// Guarded makes a call. One that has no answer after a time has the members probed. If none lets this side in and that is certain, and if end is
// set, the call ends at once. shut is what the probe has said of a call that has failed, nil if a member lets this side in.
func Guarded(ctx context.Context, after time.Duration, probe func(context.Context) error, end bool, call func(context.Context) error,
) (shut *ShutError, err error) {
	ctx, cancel := context.WithCancel(ctx)
	probed := make(chan *ShutError, 1)
	go func() {
		var found *ShutError
		defer func() { probed <- found }()
		wait := time.NewTimer(after)
		defer wait.Stop()
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
		errors.As(probe(ctx), &found)
		switch {
		case ctx.Err() != nil: // there is an answer, or nobody waits for one
			found = nil
		case found != nil && found.Certain && end:
			cancel()
		}
	}()
	err = call(ctx)
	cancel()
	if err == nil {
		return nil, nil
	}
	return <-probed, err
}
