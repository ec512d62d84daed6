// SPDX-License-Identifier: Apache-2.0

package filterview

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/filter"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/talkers"
	"culvert/internal/show"
	"culvert/internal/show/planes"
	"culvert/internal/show/screen"
	"culvert/internal/show/text"
	"culvert/internal/show/usage"
)

// TopOptions are options for Top.
type TopOptions struct {
	// On is the name of the data plane, "" for the only one.
	On string
	// By is the property by which packets are attributed to talkers: src, dst, prefix or port.
	By string
	// Count is how many talkers to show at most.
	Count int
	// Once waits until the windows are full, writes one list and ends. JSON implies it, and so does an Out that is no terminal.
	Once, JSON bool
	Out        io.Writer
}

// Top shows the heaviest talkers of the last seconds. The filter counts talkers only while Top runs.
func Top(ctx context.Context, o TopOptions) (err error) {
	by, err := filter.ParseBy(o.By)
	switch {
	case err != nil:
		return usage.Errorf("%w", err)
	case o.Count < 1:
		return usage.Errorf("%d talkers: show at least 1", o.Count)
	}
	inst, err := Open(o.On)
	if err != nil {
		return err
	}
	defer inst.Close()
	t := &topView{o: o, inst: inst, by: by}
	defer func() {
		if off := t.turnOff(); err == nil {
			err = off
		}
	}()
	if f, ok := show.Terminal(o.Out); ok && !o.Once && !o.JSON {
		return screen.Run(ctx, f, time.Second, scrolled(t.view, func() (func(), error) {
			s, err := t.look(ctx, 0)
			return func() { t.sample = s }, err
		}))
	}
	if t.sample, err = t.look(ctx, (filterplane.TopWindows+1)*filterplane.TopWindow); err != nil || ctx.Err() != nil {
		return err
	}
	return t.write()
}

// look turns top on, waits, and reads the windows. Another 'filter top' that ends meanwhile may turn top off. Then look turns it on
// again.
func (t *topView) look(ctx context.Context, wait time.Duration) (s filterplane.TopSample, err error) {
	for range 2 {
		if err := t.turnOn(); err != nil {
			return s, err
		}
		select {
		case <-ctx.Done():
			return s, nil
		case <-time.After(wait):
		}
		if s, err = filterplane.Top(t.inst, filterplane.TopWindows); err == nil {
			break
		}
	}
	return s, err
}

// nowCount is how many talkers TopNow writes at most.
const nowCount = 20

// TopNow writes the list of a 'culvert filter top' that runs elsewhere, as JSON. It turns nothing on: without one it is an AbsentError.
func TopNow(on string, out io.Writer) error {
	inst, err := Open(on)
	if err != nil {
		return err
	}
	defer inst.Close()
	f, err := filterplane.Read(inst)
	if err != nil {
		return err
	}
	if f.Top == filterplane.TopOff {
		return planes.Absent("nobody looks at the talkers of %s now: run 'culvert filter top'", inst.Name())
	}
	t := &topView{o: TopOptions{By: filter.FormatBy(f.Top), Count: nowCount}, inst: inst, by: f.Top}
	if t.sample, err = filterplane.Top(inst, filterplane.TopWindows); err != nil {
		return err
	}
	return show.JSON(out, t.talkers())
}

// TopOff turns top off, which a 'culvert filter top' that was killed leaves on.
func TopOff(on string) error {
	inst, err := Open(on)
	if err != nil {
		return err
	}
	defer inst.Close()
	return filterplane.Edit(inst, func(f *filterplane.Filter) error {
		f.Top = filterplane.TopOff
		return nil
	})
}

type topView struct {
	o      TopOptions
	inst   *datapath.Instance
	by     filterplane.TopBy
	mine   bool // this process has turned top on
	sample filterplane.TopSample
}

// turnOn turns top on. It is an error if it is on by another property.
func (t *topView) turnOn() error {
	f, err := filterplane.Read(t.inst)
	if err != nil || f.Top == t.by {
		return err
	}
	return filterplane.Edit(t.inst, func(f *filterplane.Filter) error {
		if f.Top != filterplane.TopOff && f.Top != t.by {
			return fmt.Errorf("another 'culvert filter top --by %s' is on: end that one, or say 'culvert filter top --off' "+
				"if it has been killed", filter.FormatBy(f.Top))
		}
		t.mine = t.mine || f.Top == filterplane.TopOff
		f.Top = t.by
		return nil
	})
}

// turnOff turns top off if this process has turned it on.
func (t *topView) turnOff() error {
	if !t.mine {
		return nil
	}
	return filterplane.Edit(t.inst, func(f *filterplane.Filter) error {
		if f.Top == t.by {
			f.Top = filterplane.TopOff
		}
		return nil
	})
}

