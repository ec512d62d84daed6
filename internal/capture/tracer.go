// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"fmt"
	"time"

	"culvert/internal/bpfobj"
	"culvert/internal/capture/trace"
	"culvert/internal/datapath"
	"culvert/internal/filter/filterview"
	"culvert/internal/lb/lbview"
	"culvert/internal/route/routeview"
	"culvert/internal/scion/scionview"
)

// tracer explains the way of packets through the stages. It works it out again, from the frame that came in and the state of the
// stages at that time or a little later. The data plane is not asked, and nothing is changed.
type tracer struct {
	open   func() (*datapath.Instance, error)
	inst   *datapath.Instance
	stages []trace.Explainer // in the order in which a packet meets them (bpf/stages.h)
	on     []trace.Explainer // those of stages that are on
	// next is when the state is read again.
	next  time.Time
	names func(int) string
}

// traceStateAge is how old the state of the stages may be that packets are explained by, and traceStateShare how many times as old
// as it takes to read it, where that takes longer: many neighbors, for example.
const (
	traceStateAge   = 200 * time.Millisecond
	traceStateShare = 3
)

// newTracer returns a tracer for a data plane, which open opens as it is now. All calls have to be made by a thread in its network
// namespace.
func newTracer(open func() (*datapath.Instance, error), names func(int) string) *tracer {
	return &tracer{open: open, names: names, stages: []trace.Explainer{
		filterview.NewExplainer(), lbview.NewExplainer(), scionview.NewExplainer(), lbview.NewUnclaimedExplainer(), routeview.NewExplainer(),
	}}
}

func (t *tracer) close() {
	for _, s := range t.stages {
		s.Close()
	}
	if t.inst != nil {
		t.inst.Close()
		t.inst = nil
	}
}

// refresh reads the state of the stages, if it is older than it may be.
func (t *tracer) refresh() error {
	begin := time.Now()
	if t.inst != nil && begin.Before(t.next) {
		return nil
	}
	inst, err := t.open()
	if err != nil {
		return err
	}
	t.on = nil
	for _, s := range t.stages {
		on, err := s.Follow(inst)
		if err != nil {
			inst.Close()
			return fmt.Errorf("%s: %w", s.Stage(), err)
		}
		if on {
			t.on = append(t.on, s)
		}
	}
	if t.inst != nil {
		t.inst.Close()
	}
	t.inst = inst
	now := time.Now()
	t.next = now.Add(max(traceStateAge, traceStateShare*now.Sub(begin)))
	return nil
}

// explain returns the way of a packet, in lines.
func (t *tracer) explain(p *Packet) []string {
	if p.In == nil {
		return []string{"not explained: the expression matches the frame that went out, and the one that came in was not captured"}
	}
	lines, err := t.walk(p)
	if errors.Is(err, trace.ErrCut) {
		err = fmt.Errorf("%w: capture more with -s, it has %d of %d bytes", err, len(p.In.Data), p.In.Length)
	}
	if err != nil {
		lines = append(lines, "not explained: "+err.Error())
	}
	return lines
}

func (t *tracer) walk(p *Packet) (lines []string, err error) {
	if err := t.refresh(); err != nil {
		t.next = time.Time{}
		return nil, err
	}
	packet, parseErr := trace.Parse(trace.Frame{
		Data: p.In.Data, Length: p.In.Length, Ingress: p.In.Interface, Name: t.names(p.In.Interface), At: p.In.Time,
	}, t.mac(p.In.Interface))
	for _, s := range t.on {
		if s.Stage() != frontStage {
			switch {
			case parseErr != nil:
				return lines, parseErr
			case !packet.Own:
				return append(lines, "no stage is asked: the frame is not to the address of "+packet.Name), nil
			case packet.IP == 0:
				return append(lines, "no stage is asked: no IP packet"), nil
			}
		}
		step, err := s.Explain(packet)
		if err != nil {
			return lines, fmt.Errorf("%s: %w", s.Stage(), err)
		}
		lines = append(lines, stepLines(s.Stage(), step)...)
		if done, verdict := after(p, s.Stage(), step); done {
			return append(lines, verdict...), nil
		}
	}
	_, verdict := after(p, "", trace.Ends(datapath.VerdictPass, noStage, ""))
	return append(append(lines, "no stage takes it: pass "+noStage), verdict...), nil
}

// noStage is the reason of packets that no stage takes. frontStage is in front of the pipeline and reads frames itself.
const (
	noStage    = "other"
	frontStage = "filter"
)

// mac returns the address of an interface of the data plane, as the programs have it.
func (t *tracer) mac(index int) (mac [6]byte) {
	port, _ := t.inst.Port(index)
	for n, w := range port.Mac {
		bpfobj.Native.PutUint16(mac[2*n:], w)
	}
	return mac
}

// stepLines describes a step: a line with the stage and what happens, and one for each lookup, further in.
func stepLines(stage string, s trace.Step) []string {
	text := s.Text
	if text == "" {
		return nil
	}
	if s.Reason != "" {
		text = s.Words() + ": " + text
	}
	lines := []string{fmt.Sprintf("%-6s %s", stage, text)}
	for _, l := range s.Lookups {
		lines = append(lines, fmt.Sprintf("%-6s   %s", "", l))
	}
	return lines
}

// after tells whether the way of a packet ends with a step, and marks it if that is another end than the packet's.
func after(p *Packet, stage string, s trace.Step) (done bool, lines []string) {
	switch {
	case s.Unsure && p.Reason.Stage == stage:
		return true, []string{"       what happened: " + p.Words()}
	case s.Unsure, s.Reason == "":
		return false, nil
	case s.Reason == p.Reason.Name && (s.Verdict == "" || s.Verdict == string(p.Reason.Verdict)):
		return true, nil
	case s.Before != "" && s.Before == p.Reason.Name:
		return true, []string{"       it was " + p.Words() + ", and has changed the state itself: for the next one this holds"}
	}
	return true, []string{"CHANGED: it was " + p.Words() + ", and this leads to " + s.Words() +
		": the state has changed since, or it depended on what is not known afterwards"}
}
