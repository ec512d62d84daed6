// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// patience is a timeout that only failing tests reach.
const patience = 20 * time.Second

// serveTCP calls do with each connection to a new port, and returns address and port.
func serveTCP(t *testing.T, do func(net.Conn)) netip.AddrPort {
	t.Helper()
	return serveTCPAt(t, "127.0.0.1:0", do)
}

// serveTCPAt is serveTCP at a given address.
func serveTCPAt(t *testing.T, addr string, do func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				do(conn)
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}

// serveUDP answers each datagram with what do returns for it, and not if that is empty.
func serveUDP(t *testing.T, do func(string) string) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		b := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			if answer := do(string(b[:n])); answer != "" {
				_, _ = conn.WriteTo([]byte(answer), from)
			}
		}
	}()
	return netip.MustParseAddrPort(conn.LocalAddr().String())
}

// serveHTTP serves HTTP, or HTTPS if secure, at a new port.
func serveHTTP(t *testing.T, secure bool, handler http.HandlerFunc) netip.AddrPort {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return netip.MustParseAddrPort(s.Listener.Addr().String())
}

// closedPort returns an address and port that no socket is bound to.
func closedPort(t *testing.T, network string) netip.AddrPort {
	t.Helper()
	if network == "udp" {
		conn, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		return netip.MustParseAddrPort(conn.LocalAddr().String())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return netip.MustParseAddrPort(l.Addr().String())
}

func echo(conn net.Conn) { _, _ = io.Copy(conn, conn) }

// silent reads until the other side closes the connection.
func silent(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// say returns a function that writes a text and is then silent.
func say(text string) func(net.Conn) {
	return func(conn net.Conn) {
		_, _ = io.WriteString(conn, text)
		silent(conn)
	}
}

// reset closes a connection with RST after the first byte.
func reset(conn net.Conn) {
	one := make([]byte, 1)
	_, _ = conn.Read(one)
	_ = conn.(*net.TCPConn).SetLinger(0)
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

const short = 50 * time.Millisecond

func TestProbe(t *testing.T) {
	tests := []struct {
		name  string
		serve func(t *testing.T) netip.AddrPort
		check Check
		want  string // beginning of the failure, "" for none
	}{
		{"TCP", func(t *testing.T) netip.AddrPort { return serveTCP(t, silent) }, Check{Type: TCP}, ""},
		{"TCP, nobody listens", func(t *testing.T) netip.AddrPort { return closedPort(t, "tcp") }, Check{Type: TCP}, "connection refused"},
		{"TCP answers", func(t *testing.T) netip.AddrPort { return serveTCP(t, echo) }, Check{Type: TCP, Send: "PING", Expect: "PI"}, ""},
		{"TCP greets", func(t *testing.T) netip.AddrPort { return serveTCP(t, say("220 ready\r\n")) }, Check{Type: TCP, Expect: "220 "}, ""},
		{
			"TCP says something else", func(t *testing.T) netip.AddrPort { return serveTCP(t, say("421 too many connections\r\n")) },
			Check{Type: TCP, Expect: "220 "}, `the answer begins with "421 ", not with "220 "`,
		},
		{
			"TCP says nothing", func(t *testing.T) netip.AddrPort { return serveTCP(t, silent) },
			Check{Type: TCP, Expect: "220 ", Timeout: short}, "connected, but no answer in 50ms",
		},
		{
			"TCP closes", func(t *testing.T) netip.AddrPort { return serveTCP(t, func(net.Conn) {}) },
			Check{Type: TCP, Expect: "220 "}, "connection closed without an answer",
		},
		{
			"TCP closes too early", func(t *testing.T) netip.AddrPort {
				return serveTCP(t, func(c net.Conn) { _, _ = io.WriteString(c, "22") })
			}, Check{Type: TCP, Expect: "220 "}, "connection closed without an answer",
		},
		{"TCP resets", func(t *testing.T) netip.AddrPort { return serveTCP(t, reset) }, Check{Type: TCP, Send: "x", Expect: "x"}, "connection reset"},
		{
			"UDP answers", func(t *testing.T) netip.AddrPort { return serveUDP(t, strings.ToUpper) },
			Check{Type: UDP, Send: "ping", Expect: "PIN"}, "",
		},
		{
			"UDP answers wrongly", func(t *testing.T) netip.AddrPort { return serveUDP(t, strings.ToUpper) },
			Check{Type: UDP, Send: strings.Repeat("ping", 10), Expect: "pingpingpingpingping"},
			`the answer begins with "PINGPINGPINGPING"..., not with "pingpingpingping"...`,
		},
		{
			"UDP says nothing", func(t *testing.T) netip.AddrPort { return serveUDP(t, func(string) string { return "" }) },
			Check{Type: UDP, Send: "x", Expect: "x", Timeout: short}, "no answer in 50ms",
		},
		{
			"UDP may say nothing", func(t *testing.T) netip.AddrPort { return serveUDP(t, func(string) string { return "" }) },
			Check{Type: UDP, Timeout: short}, "",
		},
		{"UDP, nobody listens", func(t *testing.T) netip.AddrPort { return closedPort(t, "udp") }, Check{Type: UDP}, "port unreachable"},
		{"HTTP", func(t *testing.T) netip.AddrPort { return serveHTTP(t, false, status(200)) }, Check{Type: HTTP}, ""},
		{"HTTP unwell", func(t *testing.T) netip.AddrPort { return serveHTTP(t, false, status(503)) }, Check{Type: HTTP}, "HTTP status 503, not 200-399"},
		{"HTTP exactly", func(t *testing.T) netip.AddrPort { return serveHTTP(t, false, status(204)) }, Check{Type: HTTP, Status: "204"}, ""},
		{
			"HTTP not exactly", func(t *testing.T) netip.AddrPort { return serveHTTP(t, false, status(200)) },
			Check{Type: HTTP, Status: "204"}, "HTTP status 200, not 204",
		},
		{
			"HTTP redirects", func(t *testing.T) netip.AddrPort {
				return serveHTTP(t, false, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != "/" {
						panic("the redirect was followed")
					}
					http.Redirect(w, r, "/else", http.StatusFound)
				})
			}, Check{Type: HTTP, Status: "302"}, "",
		},
		{
			"HTTP hints first", func(t *testing.T) netip.AddrPort {
				return serveHTTP(t, false, func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusEarlyHints)
					w.WriteHeader(http.StatusTeapot)
				})
			}, Check{Type: HTTP}, "HTTP status 418, not 200-399",
		},
		{
			"HTTP hints for ever", func(t *testing.T) netip.AddrPort {
				return serveTCP(t, say(strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 9)))
			}, Check{Type: HTTP}, "no final HTTP status after 5 others",
		},
		{
			"HTTP without an end", func(t *testing.T) netip.AddrPort {
				return serveHTTP(t, false, func(w http.ResponseWriter, r *http.Request) {
					for r.Context().Err() == nil {
						if _, err := w.Write(make([]byte, 4096)); err != nil {
							return
						}
					}
				})
			}, Check{Type: HTTP}, "",
		},
		{
			"HTTP is slow", func(t *testing.T) netip.AddrPort {
				return serveHTTP(t, false, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
			}, Check{Type: HTTP, Timeout: short}, "connected, but no answer in 50ms",
		},
		{"no HTTP", func(t *testing.T) netip.AddrPort { return serveTCP(t, say("SSH-2.0-x\r\n\r\n")) }, Check{Type: HTTP}, "the answer is no HTTP"},
		{"HTTP closes", func(t *testing.T) netip.AddrPort { return serveTCP(t, func(net.Conn) {}) }, Check{Type: HTTP}, "connection "},
		{"HTTPS", func(t *testing.T) netip.AddrPort { return serveHTTP(t, true, status(200)) }, Check{Type: HTTPS}, ""},
		{"HTTPS unwell", func(t *testing.T) netip.AddrPort { return serveHTTP(t, true, status(500)) }, Check{Type: HTTPS}, "HTTP status 500, not 200-399"},
		{"no HTTPS", func(t *testing.T) netip.AddrPort { return serveHTTP(t, false, status(200)) }, Check{Type: HTTPS}, "the answer is no TLS"},
		{"HTTPS is silent", func(t *testing.T) netip.AddrPort { return serveTCP(t, silent) }, Check{Type: HTTPS, Timeout: short}, "connected, but no answer in 50ms"},
		{"HTTPS refuses", func(t *testing.T) netip.AddrPort {
			return serveTCP(t, func(c net.Conn) {
				one := make([]byte, 2048)
				_, _ = c.Read(one)
				_, _ = c.Write([]byte{21, 3, 3, 0, 2, 2, 40})
				silent(c)
			})
		}, Check{Type: HTTPS}, "TLS: handshake failure"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			at := tt.serve(t)
			if tt.check.Timeout == 0 {
				tt.check.Timeout = patience
			}
			c := tt.check
			c.Interval = patience
			c = c.WithDefaults()
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			// The check has a port of its own, which replaces that of the target.
			c.Port = at.Port()
			err := probe(t.Context(), Target{Addr: netip.AddrPortFrom(at.Addr(), 1), Check: c})
			if got := fmt.Sprint(err); tt.want == "" && err != nil || tt.want != "" && !strings.HasPrefix(got, tt.want) {
				t.Errorf("%s, not %q", got, tt.want)
			}
		})
	}
}

