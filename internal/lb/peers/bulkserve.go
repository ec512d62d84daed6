// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"culvert/internal/lb/lbplane"
)

// serveWithin bounds an answer to a peer that asks for the flows of this machine.
const serveWithin = 30 * time.Second

// serveBulk answers peers that ask for the flows of this machine, until the service ends.
func (s *Service) serveBulk() {
	var busy atomic.Int32
	for {
		conn, err := s.sockets.tcp.AcceptTCP()
		if s.stopped() {
			if err == nil {
				conn.Close()
			}
			return
		}
		if err != nil {
			s.fail("connections of the load balancer's peers are not accepted", err)
			time.Sleep(turn) // an error that stays must not take a CPU
			continue
		}
		// A peer may ask again while the answer before is on its way.
		if p := s.peerOf(conn); p == nil || busy.Load() >= int32(2*len(s.o.Peers)) {
			conn.Close()
			continue
		}
		busy.Add(1)
		s.running.Go(func() {
			defer busy.Add(-1)
			defer conn.Close()
			s.answer(conn)
		})
	}
}

// peerOf returns the peer with the address of the other end, nil for a stranger.
func (s *Service) peerOf(conn net.Conn) *peer {
	from := conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.peers {
		if p.at.Addr() == from {
			return p
		}
	}
	s.counts.strangers++
	return nil
}

// answer sends all flows that the rings would give another backend, also those that other peers have told.
func (s *Service) answer(conn *net.TCPConn) {
	stop := make(chan struct{})
	defer close(stop)
	s.running.Go(func() { // ends the answer with the service
		select {
		case <-s.done:
			_ = conn.SetDeadline(time.Unix(1, 0))
		case <-stop:
		}
	})
	_ = conn.SetDeadline(time.Now().Add(serveWithin))
	p := s.peerOf(conn)
	err := s.answerTLS(conn, p)
	if err == nil || s.stopped() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	why := fmt.Sprintf("it asked for the flows of this machine: %v", err)
	if p.wrong != why {
		s.o.Log.Warn("a peer of the load balancer was not told the flows of this machine", "peer", p.at, "err", err)
	}
	p.wrong, p.wrongAt = why, time.Now()
}

func (s *Service) answerTLS(raw net.Conn, p *peer) error {
	cert, ca, err := s.o.Bulk.Load()
	if err != nil {
		return err
	}
	conn := tls.Server(raw, &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca,
	})
	c := newCodec(s.o.Key[:])
	h, _, err := readFrame(conn, c)
	switch {
	case err != nil:
		return err
	case h.kind != kindAsk || h.sender.Addr() != p.at.Addr():
		return fmt.Errorf("it asks kind %d as %s", h.kind, h.sender)
	}
	flows, err := s.all()
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(conn, 1<<14)
	sent := uint32(len(flows))
	for len(flows) > 0 {
		b, n := appendFlows(s.bulkHeader(kindFlows), flows)
		flows = flows[n:]
		if err := writeFrame(out, c, b); err != nil {
			return err
		}
	}
	if err := writeFrame(out, c, binary.BigEndian.AppendUint32(s.bulkHeader(kindEnd), sent)); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return conn.Close()
}

func (s *Service) bulkHeader(kind uint8) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.header(kind)
}

// all returns all flows that the rings would give another backend: at most as many as are told, and as are kept of peers.
func (s *Service) all() ([]toldFlow, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.x == nil || s.names == nil {
		return nil, nil // this machine has just started itself
	}
	open, err := s.x.Follow()
	if err != nil || !open {
		return nil, err
	}
	var items []item
	limit := 2 * s.limit()
	s.x.Deviating(func(k lbplane.FlowKey, h lbplane.Held) {
		if len(items) < limit {
			items = append(items, item{k, h})
		}
	})
	return s.names.tell(items, s.x), nil
}
