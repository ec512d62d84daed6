// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"culvert/internal/cluster"
	"culvert/internal/show/text"
	"culvert/internal/show/usage"
)

// Change is a new document of a scope.
type Change struct {
	Scope cluster.Scope
	// File is where it was read, for errors and for the files that it names.
	File string
	Text string
}

// Apply says what to bring to nodes, and how.
type Apply struct {
	Changes []Change
	Steps
	Comment string
	// Force goes on although a role or node of a scope is not there, and takes documents away.
	Force bool
}

// Apply writes a revision with new documents, the others as they are, and brings it to nodes in steps.
func (f *Fleet) Apply(ctx context.Context, a Apply, say Teller) (err error) {
	if err := a.Steps.Check(); err != nil {
		return err
	}
	l, err := f.lock(ctx, "apply")
	if err != nil {
		return err
	}
	defer l.Close()
	current, err := f.idle(ctx, say)
	if err != nil {
		return err
	}
	docs, former, bad, err := f.intact(ctx, current.Revision)
	if err != nil {
		return err
	}
	for _, c := range a.Changes {
		delete(bad, c.Scope.String())
	}
	maps.DeleteFunc(bad, func(scope, _ string) bool { _, ok := docs[scope]; return !ok }) // what was added is not in the next one
	if err := badError(current.Revision, bad); err != nil {
		return err
	}
	states, err := f.States(ctx)
	if err != nil {
		return err
	}
	asWritten := maps.Clone(docs)
	if _, err := change(asWritten, a.Changes, nil); err != nil {
		return err
	}
	if err := takesAway(docs, asWritten, a.Changes, states); err != nil && !a.Force {
		return err
	}
	if err := f.checkAll(asWritten, a.Changes, states, say); err != nil {
		return err
	}
	b, err := f.bind(ctx, a.Changes, former.Sets)
	if err != nil {
		return err
	}
	changed, err := change(docs, a.Changes, b.docs)
	if err != nil {
		return err
	}
	if len(changed) == 0 {
		// Of sets that are the same something may be damaged or missing in etcd.
		if err := f.storeSets(ctx, b, say); err != nil {
			return err
		}
		say.Line("nothing differs from revision %d, which runs", current.Revision)
		return nil
	}
	if err := nobody(changed, states, a.Force, "writes the document"); err != nil {
		return err
	}
	if err := f.storeSets(ctx, b, say); err != nil {
		return err
	}
	all := refs(former.Sets, b.docs, b)
	if err := f.checkByNodes(ctx, docs, all, say); err != nil {
		return err
	}
	r, err := l.writeRevision(ctx, current.Revision, docs, all, a.Comment)
	if err != nil {
		return err
	}
	did := fmt.Sprintf("revision %d: %s", r.Number, changedText(changed, docs))
	say.Line("%s", did)
	err = l.start(ctx, current.Revision, r.Number, changed, states, a.Steps, say)
	f.audit(ctx, "apply", did, err)
	if err != nil {
		return err
	}
	if err := l.collect(ctx, r.Number); err != nil {
		say.Line("what only old revisions need is still there: %v", err)
	}
	return nil
}

// idle returns what nodes are to run, or an error if a rollout has stopped half-way.
func (f *Fleet) idle(ctx context.Context, say Teller) (cluster.Current, error) {
	current, _, err := f.stands(ctx, true, say)
	if err != nil {
		return current, err
	}
	if r := current.Rollout; r != nil {
		return current, errors.New(stoppedText(r))
	}
	return current, nil
}

// stoppedText says of a rollout that nobody goes on with it, and what may be done about that.
func stoppedText(r *cluster.Rollout) string {
	return fmt.Sprintf("a rollout of revision %d by %s has stopped at step %d of %d: 'culvert fleet apply --resume' goes on, "+
		"'culvert fleet rollback' goes back", r.To, r.By, r.Step, len(r.Plan))
}

