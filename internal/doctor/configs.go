// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"
)

// Config is the configuration of a process that differs from its files, or waits to be kept.
type Config struct {
	// Router is the name of the data plane, and File the path of its configuration.
	Router, File string
	// Differs are the files that have changed since they were read.
	Differs []string
	// Refused is the error of the last reload, "" if it was no failure.
	Refused string
	// NotKept says that the last configuration went back to the one before, since nobody kept it in time.
	NotKept bool
	// Trial says that the configuration goes back to the one before unless somebody keeps it.
	Trial bool
	// Web is the address of the page to look at, "" if there is none, and WebProblem why nobody gets it. WebOpen tells whether other
	// machines may reach it.
	Web, WebProblem string
	WebOpen         bool
}

func checkConfigs(all []Config) (found []Finding) {
	for _, c := range all {
		found = append(found, c.checkWeb()...)
		add := func(status Status, finding, command string) {
			found = append(found, Finding{Status: status, Check: "configuration", Finding: "data plane " + c.Router + ": " + finding, Command: command})
		}
		if c.Trial {
			add(Warn, "the configuration goes back to the one before unless somebody keeps it", "culvert reload --on "+c.Router+" --keep")
		}
		switch {
		case c.Refused != "":
			// The finding goes with the next reload that succeeds, whatever the files have now.
			add(Fail, "the last reload failed: "+c.Refused, "culvert check -c "+c.File+" && culvert reload --on "+c.Router)
		case c.NotKept:
			add(Warn, "nobody has kept the last configuration in time, and the one before is in force again", "culvert reload --on "+c.Router)
		case len(c.Differs) > 0:
			add(Warn, fmt.Sprintf("what is in force differs from the files: changed since they were read: %s", strings.Join(c.Differs, ", ")),
				"culvert reload --on "+c.Router)
		}
	}
	return found
}

// checkWeb says whether nobody gets the page to look at, or too many may.
func (c Config) checkWeb() []Finding {
	f := Finding{Check: "web", Finding: "data plane " + c.Router + ": "}
	switch {
	case c.WebProblem != "":
		f.Status, f.Command = Fail, "culvert check -c "+c.File
		f.Finding += "nobody gets the page at " + c.Web + ": " + c.WebProblem
	case c.WebOpen:
		f.Status = Warn
		f.Finding += "the page at " + c.Web + " has no password, and other machines may reach it: listen at 127.0.0.1 and use a tunnel, " +
			"or let a firewall say who may"
	default:
		return nil
	}
	return []Finding{f}
}
