// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/netip"
	"slices"

	"culvert/internal/capture/captureplane"
	"culvert/internal/config"
	"culvert/internal/config/inforce"
	"culvert/internal/datapath"
	"culvert/internal/decap"
	"culvert/internal/decap/decapplane"
	"culvert/internal/doctor"
	"culvert/internal/filter"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterstage"
	"culvert/internal/host/pins"
	"culvert/internal/lb"
	"culvert/internal/lb/bgpstate"
	"culvert/internal/lb/lbplane"
	"culvert/internal/lb/lbstage"
	"culvert/internal/lb/peerstate"
	"culvert/internal/route/routeplane"
	"culvert/internal/route/routestage"
	"culvert/internal/scion"
	"culvert/internal/scion/scionplane"
	"culvert/internal/stage"
	"culvert/internal/stages"
)

// DoctorOptions adds to o what the configuration at path asks of the host. path is culvert's own file or a SCION router's TOML
// file. It returns the errors that a start with the file would be refused with on every host, or because its stages contradict
// each other. What else Check finds is in o.
func DoctorOptions(path string, o *doctor.Options) error {
	isNode, err := stages.IsNode(path)
	if err != nil {
		return err
	}
	table := &scion.Table{Config: path}
	if isNode {
		c := Check(path)
		if len(c.Wrong) > 0 {
			return config.Errors(c.Wrong).Err()
		}
		o.File = c.doctorFile()
		n := c.file.Node
		if len(o.Interfaces) == 0 {
			o.Interfaces = n.Interfaces
			o.Waits = n.Missing == config.MissingWait
		}
		ipRouter := stage.Table[*routestage.Table](c.file, routestage.Stage{})
		router := stage.Table[*scion.Table](c.file, scion.Stage{})
		o.Route, o.NoSCION = ipRouter != nil, router == nil
		o.Bypass = ipRouter != nil && ipRouter.BypassNetfilter
		if idleWorkers(n) != nil {
			o.IdleWorkers = append(o.IdleWorkers, path)
		}
		o.Stages.Generic = n.Mode == config.ModeGeneric
		o.Stages.Route, o.Stages.SCION = o.Stages.Route || ipRouter != nil, o.Stages.SCION || router != nil
		if t := stage.Table[*filterstage.Table](c.file, filterstage.Stage{}); t != nil {
			o.Stages.Filter = true
			for _, s := range t.Services {
				addr, err := filter.ParseService(s.Address)
				if err != nil {
					return s.Locate("address", err)
				}
				addProtected(o, addr, s.Forwarded)
			}
		}
		balancer, ok := planned[*lbstage.Plan](c.plans)
		if ok && has(n, lbstage.Stage{}) {
			o.Stages.LB = true
			addLB(o, balancer.State())
		}
		o.NoLB = !has(n, lbstage.Stage{})
		o.Forwards = ipRouter != nil || !o.NoLB
		if router == nil {
			return nil
		}
		table = router
	}
	r, err := scion.LoadTable(table)
	if err != nil {
		return err
	}
	o.Forwards, o.Stages.SCION = true, true
	local, remote := r.Underlay()
	o.Local = append(o.Local, local...)
	o.Remote = append(o.Remote, remote...)
	o.Sockets = r.Sockets()
	o.Server = scion.ServerPID(r.ID())
	for _, l := range scion.ShortLinks(r, table.Fragment()) {
		o.Short = append(o.Short, doctor.ShortLink(l))
	}
	if !table.Loose() {
		if o.Mixed, err = scion.BothWays(r); err != nil {
			return err
		}
	}
	return nil
}

// doctorFile returns what Check has found about the host, for doctor.
func (c *Checked) doctorFile() *doctor.File {
	f := &doctor.File{Path: c.file.Path}
	for _, err := range c.Refused {
		f.Refused = append(f.Refused, err.Error())
	}
	for _, err := range c.Unchecked {
		f.Unchecked = append(f.Unchecked, err.Error())
	}
	return f
}

