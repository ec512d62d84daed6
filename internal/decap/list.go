// SPDX-License-Identifier: Apache-2.0

package decap

import (
	"fmt"
	"io"
	"net/netip"
	"strings"

	"culvert/internal/decap/decapplane"
	"culvert/internal/show"
	"culvert/internal/show/text"
	"culvert/internal/stats"
)

// Report is what 'culvert lb decap show -j' prints. Fields are added in later versions, never renamed.
type Report struct {
	Decap []Interface `json:"decap"`
}

// Interface is the end of tunnels on an interface.
type Interface struct {
	Name string `json:"interface"`
	// Unattached is "gone" if the interface was deleted, "replaced" if it was made again, and left out otherwise.
	Unattached string `json:"unattached,omitempty"`
	// again is the command that attaches it again.
	again string
	// Mode is "native" or "generic".
	Mode    string `json:"mode"`
	GUEPort uint16 `json:"gue_port"`
	// Local are the outer destinations. From are the outer sources and VIPs the inner destinations that are allowed: an empty
	// list allows all.
	Local []netip.Addr   `json:"local"`
	From  []netip.Prefix `json:"from"`
	VIPs  []netip.Addr   `json:"vips"`
	// Open says that all sources and all destinations are allowed.
	Open    bool           `json:"open"`
	Reasons []stats.Reason `json:"reasons"`
}

func report(all []decapplane.End) Report {
	r := Report{Decap: []Interface{}}
	for _, d := range all {
		i := Interface{
			Name: d.Interface, Mode: "native", GUEPort: d.Options.GUEPort,
			Local:   append([]netip.Addr{}, d.Options.Local...),
			From:    append([]netip.Prefix{}, d.Options.From...),
			VIPs:    append([]netip.Addr{}, d.Options.VIPs...),
			Reasons: append([]stats.Reason{}, d.Reasons...),
			Open:    d.Options.Open(), Unattached: d.Unattached, again: Command(d),
		}
		if d.Options.Generic {
			i.Mode = "generic"
		}
		r.Decap = append(r.Decap, i)
	}
	return r
}

// List writes the ends of tunnels of this network namespace with their counters. Verbose explains each reason.
func List(asJSON, verbose bool, out io.Writer) error {
	all, err := decapplane.List()
	if err != nil {
		return err
	}
	r := report(all)
	if asJSON {
		return show.JSON(out, r)
	}
	return show.Lines(out, r.lines(verbose))
}

// lines returns the report as text. Verbose explains each reason.
func (r Report) lines(verbose bool) (lines []string) {
	if len(r.Decap) == 0 {
		return []string{"no tunnels end here: attach with 'culvert lb decap add IFACE...'"}
	}
	for _, i := range r.Decap {
		lines = append(lines, fmt.Sprintf("%s  %s, GUE on port %d", i.Name, i.Mode, i.GUEPort))
		if i.Unattached != "" {
			lines = append(lines, "  NOT ATTACHED: "+WhyUnattached(i.Unattached)+": no tunnel ends here. "+Remedy(i.Unattached, i.again))
		}
		lines = append(lines, "  to    "+words(i.Local))
		if i.Open {
			lines = append(lines, "  OPEN  "+open)
		}
		if len(i.From) > 0 {
			lines = append(lines, "  from  "+words(i.From))
		}
		if len(i.VIPs) > 0 {
			lines = append(lines, "  VIPs  "+words(i.VIPs))
		}
		if len(i.Reasons) == 0 {
			lines = append(lines, "  no packets yet")
			continue
		}
		t := text.Table{Indent: "  ", Right: []bool{false, false, true, true}}
		t.Add("VERDICT", "REASON", "PACKETS", "BYTES")
		t.AddReasons(i.Reasons, "", verbose)
		lines = append(lines, t.Lines()...)
	}
	return lines
}

func words[T fmt.Stringer](all []T) string {
	var w []string
	for _, v := range all {
		w = append(w, v.String())
	}
	return strings.Join(w, ", ")
}
