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

// Ports of the SCION programs, as their documentation has them.
const (
	internalPort   = 30042 // border router, inside the AS
	externalPort   = 50000 // border router, on a link to another AS
	controlPort    = 30252
	daemonPort     = 30255
	routerMetrics  = 30442
	controlMetrics = 30452
	daemonMetrics  = 30455
)

// bfdMultiplier is the number of missed packets after which a BFD session is down.
const bfdMultiplier = 5

// AS is one SCION AS of a lab.
type AS struct {
	NS     string `json:"ns"`                // namespace of its router and services
	HostNS string `json:"host_ns,omitempty"` // namespace of an end host on its internal network
	IA     string `json:"isd_as"`
	Core   bool   `json:"core"`
	// Router is the kind of router in use. It is empty in topology veth, which
	// starts none.
	Router Router `json:"router,omitempty"`
	// RouterID is the router's name in topology.json.
	RouterID string `json:"router_id"`
	// ConfigDir is the directory of topology.json, keys, certs and crypto.
	ConfigDir string `json:"config_dir"`
	// RouterConfig is the path of the router's TOML file.
	RouterConfig string `json:"router_config"`
	// Keys is the directory of master0.key and master1.key.
	Keys string `json:"keys"`
	// Internal is the address of the router inside the AS.
	Internal netip.AddrPort `json:"internal"`
	// RouterAPI is the address of the router's metrics and status pages, in its
	// namespace.
	RouterAPI netip.AddrPort `json:"router_api"`
	// Host is the address of an end host of the AS, in the namespace HostNS.
	Host netip.Addr `json:"host"`
	// Daemon is the address of the AS's daemon.
	Daemon string `json:"daemon,omitempty"`
	// Links are the router's external interfaces.
	Links []ASLink `json:"links"`
}

// ASLink is an external SCION interface of a router.
type ASLink struct {
	ID        uint16         `json:"id"`
	Interface string         `json:"interface"` // the veth of the link, "" for an interface of a sibling
	Local     netip.AddrPort `json:"local"`
	Remote    netip.AddrPort `json:"remote"`
	RemoteIA  string         `json:"remote_isd_as"`
	RemoteID  uint16         `json:"remote_id"`
	LinkTo    string         `json:"link_to"` // core, parent, child or peer
}

// sibling is another router of the AS, with its external interfaces.
type sibling struct {
	id       string
	internal netip.AddrPort
	links    []ASLink
}

// fileIA returns an ISD-AS as it is written in names of files and routers: 1-ff00_0_1.
func fileIA(ia string) string { return strings.ReplaceAll(ia, ":", "_") }

func routerID(ia string, n int) string { return fmt.Sprintf("br%s-%d", fileIA(ia), n) }
func controlID(ia string) string       { return "cs" + fileIA(ia) + "-1" }

// scionMTU returns the size in bytes of the largest SCION packet that fits into an
// underlay packet of mtu bytes, behind the IP and UDP headers.
func scionMTU(mtu int, ipv6 bool) int {
	if ipv6 {
		return mtu - 40 - 8
	}
	return mtu - 20 - 8
}

// writeTopology writes topology.json. With a bfd interval of 0 the links have no BFD.
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

// writeKeys writes two random master keys of 16 bytes in base64. Routers derive their
// forwarding key from master0.key.
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

// writeConfig writes the TOML file of a program of an AS. id is the program's name,
// and api the address of its metrics.
func writeConfig(path, id string, as AS, api netip.AddrPort, more map[string]section) error {
	conf := map[string]section{
		"general": {"id": id, "config_dir": as.ConfigDir},
		"metrics": {"prometheus": api.String()},
	}
	maps.Copy(conf, more)
	return writeTOML(path, conf)
}

// writeTOML writes the TOML file of a SCION program, with the same settings for the
// log in all of them.
func writeTOML(path string, conf map[string]section) error {
	conf["log"] = section{"console": section{"level": "info"}}
	b, err := toml.Marshal(conf)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return os.WriteFile(path, b, 0o644)
}

// writeRouterConfig writes the router's TOML file. If the links have no BFD, it turns
// BFD to siblings off too.
func writeRouterConfig(as AS, bfd time.Duration) error {
	more := map[string]section{}
	if bfd == 0 {
		more["router"] = section{"bfd": section{"disable": true}}
	}
	return writeConfig(as.RouterConfig, as.RouterID, as, as.RouterAPI, more)
}
