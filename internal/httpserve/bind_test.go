// SPDX-License-Identifier: Apache-2.0

package httpserve

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBind listens at addresses that overlap with that of a listener which is about to be closed. Both accept connections. Without
// that listener, or beside one of somebody else, the address is in use, before and after.
func TestBind(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	accepts := func(l net.Listener, address string) {
		t.Helper()
		c, err := net.Dial("tcp", address)
		must(err)
		defer c.Close()
		s, err := l.Accept()
		must(err)
		s.Close()
	}
	inUse := func(address string, own ...net.Listener) {
		t.Helper()
		l, err := Bind(address, own...)
		if err == nil {
			l.Close()
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("%s beside %d listeners: %v, want that it is in use", address, len(own), err)
		}
	}
	for _, hosts := range [][2]string{{"127.0.0.1", "0.0.0.0"}, {"127.0.0.1", ""}, {"127.0.0.1", "[::]"}, {"0.0.0.0", "127.0.0.1"}, {"", "127.0.0.1"}, {"[::1]", ""}} {
		former, err := Bind(hosts[0] + ":0")
		must(err)
		_, port, err := net.SplitHostPort(former.Addr().String())
		must(err)
		address := hosts[1] + ":" + port
		inUse(address)
		inUse(address, nil)
		next, err := Bind(address, nil, former)
		if err != nil {
			t.Errorf("%s beside %s: %v", address, former.Addr(), err)
			former.Close()
			continue
		}
		inUse(address)
		inUse(hosts[0] + ":" + port)
		must(former.Close())
		inUse(address, former)
		if hosts[0] != "[::1]" {
			accepts(next, "127.0.0.1:"+port)
		}
		must(next.Close())
	}

	former, err := Bind("127.0.0.1:0")
	must(err)
	defer former.Close()
	_, port, err := net.SplitHostPort(former.Addr().String())
	must(err)
	other, err := net.Listen("tcp", "127.0.0.2:"+port)
	must(err)
	defer other.Close()
	inUse("0.0.0.0:"+port, former)
	accepts(former, former.Addr().String())
}
