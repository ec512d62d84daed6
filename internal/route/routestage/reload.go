// SPDX-License-Identifier: Apache-2.0

package routestage

import (
	"context"

	"culvert/internal/datapath"
	"culvert/internal/stage"
)

// ServedBy implements stage.Successor. The sizes of the mirror are those of the program: another one begins with a new mirror.
func (p *plan) ServedBy(former stage.Prepared) bool {
	f, ok := former.(*prepared)
	return ok && p.file.BypassNetfilter == f.file.BypassNetfilter
}

// Succeed implements stage.Successor. The IP router holds nothing but the mirror, which the next Serve makes anew: the programs
// ask the kernel meanwhile.
func (p *plan) Succeed(ctx context.Context, start stage.Start, _ stage.Prepared) (stage.Prepared, error) {
	return p.Prepare(ctx, start)
}

// Changes implements stage.Differ. There is nothing to change by hand.
func (p *plan) Changes(former stage.Plan, _ *datapath.Instance) []string {
	f, ok := former.(*plan)
	if !ok {
		f = &plan{}
	}
	var c stage.Changes
	c.Value("route.bypass_netfilter:", f.file.BypassNetfilter, p.file.BypassNetfilter)
	c.Value("route.mirror:", f.file.MirrorOn(), p.file.MirrorOn())
	c.Value("route.blocks4:", f.file.blocks4(), p.file.blocks4())
	c.Value("route.blocks6:", f.file.blocks6(), p.file.blocks6())
	return c
}
