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

	"github.com/vishvananda/netlink"

	"culvert/internal/host/netfilter"
	"culvert/internal/host/udpsock"
)

// Status is the weight of a finding.
type Status int

const (
	// OK is a fact that helps or does no harm.
	OK Status = iota
	// Warn is something that costs speed, or packets in some set-ups.
	Warn
	// Fail is something that keeps culvert from attaching, or loses packets for certain.
	Fail
)

// String gives the spelling of the table and of JSON.
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

// MarshalText makes a status a word in JSON.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads that word: what 'culvert status -j' prints has findings in it, and is read back.
func (s *Status) UnmarshalText(text []byte) error {
	for _, known := range []Status{OK, Warn, Fail} {
		if string(text) == known.String() {
			*s = known
			return nil
		}
	}
	return fmt.Errorf("status %q: it is ok, warn or FAIL", text)
}

// Finding is the result of one check.
type Finding struct {
	Status Status `json:"status"`
	// Check is the short name of the check, the same on every host.
	Check string `json:"check"`
	// Interface is empty for what concerns the whole host.
	Interface string `json:"interface,omitempty"`
	Finding   string `json:"finding"`
	// Command mends it; empty when there is nothing to mend or no command can.
	Command string `json:"command,omitempty"`
}

// Options choose what is looked at.
type Options struct {
	// Interfaces are looked at whatever their state. When Interfaces and Local are empty, all that
	// are up, carry no controller (bridge, bond) above them and are no loopback are looked at, and those of Attached,
	// which carry a running data plane.
	Interfaces, Attached []string
	// Local are underlay addresses of this host; the interfaces that carry them are looked at.
	Local []netip.Addr
	// Remote are addresses that packets will be sent to: routes and neighbours are looked at.
	Remote []netip.Addr
	// Sockets are the addresses and ports that the router's UDP sockets are bound to; Server is the
	// process that runs the router, 0 for none. No other process may have sockets there.
	Sockets []netip.AddrPort
	Server  int
	// BothWays names the interfaces that lead to other ASes and inside, with commas between them.
	BothWays string
	// Strays are interfaces by which datagrams come to running routers that belong to others.
	Strays []Stray
	// Route is set when the IP router is configured: forwarding and netfilter's rules are looked at. Bypass says that
	// these are not to matter, NoSCION that there is no SCION router.
	Route, Bypass, NoSCION bool
	// RouteRuns is set when an IP router runs already, on RouteDevices, with a process or without.
	// RouteKernel is set when it leaves all packets to the kernel.
	RouteRuns, RouteKernel bool
	RouteDevices           []string
	// Protected are services on this host whose SYNs are answered with cookies. Forwarded is set when those to services
	// behind it are.
	Protected []netip.AddrPort
	Forwarded bool
	// Balance is the load balancer, nil for none.
	Balance *Balance
	// Forwards is set when packets that come in by the interfaces are to be redirected to others: by a SCION router, the IP
	// router or the load balancer. Forwarding are the interfaces on which one of these runs.
	Forwards   bool
	Forwarding []string
	// StagesOut are those of running data planes that nobody keeps in step any more.
	StagesOut []StageOut
	// Unserved are data planes whose process has ended.
	Unserved []Unserved
	// Missing are interfaces that running data planes were told to be on and are not.
	Missing []Missing
	// Unread says why what runs could not be read, nil if it could.
	Unread error
	// OpenDecaps are the interfaces where anybody's tunnels end.
	OpenDecaps []string
	// LostDecaps are those where tunnels ended until they were deleted.
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
	return fmt.Errorf("%d of %d checks failed: mend them with the commands shown", r.Fail, len(r.Findings))
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
	if privileges.Status != Fail && pins.Status != Fail { // else that is why
		r.add(checkUnread(o.Unread)...)
	}
	clock, err := readClock()
	if err != nil {
		return nil, err
	}
	if !o.NoSCION {
		r.add(checkClock(clock))
	}
	r.add(checkForwarding(sysctl("net/ipv4/ip_forward"), sysctl("net/ipv6/conf/all/forwarding"), o.Route))
	if o.Route {
		devices := o.Interfaces
		if len(devices) == 0 {
			devices = o.RouteDevices
		}
		found, err := netfilter.FindOn(devices)
		r.add(checkNetfilter(found, err, o.Bypass, o.RouteRuns, o.RouteKernel)...)
		programs, _ := netfilter.Programs() // what is not permitted was said before
		r.add(checkNetfilterPrograms(programs)...)
	}
	r.add(checkSyn(readSyn(o), o.Protected, o.Forwarded)...)
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
	r.add(checkUnserved(o.Unserved)...)
	r.add(checkStagesOut(o.StagesOut)...)
	for _, link := range chosen.links {
		facts, err := readInterface(link)
		if err != nil {
			return nil, err
		}
		facts.forwards = o.Forwards || slices.Contains(o.Forwarding, facts.name)
		r.add(checkInterface(facts)...)
	}
	r.add(checkBothWays(o.BothWays)...)
	r.add(checkStrays(o.Strays)...)
	if o.Balance != nil {
		facts := readBalance(o.Balance)
		r.add(checkBalance(facts, o.Balance)...)
		if err := r.addExits(facts.devices(o.Balance), chosen.links); err != nil {
			return nil, err
		}
	}
	r.add(checkDecaps(o.OpenDecaps)...)
	r.add(checkLostDecaps(o.LostDecaps)...)
	for _, addr := range o.Remote {
		r.add(checkNeighbour(readNeighbour(addr)))
	}
	return r, nil
}

// addExits looks at devices that frames are redirected to, but for those that were looked at already.
func (r *Report) addExits(devices []string, seen []netlink.Link) error {
	for _, name := range devices {
		if slices.ContainsFunc(seen, func(l netlink.Link) bool { return l.Attrs().Name == name }) {
			continue
		}
		link, err := netlink.LinkByName(name)
		if err != nil {
			continue // it has gone meanwhile
		}
		facts, err := readInterface(link)
		if err != nil {
			return err
		}
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
		checkUp, checkNative, checkProgram, checkMTU, checkQueues, checkMerging, checkVLAN,
		checkPeerNAPI, checkChecksum, checkPeerChecksum, checkSourceFilter,
	} {
		if f := check(n); f != nil {
			f.Interface = n.name
			found = append(found, *f)
		}
	}
	return found
}
