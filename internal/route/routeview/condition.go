// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"fmt"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/route/routeplane"
	"culvert/internal/show/text"
)

// What a family of packets is forwarded by.
const (
	// Mirror is the mirrored table, for all that it knows.
	Mirror = "mirror"
	// Stale is the kernel's answer for each packet, because nobody has said lately that the mirror is current.
	Stale = "stale"
	// NoMirror is the kernel's answer for each packet, as configured, or because there is no process to keep a mirror.
	NoMirror = "none"
	// Kernel is the kernel itself: the host has settings that the fast path does not honour.
	Kernel = "kernel"
)

// Condition is how a family of packets is forwarded now.
type Condition struct {
	By string `json:"by"`
	// StaleSeconds is since when the mirror is not believed any more, left out if it never was.
	StaleSeconds float64 `json:"stale_seconds,omitempty"`
	// Why says why it is not the mirror, as far as is known.
	Why string `json:"why,omitempty"`
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
	s.IPv4.Why, s.IPv6.Why = why(inst, s.IPv4.By, false), why(inst, s.IPv6.By, true)
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

// String says it in words that follow the name of the family.
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

// condition is that of a family. A mirror that is not believed for a moment, as when the machine is busy, is waited for.
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
