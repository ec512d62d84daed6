// SPDX-License-Identifier: Apache-2.0

package lbrun

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"culvert/internal/bench/load"
	"culvert/internal/bench/peer"
)

// tcpBed is a client, a balancer and a host that is all backends, each in a namespace of its own, in a row. Another wire
// leads from the backends to the client directly.
type tcpBed struct {
	client, under, backends *load.Netns
	// path leads from the client to the backends. home and back are the ends of the other wire.
	path       peer.Path
	home, back load.End
	server     http.Server
	served     chan error
}

// netHome is the network of the wire between client and backends (RFC 5737); the first address is the client's.
var netHome = netip.MustParsePrefix("203.0.113.0/24")

// tcpClient is the client's address.
var tcpClient = netIn.Addr().Next().Next()

// newTCPBed makes all but the balancer. Close is called after it, even when it failed.
func newTCPBed() (b *tcpBed, err error) {
	b = &tcpBed{served: make(chan error, 1)}
	p := &b.path
	prefix := func(a netip.Addr, of netip.Prefix) netip.Prefix { return netip.PrefixFrom(a, of.Bits()) }
	own, far := netHome.Addr().Next(), netHome.Addr().Next().Next()
	steps := []func() error{
		func() error { b.client, err = load.NewNetns(); return err },
		func() error { b.under, err = load.NewNetns(); return err },
		func() error { b.backends, err = load.NewNetns(); return err },
		func() error { p.Source, p.In, err = load.NewWire(b.client, b.under, "cvsource", "cvin", 0); return err },
		func() error { p.Sink, p.Out, err = load.NewWire(b.backends, b.under, "cvsink", "cvout", 0); return err },
		func() error {
			b.home, b.back, err = load.NewWire(b.client, b.backends, "cvhome", "cvback", 0)
			return err
		},
		func() error {
			return b.client.Do(func() error { return setUp(peer.Path{In: p.Source, Out: b.home}, nil) })
		},
		func() error {
			return b.backends.Do(func() error { return setUp(peer.Path{In: p.Sink, Out: b.back}, nil) })
		},
		func() error { return p.Source.Assign(prefix(tcpClient, netIn)) },
		func() error { return b.home.Assign(prefix(own, netHome)) },
		func() error { return b.back.Assign(prefix(far, netHome)) },
		func() error { return b.back.Assign(prefix(vip4.Addr(), netip.PrefixFrom(vip4.Addr(), 32))) },
	}
	for n := range backendCount {
		steps = append(steps, func() error { return p.Sink.Assign(prefix(backendAddr(n), netOut)) })
	}
	for _, step := range append(steps, b.serve) {
		if err := step(); err != nil {
			return b, err
		}
	}
	return b, nil
}

// page is where the backends send for as long as somebody reads, and answerText the length of what they say elsewhere.
const (
	page       = "/bulk"
	answerText = 1024
)

// serve has the backends answer on all their addresses: with the one that was asked.
func (b *tcpBed) serve() error {
	var l net.Listener
	err := b.backends.Do(func() (err error) {
		l, err = net.Listen("tcp4", fmt.Sprintf(":%d", vip4.Port()))
		return err
	})
	if err != nil {
		return fmt.Errorf("serve as the backends: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		at := r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()
		fmt.Fprint(w, at+strings.Repeat(" ", answerText-len(at)))
	})
	mux.HandleFunc(page, func(w http.ResponseWriter, _ *http.Request) {
		some := make([]byte, 1<<18)
		for {
			if _, err := w.Write(some); err != nil {
				return
			}
		}
	})
	b.server.Handler = mux
	go func() { b.served <- b.server.Serve(l) }()
	return nil
}

// Ways on which answers go.
const (
	directly = iota
	throughBalancer
)

// routes leads the client's packets by the balancer, or to the backends directly, and the answers.
func (b *tcpBed) routes(requests, answers int) error {
	vip, client := netip.PrefixFrom(vip4.Addr(), 32), netip.PrefixFrom(tcpClient, 32)
	own, far := netHome.Addr().Next(), netHome.Addr().Next().Next()
	by, next := b.home, far
	if requests == throughBalancer {
		by, next = b.path.Source, netIn.Addr().Next()
	}
	if err := addRoute(by, vip, next); err != nil {
		return err
	}
	by, next = b.back, own
	if answers == throughBalancer {
		by, next = b.path.Sink, netOut.Addr().Next()
	}
	return addRoute(by, client, next)
}

// nearby has the balancer know the backends by the Ethernet address that they all have.
func (b *tcpBed) nearby() error {
	for n := range backendCount {
		if err := b.path.Out.SetNeighbor(backendAddr(n), b.path.Sink.MAC); err != nil {
			return err
		}
	}
	return nil
}

// Close removes everything.
func (b *tcpBed) Close() error {
	var err error
	if b.server.Handler != nil {
		err = b.server.Close()
		if served := <-b.served; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
	}
	for _, s := range []*load.Netns{b.client, b.under, b.backends} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}
