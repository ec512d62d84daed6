// SPDX-License-Identifier: Apache-2.0

package scion

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strconv"

	"github.com/scionproto/scion/pkg/addr"
	"github.com/scionproto/scion/pkg/private/util"
	"github.com/scionproto/scion/pkg/segment/iface"
	"github.com/scionproto/scion/private/topology"
	jsontopo "github.com/scionproto/scion/private/topology/json"
	"github.com/scionproto/scion/private/underlay/conn"

	"culvert/internal/config/tomltext"
)

// loadTopology reads topology.json with scionproto's own parser. The errors of that parser do not name the field, so
// checks of single fields come first. Toml is the router's TOML file, which names the directory.
func loadTopology(path, toml string) (topology.Topology, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, missing(path, toml, "the AS's topology", err)
	}
	old, err := decodeOldNames(path, raw)
	if err != nil {
		return nil, err
	}
	var topo jsontopo.Topology
	if err := json.Unmarshal(raw, &topo); err != nil {
		return nil, jsonError(path, raw, err)
	}
	if err := checkTopology(path, &topo); err != nil {
		return nil, err
	}
	old.fill(&topo)
	if err := checkRouters(path, &topo); err != nil {
		return nil, err
	}
	rw, err := topology.RWTopologyFromJSONTopology(&topo)
	if err != nil {
		return nil, &fileError{file: path, cause: errors.New(oneLine(err))}
	}
	return topology.FromRWTopology(rw), nil
}

// jsonError turns an error of the decoder into one that names the line, and the field if the decoder knows it.
func jsonError(path string, raw []byte, err error) error {
	bad := badField(path)
	line := func(offset int64) string {
		n, _ := lineColumn(raw, int(offset))
		return fmt.Sprintf("line %d", n)
	}
	at := func(err error, offset int64) error {
		n, column := lineColumn(raw, int(offset))
		return atPosition(err, n, max(column-1, 1)) // the decoder has read the byte already
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return at(bad(line(syntax.Offset), "not JSON: %v", syntax), syntax.Offset)
	}
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		field := line(wrongType.Offset)
		if wrongType.Field != "" {
			field += ": " + wrongType.Field
		}
		return at(bad(field, "want %s, found %s", wantJSON(wrongType.Type), wrongType.Value), wrongType.Offset)
	}
	return &fileError{file: path, cause: errors.New(oneLine(err))}
}

// wantJSON describes the JSON values that a field of type t accepts.
func wantJSON(t reflect.Type) string {
	if w := tomltext.Want(t.String()); w != "a table" {
		return w
	}
	return "an object in braces"
}

// oldNames holds the parts of a topology that scionproto's parser ignores, and those whose errors do not name the field.
// Ignored are `public`, the name of `local` in older files, and `bind`. The others are durations.
type oldNames struct {
	BorderRouters map[string]*struct {
		Interfaces map[string]*struct {
			Underlay struct {
				Public string `json:"public"`
				Bind   string `json:"bind"`
			} `json:"underlay"`
			BFD struct {
				Tx any `json:"desired_min_tx_interval"`
				Rx any `json:"required_min_rx_interval"`
			} `json:"bfd"`
		} `json:"interfaces"`
	} `json:"border_routers"`
}

