// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
)

// Current says what nodes are to run. One key has all of it, so that a node never sees a part of a change.
type Current struct {
	// Revision is the one of all nodes that no rollout has reached, 0 for none: nodes run their own file.
	Revision int64 `json:"revision"`
	// Rollout is under way, or has stopped half-way; nil if there is none.
	Rollout *Rollout `json:"rollout,omitempty"`
}

// Of returns the revision that a node is to run.
func (c Current) Of(node string) int64 {
	if r := c.Rollout; r != nil {
		for _, name := range r.Nodes {
			if name == node {
				return r.To
			}
		}
	}
	return c.Revision
}

// Rollout brings a revision to nodes in steps.
type Rollout struct {
	// To is the revision.
	To int64 `json:"to"`
	// Nodes are those that the steps so far have reached.
	Nodes []string `json:"nodes"`
	// Plan are the nodes of each step, in their order.
	Plan [][]string `json:"plan"`
	// Step counts the steps so far, from 1.
	Step int `json:"step"`
	// Wait is how long all nodes of the steps so far have to run To in good health before the next step, without a break.
	Wait time.Duration `json:"wait"`
	// Within is how long the nodes of a step have for running To.
	Within time.Duration `json:"within"`
	// By says who started it.
	By string `json:"by"`
}

// Holder is who holds the lock of rollouts.
type Holder struct {
	By string    `json:"by"`
	At time.Time `json:"at"`
	// Does is the command in words.
	Does string `json:"does"`
}

// Known are the nodes that rollouts have met, by name, and when a rollout met them last.
type Known map[string]time.Time

// Revision is what is known of a revision beside its documents.
type Revision struct {
	Number int64 `json:"number"`
	// Before is the revision that it was made from, 0 for none.
	Before  int64     `json:"before"`
	At      time.Time `json:"at"`
	By      string    `json:"by"`
	Comment string    `json:"comment,omitempty"`
	// Documents are the SHA-256 sums of its documents, in hexadecimal, by scope.
	Documents map[string]string `json:"documents"`
	// Sets are the manifests' SHA-256 sums of the sets that the documents name, by SCOPE:NAME. In the documents they are the values of
	// [[filter.set]] file, and on a node names of files in the directory of sets.
	Sets map[string]string `json:"sets,omitempty"`
}

// SetsOf returns the hashes of the manifests of the sets that the documents of a node name, sorted.
func (r Revision) SetsOf(node string, roles []string) (hashes []string) {
	for ref, hash := range r.Sets {
		scope, _, _ := strings.Cut(ref, ":")
		if s, err := ParseScope(scope); err == nil && s.Holds(node, roles) {
			hashes = append(hashes, hash)
		}
	}
	slices.Sort(hashes)
	return slices.Compact(hashes)
}

// Urgent is a change that is in force on each node within a second, and until its key is deleted. apply and rollback do not
// touch it.
type Urgent struct {
	// ID is a number of at least 8 digits. The order of IDs is the one in which nodes carry changes out.
	ID string `json:"id"`
	// Scope says which nodes carry it out.
	Scope Scope `json:"scope"`
	// Words are those of the verb (culvert/internal/edit), Request is its request as JSON.
	Words   string          `json:"words"`
	Request json.RawMessage `json:"request"`
	At      time.Time       `json:"at"`
	// For is how long it lasts, 0 without an end. A node ends it by its own monotonic clock, if its key does not end before.
	For time.Duration `json:"for,omitempty"`
	By  string        `json:"by"`
}

// Maintain is a node's maintenance.
type Maintain struct {
	At      time.Time `json:"at"`
	By      string    `json:"by"`
	Comment string    `json:"comment,omitempty"`
	// Announced are the addresses that the node announced when it was asked to withdraw: it is in service again once it announces them.
	Announced []string `json:"announced,omitempty"`
}

// ParseMaintain reads a node's maintenance. One that does not say who wants it and since when was written by hand, and is refused: a node is not
// taken out of service by a key that nobody answers for.
func ParseMaintain(text []byte) (m Maintain, err error) {
	switch err := json.Unmarshal(text, &m); {
	case err != nil:
		return Maintain{}, err
	case m.By == "" || m.At.IsZero():
		return Maintain{}, errors.New("it does not say who wants it and since when")
	}
	return m, nil
}

// Audit is what somebody did.
type Audit struct {
	At time.Time `json:"at"`
	// By is the operator: USER@HOST, and the common name of the certificate.
	By string `json:"by"`
	// Did is the command in words: "apply", "rollback", "filter add", "maintain".
	Did string `json:"did"`
	// On says on what: a revision, a node, the request of an urgent change.
	On string `json:"on,omitempty"`
	// Outcome is "done", "back" or "failed", and Why says in one line why it is not done.
	Outcome string `json:"outcome"`
	Why     string `json:"why,omitempty"`
	// Back is the revision that went back, by itself or by hand half-way, 0 if none did.
	Back int64 `json:"back,omitempty"`
}

// SetManifest names the chunks of a set of the filter. A chunk has entries with what belongs to them (their timeouts), a line each,
// sorted.
type SetManifest struct {
	Name string `json:"name"`
	// Type is that of the entries: "prefix" or "endpoint".
	Type string `json:"type"`
	// Entries counts the set's lines.
	Entries int `json:"entries"`
	// Chunks are the hashes of the chunks in the order of their entries. A chunk ends where the hash of a line says so, and so sets that
	// differ in one place share most chunks.
	Chunks []string `json:"chunks"`
	// Removed and Added are hashes of chunks with the lines to take out of Chunks, and to add to what remains. Sets that differ in many
	// places share Chunks, and these are small.
	Removed []string `json:"removed,omitempty"`
	Added   []string `json:"added,omitempty"`
}

