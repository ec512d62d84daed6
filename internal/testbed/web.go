// SPDX-License-Identifier: Apache-2.0

package testbed

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// webBody is what clients and servers send. It is longer than windows that are not scaled.
var webBody = strings.Repeat("0123456789abcde\n", 1<<18)

// TCPInfo has what TCP_INFO says of the options of a connection.
type TCPInfo struct {
	Timestamps, SACK bool
	// SndWscale and RcvWscale are -1 if windows are not scaled.
	SndWscale, RcvWscale int
	SndMSS               uint32
}

func tcpInfo(c net.Conn) (*TCPInfo, error) {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	var b [104]byte // struct tcp_info of linux/tcp.h, as it was at first
	var errno unix.Errno
	if err := raw.Control(func(fd uintptr) {
		size := uint32(len(b))
		_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.IPPROTO_TCP, unix.TCP_INFO,
			uintptr(unsafe.Pointer(&b)), uintptr(unsafe.Pointer(&size)), 0)
	}); err != nil {
		return nil, err
	}
	if errno != 0 {
		return nil, errno
	}
	i := &TCPInfo{Timestamps: b[5]&1 != 0, SACK: b[5]&2 != 0, SndWscale: -1, RcvWscale: -1, SndMSS: binary.NativeEndian.Uint32(b[16:])}
	if b[5]&4 != 0 {
		i.SndWscale, i.RcvWscale = int(b[6]&15), int(b[6]>>4)
	}
	return i, nil
}

// WebServer is an HTTP server that answers GET with a long body, and POST with the number of bytes it has read.
type WebServer struct {
	mu    sync.Mutex
	infos map[string]*TCPInfo // by the client's address
}

// Info returns what the kernel says of the connection with a client, or nil if there was none. client is address and port.
func (s *WebServer) Info(client string) *TCPInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.infos[client]
}

// StartWebServer listens on an address of this namespace until the test ends.
func StartWebServer(t testing.TB, addr netip.AddrPort) *WebServer {
	t.Helper()
	network := "tcp4"
	if addr.Addr().Is6() {
		network = "tcp6" // package net decides once for the process, in the namespace of the first use, whether "tcp" has IPv6
	}
	l, err := net.Listen(network, addr.String())
	if err != nil {
		t.Fatal(err)
	}
	s := &WebServer{infos: make(map[string]*TCPInfo)}
	h := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				n, err := io.Copy(io.Discard, r.Body)
				fmt.Fprintln(w, n, err)
				return
			}
			io.WriteString(w, webBody)
		}),
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateNew {
				if info, err := tcpInfo(c); err == nil {
					s.mu.Lock()
					s.infos[c.RemoteAddr().String()] = info
					s.mu.Unlock()
				}
			}
		},
	}
	go h.Serve(l)
	t.Cleanup(func() { h.Close() })
	return s
}

// Exchange gets the body from a server and posts it back, over one connection that it opens in this thread's namespace. It
// returns the client's TCP_INFO and address.
func Exchange(to netip.AddrPort) (*TCPInfo, string, error) {
	d := net.Dialer{Timeout: Patience}
	c, err := d.Dial("tcp", to.String())
	if err != nil {
		return nil, "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(Patience))
	info, err := tcpInfo(c)
	if err != nil {
		return nil, "", err
	}
	r := bufio.NewReader(c)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		var body io.Reader
		if method == http.MethodPost {
			body = strings.NewReader(webBody)
		}
		req, err := http.NewRequest(method, "http://"+to.String()+"/", body)
		if err != nil {
			return nil, "", err
		}
		if err := req.Write(c); err != nil {
			return nil, "", fmt.Errorf("sending a %s: %w", method, err)
		}
		resp, err := http.ReadResponse(r, req)
		if err != nil {
			return nil, "", fmt.Errorf("answer to %s: %w", method, err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			return nil, "", fmt.Errorf("body of the answer to %s: %w", method, err)
		}
		if method == http.MethodGet && string(b) != webBody {
			return nil, "", fmt.Errorf("%d bytes of body, or wrong ones, not %d", len(b), len(webBody))
		}
		if want := fmt.Sprintln(len(webBody), error(nil)); method == http.MethodPost && string(b) != want {
			return nil, "", fmt.Errorf("the server has read %q", b)
		}
	}
	return info, c.LocalAddr().String(), nil
}
