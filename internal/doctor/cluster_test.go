// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"
	"time"
)

// TestClusters finds what is wrong between a node and its cluster.
func TestClusters(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		change func(*Cluster)
		status Status
		want   string
	}{
		{func(*Cluster) {}, OK, "etcd is reached, revision 5 runs"},
		{func(c *Cluster) { c.Reached, c.Since, c.Problem = false, now, "no answer" }, Warn, "etcd cannot be reached since 2026-01-02 03:04:05, and what runs goes on: no answer"},
		{func(c *Cluster) { c.Waits = true }, Fail, "it waits for documents, and leaves data plane culvert as it is"},
		{func(c *Cluster) { c.Refused = "etcd:all:1:1: x" }, Fail, "revision 5 goes on: etcd:all:1:1: x"},
		{func(c *Cluster) { c.UrgentFailed = map[string]string{"00000007": "why"} }, Fail, "the urgent change 00000007 is not in force: why"},
		{func(c *Cluster) { c.Twin = "elsewhere" }, Fail, "on host elsewhere, has this name"},
		{func(c *Cluster) { c.Second = "elsewhere" }, Warn, "on host elsewhere, has this name too, and follows no revisions"},
		{func(c *Cluster) { c.NotReported = "etcd is full" }, Fail, "does not see this node's state: etcd is full"},
		{func(c *Cluster) { c.Reached, c.Denied, c.NotReported = false, now, "revoked" }, Fail, "etcd refuses it since 2026-01-02 03:04:05, and what runs goes on: revoked"},
		{func(c *Cluster) { c.StateProblems = []string{"/x/last-good is corrupt"} }, Fail, "/x/last-good is corrupt"},
		{func(c *Cluster) { c.Maintain = "safe" }, Warn, "in maintenance (safe)"},
		{func(c *Cluster) { c.Expires = now.Add(31 * 24 * time.Hour) }, OK, "revision 5 runs"},
		{func(c *Cluster) { c.Expires = now.Add(29 * 24 * time.Hour) }, Warn, "its certificate /c.pem expires on 2026-01-31"},
		{func(c *Cluster) { c.Expires = now.Add(-time.Hour) }, Fail, "its certificate /c.pem expired on 2026-01-02"},
		{func(c *Cluster) { c.CertificateProblem = "no such file" }, Fail, "cannot be used: no such file"},
	} {
		is := Cluster{Router: "culvert", Name: "edge", Node: "n1", Revision: 5, Reached: true, Certificate: "/c.pem"}
		c.change(&is)
		got := checkClusters([]Cluster{is}, now)
		if len(got) != 1 || got[0].Status != c.status || got[0].Check != "cluster" || !strings.Contains(got[0].Finding, c.want) {
			t.Errorf("%+v: found %+v, want %v: %s", is, got, c.status, c.want)
		}
	}
}
