// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"culvert/internal/netfilter"
)

// checkNetfilter takes what netfilter.Find answers. Rules are no failure: whoever knows that they need
// not see what the IP router forwards may say so in its configuration.
func checkNetfilter(chains []netfilter.Finding, err error) []Finding {
	const check = "netfilter"
	if err != nil {
		f := Finding{Status: Warn, Check: check, Finding: fmt.Sprintf("cannot be seen: %v", err)}
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			f.Command = "sudo culvert doctor"
		}
		return []Finding{f}
	}
	if len(chains) == 0 {
		return []Finding{{Check: check, Finding: "no rules that forwarded packets pass"}}
	}
	var found []Finding
	for _, c := range chains {
		found = append(found, Finding{
			Status: Warn, Check: check,
			Finding: c.String() + ": what the IP router forwards goes past it; it starts with bypass_netfilter = true only",
			Command: c.Show(),
		})
	}
	return found
}
