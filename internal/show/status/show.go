// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/host/cpus"
	"culvert/internal/host/pins"
	"culvert/internal/show"
	"culvert/internal/show/text"
	"culvert/internal/stats"
)

// Options select what Show writes.
type Options struct {
	// Router is the ID of the only one to show, "" for all.
	Router string
	// Verbose explains each reason.
	Verbose, JSON bool
}

// Show writes the state of every data plane on this machine, or of one.
func Show(out io.Writer, o Options) error {
	report, err := Collect(o.Router)
	if err != nil {
		return err
	}
	if err := report.findSlowPaths(o.Router); err != nil {
		return err
	}
	if o.Router != "" && len(report.Routers)+len(report.SlowPaths) == 0 {
		return noRouter(o.Router)
	}
	if report.Host, err = os.Hostname(); err != nil {
		return fmt.Errorf("reading the name of this machine: %w", err)
	}
	report.findNetfilter()
	report.findPeers()
	if o.Router == "" {
		if err := report.findDecap(); err != nil {
			return err
		}
	}
	if o.JSON {
		return report.WriteJSON(out)
	}
	return report.WriteText(out, time.Now(), o.Verbose)
}

// WriteJSON writes the report as one JSON object.
func (r Report) WriteJSON(out io.Writer) error {
	return show.JSON(out, r)
}

// WriteText writes the report as text. Times are shown relative to now, and verbose explains each reason.
func (r Report) WriteText(out io.Writer, now time.Time, verbose bool) error {
	var lines []string
	if len(r.Routers)+len(r.Decap)+len(r.SlowPaths) == 0 {
		lines = append(lines, "culvert is not attached anywhere on this machine")
	}
	// Data planes of the caller's network namespace come first. JSON has the order of the names.
	routers := slices.SortedStableFunc(slices.Values(r.Routers), func(a, b Router) int {
		switch {
		case a.Here == b.Here:
			return 0
		case a.Here:
			return -1
		default:
			return 1
		}
	})
	for n, router := range routers {
		if n > 0 {
			lines = append(lines, "")
		}
		lines = append(lines, router.text(now, r.removal(router), verbose)...)
	}
	for _, s := range r.SlowPaths {
		if len(lines) > 0 {
			lines = append(lines, "")
		}
		lines = append(lines, s.line())
	}
	lines = append(lines, r.decapLines(verbose)...)
	return show.Lines(out, lines)
}

// text returns the lines of one router. removal says how to remove it if it is attached to nothing, and verbose explains its
// reasons.
func (r Router) text(now time.Time, removal string, verbose bool) []string {
	lines := []string{fmt.Sprintf("%s %s  netns %s  %s  %s", r.kind(), r.ID, r.netns(), r.Mode, r.service())}
	if r.LoadedAt != nil {
		lines[0] += "  loaded " + text.Ago(now.Sub(*r.LoadedAt)) + " ago"
	}
	if r.Problem != "" {
		return append(lines, "  "+r.Problem)
	}
	for _, s := range r.Stages {
		switch s.State {
		case datapath.StageOut:
			lines = append(lines, "  stage "+s.Stage+"  OUT, try it again with 'culvert reload': "+s.Why)
		case datapath.StageStarting:
			lines = append(lines, "  stage "+s.Stage+"  starting")
		}
		if s.Short != "" {
			lines = append(lines, "  stage "+s.Stage+"  TOO SMALL: "+s.Short)
		}
	}
	if r.Config != nil {
		lines = append(lines, r.Config.lines(time.Now())...)
	}
	if w := r.Workers; w != nil {
		does := fmt.Sprintf("queue %d packets each", w.Queue)
		if r.noSCION && r.Route == nil && r.LB == nil {
			does = "no effect: no stage is on whose packets are spread"
		}
		for _, e := range w.Enqueued {
			does += fmt.Sprintf("  CPU %d has given them %s", e.CPU, text.Grouped(e.Packets))
		}
		lines = append(lines, fmt.Sprintf("  workers on CPUs %s  %s", cpus.Format(w.CPUs), does))
	}
	if r.Route != nil && !r.detached() {
		lines = append(lines, r.Route.lines()...)
	}
	if r.Filter != nil && (!r.detached() || r.Here) {
		lines = append(lines, r.Filter.line())
	}
	if r.LB != nil && !r.detached() {
		lines = append(lines, r.LB.lines()...)
	}
	if r.Capture != nil && !r.detached() {
		lines = append(lines, r.Capture.line(r.Served))
	}
	if r.SFlow != nil && !r.detached() {
		lines = append(lines, r.SFlow.line(r.Served))
	}
	for _, i := range r.Interfaces {
		lines = append(lines, i.text(r.unattachedReason(i.Interface), verbose)...)
	}
	switch {
	case !r.detached():
	case r.Starting:
		lines = append(lines, "  it is being started: it is not attached to anything yet")
	case slices.ContainsFunc(r.Unattached, func(u pins.Unattached) bool { return u.Why != pins.Gone }):
		line := "  it is attached to nothing"
		if !r.Served {
			line += ": attach again" + removal
		}
		lines = append(lines, line)
	case r.Served:
		lines = append(lines, "  none of its interfaces exists: the process attaches when they do")
	default:
		lines = append(lines, "  its interfaces are gone: attach again"+removal)
	}
	if !r.Served && !r.noSCION && !r.detached() {
		lines = append(lines, "  not served: BFD is not answered, so neighbors that use it take the links down, and there is no slow path")
	}
	lines = append(lines, r.linkText()...)
	lines = append(lines, r.keyText(time.Now())...)
	if text := r.keyProblem(); text != "" {
		lines = append(lines, "  "+text)
	}
	return lines
}

