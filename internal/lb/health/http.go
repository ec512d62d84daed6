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
	// httpAnswer is the number of bytes of an answer that are read.
	httpAnswer = 64 << 10
	// httpHints is the number of answers read, of which all but the last may be informational (1xx; RFC 9110, 15.2).
	httpHints = 5
	// httpLinger is the time that the server has for closing the connection.
	httpLinger = 50 * time.Millisecond
)

var errNoStatus = fmt.Errorf("no final HTTP status after %d others", httpHints)

// badStatus is an HTTP answer with a status that does not pass.
type badStatus struct {
	got  int
	want string
}

func (e *badStatus) Error() string { return fmt.Sprintf("HTTP status %d, not %s", e.got, e.want) }

// askHTTP sends a request and judges the answer. It does not follow redirects, and it does not verify certificates: the check
// is about whether the server works, not about who it is.
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
		// The side that closes first has its port in TIME_WAIT for a minute, so let the server close.
		_ = conn.SetDeadline(time.Now().Add(httpLinger))
		_, _ = io.Copy(io.Discard, answer)
		return nil
	}
	return errNoStatus
}

// serverName returns the name for TLS (SNI), "" for an address.
func serverName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}
	return host
}
