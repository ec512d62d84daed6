// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// unexpected is the failure of an answer that begins with other data than Expect.
type unexpected struct {
	got  []byte
	want string
}

// quoted is the number of bytes of an answer in an error.
const quoted = 16

func (e *unexpected) Error() string {
	return fmt.Sprintf("the answer begins with %s, not with %s", quote(string(e.got)), quote(e.want))
}

func quote(s string) string {
	if len(s) > quoted {
		return fmt.Sprintf("%q...", s[:quoted])
	}
	return fmt.Sprintf("%q", s)
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

// tlsFailure is a failed TLS handshake.
type tlsFailure struct{ err error }

func (e *tlsFailure) Unwrap() error { return e.err }

func (e *tlsFailure) Error() string {
	var plain tls.RecordHeaderError
	if errors.As(e.err, &plain) {
		return "the answer is no TLS"
	}
	text := e.err.Error()
	if n := strings.LastIndex(text, "tls: "); n >= 0 {
		text = text[n+len("tls: "):]
	}
	return "TLS: " + text
}

// reasons has the texts for errors of the system.
var reasons = map[syscall.Errno]string{
	unix.ECONNREFUSED:  "connection refused",
	unix.ECONNRESET:    "connection reset",
	unix.EPIPE:         "connection closed",
	unix.EHOSTUNREACH:  "host unreachable",
	unix.ENETUNREACH:   "network unreachable",
	unix.EACCES:        "not allowed here: see the routing table and the filter of this host",
	unix.EPERM:         "not allowed here: culvert needs CAP_NET_ADMIN, and the filter of this host may refuse too",
	unix.EADDRNOTAVAIL: "no local port is free",
	unix.EMFILE:        "too many open files: raise the limit of the culvert process",
}

// failure returns an error with a text for the user. connected is set if the error came after the connection was made.
func failure(c Check, err error, connected bool) error {
	var (
		status *badStatus
		text   *unexpected
		errno  syscall.Errno
		secure *tlsFailure
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &status), errors.As(err, &text), errors.Is(err, errNoStatus):
		return err
	case errors.Is(err, unix.ETIMEDOUT):
		return errors.New("no answer") // the kernel gave up before the timeout
	case isTimeout(err) && connected && c.Type != UDP:
		return fmt.Errorf("connected, but no answer in %v", c.Timeout)
	case isTimeout(err):
		return fmt.Errorf("no answer in %v", c.Timeout)
	case errors.Is(err, unix.ECONNREFUSED) && c.Type == UDP:
		return errors.New("port unreachable")
	case errors.As(err, &errno):
		if reason, ok := reasons[errno]; ok {
			return errors.New(reason)
		}
		return errno
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("connection closed without an answer")
	case errors.As(err, &secure):
		return err
	case c.web():
		return errors.New("the answer is no HTTP")
	}
	return err
}
