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

// probeMark is CHECK_MARK of bpf/lb/probe.bpf.c.
const probeMark = 0xc01 << numberBits

// ProbeMark returns the mark (SO_MARK) of sockets whose packets to the VIP go to a backend, while Checks are attached:
// 0xc01 in the upper 12 bits, and the number of the backend. `ip rule` with fwmark 0xc0100000/0xfff00000 chooses a
// route for all of them.
func ProbeMark(o BackendID) uint32 { return probeMark | o.Number() }

// Checks gives packets of marked sockets to backends: sockets of this host that have connected to a VIP. They are
// encapsulated like those of clients. The kernel sends them to where its route to the VIP leads, and a program finds
// them there as they leave the interface.
type Probes struct {
	prog     *ebpf.Program
	backends *ebpf.Map
	link     *netlink.Handle

	mu   sync.Mutex
	on   map[int]io.Closer // by index of the interface
	ways map[netip.Addr]probeRoute
}

// probeRoute is how packets of checks leave.
type probeRoute struct {
	asked time.Time
	err   error
}

// probeRouteAge is how long an answer of the routing table is taken for true.
const probeRouteAge = time.Second

// AttachProbes attaches the program that Checks are to the interfaces of the instance, for as long as the process lives;
// others follow when Ready finds that checks leave by them. It reads the backends of this generation of the instance:
// after the next Attach it has to be called again, and the former Checks closed then.
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
	c := &Probes{prog: prog, backends: backends, link: handle, on: make(map[int]io.Closer), ways: make(map[netip.Addr]probeRoute)}
	ports := i.Attached()
	if !i.Temporary() {
		ports = i.AttachedNow()
	}
	for _, name := range ports {
		p, err := net.InterfaceByName(name)
		if err != nil {
			continue // it has just gone
		}
		if err := c.cover(p.Index); err != nil {
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
	var loaded bpfobj.ProbePrograms // the other maps of the object are the stage's, and are not made
	err = spec.LoadAndAssign(&loaded, &ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{bpfobj.ProbeMapLbBackends: backends, bpfobj.ProbeMapLbVips: vips},
	})
	if err != nil {
		return nil, bpfobj.LoadError(err)
	}
	return loaded.LbProbe, nil
}

// cover sees that the program is on an interface.
func (c *Probes) cover(ifIndex int) error {
	if c.on[ifIndex] != nil {
		return nil
	}
	on, err := attachProbe(c.link, c.prog, ifIndex)
	if err != nil {
		return err
	}
	c.on[ifIndex] = on
	return nil
}

// Close takes the program off. Packets of checks go to where the routing table leads then.
func (c *Probes) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, on := range c.on {
		errs = append(errs, on.Close())
	}
	clear(c.on)
	c.link.Close()
	c.backends.Close()
	c.prog.Close()
	return errors.Join(errs...)
}

// Ready says why packets with the mark of a backend cannot get from here to it, if that is so: the kernel has to have a
// route to the VIP that is not this host itself, and the balancer a next hop of the backend. The text is for the user.
// It may be called before each check: what the routing table says is kept for a second.
func (c *Probes) Ready(vip netip.Addr, mark uint32) error {
	if err := c.wayTo(vip); err != nil {
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

// wayTo is way from memory.
func (c *Probes) wayTo(vip netip.Addr) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, asked := c.ways[vip]
	if asked && time.Since(w.asked) < probeRouteAge {
		return w.err
	}
	if !asked && len(c.ways) >= 2*MaxVIPs {
		clear(c.ways) // most have gone
	}
	w = probeRoute{asked: time.Now(), err: c.way(vip)}
	c.ways[vip] = w
	return w.err
}

// way says why packets to a VIP do not pass the program, if that is so.
func (c *Probes) way(vip netip.Addr) error {
	routes, err := c.link.RouteGetWithOptions(vip.AsSlice(), &netlink.RouteGetOptions{Mark: probeMark})
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
	out, err := c.link.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return fmt.Errorf("asking for the route to %s: %w", vip, err)
	}
	if out.Attrs().EncapType != "ether" {
		return fmt.Errorf("the route to %s leaves by %s, which is no Ethernet", vip, out.Attrs().Name)
	}
	return c.cover(routes[0].LinkIndex)
}
