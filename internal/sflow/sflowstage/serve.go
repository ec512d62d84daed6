// SPDX-License-Identifier: Apache-2.0

package sflowstage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
	"culvert/internal/host/runstate"
	"culvert/internal/sflow"
	"culvert/internal/sflow/sflowplane"
	"culvert/internal/stage"
)

// seenKey is an interface on a CPU, and counts what the programs have last said of it.
type seenKey struct{ index, cpu uint32 }

type counts struct{ pool, lost, discards uint64 }

// statistics are for metrics.
type statistics struct {
	flows, discards, counters, suppressed, datagrams, failed atomic.Uint64
	failing                                                  atomic.Bool
}

// outcome is what became of the last datagrams, or of reading the samples.
type outcome struct {
	err   error     // nil if nothing is known against the collector, or if the samples can be read
	since time.Time // when err began
	sent  time.Time // when the first datagram was sent since an error was last heard of, the zero value if none was
}

// quiet is for how long nothing may be heard against a datagram until the collector counts as being there again. A refusal comes after the
// datagram that it is for.
const quiet = 2 * time.Second

// longest is how long the loop waits for a sample.
const longest = 500 * time.Millisecond

// loop is the sending of samples, which goes on between Serve of one configuration and that of the next: loading programs takes long.
type loop struct {
	end  context.CancelFunc
	done chan struct{}
}

// stop ends the sending, if it goes on, and waits until it has ended.
func (p *prepared) stop() {
	if l := p.loop; l != nil {
		l.end()
		<-l.done
		p.loop = nil
	}
}

// Serve implements stage.Prepared.
func (p *prepared) Serve(ctx context.Context, ready func()) error {
	p.stop()
	if p.from == nil {
		ready()
		<-ctx.Done()
		return ctx.Err()
	}
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	l := &loop{end: end, done: make(chan struct{})}
	p.loop = l
	go func() {
		defer close(l.done)
		p.run(running)
	}()
	ready()
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), stage.ErrSucceeded) {
		p.stop()
	}
	return ctx.Err()
}

// run sends samples until ctx ends.
func (p *prepared) run(ctx context.Context) {
	state := runstate.NewWriter(sflowplane.StateKind, p.inst.NetNS(), p.inst.Name())
	defer state.Close()
	stop := context.AfterFunc(ctx, p.from.Wake)
	defer stop()
	defer p.turns.End()
	poll := time.Now()
	var written string
	for ctx.Err() == nil {
		p.turns.Beat()
		now := time.Now()
		if every := p.file.settings.polling; every > 0 && !now.Before(poll) {
			p.poll(now)
			poll = now.Add(every)
		}
		written = p.publish(state, written)
		if err := p.sender.Socket.Pending(); err != nil {
			p.sent(err)
		}
		if p.told.err != nil && !p.told.sent.IsZero() && now.Sub(p.told.sent) > quiet {
			p.recovered()
		}
		until := now.Add(longest)
		if due, ok := p.sender.Due(); ok && due.Before(until) {
			until = due
		}
		p.wasRead(p.read(until))
	}
	p.sender.Flush()
}

// read handles records until a time, and sends what is due then.
func (p *prepared) read(until time.Time) error {
	for n := 0; ; n++ {
		r, err := p.from.Read(until)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			time.Sleep(time.Until(until))
			return err
		}
		p.handle(&r, time.Now())
		if n&0xff == 0xff && !time.Now().Before(until) { // under load a read never waits
			break
		}
	}
	if due, ok := p.sender.Due(); ok && !time.Now().Before(due) {
		p.sender.Flush()
	}
	return nil
}

// drain handles the records that are there.
func (p *prepared) drain() {
	for {
		r, err := p.from.Read(time.Now().Add(time.Millisecond))
		if err != nil {
			break
		}
		p.handle(&r, time.Now())
	}
	p.sender.Flush()
}

// handle makes samples of a record.
func (p *prepared) handle(r *sflowplane.Record, now time.Time) {
	key := seenKey{r.Ingress, r.Cpu}
	was := p.from.seen[key]
	p.sender.Ledger.Add(r.Ingress, r.Pool-was.pool, r.Lost-was.lost, r.Discards-was.discards)
	p.from.seen[key] = counts{r.Pool, r.Lost, r.Discards}
	told := r.Discarded() && p.sender.Ledger.MayTell(now, p.file.settings.Drops)
	if r.Discarded() && !told {
		p.stats.suppressed.Add(1)
	}
	if !r.Sampled() && !told {
		return
	}
	packet := p.packet(r, now)
	if r.Sampled() {
		p.sender.Add(p.sender.Ledger.Flow(packet, p.from.Rate), now)
		p.stats.flows.Add(1)
	}
	if told {
		p.sender.Add(p.sender.Ledger.Discard(packet), now)
		p.stats.discards.Add(1)
	}
}

