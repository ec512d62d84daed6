// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"
)

// Unserved is a running data plane that had a process to keep it in step, and has none any more.
type Unserved struct {
	Router string
	// SCION, Route and LB tell which stages it has.
	SCION, Route, LB bool
}

// checkUnserved says what goes undone without the process.
func checkUnserved(all []Unserved) (found []Finding) {
	for _, u := range all {
		f := Finding{Status: Fail, Check: "process", Command: "culvert run -c FILE"}
		var undone []string
		if u.SCION {
			undone = append(undone, "nobody answers what the SCION router passes up, nor keeps its links' BFD and next hops")
			f.Command += ", or culvert scion run -c FILE"
		}
		if u.Route {
			undone = append(undone, "the IP router asks the kernel for each packet, and does not see rules of netfilter that come")
		}
		if u.LB {
			undone = append(undone, "backends are not checked, and no VIP is announced")
		}
		if len(undone) == 0 {
			f.Status = Warn
			undone = []string{"an interface that is made again goes without the filter"}
		}
		f.Finding = fmt.Sprintf("the process of router %s has ended and its data plane goes on: %s", u.Router, strings.Join(undone, "; "))
		found = append(found, f)
	}
	return found
}
