// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"slices"
	"time"
)

// View is what a node shows of its cluster.
type View struct {
	// Revision runs, Wanted is to run if that is another one, Refused says why it does not.
	Revision, Wanted int64
	Refused          string
	// Behind tells whether another revision is to run, also 0.
	Behind bool
	Digest string
	// Confirmed tells that the documents that run are those which this etcd has of their revision.
	Confirmed bool
	// Reached tells whether etcd answers, Since since when that is so, and Problem why it does not.
	Reached bool
	Since   time.Time
	Problem string
	// Urgent are the IDs of the urgent changes in force, UrgentFailed says by ID why others are not.
	Urgent       []string
	UrgentFailed map[string]string
	// UrgentOver are the IDs of those whose time is over by the node's clock, and that etcd still has.
	UrgentOver []string
	Maintain   string
	// Twin is the host of another node of this name, ReportProblem says why the state is not written, KeepProblem why the last good documents
	// are not kept, and OverProblem why it is not kept which urgent changes are over.
	Twin, ReportProblem, KeepProblem, OverProblem string
	// Second is the host of another process of this name that follows no revisions, while this one does.
	Second string
	// Denied is since when etcd refuses the node's certificate, the zero time if it does not. ReportProblem says why.
	Denied time.Time
	// Sessions counts how often the node began to follow etcd, Writes how often it wrote its state.
	Sessions, Writes uint64
}

// View returns how the node stands with its cluster.
func (a *Agent) View() View {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := View{
		Revision: max(revisionOf(a.is.running), 0), Refused: a.is.refused, Digest: a.is.digest, Reached: a.is.reached, Since: a.is.since, Problem: a.is.problem,
		Urgent: slices.Clone(a.is.inForce), UrgentFailed: maps.Clone(a.is.failed), Maintain: a.is.maintain,
		UrgentOver: a.overIn(), Twin: a.is.twin, Second: a.is.second, ReportProblem: a.is.reportProblem, KeepProblem: a.is.keepProblem, OverProblem: a.is.overProblem, Denied: a.is.denied, Sessions: a.is.sessions, Writes: a.is.writes,
	}
	v.Confirmed = a.is.reached && a.want.says(a.Node, revisionOf(a.is.running)) && (v.Revision == 0 || a.is.confirmed == v.Revision)
	if wanted := a.want.current.Of(a.Node); a.want.seen && wanted != v.Revision {
		v.Wanted, v.Behind = wanted, true
	}
	for id, why := range a.want.urgentsBad {
		if v.UrgentFailed == nil {
			v.UrgentFailed = make(map[string]string)
		}
		v.UrgentFailed[id] = why
	}
	return v
}

// says tells whether etcd has said that a node is to run a revision.
func (w *want) says(node string, revision int64) bool {
	return w.seen && !w.missing && w.currentBad == "" && w.current.Of(node) == revision
}
