// SPDX-License-Identifier: Apache-2.0

package pipelinefuzz

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Actions of XDP.
const (
	xdpDrop     = 1
	xdpPass     = 2
	xdpTX       = 3
	xdpRedirect = 4
)

// answers are the reasons for answers, which leave by the device by which the packet came in.
var answers = map[string]bool{
	"fwd lb-echo": true, "fwd lb-too-big": true, "fwd lb-unreachable": true, "fwd filter-synack": true,
}

// check returns what is wrong with an outcome.
func (b *bed) check(tr trial, o outcome) error {
	if o.counted.Packets != 1 || o.others != 0 {
		return fmt.Errorf("it was counted %d times in one place and in %d others", o.counted.Packets, o.others)
	}
	// What a stage did not have to know of a frame of several buffers is not counted (struct packet).
	// The filter counts what it judges.
	v := decode(tr.frame)
	b.noteStray(&v)
	verdict, reason, _ := strings.Cut(o.reason, " ")
	whole := tr
	if b.on.filter && strings.HasPrefix(reason, "filter") {
		whole, _ = judged(tr)
	}
	if n := o.counted.Bytes; n != uint64(len(whole.frame)) && (tr.linear() == len(tr.frame) || n != uint64(whole.linear())) {
		return fmt.Errorf("%d bytes were counted", n)
	}
	if reason == "" {
		return errors.New("it was counted under a number that is no reason")
	}
	if o.limited && verdict != "punt" {
		return errors.New("a limit has no such reason")
	}
	if err := b.checkLimit(tr, o); err != nil {
		return err
	}
	switch {
	case o.limited || verdict == "drop":
		if o.action != xdpDrop {
			return errors.New("it was not dropped")
		}
	case verdict == "pass" || verdict == "punt":
		if o.action != xdpPass {
			return errors.New("it was not passed")
		}
		if !bytes.Equal(o.frame, tr.frame) {
			return errors.New("it was passed, but changed")
		}
	case verdict == "fwd":
		if o.action != xdpRedirect && (o.action != xdpTX || !answers[o.reason]) {
			return errors.New("it was not sent")
		}
		if err := wellFormed(o.frame, answers[o.reason]); err != nil {
			return err
		}
	default:
		return errors.New("no such verdict")
	}
	if err := b.checkFilter(tr, o); err != nil {
		return err
	}
	stage, _, _ := strings.Cut(reason, "-")
	switch stage {
	case "filter":
		if !b.on.filter {
			return errors.New("there is no filter")
		}
		return nil // checked already
	case "scion":
		return b.checkSCION(tr, o)
	case "lb":
		return b.checkBalance(tr, o)
	case "route":
		if err := b.checkRoute(tr, o); err != nil {
			return err
		}
	}
	return errors.Join(b.checkNotSCION(tr, o), b.checkNotBalance(tr, o), b.checkNotRoute(tr, o))
}

// linear returns how many bytes the first buffer has.
func (tr trial) linear() int {
	n := len(tr.frame)
	if tr.first > 0 {
		n = min(n, tr.first)
	}
	return min(n, linearMax)
}

// unseen returns how many bytes after the packet stay in the frame. The program removes padding in the buffer in which the
// packet ends. It does not ask whether further buffers follow, because that would cost time for every packet.
func (tr trial) unseen(v *view, least int) int {
	end := v.l3 + len(v.packet)
	known := len(tr.frame)
	if end <= tr.linear() {
		known = tr.linear()
	}
	if known > max(end, least) {
		return max(min(len(tr.frame), max(end, least))-end, 0)
	}
	return len(tr.frame) - end
}

// ours reports whether a frame is addressed to the device by which it comes in.
func (b *bed) ours(tr trial) bool {
	return bytes.Equal(tr.frame[:6], b.net.Devices[tr.in].MAC[:])
}

// untouched reports whether the filter left a frame to the stages after it, in a form that all of them read: without tags, and
// with all headers in the first buffer.
func (b *bed) untouched(tr trial, v *view, o outcome) bool {
	return b.ours(tr) && v.ip != 0 && len(v.tags) == 0 && tr.linear() >= min(len(tr.frame), v.l3+128) && !strings.Contains(o.reason, " filter")
}
