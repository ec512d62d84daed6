// SPDX-License-Identifier: Apache-2.0

package node

import (
	"log/slog"

	"culvert/internal/datapath"
)

// logStays says when workers begin to get packets of an interface, and when they cease to. stay has the interfaces of which they get none.
func logStays(inst *datapath.Instance, stay map[string]bool, log *slog.Logger) {
	for name, spread := range inst.Spread() {
		switch {
		case !spread && !stay[name]:
			why, mend := datapath.WhyStays(name, inst.Generic(), inst.Unattended())
			attrs := []any{"interface", name}
			if mend != "" {
				attrs = append(attrs, "mend", mend)
			}
			log.Warn("workers get no packets of the interface: "+why, attrs...)
		case spread && stay[name]:
			log.Info("workers get packets of the interface", "interface", name)
		}
		stay[name] = !spread
	}
}