// DoctorRunning adds to o what the data planes of this network namespace ask of the host, or the error with which they cannot
// be read.
func DoctorRunning(o *doctor.Options) {
	served := false
	defer func() { addDecaps(o, served) }()
	found := make(map[string]bool)
	defer func() { addSlowPaths(o, found) }()
	all, err := datapath.ListHere()
	if err != nil {
		o.Unread = err
		return
	}
	for _, inst := range all {
		served, found[inst.Name()] = served || inst.Served(), true
		o.Attached = append(o.Attached, inst.AttachedNow()...)
		addRenamed(o, inst)
		if scionplane.Routes(inst) || routeplane.OptionsOf(inst) != nil || lbplane.OptionsOf(inst) != nil {
			o.Forwarding = append(o.Forwarding, inst.AttachedNow()...)
		}
		if scionplane.Routes(inst) {
			o.Strays = append(o.Strays, strays(inst.Name(), inst, waitSecond)...)
			addKeys(o, inst)
		}
		load := loadOf(inst, waitSecond)
		load.Spreads = scionplane.Routes(inst) || routeplane.OptionsOf(inst) != nil || lbplane.OptionsOf(inst) != nil
		o.Loads = append(o.Loads, load)
		o.Stages.SCION = o.Stages.SCION || scionplane.Routes(inst)
		o.Stages.Route = o.Stages.Route || routeplane.OptionsOf(inst) != nil
		o.Stages.LB = o.Stages.LB || lbplane.OptionsOf(inst) != nil
		o.Stages.Generic = o.Stages.Generic || o.File == nil && inst.Generic()
		o.Stages.Filter = true // any data plane takes filter rules
		if f, err := filterplane.Read(inst); err == nil {
			for _, s := range f.Services {
				addProtected(o, s.Addr, s.Forwarded)
			}
		}
		if routeplane.OptionsOf(inst) != nil {
			o.Route, o.RouteRuns = true, true
			if st, err := routeplane.ReadState(inst); err == nil {
				o.RouteKernel = st.Policy.Kernel4 && st.Policy.Kernel6
			}
			o.RouteEnded = o.RouteEnded || !inst.Served() && !inst.Unattended()
			o.RouteDevices = append(o.RouteDevices, inst.AttachedNow()...)
		}
		if len(inst.Workers().CPUs) > 0 && !scionplane.Routes(inst) && routeplane.OptionsOf(inst) == nil && lbplane.OptionsOf(inst) == nil {
			o.IdleWorkers = append(o.IdleWorkers, "data plane "+inst.Name())
		}
		if !inst.Served() && !inst.Unattended() {
			o.Unserved = append(o.Unserved, doctor.Unserved{
				Router: inst.Name(), SCION: scionplane.Routes(inst), Route: routeplane.OptionsOf(inst) != nil, LB: lbplane.OptionsOf(inst) != nil,
			})
		}
		addConfig(o, inst)
		addOutages(o, inst)
		if c, err := captureplane.View(inst); err == nil && c != nil && c.LeftOver {
			o.LeftCaptures = append(o.LeftCaptures, doctor.LeftCapture{Router: inst.Name(), Expression: c.Expression})
		}
		stages, _, err := inst.Stages()
		if err != nil {
			o.Unread = err
		}
		for _, s := range stages {
			addShort(o, inst.Name(), s)
			if s.State == datapath.StageOut {
				o.FailedStages = append(o.FailedStages, doctor.FailedStage{Router: inst.Name(), Stage: s.Stage, Why: s.Why})
			}
		}
		for _, u := range inst.Unattached() {
			if inst.Starting() {
				break // it has not attached yet
			}
			o.Missing = append(o.Missing, doctor.Missing{
				Interface: u.Interface, Router: inst.Name(), Exists: u.Why != pins.Gone,
				Detached: u.Why == pins.Detached, Served: inst.Served(), Renamed: u.Renamed, Moved: u.Moved,
			})
		}
		if plane, err := lbplane.View(inst); err == nil {
			if s, err := lb.Load(plane); err == nil {
				addLB(o, s)
				sessions, known, err := bgpstate.Of(inst)
				o.LB.Sessions = append(o.LB.Sessions, sessions...)
				if err != nil || !known {
					o.LB.Unreported = append(o.LB.Unreported, inst.Name())
				}
				if peers, err := peerstate.Of(inst); err == nil && peers != nil {
					o.LB.Exchanges, o.LB.Peers = true, append(o.LB.Peers, peers.Problems()...)
				}
			}
		}
		inst.Close()
	}
}

