// SPDX-License-Identifier: Apache-2.0

// Package trace is what the stages have in common that explain the way of a captured packet: the packet, read as the programs read it,
// and the step that a stage makes of it.
package trace

import (
	"net/netip"
	"time"

	"culvert/internal/datapath"
)

// Explainer explains what a stage does with packets, by the state that the stage has when it is asked. It changes nothing.
type Explainer interface {
	// Stage is the name of the stage, as in reasons.
	Stage() string
	// Follow has it explain by what a data plane has now. It returns false if the stage is off there. The data plane has to stay
	// open until the next call, or Close.
	Follow(inst *datapath.Instance) (on bool, err error)
	// Explain returns what the stage does with a packet.
	Explain(p *Packet) (Step, error)
	Close()
}

// Step is what a stage does with a packet.
type Step struct {
	// Text says what happens. It is "" if there is nothing to say. Lookups are what was found on the way there, a line each.
	Text    string
	Lookups []string
	// Reason is what the packet is counted under if its way ends at the stage, "" if it goes on. Verdict is "" if it follows from
	// the reason alone.
	Verdict, Reason string
	// Before is the reason of a packet that has changed the state itself so that the next one has Reason. It may be empty.
	Before string
	// Unsure says that whether the packet goes on cannot be worked out afterwards.
	Unsure bool
}

// Add adds a line to what was looked up.
func (s *Step) Add(line string) { s.Lookups = append(s.Lookups, line) }

// Words describes the end of a packet's way, as "fwd route".
func (s *Step) Words() string {
	if s.Verdict == "" {
		return s.Reason
	}
	return s.Verdict + " " + s.Reason
}

// On returns the step of a packet that goes on to the next stage.
func On(text string) Step { return Step{Text: text} }

// Unsure returns the step of a packet of which it is not known whether it goes on.
func Unsure(text string) Step { return Step{Text: text, Unsure: true} }

// Ends returns the step of a packet whose way ends at the stage.
func Ends(verdict datapath.Verdict, reason, text string) Step {
	return Step{Verdict: string(verdict), Reason: reason, Text: text}
}

// Frame is a frame as it came in.
type Frame struct {
	// Data has the beginning of the frame, Length bytes long.
	Data   []byte
	Length int
	// Ingress is the index of the interface, and Name its name.
	Ingress int
	Name    string
	// At is when it came.
	At time.Time
}

// Cut tells whether the end of the frame is missing.
func (f *Frame) Cut() bool { return len(f.Data) < f.Length }

// Packet is a frame as the programs read it (bpf/core/parse.h).
type Packet struct {
	Frame
	// Own is set for a frame to the interface's own address. Of others nothing more is read.
	Own bool
	// IP is 4 or 6, 0 for a frame without an IP header, or with more than one tag. L3 is where the header is.
	IP, L3 int
	// VLAN is the ID of the tag, 0 for none.
	VLAN     uint16
	Src, Dst netip.Addr
	Protocol uint8
	TTL      uint8
	// Length of the IP packet, in bytes. It is 0 with NoForward.
	IPLength int
	// NoForward says that the packet is not forwarded, whatever its destination. Options says that it is for its options.
	NoForward, Options bool
	Fragment           bool
	// Ports says that SrcPort and DstPort are known: of TCP and UDP without options and extension headers, and no fragment.
	Ports            bool
	SrcPort, DstPort uint16
	// UDP is set for plain UDP without tags, options and extension headers. Payload is what is there of its payload, and
	// PayloadLength all of it.
	UDP           bool
	Payload       []byte
	PayloadLength int
	// Checksum is that of UDP, 0 for none.
	Checksum uint16
}

// From and To are source and destination with their ports.
func (p *Packet) From() netip.AddrPort { return netip.AddrPortFrom(p.Src, p.SrcPort) }

// To is the destination with its port.
func (p *Packet) To() netip.AddrPort { return netip.AddrPortFrom(p.Dst, p.DstPort) }
