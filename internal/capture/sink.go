// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/net/bpf"
)

type instruction = bpf.RawInstruction

// sink is where packets go: to a file, or as lines to a terminal.
type sink struct {
	in, out bool
	file    *os.File // nil for standard output
	made    bool     // the file was not there before
	name    string
	to      *output
	stuck   bool // a packet is still being written
	pcapng  *pcapng
	lines   *lines
	number  int
	names   func(index int) string
	tracer  *tracer // nil without explanations
	// written counts packets that were written, and unexplained those that came too fast to be explained.
	written, unexplained atomic.Int64
	// unjoined is how many packets are not shown, because the record of their verdict was lost.
	unjoined uint64
}

// output names what -w - writes to.
func (o *Options) output() string {
	if o.Served {
		return "the client"
	}
	return "standard output"
}

// open opens the sink. A file that is there keeps what it has until begin.
func (o *Options) open() (*sink, error) {
	names := interfaceNames()
	s := &sink{in: o.In, out: o.Out, names: names, to: newOutput(o.Stdout)}
	switch o.Write {
	case "":
		s.lines, s.name = newLines(s.to, o.Snap, names), "the packets"
		return s, nil
	case "-":
		s.pcapng, s.name = newPcapng(s.to, o.Expression, o.Snap, names), o.output()
		return s, nil
	}
	f, err := os.OpenFile(o.Write, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	s.made = err == nil
	if errors.Is(err, os.ErrExist) {
		f, err = os.OpenFile(o.Write, os.O_WRONLY, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("writing packets: %w", err)
	}
	s.file, s.name, s.to = f, o.Write, newOutput(f)
	s.pcapng = newPcapng(s.to, o.Expression, o.Snap, names)
	return s, nil
}

// begin empties the file, once the capture has begun, and writes the header with the interfaces of these indexes: a disk without room
// is told before anybody waits for packets. What waits for a reader gets its header from consume.
func (s *sink) begin(interfaces []int) error {
	if s.pcapng == nil {
		return nil
	}
	s.pcapng.first = interfaces
	var err error
	if s.file != nil && !s.made && s.to.mode.IsRegular() {
		err = s.file.Truncate(0)
	}
	if err == nil && !s.to.waits() {
		err = s.pcapng.start()
	}
	if err != nil {
		return fmt.Errorf("writing packets to %s: %w", s.name, err)
	}
	return nil
}

// drop closes the sink of a capture that has not begun.
func (s *sink) drop() {
	if s.lines != nil {
		_ = s.lines.decode.Close()
	}
	if s.file != nil {
		s.file.Close()
	}
	if s.made {
		_ = os.Remove(s.file.Name())
	}
}

// interfaceNames returns a function that names interfaces. A name is looked up once.
func interfaceNames() func(index int) string {
	known := make(map[int]string)
	return func(index int) string {
		name, ok := known[index]
		if !ok {
			name = "if" + strconv.Itoa(index)
			if i, err := net.InterfaceByIndex(index); err == nil {
				name = i.Name
			}
			known[index] = name
		}
		return name
	}
}

// flushAfter is how long a packet stays in a buffer.
const flushAfter = 100 * time.Millisecond

// consume writes packets until there are no more, or one cannot be written. When ctx has ended it explains none.
func (s *sink) consume(ctx context.Context, packets <-chan *Packet) error {
	if s.lines != nil {
		return s.print(ctx, packets)
	}
	tick := time.NewTicker(flushAfter)
	defer tick.Stop()
	for err := s.pcapng.start(); ; {
		s.written.Store(s.pcapng.packets)
		if err != nil {
			return fmt.Errorf("writing packets to %s: %w", s.name, err)
		}
		select {
		case p, more := <-packets:
			if !more {
				return nil
			}
			err = s.pcapng.packet(p, s.in, s.out)
		case <-tick.C:
			err = s.pcapng.flush()
		}
	}
}

// mostWaiting is how many packets may wait for their lines while one is explained.
const mostWaiting = queue / 2

func (s *sink) print(ctx context.Context, packets <-chan *Packet) error {
	if s.tracer != nil {
		defer s.tracer.close()
	}
	for p := range packets {
		s.number++
		var err error
		if s.in && p.In != nil {
			err = s.lines.frame(p, p.In, "In", s.number)
		}
		if err == nil && s.out && p.Out != nil {
			err = s.lines.frame(p, p.Out, "Out", s.number)
		}
		if err == nil && s.tracer != nil {
			err = s.lines.below(s.explain(ctx, p, len(packets)))
		}
		if err != nil {
			return fmt.Errorf("writing packets: %w", err)
		}
		s.written.Add(1)
	}
	return nil
}

// explain returns the way of a packet, unless too many wait, or the user has ended the capture.
func (s *sink) explain(ctx context.Context, p *Packet, waiting int) []string {
	if waiting > mostWaiting || ctx.Err() != nil {
		s.unexplained.Add(1)
		return []string{"not explained: packets come faster than that takes"}
	}
	return s.tracer.explain(p)
}

// close ends the output. It is called after consume has returned, or was given up.
func (s *sink) close(lost uint64) error {
	if s.stuck {
		return nil // what would be written now would wait as well
	}
	var errs []error
	if s.pcapng != nil {
		if err := s.pcapng.end(lost); err != nil {
			errs = append(errs, fmt.Errorf("writing packets to %s: %w", s.name, err))
		}
		s.written.Store(s.pcapng.packets)
	}
	if s.lines != nil {
		_ = s.lines.decode.Close()
	}
	if s.file != nil {
		errs = append(errs, s.file.Close())
	}
	return errors.Join(errs...)
}
