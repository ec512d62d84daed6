// SPDX-License-Identifier: Apache-2.0

package decap

import (
	"fmt"
	"strings"

	"culvert/internal/decap/decapplane"
	"culvert/internal/host/pins"
)

// Command returns the command that attaches the end of tunnels d with its options.
func Command(d decapplane.End) string {
	var b strings.Builder
	o := d.Options
	b.WriteString("culvert lb decap add " + d.Interface)
	if o.GUEPort != decapplane.DefaultGUEPort {
		fmt.Fprintf(&b, " --gue-port %d", o.GUEPort)
	}
	for _, p := range o.From {
		b.WriteString(" --from " + p.String())
	}
	if o.Open() {
		b.WriteString(" --from " + anySource)
	}
	for _, a := range o.VIPs {
		b.WriteString(" --vip " + a.String())
	}
	if !o.OwnLocal {
		for _, a := range o.Local {
			b.WriteString(" --local " + a.String())
		}
	}
	if o.Generic {
		b.WriteString(" --generic")
	}
	return b.String()
}

// WhyUnattached explains a value of decapplane.End.Unattached, for a sentence about the interface.
func WhyUnattached(unattached string) string {
	if unattached == pins.Gone {
		return "it does not exist"
	}
	return "it was deleted and made again"
}

// Remedy returns a sentence on how to attach the end of tunnels again with a command, given End.Unattached.
func Remedy(unattached, command string) string {
	if unattached == pins.Gone {
		return "When it does: " + command
	}
	return "Attach: " + command
}
