// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/scionproto/scion/pkg/private/util"
	"github.com/scionproto/scion/pkg/segment/iface"
	topojson "github.com/scionproto/scion/private/topology/json"
)

// Ports, the customary ones of SCION.
const (
	internalPort   = 30042 // border router, inside the AS
	externalPort   = 50000 // border router, on a link to another AS
	controlPort    = 30252
	daemonPort     = 30255
	routerMetrics  = 30442
	controlMetrics = 30452
	daemonMetrics  = 30455
)

// bfdMultiplier is after how many missed packets a BFD session is down.
const bfdMultiplier = 5

// AS is one SCION AS of a lab.
type AS struct {
	NS     string `json:"ns"`                // namespace of its router and services
	HostNS string `json:"host_ns,omitempty"` // namespace of an end host on its internal network
	IA     string `json:"isd_as"`
	Core   bool   `json:"core"`
	// Router says which router is in use. Empty in topology veth, which
	// starts none.
	Router Router `json:"router,omitempty"`
	// RouterID is the router's name in topology.json.
	RouterID string `json:"router_id"`
	// ConfigDir holds topology.json, keys, certs and crypto.
	ConfigDir string `json:"config_dir"`
	// RouterConfig is the router's own TOML file.
	RouterConfig string `json:"router_config"`
	// Keys is the directory of master0.key and master1.key.
	Keys string `json:"keys"`
	// Internal is the address of the router inside the AS.
	Internal netip.AddrPort `json:"internal"`
	// RouterAPI is where the router serves its metrics and its status, within
	// the namespace.
	RouterAPI netip.AddrPort `json:"router_api"`
	// Host is the end host's address inside the AS, in the namespace HostNS.
	Host netip.Addr `json:"host"`
	// Daemon is where the tools find the AS's daemon.
	Daemon string `json:"daemon,omitempty"`
	// Links are the router's external interfaces.
	Links []ASLink `json:"links"`
}

// ASLink is an external SCION interface of a router.
type ASLink struct {
	ID        uint16         `json:"id"`
	Interface string         `json:"interface"` // the veth that carries it, empty for a sibling's
	Local     netip.AddrPort `json:"local"`
	Remote    netip.AddrPort `json:"remote"`
	RemoteIA  string         `json:"remote_isd_as"`
	RemoteID  uint16         `json:"remote_id"`
	LinkTo    string         `json:"link_to"` // core, parent, child or peer
}

// sibling is another router of the AS, with the interfaces that it owns.
type sibling struct {
	id       string
	internal netip.AddrPort
	links    []ASLink
}

// fileIA is an ISD-AS as it is written in names: 1-ff00_0_1.
func fileIA(ia string) string { return strings.ReplaceAll(ia, ":", "_") }

func routerID(ia string, n int) string { return fmt.Sprintf("br%s-%d", fileIA(ia), n) }
func controlID(ia string) string       { return "cs" + fileIA(ia) + "-1" }

// scionMTU is the largest SCION packet that fits an underlay packet of mtu
// bytes, after the IP and UDP headers.
func scionMTU(mtu int, ipv6 bool) int {
	if ipv6 {
		return mtu - 40 - 8
	}
	return mtu - 20 - 8
}

// writeTopology writes topology.json. A bfd interval of zero turns BFD off on
// the links.
func writeTopology(as AS, siblings []sibling, control netip.AddrPort, mtu int, bfd time.Duration) error {
	interfaces := func(links []ASLink) map[iface.ID]*topojson.BRInterface {
		m := make(map[iface.ID]*topojson.BRInterface)
		for _, l := range links {
			m[iface.ID(l.ID)] = &topojson.BRInterface{
				Underlay:   topojson.Underlay{Local: l.Local.String(), Remote: l.Remote.String()},
				IA:         l.RemoteIA,
				LinkTo:     l.LinkTo,
				MTU:        mtu,
				BFD:        bfdConfig(bfd),
				RemoteIfID: iface.ID(l.RemoteID),
			}
		}
		return m
	}
	t := topojson.Topology{
		IA:               as.IA,
		MTU:              mtu,
		EndhostPortRange: "31000-32767",
		Attributes:       topojson.Attributes{},
		BorderRouters: map[string]*topojson.BRInfo{
			as.RouterID: {InternalAddr: as.Internal.String(), Interfaces: interfaces(as.Links)},
		},
		ControlService:   map[string]*topojson.ServerInfo{controlID(as.IA): {Addr: control.String()}},
		DiscoveryService: map[string]*topojson.ServerInfo{controlID(as.IA): {Addr: control.String()}},
	}
	if as.Core {
		t.Attributes = append(t.Attributes, topojson.AttrCore)
	}
	for _, s := range siblings {
		t.BorderRouters[s.id] = &topojson.BRInfo{
			InternalAddr: s.internal.String(), Interfaces: interfaces(s.links),
		}
	}
	b, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return fmt.Errorf("encode topology of %s: %w", as.IA, err)
	}
	return os.WriteFile(filepath.Join(as.ConfigDir, "topology.json"), append(b, '\n'), 0o644)
}

func bfdConfig(interval time.Duration) *topojson.BFD {
	if interval == 0 {
		off := true
		return &topojson.BFD{Disable: &off}
	}
	return &topojson.BFD{
		DetectMult:            bfdMultiplier,
		DesiredMinTxInterval:  util.DurWrap{Duration: interval},
		RequiredMinRxInterval: util.DurWrap{Duration: interval},
	}
}

// writeKeys writes two random master keys of 16 bytes, in base64, the older of
// which the routers derive their forwarding key from.
func writeKeys(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"master0.key", "master1.key"} {
		var key [16]byte
		if _, err := rand.Read(key[:]); err != nil {
			return fmt.Errorf("make a random key: %w", err)
		}
		text := base64.StdEncoding.EncodeToString(key[:]) + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// section is a table of a TOML file.
type section = map[string]any

// writeConfig writes the TOML file of an AS's program that has a name in the
// topology and serves its metrics at api.
func writeConfig(path, id string, as AS, api netip.AddrPort, more map[string]section) error {
	conf := map[string]section{
		"general": {"id": id, "config_dir": as.ConfigDir},
		"metrics": {"prometheus": api.String()},
	}
	maps.Copy(conf, more)
	return writeTOML(path, conf)
}

// writeTOML writes the TOML file of a SCION program, all of which log alike.
func writeTOML(path string, conf map[string]section) error {
	conf["log"] = section{"console": section{"level": "info"}}
	b, err := toml.Marshal(conf)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return os.WriteFile(path, b, 0o644)
}

// writeRouterConfig writes the router's TOML file. Without BFD on the links it
// is turned off towards siblings too.
func writeRouterConfig(as AS, bfd time.Duration) error {
	more := map[string]section{}
	if bfd == 0 {
		more["router"] = section{"bfd": section{"disable": true}}
	}
	return writeConfig(as.RouterConfig, as.RouterID, as, as.RouterAPI, more)
}
