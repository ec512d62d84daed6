// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"culvert/internal/lab"
)

// webConn is a connection of the client to a VIP.
type webConn struct {
	net.Conn
	r *bufio.Reader
	// What a load has one for.
	kind, vip, backend string
	timeout            time.Duration
	// steps counts the progress of the connection, in steps of stepSize bytes.
	steps atomic.Uint64
	left  int // bytes until the next step
	// spared connections may break, finishing ones are to end soon.
	spared, finishing atomic.Bool
	quit              chan struct{}
	done              chan struct{}
	err               error
}

const (
	// stepSize is how many bytes are a step, and pace how long it takes at least.
	stepSize = 16 << 10
	pace     = 20 * time.Millisecond
	// socketBuffer is small, so that little of what a connection reads was received before.
	socketBuffer = 64 << 10
	// farther is how many steps show that data flow: several buffers.
	farther = 24
	// largeFile is how long each transfer is.
	largeFile = 4 << 20
	// clock is how times look, to be found in the balancers' logs.
	clock = "15:04:05.000Z"
)

// lastPort is the last port that the client has sent from. Each connection has one of its own, below those that the kernel
// gives: one that the server has reset, of which a balancer hears nothing, leaves a flow behind, and another one from
// the same port would go where that went, whatever the rings say.
var lastPort atomic.Int32

func init() { lastPort.Store(9999) }

// dialWeb connects the client to a VIP.
func dialWeb(l *lab.Lab, vip netip.AddrPort) (*webConn, error) {
	return dialWebWithin(l, vip, patience)
}

// dialWebWithin is dialWeb for a connection that has so long for everything it does.
func dialWebWithin(l *lab.Lab, vip netip.AddrPort, timeout time.Duration) (*webConn, error) {
	port := int(lastPort.Add(1))
	if port >= 32768 {
		return nil, errors.New("no port is left for another connection of the client")
	}
	dialer := net.Dialer{Timeout: timeout, LocalAddr: &net.TCPAddr{Port: port}, Control: func(_, _ string, raw syscall.RawConn) (err error) {
		return errors.Join(raw.Control(func(fd uintptr) {
			err = errors.Join(
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, socketBuffer),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, socketBuffer))
		}), err)
	}}
	c := &webConn{vip: vip.String(), timeout: timeout, quit: make(chan struct{}), done: make(chan struct{})}
	err := l.Do("client", func() (err error) { // the socket is made by this thread
		c.Conn, err = dialer.Dial("tcp", c.vip)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.r = bufio.NewReader(c.Conn)
	return c, nil
}

// client returns the client's address and port.
func (c *webConn) client() netip.AddrPort { return c.LocalAddr().(*net.TCPAddr).AddrPort() }

// retransmissions is how often the client has sent something again.
func (c *webConn) retransmissions() (n uint32, err error) {
	raw, err := c.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Total_retrans
		}
	})
	return n, errors.Join(err, failed)
}

// request sends a request on the connection. The answer's body is to be read to its end.
func (c *webConn) request(method, path string, body io.Reader, length int64) (*http.Response, error) {
	_ = c.SetDeadline(time.Now().Add(c.timeout))
	req, err := http.NewRequest(method, "http://"+c.vip+path, body)
	if err != nil {
		return nil, err
	}
	req.ContentLength = length
	if err := req.Write(c.Conn); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.r, req)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return resp, err
}

// text is the answer to a request, without white space around.
func (c *webConn) text(method, path string, body io.Reader, length int64) (string, error) {
	resp, err := c.request(method, path, body, length)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(resp.Body)
	return strings.TrimSpace(string(b)), err
}

// name asks for the name of the backend.
func (c *webConn) name() (string, error) { return c.text("GET", "/", nil, 0) }

// paced is called for what moves in either direction: it counts, takes its time, and is patient only for so long.
func (c *webConn) paced(n int) {
	c.left -= n
	if c.left > 0 {
		return
	}
	c.left = stepSize
	c.steps.Add(1)
	_ = c.SetDeadline(time.Now().Add(c.timeout))
	if !c.finishing.Load() {
		select {
		case <-c.quit:
		case <-time.After(pace):
		}
	}
}

// pacedReader reads for a connection.
type pacedReader struct {
	io.Reader
	c *webConn
}

func (r pacedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p[:min(len(p), stepSize)])
	r.c.paced(n)
	return n, err
}

// download gets a large file and compares it.
func (c *webConn) download() error {
	resp, err := c.request("GET", fmt.Sprintf("/bytes/%d", largeFile), nil, 0)
	if err != nil {
		return err
	}
	want, buf, other := &lab.WebBytes{}, make([]byte, stepSize), make([]byte, stepSize)
	total := 0
	for {
		n, err := pacedReader{resp.Body, c}.Read(buf)
		_, _ = want.Read(other[:n])
		if !bytes.Equal(buf[:n], other[:n]) {
			return fmt.Errorf("wrong bytes at %d", total)
		}
		total += n
		switch {
		case errors.Is(err, io.EOF) && total == largeFile:
			return c.same()
		case err != nil:
			return fmt.Errorf("after %d bytes: %w", total, err)
		}
	}
}

// same checks that the connection still has the same backend.
func (c *webConn) same() error {
	name, err := c.name()
	if err == nil && name != c.backend {
		err = fmt.Errorf("%s answers where %s has answered", name, c.backend)
	}
	return err
}

