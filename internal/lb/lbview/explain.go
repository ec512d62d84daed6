// SPDX-License-Identifier: Apache-2.0

package lbview

import (
	"io"
	"net/netip"

	"culvert/internal/datapath"
	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/show"
	"culvert/internal/show/usage"
)

// ExplainOptions select a flow.
type ExplainOptions struct {
	// On is the name of the data plane, "" for the only load balancer here.
	On string
	// Service is the destination of the client's packets. It has a port.
	Service lb.Service
	Client  netip.AddrPort
	// Interface is the interface that receives the packets, "" for any that the load balancer is attached to.
	Interface string
	JSON      bool
	// NotAsked returns a line for each other stage that may take the packet first. It may be nil.
	NotAsked func(*datapath.Instance) ([]string, error)
}

// Explanation is the output of 'culvert lb explain -j'. Later versions may add fields, but never rename them.
type Explanation struct {
	Router  string `json:"router"`
	Client  string `json:"client"`
	Service string `json:"service"`
	// Verdict and Reason are those under which 'culvert status' counts the next packet of the flow. They are empty if the
	// load balancer leaves the packet to the next stage, or if they depend on the interface.
	Verdict string `json:"verdict,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// By says where the backend comes from, "table" or "ring". It is empty if there is no backend.
	By   string `json:"by,omitempty"`
	Text string `json:"text"`
	// NotAsked has a line for each other stage that may take the packet first.
	NotAsked []string `json:"not_asked,omitempty"`
	// VIP is the VIP of the packet. Hash, OnFailure and ServerID are properties of the VIP.
	VIP       string `json:"vip,omitempty"`
	Hash      string `json:"hash,omitempty"`
	OnFailure string `json:"on_failure,omitempty"`
	ServerID  uint8  `json:"quic_server_id,omitempty"`
	Ring      *Place `json:"ring,omitempty"`
	Flow      *Entry `json:"flow,omitempty"`
	// Backend is the backend that gets the packet.
	Backend *Backend `json:"backend,omitempty"`
	Outer   *Outer   `json:"outer,omitempty"`
	// Fits is the largest packet of the client, in bytes, that can be sent to the backend.
	Fits int `json:"fits,omitempty"`

	hash lbplane.VIP
}

// Place is the flow's position in the ring of its VIP.
type Place struct {
	Position uint32 `json:"position"`
	Size     int    `json:"size"`
	// Backend is the backend at the position, "" for none.
	Backend string `json:"backend,omitempty"`
}

// Entry is the flow's entry in the flow table.
type Entry struct {
	// Backend is empty if the backend has been deleted.
	Backend string  `json:"backend,omitempty"`
	State   string  `json:"state"`
	Idle    float64 `json:"idle_seconds"`
	// Counts is set if packets are assigned by the entry. Otherwise Why says why not.
	Counts bool   `json:"counts"`
	Why    string `json:"why,omitempty"`
}

// Outer is the outer header of a packet.
type Outer struct {
	Source string `json:"source"`
	To     string `json:"destination"`
	// SourcePort and Port are the ports of GUE's UDP header.
	SourcePort uint16 `json:"source_port,omitempty"`
	Port       uint16 `json:"destination_port,omitempty"`
	Bytes      int    `json:"bytes"`
}

// Reasons as the programs count them, and verdicts.
const (
	verdictPass = "pass"
	verdictDrop = "drop"
	verdictFwd  = "fwd"

	reasonEmpty       = "lb-empty"
	reasonHop         = "lb-next-hop"
	reasonKnown       = "lb-flow"
	reasonNew         = "lb-new"
	reasonUnreachable = "lb-unreachable"
	reasonUnclaimed   = "lb-unclaimed"

	byTable       = "table"
	byRing        = "ring"
	stateTakesOff = "its time is over"
	stateResumes  = "it is closed, unless a packet without SYN, FIN or RST goes on with it"
)

// Explain writes to out which backend a flow gets, and why. It sends no packet and changes no counter.
func Explain(o ExplainOptions, out io.Writer) error {
	switch {
	case o.Service.Port == 0:
		return usage.Errorf("%s has no port: say which one the client sends to", o.Service)
	case o.Client.Addr().Is4() != o.Service.Addr.Is4():
		return usage.Errorf("%s does not send to %s: give addresses of one family", o.Client, o.Service)
	}
	return with(o.On, func(v *view) error {
		e, err := v.explain(o.Service, o.Client, o.Interface)
		if err == nil && o.NotAsked != nil {
			e.NotAsked, err = o.NotAsked(v.inst)
		}
		if err != nil {
			return err
		}
		if o.JSON {
			return show.JSON(out, e)
		}
		return e.writeText(out)
	})
}

// explain follows the program (bpf/lb/stage.h) for a packet that is not a fragment.
func (v *view) explain(to lb.Service, client netip.AddrPort, iface string) (*Explanation, error) {
	e := &Explanation{Router: v.inst.Name(), Client: client.String(), Service: to.String()}
	known, err := v.plane.VIPs()
	if err != nil {
		return nil, err
	}
	if v.match(e, to, known); e.VIP == "" {
		for key := range known {
			if key.Addr == to.Addr {
				return e, v.unclaimed(e, to, client, iface)
			}
		}
		e.Text = "goes on to the next stage: no VIP has this address"
		return e, nil
	}
	return e, v.follow(e, to, client, iface)
}

// follow explains what happens to a packet to a VIP.
func (v *view) follow(e *Explanation, to lb.Service, client netip.AddrPort, iface string) error {
	ring, err := v.place(e, to, client)
	if err != nil {
		return err
	}
	known, err := v.entry(e, to, client)
	if err != nil {
		return err
	}
	backend := ring
	switch {
	case known != nil:
		backend, e.By, e.Verdict, e.Reason = known, byTable, verdictFwd, reasonKnown
	case ring != nil:
		e.By, e.Verdict, e.Reason = byRing, verdictFwd, reasonNew
	default:
		return v.unserved(e, to, client, iface)
	}
	return v.send(e, *backend, to, client)
}

// match returns the VIP of the port, else the one of all ports.
func (v *view) match(e *Explanation, to lb.Service, all map[lbplane.VIPKey]lbplane.VIP) {
	for _, s := range []lb.Service{to, {Addr: to.Addr, Protocol: to.Protocol}} {
		known, ok := all[s.Key()]
		if !ok {
			continue
		}
		e.hash, e.VIP, e.ServerID = known, s.String(), known.ServerID
		e.Hash, e.OnFailure = lb.HashFlow, lb.FailKeep
		switch {
		case known.Source:
			e.Hash = lb.HashSource
		case known.SourcePort:
			e.Hash = lb.HashSourcePort
		}
		if known.Move {
			e.OnFailure = lb.FailMove
		}
		return
	}
}

// known returns the backend with an ID, nil if it has been deleted.
func (v *view) known(id lbplane.BackendID) (*lbplane.Backend, error) {
	if id == 0 || int(id.Number()) >= v.plane.Options().Backends {
		return nil, nil
	}
	backend, err := v.plane.Backend(id.Number())
	if err != nil || backend.ID != id || !backend.Used {
		return nil, err
	}
	return &backend, nil
}

// place returns the flow's position in the ring.
func (v *view) place(e *Explanation, to lb.Service, client netip.AddrPort) (*lbplane.Backend, error) {
	o := v.plane.Options()
	e.Ring = &Place{Position: o.Position(e.hash, uint8(to.Protocol), client, to.Port), Size: o.RingSize}
	if e.hash.Empty {
		return nil, nil
	}
	ring, err := v.plane.Ring(e.hash.Number)
	if err != nil || ring == nil {
		return nil, err
	}
	backend, err := v.known(ring[e.Ring.Position])
	if backend != nil {
		e.Ring.Backend = backend.Addr.String()
	}
	return backend, err
}

// entry looks up the flow in the flow table. It returns the backend if packets are assigned by the entry.
func (v *view) entry(e *Explanation, to lb.Service, client netip.AddrPort) (*lbplane.Backend, error) {
	f, ok, err := v.plane.FindFlow(e.hash.Number, client, to.Port)
	if err != nil || !ok {
		return nil, err
	}
	e.Flow = &Entry{State: f.State, Idle: f.Idle.Seconds()}
	backend, err := v.known(f.Backend)
	if backend != nil {
		e.Flow.Backend = backend.Addr.String()
	}
	switch {
	case err != nil:
		return nil, err
	case f.Expired && f.State == "closing" && f.Idle < v.plane.Options().IdleTCP:
		e.Flow.Why = stateResumes
	case f.Expired:
		e.Flow.Why = stateTakesOff
	case backend == nil:
		e.Flow.Why = "its backend has gone"
	case backend.Down && e.hash.Move:
		e.Flow.Why = "its backend is down, and flows move on failure"
	default:
		e.Flow.Counts = true
		return backend, nil
	}
	return nil, nil
}

// send explains how the packet is sent to the backend.
func (v *view) send(e *Explanation, backend lbplane.Backend, to lb.Service, client netip.AddrPort) error {
	b, checked := v.named(backend.ID)
	b.Addr = backend.Addr
	shown, err := v.backend(b, checked)
	if err != nil {
		return err
	}
	e.Backend = &shown
	if shown.Share, err = v.share(e.hash, backend.ID); err != nil {
		return err
	}
	if backend.Encap != lbplane.L2 {
		source := v.plane.Outer(backend, client, to.Port)
		e.Outer = &Outer{Source: source.Addr().String(), To: backend.Addr.String(), Bytes: backend.Overhead()}
		if backend.Encap == lbplane.GUE {
			e.Outer.SourcePort, e.Outer.Port = source.Port(), backend.GUEPort
		}
	}
	if backend.Hop.Port == 0 {
		e.Verdict, e.Reason = verdictDrop, reasonHop
		e.Text = "dropped: the next hop to " + shown.Addr + " is not resolved"
		return nil
	}
	e.Fits = max(int(backend.Hop.MTU)-backend.Overhead(), 0)
	e.Text = "to " + shown.Addr + ", by the ring"
	if e.By == byTable {
		e.Text = "to " + shown.Addr + ", by the flow table"
	}
	return nil
}

// named returns the backend with an ID, and whether its VIP has a check.
func (v *view) named(id lbplane.BackendID) (lb.Backend, bool) {
	for _, vip := range v.state.VIPs {
		for _, b := range vip.Backends {
			if b.ID == id {
				return b, vip.Check != nil
			}
		}
	}
	return lb.Backend{ID: id}, false
}

// share returns the percentage of a VIP's ring that a backend has.
func (v *view) share(vip lbplane.VIP, id lbplane.BackendID) (float64, error) {
	if vip.Empty {
		return 0, nil
	}
	ring, err := v.plane.Ring(vip.Number)
	if err != nil || len(ring) == 0 {
		return 0, err
	}
	n := 0
	for _, o := range ring {
		if o == id {
			n++
		}
	}
	return 100 * float64(n) / float64(len(ring)), nil
}
