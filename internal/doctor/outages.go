// SPDX-License-Identifier: Apache-2.0

package doctor

// Outage is something that a running data plane is there for and that does not work, for a reason outside this process.
type Outage struct {
	// Router is the name of the data plane.
	Router string
	// Check is the kind of thing, What says in one line what does not work, and Command shows why.
	Check, What, Command string
}

func checkOutages(all []Outage) (found []Finding) {
	for _, o := range all {
		found = append(found, Finding{Status: Fail, Check: o.Check, Finding: "data plane " + o.Router + ": " + o.What, Command: o.Command})
	}
	return found
}
