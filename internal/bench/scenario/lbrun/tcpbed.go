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

// tcpBed is a client, a balancer and a host with all backends, each in a namespace of its own. Wires connect the client with the
// balancer, the balancer with the backends, and the backends with the client directly.
type tcpBed struct {
	client, under, backends *load.Netns
	// path goes from the client by the balancer to the backends. home and back are the client's and the backends' end of the
	// direct wire.
	path       peer.Path
	home, back load.End
	server     http.Server
	served     chan error
}

// netHome is the network of the wire between client and backends (RFC 5737); the first address is the client's.
var netHome = netip.MustParsePrefix("203.0.113.0/24")

// tcpClient is the client's address.
var tcpClient = netIn.Addr().Next().Next()

// newTCPBed makes everything but the balancer. The caller must call Close, also after an error.
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
			return b.client.Do(func() error { return setRouting(peer.Path{In: p.Source, Out: b.home}, nil) })
		},
		func() error {
			return b.backends.Do(func() error { return setRouting(peer.Path{In: p.Sink, Out: b.back}, nil) })
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

const (
	// bulkPage is the path of a page without end.
	bulkPage = "/bulk"
	// answerLen is the length of all other pages in bytes.
	answerLen = 1024
)

// serve starts the web server of the backends, on all their addresses. It answers with the address that the connection ended
// at.
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
		fmt.Fprint(w, at+strings.Repeat(" ", answerLen-len(at)))
	})
	mux.HandleFunc(bulkPage, func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 1<<18)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	b.server.Handler = mux
	go func() { b.served <- b.server.Serve(l) }()
	return nil
}

// Paths between client and backends.
const (
	directly = iota
	throughBalancer
)

// routes adds the routes of requests to the VIP and of answers to the client: directly or through the balancer.
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

// nearby adds neighbor entries for the backends at the balancer. All backends have the same Ethernet address.
func (b *tcpBed) nearby() error {
	for n := range backendCount {
		if err := b.path.Out.SetNeighbor(backendAddr(n), b.path.Sink.MAC); err != nil {
			return err
		}
	}
	return nil
}

// Close stops the web server and removes the namespaces.
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