// decodeOldNames reads oldNames and checks the durations. It also checks the interface IDs, which the reference truncates
// to 16 bits without an error.
func decodeOldNames(path string, raw []byte) (*oldNames, error) {
	var old oldNames
	if err := json.Unmarshal(raw, &old); err != nil {
		return nil, jsonError(path, raw, err)
	}
	bad := badField(path)
	for _, name := range slices.Sorted(maps.Keys(old.BorderRouters)) {
		br := old.BorderRouters[name]
		if br == nil {
			return nil, bad("border_routers."+name, "null: describe the router or remove it")
		}
		for _, id := range slices.Sorted(maps.Keys(br.Interfaces)) {
			field := fmt.Sprintf("border_routers.%s.interfaces.%s", name, id)
			if n, err := strconv.ParseUint(id, 10, 16); err != nil || n == 0 {
				return nil, bad(field, "not an interface ID: use 1 to 65535")
			}
			if br.Interfaces[id] == nil {
				return nil, bad(field, "null: describe the interface or remove it")
			}
			if br.Interfaces[id].Underlay.Bind != "" {
				return nil, bad(field+".underlay.bind", "no longer understood: write the address to bind as underlay.local")
			}
			bfd := br.Interfaces[id].BFD
			if err := checkDuration(bad, field+".bfd.desired_min_tx_interval", bfd.Tx); err != nil {
				return nil, err
			}
			if err := checkDuration(bad, field+".bfd.required_min_rx_interval", bfd.Rx); err != nil {
				return nil, err
			}
		}
	}
	return &old, nil
}

// checkDuration checks the JSON value of a duration, which is nil if the field is not set.
func checkDuration(bad func(string, string, ...any) error, field string, value any) error {
	if value == nil {
		return nil
	}
	text, ok := value.(string)
	if d, err := util.ParseDuration(text); !ok || err != nil || d < 0 {
		return bad(field, `%q is not a duration: write it as "200ms"`, fmt.Sprint(value))
	}
	return nil
}

// checkMTU refuses an MTU that is not set or does not fit into 16 bits, which the reference keeps it in.
func checkMTU(bad func(string, string, ...any) error, field string, mtu int) error {
	const most = 65535
	switch {
	case mtu == 0:
		return bad(field, "not set: write the number of bytes, such as 1472")
	case mtu < 0 || mtu > most:
		return bad(field, "%d is no MTU: use 1 to %d bytes", mtu, most)
	}
	return nil
}

// fill copies each `public` to a `local` that is not set.
func (o *oldNames) fill(topo *jsontopo.Topology) {
	for name, br := range o.BorderRouters {
		for id, intf := range br.Interfaces {
			n, _ := strconv.ParseUint(id, 10, 16)
			underlay := &topo.BorderRouters[name].Interfaces[iface.ID(n)].Underlay
			if underlay.Local == "" {
				underlay.Local = intf.Underlay.Public
			}
		}
	}
}

