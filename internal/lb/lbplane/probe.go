// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"culvert/internal/bpfobj"
	"culvert/internal/datapath"
)

// probeMark is LB_PROBE_MARK of bpf/lb/probe.bpf.c, in the upper 12 bits.
const probeMark = 0xc01 << numberBits

// ProbeMark returns the mark (SO_MARK) for sockets that probe a backend: 0xc01 in the upper 12 bits, and the number of
// the backend below. While Probes are attached, the packets of such a socket to a VIP go to that backend. One `ip rule`
// with fwmark 0xc0100000/0xfff00000 matches all probes.
func ProbeMark(id BackendID) uint32 { return probeMark | id.Number() }

// Probes sends the packets of health checks to backends. They come from sockets of this host that have a ProbeMark and
// have connected to a VIP. The kernel routes them to the VIP. A program on the egress of that interface encapsulates them
// like packets of clients and redirects them to the backend.
type Probes struct {
	prog     *ebpf.Program
	backends *ebpf.Map
	netlink  *netlink.Handle

	mu       sync.Mutex
	attached map[int]io.Closer // by interface index
	routes   map[netip.Addr]probeRoute
}

// probeRoute is what the routing table has answered for a VIP.
type probeRoute struct {
	asked time.Time
	err   error // why probes cannot leave, nil if they can
}

// probeRouteAge is how long an answer of the routing table is used.
const probeRouteAge = time.Second

// AttachProbes attaches the probe program to the egress of the instance's interfaces. Ready attaches it to other
// interfaces when probes leave by them. The program stays until Close or the end of the process. It reads the backends of
// the program that is loaded now: after the next datapath.Attach, call AttachProbes again and then close the old Probes.
func AttachProbes(i *datapath.Instance) (*Probes, error) {
	if OptionsOf(i) == nil {
		return nil, fmt.Errorf("checking backends of %s: %w", i.Name(), errOff)
	}
	prog, err := loadProbe(i)
	if err != nil {
		return nil, fmt.Errorf("checking backends of %s: %w", i.Name(), err)
	}
	backends, err := i.Map(bpfobj.PipelineMapLbBackends).Clone()
	if err != nil {
		prog.Close()
		return nil, fmt.Errorf("checking backends of %s: %w", i.Name(), err)
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		backends.Close()
		prog.Close()
		return nil, fmt.Errorf("checking backends of %s: route netlink: %w", i.Name(), err)
	}
	c := &Probes{
		prog: prog, backends: backends, netlink: handle, attached: make(map[int]io.Closer), routes: make(map[netip.Addr]probeRoute),
	}
	ports := i.Attached()
	if !i.Temporary() {
		ports = i.AttachedNow()
	}
	for _, name := range ports {
		p, err := net.InterfaceByName(name)
		if err != nil {
			continue // it has just been deleted
		}
		if err := c.attach(p.Index); err != nil {
			return nil, errors.Join(fmt.Errorf("checking backends of %s: %w", i.Name(), err), c.Close())
		}
	}
	return c, nil
}

func loadProbe(i *datapath.Instance) (*ebpf.Program, error) {
	spec, err := bpfobj.LoadProbe()
	if err != nil {
		return nil, err
	}
	if err := spec.Variables[bpfobj.ProbeVarLbSecret].Set(secretOf(i)); err != nil {
		return nil, fmt.Errorf("setting %s: %w", bpfobj.ProbeVarLbSecret, err)
	}
	backends, vips := i.Map(bpfobj.PipelineMapLbBackends), i.Map(bpfobj.PipelineMapLbVips)
	spec.Maps[bpfobj.ProbeMapLbBackends].MaxEntries = backends.MaxEntries()
	spec.Maps[bpfobj.ProbeMapLbVips].MaxEntries = vips.MaxEntries()
	var loaded bpfobj.ProbePrograms // the program uses no other maps, so none is created
	err = spec.LoadAndAssign(&loaded, &ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{bpfobj.ProbeMapLbBackends: backends, bpfobj.ProbeMapLbVips: vips},
	})
	if err != nil {
		return nil, bpfobj.LoadError(err)
	}
	return loaded.LbProbe, nil
}

// attach attaches the program to an interface unless it is there already.
func (c *Probes) attach(ifIndex int) error {
	if c.attached[ifIndex] != nil {
		return nil
	}
	l, err := attachProbe(c.netlink, c.prog, ifIndex)
	if err != nil {
		return err
	}
	c.attached[ifIndex] = l
	return nil
}

// Close detaches the program. After that the routing table decides where probes go.
func (c *Probes) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, l := range c.attached {
		errs = append(errs, l.Close())
	}
	clear(c.attached)
	c.netlink.Close()
	c.backends.Close()
	c.prog.Close()
	return errors.Join(errs...)
}

// Ready returns nil if probes with the mark of a backend can reach it, else an error for the user that says why not. The
// kernel needs a route to the VIP that does not end at this host, and the load balancer needs a next hop of the backend.
// Call it before each probe: the answer of the routing table is cached for a second.
func (c *Probes) Ready(vip netip.Addr, mark uint32) error {
	if err := c.route(vip); err != nil {
		return err
	}
	var slot bpfobj.PipelineLbBackendLatch
	if err := c.backends.Lookup(BackendID(mark).Number(), &slot); err != nil {
		return fmt.Errorf("reading the backend: %w", err)
	}
	if slot.Version[slot.Seq&1].Hop.Port == 0 {
		return errors.New("no next hop of the backend is known")
	}
	return nil
}

// route returns why probes to a VIP cannot leave, nil if they can. Answers come from the cache while they are fresh.
func (c *Probes) route(vip netip.Addr) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, cached := c.routes[vip]
	if cached && time.Since(r.asked) < probeRouteAge {
		return r.err
	}
	if !cached && len(c.routes) >= 2*MaxVIPs {
		clear(c.routes) // most of these VIPs have been deleted
	}
	r = probeRoute{asked: time.Now(), err: c.lookUpRoute(vip)}
	c.routes[vip] = r
	return r.err
}

// lookUpRoute asks the routing table how probes to a VIP leave and attaches the program there.
func (c *Probes) lookUpRoute(vip netip.Addr) error {
	routes, err := c.netlink.RouteGetWithOptions(vip.AsSlice(), &netlink.RouteGetOptions{Mark: probeMark})
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("no route to the VIP %s for its checks to leave by", vip)
	case err != nil:
		return fmt.Errorf("asking for the route to %s: %w", vip, err)
	case slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Type == unix.RTN_LOCAL }):
		return fmt.Errorf("the VIP %s is an address of this host: remove it", vip)
	case len(routes) != 1 || routes[0].Type != unix.RTN_UNICAST:
		return fmt.Errorf("no route to the VIP %s for its checks to leave by", vip)
	}
	out, err := c.netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return fmt.Errorf("asking for the route to %s: %w", vip, err)
	}
	if out.Attrs().EncapType != "ether" {
		return fmt.Errorf("the route to %s leaves by %s, which is no Ethernet", vip, out.Attrs().Name)
	}
	return c.attach(routes[0].LinkIndex)
}
