// SPDX-License-Identifier: Apache-2.0

// Package lab builds small networks out of network namespaces and veth pairs,
// for the demo, the tests and the benchmarks.
//
// A lab has a name. Its namespaces are called cv-NAME-..., its files are in
// /run/culvert/lab/NAME, and its state is in /run/culvert/lab/NAME.json. So
// several labs can be up at once, and one process can take down what another
// has set up. A lab touches nothing outside its namespaces.
package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"culvert/internal/host/unixsock"
)

// Options say how a lab is set up. The zero value has the defaults of each
// topology.
type Options struct {
	// Name is the name of the lab, by default that of the topology.
	Name string
	// Out receives a line for each step. It may be nil.
	Out io.Writer
	// MTU is the MTU of every veth in bytes, by default 1500.
	MTU int
	// Queues is the number of queues of every veth in each direction, by default
	// the kernel's choice.
	Queues int
	// IPv6 puts the SCION underlay on IPv6 addresses.
	IPv6 bool

	// StaticNeighbors adds permanent neighbor entries (topologies veth and filter).
	StaticNeighbors bool
	// Forward turns IP forwarding on in the router under test (topology veth).
	Forward bool

	// Routers is the kind of router by namespace. In scion3 the default is Culvert
	// for as2 and Reference for the others. In bgp it is Culvert or Linux for rut,
	// by default Culvert.
	Routers map[string]Router
	// SegmentSwitch makes AS 2 the core AS of the other two, so that a path
	// from AS 1 to AS 3 is an up segment and a down segment joined at AS 2.
	// Without it all three are core ASes, joined by a core segment
	// (topology scion3).
	SegmentSwitch bool
	// BFD is the interval of the routers' BFD sessions, by default 200 ms. A
	// session is down after five missed packets (topology scion3).
	BFD time.Duration
	// Routes is the number of prefixes that are announced (topology bgp).
	Routes Routes
	// Plain adds the routes to the kernel without BGP (topology bgp).
	Plain bool
	// Balancers is the number of load balancers, 2 unless it is set (topology lb).
	Balancers int
	// Timeout is how long to wait for paths (topology scion3), or for each step
	// (other topologies), by default 5 min.
	Timeout time.Duration
	// Peers has the directories of the reference programs and of the table of
	// prefixes, by default those of DefaultPeers (topologies scion3 and bgp).
	Peers Peers
	// Culvert is the path of the culvert binary, by default the running
	// executable.
	Culvert string
}

// topology is one kind of lab.
type topology struct {
	about      string
	namespaces []string
	// spaces returns the namespaces where options decide about them. It may be nil.
	spaces func(Options) []string
	check  func(Options) error
	build  func(context.Context, *Lab, Options) error
}

var topologies = map[string]topology{
	"veth":   vethTopology,
	"scion3": scion3Topology,
	"bgp":    bgpTopology,
	"filter": filterTopology,
	"lb":     lbTopology,
	"all":    allTopology,
	"fleet":  fleetTopology,
}

// Topologies returns the names of the topologies, each with a description in one
// line.
func Topologies() map[string]string {
	about := make(map[string]string, len(topologies))
	for name, t := range topologies {
		about[name] = t.about
	}
	return about
}

// ErrOptions marks an error in the name of a topology or in the options of a lab.
// Nothing has been made then.
var ErrOptions = errors.New("lab")

// Lab is a network that is up. Its exported fields are the content of the state
// file.
type Lab struct {
	Name       string      `json:"name"`
	Topology   string      `json:"topology"`
	Created    time.Time   `json:"created"`
	Ready      bool        `json:"ready"`   // false until Up is done
	Dir        string      `json:"dir"`     // configuration, logs and databases
	Culvert    string      `json:"culvert"` // path of the culvert binary
	Peers      string      `json:"peers"`   // directory of the reference programs
	Namespaces []Namespace `json:"namespaces"`
	ASes       []AS        `json:"ases,omitempty"`
	BGP        *BGP        `json:"bgp,omitempty"`
	LB         *LB         `json:"lb,omitempty"`
	All        *All        `json:"all,omitempty"`
	Fleet      *Fleet      `json:"fleet,omitempty"`
	Processes  []Process   `json:"processes,omitempty"`

	mu sync.Mutex
}

// Namespace is one network namespace of a lab.
type Namespace struct {
	Name       string      `json:"name"`  // within the lab: as1, rut, ...
	NetNS      string      `json:"netns"` // as ip-netns(8) knows it
	Interfaces []Interface `json:"interfaces,omitempty"`
}

// interrupted is the error of a lab whose Up was ended by its context. Its text leaves out that cause.
type interrupted struct {
	name  string
	cause error
}

func (e *interrupted) Error() string { return "lab " + e.name + ": interrupted and removed" }
func (e *interrupted) Unwrap() error { return e.cause }

