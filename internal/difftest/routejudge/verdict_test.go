// SPDX-License-Identifier: Apache-2.0

package routejudge

import (
	"bytes"
	"fmt"
)

// Actions of an XDP program.
const (
	xdpAborted = iota
	xdpDrop
	xdpPass
	xdpTx
	xdpRedirect
)

// fate is what the fast path did with one packet.
type fate struct {
	action uint32
	frame  []byte
}

// fastPath is a fast path under test. Fake ones that lie also get what the kernel does with the packet.
type fastPath func(p *packet, kernel *outcome) fate

// mustForward is the verdict on an ordinary packet that the fast path has passed.
const mustForward = "passes what it has to forward"

// unasked is the verdict on a packet that only the fast path forwards.
const unasked = "forwards what the kernel does not"

// smallest is the length to which a frame may be padded.
const smallest = 60

// lowestMTU is the lowest MTU that routes of the tables have.
const lowestMTU = 1280

// verdict returns what is wrong with the fate of a packet, "" if it is right. The fast path must forward ordinary packets up
// to flow takes.
func verdict(p *packet, kernel *outcome, f fate, takes flow) string {
	switch f.action {
	case xdpPass:
		if !bytes.Equal(f.frame, p.frame) {
			return "changes what it passes"
		}
		if p.ordinary && p.flow <= takes && mustTake(p, kernel) {
			return mustForward
		}
	case xdpDrop:
		if len(kernel.forwards) > 0 {
			return "drops what the kernel forwards"
		}
		if len(kernel.answers) > 0 {
			return "drops what the kernel answers"
		}
	case xdpRedirect, xdpTx:
		switch {
		case len(kernel.answers) > 0:
			return "forwards what the kernel answers"
		case len(kernel.forwards) == 0:
			return unasked
		case len(kernel.forwards) > 1:
			return "forwards what the kernel breaks up"
		case kernel.forwards[0].port == portWithoutXDP:
			return "forwards to the port without culvert"
		case !same(f.frame, kernel.forwards[0].frame):
			return "forwards another frame than the kernel"
		}
	default:
		return fmt.Sprintf("ends with action %d", f.action)
	}
	return ""
}

// mustTake reports whether the fast path can do everything that the kernel does with a packet.
func mustTake(p *packet, kernel *outcome) bool {
	if len(kernel.answers) > 0 || len(kernel.forwards) != 1 {
		return false
	}
	o := kernel.forwards[0]
	// With a locked MTU larger than the port's, the kernel sends frames that the port should not carry. The kernel redirects
	// senders whose packets leave by the port where they came in, but not each time, so these packets are left to it.
	return len(o.frame) <= 14+mtus[o.port] && o.port != portWithoutXDP && o.port != p.port
}

func same(fast, kernel []byte) bool {
	if len(fast) > len(kernel) && len(fast) <= smallest {
		fast = fast[:len(kernel)]
	}
	return bytes.Equal(fast, kernel)
}

// complaint describes a packet that a fast path treated wrongly.
type complaint struct {
	what   string
	packet *packet
	kernel *outcome
	fate   fate
	more   string
}

func (c complaint) String() string {
	s := fmt.Sprintf("%s: %s: %v to %v by port %d\n  in      %x", c.packet.kind, c.what, c.packet.src, c.packet.dst,
		c.packet.port, short(c.packet.frame))
	for _, o := range c.kernel.forwards {
		s += fmt.Sprintf("\n  kernel  port %d %x", o.port, short(o.frame))
	}
	for _, o := range c.kernel.answers {
		s += fmt.Sprintf("\n  answer  port %d %x", o.port, short(o.frame))
	}
	return s + fmt.Sprintf("\n  culvert action %d %x", c.fate.action, short(c.fate.frame)) + c.more
}

// short cuts a frame to the bytes that are worth printing.
func short(frame []byte) []byte { return frame[:min(len(frame), 120)] }
