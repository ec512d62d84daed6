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

// fate is what a fast path did with one packet.
type fate struct {
	action uint32
	frame  []byte
}

// fastPath is a fast path under test. Liars also need to know what the kernel does with the packet.
type fastPath func(p *packet, kernel *outcome) fate

// mustForward is the verdict on an ordinary packet that was passed.
const mustForward = "passes what it has to forward"

// smallest is the length to which a frame may be padded.
const smallest = 60

// lowestMTU is the lowest that tables give a route.
const lowestMTU = 1280

// verdict returns what is wrong with the fate of a packet, nothing if it is right. The fast path must forward ordinary packets
// whose flow is at most takes.
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
			return "forwards what the kernel does not"
		case len(kernel.forwards) > 1:
			return "forwards what the kernel breaks up"
		case kernel.forwards[0].port == plain:
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
	// A locked MTU larger than the port's has the kernel send more than the port should carry. And it tells senders
	// of a shorter way, but not each time, so that going back is left to it.
	return len(o.frame) <= 14+mtus[o.port] && o.port != plain && o.port != p.port
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
