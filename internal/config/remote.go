// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"errors"

	"github.com/pelletier/go-toml/v2/unstable"
)

// Remote is a document of a cluster, which is merged behind the file and its drop-ins.
type Remote struct {
	// Name is what errors call it, in the place of a file's path: "etcd:role/edge".
	Name string
	Text []byte
	// Dir is where relative paths in it start.
	Dir string
}

// errClusterInDocument says that a document of the cluster cannot say where the cluster is.
var errClusterInDocument = errors.New("[cluster] in a document of the cluster: only the node's own file says which cluster it is part of")

// addRemote adds documents behind those that are there.
func (s *source) addRemote(more []Remote) {
	for _, r := range more {
		s.documents = append(s.documents, document{path: r.Name, text: r.Text, remote: true, dir: r.Dir})
	}
}

// checkRemote refuses what only the node's own file may have.
func (s *source) checkRemote() error {
	var errs Errors
	for n, d := range s.documents {
		if !d.remote {
			continue
		}
		if line, column := clusterIn(d.text); line > 0 {
			errs.Add(s.locate(place{document: n, line: line, column: column}, errClusterInDocument))
		}
	}
	return errs.Err()
}

// clusterIn returns the first position at which a document has the table [cluster], 0 for none.
func clusterIn(text []byte) (line, column int) {
	if !bytes.Contains(text, []byte(ClusterTable)) {
		return 0, 0
	}
	var p unstable.Parser
	p.Reset(text)
	inside := false
	for p.NextExpression() {
		e := p.Expression()
		keys := e.Key()
		if !keys.Next() {
			continue
		}
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			inside = true
		case unstable.KeyValue:
			if inside { // of some table
				continue
			}
		default:
			continue
		}
		if string(keys.Node().Data) == ClusterTable {
			at := p.Shape(keys.Node().Raw).Start
			return at.Line, at.Column
		}
	}
	return 0, 0
}

// IsRemote tells whether a document of a cluster has a key of the table, as opposed to a file of this host.
func (p Position) IsRemote(key string) bool {
	if p.source == nil {
		return false
	}
	at, ok := p.find(key)
	return ok && p.source.documents[at.document].remote
}
