// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"culvert/internal/capture/captureplane"
	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/pcap"
	"culvert/internal/show"
	"culvert/internal/show/planes"
	"culvert/internal/show/text"
	"culvert/internal/show/usage"
)

// MaxSnap is the longest part of a frame that can be shown, in bytes: the kernel gives a record at most 64 KiB.
const MaxSnap = 65000

// bufferSize is that of the buffer for each CPU, in bytes.
const bufferSize = 4 << 20

// Options say what is captured and where it goes.
type Options struct {
	// On is the name of the data plane, "" for the only one.
	On string
	// Interfaces are those that packets come in by or go out by. Empty: all.
	Interfaces []string
	// In and Out show frames that come in, and that go out. Both are shown if neither is set.
	In, Out bool
	// Verdict, Reason and Stage show only packets with that verdict, that reason, or a reason of that stage. "": all.
	Verdict, Reason, Stage string
	// Snap is how many bytes of a frame are shown.
	Snap int
	// Count is after how many packets the capture ends, 0 for never.
	Count int
	// Sample shows one of so many packets that match.
	Sample int
	// Write is the pcapng file, "-" for Stdout, "" for lines on Stdout.
	Write string
	// Expression is one of pcap-filter(7).
	Expression string
	// Trace explains the way of each packet through the stages, below its lines.
	Trace bool

	Stdout, Stderr io.Writer
	// Begun is called when the capture has begun. It may be nil.
	Begun func()
	// Ended is called when a capture that had begun has ended, with how many packets were written and how many records had no room. It
	// may be nil.
	Ended func(packets int, lost uint64)
	// Served says that a process captures beside other work, and that writes to Stdout end soon after ctx.
	Served bool
}

// ErrBusy says that somebody else captures on the data plane.
var ErrBusy = captureplane.ErrBusy

// check returns a usage error for what no data plane can do.
func (o *Options) check() error {
	switch {
	case o.Snap < 1 || o.Snap > MaxSnap:
		return usage.Errorf("-s %d: a capture can show 1 to %d bytes of a frame", o.Snap, MaxSnap)
	case o.Count < 0:
		return usage.Errorf("-n %d: give the number of packets after which the capture ends", o.Count)
	case o.Sample < 1:
		return usage.Errorf("--sample %d: give N to show one of N packets, at least 1", o.Sample)
	case len(o.Interfaces) > captureplane.MaxInterfaces:
		return usage.Errorf("-i %d times: a capture can be limited to %d interfaces", len(o.Interfaces), captureplane.MaxInterfaces)
	case o.Trace && o.Write != "":
		return usage.Error(errors.New("--trace with -w: a file has frames alone: leave one of them out"))
	case o.Trace && !o.In:
		return usage.Error(errors.New("--trace with --out: it explains frames that come in: leave --out out"))
	}
	if err := o.checkSelection(); err != nil {
		return err
	}
	if _, terminal := show.Terminal(o.Stdout); o.Write == "-" && terminal {
		return usage.Error(errors.New("-w -: standard output is a terminal: name a file, or lead it into a pipe"))
	}
	return nil
}

// Verdicts returns the verdicts that packets can have.
func Verdicts() []string {
	return []string{string(datapath.VerdictPass), string(datapath.VerdictPunt), string(datapath.VerdictDrop), string(datapath.VerdictFwd)}
}

