// SPDX-License-Identifier: Apache-2.0

package lbstage

import (
	"time"

	"culvert/internal/lb"
	"culvert/internal/lb/lbplane"
	"culvert/internal/show/dump"
)

// TableOf returns the keys of [lb] for the options of a load balancer and the outer sources of its state, without those that have
// their default, and without VIPs, seed and BGP.
func TableOf(o lbplane.Options, s lb.State) Table {
	return Table{
		RingSize: unless(o.RingSize, lbplane.DefaultRingSize), Flows: unless(o.Flows, lbplane.DefaultFlows),
		InsertRate: unless(o.InsertRate, lbplane.DefaultInsertRate),
		VIPs:       unless(o.VIPs, lbplane.DefaultVIPs), Backends: unless(o.Backends, lbplane.DefaultBackends),
		Source4: prefix(s.Source4), Source6: prefix(s.Source6),
		TCPTimeout: idle(o.IdleTCP, lbplane.DefaultIdleTCP), UDPTimeout: idle(o.IdleUDP, lbplane.DefaultIdleUDP),
		SYNTimeout: idle(o.IdleNew, lbplane.DefaultIdleNew), Unclaimed: lb.UnclaimedWord(o.Unclaimed),
	}
}

// unless returns a value, or 0 if it is the default.
func unless[T comparable](value, byDefault T) (zero T) {
	if value == byDefault {
		return zero
	}
	return value
}

func idle(d, byDefault time.Duration) string {
	if d = unless(d, byDefault); d == 0 {
		return ""
	}
	return dump.Duration(d)
}

// VIPTableOf returns the table of a file that makes a VIP, without its check and its backends.
func VIPTableOf(v lb.VIP) VIPTable {
	t := VIPTable{
		Address: v.Service.Address(), Protocol: v.Service.Protocol.String(), Hash: v.Hash, OnFailure: v.OnFailure, Encapsulation: v.Encap,
		QUICServerID: int(v.ServerID), QUICConfig: int(v.IDConfig),
	}
	for _, id := range v.VLANs {
		t.VLANs = append(t.VLANs, int(id))
	}
	return t
}

// CheckTableOf returns the table of a file for the check of a VIP's backends.
func CheckTableOf(c lb.Check) CheckTable {
	return CheckTable{
		Type: c.Type, Port: c.Port, Interval: dump.Duration(c.Interval), Timeout: dump.Duration(c.Timeout), Rise: &c.Rise, Fall: &c.Fall,
		Path: c.Path, Host: c.Host, Status: c.Status, Send: c.Send, Expect: c.Expect,
	}
}

// BackendTableOf returns the table of a file that makes a backend of v. A drained one has weight 0, which is what draining comes to.
func BackendTableOf(b lb.Backend, v lb.VIP) BackendTable {
	weight := int64(b.Share())
	t := BackendTable{Address: b.Addr.String(), Weight: &weight, Encapsulation: unless(b.Encap, v.Encap), ServerID: b.ServerID}
	if b.Encap == lb.EncapGUE && b.GUEPort != lb.GUEPort {
		t.GUEPort = &b.GUEPort
	}
	return t
}

// MachineSeed tells whether a load balancer without a seed in its file has the seed with this ID on this machine.
func MachineSeed(id string) (bool, error) {
	seed, _, err := readSeed()
	return err == nil && seed != "" && seedID(seed) == id, err
}
