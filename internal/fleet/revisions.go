// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
)

// Documents are the documents of a revision by scope (cluster.Scope).
type Documents map[string]string

// mostDocument bounds the length of a document, in bytes: etcd takes 1.5 MiB at once, with all that is around it.
const mostDocument = 1 << 20

// Current returns what nodes are to run.
func (f *Fleet) Current(ctx context.Context) (c cluster.Current, err error) {
	_, err = f.get(ctx, f.keys.Current(), &c)
	if err == nil && c.Revision < 0 {
		err = fmt.Errorf("reading %s in etcd, cluster %s: %w", f.keys.Current(), f.name, &damagedError{fmt.Sprintf("revision %d", c.Revision)})
	}
	if isDamaged(err) {
		return cluster.Current{}, fmt.Errorf("%w: nodes go on with what they run, and 'culvert fleet rollback REV' or 'culvert fleet apply' writes it anew", err)
	}
	return c, err
}

// Revisions returns all revisions that are whole, the oldest first.
func (f *Fleet) Revisions(ctx context.Context) ([]cluster.Revision, error) {
	all, _, err := f.revisions(ctx)
	return all, err
}

// Revision returns a revision.
func (f *Fleet) Revision(ctx context.Context, n int64) (r cluster.Revision, err error) {
	changed, err := f.get(ctx, f.keys.Revision(n), &r)
	switch {
	case err == nil && changed == 0:
		err = fmt.Errorf("there is no revision %d: see 'culvert fleet history'", n)
	case err == nil && r.Number != n:
		err = fmt.Errorf("reading %s in etcd, cluster %s: %w", f.keys.Revision(n), f.name, &damagedError{fmt.Sprintf("its number is %d", r.Number)})
	}
	if isDamaged(err) {
		return cluster.Revision{}, fmt.Errorf("%w: 'culvert fleet rollback REV' brings another one", err)
	}
	return r, err
}

// Documents returns the documents of a revision, none for 0. It refuses those that are not the ones that the revision was written with.
func (f *Fleet) Documents(ctx context.Context, n int64) (Documents, error) {
	if n != 0 {
		if _, err := f.Revision(ctx, n); err != nil {
			return nil, err
		}
	}
	docs, _, bad, err := f.intact(ctx, n)
	if err != nil {
		return nil, err
	}
	return docs, badError(n, bad)
}

// badError says which documents of a revision are damaged, nil if none is.
func badError(n int64, bad map[string]string) error {
	if len(bad) == 0 {
		return nil
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(bad)), compareScopes)
	scopes := slices.SortedFunc(maps.Keys(bad), compareScopes)
	return fmt.Errorf("revision %d is not as it was written: %s; 'culvert fleet rollback REV' brings another one, 'culvert fleet apply %s=FILE' a new one", n, bad[first],
		strings.Join(scopes, "=FILE "))
}

func (d Documents) sums() map[string]string {
	sums := make(map[string]string)
	for scope, text := range d {
		sums[scope] = sum([]byte(text))
	}
	return sums
}

// scopes returns the scopes in the order in which nodes merge them: all, roles, nodes.
func (d Documents) scopes() []string { return slices.SortedFunc(maps.Keys(d), compareScopes) }

// compareScopes sorts scopes in the order in which nodes merge their documents: all, roles, nodes.
func compareScopes(a, b string) int {
	order := func(scope string) int {
		s, _ := cluster.ParseScope(scope)
		return slices.Index([]string{cluster.ScopeAll, cluster.ScopeRole, cluster.ScopeNode}, s.Kind)
	}
	return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a, b))
}

// of returns the scopes whose documents a node with these roles merges, in their order.
func (d Documents) of(node string, roles []string) (scopes []string) {
	for _, text := range d.scopes() {
		if s, err := cluster.ParseScope(text); err == nil && s.Holds(node, roles) {
			scopes = append(scopes, text)
		}
	}
	return scopes
}

func sum(text []byte) string {
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:])
}

// newID returns a short random name.
func newID() string {
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// writeRevision writes documents as a new revision. Nobody runs it yet.
func (l *lock) writeRevision(ctx context.Context, before int64, docs Documents, sets map[string]string, comment string) (cluster.Revision, error) {
	f := l.fleet
	n, err := f.nextRevision(ctx, before)
	if err != nil {
		return cluster.Revision{}, err
	}
	r := cluster.Revision{
		Number: n, Before: before, At: time.Now().UTC(), By: f.by, Comment: comment, Documents: docs.sums(), Sets: sets,
	}
	// What somebody wrote who died before the revision was whole.
	if err := l.write(ctx, "clearing the place of revision "+strconv.FormatInt(n, 10),
		clientv3.OpDelete(f.keys.Documents(n), clientv3.WithPrefix())); err != nil {
		return r, err
	}
	for _, scope := range docs.scopes() {
		if err := l.write(ctx, fmt.Sprintf("writing the document for %s", scope), clientv3.OpPut(f.keys.Documents(n)+scope, docs[scope])); err != nil {
			return r, err
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		return r, err
	}
	return r, l.write(ctx, fmt.Sprintf("writing revision %d", n), clientv3.OpPut(f.keys.Revision(n), string(text)))
}

// nextRevision returns the number behind that of the newest revision, and behind that of the one that runs. One that was run once and is gone does
// not come back with another content. Keys by hand do not count.
func (f *Fleet) nextRevision(ctx context.Context, runs int64) (int64, error) {
	n := runs
	err := f.callAgain(ctx, "looking for the newest revision", func(ctx context.Context) error {
		r, err := f.etcd.Get(ctx, f.keys.Revisions(), clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		for _, kv := range r.Kvs {
			if last, ok := f.numberOf(string(kv.Key[len(f.keys.Revisions()):])); ok {
				n = max(n, last)
			}
		}
		return nil
	})
	return n + 1, err
}
