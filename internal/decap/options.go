// SPDX-License-Identifier: Apache-2.0

// Package decap implements 'culvert lb decap', which attaches, detaches and shows ends of tunnels. An end of tunnels is an
// interface with a program that decapsulates packets.
package decap

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"culvert/internal/decap/decapplane"
	"culvert/internal/show/usage"
)

// Flags are the options of the command line.
type Flags struct {
	GUEPort          int
	From, VIP, Local []string
	Generic          bool
}

// anySource is the value of --from that allows all sources.
const anySource = "any"

// open is the warning about an end of tunnels that restricts neither sources nor destinations.
const open = "anybody who reaches this host can put packets of any source and destination behind its firewall: " +
	"say with --from where the balancers send from, or with --vip what they may send to"

// options checks and parses the flags.
func (f Flags) options() (o decapplane.Options, err error) {
	if f.GUEPort < 1 || f.GUEPort > 65535 {
		return o, usage.Errorf("--gue-port %d: use 1 to 65535", f.GUEPort)
	}
	o.GUEPort, o.Generic = uint16(f.GUEPort), f.Generic
	any := slices.Contains(f.From, anySource)
	switch {
	case any && len(f.From) > 1:
		return o, usage.Errorf("--from any allows all sources: give it alone")
	case len(f.From)+len(f.VIP) == 0:
		return o, usage.Errorf("without --from and --vip anybody could send anything into this host: say with --from where the balancers send from, or --from any")
	case any:
		f.From = nil
	}
	for _, text := range f.From {
		p, err := parsePrefix(text)
		if err != nil {
			return o, err
		}
		o.From = append(o.From, p)
	}
	for _, text := range f.VIP {
		a, err := parseAddr("--vip", text)
		if err != nil {
			return o, err
		}
		o.VIPs = append(o.VIPs, a)
	}
	for _, text := range f.Local {
		a, err := parseAddr("--local", text)
		if err != nil {
			return o, err
		}
		o.Local = append(o.Local, a)
	}
	return o, f.families(o)
}

// families returns an error for a source without a destination of its IP version, and for such a destination: no packet could
// match.
func (f Flags) families(o decapplane.Options) error {
	if len(o.From) == 0 || len(o.Local) == 0 {
		return nil
	}
	is4 := func(a netip.Addr) bool { return a.Is4() }
	for n, p := range o.From {
		if !slices.ContainsFunc(o.Local, func(a netip.Addr) bool { return is4(a) == is4(p.Addr()) }) {
			return usage.Errorf("--from %s: no --local is of its family", f.From[n])
		}
	}
	for n, a := range o.Local {
		if !slices.ContainsFunc(o.From, func(p netip.Prefix) bool { return is4(a) == is4(p.Addr()) }) {
			return usage.Errorf("--local %s: no --from is of its family", f.Local[n])
		}
	}
	return nil
}

// parsePrefix parses a prefix. An address stands for the prefix with this address alone.
func parsePrefix(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		a, err := parseAddr("--from", text)
		if err != nil {
			return netip.Prefix{}, err
		}
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil || p.Addr().Is4In6():
		return p, usage.Errorf("--from %q is no prefix: write it as 10.200.0.0/16 or fd00:200::/64", text)
	case p != p.Masked():
		return p, usage.Errorf("--from %s has bits behind its length: write %s", text, p.Masked())
	}
	return p, nil
}

func parseAddr(flag, text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil || a.Zone() != "" || a.Is4In6():
		return a, usage.Errorf("%s %q is no address: write it as 192.0.2.1 or 2001:db8::1", flag, text)
	case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback():
		return a, usage.Errorf("%s %s: no packet of a tunnel has it: give an address of a host", flag, text)
	}
	return a, nil
}

// Attach attaches ends of tunnels to interfaces. Where one is attached already, it gets the new options. Warnings go to warn.
func Attach(interfaces []string, f Flags, out, warn io.Writer) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	if err := decapplane.Attach(interfaces, o); err != nil {
		return err
	}
	for _, name := range interfaces {
		fmt.Fprintf(out, "tunnels end on %s\n", name)
	}
	if o.Open() {
		fmt.Fprintf(warn, "warning: %s: %s\n", strings.Join(interfaces, ", "), open)
	}
	return nil
}

// Detach detaches the ends of tunnels from interfaces. It does nothing if one of the interfaces has none.
func Detach(interfaces []string, out io.Writer) error {
	all, err := decapplane.List()
	if err != nil {
		return err
	}
	for _, name := range interfaces {
		if !slices.ContainsFunc(all, func(d decapplane.End) bool { return d.Interface == name }) {
			return fmt.Errorf("no tunnels end on %s: see 'culvert lb decap show'", name)
		}
	}
	for _, name := range interfaces {
		if _, err := decapplane.Detach(name); err != nil {
			return err
		}
		fmt.Fprintf(out, "taken off %s\n", name)
	}
	return nil
}

// Interfaces returns the names of the interfaces with an end of tunnels, for completion.
func Interfaces() (names []string) {
	all, _ := decapplane.List()
	for _, d := range all {
		names = append(names, d.Interface)
	}
	return names
}
