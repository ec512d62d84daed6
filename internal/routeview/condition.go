// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"fmt"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/text"
)

// What a family of packets is forwarded by.
const (
	// Mirror is the mirrored table, for all that it knows.
	Mirror = "mirror"
	// Stale is the kernel's answer for each packet, because nobody has said lately that the mirror is current.
	Stale = "stale"
	// NoMirror is the kernel's answer for each packet, as configured.
	NoMirror = "none"
	// Kernel is the kernel itself: the host has settings that the fast path does not honour.
	Kernel = "kernel"
)

// Condition is how a family of packets is forwarded now.
type Condition struct {
	By string `json:"by"`
	// StaleSeconds is since when the mirror is not believed any more, left out if it never was.
	StaleSeconds float64 `json:"stale_seconds,omitempty"`
	served       bool
}

// State is what the IP router of a data plane is like.
type State struct {
	IPv4 Condition `json:"ipv4"`
	IPv6 Condition `json:"ipv6"`
	// Memory is that of the mirror, bytes.
	Memory uint64 `json:"memory_bytes"`
}

// Describe tells the state of a data plane's IP router, nil if it is off.
func Describe(inst *datapath.Instance) (*State, error) {
	o := inst.Route()
	if o == nil {
		return nil, nil
	}
	st, err := inst.RouteState()
	if err != nil {
		return nil, err
	}
	return &State{
		IPv4:   condition(*o, inst.Served(), st.Policy.Kernel4, st.Until4),
		IPv6:   condition(*o, inst.Served(), st.Policy.Kernel6, st.Until6),
		Memory: inst.RouteMemory(),
	}, nil
}

func condition(o datapath.RouteOptions, served, kernel bool, until time.Duration) Condition {
	now := monotonic()
	switch {
	case kernel:
		return Condition{By: Kernel}
	case o.NoMirror:
		return Condition{By: NoMirror}
	case o.Trusting || now < until:
		return Condition{By: Mirror}
	case until == 0:
		return Condition{By: Stale, served: served}
	}
	return Condition{By: Stale, StaleSeconds: (now - until).Round(time.Millisecond).Seconds(), served: served}
}

// String says it in words that follow the name of the family.
func (c Condition) String() string {
	switch c.By {
	case Mirror:
		return "by the mirror"
	case NoMirror:
		return "asks the kernel: there is no mirror"
	case Kernel:
		return "left to the kernel: the host has settings that the fast path does not honour"
	}
	why := "no process keeps the mirror current"
	if c.served {
		why = "the mirror is not current"
	}
	if c.StaleSeconds > 0 {
		why += fmt.Sprintf(" since %s", text.Ago(time.Duration(c.StaleSeconds*float64(time.Second))))
	}
	return "asks the kernel: " + why
}

func familyName(is6 bool) string {
	if is6 {
		return "IPv6"
	}
	return "IPv4"
}

// condition is that of a family now.
func (v *view) condition(is6 bool) (Condition, error) {
	s, err := Describe(v.inst)
	switch {
	case err != nil:
		return Condition{}, err
	case is6:
		return s.IPv6, nil
	}
	return s.IPv4, nil
}
