// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// birdAllRut is rut's configuration of BIRD for one family. culvert announces the VIPs itself.
const birdAllRut = `
protocol direct direct%[1]s { ipv%[1]s; interface "to-client"; }
protocol bgp peer%[1]s {
	local %[2]s as %[3]d;
	neighbor %[4]s as %[5]d;
	connect delay time 1;
	connect retry time 1;
	error wait time 1, 2;
	ipv%[1]s { import all; export where source = RTS_DEVICE; };
}
`

// birdAllPeer is peer's configuration of BIRD for one family: sessions with rut's BIRD and with culvert. The load balancer's
// checks need a route to the VIPs: the default route.
const birdAllPeer = `
protocol static known%[1]s {
	ipv%[1]s;
	route %[8]s blackhole;
%[6]s}
protocol bgp rut%[1]s {
	local %[4]s as %[5]d;
	neighbor %[2]s as %[3]d;
	passive on;
	error wait time 1, 2;
	ipv%[1]s { import all; export where source = RTS_STATIC; };
}
protocol bgp culvert%[1]s {
	local %[4]s as %[5]d;
	neighbor %[7]s as %[3]d;
	passive on;
	error wait time 1, 2;
	ipv%[1]s { import all; export none; };
}
`

// allConfig is culvert's file, without the tables of VIPs.
const allConfig = `# Made by 'culvert lab'. The filter is in culvert.d/filter.toml.
interfaces = [%[1]s]

[web]
listen = "` + allPage + `"

[scion]
config = "%[2]s"

[route]
blocks4 = 1024
blocks6 = 1024

[lb]
flows = 65536
vips = 16
backends = 64
source4 = "10.200.0.0/16"
source6 = "fd00:200::/64"
seed = "lab"

[lb.bgp]
asn = %[3]d
router_id = "%[4]s"

[[lb.bgp.neighbor]]
address = "%[5]s"
asn = %[6]d
local_address = "%[4]s"

[[lb.bgp.neighbor]]
address = "%[7]s"
asn = %[6]d
local_address = "%[8]s"
`

// allFilter is the drop-in.
const allFilter = `# Made by 'culvert lab'.
[filter]

[[filter.set]]
name = "blocked"
file = "../blocked.txt"

[[filter.rule]]
name = "blocked"
action = "drop"
src = ["@blocked"]

[[filter.rule]]
name = "pings"
action = "limit"
expression = "icmp"
rate = "1kpps"
per = "src/32,128"

[[filter.protect]]
address = "%s"
`

// writeAllConfigs writes the files of BIRD and of culvert. router is the SCION router's own file.
func (l *Lab) writeAllConfigs(router string) error {
	at := func(host int, ipv6 bool) netip.Addr { return net18(netAllPeer, host, ipv6).Addr() }
	var rut, peer strings.Builder
	fmt.Fprintf(&rut, birdCommon, l.birdSocket("rut"), at(1, false))
	fmt.Fprintf(&peer, birdCommon, l.birdSocket("peer"), at(2, false))
	for _, f := range []struct {
		name   string
		ipv6   bool
		family bgpFamily
		all    string
	}{{"4", false, wellKnown4, "0.0.0.0/0"}, {"6", true, wellKnown6, "::/0"}} {
		fmt.Fprintf(&rut, birdAllRut, f.name, at(1, f.ipv6), asRut, at(2, f.ipv6), asPeer)
		fmt.Fprintf(&peer, birdAllPeer, f.name, at(1, f.ipv6), asRut, at(2, f.ipv6), asPeer, lines(f.family.valid, birdRoute), at(3, f.ipv6), f.all)
	}
	culvert := fmt.Sprintf(allConfig, `"`+strings.Join(l.allInterfaces(), `", "`)+`"`, router,
		asRut, at(3, false), at(2, false), asPeer, at(2, true), at(3, true)) + lbVIPsConfig(allBackends, false)
	if err := os.MkdirAll(filepath.Dir(l.All.DropIn), 0o755); err != nil {
		return fmt.Errorf("write the lab's configuration: %w", err)
	}
	return join(
		writeFile(l.birdConfig("rut"), rut.String()), writeFile(l.birdConfig("peer"), peer.String()),
		writeFile(l.All.Config, culvert), writeFile(l.All.DropIn, fmt.Sprintf(allFilter, l.All.Protected)),
		writeFile(l.file("blocked.txt"), l.All.Blocked.String()+"\n"),
	)
}
