// SPDX-License-Identifier: Apache-2.0

package routeview

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/route/routeplane"
	"culvert/internal/show/usage"
)

// errDiffers makes the command fail. The difference itself has been shown.
var errDiffers = errors.New("the fast path and the kernel differ")

// GetOptions describe the packet to ask about.
type GetOptions struct {
	// Name is the data plane's; "" means the only IP router of this network namespace.
	Name string
	// To is the destination and From the source. In is the name of the interface by which the packet comes in.
	// A suitable source or interface is chosen if it is missing.
	To, From netip.Addr
	In       string
	// NotAsked returns a line for each other stage that may take the packet first. It may be nil.
	NotAsked func(inst *datapath.Instance, to netip.Addr) ([]string, error)
}

// Got is what `culvert route get -j` prints. Fields are added in later versions, never renamed.
type Got struct {
	Router    string `json:"router"`
	To        string `json:"to"`
	From      string `json:"from"`
	Interface string `json:"interface"`
	FastPath  Fast   `json:"fast_path"`
	Kernel    Route  `json:"kernel"`
	Agree     bool   `json:"agree"`
	// Difference says how they differ.
	Difference string `json:"difference,omitempty"`
	// NotAsked has a line for each other stage that may take the packet first.
	NotAsked []string `json:"not_asked,omitempty"`
}

