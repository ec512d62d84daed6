// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"
	"strings"
	"testing"
	"time"

	"culvert/internal/cluster"
	"culvert/internal/config/inforce"
)

// TestClusterLines says how a node stands with its cluster, and what is wrong in capitals.
func TestClusterLines(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	good := inforce.Cluster{Name: "edge", Node: "n1", Revision: 7, Reached: true, Since: now.Add(-2 * time.Minute)}
	for _, c := range []struct {
		change func(*inforce.Cluster)
		want   []string
	}{
		{func(*inforce.Cluster) {}, []string{"  cluster  edge as n1  revision 7  etcd reached, for 2m00s"}},
		{func(c *inforce.Cluster) { c.Revision = 0 }, []string{"edge as n1  the node's own file alone  etcd reached"}},
		{func(c *inforce.Cluster) { c.Waits = true }, []string{"edge as n1  WAITS for documents, and leaves the data plane as it is"}},
		{func(c *inforce.Cluster) { c.Reached, c.Problem = false, "no answer" }, []string{"etcd NOT REACHED, for 2m00s: what runs goes on (no answer)"}},
		{func(c *inforce.Cluster) { c.Wanted = 8 }, []string{"", "revision 8 is to run, and does not yet"}},
		{func(c *inforce.Cluster) { c.Wanted, c.Refused = 8, "etcd:all:1:1: x" }, []string{"", "REFUSED revision 8: etcd:all:1:1: x"}},
		{func(c *inforce.Cluster) { c.Urgent = []string{"1", "2"} }, []string{"", "urgent changes in force: 2 (1, 2)"}},
		{func(c *inforce.Cluster) { c.UrgentFailed = map[string]string{"2": "why"} }, []string{"", "urgent change 2 NOT IN FORCE: why"}},
		{func(c *inforce.Cluster) { c.Maintain = cluster.MaintainSafe }, []string{"", "MAINTENANCE: safe to stop"}},
		{func(c *inforce.Cluster) { c.Maintain = cluster.MaintainNothing }, []string{"", "MAINTENANCE: this node announces nothing"}},
		{func(c *inforce.Cluster) { c.Maintain = cluster.MaintainWithdrawing }, []string{"", "MAINTENANCE: addresses are withdrawn"}},
		{func(c *inforce.Cluster) { c.Twin = "other" }, []string{"", "NAME TAKEN: a node on host other has the name n1 too: this one"}},
		{func(c *inforce.Cluster) { c.Second = "other" }, []string{"", "NAME TAKEN: a node on host other has the name n1 too: that one"}},
		{func(c *inforce.Cluster) { c.NotReported = "full" }, []string{"", "NOT REPORTED: the cluster does not see this node's state: full"}},
		{func(c *inforce.Cluster) { c.Denied, c.NotReported = now.Add(-time.Minute), "revoked" }, []string{"etcd REFUSES this node, for 1m00s: what runs goes on, and nobody sees its state: revoked"}},
		{func(c *inforce.Cluster) { c.StateProblems = []string{"corrupt"} }, []string{"", "STATE DIRECTORY: corrupt"}},
	} {
		is := good
		c.change(&is)
		got := clusterLines(&is, now)
		if len(got) != len(c.want) || !slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, c.want[len(c.want)-1]) }) {
			t.Errorf("%+v: lines %q, want %q", is, got, c.want)
		}
	}
}