// Talkers is what 'culvert filter top -j' prints.
type Talkers struct {
	Router  string  `json:"router"`
	By      string  `json:"by"`
	Seconds float64 `json:"seconds"`
	// Packets and Bytes are those of all talkers together.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
	// Others is how many packets a talker that is not listed has sent at most.
	Others  uint64   `json:"others_at_most"`
	Talkers []Talker `json:"talkers"`
}

// Talker is a talker. It has sent at most Packets packets, and at least Packets - Error.
type Talker struct {
	Name    string `json:"talker"`
	Packets uint64 `json:"packets"`
	Error   uint64 `json:"error"`
	Bytes   uint64 `json:"bytes"`
}

func (t *topView) talkers() Talkers {
	first, others := t.sample.First(t.o.Count)
	out := Talkers{
		Router: t.inst.Name(), By: t.o.By, Seconds: (t.sample.To - t.sample.From).Seconds(),
		Packets: t.sample.Packets, Bytes: t.sample.Bytes, Others: others, Talkers: []Talker{},
	}
	for _, k := range first {
		out.Talkers = append(out.Talkers, Talker{keyName(k.Key, t.by), k.Packets, k.Error, k.Bytes})
	}
	return out
}

// protocols has the names of IP protocols.
var protocols = map[uint8]string{1: "icmp", 6: "tcp", 17: "udp", 47: "gre", 50: "esp", 58: "icmp6", 132: "sctp"}

// keyName returns the name of a talker.
func keyName(k talkers.Key, by filterplane.TopBy) string {
	switch {
	case !k.IP:
		return "not IP"
	case by == filterplane.TopPrefix:
		return k.Prefix.String()
	case by != filterplane.TopPort:
		return k.Prefix.Addr().String()
	}
	name, ok := protocols[k.Proto]
	if !ok {
		name = fmt.Sprintf("protocol %d", k.Proto)
	}
	if k.Port != 0 {
		name += fmt.Sprintf(" %d", k.Port)
	}
	return name
}

func (t *topView) write() error {
	all := t.talkers()
	if t.o.JSON {
		return show.JSON(t.o.Out, all)
	}
	lines := append([]string{all.headline()}, all.table("  ").Lines()...)
	return show.Lines(t.o.Out, append(lines, all.rest()...))
}

func (t Talkers) headline() string {
	return fmt.Sprintf("%s by %s  %.1fs  %s packets/s  %sbit/s", t.Router, t.By, t.Seconds,
		text.Short(t.rate(t.Packets)), text.Short(8*t.rate(t.Bytes)))
}

// rate returns n per second.
func (t Talkers) rate(n uint64) float64 {
	if t.Seconds == 0 {
		return 0
	}
	return float64(n) / t.Seconds
}

func (t Talkers) table(indent string) *text.Table {
	table := &text.Table{Indent: indent, Right: []bool{false, true, true, true, true}}
	table.Add(strings.ToUpper(t.By), "PACKETS/S", "BITS/S", "SHARE", "ERROR")
	for _, k := range t.Talkers {
		share, err := "", ""
		if t.Packets > 0 {
			share = fmt.Sprintf("%.1f%%", 100*float64(k.Packets-k.Error)/float64(t.Packets))
			err = "0"
			if k.Error > 0 {
				err = fmt.Sprintf("+%.1f%%", 100*float64(k.Error)/float64(t.Packets))
			}
		}
		table.Add(k.Name, text.Short(t.rate(k.Packets)), text.Short(8*t.rate(k.Bytes)), share, err)
	}
	return table
}

// rest returns the lines after the table: how much a talker that is not listed has sent at most.
func (t Talkers) rest() []string {
	switch {
	case t.Packets == 0:
		return []string{"  no packets"}
	case t.Others == 0:
		return nil
	default:
		return []string{fmt.Sprintf("  anybody else has at most %.1f%%, %s packets/s", 100*float64(t.Others)/float64(t.Packets),
			text.Short(t.rate(t.Others)))}
	}
}

func (t *topView) view(th screen.Theme, width int) []screen.Line {
	all := t.talkers()
	lines := []screen.Line{th.TitleLine("culvert filter top "+all.headline(), time.Now().Format(time.TimeOnly), width), {Style: th.Plain}}
	for n, line := range all.table("").Lines() {
		style := th.Plain
		if n == 0 {
			style = th.Head
		}
		lines = append(lines, screen.Line{Style: style, Text: line})
	}
	for _, line := range all.rest() {
		lines = append(lines, screen.Line{Style: th.Quiet, Text: line})
	}
	return lines
}
