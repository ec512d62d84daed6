// SPDX-License-Identifier: Apache-2.0

package scionjudge

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"culvert/internal/datapath"
	"culvert/internal/scion/scionpkt"
	"culvert/internal/scion/scionplane"
)

// XDP is culvert's data plane in the kernel as a FastPath. Frames go through the program in test
// runs: none is sent.
type XDP struct {
	plane scionplane.Plane
	// links hold the programs on the devices in place of the pins.
	links []link.Link
}

// deviceMTU is the MTU of the devices and of every next hop, large enough for all packets.
const deviceMTU = 9216

// NewXDP makes the network's devices in the current network namespace, which should be one for
// this purpose, and attaches culvert to them. It sets the IfIndex of the network's devices. The
// caller must stay in the namespace, so on one locked thread, and must be root.
func NewXDP(n *scionpkt.Network, skipMAC bool) (*XDP, error) {
	names, err := makeDevices(n)
	if err != nil {
		return nil, err
	}
	part := scionplane.NewPart(Config(n))
	part.SkipMAC = skipMAC
	o := datapath.Options{
		Name: fmt.Sprintf("cv-judge-%d", os.Getpid()), Interfaces: names, Parts: []datapath.Part{part},
	}
	inst, err := datapath.Attach(o)
	if err != nil {
		return nil, err
	}
	x := &XDP{plane: scionplane.Of(inst)}
	err = x.unpin()
	if err == nil {
		err = x.fill(n)
	}
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// makeDevices makes a veth pair for each device that a link uses.
func makeDevices(n *scionpkt.Network) ([]string, error) {
	used := make([]bool, len(n.Devices))
	for _, l := range n.Links {
		used[l.Device] = true
	}
	var names []string
	for i := range n.Devices {
		if !used[i] {
			continue
		}
		name, peer := fmt.Sprintf("cvj%d", i), fmt.Sprintf("cvp%d", i)
		veth := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{
				Name: name, MTU: deviceMTU, HardwareAddr: net.HardwareAddr(n.Devices[i].MAC[:]),
			},
			PeerName: peer,
		}
		if err := netlink.LinkAdd(veth); err != nil {
			return nil, fmt.Errorf("make the veth pair %s: %w", name, err)
		}
		for _, end := range []string{name, peer} {
			l, err := netlink.LinkByName(end)
			if err != nil {
				return nil, fmt.Errorf("find %s: %w", end, err)
			}
			if err := netlink.LinkSetUp(l); err != nil {
				return nil, fmt.Errorf("set %s up: %w", end, err)
			}
			if end == name {
				n.Devices[i].IfIndex = l.Attrs().Index
			}
		}
		names = append(names, name)
	}
	return names, nil
}

// Config returns the network as the data plane's configuration.
func Config(n *scionpkt.Network) scionplane.Config {
	c := scionplane.Config{LocalIA: uint64(n.IA), PortStart: n.PortStart, PortEnd: n.PortEnd}
	if c.PortStart == 0 {
		// None: the reference writes 0 to 0, the data plane a start above the end.
		c.PortStart, c.PortEnd = 1, 0
	}
	for _, l := range n.Links {
		dl := scionplane.Link{Name: "internal", Local: l.Local, Remote: l.Remote}
		switch l.Scope {
		case scionpkt.Sibling:
			dl.Scope, dl.Name = scionplane.ScopeSibling, "sibling->"+l.Remote.String()
		case scionpkt.External:
			dl.Scope, dl.Name = scionplane.ScopeExternal, fmt.Sprint(l.IfID)
			dl.IfID, dl.NeighborIA = l.IfID, uint64(n.Interface(l.IfID).Neighbor)
		}
		c.Links = append(c.Links, dl)
	}
	for _, intf := range n.Interfaces {
		c.Interfaces = append(c.Interfaces, scionplane.Interface{
			ID: intf.ID, Link: intf.Link, Type: scionplane.LinkType(intf.Type),
		})
	}
	return c
}

// fill writes the key and the next hops into the data plane, sets all links up and removes the limits.
func (x *XDP) fill(n *scionpkt.Network) error {
	if err := x.plane.AddKey(0, n.Key); err != nil {
		return err
	}
	nextHop := func(device int, mac [6]byte) scionplane.NextHop {
		d := n.Devices[device]
		return scionplane.NextHop{IfIndex: d.IfIndex, SrcMAC: d.MAC, DstMAC: mac, MTU: deviceMTU}
	}
	for i, l := range n.Links {
		if l.Scope == scionpkt.Internal {
			continue
		}
		if err := x.plane.SetLinkNextHop(i, nextHop(l.Device, l.NextHop)); err != nil {
			return err
		}
		if err := x.plane.SetLinkUp(i, true); err != nil {
			return err
		}
	}
	for _, h := range n.Hosts {
		if err := x.plane.SetHost(h.Addr, nextHop(n.Links[0].Device, h.MAC)); err != nil {
			return err
		}
	}
	return x.unlimit()
}

// unpin makes the data plane end with this process, however that ends: a fuzzing worker is killed
// without a chance to clean up. The links are held open here and the pins are removed.
func (x *XDP) unpin() error {
	for _, root := range []string{"/sys/fs/bpf", "/proc/1/root/sys/fs/bpf"} {
		dir := filepath.Join(root, "culvert", fmt.Sprint(x.plane.NetNS()), x.plane.Name())
		paths, err := filepath.Glob(filepath.Join(dir, "link-*"))
		if err != nil || len(paths) == 0 {
			continue
		}
		for _, path := range paths {
			l, err := link.LoadPinnedLink(path, nil)
			if err != nil {
				return fmt.Errorf("open %s: %w", path, err)
			}
			x.links = append(x.links, l)
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove the pins: %w", err)
		}
		// Another instance in this namespace keeps the directory.
		_ = os.Remove(filepath.Dir(dir))
		return nil
	}
	return errors.New("the pinned links of the data plane are not where they should be")
}

// unlimit removes the limits of packets to the slow path. A limit rightly drops packets that the
// reference answers, but here each packet is judged by itself.
func (x *XDP) unlimit() error {
	info, err := x.plane.Program().Info()
	if err != nil {
		return fmt.Errorf("inspect the program: %w", err)
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return fmt.Errorf("open map %d: %w", id, err)
		}
		if info, err := m.Info(); err == nil && info.Name == "limits" {
			none := make([]byte, m.ValueSize())
			for i := range m.MaxEntries() {
				if err := m.Put(i, none); err != nil {
					m.Close()
					return fmt.Errorf("lift limit %d: %w", i, err)
				}
			}
			m.Close()
			return nil
		}
		m.Close()
	}
	return errors.New("the program has no map of limits")
}

// Run puts the frame through the program. Which device a redirect leads to is not known.
func (x *XDP) Run(frame []byte, ifIndex int) (Outcome, error) {
	action, out, err := x.plane.TestRunIndex(frame, ifIndex)
	return Outcome{Verdict: Verdict(action), Frame: out}, err
}

// SetLinkUp sets the state of a link in the data plane, as BFD would.
func (x *XDP) SetLinkUp(link int, up bool) error { return x.plane.SetLinkUp(link, up) }

// Close detaches the data plane. The devices go with the namespace.
func (x *XDP) Close() error {
	err := x.plane.DetachAll()
	x.plane.Close()
	for _, l := range x.links {
		err = errors.Join(err, l.Close())
	}
	return err
}
