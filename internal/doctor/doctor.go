// SPDX-License-Identifier: Apache-2.0

// Package doctor looks for what stands in the way of the fast path on this host and says which
// command mends it. It reads only; it changes nothing.
//
// Collecting facts (netlink, sysctl, probes) and judging them are kept apart: every check is a
// function from facts to findings.
package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"culvert/internal/host/cpus"
	"culvert/internal/host/netfilter"
	"culvert/internal/host/udpsock"
)

// Status is the severity of a finding.
type Status int

const (
	// OK is for a fact that does no harm.
	OK Status = iota
	// Warn is for what costs speed, or packets in some set-ups.
	Warn
	// Fail is for what keeps culvert from attaching, or certainly loses packets.
	Fail
)

// String returns the word for the status in the table and in JSON: ok, warn or FAIL.
func (s Status) String() string {
	switch s {
	case OK:
		return "ok"
	case Warn:
		return "warn"
	default:
		return "FAIL"
	}
}

// MarshalText returns the word that String returns.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the word that String returns. Programs that read 'culvert status -j' need it, since that output has
// findings in it.
func (s *Status) UnmarshalText(text []byte) error {
	for _, known := range []Status{OK, Warn, Fail} {
		if string(text) == known.String() {
			*s = known
			return nil
		}
	}
	return fmt.Errorf("status %q: use ok, warn or FAIL", text)
}

// Finding is the result of one check.
type Finding struct {
	Status Status `json:"status"`
	// Check is the short name of the check, the same on every host.
	Check string `json:"check"`
	// Interface is "" for a finding about the whole host.
	Interface string `json:"interface,omitempty"`
	// Finding is the result in a sentence.
	Finding string `json:"finding"`
	// Command mends what was found. It is "" if nothing is to be mended, or if no command can.
	Command string `json:"command,omitempty"`
}

// Options select what is examined.
type Options struct {
	// Interfaces are examined in any state. If Interfaces and Local are both empty, the interfaces of Attached are examined,
	// and those that are up, are not the loopback and have no controller (bridge, bond).
	Interfaces []string
	// Attached are the interfaces that carry a running data plane.
	Attached []string
	// Renamed has the present names of interfaces that carry a running data plane, by the names under which they were attached.
	Renamed map[string]string
	// Local are underlay addresses of this host. The interfaces that have them are examined.
	Local []netip.Addr
	// Remote are addresses that packets will be sent to. Their routes and neighbors are examined.
	Remote []netip.Addr
	// File is culvert's configuration, nil if none was looked at.
	File *File
	// Sockets are the addresses and ports to which the UDP sockets of the SCION router are bound.
	Sockets []netip.AddrPort
	// Server is the process that runs the SCION router, 0 for none. No other process may have sockets at Sockets.
	Server int
	// Mixed names the interfaces that lead both to other ASes and to the inside, separated by commas.
	Mixed string
	// Short are the router's links whose way takes shorter packets than the topology says.
	Short []ShortLink
	// Strays are interfaces by which running SCION routers receive datagrams of links that belong to other interfaces.
	Strays []Stray
	// Route tells whether the IP router is configured or runs. Forwarding and netfilter's rules are examined then.
	Route bool
	// Bypass tells whether forwarded packets may go past netfilter's rules, as configured.
	Bypass bool
	// NoSCION tells that there is no SCION router.
	NoSCION bool
	// RouteRuns tells whether an IP router runs already on RouteDevices, with or without a process.
	RouteRuns    bool
	RouteDevices []string
	// RouteKernel tells whether that IP router leaves all packets to the kernel, and RouteEnded whether its process has ended.
	RouteKernel, RouteEnded bool
	// Protected are the services on this host whose SYNs are answered with cookies.
	Protected []netip.AddrPort
	// Forwarded tells whether SYNs to services behind this host are answered with cookies.
	Forwarded bool
	// LB is what the load balancers need, nil if there are none. NoLB tells that the configuration has none: then it is of
	// those that run.
	LB   *LB
	NoLB bool
	// Forwards tells whether packets that come in by the interfaces are to be redirected, by a SCION router, the IP router
	// or the load balancer.
	Forwards bool
	// Forwarding are the interfaces on which one of these three runs.
	Forwarding []string
	// Stages are those that are configured or run.
	Stages Stages
	// Waits tells whether a start with the configuration waits for interfaces that do not exist.
	Waits bool
	// FailedStages are the stages of running data planes that have failed in their process.
	FailedStages []FailedStage
	// Outages are what does not work for reasons outside the processes of running data planes.
	Outages []Outage
	// Configs are the configurations of running processes that differ from their files or wait to be kept.
	Configs []Config
	// Clusters are how the nodes of running processes stand with their clusters.
	Clusters []Cluster
	// Unserved are the running data planes whose process has ended.
	Unserved []Unserved
	// Keys are the keys of running SCION routers that follow a schedule.
	Keys []Keys
	// IdleWorkers names what has workers and no stage whose packets are spread: a file, or data planes.
	IdleWorkers []string
	// Loads are what the running data planes of this network namespace have done while doctor was looking.
	Loads []Load
	// SlowPaths are the processes that run a SCION router without its data plane.
	SlowPaths []SlowPath
	// Missing are the interfaces to which running data planes should be attached and are not.
	Missing []Missing
	// Unread is the error of reading the running data planes, nil if they could be read.
	Unread error
	// OpenDecaps are the interfaces that take tunnels from every source.
	OpenDecaps []string
	// LeftCaptures are the captures on running data planes whose process has ended.
	LeftCaptures []LeftCapture
	// LostDecaps are the interfaces that had the decapsulation program until they were deleted.
	LostDecaps []LostDecap
}

