// SPDX-License-Identifier: Apache-2.0

// Package unixsock listens on Unix sockets in culvert's run directory, and removes those that killed processes have left there.
package unixsock

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"culvert/internal/host/trust"
)

// Extension ends the paths of all sockets.
const Extension = ".sock"

// Socket is a Unix socket with the path that it has got.
type Socket struct {
	*net.UnixListener
	path string
	info fs.FileInfo
}

// Listen makes a socket at the first of the paths that no living process has. permit says who may use it.
func Listen(paths []string, permit func(path string) error) (*Socket, error) {
	if err := trust.MakeDir(trust.RunDir); err != nil {
		return nil, err
	}
	_ = Sweep()
	// The name comes when nobody else can connect any more, and somebody listens.
	fresh := fmt.Sprintf("%s.%d", paths[0], os.Getpid())
	_ = os.Remove(fresh)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	defer os.Remove(fresh)
	s := &Socket{UnixListener: l}
	if err = permit(fresh); err == nil {
		s.info, err = os.Lstat(fresh)
	}
	for _, s.path = range paths {
		if err != nil {
			break
		}
		if err = os.Link(fresh, s.path); err == nil {
			return s, nil
		}
		if errors.Is(err, fs.ErrExist) && s.path != paths[len(paths)-1] {
			err = nil
		}
	}
	l.Close()
	return nil, err
}

// Accept implements net.Listener. The remote address of a connection says who has connected.
func (s *Socket) Accept() (net.Conn, error) {
	c, err := s.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return &conn{c, peerOf(c)}, nil
}

// conn is a connection of a known process.
type conn struct {
	*net.UnixConn
	peer Peer
}

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.peer }

// Peer is a process that has connected, "" if it is not known. It is an address.
type Peer string

// Network implements net.Addr.
func (Peer) Network() string { return "unix" }

// String implements net.Addr.
func (p Peer) String() string { return string(p) }

// peerOf says who has connected: user and process, as they were then.
func peerOf(c *net.UnixConn) Peer {
	raw, err := c.SyscallConn()
	if err != nil {
		return ""
	}
	var peer Peer
	_ = raw.Control(func(fd uintptr) {
		if who, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			peer = Peer(fmt.Sprintf("uid %d pid %d", who.Uid, who.Pid))
		}
	})
	return peer
}

// Remove removes the socket unless another process has its path by now.
func (s *Socket) Remove() {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.info) {
		_ = os.Remove(s.path)
	}
	s.Close()
}

// Sweep removes the sockets on which nobody listens: those of processes that were killed.
func Sweep() error {
	paths, err := filepath.Glob(filepath.Join(trust.RunDir, "*"+Extension))
	for _, path := range paths {
		if !left(path) {
			continue
		}
		if e := os.Remove(path); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("remove the socket of a culvert process that was killed: %w", e))
		}
	}
	return err
}

// left tells whether a socket is of a process that was killed.
func left(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, unix.ECONNREFUSED)
}
