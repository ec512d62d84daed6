// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/pelletier/go-toml/v2"

	"culvert/internal/cluster"
)

// ClusterTable is the name of the table that makes a node part of a cluster.
const ClusterTable = "cluster"

// DefaultClusterDir is where a node keeps what it needs when etcd cannot be reached.
const DefaultClusterDir = "/var/lib/culvert/cluster"

// Cluster says where a node finds the documents and urgent changes of its cluster.
type Cluster struct {
	// Name is that of the cluster.
	Name string `toml:"name"`
	// Endpoints are the members of etcd, as "https://192.0.2.1:2379".
	Endpoints []string `toml:"endpoints"`
	// TLS is nil where all endpoints are on loopback and begin with http.
	TLS *ClusterTLS `toml:"tls"`
	// Node is the name of the node, that of the host unless it is set.
	Node string `toml:"node"`
	// Roles are those of the node. Their documents are merged in this order.
	Roles []string `toml:"roles"`
	// StateDir is the directory of the last good documents, DefaultClusterDir unless it is set.
	StateDir string `toml:"state_dir"`

	Position `toml:"-"`
}

// ClusterTLS names files in PEM. Relative paths start at the directory of the configuration file.
type ClusterTLS struct {
	// CA has the certificates of the cluster's authority.
	CA string `toml:"ca"`
	// Cert and Key are the node's own.
	Cert string `toml:"cert"`
	Key  string `toml:"key"`
}

// check fills in defaults.
func (c *Cluster) check(at Position) error {
	if c == nil {
		return nil
	}
	c.Position = at
	var errs Errors
	refuse := func(key, format string, args ...any) { errs.Add(at.Locate(key, fmt.Errorf(format, args...))) }
	if c.Name == "" {
		refuse("", "[cluster] has no name: give it that of the cluster, as in 'culvert cluster init NAME'")
	} else if err := cluster.CheckName(c.Name); err != nil {
		refuse("name", "name: %w", err)
	}
	if c.Node == "" {
		host, err := os.Hostname()
		if err == nil {
			err = cluster.CheckName(host)
		}
		if err != nil {
			refuse("", "[cluster] has no node, and the name of this host is none for a node: %w; set node", err)
		}
		c.Node = host
	} else if err := cluster.CheckName(c.Node); err != nil {
		refuse("node", "node: %w", err)
	}
	for i, role := range c.Roles {
		key := fmt.Sprintf("roles[%d]", i)
		if err := cluster.CheckName(role); err != nil {
			refuse(key, "roles: %w", err)
		} else if slices.Contains(c.Roles[:i], role) {
			refuse(key, "roles names %s twice: leave one out", role)
		}
	}
	if c.StateDir == "" {
		c.StateDir = DefaultClusterDir
	}
	c.StateDir = at.Relative("state_dir", c.StateDir)
	errs.Add(c.checkEndpoints(at))
	errs.Add(c.checkTLS(at))
	return errs.Err()
}

// checkEndpoints refuses endpoints that nobody can reach, and those that would take secrets over a network in the clear.
func (c *Cluster) checkEndpoints(at Position) error {
	if len(c.Endpoints) == 0 {
		return at.Locate("", errors.New(`[cluster] has no endpoints: name the members of etcd, as endpoints = ["https://192.0.2.1:2379"]`))
	}
	var errs Errors
	for i, e := range c.Endpoints {
		key := fmt.Sprintf("endpoints[%d]", i)
		u, err := url.Parse(e)
		switch {
		case err != nil || u.Host == "" || u.Port() == "" || u.Path != "" || u.Scheme != "https" && u.Scheme != "http":
			errs.Add(at.Locate(key, fmt.Errorf("endpoint %q: write it as https://ADDRESS:PORT", e)))
		case u.Scheme == "http" && c.TLS != nil:
			errs.Add(at.Locate(key, fmt.Errorf("endpoint %q beside [cluster.tls]: it begins with https", e)))
		case u.Scheme == "https" && c.TLS == nil:
			errs.Add(at.Locate(key, fmt.Errorf("endpoint %q without [cluster.tls]: name ca, cert and key there", e)))
		case u.Scheme == "http" && !Loopback(net.JoinHostPort(u.Hostname(), u.Port())):
			errs.Add(at.Locate(key, fmt.Errorf("endpoint %q is on another machine: use https, with [cluster.tls]", e)))
		}
	}
	return errs.Err()
}

// checkTLS wants all of the files to be named. Whether they are good is known when the node connects.
func (c *Cluster) checkTLS(at Position) error {
	if c.TLS == nil {
		return nil
	}
	in := at.In("tls")
	var errs Errors
	for _, f := range []struct {
		key  string
		path *string
	}{{"ca", &c.TLS.CA}, {"cert", &c.TLS.Cert}, {"key", &c.TLS.Key}} {
		if *f.path == "" {
			errs.Add(in.Locate("", fmt.Errorf("[cluster.tls] has no %s: name the file", f.key)))
			continue
		}
		*f.path = in.Relative(f.key, *f.path)
	}
	return errs.Err()
}

// SetsDir is where the node keeps the sets of the cluster's documents, and where relative paths in documents start.
func (c *Cluster) SetsDir() string { return filepath.Join(c.StateDir, "sets") }

// ReadCluster returns the table [cluster] of the file at path with its drop-ins, nil if there is none. The rest of the files is not
// looked at: it may need documents of the cluster to be whole.
func ReadCluster(path string) (*Cluster, error) {
	s, err := readSource(path)
	if err != nil {
		return nil, err
	}
	var found *Cluster
	for number, d := range s.documents {
		var file struct {
			Cluster *Cluster `toml:"cluster"`
		}
		if err := toml.Unmarshal(d.text, &file); err != nil {
			err, _ := s.describe(number, &file, err)
			return nil, err
		}
		if found == nil {
			found = file.Cluster
		}
	}
	if found == nil {
		return nil, nil
	}
	_ = s.index() // a key that is set twice is an error of Load
	return found, found.check(Position{source: s}.In(ClusterTable))
}