// kind is what stands in front of the name.
func (r Router) kind() string {
	if r.noSCION && r.Route == nil {
		return "data plane"
	}
	return "router"
}

// keyText returns lines about the keys.
func (r Router) keyText(now time.Time) (lines []string) {
	if r.KeySchedule != nil {
		for _, line := range r.KeySchedule.Text(now) {
			lines = append(lines, "  "+line)
		}
		return lines
	}
	for _, k := range r.Keys {
		lines = append(lines, fmt.Sprintf("  key %d  id %s", k.Index, k.ID))
	}
	return lines
}

// keyProblem says what happens to packets because of keys that are not loaded, "" if none is missing.
func (r Router) keyProblem() string {
	switch {
	case r.noSCION, r.Route != nil && len(r.Links) == 0:
		return ""
	case r.ownKeyMissing:
		return "the process's own key is not loaded: packets that fail under the loaded keys are dropped"
	case len(r.Keys) > 0:
		return ""
	case r.Served: // the process is about to load its key
		return "no key: all packets go to the slow path"
	default:
		return "no key: nothing is forwarded"
	}
}

// detached tells whether the router is attached to nothing.
func (r Router) detached() bool {
	return !slices.ContainsFunc(r.Interfaces, func(i Interface) bool { return i.Attached })
}

// removal says how to remove a router whose interfaces are gone, without detaching what is attached in this network
// namespace.
func (r Report) removal(gone Router) string {
	switch {
	case gone.Served:
		return ""
	case slices.ContainsFunc(r.Routers, func(other Router) bool { return other.Here && !other.detached() }):
		return ", or remove it with 'unshare -n culvert detach --all'"
	default:
		return ", or remove it with 'culvert detach --all'"
	}
}

// netns returns the network namespace by its inode, and its name if it has one.
func (r Router) netns() string {
	switch {
	case r.NetNSName != "":
		return fmt.Sprintf("%d (%s)", r.NetNS, r.NetNSName)
	case r.Here:
		return fmt.Sprintf("%d (this one)", r.NetNS)
	default:
		return fmt.Sprint(r.NetNS)
	}
}

// netnsLabel returns the network namespace in one word: its name, or else its inode.
func (r Router) netnsLabel() string {
	if r.NetNSName != "" {
		return r.NetNSName
	}
	return fmt.Sprint(r.NetNS)
}

func (r Router) service() string {
	switch {
	case r.PID != 0:
		return fmt.Sprintf("served by process %d", r.PID)
	case r.Served:
		return "served"
	default:
		return "not served"
	}
}

// unattachedReason says why an interface that the router was told to be on does not carry it, "" for others.
func (r Router) unattachedReason(name string) string {
	n := slices.IndexFunc(r.Unattached, func(u pins.Unattached) bool { return u.Interface == name })
	if n < 0 {
		return ""
	}
	if r.Starting {
		return "it is about to be attached"
	}
	switch u := r.Unattached[n]; {
	case u.Moved && u.Why == pins.Gone:
		return "it is in another network namespace"
	case u.Why == pins.Gone && r.Served:
		return "it does not exist; the process attaches to it once it does"
	case u.Why == pins.Gone:
		return "it does not exist"
	case u.Renamed != "":
		return "it was renamed to " + u.Renamed + ", and another interface has its name"
	case u.Moved:
		return "it is in another network namespace, and another interface has its name"
	case u.Why == pins.Replaced:
		return "it was deleted and made again"
	default:
		return "it was detached"
	}
}

