// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"culvert/internal/host/netfilter"
)

// checkNetfilterPrograms warns of eBPF programs at netfilter's hooks. The kernel does not report in which network namespace
// such a program is.
func checkNetfilterPrograms(programs []netfilter.Finding) (found []Finding) {
	for _, p := range programs {
		found = append(found, Finding{
			Status: Warn, Check: "netfilter", Command: p.Show(),
			Finding: p.String() + ": if it is in this network namespace, what the IP router forwards goes past it",
		})
	}
	return found
}

// ipRouter is what the check of netfilter has to know of the IP router.
type ipRouter struct {
	// bypass tells whether forwarded packets may go past netfilter's rules, as configured.
	bypass bool
	// runs tells whether an IP router runs already, and kernel whether it leaves all packets to the kernel.
	runs, kernel bool
	// ended tells whether the process of that IP router has ended.
	ended bool
}

// checkNetfilter has a finding for each chain of netfilter that forwarded packets pass. With such chains the IP router does
// not start unless bypass is set. err is the error of looking for chains.
func checkNetfilter(chains []netfilter.Finding, err error, r ipRouter) []Finding {
	const check = "netfilter"
	if err != nil {
		f := Finding{Status: Warn, Check: check, Finding: fmt.Sprintf("the rules cannot be read: %v", err)}
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			f.Command = "sudo culvert doctor"
		}
		return []Finding{f}
	}
	if len(chains) == 0 {
		return []Finding{{Check: check, Finding: "no rules apply to forwarded packets"}}
	}
	status, what := Fail, "the IP router does not start: what it forwards would go past it"
	switch {
	case r.ended && !r.bypass:
		what = "the process of the IP router has ended, and starts again only once these rules are removed, or with route.bypass_netfilter = true"
	case r.kernel:
		status, what = Warn, "the IP router that runs leaves all packets to the kernel, because of it"
	case r.bypass:
		status, what = Warn, "what the IP router forwards goes past it, as configured"
	case r.runs:
		what = "what the IP router that runs forwards goes past it"
	}
	var found []Finding
	for _, c := range chains {
		found = append(found, Finding{
			Status: status, Check: check,
			Finding: c.String() + ": " + what,
			Command: c.Show(),
		})
	}
	return found
}
