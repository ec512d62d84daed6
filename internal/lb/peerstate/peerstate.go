// SPDX-License-Identifier: Apache-2.0

// Package peerstate has what the process of a load balancer knows about the load balancers that it exchanges flows with, for
// commands and metrics.
package peerstate

import (
	"net/netip"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/host/runstate"
)

// Kind is the kind of this state in runstate.
const Kind = "lb-peers"

// State is the state of the exchange.
type State struct {
	// Listen is the address of this machine that the others know.
	Listen netip.AddrPort `json:"listen"`
	// Bulk says how far asking the others for their flows at the start has come.
	Bulk string `json:"bulk"`
	// BulkError says in one line why a peer's flows are missing since the start, "" if none are.
	BulkError string `json:"bulk_error,omitempty"`
	// Deviating is the number of flows here whose backend is another one than the ring's, without those that are known from
	// others only, and Untold how many of them the others have not been told of yet.
	Deviating uint64 `json:"deviating"`
	Untold    uint64 `json:"untold"`
	// Held is the number of flows that are known from others only, and Limit the most of these, and of deviating ones that are told.
	Held  uint64 `json:"held"`
	Limit uint64 `json:"limit"`
	// Told counts the flows that were told, each time anew, and SendErrors the datagrams that could not be sent.
	Told       uint64 `json:"told"`
	SendErrors uint64 `json:"send_errors"`
	// Strangers counts the datagrams from addresses that are no peer's.
	Strangers uint64 `json:"strangers"`
	// Flows counts the flows that peers have told, by what became of them.
	Flows map[string]uint64 `json:"flows"`
	Peers []Peer            `json:"peers"`
}

// Values of State.Bulk.
const (
	// BulkOff: there is no [lb.peers.bulk].
	BulkOff = "off"
	// BulkAsking: nothing is announced yet.
	BulkAsking = "asking"
	BulkDone   = "done"
	// BulkIncomplete: time was up before all peers had answered.
	BulkIncomplete = "incomplete"
)

// Peer is another load balancer.
type Peer struct {
	Address netip.AddrPort `json:"address"`
	// Up is set if it has been heard within the last seconds. Since is when that began or ended.
	Up    bool      `json:"up"`
	Since time.Time `json:"since"`
	// OtherSeed is set if seed or ring_size are not the same there, and OtherRings if the rings have differed for a while: VIPs,
	// backends, weights, drains or the results of checks.
	OtherSeed  bool `json:"other_seed"`
	OtherRings bool `json:"other_rings"`
	// Datagrams counts those in its name by what became of them.
	Datagrams map[string]uint64 `json:"datagrams"`
	// Wrong says in one line what is wrong with what comes in its name, "" if nothing is or was lately.
	Wrong string `json:"wrong,omitempty"`
}

// Results of datagrams.
const (
	Accepted = "accepted"
	// Lost ones have not come, by their sequence numbers.
	Lost = "lost"
	// WrongMAC ones were made with another key, or changed.
	WrongMAC = "wrong-mac"
	// OtherVersion ones are of a version of culvert that speaks another version of the format.
	OtherVersion = "version"
	// Cut ones make no sense although they may have the right key.
	Cut = "cut"
	// Replayed ones were there before, or are too old.
	Replayed = "replayed"
	// Unconfirmed ones came before the sender has said that it has started again.
	Unconfirmed = "unconfirmed"
	// Flood ones are more than the rate allows.
	Flood = "flood"
)

// Datagrams are all results of datagrams.
var Datagrams = []string{Accepted, Lost, WrongMAC, OtherVersion, Cut, Replayed, Unconfirmed, Flood}

// Results of flows.
const (
	Installed = "installed"
	// Refreshed ones were there with the same backend and an earlier time, Replaced ones with a backend that a peer had told.
	Refreshed = "refreshed"
	Replaced  = "replaced"
	// Known ones were there with the same backend.
	Known = "known"
	// Conflict ones are there with another backend, by packets of their own.
	Conflict = "conflict"
	// NoVIP and NoBackend ones are of a VIP or a backend that is not known here. BackendDown ones have one that keeps no flows.
	NoVIP       = "no-vip"
	NoBackend   = "no-backend"
	BackendDown = "backend-down"
	// Expired ones had timed out.
	Expired = "expired"
	// Full ones found no room in the flow table, OverLimit ones are more than the limit.
	Full      = "full"
	OverLimit = "over-limit"
)

// Flows are all results of flows.
var Flows = []string{Installed, Refreshed, Replaced, Known, Conflict, NoVIP, NoBackend, BackendDown, Expired, Full, OverLimit}

// Of returns the state of the exchange of the process that serves a data plane, nil if it exchanges none, or if that cannot be seen
// from here.
func Of(inst *datapath.Instance) (*State, error) {
	id := inst.ID()
	if id == 0 || !inst.Served() {
		return nil, nil
	}
	var s State
	known, err := runstate.Read(Kind, inst.NetNS(), inst.Name(), id, &s)
	if err != nil || !known {
		return nil, err
	}
	return &s, nil
}
