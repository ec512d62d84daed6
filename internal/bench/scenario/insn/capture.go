// SPDX-License-Identifier: Apache-2.0

package insn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf/perf"

	"culvert/internal/bench/peer"
	"culvert/internal/bench/scenario/filterrun"
	"culvert/internal/bench/scenario/routerun"
	"culvert/internal/capture/captureplane"
	"culvert/internal/datapath"
	"culvert/internal/filter/cbpf"
	"culvert/internal/filter/filterplane"
)

// Expressions of captures, as 'tcpdump -ddd' prints them, because guests have no libpcap.
const (
	// matchNone and matchAll decide at once.
	matchNone = "1\n6 0 0 0\n"
	matchAll  = "1\n6 0 0 262144\n"
	// matchPort is "udp port 9999", which no packet has: they are of UDP, so all of it is evaluated.
	matchPort = "20\n40 0 0 12\n21 0 6 34525\n48 0 0 20\n21 0 15 17\n40 0 0 54\n21 12 0 9999\n40 0 0 56\n21 10 11 9999\n" +
		"21 0 10 2048\n48 0 0 23\n21 0 8 17\n40 0 0 20\n69 6 0 8191\n177 0 0 14\n72 0 0 14\n21 2 0 9999\n72 0 0 16\n21 0 1 9999\n" +
		"6 0 0 262144\n6 0 0 0\n"
)

// captures are rows with the packets of others, while they are captured. The difference to those is the cost of the capture.
func captures() []peer.Candidate {
	var all []peer.Candidate
	for _, of := range []struct {
		name string
		row  peer.Candidate
	}{{"route", routerun.Mirror4()}, {"filter", filterrun.PassOne()}} {
		for _, on := range []struct{ name, expression string }{{"none", matchNone}, {"port", matchPort}, {"all", matchAll}} {
			all = append(all, peer.Candidate{Name: "capture-" + of.name + "-" + on.name, Device: func(o peer.DeviceOptions) peer.Device {
				return &captured{capturable: of.row.Device(o).(capturable), expression: on.expression}
			}})
		}
	}
	return all
}

// capturable is a device whose packets can be captured.
type capturable interface {
	peer.SingleProgram
	Instance() *datapath.Instance
}

// captured is a device with a capture.
type captured struct {
	capturable
	expression string
	path       peer.Path
	session    *captureplane.Session
}

// captureBuffer has room for all packets of a row, in bytes. Nobody reads them before the end.
const captureBuffer = 8 << 20

// Attach implements peer.Device.
func (d *captured) Attach(ctx context.Context, p peer.Path) error {
	d.path = p
	prog, err := cbpf.Parse([]byte(d.expression))
	if err != nil {
		return err
	}
	if err := d.capturable.Attach(ctx, p); err != nil {
		return err
	}
	o := captureplane.Options{Program: prog, InBytes: peer.FrameSize, OutBytes: peer.FrameSize}
	return p.In.Netns.Do(func() (err error) {
		d.session, err = captureplane.Start(d.Instance(), o, []datapath.Fronted{filterplane.NewPart()}, captureBuffer)
		return err
	})
}

// Learns makes each packet a new one, so that there are few: each takes room in the buffer.
func (*captured) Learns() bool { return false }

// Check tells whether the capture has shown packets that it was to show, and no others.
func (d *captured) Check() error {
	lost, err := d.session.Lost()
	if err != nil {
		return err
	}
	shown := 0
	d.session.Reader().SetDeadline(time.Now().Add(time.Millisecond))
	for r := (perf.Record{}); err == nil; shown++ {
		err = d.session.Read(&r)
	}
	shown--
	switch {
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("read the packets of the capture: %w", err)
	case lost > 0:
		return fmt.Errorf("the capture has lost %d records", lost)
	case (shown > 0) != (d.expression == matchAll):
		return fmt.Errorf("the capture has shown %d records", shown)
	}
	return nil
}

// Detach implements peer.Device.
func (d *captured) Detach() (err error) {
	if d.session != nil {
		err = d.path.In.Netns.Do(d.session.Close)
	}
	return errors.Join(err, d.capturable.Detach())
}