// change puts new documents in the place of those of their scopes, and returns the scopes that differ then. An empty document takes the one that
// was there away.
// texts are what to write in the place of a change's text, nil for the text itself.
func change(docs Documents, changes []Change, texts Documents) (scopes []string, err error) {
	for n, c := range changes {
		scope := c.Scope.String()
		if slices.ContainsFunc(changes[:n], func(o Change) bool { return o.Scope == c.Scope }) {
			return nil, usage.Errorf("two documents for %s: give one file for each of all, role/NAME and node/NAME", scope)
		}
		if len(c.Text) > mostDocument {
			return nil, fmt.Errorf("%s has %d bytes: a document has at most %d; put long sets into files ([[filter.set]] file = ...)", c.File, len(c.Text), mostDocument)
		}
		written := c.Text
		if texts != nil {
			written = texts[scope]
		}
		empty := strings.TrimSpace(c.Text) == ""
		if was, ok := docs[scope]; ok && was == written || !ok && empty {
			continue
		}
		docs[scope] = written
		if empty {
			delete(docs, scope)
		}
		scopes = append(scopes, scope)
	}
	slices.SortFunc(scopes, compareScopes)
	return scopes, nil
}

// takesAway refuses to take documents away, unless that is meant: a file may be empty by mistake, and a tier without its document may be in good
// health, since it does nothing.
func takesAway(was, is Documents, changes []Change, states States) error {
	var empty, gone []string
	nodes := make(map[string]bool)
	for _, c := range changes {
		scope := c.Scope.String()
		_, had := was[scope]
		if _, has := is[scope]; !had || has {
			continue
		}
		empty, gone = append(empty, c.File), append(gone, scope)
		for _, name := range states.In(c.Scope) {
			nodes[name] = true
		}
	}
	if len(gone) == 0 {
		return nil
	}
	isEmpty := "is empty"
	if len(empty) > 1 {
		isEmpty = "are empty"
	}
	return fmt.Errorf("%s %s, which takes %s away from %s: nothing was written; --force does it", strings.Join(empty, " and "), isEmpty,
		strings.Join(gone, " and "), orNone(slices.Sorted(maps.Keys(nodes)), "no node that is there"))
}

// changedText names the scopes of a revision's new documents, and those whose documents it takes away.
func changedText(changed []string, docs Documents) string {
	texts := slices.Clone(changed)
	for n, scope := range texts {
		if _, ok := docs[scope]; !ok {
			texts[n] = "takes " + scope + " away"
		}
	}
	return strings.Join(texts, ", ")
}

// nobody refuses what is for roles and nodes that no node has that is there, unless that is meant. instead says what --force does.
func nobody(scopes []string, states States, force bool, instead string) error {
	for _, text := range scopes {
		scope, err := cluster.ParseScope(text)
		if err != nil {
			return err
		}
		if force || len(states.In(scope)) > 0 {
			continue
		}
		roles := make(map[string]bool)
		for _, s := range states {
			for _, r := range s.Roles {
				roles[r] = true
			}
		}
		switch {
		case scope.Kind == cluster.ScopeNode:
			return fmt.Errorf("node %s is not there: there is %s; --force %s all the same", scope.Name, orNone(states.Names(), "no node"), instead)
		case scope.Kind == cluster.ScopeRole:
			return fmt.Errorf("no node that is there has the role %s: they have %s; --force %s all the same", scope.Name,
				orNone(slices.Sorted(maps.Keys(roles)), "no roles"), instead)
		}
		return fmt.Errorf("no node is there: --force %s all the same", instead)
	}
	return nil
}

func orNone(names []string, none string) string {
	if len(names) == 0 {
		return none
	}
	return some(names)
}

// start begins a rollout and brings it to its end. scopes are those that differ: nodes of others run the revision at its end, and nothing changes for
// them.
func (l *lock) start(ctx context.Context, from, to int64, scopes []string, states States, steps Steps, say Teller) error {
	f := l.fleet
	reached := slices.DeleteFunc(states.Names(), func(name string) bool {
		return !slices.ContainsFunc(scopes, func(text string) bool {
			s, err := cluster.ParseScope(text)
			return err == nil && s.Holds(name, states[name].Roles)
		})
	})
	plan, err := steps.plan(reached, states)
	if err != nil {
		return err
	}
	away, damaged := f.away(ctx, states)
	if len(away) > 0 {
		say.Line("not there: %s; they run the revision once they are back", some(away))
	}
	if damaged {
		say.Line("the key known is damaged, and so nobody knows which nodes are away: it is written anew once the revision runs")
	}
	say.Line("%d of %d nodes in %s", len(reached), len(states), text.Count(uint64(len(plan)), "step"))
	c := cluster.Current{Revision: from, Rollout: &cluster.Rollout{To: to, Plan: plan, Wait: steps.Wait, Within: steps.Within, By: f.by}}
	if err := l.writeCurrent(ctx, c); err != nil {
		return err
	}
	begun := time.Now()
	if err := l.roll(ctx, c, say); err != nil {
		return err
	}
	f.meet(ctx, states)
	say.Line("revision %d runs, after %s", to, time.Since(begun).Round(100*time.Millisecond))
	return nil
}

