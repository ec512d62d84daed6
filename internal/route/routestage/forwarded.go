// SPDX-License-Identifier: Apache-2.0

package routestage

import (
	"fmt"
	"net/netip"

	"culvert/internal/datapath"
	"culvert/internal/host/hostaddr"
	"culvert/internal/route/routeplane"
	"culvert/internal/stage"
)

// The SYNs to a service behind this host may be answered with cookies (filter protect --forwarded). The client's ACK then has
// to meet a SYNPROXY rule of netfilter on its way to the service. What the IP router forwards meets no rule, so the connection
// would never be opened.

// refuseForwarded returns an error for the first of the services that is behind this host. Packets to a service on this host go
// to the kernel, and meet a rule at input.
func refuseForwarded(services []netip.AddrPort) error {
	elsewhere, err := hostaddr.Elsewhere(services)
	if err != nil || len(elsewhere) == 0 {
		return err
	}
	return &forwardedError{elsewhere[0]}
}

// forwardedError is a service behind an IP router that clients would not reach.
type forwardedError struct{ service netip.AddrPort }

func (e *forwardedError) Error() string {
	return fmt.Sprintf("%s cannot be protected as a forwarded service beside the IP router: what that forwards goes past the SYNPROXY rule, "+
		"and no connection would be opened; protect it on the host that has the address", e.service)
}

// protector is the plan of a stage that answers clients in the name of services behind this host.
type protector interface {
	Forwarded(running *datapath.Instance) (byHand, inFile []netip.AddrPort, err error)
	LocateService(inFile netip.AddrPort, err error) error
}

// CheckForwarded looks at what the file has, and at what was made by hand on the data plane that runs.
func CheckForwarded(s stage.Situation) error {
	for _, plan := range s.Stages {
		p, ok := plan.(protector)
		if !ok {
			continue
		}
		byHand, inFile, err := p.Forwarded(s.Running)
		if err != nil {
			return err
		}
		if err := refuseForwarded(byHand); err != nil {
			return fmt.Errorf("%w, or end that: culvert filter unprotect ADDRESS:PORT", err)
		}
		err = refuseForwarded(inFile)
		if at, ok := err.(*forwardedError); ok {
			return p.LocateService(at.service, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Now implements stage.Editable.
func (Stage) Now(inst *datapath.Instance) (stage.Checker, error) {
	if routeplane.OptionsOf(inst) == nil {
		return nil, nil
	}
	return running{}, nil
}

// running is the IP router of a data plane.
type running struct{}

// Name implements stage.Checker.
func (running) Name() string { return Stage{}.Name() }

// Check implements stage.Checker.
func (running) Check(s stage.Situation) error { return CheckForwarded(s) }
