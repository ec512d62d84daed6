// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// rtrPort is the port of stayrtr. The port of RFC 8210, 323, is privileged.
const rtrPort = 8282

// rtrAddr returns where stayrtr is, for rut.
func rtrAddr() netip.AddrPort { return netip.AddrPortFrom(net18(netRPKI, 2, false).Addr(), rtrPort) }

// file returns the path of one of the lab's files.
func (l *Lab) file(name string) string { return filepath.Join(l.Dir, name) }

// birdSocket returns the path of the control socket of the BIRD in a namespace, for birdc -s.
func (l *Lab) birdSocket(ns string) string { return l.file(ns + ".ctl") }

func (l *Lab) birdConfig(ns string) string { return l.file(ns + "-bird.conf") }

// birdCommon is the beginning of every configuration. BIRD seldom reads the kernel's routes, since a full table takes it
// seconds. The netlink buffer has room for the notifications of a full table, which BIRD reads only when it has added all
// routes. Without that room BIRD would log that it has lost notifications of its own routes.
const birdCommon = `# Made by 'culvert lab'; 'birdc -s %[1]s configure' reads it again.
log stderr all;
router id %[2]s;
protocol device { }
protocol kernel kernel4 {
	scan time 3600;
	netlink rx buffer 268435456;
	ipv4 { import none; export where source = RTS_BGP; };
}
protocol kernel kernel6 {
	scan time 3600;
	netlink rx buffer 268435456;
	ipv6 { import none; export where source = RTS_BGP; };
}
`

// birdRPKI has BIRD in rut receive the route origin authorizations of both families from rpki, in one session. Stayrtr sends
// all it has to every session, IPv6 first. Each "retry" seconds BIRD closes a session that is not yet complete and has brought
// no prefix for the session's own tables in the last two seconds. So a session for IPv4 alone never comes to an end if the
// machine is too busy to skip all IPv6 in that time.
const birdRPKI = `
roa4 table origins4;
roa6 table origins6;
protocol rpki rtr {
	roa4 { table origins4; };
	roa6 { table origins6; };
	remote %s port %d;
	retry keep 30;
}
`

// birdRut is rut's configuration for one family. BIRD receives routes from peer.
const birdRut = `
filter from_peer%[1]s {
	if roa_check(origins%[1]s, net, bgp_path.last) = ROA_INVALID then reject;
	accept;
}
protocol direct direct%[1]s {
	ipv%[1]s;
	interface "to-left";
}
protocol bgp peer%[1]s {
	local %[2]s as %[3]d;
	neighbor %[4]s as %[5]d;
	connect delay time 1;
	connect retry time 1;
	error wait time 1, 2;
	ipv%[1]s {
		import table;
		import keep filtered;
		import filter from_peer%[1]s;
		export where source = RTS_DEVICE;
	};
}
`

// birdPeer is peer's configuration for one family. BIRD announces static routes. It does not export them to peer's kernel,
// which has a default route.
const birdPeer = `
protocol static table%[1]s {
	ipv%[1]s;
	include "%[2]s";
}
protocol static impostor%[1]s {
	ipv%[1]s;
%[3]s}
filter to_rut%[1]s {
	if source != RTS_STATIC then reject;
	if proto = "impostor%[1]s" then bgp_path.prepend(%[4]d); else bgp_path.prepend(%[5]d);
	accept;
}
protocol bgp rut%[1]s {
	local %[6]s as %[7]d;
	neighbor %[8]s as %[9]d;
	connect delay time 1;
	connect retry time 1;
	error wait time 1, 2;
	ipv%[1]s {
		import all;
		export filter to_rut%[1]s;
	};
}
`

const birdRoute = "\troute %s blackhole;\n"

// writeBGPConfigs writes the configuration files of BIRD in rut and in peer.
func (l *Lab) writeBGPConfigs(plan bgpPlan) error {
	var rut, peer strings.Builder
	fmt.Fprintf(&rut, birdCommon, l.birdSocket("rut"), net18(netPeer, 1, false).Addr())
	fmt.Fprintf(&rut, birdRPKI, rtrAddr().Addr(), rtrAddr().Port())
	fmt.Fprintf(&peer, birdCommon, l.birdSocket("peer"), net18(netPeer, 2, false).Addr())
	for _, f := range []struct {
		name string
		ipv6 bool
		plan bgpFamily
	}{{"4", false, plan.v4}, {"6", true, plan.v6}} {
		own, far := net18(netPeer, 1, f.ipv6).Addr(), net18(netPeer, 2, f.ipv6).Addr()
		fmt.Fprintf(&rut, birdRut, f.name, own, asRut, far, asPeer)
		table := l.file("table" + f.name + ".conf")
		fmt.Fprintf(&peer, birdPeer, f.name, table, lines(f.plan.invalid, birdRoute), asImpostor, asOrigin, far, asPeer, own, asRut)
		if err := writeFile(table, lines(f.plan.valid, birdRoute)); err != nil {
			return err
		}
	}
	return join(writeFile(l.birdConfig("rut"), rut.String()), writeFile(l.birdConfig("peer"), peer.String()))
}

// roa is a validated route origin authorization in the JSON of RPKI validators.
type roa struct {
	Prefix    netip.Prefix `json:"prefix"`
	MaxLength int          `json:"maxLength"`
	ASN       uint32       `json:"asn"`
	TA        string       `json:"ta"`
}

func (l *Lab) roaFile() string { return l.file("vrps.json") }

// writeROAs writes the authorizations that stayrtr serves. Each includes all longer prefixes inside its own, which would be
// invalid otherwise.
func (l *Lab) writeROAs(plan bgpPlan) error {
	var all struct {
		ROAs []roa `json:"roas"`
	}
	for _, f := range []bgpFamily{plan.v4, plan.v6} {
		for _, p := range f.roas {
			all.ROAs = append(all.ROAs, roa{Prefix: p, MaxLength: p.Addr().BitLen(), ASN: asOrigin, TA: "lab"})
		}
	}
	b, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("encode the route origin authorizations: %w", err)
	}
	return writeFile(l.roaFile(), string(b))
}

// writeCulvertConfig writes a configuration file for 'culvert run' in rut. The link to rpki needs no fast path.
func (l *Lab) writeCulvertConfig() error {
	l.BGP.CulvertConfig = l.file("culvert.toml")
	return writeFile(l.BGP.CulvertConfig, "interfaces = [\"to-left\", \"to-peer\"]\n\n[route]\n")
}

func writeFile(path, text string) error {
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the lab's configuration: %w", err)
	}
	return nil
}
