// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/scionproto/scion/pkg/addr"

	"culvert/internal/scion/scionplane"
	"culvert/internal/stage"
)

// Changes returns what differs from a former plan of the stage, in words: a line for each change.
func (p *plan) Changes(former stage.Plan) []string {
	f, ok := former.(*plan)
	if !ok {
		return nil
	}
	c := changes{}
	a, b := f.router, p.router
	c.add("router", a.ID(), b.ID())
	c.add("AS", addr.IA(a.Datapath.LocalIA), addr.IA(b.Datapath.LocalIA))
	c.links(a, b)
	c.add("dispatched ports", portsText(a.Datapath), portsText(b.Datapath))
	c.add("services", fmt.Sprint(a.Datapath.Services), fmt.Sprint(b.Datapath.Services))
	c.add("link_interfaces", f.file.LinkInterfaces, p.file.LinkInterfaces)
	c.add("bfd_min_ttl", f.file.BFDMinTTL, p.file.BFDMinTTL)
	c.add("debug_http", f.file.DebugHTTP, p.file.DebugHTTP)
	c.add("config", a.Path, b.Path)
	c.add(fieldMetrics, orOff(a.Config.Metrics.Prometheus), orOff(b.Config.Metrics.Prometheus))
	c.add(fieldAPI, orOff(a.Config.API.Addr), orOff(b.Config.API.Addr))
	c.add("log.console.level", a.Config.Logging.Console.Level, b.Config.Logging.Console.Level)
	c.add("log.console.format", a.Config.Logging.Console.Format, b.Config.Logging.Console.Format)
	c.other("log", a.Config.Logging, b.Config.Logging)
	c.other("router settings", a.Config.Router, b.Config.Router)
	c.other("features", a.Config.Features, b.Config.Features)
	c.other("forwarding key", a.Keys, b.Keys)
	if c == nil && !reflect.DeepEqual(a.Control.Topo, b.Control.Topo) {
		return []string{"topology: changes that this router does not need"}
	}
	return c
}

// changes are changes in words.
type changes []string

// add adds a change of a value.
func (c *changes) add(what string, before, now any) {
	if before != now {
		*c = append(*c, fmt.Sprintf("%s %v → %v", what, before, now))
	}
}

// other adds a change whose values are too long or secret, unless a change of a part of it is there.
func (c *changes) other(what string, before, now any) {
	if !reflect.DeepEqual(before, now) && !slices.ContainsFunc(*c, func(s string) bool { return len(s) > len(what) && s[:len(what)+1] == what+"." }) {
		*c = append(*c, what+" changed")
	}
}

// links adds changes of links. A link with the same addresses is the same one.
func (c *changes) links(a, b *Router) {
	key := func(l scionplane.Link) linkKey { return linkKey{l.Local, l.Remote} }
	for i, l := range a.Datapath.Links {
		at := slices.IndexFunc(b.Datapath.Links, func(k scionplane.Link) bool { return key(k) == key(l) && k.Scope == l.Scope })
		if at < 0 {
			if at = b.linkNamed(l); at < 0 {
				*c = append(*c, linkText(l)+" removed")
				continue
			}
		}
		k := b.Datapath.Links[at]
		what := linkText(l)
		if k.Name != l.Name && l.Scope != scionplane.ScopeSibling {
			*c = append(*c, fmt.Sprintf("%s becomes %s", what, linkText(k)))
		}
		c.add(what+": local", l.Local, k.Local)
		if l.Scope != scionplane.ScopeInternal {
			c.add(what+": remote", l.Remote, k.Remote)
		}
		c.add(what+": neighbor", addr.IA(l.NeighborIA), addr.IA(k.NeighborIA))
		c.add(what+": BFD", onOff(a.BFD[i]), onOff(b.BFD[at]))
		if l.Scope == scionplane.ScopeExternal {
			c.add(what+": type", a.linkInfo(l), b.linkInfo(k))
			c.other(what+": BFD timers", a.bfdInfo(l), b.bfdInfo(k))
		}
	}
	for _, k := range b.Datapath.Links {
		same := func(l scionplane.Link) bool { return key(k) == key(l) && k.Scope == l.Scope }
		if !slices.ContainsFunc(a.Datapath.Links, same) && a.linkNamed(k) < 0 {
			*c = append(*c, fmt.Sprintf("%s added: %s - %s", linkText(k), k.Local, k.Remote))
		}
	}
	for _, i := range b.Datapath.Interfaces {
		if b.Datapath.Links[i.Link].Scope == scionplane.ScopeSibling && !a.behindSibling(i.ID) {
			*c = append(*c, fmt.Sprintf("interface %d of a sibling added", i.ID))
		}
	}
	for _, i := range a.Datapath.Interfaces {
		if a.Datapath.Links[i.Link].Scope == scionplane.ScopeSibling && !b.behindSibling(i.ID) {
			*c = append(*c, fmt.Sprintf("interface %d of a sibling removed", i.ID))
		}
	}
}

// linkNamed returns the index of the link with the name of l, -1 if there is none. The name of a sibling's link is its address.
func (r *Router) linkNamed(l scionplane.Link) int {
	return slices.IndexFunc(r.Datapath.Links, func(k scionplane.Link) bool { return k.Name == l.Name && k.Scope == l.Scope })
}

func (r *Router) behindSibling(id uint16) bool {
	return slices.ContainsFunc(r.Datapath.Interfaces, func(i scionplane.Interface) bool {
		return i.ID == id && r.Datapath.Links[i.Link].Scope == scionplane.ScopeSibling
	})
}

// linkInfo returns the type of an external link as the topology names it.
func (r *Router) linkInfo(l scionplane.Link) string {
	for id, info := range r.Control.Topo.IFInfoMap() {
		if uint16(id) == l.IfID {
			return info.LinkType.String()
		}
	}
	return ""
}

// bfdInfo returns the settings of an external link's BFD session.
func (r *Router) bfdInfo(l scionplane.Link) any {
	for id, info := range r.Control.Topo.IFInfoMap() {
		if uint16(id) == l.IfID {
			b := info.BFD
			b.Disable = nil
			return b
		}
	}
	return nil
}

func linkText(l scionplane.Link) string {
	switch l.Scope {
	case scionplane.ScopeInternal:
		return "internal link"
	case scionplane.ScopeSibling:
		return "sibling " + l.Remote.String()
	}
	return "link " + l.Name
}

func portsText(c scionplane.Config) string {
	if c.PortStart > c.PortEnd {
		return "none"
	}
	return fmt.Sprintf("%d-%d", c.PortStart, c.PortEnd)
}

func orOff(s string) string {
	if s == "" {
		return "off"
	}
	return s
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