// packet describes the packet of a record.
func (p *prepared) packet(r *sflowplane.Record, now time.Time) *sflow.Packet {
	why := datapath.ReasonOf(bpfobj.PipelineReason(r.Reason))
	s := &sflow.Packet{Input: r.Ingress, Output: sflow.Unknown, Header: r.Shown, Length: r.Len, Function: why.Name}
	in := sflow.ParseFrame(r.Shown)
	switch {
	case why.Dropped:
		s.Discarded, s.Reason = true, sflow.ReasonOf(why.Name, why.Limited)
	case r.Egress != 0:
		s.Output = r.Egress
		sent := sflow.ParseFrame(r.Sent)
		if why.Verdict == datapath.VerdictFwd {
			s.Router = p.host.Router(in, sent, r.Egress, now)
		}
		if in.Tagged || sent.Tagged {
			s.Switch = &sflow.Switch{InVLAN: in.VLAN, InPriority: in.Priority, OutVLAN: sent.VLAN, OutPriority: sent.Priority}
		}
	case why.Name == "route-local":
		s.Output = sflow.Internal
	}
	return s
}

// poll sends the counters of the data plane's interfaces.
func (p *prepared) poll(now time.Time) {
	for _, index := range p.inst.PortIndexes() {
		i, err := p.host.Interface(index)
		if err != nil {
			continue // it is gone
		}
		p.sender.Add(p.sender.Ledger.Counters(i), now)
		p.stats.counters.Add(1)
	}
}

// wasRead notes whether the samples could be read. It logs the first failure alone.
func (p *prepared) wasRead(err error) {
	switch was := p.unread.err; {
	case err == nil && was == nil:
		return
	case err == nil:
		p.start.Log.Info("the samples of sFlow can be read again")
		p.unread = outcome{}
	case was == nil:
		p.start.Log.Error("the samples of sFlow cannot be read, the collector gets none: packets are forwarded all the same", "err", err)
		p.unread.since = time.Now()
		fallthrough
	default:
		p.unread.err = err
	}
	p.gauge()
}

// gauge tells metrics whether the collector gets something.
func (p *prepared) gauge() { p.stats.failing.Store(p.told.err != nil || p.unread.err != nil) }

// sent notes what became of a datagram. It logs the first failure alone.
func (p *prepared) sent(err error) {
	now := time.Now()
	if err == nil {
		p.stats.datagrams.Add(1)
		if p.told.sent.IsZero() {
			p.told.sent = now
		}
		return
	}
	p.stats.failed.Add(1)
	p.told.sent = time.Time{}
	if p.told.err == nil {
		p.told.since = now
		p.start.Log.Warn("the collector of sFlow gets nothing: packets are forwarded all the same", "collector", p.file.settings.collector(), "err", err)
	}
	p.told.err = err
	p.gauge()
}

// recovered ends a failure.
func (p *prepared) recovered() {
	p.start.Log.Info("the collector of sFlow can be reached again", "collector", p.file.settings.collector())
	p.told = outcome{}
	p.gauge()
}

// publish tells commands of the state, and returns it as text. It writes nothing, and returns written, if that is the text of it.
func (p *prepared) publish(w *runstate.Writer, written string) string {
	s := sflowplane.Process{Collector: p.file.settings.collector()}
	agent := p.sender.Agent.Address
	if !agent.IsValid() {
		agent = p.sender.Socket.Local()
	}
	if agent.IsValid() {
		s.Agent = agent.String()
	}
	switch {
	case p.unread.err != nil:
		s.Error, s.Since, s.Unread = "the samples cannot be read: "+p.unread.err.Error(), &p.unread.since, true
	case p.told.err != nil:
		s.Error, s.Since = p.told.err.Error(), &p.told.since
	}
	id := p.inst.ID()
	text := fmt.Sprint(id, s.Collector, s.Agent, s.Error)
	if text == written || id == 0 {
		return written
	}
	if err := w.Write(id, s); err != nil {
		p.start.Log.Warn("'culvert status' cannot tell of sFlow", "err", err)
	}
	return text
}
