// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// LoadFragments reads documents that nodes add to their own files, merged as they merge them, and checks them as far as that needs
// neither the file nor the host of a node. settled are the errors that no file of a node can mend. open are the others, as a
// key that is missing: a node's file may have it. The tables of stages with errors are left out of the Node, which is nil if the
// documents cannot be decoded.
func LoadFragments(documents []Remote, parts []Part) (n *Node, settled, open []error) {
	s := &source{}
	s.addRemote(documents)
	n, err := s.decode(parts)
	if err != nil {
		settled = append(settled, All(err)...)
	}
	if n == nil {
		return nil, Sorted(Errors(settled)), nil
	}
	var errs Errors
	errs.Add(n.checkLifecycle(n.Position))
	errs.Add(n.checkLogLevel(n.Position))
	errs.Add(n.Workers.check(n.In("workers")))
	errs.Add(n.Web.check(n.In("web")))
	if n.Mode != ModeNative && n.Mode != ModeGeneric {
		errs.Add(n.Locate("mode", fmt.Errorf("mode = %q: use %q or %q", n.Mode, ModeNative, ModeGeneric)))
	}
	for name, t := range n.Tables {
		err := t.Check(n.In(name))
		errs.Add(err)
		if _, ok := t.(Salvager); err != nil && !ok {
			delete(n.Tables, name)
		}
	}
	settled = append(settled, s.secrets()...)
	more, open := n.Settled(errs)
	return n, Sorted(Errors(append(settled, more...))), Sorted(Errors(open))
}

// Settled tells apart the errors of documents that hold whatever the file of a node has, and those that a file or a host decides.
func (n *Node) Settled(all []error) (settled, open []error) {
	for _, err := range all {
		if n.source.settled(err) {
			settled = append(settled, err)
		} else {
			open = append(open, err)
		}
	}
	return settled, open
}

// settled tells whether an error is about a value in the documents, or about a table of a list, which is whole in one
// document. A file that is named is one of a node's host, unless it has the entries of a set.
func (s *source) settled(err error) bool {
	var at *Error
	if !errors.As(err, &at) || at.Line == 0 {
		return false
	}
	sure := false
	for key, p := range s.places {
		if p.document != at.document || p.line != at.Line || p.column != at.Column {
			continue
		}
		if onHost(key) {
			return false
		}
		sure = sure || p.leaf || strings.Contains(key, "[")
	}
	return sure
}

// onHost tells whether the value of a key is a file or directory of a node.
func onHost(key string) bool {
	return strings.HasSuffix(key, "_file") || strings.HasSuffix(key, "_dir") || key == "scion.config"
}

// secretKeys are keys whose values are secrets, without the indexes of lists. What is in etcd is read by every node.
var secretKeys = []string{"lb.seed"}

// secrets returns an error for each secret in the documents.
func (s *source) secrets() (errs []error) {
	for _, key := range slices.Sorted(maps.Keys(s.places)) {
		if slices.Contains(secretKeys, withoutIndexes(key)) {
			errs = append(errs, s.locate(s.places[key], fmt.Errorf("%s is a secret, and every node of the fleet could read it here: put it "+
				"into a file of the nodes", withoutIndexes(key))))
		}
	}
	return errs
}

// withoutIndexes returns the name of a key without the indexes of lists in it.
func withoutIndexes(key string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(key, "[")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		_, key, _ = strings.Cut(rest, "]")
	}
}
