// SPDX-License-Identifier: Apache-2.0

// Package scion runs a SCION border router on a data plane: it reads the reference router's
// configuration, runs that router's own data plane as the slow path, and updates the fast path's
// maps when BFD sessions, neighbors or keys change.
package scion

import (
	"path/filepath"

	"github.com/scionproto/scion/private/env"
	"github.com/scionproto/scion/router/config"
	"github.com/scionproto/scion/router/control"

	"culvert/internal/scion/keyring"
	"culvert/internal/scion/scionplane"
)

// Router is the checked configuration of one border router.
type Router struct {
	// Path is the reference router's TOML file.
	Path string
	// Config is the content of that file with defaults filled in.
	Config config.Config
	// Control is the configuration of the reference's data plane.
	Control *control.Config
	// Datapath is the configuration of the fast path.
	Datapath scionplane.Config
	// BFD tells for each of Datapath.Links whether a BFD session watches it.
	BFD []bool
	// Keys are the forwarding keys, in the order in which they begin to be valid. Without a schedule there is one, derived from
	// keys/master0.key, or none if there is no such file, which only LoadTopologyOnly permits.
	Keys []keyring.Key
	// keysLoaded says that none of them is missing.
	keysLoaded bool

	// fragment says that packets which are too big for their way leave in IP fragments, as the reference sends them.
	fragment bool
	// discriminators are those that links have had, in an earlier process or under a former configuration.
	discriminators map[scionplane.Pair]uint32
	// fields names, for each of Datapath.Links, the topology field that holds its local address.
	fields []string
	// schedule has the tables that Keys are read from, none without a schedule.
	schedule []KeyTable
}

// ID returns the router's name in the topology.
func (r *Router) ID() string { return r.Config.General.ID }

// TopologyPath returns the file that the topology was read from.
func (r *Router) TopologyPath() string {
	return filepath.Join(r.Config.General.ConfigDir, env.TopologyFile)
}

// Load reads and checks the router's TOML file at path, and the topology and the keys that it names. It opens no socket
// and changes nothing. An error is one line that names the file and the field.
func Load(path string) (*Router, error) {
	return load(path, nil, true)
}

// LoadTopologyOnly is Load for a data plane that gets its keys by hand: the key files may be missing. A key file that
// does not parse is an error all the same.
func LoadTopologyOnly(path string) (*Router, error) {
	return load(path, nil, false)
}

// LoadTable is LoadTopologyOnly for the router's file and the keys that a table names.
func LoadTable(t *Table) (*Router, error) { return load(t.Config, t.Key, false) }

func load(path string, schedule []KeyTable, needKeys bool) (*Router, error) {
	cfg, err := loadTOML(path)
	if err != nil {
		return nil, err
	}
	r := &Router{Path: path, Config: cfg, schedule: schedule}
	topo, err := loadTopology(r.TopologyPath(), path)
	if err != nil {
		return nil, err
	}
	br, err := ownRouter(r, topo)
	if err != nil {
		return nil, err
	}
	r.Control = &control.Config{Topo: topo, IA: topo.IA(), BR: br}
	if err := r.fillDatapath(); err != nil {
		return nil, err
	}
	if err := r.loadKeys(needKeys); err != nil {
		return nil, err
	}
	return r, nil
}
