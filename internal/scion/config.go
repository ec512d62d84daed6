// SPDX-License-Identifier: Apache-2.0

// Package scion runs a SCION border router on top of the data path: it reads the reference
// router's configuration, keeps that router's own data plane as the slow path, and keeps the data
// path's maps in step with BFD, neighbours and keys.
package scion

import (
	"path/filepath"

	"github.com/scionproto/scion/private/env"
	"github.com/scionproto/scion/router/config"
	"github.com/scionproto/scion/router/control"

	"culvert/internal/scion/scionplane"
)

// Router is the checked configuration of one border router.
type Router struct {
	// Path is the TOML file that all of this was read from.
	Path string
	// Config is the TOML file with defaults filled in.
	Config config.Config
	// Control is what the reference data plane is configured with.
	Control *control.Config
	// Datapath is what the fast path is configured with.
	Datapath scionplane.Config
	// BFD tells for each of Datapath.Links whether a BFD session watches it.
	BFD []bool
	// Key is the forwarding key derived from keys/master0.key; nil when there is no key file,
	// which only LoadTopologyOnly permits.
	Key *[16]byte

	// fields names, for each of Datapath.Links, the topology field that holds its local address.
	fields []string
}

// ID returns the name of the router in the topology.
func (r *Router) ID() string { return r.Config.General.ID }

// TopologyPath returns the file that the topology was read from.
func (r *Router) TopologyPath() string {
	return filepath.Join(r.Config.General.ConfigDir, env.TopologyFile)
}

// Load reads and checks everything that the router's TOML file at path leads to: the file itself,
// the topology and the keys. Nothing is opened or changed. An error is one line that names the
// file and the field.
func Load(path string) (*Router, error) {
	return load(path, true)
}

// LoadTopologyOnly is Load for a data plane that gets its keys by hand: the key files may be
// absent, though not broken.
func LoadTopologyOnly(path string) (*Router, error) {
	return load(path, false)
}

func load(path string, needKeys bool) (*Router, error) {
	cfg, err := loadTOML(path)
	if err != nil {
		return nil, err
	}
	r := &Router{Path: path, Config: cfg}
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