// addRenamed adds the interfaces of a data plane that have another name now than when it was attached.
func addRenamed(o *doctor.Options, inst *datapath.Instance) {
	for name, device := range inst.Devices() {
		if device.Name == name {
			continue
		}
		if o.Renamed == nil {
			o.Renamed = make(map[string]string)
		}
		o.Renamed[name] = device.Name
	}
}

// addConfig adds the configuration of the process that serves a data plane, unless it is as in the files.
func addConfig(o *doctor.Options, inst *datapath.Instance) {
	s, err := inforce.Of(inst)
	if err != nil || s == nil {
		return // what keeps it from being read keeps the stages' states too, which is reported
	}
	if s.Cluster != nil {
		o.Clusters = append(o.Clusters, clusterOf(inst.Name(), s))
	}
	c := doctor.Config{Router: inst.Name(), File: s.File, Differs: s.Differs(), Trial: s.Until != nil}
	switch {
	case s.Reload == nil || s.Reload.OK:
	case s.Reload.NotKept:
		c.NotKept = true
	default:
		c.Refused = s.Reload.Error
	}
	if s.Web != nil {
		c.Web, c.WebProblem, c.WebOpen = s.Web.Listen, s.Web.Problem, s.Web.Open
	}
	if c.WebProblem != "" || c.WebOpen || len(c.Differs) > 0 || c.Refused != "" || c.NotKept || c.Trial {
		o.Configs = append(o.Configs, c)
	}
}

// addSlowPaths adds the processes of SCION routers of this network namespace whose data plane is not in found.
func addSlowPaths(o *doctor.Options, found map[string]bool) {
	if o.Unread != nil {
		return
	}
	all, err := scionplane.Processes()
	if err != nil {
		o.Unread = err
		return
	}
	here, err := pins.Here()
	for _, p := range all {
		if err == nil && p.NetNS == here.Inode && !found[p.Router] {
			o.SlowPaths = append(o.SlowPaths, doctor.SlowPath{Router: p.Router, PID: p.PID})
		}
	}
}

// addDecaps adds the interfaces at which tunnels end, or ended until the interface was deleted. served tells whether a process
// runs that attaches them again.
func addDecaps(o *doctor.Options, served bool) {
	decaps, err := decapplane.List()
	if err != nil {
		o.Unread = err
	}
	for _, d := range decaps {
		switch {
		case d.Unattached != "":
			o.LostDecaps = append(o.LostDecaps, doctor.LostDecap{
				Interface: d.Interface, Exists: d.Unattached != pins.Gone, Served: served, Command: decap.Command(d),
			})
		case d.Options.Open():
			o.OpenDecaps = append(o.OpenDecaps, d.Interface)
		}
	}
}

// addLB adds what a load balancer asks of the host.
func addLB(o *doctor.Options, s lb.State) {
	if o.LB == nil {
		o.LB = &doctor.LB{}
	}
	b := o.LB
	b.Source4, b.Source6 = b.Source4 || s.Source4.IsValid(), b.Source6 || s.Source6.IsValid()
	for _, v := range s.VIPs {
		vip := doctor.LBVIP{Addr: v.Service.Addr, Checked: v.Check != nil}
		if !slices.Contains(b.VIPs, vip) {
			b.VIPs = append(b.VIPs, vip)
		}
		for _, r := range v.Backends {
			backend := doctor.LBBackend{Addr: r.Addr, Overhead: r.Overhead()}
			if !slices.Contains(b.Backends, backend) {
				b.Backends = append(b.Backends, backend)
			}
		}
	}
}

// addProtected adds what a protected service asks of the host.
func addProtected(o *doctor.Options, addr netip.AddrPort, forwarded bool) {
	switch {
	case forwarded:
		o.Forwarded = true
	case !slices.Contains(o.Protected, addr):
		o.Protected = append(o.Protected, addr)
	}
}

// addKeys adds the keys of a router that follow a schedule.
func addKeys(o *doctor.Options, inst *datapath.Instance) {
	schedule, err := scionplane.Of(inst).Schedule()
	if err != nil {
		o.Unread = err
	}
	if len(schedule) == 0 {
		return
	}
	k := doctor.Keys{Router: inst.Name(), Served: inst.Served()}
	for _, s := range schedule {
		k.Keys = append(k.Keys, doctor.ScheduledKey{ID: s.ID, Span: s.Span, Loaded: s.Loaded})
	}
	o.Keys = append(o.Keys, k)
}
