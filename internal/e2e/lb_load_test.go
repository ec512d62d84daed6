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
	// kind, vip and backend say what a load has the connection for.
	kind, vip, backend string
	timeout            time.Duration
	// steps counts steps of stepSize bytes that were moved.
	steps atomic.Uint64
	left  int // bytes until the next step
	// spared connections may break. finishing ones end after what they are doing.
	spared, finishing atomic.Bool
	quit              chan struct{}
	done              chan struct{}
	err               error
}

const (
	// stepSize is how many bytes are a step, and pace the least time that it takes.
	stepSize = 16 << 10
	pace     = 20 * time.Millisecond
	// socketBuffer is small, so that a connection has received little of what it has not read.
	socketBuffer = 64 << 10
	// farther is how many steps show that data flow: more than all buffers hold.
	farther = 24
	// largeFile is the length of each transfer.
	largeFile = 4 << 20
	// clock is the format of times in the balancers' logs.
	clock = "15:04:05.000Z"
)

// lastPort is the last port that the client has sent from. Each connection has its own, below the range of the kernel. A
// connection that the server resets leaves its flow in a balancer's table, since balancers do not see the reset. A new
// connection from the same port would go to that flow's backend, whatever the rings say.
var lastPort atomic.Int32

func init() { lastPort.Store(9999) }

// dialWeb connects the client to a VIP.
func dialWeb(l *lab.Lab, vip netip.AddrPort) (*webConn, error) {
	return dialWebWithin(l, vip, patience)
}

// dialWebWithin is dialWeb with a timeout for each thing that the connection does.
func dialWebWithin(l *lab.Lab, vip netip.AddrPort, timeout time.Duration) (*webConn, error) {
	port := int(lastPort.Add(1))
	if port >= 32768 {
		return nil, errors.New("no port is left for another connection of the client")
	}
	return dialWebFrom(l, vip, timeout, port)
}

// dialWebFrom is dialWebWithin from a port of the client.
func dialWebFrom(l *lab.Lab, vip netip.AddrPort, timeout time.Duration, port int) (*webConn, error) {
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

// retransmissions returns how many segments the client has retransmitted.
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

// request sends a request on the connection. The caller reads the answer's body to its end.
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

// text sends a request and returns the body of the answer without white space around it.
func (c *webConn) text(method, path string, body io.Reader, length int64) (string, error) {
	resp, err := c.request(method, path, body, length)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(resp.Body)
	return strings.TrimSpace(string(b)), err
}

// name returns the name of the backend, which is its answer to GET /.
func (c *webConn) name() (string, error) { return c.text("GET", "/", nil, 0) }

// paced is called for each n bytes that move in either direction. It counts steps, waits pace after each, and renews the
// deadline.
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

// download gets a large file and compares it with what it should be.
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

// same returns an error if the connection does not have the same backend any more.
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

// upload sends a large file. The answer has the checksum of what has arrived.
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

// kinds are the functions that connections of a load call again and again.
var kinds = map[string]func(*webConn) error{"download": (*webConn).download, "upload": (*webConn).upload, "keep-alive": (*webConn).ask}

// run calls the function of the connection's kind until it is to finish.
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

// finish waits until the connection has ended what it is doing, and returns its error.
func (c *webConn) finish() error {
	if !c.finishing.Swap(true) {
		close(c.quit)
	}
	<-c.done
	return c.err
}

// webLoad has connections of every kind to every backend over both IP versions, and opens new ones all the time.
type webLoad struct {
	b     *balanced
	conns []*webConn
	// refusals is set while new connections may fail.
	refusals atomic.Bool
	opened   atomic.Uint64
	quit     chan struct{}
	done     chan error
}

// load starts a webLoad. It ends with the test.
func (b *balanced) load() *webLoad {
	b.Helper()
	w := &webLoad{b: b, quit: make(chan struct{}), done: make(chan error, 1)}
	for _, vip := range b.webVIPs() {
		for kind := range kinds {
			missing := map[string]bool{}
			for _, name := range providers {
				missing[name] = true
			}
			b.wait("connections to all backends", func() bool {
				c, err := dialWeb(b.lab, vip)
				check(b.T, err)
				c.kind = kind
				c.backend, err = c.name()
				check(b.T, err)
				if !missing[c.backend] {
					c.Close()
					return false
				}
				delete(missing, c.backend)
				w.conns = append(w.conns, c)
				go c.run()
				return len(missing) == 0
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

// moves waits until all connections have made progress, and fails the test if they do not.
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
				continue // finish reports its error
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

// spare lets connections to a backend break.
func (w *webLoad) spare(backend string) {
	for _, c := range w.conns {
		if c.backend == backend {
			c.spared.Store(true)
		}
	}
}

// finish ends the connections to the given backends after what they are doing, and reports those that failed.
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

// stop closes all connections, also those that are not finished.
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
