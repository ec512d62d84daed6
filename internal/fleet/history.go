// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/show/text"
)

// History is what was done with a fleet.
type History struct {
	Current   cluster.Current    `json:"current"`
	Revisions []cluster.Revision `json:"revisions"`
	// Audit has who did what, the oldest first. It is read only if it is asked for.
	Audit []cluster.Audit `json:"audit,omitempty"`
	// Back are the revisions that went back, by themselves or by hand half-way.
	Back []int64 `json:"back,omitempty"`
	// Damaged says in a line each which keys are not as culvert has written them.
	Damaged []string `json:"damaged,omitempty"`
}

// History returns the revisions, those among them that went back, and with audit who did what.
func (f *Fleet) History(ctx context.Context, audit bool) (*History, error) {
	h := &History{Revisions: []cluster.Revision{}}
	var err error
	if h.Current, err = f.Current(ctx); isDamaged(err) {
		h.Damaged = append(h.Damaged, damagedCurrent)
	} else if err != nil {
		return nil, err
	}
	if _, unknown := f.away(ctx, nil); unknown {
		h.Damaged = append(h.Damaged, damagedKnown)
	}
	if err := f.addDamagedLock(ctx, &h.Damaged); err != nil {
		return nil, err
	}
	if err := f.addDamagedMaintains(ctx, &h.Damaged); err != nil {
		return nil, err
	}
	revisions, damaged, err := f.revisions(ctx)
	if err != nil {
		return nil, err
	}
	h.Damaged = append(h.Damaged, damaged...)
	h.Revisions = append(h.Revisions, revisions...)
	for _, r := range revisions {
		lines, err := f.damagedRevision(ctx, r.Number)
		if err != nil {
			return nil, err
		}
		h.Damaged = append(h.Damaged, lines...)
	}
	return h, f.list(ctx, f.keys.Audits(), func(rest string, value []byte) error {
		var a cluster.Audit
		if err := decode(value, &a); err != nil {
			h.Damaged = append(h.Damaged, fmt.Sprintf("the key audit/%s is %v", rest, err))
			return nil
		}
		if a.Back != 0 && !slices.Contains(h.Back, a.Back) {
			h.Back = append(h.Back, a.Back)
		}
		if audit {
			h.Audit = append(h.Audit, a)
		}
		return nil
	})
}

// Lines returns it for people, the newest first.
func (h *History) Lines() []string {
	var t text.Table
	t.Add("REVISION", "WHEN", "BY", "DOCUMENTS", "COMMENT")
	documents := make(map[int64]map[string]string)
	for _, r := range h.Revisions {
		documents[r.Number] = r.Documents
	}
	for _, r := range slices.Backward(h.Revisions) {
		mark := ""
		if r.Number == h.Current.Revision {
			mark = " runs"
		}
		if mark == "" && slices.Contains(h.Back, r.Number) {
			mark = " went back"
		}
		if h.Current.Rollout != nil && r.Number == h.Current.Rollout.To {
			mark = fmt.Sprintf(" step %d of %d", h.Current.Rollout.Step, len(h.Current.Rollout.Plan))
		}
		t.Add(fmt.Sprint(r.Number)+mark, when(r.At), r.By, changedDocuments(documents[r.Before], r.Documents), r.Comment)
	}
	lines := t.Lines()
	if len(h.Revisions) == 0 {
		lines = []string{"no revision so far: nodes run their own files; 'culvert fleet apply FILE' makes one"}
	}
	if len(h.Damaged) > 0 {
		lines = append(lines, "", "damaged ('culvert fleet rollback REV' brings a revision that is whole, 'etcdctl del' takes a key away):")
		for _, d := range h.Damaged {
			lines = append(lines, "  "+d)
		}
	}
	if len(h.Audit) == 0 {
		return lines
	}
	var a text.Table
	a.Add("WHEN", "BY", "DID", "ON", "OUTCOME")
	for _, e := range slices.Backward(h.Audit) {
		outcome := e.Outcome
		if e.Why != "" {
			outcome += ": " + e.Why
		}
		a.Add(when(e.At), e.By, e.Did, e.On, outcome)
	}
	return append(append(lines, ""), a.Lines()...)
}

func when(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// changedDocuments names the scopes in which a revision differs from the one before.
func changedDocuments(was, is map[string]string) string {
	var changes []string
	scopes := slices.SortedFunc(maps.Keys(is), compareScopes)
	for _, scope := range scopes {
		if was[scope] != is[scope] {
			changes = append(changes, scope)
		}
	}
	for _, scope := range slices.SortedFunc(maps.Keys(was), compareScopes) {
		if _, ok := is[scope]; !ok {
			changes = append(changes, "-"+scope)
		}
	}
	return strings.Join(changes, " ")
}

// Diff returns in which lines revision to differs from revision from.
func (f *Fleet) Diff(ctx context.Context, from, to int64) ([]string, error) {
	a, err := f.Documents(ctx, from)
	if err != nil {
		return nil, err
	}
	b, err := f.Documents(ctx, to)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, scope := range differing(a, b) {
		lines = append(lines, unified(fmt.Sprintf("%s (revision %d)", scope, from), fmt.Sprintf("%s (revision %d)", scope, to), a[scope], b[scope])...)
	}
	return lines, nil
}

// DiffChanges returns in which lines new documents differ from those that run.
func (f *Fleet) DiffChanges(ctx context.Context, changes []Change) ([]string, error) {
	current, err := f.Current(ctx)
	if err != nil {
		return nil, err
	}
	docs, record, bad, err := f.intact(ctx, current.Revision)
	if err != nil {
		return nil, err
	}
	b, err := f.bind(ctx, changes, record.Sets)
	if err != nil {
		return nil, err
	}
	before := maps.Clone(docs)
	for scope := range bad {
		before[scope] = "" // what it was, nobody knows
	}
	scopes, err := change(docs, changes, b.docs)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, scope := range scopes {
		lines = append(lines, unified(fmt.Sprintf("%s (revision %d)", scope, current.Revision), fileOf(changes, scope), before[scope], docs[scope])...)
	}
	return lines, nil
}

func fileOf(changes []Change, scope string) string {
	for _, c := range changes {
		if c.Scope.String() == scope {
			return c.File
		}
	}
	return scope
}

// trimAudit deletes the oldest entries of the audit.
func (f *Fleet) trimAudit(ctx context.Context) error {
	return f.call(ctx, "deleting old entries of the audit", func(ctx context.Context) error {
		r, err := f.etcd.Get(ctx, f.keys.Audits(), clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil || len(r.Kvs) <= mostAudit {
			return err
		}
		_, err = f.etcd.Delete(ctx, f.keys.Audits(), clientv3.WithRange(string(r.Kvs[len(r.Kvs)-mostAudit].Key)))
		return err
	})
}