// Up sets up a lab. If it fails, or if ctx ends before the lab is complete, it
// removes everything that it has made, but after a failure the logs of processes
// stay, and the error says where.
func Up(ctx context.Context, kind string, o Options) (lab *Lab, err error) {
	t, o, err := prepare(kind, o)
	if err != nil {
		return nil, err
	}
	if err := needRoot(); err != nil {
		return nil, err
	}
	l := &Lab{
		Name: o.Name, Topology: kind, Created: time.Now().UTC().Truncate(time.Second),
		Dir: labDir(o.Name), Culvert: o.Culvert, Peers: o.Peers.Bin,
	}
	for _, ns := range t.namespaces {
		l.Namespaces = append(l.Namespaces, Namespace{Name: ns, NetNS: netnsName(o.Name, ns)})
	}
	if err := l.claim(); err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			err = &interrupted{l.Name, ctx.Err()}
			lab, err = nil, join(err, l.remove(false))
			return
		}
		lab, err = nil, join(err, l.remove(true))
		if hasFailedLogs(l.Name) {
			err = fmt.Errorf("%w; its logs are in %s until 'culvert lab down %s'", err, failedLogsDir(l.Name), l.Name)
		}
	}()
	for _, ns := range l.Namespaces {
		if err := createNamespace(ns.NetNS); err != nil {
			return nil, fmt.Errorf("lab %s: %w", l.Name, err)
		}
	}
	progress(o.Out, "namespaces %s", strings.Join(t.namespaces, ", "))
	if err := t.build(ctx, l, o); err != nil {
		return nil, fmt.Errorf("lab %s: %w", l.Name, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	l.Ready = true
	return l, l.save()
}

// prepare fills in the defaults and returns an error for options that contradict
// each other.
func prepare(kind string, o Options) (topology, Options, error) {
	t, ok := topologies[kind]
	if !ok {
		known := slices.Sorted(maps.Keys(topologies))
		return t, o, fmt.Errorf("%w: no topology %q: choose one of %s",
			ErrOptions, kind, strings.Join(known, ", "))
	}
	if o.Name == "" {
		o.Name = kind
	}
	if err := checkName(o.Name); err != nil {
		return t, o, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if o.MTU == 0 {
		o.MTU = 1500
	}
	if o.MTU < 1280 || o.MTU > 65535 {
		return t, o, fmt.Errorf("%w: MTU %d: a veth here takes 1280 to 65535", ErrOptions, o.MTU)
	}
	if o.Culvert == "" {
		exe, err := os.Executable()
		if err != nil {
			return t, o, fmt.Errorf("find the running executable: %w", err)
		}
		o.Culvert = exe
	}
	if o.Queues < 0 || o.Queues > 64 {
		return t, o, fmt.Errorf("%w: %d queues: choose 1 to 64", ErrOptions, o.Queues)
	}
	if err := t.check(o); err != nil {
		return t, o, fmt.Errorf("%w %s: %w", ErrOptions, kind, err)
	}
	if t.spaces != nil {
		t.namespaces = t.spaces(o)
	}
	if o.Peers == (Peers{}) {
		peers, err := DefaultPeers()
		if err != nil {
			return t, o, err
		}
		o.Peers = peers
	}
	return t, o, nil
}

// Down removes a lab: its processes, namespaces and files, and culvert's pins and
// files of those namespaces. It also removes what a killed or a failed Up has left.
func Down(name string) error {
	l, err := Open(name)
	if errors.Is(err, errNoLab) && hasFailedLogs(name) {
		return removeFailedLogs(name)
	}
	if err != nil {
		return err
	}
	return errors.Join(l.Down(), removeFailedLogs(name))
}

// Down removes the lab, as the function Down does.
func (l *Lab) Down() error {
	if err := needRoot(); err != nil {
		return err
	}
	return l.remove(false)
}

func needRoot() error {
	if os.Geteuid() != 0 {
		return errors.New("a lab's network namespaces need root: run it with sudo")
	}
	return nil
}

// remove removes everything that the lab may have made, in the reverse order. It
// goes on after an error. The logs may be kept.
func (l *Lab) remove(keepLogs bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	inodes := l.inodes()
	errs = append(errs, endAll(l.Processes, syscall.SIGTERM, stopGrace))
	// Processes that somebody else has started in the namespaces would keep those
	// alive.
	for range 3 {
		errs = append(errs, endAll(processesIn(inodes), syscall.SIGTERM, stopGrace))
	}
	for inode := range inodes {
		errs = append(errs, removePins(inode), removeRunFiles(inode))
	}
	errs = append(errs, unixsock.Sweep())
	for _, ns := range l.Namespaces {
		errs = append(errs, deleteNamespace(ns.NetNS))
	}
	if keepLogs {
		errs = append(errs, l.keepLogs())
	}
	errs = append(errs, os.RemoveAll(l.Dir))
	if err := join(errs...); err != nil {
		return fmt.Errorf("lab %s is not removed completely, run 'culvert lab down %s' again: %w", l.Name, l.Name, err)
	}
	return l.release()
}

// Namespace returns a namespace of the lab by its name.
func (l *Lab) Namespace(name string) (Namespace, error) {
	var names []string
	for _, ns := range l.Namespaces {
		if ns.Name == name {
			return ns, nil
		}
		names = append(names, ns.Name)
	}
	return Namespace{}, fmt.Errorf("lab %s has no namespace %q: it has %s",
		l.Name, name, strings.Join(names, ", "))
}

// Interface returns an interface of the namespace by its name.
func (n Namespace) Interface(name string) (Interface, error) {
	for _, i := range n.Interfaces {
		if i.Name == name {
			return i, nil
		}
	}
	return Interface{}, fmt.Errorf("namespace %s has no interface %q", n.Name, name)
}

func progress(out io.Writer, format string, args ...any) {
	if out != nil {
		fmt.Fprintf(out, format+"\n", args...)
	}
}
