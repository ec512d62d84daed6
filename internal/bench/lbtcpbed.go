// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// lbTCPBed is a client, a balancer and a host that is all backends, each in a namespace of its own, in a row. Another wire
// leads from the backends to the client directly.
type lbTCPBed struct {
	client, under, backends *Space
	// path leads from the client to the backends. home and back are the ends of the other wire.
	path       Path
	home, back End
	server     http.Server
	served     chan error
}

// lbNetHome is the network of the wire between client and backends (RFC 5737); the first address is the client's.
var lbNetHome = netip.MustParsePrefix("203.0.113.0/24")

// lbTCPClient is the client's address.
var lbTCPClient = lbNetIn.Addr().Next().Next()

// newLBTCPBed makes all but the balancer. Close is called after it, even when it failed.
func newLBTCPBed() (b *lbTCPBed, err error) {
	b = &lbTCPBed{served: make(chan error, 1)}
	p := &b.path
	prefix := func(a netip.Addr, of netip.Prefix) netip.Prefix { return netip.PrefixFrom(a, of.Bits()) }
	own, far := lbNetHome.Addr().Next(), lbNetHome.Addr().Next().Next()
	steps := []func() error{
		func() error { b.client, err = NewSpace(); return err },
		func() error { b.under, err = NewSpace(); return err },
		func() error { b.backends, err = NewSpace(); return err },
		func() error { p.Source, p.In, err = NewWire(b.client, b.under, "cvsource", "cvin", 0); return err },
		func() error { p.Sink, p.Out, err = NewWire(b.backends, b.under, "cvsink", "cvout", 0); return err },
		func() error { b.home, b.back, err = NewWire(b.client, b.backends, "cvhome", "cvback", 0); return err },
		func() error { return b.client.Do(func() error { return lbSet(Path{In: p.Source, Out: b.home}, nil) }) },
		func() error { return b.backends.Do(func() error { return lbSet(Path{In: p.Sink, Out: b.back}, nil) }) },
		func() error { return p.Source.Assign(prefix(lbTCPClient, lbNetIn)) },
		func() error { return b.home.Assign(prefix(own, lbNetHome)) },
		func() error { return b.back.Assign(prefix(far, lbNetHome)) },
		func() error { return b.back.Assign(prefix(lbVIP.Addr(), netip.PrefixFrom(lbVIP.Addr(), 32))) },
	}
	for n := range lbBackends {
		steps = append(steps, func() error { return p.Sink.Assign(prefix(lbBackend(n), lbNetOut)) })
	}
	for _, step := range append(steps, b.serve) {
		if err := step(); err != nil {
			return b, err
		}
	}
	return b, nil
}

// lbPage is where the backends send for as long as somebody reads, and lbAnswer the length of what they say elsewhere.
const (
	lbPage   = "/bulk"
	lbAnswer = 1024
)

// serve has the backends answer on all their addresses: with the one that was asked.
func (b *lbTCPBed) serve() error {
	var l net.Listener
	err := b.backends.Do(func() (err error) {
		l, err = net.Listen("tcp4", fmt.Sprintf(":%d", lbVIP.Port()))
		return err
	})
	if err != nil {
		return fmt.Errorf("serve as the backends: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		at := r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()
		fmt.Fprint(w, at+strings.Repeat(" ", lbAnswer-len(at)))
	})
	mux.HandleFunc(lbPage, func(w http.ResponseWriter, _ *http.Request) {
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
	lbDirectly = iota
	lbThroughBalancer
)

// routes leads the client's packets by the balancer, or to the backends directly, and the answers.
func (b *lbTCPBed) routes(requests, answers int) error {
	vip, client := netip.PrefixFrom(lbVIP.Addr(), 32), netip.PrefixFrom(lbTCPClient, 32)
	own, far := lbNetHome.Addr().Next(), lbNetHome.Addr().Next().Next()
	by, next := b.home, far
	if requests == lbThroughBalancer {
		by, next = b.path.Source, lbNetIn.Addr().Next()
	}
	if err := addRoute(by, vip, next); err != nil {
		return err
	}
	by, next = b.back, own
	if answers == lbThroughBalancer {
		by, next = b.path.Sink, lbNetOut.Addr().Next()
	}
	return addRoute(by, client, next)
}

// nearby has the balancer know the backends by the Ethernet address that they all have.
func (b *lbTCPBed) nearby() error {
	for n := range lbBackends {
		if err := b.path.Out.Neighbour(lbBackend(n), b.path.Sink.MAC); err != nil {
			return err
		}
	}
	return nil
}

// Close removes everything.
func (b *lbTCPBed) Close() error {
	var err error
	if b.server.Handler != nil {
		err = b.server.Close()
		if served := <-b.served; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
	}
	for _, s := range []*Space{b.client, b.under, b.backends} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}
