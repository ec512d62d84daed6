// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"culvert/internal/cluster/sets"
	"culvert/internal/config"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterstage"
	"culvert/internal/show/text"
	"culvert/internal/stages"
)

// Files that [[filter.set]] of a document names are on the operator's machine. In etcd a set is in chunks, and the document names the manifest
// by its hash: so the sum of a document says what is in its sets, too.

// bound are new documents as they are in etcd, with the sets that go along.
type bound struct {
	docs Documents // the changed ones
	// refs are the hashes of all their sets, by refOf; new are the sets that etcd does not have whole.
	refs map[string]string
	new  []*sets.Set
}

// refOf is the key of a set in cluster.Revision.Sets.
func refOf(scope, set string) string { return scope + ":" + set }

// scopeOf returns the scope of such a key.
func scopeOf(ref string) string {
	scope, _, _ := strings.Cut(ref, ":")
	return scope
}

// bind reads the files that new documents name. was are the sets of the revision that runs.
func (f *Fleet) bind(ctx context.Context, changes []Change, was map[string]string) (*bound, error) {
	b := &bound{docs: make(Documents), refs: make(map[string]string)}
	for _, c := range changes {
		scope := c.Scope.String()
		b.docs[scope] = c.Text
		n, _, _ := config.LoadFragments([]config.Remote{{Name: c.File, Text: []byte(c.Text), Dir: filepath.Dir(c.File)}}, stages.Parts())
		if n == nil {
			continue // checking it says what is wrong
		}
		table, ok := n.Tables[filterplane.Stage].(*filterstage.Table)
		if !ok {
			continue
		}
		for _, r := range table.Rules {
			if r.Program != "" {
				return nil, r.Locate("program", fmt.Errorf("rule %s: program in a document of the fleet: write its text as expression", r.Name))
			}
		}
		// From the end on, so that positions before stay.
		for _, s := range slices.Backward(table.Sets) {
			if s.File == "" {
				continue
			}
			set, hash, err := f.set(ctx, s, was[refOf(scope, s.Name)])
			if err != nil {
				return nil, err
			}
			_, line, column, ok := s.Value("file")
			if !ok {
				return nil, s.Locate("file", fmt.Errorf("set %s: file is to be in a line of its own", s.Name))
			}
			replaced, err := config.ReplaceString([]byte(b.docs[scope]), line, column, hash)
			if err != nil {
				return nil, s.Locate("file", err)
			}
			b.docs[scope] = string(replaced)
			b.refs[refOf(scope, s.Name)] = hash
			if set != nil {
				b.new = append(b.new, set)
			}
		}
	}
	return b, nil
}

// set reads the file of a set. It returns nil with the hash that was if nothing differs and etcd has all of it.
func (f *Fleet) set(ctx context.Context, s filterstage.SetTable, was string) (*sets.Set, string, error) {
	content, err := os.ReadFile(s.File)
	if err != nil {
		return nil, "", s.Locate("file", fmt.Errorf("set %s: reading %s: %w", s.Name, s.File, reasonOf(err)))
	}
	lines := sets.Lines(content)
	var former *sets.Former
	if was != "" {
		if former, err = sets.Before(ctx, f.etcd, f.keys, was); err != nil {
			var gone *sets.GoneError
			if !errors.As(err, &gone) && !errors.Is(err, sets.ErrChunk) {
				return nil, "", err
			}
			former = nil // the set is written whole, and so what is damaged or missing is as it was
		} else if slices.Equal(former.Lines, lines) && former.Type == s.Type {
			return nil, was, nil
		}
	}
	set, err := sets.Make(s.Name, s.Type, lines, former)
	if err != nil {
		return nil, "", err
	}
	return set, set.Hash, nil
}

func reasonOf(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// storeSets writes the sets that etcd lacks.
func (f *Fleet) storeSets(ctx context.Context, b *bound, say Teller) error {
	for _, s := range b.new {
		chunks, bytes, err := sets.Store(ctx, f.etcd, f.keys, s)
		if err != nil {
			return err
		}
		say.Line("set %s: %s, %d of %d chunks with %s bytes are new", s.Name, text.Grouped(uint64(s.Entries))+" entries", chunks, len(sets.All(s.SetManifest)),
			text.Grouped(uint64(bytes)))
	}
	return nil
}

// refs returns the sets of a revision whose documents of some scopes are replaced.
func refs(was map[string]string, replaced Documents, b *bound) map[string]string {
	all := maps.Clone(was)
	if all == nil {
		all = make(map[string]string)
	}
	maps.DeleteFunc(all, func(ref, _ string) bool { _, gone := replaced[scopeOf(ref)]; return gone })
	maps.Copy(all, b.refs)
	return all
}

// Keep is how many revisions stay, with their documents and sets.
const Keep = 20

// mostAudit is how many entries the audit has at most.
const mostAudit = 1000

// collect deletes what only old revisions need. The lock is held.
func (l *lock) collect(ctx context.Context, current int64) error {
	f := l.fleet
	all, err := f.Revisions(ctx)
	if err != nil {
		return err
	}
	kept := make(map[string]bool)
	for n, r := range all {
		if n < len(all)-Keep && r.Number != current {
			if err := l.forget(ctx, r); err != nil {
				return err
			}
			continue
		}
		for _, hash := range r.Sets {
			kept[hash] = true
		}
	}
	if _, err := sets.Collect(ctx, f.etcd, f.keys, kept); err != nil {
		return err
	}
	return f.trimAudit(ctx)
}
