// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/scionproto/scion/pkg/log"
	scionrouter "github.com/scionproto/scion/router"
	"github.com/scionproto/scion/router/control"
	// The reference data plane finds its UDP/IP underlay by registration.
	_ "github.com/scionproto/scion/router/underlayproviders/udpip"

	"culvert/internal/scion/handover"
	"culvert/internal/scion/keyring"
)

// core is a data plane of the reference with its sockets and BFD sessions. It runs from begin on, whether it is served or not,
// until its last holder drops it. The reference cannot change a data plane that runs, so a changed configuration has a new
// one, which takes over the sockets and sessions of the links that both have.
type core struct {
	router    *Router
	connector *scionrouter.Connector
	underlay  *gatedUnderlay
	// gates has the gate of each link that BFD watches.
	gates   map[int]*bfdGate
	guard   *linkGuard
	holders handover.Holders
	// former is the core to take over from, nil once that is done and if there is none.
	former *core

	ran    bool
	cancel context.CancelFunc // of the data plane's Run
}

// ending are the cores that are being ended. The sockets of links that are gone stay open until then.
var ending sync.WaitGroup

// newCore configures a data plane and opens the sockets that former, which may be nil, does not have. Packets wait in them
// until begin. Former goes on until then.
func newCore(r *Router, former *core) (_ *core, err error) {
	if len(r.Keys) == 0 {
		return nil, errors.New("the slow path needs the AS master keys: put master0.key and master1.key into keys/")
	}
	c := &core{router: r, connector: scionrouter.NewConnector(r.Config.Router, r.Config.Features), former: former}
	c.holders.Hold()
	var before *gatedUnderlay
	if former != nil {
		former.holders.Hold()
		before = former.underlay
	}
	defer func() {
		if err != nil {
			c.drop()
		}
	}()
	if c.underlay, err = gateSessions(c.connector, r, before); err != nil {
		return nil, err
	}
	c.gates = c.underlay.gates
	if c.underlay.ring, err = giveKeys(c.connector, r); err != nil {
		return nil, err
	}
	if former != nil {
		// Services of the former configuration are counted already.
		metrics := c.connector.DataPlane.Metrics
		c.connector.DataPlane.Metrics = uncountedServices(metrics)
		defer func() { c.connector.DataPlane.Metrics = metrics }()
	}
	// IACtx.Configure does the same, but its error contains a dump of the configuration.
	if err := control.ConfigDataplane(c.connector, r.Control); err != nil {
		return nil, socketError(r, err)
	}
	c.underlay.former = nil // it keeps the former data plane in memory
	if c.guard, err = guardLinks(r, c.underlay.links); err != nil {
		return nil, err
	}
	return c, nil
}

// giveKeys gives a data plane that has no links yet its keys. Keys that follow a schedule are in a ring.
func giveKeys(c *scionrouter.Connector, r *Router) (*keyring.Ring, error) {
	if !r.Scheduled() {
		return nil, c.DataPlane.SetKey(r.Keys[0].Secret[:])
	}
	ring := keyring.New(r.Keys, clock)
	return ring, ring.Install(c)
}

// begin runs the data plane and lets it read from the sockets. If there is a former one, its sessions go on in this one, and it
// ends once its packets are sent. Further calls do nothing.
func (c *core) begin() {
	if !c.ran {
		c.run()
	}
	if c.former != nil {
		c.takeOver()
	}
	for _, l := range c.underlay.links {
		l.tap.Begin()
	}
}

// run starts the data plane, and returns once it can send.
func (c *core) run() {
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(context.Background())
	c.ran = true
	restore := withoutProcessSeries()
	defer restore()
	go func() {
		defer log.HandlePanic()
		if err := c.connector.DataPlane.Run(ctx); err != nil {
			log.Error("Running the slow path", "err", oneLine(err))
		}
	}()
	<-c.underlay.started
}

// readerWait is how long takeOver waits for the former data plane's readers.
const readerWait = 2 * time.Second

// takeOver ends the former data plane's reading, and moves to this one what both have. Packets wait in the sockets meanwhile.
func (c *core) takeOver() {
	former := c.former
	c.former = nil
	former.retire()
	timeout := time.NewTimer(readerWait)
	defer timeout.Stop()
	for _, l := range former.underlay.links {
		select {
		case <-l.tap.Parked():
		case <-timeout.C:
			log.Error("The former slow path still reads from its sockets")
			timeout.Reset(0)
		}
	}
	for key, l := range c.underlay.links {
		f := former.underlay.links[key]
		if f == nil || f.session == nil {
			continue
		}
		if l.session == f.session {
			f.moved = true
			l.session.Attach(l.made.Attachment())
			l.made = nil
		} else {
			f.session.Detach()
		}
		if l.gate != nil {
			l.gate.follow(f.gate)
		}
	}
	c.guard.takeOver(former.guard)
	countServices(c.connector.DataPlane.Metrics, former.router, c.router)
	deleteSeries(c.connector.DataPlane.Metrics, former.router, c.router)
	former.drop()
}

// retire ends the reading of the data plane.
func (c *core) retire() {
	for _, l := range c.underlay.links {
		l.tap.Retire()
	}
}

// hold adds a holder.
func (c *core) hold() *core {
	c.holders.Hold()
	return c
}

// drop takes a holder away. The last one ends the data plane, in the background if it has run.
func (c *core) drop() {
	if !c.holders.Drop() {
		return
	}
	if c.former != nil { // it goes on
		deleteSeries(c.connector.DataPlane.Metrics, c.router, c.former.router)
		c.former.drop()
	}
	if c.ran {
		c.retire()
		ending.Go(c.end)
		return
	}
	if c.underlay == nil {
		return
	}
	for _, l := range c.underlay.links {
		_ = l.tap.Close()
	}
	c.underlay.sizes.Close()
	if c.guard != nil {
		c.guard.close()
	}
}

// end frees a data plane that has run.
func (c *core) end() {
	defer log.HandlePanic()
	p := handover.Plane{Shutdown: c.connector.DataPlane.Shutdown, Config: c.connector.DataPlane.RunConfig,
		Pool: c.underlay.pool, Queues: c.underlay.queues}
	for _, l := range c.underlay.links {
		p.Taps = append(p.Taps, l.tap)
		if l.session == nil {
			continue
		}
		if l.moved {
			p.Moved = append(p.Moved, l.link)
		} else {
			l.session.Detach()
		}
	}
	if err := p.End(); err != nil {
		log.Error("The former slow path stays in memory, idle", "err", err)
	}
	for _, l := range c.underlay.links {
		_ = l.tap.Abandon()
	}
	c.guard.close()
	c.underlay.sizes.Close()
	c.cancel()
}
