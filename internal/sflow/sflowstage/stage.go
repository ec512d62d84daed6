// SPDX-License-Identifier: Apache-2.0

// Package sflowstage is sFlow in the configuration, and in the process that sends the samples. It is no stage of the pipeline: packets
// are sampled wherever they come in and go.
package sflowstage

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/host/hostaddr"
	"culvert/internal/host/pulse"
	"culvert/internal/sflow"
	"culvert/internal/sflow/sflowplane"
	"culvert/internal/stage"
)

// Stage is sFlow.
type Stage struct{}

// Name implements stage.Stage.
func (Stage) Name() string { return sflowplane.Name }

// Table implements stage.Stage.
func (Stage) Table() config.Table { return new(Table) }

// Plan implements stage.Stage.
func (s Stage) Plan(f stage.File) (stage.Plan, error) {
	t := stage.Table[*Table](f, s)
	if t == nil {
		return nil, nil
	}
	return &plan{t}, nil
}

// plan is an [sflow] table.
type plan struct{ file *Table }

// Name implements stage.Plan.
func (p *plan) Name() string { return sflowplane.Name }

// Check implements stage.Plan.
func (p *plan) Check(stage.Situation) error { return nil }

// CheckHost implements stage.HostChecker. A collector that is not there is no error: it may come.
func (p *plan) CheckHost(h stage.Host) error {
	s := &p.file.settings
	if s.source.IsValid() {
		elsewhere, err := hostaddr.Elsewhere([]netip.AddrPort{netip.AddrPortFrom(s.source, 0)})
		if err == nil && len(elsewhere) > 0 {
			err = fmt.Errorf("source = %q: this host does not have the address", s.source)
		}
		if err != nil {
			return p.file.Locate("source", err)
		}
	}
	if _, err := netip.ParseAddr(s.host); err != nil && h.Process {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if _, err := net.DefaultResolver.LookupHost(ctx, s.host); err != nil {
			h.Note(p.file.Locate("collector", fmt.Errorf("the collector has no address yet, and gets nothing until it has: %w", err)))
		}
	}
	return nil
}

// Changes implements stage.Differ.
func (p *plan) Changes(former stage.Plan, _ *datapath.Instance) []string {
	var c stage.Changes
	old, ok := former.(*plan)
	if !ok {
		c.Add("sFlow: one packet of %d to %s", p.file.settings.Rate, p.file.settings.collector())
		return c
	}
	was, is := &old.file.settings, &p.file.settings
	c.Value("sFlow collector", was.collector(), is.collector())
	c.Value("sFlow rate", was.Rate, is.Rate)
	c.Value("sFlow drops", was.Drops, is.Drops)
	c.Value("sFlow header", was.Header, is.Header)
	c.Value("sFlow polling", was.polling, is.polling)
	c.Value("sFlow agent", addrText(was.agent.Address), addrText(is.agent.Address))
	c.Value("sFlow sub_agent", was.agent.Sub, is.agent.Sub)
	c.Value("sFlow source", addrText(was.source), addrText(is.source))
	return c
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// Prepare implements stage.Plan.
func (p *plan) Prepare(_ context.Context, start stage.Start) (stage.Prepared, error) {
	return p.prepare(start, nil)
}

// Succeed implements stage.Successor: sequence numbers and counts go on.
func (p *plan) Succeed(_ context.Context, start stage.Start, former stage.Prepared) (stage.Prepared, error) {
	f, _ := former.(*prepared)
	return p.prepare(start, f)
}

// ServedBy implements stage.Successor.
func (p *plan) ServedBy(former stage.Prepared) bool {
	f, ok := former.(*prepared)
	return ok && f.file.settings == p.file.settings
}

func (p *plan) prepare(start stage.Start, former *prepared) (*prepared, error) {
	n := &prepared{plan: p, start: start, former: former, turns: pulse.New("the loop that sends the samples of sFlow", turnsWithin)}
	if !start.Process {
		if start.Out != nil {
			fmt.Fprintln(start.Out, "sFlow sends nothing without a process: use culvert run")
		}
		return n, nil
	}
	n.part = sflowplane.NewPart(p.file.settings.Options)
	var err error
	if n.host, err = sflow.OpenHost(); err != nil {
		return nil, err
	}
	ledger := sflow.NewLedger()
	n.stats = new(statistics)
	if former != nil && former.sender != nil {
		ledger, n.stats = former.sender.Ledger, former.stats
	}
	s := &p.file.settings
	n.sender = &sflow.Sender{Ledger: ledger, Socket: sflow.NewSocket(s.host, s.port, s.source), Agent: s.agent, Sent: n.sent}
	return n, nil
}

// turnsWithin bounds the turns of the loop, which come several times a second. A name server may take its time.
const turnsWithin = 20 * time.Second

// prepared is sFlow that is ready.
type prepared struct {
	*plan
	start  stage.Start
	former *prepared
	part   *sflowplane.Part
	host   *sflow.Host
	sender *sflow.Sender
	turns  *pulse.Pulse

	inst   *datapath.Instance
	from   *source // nil before Commit, and without a process
	told   outcome // of the datagrams
	unread outcome // of reading the samples
	loop   *loop
	stats  *statistics
}

// source is where the samples of one program come from. While the program stays, it is also that of what is prepared next, until one of
// the two is closed: either may be the one that goes on.
type source struct {
	*sflowplane.Reader
	seen  map[seenKey]counts
	users int
}

// Part implements stage.Prepared. Without a process nobody would read the samples.
func (p *prepared) Part() datapath.Part {
	if p.part == nil {
		return nil
	}
	return &part{p.part, p.stats}
}

// Commit implements stage.Prepared. If the program stays, so does the reader. The former goes on reading until it is closed.
func (p *prepared) Commit(_ context.Context, inst *datapath.Instance, rest func() error) error {
	p.inst = inst
	if p.part == nil {
		return rest()
	}
	if r := p.part.TakeReader(); r != nil {
		p.from = &source{Reader: r, seen: make(map[seenKey]counts)}
	} else if p.former != nil {
		p.from = p.former.from
	}
	if p.from == nil {
		return fmt.Errorf("sFlow has no buffers of data plane %s: start the process again", inst.Name())
	}
	p.from.users++
	p.former = nil
	return rest()
}

// Alive implements stage.Watched.
func (p *prepared) Alive() error { return p.turns.Alive() }

// Settle implements stage.Prepared.
func (p *prepared) Settle(context.Context) error { return nil }

// Close implements stage.Prepared. What the programs have said by now is sent, unless somebody else reads it.
func (p *prepared) Close() error {
	p.stop()
	if s := p.from; s != nil {
		if s.users--; s.users == 0 {
			p.drain()
			s.Close()
		}
		p.from = nil
	}
	if p.part != nil {
		p.part.Close()
	}
	if p.sender != nil {
		p.sender.Socket.Close()
	}
	if p.host != nil {
		p.host.Close()
		p.host = nil
	}
	return nil
}
