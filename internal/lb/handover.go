// SPDX-License-Identifier: Apache-2.0

package lb

import (
	"context"
	"errors"
	"maps"
	"net/netip"

	"culvert/internal/lb/health"
	"culvert/internal/lb/lbplane"
)

// Handover is what a Run knows beside the data plane, for the next Run of the process. So that one neither begins to check all
// over again, nor does it announce too early or withdraw too little.
type Handover struct {
	// Succeeded is the cause with which a Run's context ends if another Run is to follow. Then it withdraws nothing.
	Succeeded error

	announcer Announcer // of the fields below
	announced []netip.Prefix
	upToDate  bool
	spoken    bool
	said      []netip.Prefix

	settling settling
	results  map[lbplane.BackendID]health.Result
	drained  map[string]bool
}

// takeOver begins with what the Run before has left.
func (r *runner) takeOver() {
	h := r.Handover
	if h == nil {
		return
	}
	r.settling, r.drained = h.settling, h.drained
	maps.Copy(r.health.results, h.results)
	if h.announcer == r.Announcer {
		r.announced, r.upToDate, r.spoken, r.said = h.announced, h.upToDate, h.spoken, h.said
	}
	*h = Handover{Succeeded: h.Succeeded} // if this Run ends for good, it leaves nothing
}

// finish ends what r does with end, and leaves to the next Run what it needs, if there is to be one.
func (r *runner) finish(ctx context.Context, end func()) {
	h := r.Handover
	if h == nil || h.Succeeded == nil || !errors.Is(context.Cause(ctx), h.Succeeded) {
		r.leave(ctx)
		end()
		return
	}
	end()
	*h = Handover{
		Succeeded: h.Succeeded, announcer: r.Announcer, announced: r.announced, upToDate: r.upToDate, spoken: r.spoken, said: r.said,
		settling: r.settling, results: r.health.results, drained: r.drained,
	}
}