// Kinds of questions.
const (
	// AskWhere asks what a node does with an address, VIP or flow.
	AskWhere = "where"
	// AskCheck asks whether the node would run documents.
	AskCheck = "check"
)

// Ask is a question to nodes.
type Ask struct {
	ID    string `json:"id"`
	Kind  string `json:"kind"`
	Scope Scope  `json:"scope"`
	// Where is an address, a VIP as users write it, or a flow: SOURCE DESTINATION PROTOCOL.
	Where string `json:"where,omitempty"`
	// Documents are those to check, by scope, and Sets the hashes of the manifests of the sets that they name.
	Documents map[string]string `json:"documents,omitempty"`
	Sets      map[string]string `json:"sets,omitempty"`
}

// Answer is what a node says to a question.
type Answer struct {
	Node string `json:"node"`
	// Lines are for people: what there is of it on this node, nothing if there is nothing.
	Lines []string `json:"lines,omitempty"`
	// Errors say why a node would not run documents, or could not answer.
	Errors []string `json:"errors,omitempty"`
	// Where has the same for programs.
	Where *Where `json:"where,omitempty"`
}

// Where is what a node has of an address, VIP or flow.
type Where struct {
	// Announced tells whether the node announces the address.
	Announced bool `json:"announced"`
	// VIPs are those of that address.
	VIPs []string `json:"vips,omitempty"`
	// Backend is the one that the flow has, or that the ring gives it. Ring is the one that the ring gives it, and Why tells them apart.
	Backend string `json:"backend,omitempty"`
	Ring    string `json:"ring,omitempty"`
	Why     string `json:"why,omitempty"`
	// Position is where in the VIP's ring of RingSize places the flow is. It means nothing with a RingSize of 0.
	Position uint32 `json:"position,omitempty"`
	RingSize int    `json:"ring_size,omitempty"`
	// Rule is the rule of the filter that decides about the flow's first packet, with its action: "drop by NAME".
	Rule string `json:"rule,omitempty"`
	// Sets are those that the address is in, or one of the flow.
	Sets []string `json:"sets,omitempty"`
}

// Health of a node.
const (
	HealthGood = "good"
	HealthBad  = "bad"
)

// MostState bounds the size of State in JSON, in bytes. A node leaves out what does not fit, and says so.
const MostState = 2048

// State is what a node reports, each StatePeriod if it has changed, and at once when something of weight changes.
type State struct {
	Node string `json:"node"`
	// Instance tells the process from others of its name.
	Instance string   `json:"instance"`
	Host     string   `json:"host"`
	Version  string   `json:"version"`
	Roles    []string `json:"roles,omitempty"`
	// Revision is the one that runs. Wanted is the one that is to run, if that is another one, and Refused says in one line why it does not.
	Revision int64  `json:"revision"`
	Wanted   int64  `json:"wanted,omitempty"`
	Refused  string `json:"refused,omitempty"`
	// Digest is the SHA-256 of the documents that run, in hexadecimal, shortened to 16 digits.
	Digest string `json:"digest,omitempty"`
	// Urgent are the IDs of the urgent changes in force, and UrgentFailed says why others are not, by ID.
	Urgent       []string          `json:"urgent,omitempty"`
	UrgentFailed map[string]string `json:"urgent_failed,omitempty"`
	// UrgentOver are the IDs of those whose time is over by the node's clock, and that etcd still has.
	UrgentOver []string `json:"urgent_over,omitempty"`
	// UrgentUnconcerned are the IDs of those that are about what the node does not have, as a backend. It carries them out once it has.
	UrgentUnconcerned []string `json:"urgent_unconcerned,omitempty"`
	// Health is one of Health*, Problems say in a line each why it is bad.
	Health   string   `json:"health"`
	Problems []string `json:"problems,omitempty"`
	// Maintain is "" or where maintenance is: one of Maintain*.
	Maintain string `json:"maintain,omitempty"`
	// Stages are the states of stages by name.
	Stages map[string]string `json:"stages,omitempty"`
	// Interfaces are those of the data plane.
	Interfaces []InterfaceState `json:"interfaces,omitempty"`
	// Backends are those that are not as they should be, as VIP and backend, with their state.
	Backends map[string]string `json:"backends,omitempty"`
	// Sources are the sources of backends whose last answer is not in force, as NAME of VIP, with STATE: WHY.
	Sources map[string]string `json:"sources,omitempty"`
	// Announced are the VIPs' addresses that the node announces.
	Announced []string `json:"announced,omitempty"`
	// Seed identifies the seed of the rings of a node with VIPs, and RingSize is how many places a ring has. Balancers with the same VIPs have
	// the same ones.
	Seed     string `json:"seed,omitempty"`
	RingSize int    `json:"ring_size,omitempty"`
	// More counts what did not fit into MostState bytes.
	More int `json:"more,omitempty"`
}

// Twin is a process with the name of a node that another process has. It follows no revisions.
type Twin struct {
	Host     string `json:"host"`
	Instance string `json:"instance"`
}

// Maintenance of a node.
const (
	MaintainWithdrawing = "withdrawing" // its addresses are withdrawn, flows still come
	MaintainSafe        = "safe"        // no new flows come: it may be stopped
	// MaintainNothing says that the node announces nothing, in maintenance or not: what comes goes on to come until it is stopped.
	MaintainNothing = "nothing to withdraw"
)

// StatePeriod is how often a node reports at most what is not urgent.
const StatePeriod = 5 * time.Second

// InterfaceState is an interface of a node.
type InterfaceState struct {
	Name string `json:"name"`
	// RX and Drop are packets a second.
	RX   uint64 `json:"rx"`
	Drop uint64 `json:"drop"`
}
