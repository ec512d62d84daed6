// SPDX-License-Identifier: Apache-2.0

package node

import (
	"log/slog"
	"strings"

	"culvert/internal/config"
	"culvert/internal/datapath"
)

// begin brings into force what a file says, on a data plane that was attached for it: all of it, or nothing. The filter
// comes last, as its change cannot be undone. Then it is told what has gone: gone, which went without a change here, and
// what an earlier file had.
func begin(inst *datapath.Instance, w *wantedFilter, balanced *wantedBalance, gone []string) error {
	changed, err := balanced.apply(inst, func() error { return w.apply(inst) })
	if err == nil {
		tellGone(append(gone, changed...))
	}
	return err
}

func tellGone(gone []string) {
	if len(gone) > 0 {
		logger().Info("the configuration file names these no more: they are taken out of the load balancer", "gone", strings.Join(gone, ", "))
	}
}

// newFollower keeps a data plane on its interfaces as the configuration says.
func newFollower(n *config.Node, wanted *wantedFilter, inst *datapath.Instance, log *slog.Logger) *follower {
	f := &follower{inst: inst, log: log, detached: n.Detached, restore: func() error { return wanted.apply(inst) }}
	if n.Route != nil {
		f.check = func(name string) error { return checkTags([]string{name}) }
	}
	return f
}

// present leaves out the interfaces that do not exist, if they are waited for.
func present(names []string, wait bool) (here []string) {
	for _, name := range names {
		if !wait || !datapath.NoInterface(name) {
			here = append(here, name)
		}
	}
	return here
}
