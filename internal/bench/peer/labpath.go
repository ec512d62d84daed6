// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/scionproto/scion/pkg/addr"

	"culvert/internal/bench/load"
	"culvert/internal/lab"
	"culvert/internal/scion/scionpkt"
)

// Namespaces of topology scion3. Traffic goes from the first AS through the router of the second to the third.
const (
	labFrom    = "as1"
	labThrough = "as2"
	labTo      = "as3"
)

// labPathTimeout bounds the time until there are paths again after a change of routers.
const labPathTimeout = time.Minute

// LabPath is the path through the middle AS of a running lab, which also carries the lab's own traffic.
type LabPath struct {
	Path
	lab    *lab.Lab
	as     lab.AS
	router scionRouter
	// crossing is set if packets change segments at the router.
	crossing bool
	// SinkOptions make a sink count only the packets of the benchmark.
	SinkOptions load.SinkOptions
	namespaces  []*load.Netns
}

// OpenLabPath opens the path in the lab of that name. Empty stands for scion3.
func OpenLabPath(name string) (p *LabPath, err error) {
	if name == "" {
		name = "scion3"
	}
	l, err := lab.Open(name)
	if err != nil {
		return nil, err
	}
	p = &LabPath{lab: l}
	defer func() {
		if err != nil {
			p, err = nil, errors.Join(err, p.closeNamespaces())
		}
	}()
	if p.as, err = l.AS(labThrough); err != nil {
		return p, fmt.Errorf("%w: set up one with 'culvert lab up scion3'", err)
	}
	to, err := l.AS(labTo)
	if err != nil {
		return p, err
	}
	if to.Router != lab.Reference {
		return p, fmt.Errorf("lab %s has %s in %s, where the packets are to be counted: set it up with '--culvert as2'",
			name, to.Router, labTo)
	}
	if err := p.findRouter(); err != nil {
		return p, err
	}
	return p, p.findEnds()
}

// findRouter reads key, links and link types of the middle router from the AS's files and the state of the lab.
func (p *LabPath) findRouter() error {
	name := filepath.Join(p.as.Keys, "master0.key")
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read the lab's key: %w", err)
	}
	master, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("read the lab's key in %s: %w", name, err)
	}
	if p.router.key, err = forwardingKey(string(master)); err != nil {
		return err
	}
	in, err := p.link(labFrom)
	if err != nil {
		return err
	}
	out, err := p.link(labTo)
	if err != nil {
		return err
	}
	p.crossing = in.LinkTo == "child"
	if p.router.in, err = newScionLink(in); err != nil {
		return err
	}
	p.router.out, err = newScionLink(out)
	return err
}

// link is the middle router's link to the AS in another namespace.
func (p *LabPath) link(ns string) (lab.ASLink, error) {
	as, err := p.lab.AS(ns)
	if err != nil {
		return lab.ASLink{}, err
	}
	for _, link := range p.as.Links {
		if link.RemoteIA == as.IA {
			return link, nil
		}
	}
	return lab.ASLink{}, fmt.Errorf("lab %s has no link from %s to %s", p.lab.Name, labThrough, ns)
}

func newScionLink(l lab.ASLink) (scionLink, error) {
	ia, err := addr.ParseIA(l.RemoteIA)
	return scionLink{ia: ia, id: l.ID, remoteID: l.RemoteID, local: l.Local, remote: l.Remote}, err
}

// findEnds finds the veths of both links.
func (p *LabPath) findEnds() error {
	for _, e := range []struct {
		end      *load.End
		at, away string
	}{
		{&p.Source, labFrom, labThrough},
		{&p.In, labThrough, labFrom},
		{&p.Out, labThrough, labTo},
		{&p.Sink, labTo, labThrough},
	} {
		ns, err := p.lab.Namespace(e.at)
		if err != nil {
			return err
		}
		netns, err := load.OpenNetns(ns.NetNS)
		if err != nil {
			return err
		}
		p.namespaces = append(p.namespaces, netns)
		if *e.end, err = load.FindEnd(netns, "to-"+e.away); err != nil {
			return err
		}
	}
	// The destination host follows the common header of 12 bytes and two ISD-AS numbers of 8 bytes each.
	const hostAt = 12 + 2*8
	outer := scionpkt.EthernetLen + scionpkt.IPv4Len + scionpkt.UDPLen
	if p.router.in.local.Addr().Is6() {
		outer += scionpkt.IPv6Len - scionpkt.IPv4Len
	}
	host := scionSink.As4()
	p.SinkOptions = load.SinkOptions{MarkOffset: outer + hostAt, Mark: binary.BigEndian.Uint32(host[:])}
	return nil
}

// use starts a router of that kind in the middle, unless it runs already, and waits for paths through it.
func (p *LabPath) use(ctx context.Context, kind lab.Router) error {
	if err := p.ensureRouter(kind); err != nil {
		return err
	}
	return p.lab.WaitPaths(ctx, labPathTimeout, nil)
}

// ensureRouter starts a router of that kind in the middle, unless it runs already.
func (p *LabPath) ensureRouter(kind lab.Router) error {
	as, err := p.lab.AS(labThrough)
	if err != nil {
		return err
	}
	if _, err := p.lab.RouterPID(labThrough); err == nil && as.Router == kind {
		return nil
	}
	return p.lab.RestartRouter(labThrough, kind)
}

// Close restores the router that ran before and closes the lab.
func (p *LabPath) Close() error {
	return errors.Join(p.ensureRouter(p.as.Router), p.closeNamespaces())
}

func (p *LabPath) closeNamespaces() error {
	var err error
	for _, s := range p.namespaces {
		err = errors.Join(err, s.Close())
	}
	return err
}
