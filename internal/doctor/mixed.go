// SPDX-License-Identifier: Apache-2.0

package doctor

import "fmt"

// checkMixed warns of interfaces that lead both to neighbor ASes and to the inside. names separates them with commas.
func checkMixed(names string) []Finding {
	if names == "" {
		return nil
	}
	return []Finding{{Status: Warn, Check: "link-interface", Finding: fmt.Sprintf("%s: a way to other ASes, and maybe to the inside too: "+
		"whoever can send there can pose as a host of the AS or as a sibling; give the inside an interface of its own", names)}}
}
