// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Cluster is how a node stands with its cluster.
type Cluster struct {
	// Router is the name of the data plane, Node that of the node in the cluster, and File the path of its configuration.
	Router, Name, Node, File string
	// Waits tells that the process leaves the data plane as it is until it has documents.
	Waits bool
	// Revision runs, and Refused says why another one does not.
	Revision int64
	Refused  string
	// Reached tells whether etcd answers, Since since when that is so, and Problem why it does not.
	Reached bool
	Since   time.Time
	Problem string
	// UrgentFailed says why urgent changes are not in force, by ID.
	UrgentFailed map[string]string
	// Maintain is not "" in maintenance.
	Maintain string
	// Twin is the host of another node of this name.
	Twin string
	// Second is the host of another node of this name that follows no revisions, while this one does.
	Second string
	// NotReported says why the cluster does not get the node's state, StateProblems what of StateDir cannot be used.
	NotReported string
	// Denied is since when etcd refuses the node's certificate, as NotReported says, the zero time if it does not.
	Denied        time.Time
	StateDir      string
	StateProblems []string
	// Certificate is the path of the node's certificate, and Expires when it does. CertificateProblem says why that is not known.
	Certificate        string
	Expires            time.Time
	CertificateProblem string
}

// expiresSoon is how long before its end a certificate is to be renewed.
const expiresSoon = 30 * 24 * time.Hour

func checkClusters(all []Cluster, now time.Time) (found []Finding) {
	for _, c := range all {
		before := len(found)
		add := func(status Status, command, format string, args ...any) {
			text := fmt.Sprintf("node %s of cluster %s: ", c.Node, c.Name) + fmt.Sprintf(format, args...)
			found = append(found, Finding{Status: status, Check: "cluster", Finding: text, Command: command})
		}
		switch {
		case !c.Denied.IsZero():
			add(Fail, "culvert cluster enrol "+c.Node+" --again", "etcd refuses it since %s, and what runs goes on: %s", c.Denied.Format(time.DateTime), c.NotReported)
		case !c.Reached:
			add(Warn, "", "etcd cannot be reached since %s, and what runs goes on: %s", c.Since.Format(time.DateTime), c.Problem)
		}
		if c.Waits {
			add(Fail, "culvert status", "it waits for documents, and leaves data plane %s as it is: the last good ones cannot be read", c.Router)
		}
		switch {
		case c.Refused != "" && c.Waits:
			add(Fail, "culvert fleet status", "a revision was refused, and the data plane goes on as it is: %s", c.Refused)
		case c.Refused != "":
			add(Fail, "culvert fleet status", "a revision was refused, and revision %d goes on: %s", c.Revision, c.Refused)
		}
		for _, id := range slices.Sorted(maps.Keys(c.UrgentFailed)) {
			add(Fail, "culvert fleet undo "+id, "the urgent change %s is not in force: %s", id, c.UrgentFailed[id])
		}
		if c.Twin != "" {
			add(Fail, "", "another node, on host %s, has this name: give one of them another name (node in [cluster])", c.Twin)
		}
		if c.Second != "" {
			add(Warn, "", "another node, on host %s, has this name too, and follows no revisions: give it another name (node in [cluster])", c.Second)
		}
		if c.NotReported != "" && c.Denied.IsZero() {
			add(Fail, "", "the cluster does not see this node's state: %s", c.NotReported)
		}
		for _, problem := range c.StateProblems {
			add(Fail, "ls -l "+c.StateDir, "%s", problem)
		}
		if c.Maintain != "" {
			add(Warn, "culvert fleet resume "+c.Node, "it is in maintenance (%s) and announces nothing", c.Maintain)
		}
		switch left := c.Expires.Sub(now); {
		case c.CertificateProblem != "":
			add(Fail, "", "its certificate cannot be used: %s", c.CertificateProblem)
		case c.Expires.IsZero():
		case left <= 0:
			add(Fail, "culvert cluster enrol "+c.Node+" --again", "its certificate %s expired on %s", c.Certificate, c.Expires.Format(time.DateOnly))
		case left < expiresSoon:
			add(Warn, "culvert cluster enrol "+c.Node+" --again", "its certificate %s expires on %s", c.Certificate, c.Expires.Format(time.DateOnly))
		}
		if len(found) == before {
			add(OK, "", "etcd is reached, revision %d runs", c.Revision)
		}
	}
	return found
}
