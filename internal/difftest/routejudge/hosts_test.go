// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"culvert/internal/host/netdev"
	"culvert/internal/route"
)

// host is a network namespace with an IP stack, at the far end of a router's port.
type host struct {
	ns     netns.NsHandle
	v4, v6 netip.Addr
}

// newHost moves the far end of a port to a new host. The router has to resolve the host's MAC address.
func newHost(w *twin, port int) *host {
	t := w.t
	t.Helper()
	h := &host{v4: host4(port, 77), v6: host6(port, 0x77)}
	var err error
	h.ns, err = netns.New()
	check(t, err)
	t.Cleanup(func() { h.ns.Close() })
	check(t, netns.Set(w.world))
	q, err := netlink.LinkByIndex(w.far[port])
	check(t, err)
	check(t, netlink.LinkSetNsFd(q, int(h.ns)))
	check(t, netns.Set(h.ns))
	name := farName(port)
	w.ip(fmt.Sprintf("addr add %v/24 dev %s\naddr add %v/64 nodad dev %s\nlink set %s up\n", h.v4, name, h.v6, name, name) +
		fmt.Sprintf("route add default via %v\nroute add default via %v\n", host4(port, 1), host6(port, 1)))
	// Turn checksum offload off: a veth passes packets on without their checksum, and XDP would forward them like that.
	for cmd, on := range map[uint32]uint32{unix.ETHTOOL_STXCSUM: 0, unix.ETHTOOL_SRXCSUM: 0, unix.ETHTOOL_SGRO: 1} {
		_, err := netdev.Ethtool(name, cmd, on)
		check(t, err)
	}
	w.enter()
	return h
}

// do runs f on a thread of its own in the host's network namespace.
func (h *host) do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked
		err := netns.Set(h.ns)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// TestHosts sends UDP and TCP through the router, between sockets of the kernel.
func TestHosts(t *testing.T) {
	pinToCPU(t)
	w := newTwin(t)
	a, b := newHost(w, 0), newHost(w, 1)
	v := attachTo(w, smallMirror)
	v.startControlPlane(route.Options{})
	for i := range 2 {
		w.awaitUp(i)
	}
	for _, to := range []netip.Addr{b.v4, b.v6} {
		for name, talk := range map[string]func(a, b *host, to netip.Addr) error{"datagrams": datagrams, "a transfer": transfer} {
			before := v.reasons()
			if err := talk(a, b, to); err != nil {
				t.Errorf("%s to %v: %v", name, to, err)
			}
			after := v.reasons()
			if n := after["fwd route"] - before["fwd route"]; n < 500 {
				t.Errorf("%s to %v: only %d packets were forwarded by the mirror: %v", name, to, n, after)
			}
		}
	}
	t.Log(v.reasons())
}

// datagrams exchanges 1000 UDP packets with an echo server, one at a time. None may be lost.
func datagrams(a, b *host, to netip.Addr) error {
	var server, client *net.UDPConn
	err := errors.Join(b.do(func() (err error) {
		server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 0)))
		return err
	}))
	if err != nil {
		return err
	}
	defer server.Close()
	go func() {
		buf := make([]byte, 2000)
		for {
			n, from, err := server.ReadFromUDPAddrPort(buf)
			if err != nil {
				return // closed
			}
			_, _ = server.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	dial := func() error {
		return a.do(func() (err error) {
			client, err = net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
			return err
		})
	}
	// A kernel drops packets that wait for a neighbor which is slow to answer. So send the first datagram until it is answered.
	// Use another port each time, so that a late answer is not taken for a later one.
	for end := time.Now().Add(patience); ; {
		if err := dial(); err != nil {
			return err
		}
		_, _ = client.Write([]byte("first"))
		_ = client.SetReadDeadline(time.Now().Add(time.Second))
		_, err := client.Read(make([]byte, 10))
		_ = client.Close()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("the first datagram: %w", err)
		}
	}
	if err := dial(); err != nil {
		return err
	}
	defer client.Close()
	for n := range 1000 {
		question := bytes.Repeat([]byte{byte(n), byte(n >> 8)}, 1+n%600)
		if _, err := client.Write(question); err != nil {
			return err
		}
		_ = client.SetReadDeadline(time.Now().Add(patience))
		answer := make([]byte, 2000)
		got, err := client.Read(answer)
		if err != nil {
			return fmt.Errorf("datagram %d: %w", n, err)
		}
		if !bytes.Equal(answer[:got], question) {
			return fmt.Errorf("datagram %d came back as %x", n, answer[:got])
		}
	}
	return nil
}

// transfer sends 4 MiB over TCP.
func transfer(a, b *host, to netip.Addr) error {
	var l net.Listener
	err := b.do(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(to, 0).String())
		return err
	})
	if err != nil {
		return err
	}
	defer l.Close()
	var c net.Conn
	err = a.do(func() (err error) {
		c, err = net.DialTimeout("tcp", l.Addr().String(), patience)
		return err
	})
	if err != nil {
		return err
	}
	defer c.Close()
	type result struct {
		sum [32]byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		s, err := l.Accept()
		if err != nil {
			done <- result{err: err}
			return
		}
		defer s.Close()
		_ = s.SetDeadline(time.Now().Add(patience))
		got, err := io.ReadAll(s)
		done <- result{sha256.Sum256(got), err}
	}()
	data := newGenerator(13).bytes(4 << 20)
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(data); err != nil {
		return err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	r := <-done
	if r.err == nil && r.sum != sha256.Sum256(data) {
		r.err = errors.New("the received data differ from the sent data")
	}
	return r.err
}