// Reasons returns the names of all reasons.
func Reasons() (all []string) {
	for _, r := range datapath.Reasons() {
		if r.Name != "" {
			all = append(all, r.Name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Stages returns the stages that have reasons.
func Stages() (all []string) {
	for _, r := range datapath.Reasons() {
		if r.Name != "" && !slices.Contains(all, r.Stage) {
			all = append(all, r.Stage)
		}
	}
	slices.Sort(all)
	return all
}

// wanted tells whether a packet is among those that are shown.
func (o *Options) wanted(p *Packet) bool {
	return (o.Verdict == "" || o.Verdict == string(p.Verdict())) && (o.Reason == "" || o.Reason == p.Reason.Name) &&
		(o.Stage == "" || o.Stage == p.Reason.Stage) && (o.In && p.In != nil || o.Out && p.Out != nil)
}

// kind is any data plane.
var kind = planes.Kind{Name: "data plane", Plural: "data planes", None: "start one with 'culvert run' or 'culvert attach'"}

// Run captures until ctx ends, or Options.Count packets were shown.
func Run(ctx context.Context, o Options) error {
	if !o.In && !o.Out {
		o.In, o.Out = true, true
	}
	if err := o.check(); err != nil {
		return err
	}
	prog, err := pcap.Compile(o.Expression)
	if err != nil {
		return err
	}
	inst, err := planes.Open(o.On, kind)
	if err != nil {
		return err
	}
	defer inst.Close()
	if err := o.checkInterfaces(inst); err != nil {
		return err
	}
	if o.Stderr == nil {
		o.Stderr = io.Discard
	}
	if !o.Served {
		signal.Ignore(syscall.SIGPIPE) // a reader that goes away must not end the process before the programs are as before
	}
	to, err := o.open()
	if err != nil {
		return err
	}
	if o.Trace {
		to.tracer = newTracer(inst.Now, to.names)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, err := begin(inst, &o, prog)
	if err == nil && o.Served && ctx.Err() != nil { // the client has gone while the programs were loaded
		err = errors.Join(ctx.Err(), s.Close())
	}
	if err != nil {
		to.drop()
		return err
	}
	if err := to.begin(indexes(inst, o.Interfaces)); err != nil {
		err = errors.Join(err, s.Close())
		to.drop()
		return err
	}
	if o.Begun != nil {
		o.Begun()
	}
	fmt.Fprintf(o.Stderr, "culvert: capturing on %s, up to %d bytes of each frame: end it with Ctrl-C\n", inst.Name(), o.Snap)
	err = o.pump(ctx, s, to)
	lost, lostErr := s.Lost()
	err = errors.Join(err, s.Close(), lostErr)
	if closeErr := unlessGone(to.close(lost)); err == nil {
		err = closeErr // otherwise it says the same again
	}
	written := to.written.Load()
	if o.Ended != nil {
		o.Ended(int(written), lost)
	}
	fmt.Fprintf(o.Stderr, "culvert: %s captured, %s lost\n", text.Count(uint64(written), "packet"), text.Count(lost, "record"))
	if to.unjoined > 0 {
		fmt.Fprintf(o.Stderr, "culvert: %s not shown: the record of the verdict was lost\n", text.Count(to.unjoined, "packet"))
	}
	if n := to.unexplained.Load(); n > 0 {
		fmt.Fprintf(o.Stderr, "culvert: %s not explained: packets came faster than that takes\n", text.Count(uint64(n), "packet"))
	}
	return err
}

// indexes returns those of the interfaces with these names, of all that a data plane is attached to if there are none.
func indexes(inst *datapath.Instance, names []string) (all []int) {
	if len(names) == 0 {
		return inst.AttachedIndexes()
	}
	for _, name := range names {
		if i, err := net.InterfaceByName(name); err == nil && !slices.Contains(all, i.Index) {
			all = append(all, i.Index)
		}
	}
	return all
}

// begin starts a capture, after the end of one whose process is gone.
func begin(inst *datapath.Instance, o *Options, prog []instruction) (*captureplane.Session, error) {
	if _, err := captureplane.Sweep(inst, others()); err != nil {
		return nil, err
	}
	return captureplane.Start(inst, o.plane(prog), others(), bufferSize)
}

// others are the parts that may have programs in front of a data plane.
func others() []datapath.Fronted { return []datapath.Fronted{filterplane.NewPart()} }

// plane returns what the programs are to do. A frame that comes in is shown in full also where only its verdict is wanted, because the
// verdict is not known by then.
func (o *Options) plane(prog []instruction) captureplane.Options {
	p := captureplane.Options{Expression: o.Expression, Program: prog, Sample: o.Sample, Interfaces: o.Interfaces}
	if o.In {
		p.InBytes = o.Snap
	}
	if o.Out {
		p.OutBytes = o.Snap
	}
	return p
}

// queue is how many packets may wait to be written.
const queue = 1024

// pump gives packets to the sink until ctx ends, enough were shown, the reader goes, or the sink fails.
func (o *Options) pump(ctx context.Context, s *captureplane.Session, to *sink) error {
	j, err := newJoiner(s)
	if err != nil {
		return err
	}
	defer func() { to.unjoined = j.lost }()
	packets, failed := make(chan *Packet, queue), make(chan error, 1)
	go func() { failed <- unlessGone(to.consume(ctx, packets)) }()
	// A sink that does not take packets must not keep the capture from ending.
	end := func() error {
		close(packets)
		if o.Served {
			return <-failed
		}
		for before := to.to.taken.Load(); ; {
			select {
			case err := <-failed:
				return err
			case <-time.After(time.Second):
			}
			now := to.to.taken.Load()
			if now == before {
				to.stuck = true
				return errors.New("writing packets: the reader takes none: what is buffered is lost")
			}
			before = now
		}
	}
	shown, looked := 0, time.Now()
	for ctx.Err() == nil && (o.Count == 0 || shown < o.Count) {
		all, err := j.next(lookEvery)
		if err != nil {
			return errors.Join(err, end())
		}
		select {
		case err := <-failed:
			return err
		default:
		}
		if now := time.Now(); now.Sub(looked) >= lookEvery {
			if looked = now; to.to.gone() {
				return end()
			}
		}
		if len(all) == 0 && s.Gone() {
			return errors.Join(errors.New("the data plane was detached: the capture has ended"), end())
		}
		for _, p := range all {
			if !o.wanted(p) || o.Count > 0 && shown == o.Count || ctx.Err() != nil {
				continue
			}
			select {
			case packets <- p:
				shown++
			case err := <-failed:
				return err
			case <-ctx.Done():
			}
		}
	}
	return end()
}

// lookEvery is how often the capture looks whether there is still a reader, also if no packets come.
const lookEvery = 100 * time.Millisecond
