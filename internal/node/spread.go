// SPDX-License-Identifier: Apache-2.0

package node

import (
	"log/slog"

	"culvert/internal/datapath"
	"culvert/internal/host/netdev"
)

// logStays says when workers begin to get packets of an interface, and when they cease to. stay has the interfaces of which they get none.
func logStays(inst *datapath.Instance, stay map[string]bool, log *slog.Logger) {
	for name, spread := range inst.Spread() {
		switch {
		case !spread && !stay[name] && netdev.IsBond(name):
			log.Warn("workers get no packets of the interface: it is a bond, whose packets stay on the CPUs that receive them", "interface", name)
		case !spread && !stay[name]:
			log.Warn("workers get no packets of the interface: it takes VLAN tags off, which their queues would lose",
				"interface", name, "mend", netdev.KeepTags(name))
		case spread && stay[name]:
			log.Info("workers get packets of the interface", "interface", name)
		}
		stay[name] = !spread
	}
}
