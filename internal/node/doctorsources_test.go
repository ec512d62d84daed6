// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"testing"

	"culvert/internal/doctor"
	"culvert/internal/lb/sourcestate"
)

func TestSourceOutages(t *testing.T) {
	got := sourceOutages("r1", []sourcestate.Source{
		{VIP: "192.0.2.1:80/tcp", Name: "a", State: sourcestate.OK, Backends: 1}, {VIP: "192.0.2.1:80/tcp", Name: "b", State: sourcestate.Waiting},
		{VIP: "192.0.2.1:80/tcp", Name: "c", State: sourcestate.Held, Backends: 2, Why: "too few"},
		{VIP: "192.0.2.1:80/tcp", Name: "d", State: sourcestate.Failing, Why: "no answer"},
	})
	want := []doctor.Outage{
		{
			Router: "r1", Check: "lb-backend-source", What: `source "c" of VIP 192.0.2.1:80/tcp is held, with 2 backends in force: too few`,
			Command: "culvert lb show --on r1 192.0.2.1:80/tcp", Works: true,
		},
		{
			Router: "r1", Check: "lb-backend-source", What: `source "d" of VIP 192.0.2.1:80/tcp is failing, with 0 backends in force: no answer`,
			Command: "culvert lb show --on r1 192.0.2.1:80/tcp",
		},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
