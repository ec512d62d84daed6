// SPDX-License-Identifier: Apache-2.0

package doctor

import "fmt"

// StageOut is a stage of a running data plane that has failed, while the process goes on with the others.
type StageOut struct {
	Router, Stage string
	// Why is the error in a line.
	Why string
}

func checkStagesOut(all []StageOut) (found []Finding) {
	for _, s := range all {
		found = append(found, Finding{
			Status: Fail, Check: "stage",
			Finding: fmt.Sprintf("nobody keeps [%s] of router %s in step any more, its packets go to the kernel or where they went before: %s", s.Stage, s.Router, s.Why),
			Command: "restart the process of router " + s.Router,
		})
	}
	return found
}