// largeSum is the checksum of a large file.
var largeSum = sync.OnceValue(func() string {
	sum := sha256.New()
	_, _ = io.CopyN(sum, &lab.WebBytes{}, largeFile)
	return fmt.Sprintf("%x", sum.Sum(nil))
})

// upload sends a large file, whose checksum comes back.
func (c *webConn) upload() error {
	got, err := c.text("POST", "/", pacedReader{io.LimitReader(&lab.WebBytes{}, largeFile), c}, largeFile)
	if want := fmt.Sprintf("%s %d %s", c.backend, largeFile, largeSum()); err == nil && got != want {
		err = fmt.Errorf("the answer is %q, want %q", got, want)
	}
	return err
}

// ask sends a small request.
func (c *webConn) ask() error {
	c.paced(stepSize)
	return c.same()
}

// kinds are what a load has connections for.
var kinds = map[string]func(*webConn) error{"download": (*webConn).download, "upload": (*webConn).upload, "keep-alive": (*webConn).ask}

// run does what the connection is for again and again, until it is to finish.
func (c *webConn) run() {
	defer close(c.done)
	defer c.Close()
	for !c.finishing.Load() {
		if c.err = kinds[c.kind](c); c.err != nil {
			c.err = fmt.Errorf("at %s: %w", time.Now().UTC().Format(clock), c.err)
			return
		}
	}
}

// finish has the connection end what it is at, and returns how that went.
func (c *webConn) finish() error {
	if !c.finishing.Swap(true) {
		close(c.quit)
	}
	<-c.done
	return c.err
}

// webLoad is many connections to the VIPs, of every kind to every backend over both families, and new ones all the time.
type webLoad struct {
	b     *balanced
	conns []*webConn
	// refusals says that new connections may fail for now.
	refusals atomic.Bool
	opened   atomic.Uint64
	quit     chan struct{}
	done     chan error
}

// load starts connections.
func (b *balanced) load() *webLoad {
	b.Helper()
	w := &webLoad{b: b, quit: make(chan struct{}), done: make(chan error, 1)}
	for _, vip := range b.webVIPs() {
		for kind := range kinds {
			wanted := map[string]bool{}
			for _, name := range providers {
				wanted[name] = true
			}
			b.wait("connections to all backends", func() bool {
				c, err := dialWeb(b.lab, vip)
				check(b.T, err)
				c.kind = kind
				c.backend, err = c.name()
				check(b.T, err)
				if !wanted[c.backend] {
					c.Close()
					return false
				}
				delete(wanted, c.backend)
				w.conns = append(w.conns, c)
				go c.run()
				return len(wanted) == 0
			})
		}
	}
	go func() { w.done <- w.open() }()
	b.Cleanup(func() { w.stop() })
	w.moves()
	return w
}

// open makes new connections until the load ends.
func (w *webLoad) open() error {
	for n := 0; ; n++ {
		select {
		case <-w.quit:
			return nil
		case <-time.After(pace):
		}
		mayFail := w.refusals.Load()
		vip := w.b.webVIPs()[n%2]
		timeout := patience
		if mayFail {
			timeout = time.Second // nothing may come back
		}
		c, err := dialWebWithin(w.b.lab, vip, timeout)
		if err == nil {
			_, err = c.name()
			c.Close()
		}
		if err != nil && !mayFail && !w.refusals.Load() {
			return fmt.Errorf("a new connection to %s at %s: %w", vip, time.Now().UTC().Format(clock), err)
		}
		w.opened.Add(1)
	}
}

// moves waits until all connections have made progress, and reports those that do not.
func (w *webLoad) moves() {
	w.b.Helper()
	before := make([]uint64, len(w.conns))
	for n, c := range w.conns {
		before[n] = c.steps.Load()
	}
	opened := w.opened.Load()
	w.b.wait("connections to move on", func() bool {
		for n, c := range w.conns {
			select {
			case <-c.done:
				continue // how is looked at in the end
			default:
			}
			if c.steps.Load() < before[n]+farther && !c.spared.Load() {
				return false
			}
		}
		select {
		case err := <-w.done:
			w.done <- err
			return true
		default:
			return w.opened.Load() >= opened+4
		}
	})
}

// spare says that connections to a backend may break.
func (w *webLoad) spare(backend string) {
	for _, c := range w.conns {
		if c.backend == backend {
			c.spared.Store(true)
		}
	}
}

// finish ends the connections to some backends, or to all: what is under way is completed.
func (w *webLoad) finish(backends ...string) {
	w.b.Helper()
	for _, c := range w.conns {
		for _, name := range backends {
			if c.backend == name && !c.spared.Load() && !c.finishing.Swap(true) {
				close(c.quit)
			}
		}
	}
	for _, c := range w.conns {
		for _, name := range backends {
			if c.backend != name || c.spared.Load() {
				continue
			}
			if err := c.finish(); err != nil {
				w.b.Errorf("%s of %s from %s by %s: %v", c.kind, c.vip, c.backend, c.LocalAddr(), err)
			}
		}
	}
}

// end finishes all connections. It may be called more than once.
func (w *webLoad) end() {
	w.b.Helper()
	w.finish(providers...)
	w.stop()
}

// stop breaks off what is not finished.
func (w *webLoad) stop() {
	select {
	case <-w.quit:
		return
	default:
		close(w.quit)
	}
	if err := <-w.done; err != nil {
		w.b.Error(err)
	}
	w.done <- nil
	for _, c := range w.conns {
		c.Close()
		_ = c.finish()
	}
}
