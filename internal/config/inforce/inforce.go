// SPDX-License-Identifier: Apache-2.0

// Package inforce tells which configuration a process serves, and whether its files have changed since it was read.
package inforce

import (
	"slices"
	"time"

	"culvert/internal/config"
	"culvert/internal/host/filestamp"
	"culvert/internal/host/runstate"
)

// kind is the kind under which runstate stores a State.
const kind = "config"

// State is what a process publishes about its configuration.
type State struct {
	// File is the path of the file. DropIns says that there may be drop-ins of it.
	File    string `json:"file"`
	DropIns bool   `json:"drop_ins"`
	// Read are the files that the configuration was read from, with their drop-ins and those that they name, at ReadAt.
	Read   []filestamp.Stamp `json:"read"`
	ReadAt time.Time         `json:"read_at"`
	// StartedAt is when the process began.
	StartedAt time.Time `json:"started_at,omitzero"`
	// Reload is the last attempt to read the files again, nil if there was none.
	Reload *Reload `json:"reload,omitempty"`
	// Until is when the configuration before this one comes back unless somebody keeps this one, nil if it stays.
	Until *time.Time `json:"until,omitempty"`
	// Web is the page to look at, nil if there is none.
	Web *Web `json:"web,omitempty"`
	// Cluster is how the node stands with its cluster, nil without one.
	Cluster *Cluster `json:"cluster,omitempty"`
}

// Cluster is how a node stands with its cluster.
type Cluster struct {
	Name  string   `json:"name"`
	Node  string   `json:"node"`
	Roles []string `json:"roles,omitempty"`
	// Revision runs, 0 for the node's own file alone. Wanted is to run if that is another one, and Refused says in one line why it does not.
	Revision int64 `json:"revision"`
	// Waits tells that the process serves nothing yet: what it has run is not known any more, so it leaves the data plane as it is until it has
	// documents from etcd.
	Waits   bool   `json:"waits,omitempty"`
	Wanted  int64  `json:"wanted,omitempty"`
	Refused string `json:"refused,omitempty"`
	// Reached tells whether etcd answers, and Since since when that is so. Problem says in one line why it does not.
	Reached bool      `json:"reached"`
	Since   time.Time `json:"since"`
	Problem string    `json:"problem,omitempty"`
	// Urgent are the IDs of the urgent changes in force, and UrgentFailed says why others are not, by ID.
	Urgent       []string          `json:"urgent,omitempty"`
	UrgentFailed map[string]string `json:"urgent_failed,omitempty"`
	// Maintain is "withdrawing" or "safe" in maintenance.
	Maintain string `json:"maintain,omitempty"`
	// Twin is the host of another node of this name.
	Twin string `json:"twin,omitempty"`
	// Second is the host of another node of this name that follows no revisions, while this one does.
	Second string `json:"second,omitempty"`
	// NotReported says why the cluster does not get the node's state. Denied is since when, if that is because etcd refuses its certificate.
	NotReported string    `json:"not_reported,omitempty"`
	Denied      time.Time `json:"denied,omitzero"`
	// StateDir is the directory of the last good documents, and StateProblems say what of it cannot be used.
	StateDir      string   `json:"state_dir"`
	StateProblems []string `json:"state_problems,omitempty"`
	// Certificate is the path of the node's own certificate.
	Certificate string `json:"certificate,omitempty"`
}

// Web is the page to look at.
type Web struct {
	// Listen is its address as in the configuration.
	Listen string `json:"listen"`
	// Open tells whether other machines may reach it: the address is none of loopback.
	Open bool `json:"open,omitempty"`
	// Problem says in one line why nobody gets it, "" if that is not so.
	Problem string `json:"problem,omitempty"`
}

// Reload is an attempt to read the configuration again.
type Reload struct {
	At time.Time `json:"at"`
	OK bool      `json:"ok"`
	// Error says in one line why it was refused.
	Error string `json:"error,omitempty"`
	// NotKept says that it was in force, and that nobody kept it in time.
	NotKept bool `json:"not_kept,omitempty"`
}

// Differs returns the paths of files that have changed since they were read, and of drop-ins that have been added.
func (s *State) Differs() (paths []string) {
	for _, f := range s.Read {
		if f.Changed() {
			paths = append(paths, f.Path)
		}
	}
	if !s.DropIns {
		return paths
	}
	// A directory that cannot be read is an error of the next reload.
	all, _ := config.Files(s.File)
	for _, path := range all {
		if !slices.ContainsFunc(s.Read, func(f filestamp.Stamp) bool { return f.Path == path }) {
			paths = append(paths, path)
		}
	}
	return paths
}

// NewWriter makes a writer for the State of the process that serves the data planes of a name in a network namespace.
func NewWriter(netns uint32, name string) *runstate.Writer {
	return runstate.NewWriter(kind, netns, name)
}

// Plane is a data plane that a process may serve.
type Plane interface {
	NetNS() uint32
	Name() string
	// ID tells the data plane from earlier ones of its name.
	ID() uint64
	// Served tells whether a process serves it.
	Served() bool
}

// Of returns the state of the process that serves a data plane, or that waits to do so (Cluster.Waits), nil if there is no such process, or
// if it has told nothing.
func Of(p Plane) (*State, error) {
	id := p.ID()
	if id == 0 {
		return nil, nil
	}
	s := new(State)
	known, err := runstate.Read(kind, p.NetNS(), p.Name(), id, s)
	if err != nil || !known || !p.Served() && (s.Cluster == nil || !s.Cluster.Waits) {
		return nil, err
	}
	return s, nil
}