// Fast is what the fast path does with a packet.
type Fast struct {
	// Verdict and Reason are what the packet is counted under. They are empty if the interface does not carry culvert.
	Verdict string `json:"verdict,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// By says what has decided on the destination: "mirror" or "kernel", or "" if it was not looked up.
	By string `json:"by,omitempty"`
	// Prefix is the mirror's longest prefix with the destination.
	Prefix    string `json:"prefix,omitempty"`
	Interface string `json:"interface,omitempty"`
	MAC       string `json:"mac,omitempty"`
	VLAN      int    `json:"vlan,omitempty"`
	MTU       uint16 `json:"mtu,omitempty"`
	Text      string `json:"text"`
}

// Route is the kernel's route of a packet.
type Route struct {
	Type      string `json:"type"`
	Prefix    string `json:"prefix,omitempty"`
	Gateway   string `json:"gateway,omitempty"`
	Interface string `json:"interface,omitempty"`
	Multipath bool   `json:"multipath,omitempty"`
	Text      string `json:"text"`
}

// Get writes what the fast path and the kernel do with a packet. It returns an error if they differ.
func Get(o GetOptions, asJSON bool, out io.Writer) error {
	inst, err := openHere(o.Name)
	if err != nil {
		return err
	}
	defer inst.Close()
	got, err := get(inst, o)
	if err == nil && o.NotAsked != nil {
		got.NotAsked, err = o.NotAsked(inst, o.To)
	}
	if err != nil {
		return err
	}
	if asJSON {
		err = json.NewEncoder(out).Encode(got)
	} else {
		err = got.writeText(out)
	}
	if err == nil && !got.Agree {
		err = fmt.Errorf("to %s: %w", o.To, errDiffers)
	}
	return err
}

func get(inst *datapath.Instance, o GetOptions) (*Got, error) {
	v, err := newView(inst)
	if err != nil {
		return nil, err
	}
	defer v.close()
	k, err := newKernel()
	if err != nil {
		return nil, err
	}
	defer k.close()
	q, err := v.query(o, k)
	if err != nil {
		return nil, err
	}
	got, err := v.compare(q, k)
	if err != nil || got.Agree {
		return got, err
	}
	// A change may be on its way from the kernel to the mirror.
	time.Sleep(settleTime)
	if err := errors.Join(v.refresh(), k.refresh()); err != nil {
		return nil, err
	}
	return v.compare(q, k)
}

// settleTime is more than a change takes from the kernel's tables to the mirror.
const settleTime = 200 * time.Millisecond

func (v *view) compare(q query, k *kernel) (*Got, error) {
	d, answer, err := v.decide(q, k)
	if err != nil {
		return nil, err
	}
	got := &Got{
		Router: v.inst.Name(), To: q.to.String(), From: q.from.String(), Interface: k.name(q.in),
		FastPath: d.shown(k), Kernel: k.shown(answer),
	}
	if d.mirrored && answer.kind != refused {
		got.Difference = k.differs(q.to, d.entry, answer.way)
	}
	got.Agree = got.Difference == ""
	return got, nil
}

// query completes the options to a packet that can be forwarded: it comes from an address on the network of the device by
// which it comes in, and does not leave by that device.
func (v *view) query(o GetOptions, k *kernel) (q query, err error) {
	q = query{to: o.To, from: o.From}
	if o.From.IsValid() && o.From.Is4() != o.To.Is4() {
		return q, usage.Errorf("from %s to %s: give addresses of one family", o.From, o.To)
	}
	if o.In != "" {
		index, ok := k.index(o.In)
		if !ok {
			return q, fmt.Errorf("no interface %s here: see 'ip link'", o.In)
		}
		q.in = index
	} else {
		q.in = v.inputDevice(o.To, k)
	}
	if !q.from.IsValid() {
		if q.from = k.onLinkAddr(q.in, o.To.Is6()); !q.from.IsValid() {
			q.from = exampleSource(o.To.Is6())
		}
	}
	return q, nil
}

// exampleSource is the source of packets that come in by a device without a network: an address for documentation
// (RFC 5737, RFC 3849).
func exampleSource(is6 bool) netip.Addr {
	if is6 {
		return netip.MustParseAddr("2001:db8::1")
	}
	return netip.MustParseAddr("192.0.2.1")
}

// inputDevice returns the index of a device by which a packet to an address can come in: the first by name that forwards
// the family. It avoids the device by which the packet would leave, unless there is no other.
func (v *view) inputDevice(to netip.Addr, k *kernel) int {
	out := 0
	if r, err := k.ask(to, netip.Addr{}, 0); err == nil {
		out = r.dev
	}
	var fit []int
	for _, index := range slices.Sorted(maps.Keys(v.devs)) {
		if dev := v.devs[index]; to.Is4() && dev.Forward4 || to.Is6() && dev.Forward6 {
			fit = append(fit, index)
		}
	}
	slices.SortFunc(fit, func(a, b int) int {
		switch {
		case a == out:
			return 1
		case b == out:
			return -1
		case k.name(a) < k.name(b):
			return -1
		}
		return 1
	})
	if len(fit) == 0 {
		for _, index := range slices.Sorted(maps.Keys(v.devs)) {
			return index
		}
		return 0
	}
	return fit[0]
}

// shown converts a decision for output.
func (d decision) shown(k *kernel) Fast {
	f := Fast{Verdict: d.verdict, Reason: d.reason, Text: d.why}
	switch {
	case d.mirrored:
		f.By = "mirror"
		if d.entry.prefix.IsValid() {
			f.Prefix = d.entry.prefix.String()
		}
	case d.asked:
		f.By = "kernel"
	}
	if d.hop.Action == routeplane.Forward {
		f.Interface, f.MAC, f.VLAN, f.MTU = k.name(d.hop.Dev), hardware(d.hop.DstMAC), int(d.hop.VLAN)&0xfff, d.hop.MTU
	}
	return f
}

// shown converts a route for output.
func (k *kernel) shown(r kernelRoute) Route {
	s := Route{Type: string(r.kind), Multipath: r.several, Text: k.text(r)}
	if r.prefix.IsValid() && r.kind != none {
		s.Prefix = r.prefix.String()
	}
	if r.gateway.IsValid() {
		s.Gateway = r.gateway.String()
	}
	if r.dev != 0 {
		s.Interface = k.name(r.dev)
	}
	return s
}

func (g *Got) writeText(out io.Writer) error {
	verdict := "agree"
	if !g.Agree {
		verdict = "differs: " + g.Difference
	}
	_, err := fmt.Fprintf(out, "%s from %s iif %s: %s\nkernel: %s\n%s\n", g.To, g.From, g.Interface, g.FastPath.Text,
		g.Kernel.Text, verdict)
	for _, line := range g.NotAsked {
		_, err = fmt.Fprintln(out, "not asked:", line)
	}
	return err
}
