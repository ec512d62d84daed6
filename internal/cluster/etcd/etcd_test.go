// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"net"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster/etcd"
)

// A member that takes connections and is slow to greet is waited for: it has many to greet, and each that comes again is one more.
func TestSlowGreeting(t *testing.T) {
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