// Resume goes on with a rollout that has stopped half-way.
func (f *Fleet) Resume(ctx context.Context, say Teller) error {
	l, err := f.lock(ctx, "apply --resume")
	if err != nil {
		return err
	}
	defer l.Close()
	c, err := f.Current(ctx)
	switch {
	case err != nil:
		return err
	case c.Rollout == nil:
		return fmt.Errorf("no rollout has stopped half-way: revision %d runs", c.Revision)
	}
	say.Line("revision %d goes on at step %d of %d", c.Rollout.To, c.Rollout.Step, len(c.Rollout.Plan))
	err = l.roll(ctx, c, say)
	if err == nil {
		say.Line("revision %d runs", c.Rollout.To)
	}
	f.audit(ctx, "apply --resume", fmt.Sprintf("revision %d", c.Rollout.To), err)
	return err
}

// Before stands for the revision before the one that runs.
const Before = -1

// Rollback takes a rollout that has stopped half-way back if to is Before, and otherwise brings an earlier revision to nodes.
func (f *Fleet) Rollback(ctx context.Context, to int64, steps Steps, say Teller) error {
	if err := steps.Check(); err != nil {
		return err
	}
	l, err := f.lock(ctx, "rollback")
	if err != nil {
		return err
	}
	defer l.Close()
	c, damaged, err := f.stands(ctx, to == Before, say)
	if err != nil {
		return err
	}
	if c.Rollout != nil {
		if to != Before && to != c.Revision {
			return fmt.Errorf("a rollout has stopped half-way: 'culvert fleet rollback' goes back to revision %d, and then to others", c.Revision)
		}
		return f.halfWay(ctx, l, c, say)
	}
	var was cluster.Revision
	if c.Revision > 0 {
		// The sums in its record say what it had, whatever its documents are like by now.
		if was, err = f.Revision(ctx, c.Revision); err != nil && (to == Before || !isDamaged(err)) {
			return err
		}
	}
	unknown := err != nil
	switch {
	case to == Before && c.Revision == 0:
		return errors.New("no revision runs: there is none before")
	case to == Before:
		to = was.Before
	}
	if to == c.Revision && !damaged {
		return fmt.Errorf("revision %d runs already", to)
	}
	docs, err := f.Documents(ctx, to)
	if err != nil {
		return err
	}
	states, err := f.States(ctx)
	if err != nil {
		return err
	}
	scopes := differing(was.Documents, docs.sums())
	if unknown {
		scopes = []string{cluster.ScopeAll}
	}
	say.Line("from revision %d to revision %d", c.Revision, to)
	err = l.start(ctx, c.Revision, to, scopes, states, steps, say)
	f.audit(ctx, "rollback", fmt.Sprintf("revision %d", to), err)
	return err
}

// halfWay takes a rollout that has stopped back, at once.
func (f *Fleet) halfWay(ctx context.Context, l *lock, c cluster.Current, say Teller) error {
	nodes, err := f.Follow(ctx)
	if err != nil {
		return err
	}
	say.Line("the rollout of revision %d goes back to revision %d", c.Rollout.To, c.Revision)
	err = l.back(ctx, c, "rollback", nodes, say)
	var back *BackError
	if errors.As(err, &back) {
		err = nil
	}
	f.note(ctx, cluster.Audit{Did: "rollback", On: fmt.Sprintf("revision %d, half-way", c.Rollout.To), Back: c.Rollout.To}, err)
	return err
}

// differing returns the scopes whose documents differ.
func differing(a, b Documents) (scopes []string) {
	for _, scope := range a.scopes() {
		if b[scope] != a[scope] {
			scopes = append(scopes, scope)
		}
	}
	for _, scope := range b.scopes() {
		if _, ok := a[scope]; !ok {
			scopes = append(scopes, scope)
		}
	}
	slices.SortFunc(scopes, compareScopes)
	return scopes
}
