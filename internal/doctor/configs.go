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
}

func checkConfigs(all []Config) (found []Finding) {
	for _, c := range all {
		add := func(status Status, finding, command string) {
			found = append(found, Finding{Status: status, Check: "configuration", Finding: "data plane " + c.Router + ": " + finding, Command: command})
		}
		if c.Trial {
			add(Warn, "the configuration goes back to the one before unless somebody keeps it", "culvert reload --on "+c.Router+" --keep")
		}
		switch {
		case c.Refused != "":
			add(Fail, "the last reload failed: "+c.Refused, "culvert check -c "+c.File)
		case c.NotKept:
			add(Warn, "nobody has kept the last configuration in time, and the one before is in force again", "culvert reload --on "+c.Router)
		case len(c.Differs) > 0:
			add(Warn, fmt.Sprintf("what is in force differs from the files: changed since they were read: %s", strings.Join(c.Differs, ", ")),
				"culvert reload --on "+c.Router)
		}
	}
	return found
}