// checkTopology checks all fields but those of border routers.
func checkTopology(path string, topo *jsontopo.Topology) error {
	bad := badField(path)
	ia, err := addr.ParseIA(topo.IA)
	switch {
	case topo.IA == "":
		return bad("isd_as", "not set: write it as 1-ff00:0:110")
	case err != nil:
		return bad("isd_as", "%q: write it as 1-ff00:0:110", topo.IA)
	case ia.IsWildcard():
		return bad("isd_as", "%s has a wildcard: write the AS's own number", ia)
	}
	if err := checkMTU(bad, "mtu", topo.MTU); err != nil {
		return err
	}
	head := jsontopo.Topology{IA: topo.IA, EndhostPortRange: topo.EndhostPortRange}
	if _, err := topology.RWTopologyFromJSONTopology(&head); err != nil {
		return bad("dispatched_ports", `%s: write it as MIN-MAX, "all" or "-"`, oneLine(err))
	}
	for _, group := range []struct {
		name    string
		servers map[string]*jsontopo.ServerInfo
	}{
		{"control_service", topo.ControlService},
		{"discovery_service", topo.DiscoveryService},
		{"hidden_segment_lookup_service", topo.HiddenSegmentLookup},
		{"hidden_segment_registration_service", topo.HiddenSegmentReg},
	} {
		for _, name := range slices.Sorted(maps.Keys(group.servers)) {
			field := fmt.Sprintf("%s.%s.addr", group.name, name)
			server := group.servers[name]
			if server == nil {
				return bad(group.name+"."+name, "null: describe the server or remove it")
			}
			if _, err := conn.ResolveAddrPort(server.Addr); err != nil {
				return bad(field, "%q: %s: write it as ADDR:PORT", server.Addr, oneLine(err))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(topo.SIG)) {
		if topo.SIG[name] == nil {
			return bad("sigs."+name, "null: describe the gateway or remove it")
		}
	}
	return nil
}

// checkRouters checks all border routers. Siblings are included, because the reference does not start if an address of a
// sibling's link does not parse.
func checkRouters(path string, topo *jsontopo.Topology) error {
	bad := badField(path)
	owner := map[iface.ID]string{}
	for _, name := range slices.Sorted(maps.Keys(topo.BorderRouters)) {
		br := topo.BorderRouters[name]
		field := "border_routers." + name
		internal, err := conn.ResolveAddrPort(br.InternalAddr)
		switch {
		case br.InternalAddr == "":
			return bad(field+".internal_addr", "not set: write it as ADDR:PORT")
		case err != nil:
			return bad(field+".internal_addr", "%q: %s: write it as ADDR:PORT", br.InternalAddr, oneLine(err))
		case internal.Port() == 0 || !internal.IsValid() || internal.Addr().IsUnspecified():
			return bad(field+".internal_addr", "%q: write the router's own address and its port", br.InternalAddr)
		}
		for _, id := range slices.Sorted(maps.Keys(br.Interfaces)) {
			intf := fmt.Sprintf("%s.interfaces.%d", field, id)
			if other, ok := owner[id]; ok {
				return bad(intf, "border router %s has an interface %d already: IDs are unique in an AS", other, id)
			}
			owner[id] = name
			if err := checkInterface(bad, intf, topo, name, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkInterface checks interface id of the border router called name.
func checkInterface(bad func(string, string, ...any) error, field string, topo *jsontopo.Topology,
	name string, id iface.ID) error {

	intf := topo.BorderRouters[name].Interfaces[id]
	if ia, err := addr.ParseIA(intf.IA); err != nil || ia.IsZero() {
		return bad(field+".isd_as", "%q: write the neighbor's number as 1-ff00:0:110", intf.IA)
	}
	if topology.LinkTypeFromString(intf.LinkTo) == topology.Unset {
		return bad(field+".link_to", "%q: use core, parent, child or peer", intf.LinkTo)
	}
	// Only the control service needs the MTU of a link.
	if intf.MTU != 0 {
		if err := checkMTU(bad, field+".mtu", intf.MTU); err != nil {
			return err
		}
	}
	local, err := checkAddress(bad, field+".underlay.local", intf.Underlay.Local)
	if err != nil {
		return err
	}
	remote, err := checkAddress(bad, field+".underlay.remote", intf.Underlay.Remote)
	if err != nil {
		return err
	}
	if local.Addr().Unmap().Is4() != remote.Addr().Unmap().Is4() {
		return bad(field+".underlay.remote", "%s and the local address %s are of different IP versions", remote, local)
	}
	alone := jsontopo.Topology{IA: topo.IA, Attributes: topo.Attributes,
		BorderRouters: map[string]*jsontopo.BRInfo{name: {
			InternalAddr: topo.BorderRouters[name].InternalAddr,
			Interfaces:   map[iface.ID]*jsontopo.BRInterface{id: intf},
		}}}
	if _, err := topology.RWTopologyFromJSONTopology(&alone); err != nil {
		return bad(field+".link_to", "%s: attributes say whether this AS is core", oneLine(err))
	}
	return nil
}

// checkAddress parses the underlay address of one end of a link. The reference accepts an address and a port, but no host
// name.
func checkAddress(bad func(string, string, ...any) error, field, text string) (netip.AddrPort, error) {
	if text == "" {
		return netip.AddrPort{}, bad(field, "not set: write it as ADDR:PORT")
	}
	a, err := netip.ParseAddrPort(text)
	if err != nil {
		return a, bad(field, "%q is not an address and port: write it as ADDR:PORT", text)
	}
	if a.Port() == 0 || a.Addr().IsUnspecified() || a.Addr().IsMulticast() {
		return a, bad(field, "%q: write one host's address and its port", text)
	}
	return a, nil
}
