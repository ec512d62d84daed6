// SPDX-License-Identifier: Apache-2.0

// Package stages lists the stages that there are.
package stages

import (
	"culvert/internal/filter/filterstage"
	"culvert/internal/lb/lbstage"
	"culvert/internal/route/routestage"
	"culvert/internal/scion"
	"culvert/internal/stage"
)

// All are the stages in the order in which a packet meets them.
func All() []stage.Stage {
	return []stage.Stage{
		filterstage.Stage{},
		lbstage.Stage{},
		scion.Stage{},
		routestage.Stage{},
	}
}
