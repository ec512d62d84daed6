// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"culvert/internal/cluster"
	"culvert/internal/config/inforce"
	"culvert/internal/show/text"
)

// clusterLines says how a node stands with its cluster.
func clusterLines(c *inforce.Cluster, now time.Time) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, "  cluster  "+fmt.Sprintf(format, args...)) }
	since := text.Ago(now.Sub(c.Since))
	runs := fmt.Sprintf("revision %d", c.Revision)
	if c.Revision == 0 {
		runs = "the node's own file alone"
	}
	if c.Waits {
		runs = "WAITS for documents, and leaves the data plane as it is: its last good documents cannot be read"
	}
	reached := "etcd reached, for " + since
	switch {
	case !c.Denied.IsZero():
		reached = fmt.Sprintf("etcd REFUSES this node, for %s: what runs goes on, and nobody sees its state: %s", text.Ago(now.Sub(c.Denied)), c.NotReported)
	case !c.Reached:
		reached = fmt.Sprintf("etcd NOT REACHED, for %s: what runs goes on (%s)", since, c.Problem)
	}
	add("%s as %s  %s  %s", c.Name, c.Node, runs, reached)
	wanted := fmt.Sprintf("revision %d", c.Wanted)
	if c.Wanted == 0 {
		wanted = "what is to run"
	}
	switch {
	case c.Refused != "":
		add("REFUSED %s: %s", wanted, c.Refused)
	case c.Wanted != 0:
		add("%s is to run, and does not yet", wanted)
	}
	if n := len(c.Urgent); n > 0 {
		add("urgent changes in force: %d (%s)", n, some(c.Urgent))
	}
	for _, id := range slices.Sorted(maps.Keys(c.UrgentFailed)) {
		add("urgent change %s NOT IN FORCE: %s", id, c.UrgentFailed[id])
	}
	switch c.Maintain {
	case cluster.MaintainWithdrawing:
		add("MAINTENANCE: addresses are withdrawn, flows may still come: culvert fleet resume %s", c.Node)
	case cluster.MaintainNothing:
		add("MAINTENANCE: this node announces nothing, so nothing moves away: culvert fleet resume %s", c.Node)
	case cluster.MaintainSafe:
		add("MAINTENANCE: safe to stop: culvert fleet resume %s", c.Node)
	}
	if c.Twin != "" {
		add("NAME TAKEN: a node on host %s has the name %s too: this one follows no revisions", c.Twin, c.Node)
	}
	if c.Second != "" {
		add("NAME TAKEN: a node on host %s has the name %s too: that one follows no revisions", c.Second, c.Node)
	}
	if c.NotReported != "" && c.Denied.IsZero() {
		add("NOT REPORTED: the cluster does not see this node's state: %s", c.NotReported)
	}
	for _, problem := range c.StateProblems {
		add("STATE DIRECTORY: %s", problem)
	}
	return lines
}
