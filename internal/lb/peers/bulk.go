// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"culvert/internal/lb/peerstate"
)

// bulkState says how far asking the peers at the start has come.
type bulkState struct {
	state  string // as in peerstate.State
	why    string
	asking bool
	again  bool // the data plane was attached anew since asking began
}

// againPause is the time between two attempts to ask a peer.
const againPause = 300 * time.Millisecond

// ask asks all peers for their flows, and notes that this is done, or that time is up.
func (s *Service) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), s.o.Bulk.Timeout)
	defer cancel()
	go func() {
		select {
		case <-s.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	var (
		asking sync.WaitGroup
		mu     sync.Mutex
		failed []string
		flows  int
	)
	for _, at := range s.o.Peers {
		asking.Go(func() {
			n, err := s.askUntil(ctx, at)
			mu.Lock()
			defer mu.Unlock()
			flows += n
			if timeUp(err) {
				err = errors.New("no answer")
			}
			if err != nil {
				failed = append(failed, fmt.Sprintf("%s: %v", at, err))
			}
		})
	}
	asking.Wait()
	if s.stopped() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bulk.again { // turn asks for the flows that got into the former one, or into none
		s.bulk = bulkState{state: peerstate.BulkAsking}
		return
	}
	s.bulk = bulkState{state: peerstate.BulkDone}
	if len(failed) == 0 {
		s.o.Log.Info("all peers of the load balancer have told their flows", "flows", flows)
		return
	}
	slices.Sort(failed)
	s.bulk = bulkState{state: peerstate.BulkIncomplete, why: strings.Join(failed, "; ")}
	s.o.Log.Warn("not all peers of the load balancer have told their flows in time: addresses are announced all the same, and connections that "+
		"come here from other machines may break", "flows", flows, "missing", s.bulk.why)
}

// askUntil asks a peer until it has told its flows. It returns the error of the last attempt once ctx has ended.
func (s *Service) askUntil(ctx context.Context, at netip.AddrPort) (flows int, err error) {
	for {
		n, now := s.askOnce(ctx, at)
		flows += n
		if now == nil {
			return flows, nil
		}
		if err == nil || !timeUp(now) {
			err = now // the last one may only say that time is up
		}
		select {
		case <-ctx.Done():
			return flows, err
		case <-time.After(againPause):
		}
	}
}

func timeUp(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// askOnce asks a peer for its flows, and puts them into the flow table. It returns how many came.
func (s *Service) askOnce(ctx context.Context, at netip.AddrPort) (flows int, err error) {
	cert, ca, err := s.o.Bulk.Load()
	if err != nil {
		return 0, err
	}
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: s.o.Listen.Addr().AsSlice()}, Control: s.sockets.control},
		Config: &tls.Config{
			MinVersion: tls.VersionTLS13, RootCAs: ca, Certificates: []tls.Certificate{cert}, ServerName: at.Addr().String(),
		},
	}
	conn, err := dialer.DialContext(ctx, "tcp", at.String())
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	s.mu.Lock()
	question := s.header(kindAsk)
	s.mu.Unlock()
	c := newCodec(s.o.Key[:])
	if err := writeFrame(conn, c, question); err != nil {
		return 0, err
	}
	for {
		h, body, err := readFrame(conn, c)
		switch {
		case err != nil:
			return flows, err
		case h.sender != at:
			return flows, fmt.Errorf("it says that it is %s", h.sender)
		case h.kind == kindEnd && len(body) == 4:
			if sent := binary.BigEndian.Uint32(body); int(sent) != flows {
				return flows, fmt.Errorf("it has told %d flows, and %d have come", sent, flows)
			}
			return flows, nil
		case h.kind != kindFlows:
			return flows, fmt.Errorf("it sends kind %d", h.kind)
		}
		told, err := readFlows(body)
		if err != nil {
			return flows, errors.New("its flows make no sense")
		}
		flows += len(told)
		s.mu.Lock()
		installed := s.install(told)
		s.mu.Unlock()
		if !installed {
			return flows, errors.New("this machine has no flow table at the moment")
		}
	}
}

// writeFrame writes a datagram with its length in front.
func writeFrame(w io.Writer, c *codec, b []byte) error {
	b = c.seal(b)
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...))
	return err
}

// readFrame reads a datagram with its length in front.
func readFrame(r io.Reader, c *codec) (h header, body []byte, err error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return h, nil, err
	}
	b := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(r, b); err != nil {
		return h, nil, err
	}
	h, body, err = c.open(b)
	switch {
	case errors.Is(err, errMAC):
		err = errors.New("it has another key")
	case errors.Is(err, errVersion):
		err = errors.New("it speaks another version")
	case err != nil:
		err = errors.New("it is no peer of a load balancer")
	}
	return h, body, err
}
