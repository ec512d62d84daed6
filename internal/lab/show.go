// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"culvert/internal/show"
	"culvert/internal/show/text"
)

// Listed is what 'culvert lab list -j' prints for a lab: its state, and which of
// its processes run.
type Listed struct {
	*Lab
	Processes []ListedProcess `json:"processes"`
}

// ListedProcess is a process of a lab.
type ListedProcess struct {
	Process
	// Alive tells whether it runs.
	Alive bool `json:"alive"`
}

// WriteList writes the labs that are up, as a table or as a JSON array.
func WriteList(w io.Writer, asJSON bool) error {
	labs, err := List()
	if err != nil {
		return err
	}
	if asJSON {
		list := make([]Listed, 0, len(labs))
		for _, l := range labs {
			entry := Listed{Lab: l, Processes: []ListedProcess{}}
			for _, p := range l.Processes {
				entry.Processes = append(entry.Processes, ListedProcess{p, p.Alive()})
			}
			list = append(list, entry)
		}
		return show.JSON(w, list)
	}
	if len(labs) == 0 {
		return nil
	}
	var t text.Table
	t.Add("NAME", "TOPOLOGY", "STATE", "PROCESSES", "NAMESPACES")
	for _, l := range labs {
		state := "up"
		if !l.Ready {
			state = "incomplete"
		}
		t.Add(l.Name, l.Topology, state, fmt.Sprintf("%d of %d", len(running(l.Processes)), len(l.Processes)),
			strings.Join(l.netnsNames(), " "))
	}
	return show.Lines(w, t.Lines())
}

// WriteSummary writes the namespaces of a lab with their interfaces, and commands to
// try.
func (l *Lab) WriteSummary(w io.Writer) error {
	t := text.Table{Indent: "  "}
	for _, ns := range l.Namespaces {
		var ifs []string
		for _, i := range ns.Interfaces {
			ifs = append(ifs, i.summary())
		}
		about := ""
		for _, as := range l.ASes {
			if as.NS == ns.Name {
				about = strings.TrimSpace(as.IA + " " + string(as.Router))
			}
		}
		if l.BGP != nil {
			about = l.BGP.about(ns.Name)
		}
		if l.LB != nil {
			about = l.LB.about(ns.Name)
		}
		if l.Fleet != nil {
			about = l.Fleet.about(ns.Name)
		}
		if l.All != nil {
			about = cmp.Or(l.All.about(ns.Name), about)
		}
		t.Add(ns.Name, ns.NetNS, about, strings.Join(ifs, ", "))
	}
	if err := show.Lines(w, append([]string{"lab " + l.Name + " is up"}, t.Lines()...)); err != nil {
		return err
	}
	var more string
	switch {
	case l.BGP != nil:
		more = l.showBGP()
	case l.LB != nil:
		more = l.showLB()
	case l.All != nil:
		more = l.showAll()
	case l.Fleet != nil:
		more = l.showFleet()
	case l.Topology == "scion3":
		more = l.showSCION()
	}
	_, err := io.WriteString(w, more)
	return err
}

// showSCION returns commands to try between the first AS and a host of the last one.
func (l *Lab) showSCION() string {
	first, last := l.ASes[0], l.ASes[len(l.ASes)-1]
	host := last.IA + "," + last.Host.String()
	var s strings.Builder
	s.WriteString("to try:\n")
	for _, command := range []string{"scion showpaths " + last.IA, "scion ping " + host + " -c 3", "scion traceroute " + host} {
		fmt.Fprintf(&s, "  culvert lab exec %s %s %s\n", l.Name, first.NS, command)
	}
	s.WriteString("  culvert status\n")
	return s.String()
}

// summary returns the name of an interface and its first address of each family.
func (i Interface) summary() string {
	words := []string{i.Name}
	v4, v6 := false, false
	for _, a := range i.Addrs {
		seen := &v6
		if a.Addr().Is4() {
			seen = &v4
		}
		if !*seen {
			words = append(words, a.String())
		}
		*seen = true
	}
	return strings.Join(words, " ")
}

func (l *Lab) netnsNames() []string {
	var names []string
	for _, ns := range l.Namespaces {
		names = append(names, ns.NetNS)
	}
	return names
}
