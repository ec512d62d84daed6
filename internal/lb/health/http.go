// SPDX-License-Identifier: Apache-2.0

package health

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"
)

const (
	// httpAnswer is how much of an answer is read.
	httpAnswer = 64 << 10
	// httpHints is how many answers that only announce another one (RFC 9110, 15.2) are skipped.
	httpHints = 5
	// httpLinger is how long the server may take to close the connection.
	httpLinger = 50 * time.Millisecond
)

var errNoStatus = fmt.Errorf("no final HTTP status after %d others", httpHints)

// badStatus is an answer of HTTP with a status that is not wanted.
type badStatus struct {
	got  int
	want string
}

func (e *badStatus) Error() string { return fmt.Sprintf("HTTP status %d, not %s", e.got, e.want) }

// askHTTP sends one request. Redirects are not followed, and certificates are not verified: it is asked whether the
// server works, not who it is.
func askHTTP(ctx context.Context, conn net.Conn, c Check, at netip.AddrPort) error {
	host := c.Host
	if host == "" {
		host = at.String()
	}
	if c.Type == HTTPS {
		secure := tls.Client(conn, &tls.Config{ServerName: serverName(host), InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err := secure.HandshakeContext(ctx); err != nil {
			return &tlsFailure{err}
		}
		conn = secure
	}
	_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: culvert\r\nAccept: */*\r\nConnection: close\r\n\r\n",
		c.Path, host)
	if err != nil {
		return err
	}
	answer := bufio.NewReader(io.LimitReader(conn, httpAnswer))
	for range httpHints {
		var resp *http.Response
		if resp, err = http.ReadResponse(answer, nil); err != nil {
			return err
		}
		if resp.StatusCode/100 == 1 && resp.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		first, last, err := c.statuses()
		if err != nil {
			return err
		}
		if resp.StatusCode < first || resp.StatusCode > last {
			return &badStatus{resp.StatusCode, c.Status}
		}
		// Who closes first has the port taken for a minute: let it be the server.
		_ = conn.SetDeadline(time.Now().Add(httpLinger))
		_, _ = io.Copy(io.Discard, answer)
		return nil
	}
	return errNoStatus
}

// serverName is what TLS calls the server, empty for an address.
func serverName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}
	return host
}
