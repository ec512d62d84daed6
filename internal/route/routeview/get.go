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

// errDiffers is for the exit status: the difference itself has been shown.
var errDiffers = errors.New("the fast path and the kernel differ")

// GetOptions say which packet is meant.
type GetOptions struct {
	// Name is that of the data plane; "" is the only IP router of this network namespace.
	Name string
	// To is where it goes. From, where it comes from, and In, the interface that it comes in by, are made up if
	// they are missing.
	To, From netip.Addr
	In       string
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
}

// Fast is what the fast path does with a packet.
type Fast struct {
	// Verdict and Reason are what it is counted under; empty where no fast path is.
	Verdict string `json:"verdict,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// By is mirror or kernel: who has decided on the destination; empty if it was not looked at.
	By string `json:"by,omitempty"`
	// Prefix is the one of the mirror that has the destination.
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

// Get writes what the fast path does with a packet, and what the kernel does. A difference is an error.
func Get(o GetOptions, asJSON bool, out io.Writer) error {
	inst, err := openHere(o.Name)
	if err != nil {
		return err
	}
	defer inst.Close()
	got, err := get(inst, o)
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
	// A change may be on its way.
	time.Sleep(settleTime)
	if err := errors.Join(v.refresh(), k.refresh()); err != nil {
		return nil, err
	}
	return v.compare(q, k)
}

// settleTime is how long a change takes from the kernel's tables to the mirror at most, by any reckoning.
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

// query makes up what was not said of the packet, so that it is one to be forwarded: it comes from a neighbour, and
// not by the device that it leaves by.
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
		q.in = v.someDevice(o.To, k)
	}
	if !q.from.IsValid() {
		if q.from = k.guest(q.in, o.To.Is6()); !q.from.IsValid() {
			q.from = map[bool]netip.Addr{false: someSource4, true: someSource6}[o.To.Is6()]
		}
	}
	return q, nil
}

// Sources for packets that come in where no network is: addresses for documentation (RFC 5737, RFC 3849).
var (
	someSource4 = netip.MustParseAddr("192.0.2.1")
	someSource6 = netip.MustParseAddr("2001:db8::1")
)

// someDevice is the first by name that forwards the family, not the one that the kernel would send by if there is
// another.
func (v *view) someDevice(to netip.Addr, k *kernel) int {
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
	return err
}
