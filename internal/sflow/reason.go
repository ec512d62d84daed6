// SPDX-License-Identifier: Apache-2.0

package sflow

import "strings"

// Reason is a reason for a discarded packet, as sflow.org/sflow_drops.txt numbers them.
type Reason uint32

// The reasons that culvert's are mapped onto. Those below 256 are codes of ICMP's message "destination unreachable".
const (
	HostUnreachable   Reason = 1
	NetUnknown        Reason = 6
	HostUnknown       Reason = 7
	NetProhibited     Reason = 9
	UnknownReason     Reason = 256
	TTLExceeded       Reason = 257
	ACL               Reason = 258
	TrafficShaping    Reason = 261
	TooBig            Reason = 262
	BlackholeRoute    Reason = 269
	IPHeaderCorrupted Reason = 275
	UnresolvedNeigh   Reason = 279
	UnknownL3         Reason = 285
	UnknownL4         Reason = 289
)

// Mapping is how one of culvert's reasons is written. Limited is for packets that the slow path would have got, but for its limit.
type Mapping struct {
	Name   string
	Reason Reason
	Word   string
}

// mappings has the reasons with a code of their own. A reason of a stage that is not here has the code of its stage.
var mappings = []Mapping{
	{"filter", ACL, "acl"},
	{"filter-limit", TrafficShaping, "traffic_shaping"},
	{"filter-cookie", ACL, "acl"},
	{"filter-tags", ACL, "acl"},
	{"filter-headers", ACL, "acl"},
	{"lb-next-hop", UnresolvedNeigh, "unresolved_neigh"},
	{"lb-fragment", UnknownL4, "unknown_l4"},
	{"lb-too-big", TooBig, "pkt_too_big"},
	{"lb-unclaimed", HostUnknown, "dst_host_unknown"},
	{"lb-empty", HostUnreachable, "host_unreachable"},
	{"route-blackhole", BlackholeRoute, "blackhole_route"},
	{"scion-path", IPHeaderCorrupted, "ip_header_corrupted"},
	{"scion-transit-src", ACL, "acl"},
	{"scion-bfd", UnknownL4, "unknown_l4"},
	{"scion-src-service", UnknownL3, "unknown_l3"},
	{"scion-interface", ACL, "acl"},
	// These are dropped over their limit only.
	{"route-ttl", TTLExceeded, "ttl_exceeded"},
	{"route-mtu", TooBig, "pkt_too_big"},
	{"route-none", NetUnknown, "dst_net_unknown"},
	{"route-unreachable", HostUnreachable, "host_unreachable"},
	{"route-prohibit", NetProhibited, "dst_net_prohibited"},
	{"route-neighbor", UnresolvedNeigh, "unresolved_neigh"},
	{"route-malformed", IPHeaderCorrupted, "ip_header_corrupted"},
	{"scion-next-hop", UnresolvedNeigh, "unresolved_neigh"},
	{"scion-host-unknown", UnresolvedNeigh, "unresolved_neigh"},
	{"scion-mtu", TooBig, "pkt_too_big"},
}

// ReasonOf returns the nearest standard code for one of culvert's reasons. limited tells that the packet was over the limit of a punt
// for which there is no better code than that of a limit.
func ReasonOf(name string, limited bool) Reason {
	for _, m := range mappings {
		if m.Name == name {
			return m.Reason
		}
	}
	switch {
	case limited:
		return TrafficShaping
	case strings.HasPrefix(name, "route-"), strings.HasPrefix(name, "scion-"):
		return UnknownL3
	case strings.HasPrefix(name, "lb-"):
		return UnknownL4
	}
	return UnknownReason
}
