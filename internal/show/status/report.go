// SPDX-License-Identifier: Apache-2.0

// Package status shows the running data planes and their counters, once or live.
package status

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/doctor"
	"culvert/internal/host/netdev"
	"culvert/internal/host/netnsname"
	"culvert/internal/host/pins"
	"culvert/internal/route/routeplane"
	"culvert/internal/scion/scionplane"
	"culvert/internal/stats"
)

// Report is what `culvert status -j` prints. Fields are added in later versions, never renamed.
type Report struct {
	Routers []Router `json:"routers"`
	// Host is the name of this machine.
	Host string `json:"host,omitempty"`
	// Decap are the interfaces of the caller's network namespace at which tunnels of load balancers end.
	Decap []Decap `json:"decap,omitempty"`
	// SlowPaths are the processes that run a SCION router without a data plane.
	SlowPaths []SlowPath `json:"slow_path_only,omitempty"`
	// planes are all data planes of this machine, also those that are not among Routers.
	planes []plane
}

// Router describes one data plane.
type Router struct {
	// ID is the router's ID in the topology, or the name of a data plane without a SCION router. It is unique in a
	// network namespace.
	ID string `json:"router"`
	// NetNS is the inode of the network namespace, NetNSName its name below /run/netns.
	NetNS     uint32 `json:"netns"`
	NetNSName string `json:"netns_name,omitempty"`
	// Here tells whether that is the caller's network namespace.
	Here bool `json:"here"`
	// Mode is how the programs are attached: native or generic.
	Mode string `json:"mode"`
	// Served tells whether a process serves the data plane: it keeps the data plane in step and runs the slow paths.
	Served bool `json:"served"`
	// PID is that process, 0 if it is not visible from here.
	PID int `json:"pid,omitempty"`
	// Workers are the CPUs that packets are spread over, left out if there are none.
	Workers *Workers `json:"workers,omitempty"`
	// LoadedAt is when the running program was loaded.
	LoadedAt *time.Time `json:"loaded_at,omitempty"`
	// Pins is the directory of the pins in the host's mount namespace.
	Pins string `json:"pins"`
	// Problem is the error because of which the fields below are missing, "" if there was none.
	Problem    string      `json:"problem,omitempty"`
	Interfaces []Interface `json:"interfaces"`
	// Unattached are the interfaces to which the data plane should be attached and is not, left out if there are none.
	Unattached []pins.Unattached `json:"unattached,omitempty"`
	// Stages are the states of the stages in the process that serves, left out if there is no process or they are not known.
	Stages []datapath.StageState `json:"stages,omitempty"`
	// Config is the configuration of the process that serves, left out if there is no process or it is not known.
	Config *Config `json:"config,omitempty"`
	// Starting tells whether a start is going on that has not attached the data plane to anything yet.
	Starting bool                 `json:"starting,omitempty"`
	Links    []Link               `json:"links"`
	Keys     []scionplane.KeyInfo `json:"keys"`
	// KeySchedule is the schedule of the keys, left out if they follow none.
	KeySchedule *KeySchedule `json:"key_schedule,omitempty"`
	// Route is the IP router, left out if there is none.
	Route *Route `json:"route,omitempty"`
	// Filter is the packet filter, left out if it has nothing to do.
	Filter *Filter `json:"filter,omitempty"`
	// LB is the load balancer, left out if there is none.
	LB *LB `json:"lb,omitempty"`
	// Capture is the capture that runs, or was left over, left out if there is none.
	Capture *Capture `json:"capture,omitempty"`
	// SFlow is the export of samples, left out if the data plane takes none.
	SFlow *SFlow `json:"sflow,omitempty"`
	// ownKeyMissing tells whether the key of the process that serves is not among Keys.
	ownKeyMissing bool
	// noSCION tells that the data plane has no SCION router, and so no keys.
	noSCION bool
}

// Workers are the CPUs that packets are spread over.
type Workers struct {
	CPUs []int `json:"cpus"`
	// Queue is how many packets may wait for each CPU.
	Queue int `json:"queue"`
	// Enqueued is what each CPU that receives has given to workers, those packets included that a full queue has refused.
	Enqueued []Enqueued `json:"enqueued,omitempty"`
}

// Enqueued counts the packets that a CPU has given to workers.
type Enqueued struct {
	CPU     int    `json:"cpu"`
	Packets uint64 `json:"packets"`
}

