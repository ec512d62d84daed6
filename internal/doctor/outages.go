// SPDX-License-Identifier: Apache-2.0

package doctor

// Outage is something that a running data plane is there for and that does not work, for a reason outside this process, or works
// less well than it should.
type Outage struct {
	// Router is the name of the data plane.
	Router string
	// Check is the kind of thing, What says in one line what does not work, and Command shows why.
	Check, What, Command string
	// Works tells that packets get where they should, if not as they should.
	Works bool
}

func checkOutages(all []Outage) (found []Finding) {
	for _, o := range all {
		f := Finding{Status: Fail, Check: o.Check, Finding: "data plane " + o.Router + ": " + o.What, Command: o.Command}
		if o.Works {
			f.Status = Warn
		}
		found = append(found, f)
	}
	return found
}