// TestHTTPRequest checks the requests that servers get.
func TestHTTPRequest(t *testing.T) {
	tests := []struct {
		host, wantHost, wantSNI string
	}{
		{"www.example.org", "www.example.org", "www.example.org"},
		{"www.example.org:8443", "www.example.org:8443", "www.example.org"},
		{"192.0.2.1", "192.0.2.1", ""},
		{"", "127.0.0.1:", ""},
	}
	for _, tt := range tests {
		t.Run(tt.host, func(t *testing.T) {
			var got *http.Request
			done := make(chan struct{})
			at := serveHTTP(t, true, func(_ http.ResponseWriter, r *http.Request) {
				got = r
				close(done)
			})
			c := Check{Type: HTTPS, Path: "/health?x=1", Host: tt.host, Timeout: patience, Interval: patience}.WithDefaults()
			if err := probe(t.Context(), Target{Addr: at, Check: c}); err != nil {
				t.Fatal(err)
			}
			<-done
			if got.Method != "GET" || got.URL.String() != "/health?x=1" || !strings.HasPrefix(got.Host, tt.wantHost) || !got.Close {
				t.Errorf("%s %s to %s, closing %v", got.Method, got.URL, got.Host, got.Close)
			}
			if got.TLS.ServerName != tt.wantSNI || got.TLS.NegotiatedProtocol != "http/1.1" || got.TLS.Version < tls.VersionTLS12 {
				t.Errorf("TLS to %q with %q", got.TLS.ServerName, got.TLS.NegotiatedProtocol)
			}
		})
	}
}

func TestProbeEndsWithItsContext(t *testing.T) {
	at := serveTCP(t, silent)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(short, cancel)
	c := Check{Type: TCP, Expect: "x", Timeout: time.Hour, Interval: time.Hour}.WithDefaults()
	if err := probe(ctx, Target{Addr: at, Check: c}); err == nil {
		t.Error("a canceled probe has passed")
	}
}
