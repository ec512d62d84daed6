// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"
)

// Unserved is a running data plane whose process has ended.
type Unserved struct {
	// Router is the name of the data plane.
	Router string
	// SCION, Route and LB tell which stages it has.
	SCION, Route, LB bool
}

// SlowPath is a process that runs a SCION router without a data plane.
type SlowPath struct {
	Router string
	PID    int
}

func checkSlowPaths(all []SlowPath) (found []Finding) {
	for _, s := range all {
		found = append(found, Finding{
			Status: Warn, Check: "attached", Command: "if the data plane was detached: restart the process of router " + s.Router,
			Finding: fmt.Sprintf("process %d runs router %s without a data plane, so all packets take the slow path: it is starting, all "+
				"its underlay addresses are on loopback, or the data plane was detached", s.PID, s.Router),
		})
	}
	return found
}

// checkIdleWorkers warns of workers that get no packets.
func checkIdleWorkers(of []string) (found []Finding) {
	for _, name := range of {
		found = append(found, Finding{
			Status: Warn, Check: "workers", Command: "delete [workers] from the file",
			Finding: name + ": [workers] has no effect: there is none of [scion], [route] and [lb], whose packets are spread",
		})
	}
	return found
}

// checkUnserved says for each data plane what does not work without its process. refused tells whether rules of netfilter keep
// an IP router from starting.
func checkUnserved(all []Unserved, refused bool) (found []Finding) {
	for _, u := range all {
		f := Finding{Status: Fail, Check: "process", Command: "culvert run -c FILE"}
		var undone []string
		if u.SCION {
			undone = append(undone, "the SCION router has no slow path, and BFD and the next hops of its links are not updated")
			f.Command += ", or culvert scion run -c FILE"
		}
		if u.Route {
			undone = append(undone, "the IP router asks the kernel for each packet, and does not notice new rules of netfilter")
			if refused {
				f.Command = "mend what check netfilter found, then: " + f.Command
			}
		}
		if u.LB {
			undone = append(undone, "backends are not checked, and no VIP is announced")
		}
		if len(undone) == 0 {
			f.Status = Warn
			undone = []string{"the filter is not attached to an interface that is deleted and made again"}
		}
		kind := "data plane"
		if u.SCION || u.Route {
			kind = "router"
		}
		f.Finding = fmt.Sprintf("the process of %s %s has ended and the data plane goes on: %s", kind, u.Router, strings.Join(undone, "; "))
		found = append(found, f)
	}
	return found
}
