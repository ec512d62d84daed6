// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"fmt"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/route/routeplane"
	"culvert/internal/show/text"
)

// Values of Condition.By: how packets of a family are forwarded.
const (
	// Mirror means by the mirror, as far as it knows the route.
	Mirror = "mirror"
	// Stale means that the programs ask the kernel for each packet, because the mirror is not current.
	Stale = "stale"
	// NoMirror means that the programs ask the kernel for each packet, because there is no mirror: it is configured so,
	// or no process keeps one.
	NoMirror = "none"
	// Kernel means that the kernel forwards all packets, because the fast path does not honor some setting of the host.
	Kernel = "kernel"
)

// Condition is how packets of a family are forwarded now.
type Condition struct {
	By string `json:"by"`
	// StaleSeconds is for how long the mirror has not been current. It is left out if it never was.
	StaleSeconds float64 `json:"stale_seconds,omitempty"`
	// Why is the reason if By is not Mirror, as far as is known.
	Why string `json:"why,omitempty"`
}

// State is the state of a data plane's IP router.
type State struct {
	IPv4 Condition `json:"ipv4"`
	IPv6 Condition `json:"ipv6"`
	// Memory is the size of the mirror in bytes.
	Memory uint64 `json:"memory_bytes"`
}

// Describe returns the state of a data plane's IP router, nil if it is off.
func Describe(inst *datapath.Instance) (*State, error) {
	o := routeplane.OptionsOf(inst)
	if o == nil {
		return nil, nil
	}
	st, err := routeplane.ReadState(inst)
	if err != nil {
		return nil, err
	}
	s := &State{
		IPv4:   condition(*o, st.Policy.Kernel4, st.Until4),
		IPv6:   condition(*o, st.Policy.Kernel6, st.Until6),
		Memory: routeplane.Memory(inst),
	}
	nowhere, err := forwardsNowhere4(inst)
	if err != nil {
		return nil, err
	}
	if nowhere {
		s.IPv4 = Condition{By: Kernel}
	}
	s.IPv4.Why, s.IPv6.Why = why(inst, s.IPv4.By, false), why(inst, s.IPv6.By, true)
	if nowhere && !st.Policy.Kernel4 {
		s.IPv4.Why = whyNowhere4(inst)
	}
	return s, nil
}

func condition(o routeplane.Options, kernel bool, until time.Duration) Condition {
	now := monotonic()
	switch {
	case kernel:
		return Condition{By: Kernel}
	case o.NoMirror:
		return Condition{By: NoMirror}
	case o.Trusting || now < until:
		return Condition{By: Mirror}
	case until == 0:
		return Condition{By: Stale}
	}
	return Condition{By: Stale, StaleSeconds: (now - until).Round(time.Millisecond).Seconds()}
}

// String describes the condition in words that fit after the name of the family.
func (c Condition) String() string {
	words := "asks the kernel"
	switch c.By {
	case Mirror:
		return "by the mirror"
	case Kernel:
		words = "left to the kernel"
	}
	if c.Why != "" {
		words += ": " + c.Why
	}
	if c.StaleSeconds >= 1 {
		words += fmt.Sprintf(" (for %s)", text.Ago(time.Duration(c.StaleSeconds*float64(time.Second))))
	}
	return words
}

func familyName(is6 bool) string {
	if is6 {
		return "IPv6"
	}
	return "IPv4"
}

// condition returns the condition of a family. A mirror may be stale for a moment when the machine is busy, so condition
// waits up to v.patience for it to be current.
func (v *view) condition(is6 bool) (c Condition, err error) {
	const gap = 10 * time.Millisecond
	for waited := time.Duration(0); ; waited += gap {
		s, err := Describe(v.inst)
		if err != nil {
			return c, err
		}
		c = s.IPv4
		if is6 {
			c = s.IPv6
		}
		if c.By != Stale || waited >= v.patience || !v.inst.Served() {
			return c, nil
		}
		time.Sleep(gap)
	}
}
