// SPDX-License-Identifier: Apache-2.0

package doctor

import "fmt"

// FailedStage is a stage of a running data plane that has failed in the process, which still serves the other stages.
type FailedStage struct {
	// Router is the name of the data plane, and Stage that of the stage.
	Router, Stage string
	// Why is the error, in one line.
	Why string
}

func checkFailedStages(all []FailedStage) (found []Finding) {
	for _, s := range all {
		found = append(found, Finding{
			Status: Fail, Check: "stage",
			Finding: fmt.Sprintf("stage %s of data plane %s has failed, and its packets go to the kernel or where they went before: %s", s.Stage, s.Router, s.Why),
			Command: "culvert reload --on " + s.Router + "    # tries it again; if it fails again, restart the process",
		})
	}
	return found
}
