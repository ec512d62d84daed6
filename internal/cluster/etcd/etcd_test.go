// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/net/http2"

	"culvert/internal/cluster/etcd"
)

// A member that takes connections and is slow to greet is waited for: it has many to greet, and each that comes again is one more.
func TestSlowGreeting(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := make(chan net.Conn)
	go func() {
		defer close(taken)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			taken <- c
		}
	}()
	c, err := etcd.Dial(clientv3.Config{Endpoints: []string{"http://" + l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	first := <-taken
	defer first.Close()
	select {
	case again := <-taken:
		again.Close()
		t.Error("the client has come again before it was greeted")
	case <-time.After(etcd.DialTime + time.Second):
	}
}

// A member that takes a while for the answer to a sign of life keeps its clients.
func TestSlowSignOfLife(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := etcd.Dial(clientv3.Config{Endpoints: []string{"http://" + l.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	go func() { _, _ = client.Get(t.Context(), "key") }() // never answered: signs of life are for those who wait
	member, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	if _, err := io.ReadFull(member, make([]byte, len(http2.ClientPreface))); err != nil {
		t.Fatal(err)
	}
	frames := http2.NewFramer(member, member)
	if err := frames.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	asked := false
	for {
		frame, err := frames.ReadFrame()
		if asked && errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil {
			t.Fatalf("asked for a sign of life: %v, and the client has gone: %v", asked, err)
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = frames.WriteSettingsAck() // the next read has its error
			}
		case *http2.PingFrame:
			asked = true
			if err := member.SetReadDeadline(time.Now().Add(etcd.DialTime + time.Second)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