// Report holds all findings in the order of the checks.
type Report struct {
	Findings []Finding `json:"findings"`
	OK       int       `json:"ok"`
	Warn     int       `json:"warn"`
	Fail     int       `json:"fail"`
}

func (r *Report) add(findings ...Finding) {
	for _, f := range findings {
		switch f.Status {
		case OK:
			r.OK++
		case Warn:
			r.Warn++
		default:
			r.Fail++
		}
		r.Findings = append(r.Findings, f)
	}
}

// Err is nil when no check failed.
func (r *Report) Err() error {
	if r.Fail == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d checks failed: mend them as shown", r.Fail, len(r.Findings))
}

// Run makes all checks in the network namespace of the calling thread. An error means that the
// host could not be examined at all; what was found wrong is in the report.
func Run(o Options) (*Report, error) {
	r := &Report{}
	caps, err := capabilities()
	if err != nil {
		return nil, err
	}
	r.add(checkKernel(kernelRelease(), probeFeatures()))
	privileges := checkPrivileges(caps)
	r.add(privileges)
	r.add(checkJIT(probeJIT()), checkBPFStats(sysctl("kernel/bpf_stats_enabled")))
	pins := checkPinFS(readPinFS(caps))
	r.add(pins)
	if privileges.Status != Fail && pins.Status != Fail { // those findings explain the error otherwise
		r.add(checkUnread(o.Unread)...)
	}
	clock, err := readClock()
	if err != nil {
		return nil, err
	}
	if !o.NoSCION {
		r.add(checkClock(clock))
	}
	r.add(checkFile(o.File)...)
	r.add(checkForwarding(sysctl("net/ipv4/ip_forward"), sysctl("net/ipv6/conf/all/forwarding"), o.Route, o.Stages.SCION))
	refused := false
	if o.Route {
		devices := o.Interfaces
		if len(devices) == 0 {
			devices = o.RouteDevices
		}
		found, err := netfilter.FindOn(devices)
		r.add(checkNetfilter(found, err, ipRouter{bypass: o.Bypass, runs: o.RouteRuns, kernel: o.RouteKernel, ended: o.RouteEnded})...)
		refused = len(found) > 0 && !o.Bypass
		programs, _ := netfilter.Programs() // a missing privilege has a finding already
		r.add(checkNetfilterPrograms(programs)...)
	}
	r.add(checkSyn(readSyn(o), o.Protected, o.Forwarded, o.Route)...)
	if len(o.Sockets) > 0 {
		holders, err := udpsock.Others(o.Sockets)
		if err != nil {
			return nil, err
		}
		r.add(checkSockets(holders, o.Server)...)
	}

	chosen, err := chooseInterfaces(o)
	r.add(chosen.findings...)
	if err != nil {
		return nil, err
	}
	r.add(checkMissing(o.Missing)...)
	r.add(checkIdleWorkers(o.IdleWorkers)...)
	r.add(checkSlowPaths(o.SlowPaths)...)
	r.add(checkUnserved(o.Unserved, refused)...)
	r.add(checkKeys(o.Keys, time.Now())...)
	r.add(checkFailedStages(o.FailedStages)...)
	r.add(checkOutages(o.Outages)...)
	r.add(checkConfigs(o.Configs)...)
	r.add(checkClusters(o.Clusters, time.Now())...)
	r.add(checkCaptures(o.LeftCaptures)...)
	for _, link := range chosen.links {
		found, err := interfaceFindings(link, o, o.Forwards || slices.Contains(o.Forwarding, link.Attrs().Name))
		if err != nil {
			return nil, err
		}
		r.add(found...)
	}
	online, err := cpus.Online()
	if err != nil {
		return nil, err
	}
	r.add(checkLoads(o.Loads, online)...)
	r.add(checkMixed(o.Mixed)...)
	r.add(checkShort(o.Short)...)
	r.add(checkStrays(o.Strays)...)
	if o.LB != nil {
		facts := readLB(o.LB)
		found := checkLB(facts, o.LB)
		if o.NoLB {
			nameRunning(found)
		}
		r.add(found...)
		if err := r.addEgress(facts.devices(o.LB), chosen.links, o.stages()); err != nil {
			return nil, err
		}
	}
	r.add(checkDecaps(o.OpenDecaps)...)
	r.add(checkLostDecaps(o.LostDecaps)...)
	for _, addr := range o.Remote {
		r.add(checkNeighbor(readNeighbor(addr)))
	}
	return r, nil
}

// addEgress adds findings about devices that frames are redirected to, except those that were examined already.
func (r *Report) addEgress(devices []string, seen []netlink.Link, s Stages) error {
	for _, name := range devices {
		if slices.ContainsFunc(seen, func(l netlink.Link) bool { return l.Attrs().Name == name }) {
			continue
		}
		link, err := netlink.LinkByName(name)
		if err != nil {
			continue // it was removed meanwhile
		}
		facts, err := readInterface(link)
		if err != nil {
			return err
		}
		facts.stages = s
		if f := checkPeerNAPI(facts); f != nil {
			f.Interface = name
			r.add(*f)
		}
	}
	return nil
}

// checkInterface makes all checks of one interface.
func checkInterface(n netif) []Finding {
	var found []Finding
	for _, check := range []func(netif) *Finding{
		checkUp, checkNative, checkProgram, checkMTU, checkQueues, checkMerging, checkBridge, checkVLAN,
		checkPeerNAPI, checkChecksum, checkPeerChecksum, checkUnfinished, checkSourceFilter,
	} {
		if f := check(n); f != nil {
			f.Interface = n.name
			found = append(found, *f)
		}
	}
	return found
}
