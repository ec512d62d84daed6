// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/scionproto/scion/pkg/addr"

	"culvert/internal/datapath"
	"culvert/internal/scion/keyring"
	"culvert/internal/scion/scionplane"
	"culvert/internal/stage"
)

// Changes implements stage.Differ. Lines begin with the key, as it is in the table [scion], or with SCION: what is in the router's own
// files has names that other stages and the host have too. None of it can be changed by hand.
func (p *plan) Changes(former stage.Plan, _ *datapath.Instance) []string {
	f, ok := former.(*plan)
	if !ok {
		return nil
	}
	var c stage.Changes
	a, b := f.router, p.router
	c.Value("SCION router:", a.ID(), b.ID())
	c.Value("SCION AS:", addr.IA(a.Datapath.LocalIA), addr.IA(b.Datapath.LocalIA))
	linkChanges(&c, a, b)
	c.Value("SCION dispatched ports:", portsText(a.Datapath), portsText(b.Datapath))
	c.Value("SCION services:", a.Datapath.Services, b.Datapath.Services)
	c.Value("scion.link_interfaces:", f.file.LinkInterfaces, p.file.LinkInterfaces)
	c.Value("scion.bfd_min_ttl:", f.file.BFDMinTTL, p.file.BFDMinTTL)
	c.Value("scion.too_big:", f.file.TooBig, p.file.TooBig)
	c.Value("scion.debug_http:", f.file.DebugHTTP, p.file.DebugHTTP)
	c.Value("scion.config:", a.Path, b.Path)
	c.Value("SCION "+fieldMetrics+":", orOff(a.Config.Metrics.Prometheus), orOff(b.Config.Metrics.Prometheus))
	c.Value("SCION "+fieldAPI+":", orOff(a.Config.API.Addr), orOff(b.Config.API.Addr))
	c.Value("SCION log.console.level:", a.Config.Logging.Console.Level, b.Config.Logging.Console.Level)
	c.Value("SCION log.console.format:", a.Config.Logging.Console.Format, b.Config.Logging.Console.Format)
	log := func(r *Router) any {
		console := r.Config.Logging.Console
		console.Level, console.Format = "", ""
		return console
	}
	hidden(&c, "SCION log", log(a), log(b))
	hidden(&c, "SCION router settings", a.Config.Router, b.Config.Router)
	hidden(&c, "SCION features", a.Config.Features, b.Config.Features)
	keyChanges(&c, a.Keys, b.Keys)
	if c == nil && !reflect.DeepEqual(a.Control.Topo, b.Control.Topo) {
		return []string{"SCION topology: changes that this router does not need"}
	}
	return c
}

// hidden adds a line if a value differs that is long or secret.
func hidden(c *stage.Changes, what string, was, is any) {
	if !reflect.DeepEqual(was, is) {
		c.Add("%s changed", what)
	}
}

// keyChanges adds a line for each key that is added or removed, or whose times change. Keys are known by their IDs.
func keyChanges(c *stage.Changes, a, b []keyring.Key) {
	with := func(all []keyring.Key, id string) int {
		return slices.IndexFunc(all, func(k keyring.Key) bool { return k.ID == id })
	}
	for _, k := range a {
		if with(b, k.ID) < 0 {
			c.Add("SCION forwarding key %s removed (%s)", k.ID, k.Span)
		}
	}
	for _, k := range b {
		if at := with(a, k.ID); at < 0 {
			c.Add("SCION forwarding key %s added (%s)", k.ID, k.Span)
		} else {
			c.Value("SCION forwarding key "+k.ID+":", a[at].Span, k.Span)
		}
	}
}

// linkChanges adds lines for links. A link with the same addresses is the same one.
func linkChanges(c *stage.Changes, a, b *Router) {
	to := pairLinks(a, b)
	for i, l := range a.Datapath.Links {
		at, stays := to[i]
		if !stays {
			c.Add("%s removed", linkText(l))
			continue
		}
		k := b.Datapath.Links[at]
		what := linkText(l)
		if k.Name != l.Name && l.Scope != scionplane.ScopeSibling {
			c.Add("%s becomes link %s", what, k.Name)
		}
		c.Value(what+": local", l.Local, k.Local)
		if l.Scope != scionplane.ScopeInternal {
			c.Value(what+": remote", l.Remote, k.Remote)
		}
		c.Value(what+": neighbor", addr.IA(l.NeighborIA), addr.IA(k.NeighborIA))
		c.Value(what+": BFD", onOff(a.BFD[i]), onOff(b.BFD[at]))
		if l.Scope == scionplane.ScopeExternal {
			c.Value(what+": type", a.linkInfo(l), b.linkInfo(k))
			hidden(c, what+": BFD timers", a.bfdInfo(l), b.bfdInfo(k))
		}
	}
	stay := slices.Collect(maps.Values(to))
	for i, k := range b.Datapath.Links {
		if !slices.Contains(stay, i) {
			c.Add("%s added: %s - %s", linkText(k), k.Local, k.Remote)
		}
	}
	for _, i := range b.Datapath.Interfaces {
		if b.Datapath.Links[i.Link].Scope == scionplane.ScopeSibling && !a.behindSibling(i.ID) {
			c.Add("SCION interface %d of a sibling added", i.ID)
		}
	}
	for _, i := range a.Datapath.Interfaces {
		if a.Datapath.Links[i.Link].Scope == scionplane.ScopeSibling && !b.behindSibling(i.ID) {
			c.Add("SCION interface %d of a sibling removed", i.ID)
		}
	}
}

// pairLinks maps the links of a that b has too to those of b: those with the same addresses, and of the others those with the same
// name.
func pairLinks(a, b *Router) map[int]int {
	to, taken := map[int]int{}, map[int]bool{}
	pair := func(same func(l, k scionplane.Link) bool) {
		for i, l := range a.Datapath.Links {
			if _, ok := to[i]; ok {
				continue
			}
			for at, k := range b.Datapath.Links {
				if !taken[at] && k.Scope == l.Scope && same(l, k) {
					to[i], taken[at] = at, true
					break
				}
			}
		}
	}
	pair(func(l, k scionplane.Link) bool { return l.Local == k.Local && l.Remote == k.Remote })
	pair(func(l, k scionplane.Link) bool { return l.Name == k.Name })
	return to
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
		return "SCION internal link"
	case scionplane.ScopeSibling:
		return "SCION sibling " + l.Remote.String()
	}
	return "SCION link " + l.Name
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
