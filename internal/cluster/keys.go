// SPDX-License-Identifier: Apache-2.0

// Package cluster has what the machines of a fleet share: the layout of the keys in etcd and the records in them. Packages below it
// connect to etcd, serve it, and keep a node in step with it; culvert/internal/fleet has what an operator does.
//
// All keys of a cluster begin with /culvert/NAME/:
//
//	current                        Current: which revision nodes run, and the rollout that is under way
//	config/REV/all                 a TOML document for all nodes, as an operator wrote it
//	config/REV/role/ROLE           one for the nodes of a role
//	config/REV/node/NODE           one for a node
//	revision/REV                   Revision: who wrote it, when and why; written last, so that a revision with it is whole
//	urgent/ID                      Urgent: a change that goes before all revisions; under a lease if it is for a time
//	node/NODE                      State of a node, under its lease
//	maintain/NODE                  Maintain: a node that is to withdraw, until the key is deleted
//	lock                           Holder of the lock of rollouts, under the lease of the operator's process
//	known                          Known: the nodes that a rollout has met, so that those which are away are missed
//	audit/TIME-ID                  Audit: who did what
//	set/HASH                       SetManifest: the chunks of a set, named by the SHA-256 of the manifest
//	chunk/HASH                     entries of sets, deflated (RFC 1951), named by the SHA-256 of what they inflate to
//	backends/LIST/...              backends of a list, for [[lb.vip.source]] of kind etcd with that prefix
//	ask/KIND/ID                    Ask: a question to nodes, under a short lease; a reader may write those of kind where alone
//	answer/NODE/ID                 Answer of a node, under a short lease of the node
//	answer/NODE/twin               Twin: another process of that name, under its lease
//
// REV is a number with 16 digits. A revision never changes after its key revision/REV was written.
package cluster

import (
	"cmp"
	"fmt"
	"strings"
)

// Root is in front of the keys of all clusters.
const Root = "/culvert/"

// Keys are the keys of a cluster.
type Keys struct{ prefix string }

// KeysOf returns the keys of the cluster of a name.
func KeysOf(cluster string) Keys { return Keys{Root + cluster + "/"} }

// Prefix is in front of all keys of the cluster.
func (k Keys) Prefix() string { return k.prefix }

// Current is the key of Current.
func (k Keys) Current() string { return k.prefix + "current" }

// Documents is in front of the documents of a revision.
func (k Keys) Documents(revision int64) string {
	return fmt.Sprintf("%sconfig/%016d/", k.prefix, revision)
}

// Document is the key of a document of a revision.
func (k Keys) Document(revision int64, s Scope) string { return k.Documents(revision) + s.String() }

// Revisions is in front of all revisions.
func (k Keys) Revisions() string { return k.prefix + "revision/" }

// Revision is the key of a revision.
func (k Keys) Revision(n int64) string { return fmt.Sprintf("%s%016d", k.Revisions(), n) }

// Urgents is in front of the urgent changes.
func (k Keys) Urgents() string { return k.prefix + "urgent/" }

// Urgent is the key of an urgent change.
func (k Keys) Urgent(id string) string { return k.Urgents() + id }

// Nodes is in front of the states of nodes.
func (k Keys) Nodes() string { return k.prefix + "node/" }

// Node is the key of the state of a node.
func (k Keys) Node(name string) string { return k.Nodes() + name }

// Maintains is in front of the nodes in maintenance.
func (k Keys) Maintains() string { return k.prefix + "maintain/" }

// Maintain is the key of a node's maintenance.
func (k Keys) Maintain(node string) string { return k.Maintains() + node }

// Known is the key of Known.
func (k Keys) Known() string { return k.prefix + "known" }

// Asks is in front of the questions to nodes.
func (k Keys) Asks() string { return k.prefix + "ask/" }

// AsksOf is in front of the questions of a kind, one of Ask*: certificates may write some kinds and not others.
func (k Keys) AsksOf(kind string) string { return k.Asks() + kind + "/" }

// Ask is the key of a question.
func (k Keys) Ask(kind, id string) string { return k.AsksOf(kind) + id }

// Answers is in front of all answers.
func (k Keys) Answers() string { return k.prefix + "answer/" }

// AnswersOf is in front of the answers of a node: its certificate may write there.
func (k Keys) AnswersOf(node string) string { return k.Answers() + node + "/" }

