// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// probe probes a target once. Its error is for the user.
func probe(ctx context.Context, t Target) error {
	ctx, cancel := context.WithTimeout(ctx, t.Check.Timeout)
	defer cancel()
	at := t.Addr
	if t.Check.Port != 0 {
		at = netip.AddrPortFrom(at.Addr(), t.Check.Port)
	}
	network := "tcp"
	if t.Check.Type == UDP {
		network = "udp"
	}
	conn, err := dial(ctx, network, at, t.Mark)
	if err != nil {
		return failure(t.Check, err, false)
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline) // fails on closed connections only
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if tcp, ok := conn.(*net.TCPConn); ok {
		// Close with a reset, which frees the local port at once. With a FIN the port would stay in TIME_WAIT for a minute,
		// and a VIP with many backends would run out of ports.
		_ = tcp.SetLinger(0)
	}
	switch t.Check.Type {
	case HTTP, HTTPS:
		err = askHTTP(ctx, conn, t.Check, at)
	case UDP:
		err = askUDP(conn, t.Check)
	default:
		err = askTCP(conn, t.Check)
	}
	return failure(t.Check, err, true)
}

func dial(ctx context.Context, network string, at netip.AddrPort, mark uint32) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1}
	d.Control = func(_, _ string, raw syscall.RawConn) (err error) {
		if mark == 0 {
			return nil
		}
		failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark)) })
		if failed != nil {
			return failed
		}
		return err
	}
	// The meaning of "tcp" and "udp" depends on whether the host had IPv6 when the net package first looked.
	if at.Addr().Is4() {
		network += "4"
	} else {
		network += "6"
	}
	return d.DialContext(ctx, network, at.String())
}

func askTCP(conn net.Conn, c Check) error {
	if c.Send != "" {
		if _, err := io.WriteString(conn, c.Send); err != nil {
			return err
		}
	}
	if c.Expect == "" {
		return nil
	}
	answer := make([]byte, len(c.Expect))
	n, err := io.ReadFull(conn, answer)
	if n > 0 && string(answer[:n]) != c.Expect[:n] {
		return &unexpected{got: answer[:n], want: c.Expect}
	}
	return err
}

func askUDP(conn net.Conn, c Check) error {
	if _, err := io.WriteString(conn, c.Send); err != nil {
		return err
	}
	answer := make([]byte, max(len(c.Expect), 1))
	n, err := conn.Read(answer)
	switch {
	case err != nil && c.Expect == "" && isTimeout(err):
		return nil
	case err != nil:
		return err
	case string(answer[:n]) != c.Expect && c.Expect != "":
		return &unexpected{got: answer[:n], want: c.Expect}
	}
	return nil
}