// unit follows the first number of a table. noUnit has the same width and follows the other numbers.
const (
	unit   = " packets"
	noUnit = "        "
)

// text returns the lines of one interface. unattached says why it does not carry the program although it should, and verbose
// explains its reasons.
func (i Interface) text(unattached string, verbose bool) []string {
	head := "  interface " + i.Interface
	switch {
	case !i.Attached && unattached != "":
		head += "  NOT ATTACHED: " + unattached
	case !i.Attached:
		head += "  not attached: these are its counters so far"
	case i.State == "down":
		head += "  DOWN: ip link set dev " + cmp.Or(i.Renamed, i.Interface) + " up"
	case i.State == "no carrier":
		head += "  NO CARRIER"
	}
	if i.Renamed != "" {
		head += "  renamed to " + i.Renamed + " since"
	}
	lines := []string{head}
	if i.Bridge != "" {
		lines = append(lines, "    port of the bridge "+i.Bridge+": the IP router leaves what comes in by it to the kernel: ip link set dev "+
			cmp.Or(i.Renamed, i.Interface)+" nomaster")
	}
	if members := i.memberText(); members != "" {
		lines = append(lines, members)
	}
	for _, f := range i.Peer {
		lines = append(lines, fmt.Sprintf("    FAILS: %s: %s", f.Finding, f.Command))
	}
	if i.Stays {
		lines = append(lines, "    workers get none of its packets: "+i.StaysBecause)
	}
	if i.Queues != nil {
		lines = append(lines, "    queues: "+i.Queues.String())
	}
	lines = append(lines, i.memberQueues()...)
	if line := i.cpuLine(); line != "" {
		lines = append(lines, line)
	}
	t := text.Table{Indent: "    ", Right: []bool{false, false, true, true}}
	t.Add("received", "", text.Grouped(i.Packets)+unit, text.ShortBytes(i.Bytes))
	t.AddReasons(byPackets(i.Reasons), noUnit, verbose)
	for _, name := range slices.Sorted(maps.Keys(i.Losses)) {
		if n := i.Losses[name]; n > 0 {
			t.Add(verdictLost, name, text.Grouped(n)+noUnit)
		}
	}
	return append(lines, t.Lines()...)
}

// cpuLine says which share of the packets each CPU has had, "" if there are none.
func (i Interface) cpuLine() string {
	var sum uint64
	for _, c := range i.CPUs {
		sum += c.Packets
	}
	if sum == 0 {
		return ""
	}
	line := "    by CPU:"
	for _, c := range i.CPUs {
		line += fmt.Sprintf("  %d %.0f %%", c.CPU, 100*float64(c.Packets)/float64(sum))
	}
	return line
}

// byPackets returns the reasons with the busiest first.
func byPackets(reasons []stats.Reason) []stats.Reason {
	return slices.SortedStableFunc(slices.Values(reasons), func(a, b stats.Reason) int {
		switch {
		case a.Packets > b.Packets:
			return -1
		case a.Packets < b.Packets:
			return 1
		default:
			return 0
		}
	})
}

func (r Router) linkText() []string {
	t := text.Table{Indent: "  "}
	for _, l := range r.Links {
		ends := l.Local
		if l.Remote != "" {
			ends += " > " + l.Remote
		}
		state := "down"
		switch {
		case r.detached(): // the map has the state from when it was attached
			state = ""
		case l.Up:
			state = "up"
		}
		cells := []string{"link " + l.Name, l.Scope, ends, state, l.via(),
			"fast in " + text.Grouped(l.In.Packets), "out " + text.Grouped(l.Out.Packets)}
		if l.Dropped > 0 {
			cells = append(cells, "dropped "+text.Grouped(l.Dropped))
		}
		if l.BFDRefused > 0 {
			cells = append(cells, "BFD refused "+text.Grouped(uint64(l.BFDRefused)))
		}
		t.Add(cells...)
	}
	return t.Lines()
}

// via returns the next hop of a link as text, "" for the internal link, which has many.
func (l Link) via() string {
	switch hop := l.NextHop; {
	case hop == nil && l.Scope == "internal":
		return ""
	case hop == nil:
		return "no next hop"
	case hop.Interface != "":
		return fmt.Sprintf("via %s dev %s", hop.MAC, hop.Interface)
	default:
		return fmt.Sprintf("via %s ifindex %d", hop.MAC, hop.IfIndex)
	}
}
