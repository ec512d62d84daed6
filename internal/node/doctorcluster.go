// SPDX-License-Identifier: Apache-2.0

package node

import (
	"culvert/internal/cluster/etcd"
	"culvert/internal/config"
	"culvert/internal/config/inforce"
	"culvert/internal/doctor"
)

// clusterOf returns how the node that serves a data plane stands with its cluster.
func clusterOf(router string, s *inforce.State) doctor.Cluster {
	c := s.Cluster
	d := doctor.Cluster{
		Router: router, Name: c.Name, Node: c.Node, File: s.File, Waits: c.Waits, Revision: c.Revision, Refused: c.Refused, Reached: c.Reached, Since: c.Since,
		Problem: c.Problem, UrgentFailed: c.UrgentFailed, Maintain: c.Maintain, Twin: c.Twin, Second: c.Second, NotReported: c.NotReported, Denied: c.Denied, StateDir: c.StateDir,
		StateProblems: c.StateProblems, Certificate: c.Certificate,
	}
	if c.Certificate == "" {
		return d
	}
	until, err := etcd.Expiry(&config.ClusterTLS{Cert: c.Certificate})
	if err != nil {
		d.CertificateProblem = err.Error()
	}
	d.Expires = until
	return d
}
