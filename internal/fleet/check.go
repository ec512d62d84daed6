// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"culvert/internal/cluster"
	"culvert/internal/config"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterstage"
	"culvert/internal/scion"
	"culvert/internal/show/text"
	"culvert/internal/stage"
	"culvert/internal/stages"
)

// checkAll checks what each node would merge, as far as that depends on no host: once for nodes that merge the same documents. Documents that no
// node merges now are checked alone. An error names the nodes for which it holds, and those for which it does not.
func (f *Fleet) checkAll(docs Documents, changes []Change, states States, say Teller) error {
	files := make(map[string]string) // of the new documents, by scope
	for _, c := range changes {
		files[c.Scope.String()] = c.File
	}
	nodes, order := make(map[string][]string), []string{}
	add := func(scopes []string, name string) {
		key := strings.Join(scopes, "\n")
		if _, ok := nodes[key]; !ok {
			order = append(order, key)
			nodes[key] = nil
		}
		if name != "" {
			nodes[key] = append(nodes[key], name)
		}
	}
	for _, name := range states.Names() {
		add(docs.of(name, states[name].Roles), name)
	}
	for scope := range files {
		if _, ok := docs[scope]; ok && !slices.ContainsFunc(order, func(key string) bool { return slices.Contains(strings.Split(key, "\n"), scope) }) {
			add([]string{scope}, "")
		}
	}
	var errs config.Errors
	var wrong []string
	for _, key := range order {
		if key == "" {
			continue
		}
		settled := checkDocuments(docs, strings.Split(key, "\n"), files)
		if len(settled) == 0 {
			continue
		}
		wrong = append(wrong, nodes[key]...)
		for _, err := range settled {
			errs.Add(beside(err, strings.Split(key, "\n"), files))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	all := config.Sorted(errs)
	for _, err := range all {
		say.Line("%v", err)
	}
	return &RefusedError{Errors: len(all), Nodes: wrong, Others: len(states) - len(wrong)}
}

// beside adds the new documents to an error that names none of them: what is in etcd already was right without them.
func beside(err error, scopes []string, files map[string]string) error {
	var with, there []string
	for _, scope := range scopes {
		file, changed := files[scope]
		switch {
		case changed && strings.Contains(err.Error(), file+":"):
			return err
		case changed:
			with = append(with, fmt.Sprintf("%s for %s", file, scope))
		default:
			there = append(there, scope)
		}
	}
	if len(with) == 0 || len(there) == 0 {
		return err
	}
	return fmt.Errorf("%w (with %s, beside %s)", err, strings.Join(with, " and "), strings.Join(there, ", "))
}

// RefusedError says that a configuration was refused before anything was written.
type RefusedError struct {
	Errors int
	// Nodes are those that would have refused it, Others counts those that would not.
	Nodes  []string
	Others int
}

// Error returns the error in one line.
func (e *RefusedError) Error() string {
	line := fmt.Sprintf("%d errors: nothing was written", e.Errors)
	if e.Errors == 1 {
		line = "1 error: nothing was written"
	}
	if len(e.Nodes) > 0 {
		slices.Sort(e.Nodes)
		line += "; wrong for " + some(e.Nodes)
		if e.Others > 0 {
			line += ", and right for " + text.Count(uint64(e.Others), "other")
		}
	}
	return line
}

// inEtcd is in front of the scope in the name of a document that is in etcd already.
const inEtcd = "etcd:"

// checkByNodes has the nodes check documents themselves: on their hosts, with their own files. Those that do not answer check them before their step.
func (f *Fleet) checkByNodes(ctx context.Context, docs Documents, sets map[string]string, say Teller) error {
	size := 0
	for _, text := range docs {
		size += len(text)
	}
	states, err := f.States(ctx)
	switch {
	case err != nil || len(states) == 0:
		return err
	case size > mostAsked:
		say.Line("not checked by nodes before it is written, since the documents have more than %d bytes together: they check it before their step", mostAsked)
		return nil
	}
	a, err := f.ask(ctx, cluster.Ask{Kind: cluster.AskCheck, Scope: cluster.Scope{Kind: cluster.ScopeAll}, Documents: docs, Sets: sets}, checkTime)
	if err != nil {
		return err
	}
	refused := &RefusedError{Others: len(a.Answers)}
	var idle []string
	for _, answer := range a.Answers {
		if len(answer.Errors) == 0 {
			continue
		}
		if s := states[answer.Node]; s.Revision == 0 && s.Health != cluster.HealthGood {
			// A node that runs nothing yet waits for just these documents. It checks them before its step.
			idle, refused.Others = append(idle, answer.Node), refused.Others-1
			continue
		}
		refused.Errors += len(answer.Errors)
		refused.Nodes = append(refused.Nodes, answer.Node)
		refused.Others--
		for _, line := range answer.Errors {
			say.Line("%s: %s", answer.Node, line)
		}
	}
	if len(a.Silent) > 0 {
		say.Line("not checked by %s, which did not answer: they check it before their step", some(a.Silent))
	}
	if len(idle) > 0 {
		say.Line("not checked by %s, which run nothing yet: they check it before their step", some(idle))
	}
	if refused.Errors > 0 {
		return refused
	}
	return nil
}

// mostAsked bounds the documents of a question to nodes, in bytes: as JSON they are longer, and etcd takes 1.5 MiB at once.
const mostAsked = 600 << 10

// checkTime is how long nodes have for checking documents. It is a variable for tests.
var checkTime = 5 * time.Second

// checkDocuments returns the errors that hold whatever the files and hosts of nodes are like.
func checkDocuments(docs Documents, scopes []string, files map[string]string) []error {
	var fragments []config.Remote
	for _, scope := range scopes {
		name, dir := files[scope], ""
		if name == "" {
			name = inEtcd + scope
		} else {
			dir = filepath.Dir(name)
		}
		fragments = append(fragments, config.Remote{Name: name, Text: []byte(docs[scope]), Dir: dir})
	}
	n, settled, _ := config.LoadFragments(fragments, stages.Parts())
	if n == nil {
		return settled
	}
	// Each node's own file has [cluster], which backends from etcd may need.
	n.Cluster = new(config.Cluster)
	if table, ok := n.Tables[filterplane.Stage].(*filterstage.Table); ok {
		for i := range table.Sets { // those of documents that are in etcd were read when they were written
			if name := table.Sets[i].PathOf("file"); strings.HasPrefix(name, inEtcd) {
				table.Sets[i].File = ""
			}
		}
	}
	for _, s := range stages.All() {
		if _, ok := n.Tables[s.Name()]; !ok || s.Name() == (scion.Stage{}).Name() {
			continue // the files of the SCION router are on the hosts
		}
		_, err := s.Plan(stage.File{Path: fragments[0].Name, Node: n})
		more, _ := n.Settled(config.All(err))
		settled = append(settled, more...)
	}
	return config.Sorted(config.Errors(settled))
}