// Answer is the key of a node's answer to a question.
func (k Keys) Answer(node, id string) string { return k.AnswersOf(node) + id }

// Twin is the key by which a process tells that another one has its name. It is where the node's certificate may write.
func (k Keys) Twin(node string) string { return k.AnswersOf(node) + "twin" }

// TwinOf returns the node whose Twin a key is, "" if it is none.
func (k Keys) TwinOf(key string) string {
	node, is := strings.CutSuffix(strings.TrimPrefix(key, k.Answers()), "/twin")
	if !is || strings.Contains(node, "/") {
		return ""
	}
	return node
}

// Lock is the key of the lock of rollouts.
func (k Keys) Lock() string { return k.prefix + "lock" }

// Audits is in front of the audit.
func (k Keys) Audits() string { return k.prefix + "audit/" }

// Sets is in front of the manifests of sets.
func (k Keys) Sets() string { return k.prefix + "set/" }

// Set is the key of the manifest of that hash: a set has another manifest in each revision that changes it.
func (k Keys) Set(hash string) string { return k.Sets() + hash }

// Chunks is in front of the chunks of sets.
func (k Keys) Chunks() string { return k.prefix + "chunk/" }

// Chunk is the key of a chunk.
func (k Keys) Chunk(hash string) string { return k.Chunks() + hash }

// Kinds of scopes.
const (
	ScopeAll  = "all"
	ScopeRole = "role"
	ScopeNode = "node"
)

// Scope says for which nodes something is.
type Scope struct {
	// Kind is one of Scope*.
	Kind string `json:"kind"`
	// Name is that of the role or node, "" for all.
	Name string `json:"name,omitempty"`
}

// String returns "all", "role/NAME" or "node/NAME", as in keys.
func (s Scope) String() string {
	if s.Kind == ScopeAll {
		return ScopeAll
	}
	return s.Kind + "/" + s.Name
}

// ParseScope reads what String returns.
func ParseScope(text string) (Scope, error) {
	kind, name, named := strings.Cut(text, "/")
	switch {
	case text == ScopeAll:
		return Scope{Kind: ScopeAll}, nil
	case (kind == ScopeRole || kind == ScopeNode) && named && CheckName(name) == nil:
		return Scope{kind, name}, nil
	}
	return Scope{}, fmt.Errorf("%q says for no nodes: write all, role/NAME or node/NAME", text)
}

// ScopesOf returns the scopes whose documents a node merges, in their order.
func ScopesOf(node string, roles []string) []Scope {
	all := []Scope{{Kind: ScopeAll}}
	for _, r := range roles {
		all = append(all, Scope{ScopeRole, r})
	}
	return append(all, Scope{ScopeNode, node})
}

// Holds tells whether a node with these roles is meant.
func (s Scope) Holds(node string, roles []string) bool {
	switch s.Kind {
	case ScopeAll:
		return true
	case ScopeNode:
		return s.Name == node
	}
	for _, r := range roles {
		if r == s.Name {
			return true
		}
	}
	return false
}

// Lengths of the IDs of urgent changes, in digits.
const (
	leastID = 8
	mostID  = 19 // of the highest revision of etcd
)

// CheckID refuses what is no ID of an urgent change.
func CheckID(id string) error {
	if len(id) < leastID || len(id) > mostID || strings.Trim(id, "0123456789") != "" {
		return fmt.Errorf("an urgent change is named by %d to %d digits", leastID, mostID)
	}
	return nil
}

// CompareIDs sorts IDs of urgent changes by their numbers, which get more digits in time.
func CompareIDs(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

// mostName bounds the length of names, in bytes: they are parts of keys and, with kind and ID (16 bytes), of certificates' common names
// (64, RFC 5280).
const mostName = 48

// CheckName refuses what cannot be the name of a cluster, role or node: letters, digits, '-', '_' and '.', which stand for
// themselves in keys, files and certificates.
func CheckName(name string) error {
	if name == "" || len(name) > mostName {
		return fmt.Errorf("a name of %d bytes: it has 1 to %d, letters, digits and .-_ alone", len(name), mostName)
	}
	for _, r := range name {
		if !strings.ContainsRune("-_.", r) && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return fmt.Errorf("%q in the name %q: write letters, digits and .-_ alone", r, name)
		}
	}
	if strings.Trim(name, ".") == "" {
		return fmt.Errorf("the name %q has dots alone: add a letter", name)
	}
	return nil
}