// Interface holds the counters of a network interface that is or was attached.
type Interface struct {
	stats.Port
	// State is "up", "down" or "no carrier". It is left out unless the interface is attached and in this network namespace.
	State string `json:"state,omitempty"`
	// Renamed is the present name of the interface, left out if that is Interface.
	Renamed string `json:"renamed,omitempty"`
	// Bridge is the bridge of which the interface is a port. It is left out if there is none, or no IP router, which leaves such packets
	// to the kernel.
	Bridge string `json:"bridge,omitempty"`
	// Members are those of a bond, left out for other interfaces and outside of the interface's network namespace.
	Members []Member `json:"members,omitempty"`
	// Peer is what is wrong at the other end of a veth, or of those that a bond is made of. It is known in the caller's own network namespace only.
	Peer []doctor.Finding `json:"peer,omitempty"`
	// Queues are the receive queues of the device. They are known in the caller's own network namespace only.
	Queues *netdev.Queues `json:"queues,omitempty"`
	// Stays tells that all its packets stay on the CPU that receives them, though there are workers. StaysBecause says why, and the
	// command that mends it if there is one.
	Stays        bool   `json:"stays,omitempty"`
	StaysBecause string `json:"stays_because,omitempty"`
	// Packets and Bytes are all that was received: the sum over the reasons.
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Link describes a link of the SCION router.
type Link struct {
	Name string `json:"link"`
	// Scope is internal, sibling or external.
	Scope string `json:"scope"`
	Local string `json:"local"`
	// Remote is left out for the internal link, which has many far ends.
	Remote  string   `json:"remote,omitempty"`
	Up      bool     `json:"up"`
	NextHop *NextHop `json:"next_hop,omitempty"`
	// In and Out are what the fast path itself has received over the link and sent on it.
	In  Traffic `json:"in"`
	Out Traffic `json:"out"`
	// Dropped counts packets that came over the link and were dropped as invalid.
	Dropped uint64 `json:"dropped"`
	// BFDRefused counts the BFD packets since the start of the process that went to the slow path and do not belong to the
	// link's session.
	BFDRefused uint32 `json:"bfd_refused,omitempty"`
}

// NextHop is where the fast path sends a link's packets.
type NextHop struct {
	IfIndex int `json:"ifindex"`
	// Interface is the device's name. It is known in the caller's own network namespace only.
	Interface string `json:"interface,omitempty"`
	MAC       string `json:"mac"`
	// MTU is the MTU of the device, in bytes of the IP packet.
	MTU uint16 `json:"mtu"`
}

// Traffic counts SCION packets; bytes are those of the UDP payload.
type Traffic struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// Collect reads the data planes of all network namespaces on this machine, sorted by ID, or only those with the ID router.
// If several have that ID and one of them is in this network namespace, it reads that one only.
func Collect(router string) (Report, error) {
	all, err := datapath.List()
	defer func() {
		for _, inst := range all {
			inst.Close()
		}
	}()
	report := Report{Routers: []Router{}}
	if err != nil {
		return report, err
	}
	for _, inst := range all {
		report.planes = append(report.planes, plane{inst.Name(), inst.NetNS()})
	}
	selected := selectRouters(all, router, (*datapath.Instance).Name, (*datapath.Instance).Here)
	names := netnsname.All()
	for _, inst := range selected {
		r, err := describe(inst)
		if err != nil {
			// A data plane of another version must not hide the others.
			r.Problem = fmt.Sprintf("it cannot be read: %v: if another version of culvert has loaded it, "+
				"restart its process, or use that version", err)
		}
		r.NetNSName = names[inst.NetNS()]
		report.Routers = append(report.Routers, r)
	}
	slices.SortFunc(report.Routers, func(a, b Router) int {
		if c := strings.Compare(a.ID, b.ID); c != 0 {
			return c
		}
		return int(int64(a.NetNS) - int64(b.NetNS))
	})
	return report, nil
}

// selectRouters returns the routers with an ID, or all of them for "". If one with that ID is in this network namespace, it
// returns that one only.
func selectRouters[R any](all []R, router string, id func(R) string, here func(R) bool) []R {
	anyHere := slices.ContainsFunc(all, func(r R) bool { return id(r) == router && here(r) })
	var kept []R
	for _, r := range all {
		if router == "" || id(r) == router && (here(r) || !anyHere) {
			kept = append(kept, r)
		}
	}
	return kept
}

func describe(inst *datapath.Instance) (Router, error) {
	router := scionplane.Of(inst)
	r := Router{
		ID:         inst.Name(),
		NetNS:      inst.NetNS(),
		Here:       inst.Here(),
		Mode:       "native",
		Served:     inst.Served(),
		Pins:       inst.Pins(),
		Interfaces: []Interface{},
		Links:      []Link{},
		Keys:       []scionplane.KeyInfo{},
		noSCION:    len(router.Config().Links) == 0,
	}
	if inst.Generic() {
		r.Mode = "generic"
	}
	if w := inst.Workers(); len(w.CPUs) > 0 {
		r.Workers = &Workers{CPUs: w.CPUs, Queue: w.Queue}
		by, err := inst.Enqueued()
		if err != nil {
			return r, err
		}
		for cpu, n := range by {
			if n > 0 {
				r.Workers.Enqueued = append(r.Workers.Enqueued, Enqueued{cpu, n})
			}
		}
	}
	if r.Served {
		r.PID = inst.ServerPID()
	}
	if t, ok := inst.LoadedAt(); ok {
		t = t.Truncate(time.Second)
		r.LoadedAt = &t
	}
	r.Unattached, r.Starting = inst.Unattached(), inst.Starting()
	if stages, known, err := inst.Stages(); err == nil && known {
		r.Stages = stages
	}
	r.describeConfig(inst)
	devices, spread := inst.Devices(), inst.Spread()
	ports, err := inst.Ports()
	if err != nil {
		return r, err
	}
	for _, p := range ports {
		i := Interface{Port: p}
		i.Packets, i.Bytes = p.Total()
		i.describeDevice(devices, slices.Contains(inst.PartNames(), routeplane.Stage))
		if got, known := spread[p.Interface]; known && !got {
			i.Stays, i.StaysBecause = true, staysBecause(cmp.Or(i.Renamed, i.Interface), inst.Generic(), inst.Unattended())
		}
		if r.Here && i.State != "" {
			i.Queues = netdev.ReadQueues(cmp.Or(i.Renamed, i.Interface))
		}
		r.Interfaces = append(r.Interfaces, i)
	}
	describeBonds(r.Interfaces, inst)
	if err := r.describeRoute(inst); err != nil {
		return r, err
	}
	if err := r.describeFilter(inst); err != nil {
		return r, err
	}
	if err := r.describeLB(inst); err != nil {
		return r, err
	}
	if err := r.describeCapture(inst); err != nil {
		return r, err
	}
	if err := r.describeSFlow(inst); err != nil {
		return r, err
	}
	keys, err := router.Keys()
	if err != nil {
		return r, err
	}
	r.Keys = append(r.Keys, keys...)
	if r.KeySchedule, err = Schedule(router, time.Now()); err != nil {
		return r, err
	}
	if own, known := router.SlowPathKey(); known && r.Served {
		r.ownKeyMissing = !slices.ContainsFunc(keys, func(k scionplane.KeyInfo) bool { return k.ID == own })
	}
	return r, r.describeLinks(router)
}

// staysBecause says why workers get no packets of an interface.
func staysBecause(name string, generic, unattended bool) string {
	why, mend := datapath.WhyStays(name, generic, unattended)
	if mend != "" {
		why += ": " + mend
	}
	return why
}

func (i *Interface) describeDevice(all map[string]datapath.Device, routed bool) {
	d, ok := all[i.Interface]
	if !ok || !i.Attached {
		return
	}
	if d.Name != i.Interface {
		i.Renamed = d.Name
	}
	if routed {
		i.Bridge = d.Bridge
	}
	switch {
	case !d.Up:
		i.State = "down"
	case !d.Carrier:
		i.State = "no carrier"
	default:
		i.State = "up"
	}
}

// findPeers checks the other ends of veths on which culvert forwards packets.
func (r Report) findPeers() {
	for _, router := range r.Routers {
		if !router.Here || router.noSCION && router.Route == nil && router.LB == nil {
			continue
		}
		stages := doctor.Stages{SCION: !router.noSCION, Route: router.Route != nil, LB: router.LB != nil, Generic: router.Mode == "generic"}
		if f := router.Filter; f != nil {
			stages.Filter, stages.SYN = true, f.Services > 0
		}
		for n := range router.Interfaces {
			if i := &router.Interfaces[n]; i.State == "up" {
				i.Peer = doctor.FailsAtPeer(cmp.Or(i.Renamed, i.Interface), stages)
				for _, m := range i.Members {
					i.Peer = append(i.Peer, doctor.FailsAtPeer(m.Name, stages)...)
				}
			}
		}
	}
}

func (r *Router) describeLinks(router scionplane.Plane) error {
	states, err := router.LinkStates()
	if err != nil {
		return err
	}
	counters, err := router.LinkCounters()
	if err != nil {
		return err
	}
	for n, l := range router.Config().Links {
		out := Link{
			Name:  l.Name,
			Scope: scopeName(l.Scope),
			Local: l.Local.String(),
			Up:    states[n].Up,
		}
		if l.Remote.IsValid() {
			out.Remote = l.Remote.String()
		}
		if hop := states[n].NextHop; hop.IfIndex != 0 {
			out.NextHop = &NextHop{IfIndex: hop.IfIndex, MAC: net.HardwareAddr(hop.DstMAC[:]).String(), MTU: hop.MTU}
			if r.Here {
				out.NextHop.Interface = deviceName(hop.IfIndex)
			}
		}
		out.BFDRefused = states[n].BFD.Refused
		out.addTraffic(&counters[n])
		r.Links = append(r.Links, out)
	}
	return nil
}

func (l *Link) addTraffic(c *stats.LinkCounters) {
	for class := range c.In {
		l.In.Packets += c.In[class].Packets
		l.In.Bytes += c.In[class].Bytes
		l.Dropped += c.Dropped[class]
		for typ := range c.Out {
			l.Out.Packets += c.Out[typ][class].Packets
			l.Out.Bytes += c.Out[typ][class].Bytes
		}
	}
}

func scopeName(s scionplane.LinkScope) string {
	switch s {
	case scionplane.ScopeInternal:
		return "internal"
	case scionplane.ScopeSibling:
		return "sibling"
	default:
		return "external"
	}
}

// deviceName returns the name of a device, "" if it does not exist any more.
func deviceName(index int) string {
	dev, err := net.InterfaceByIndex(index)
	if err != nil {
		return ""
	}
	return dev.Name
}
