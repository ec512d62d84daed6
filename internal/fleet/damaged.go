// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
)

// damagedError says that a key has no record of culvert's.
type damagedError struct{ why string }

// Error returns the error in one line.
func (e *damagedError) Error() string {
	return "no record of culvert's, since somebody has written this key by hand (" + e.why + ")"
}

func decode(text []byte, to any) error {
	if err := json.Unmarshal(text, to); err != nil {
		return &damagedError{err.Error()}
	}
	return nil
}

// isDamaged tells whether a key has no record of culvert's.
func isDamaged(err error) bool {
	var damaged *damagedError
	return errors.As(err, &damaged)
}

// numberOf returns the number of a revision in a key, which has as many digits as culvert writes. Others were written by hand.
func (f *Fleet) numberOf(rest string) (int64, bool) {
	n, err := strconv.ParseInt(rest, 10, 64)
	return n, err == nil && f.keys.Revision(n) == f.keys.Revisions()+rest
}

// revisions returns all revisions that are whole, the oldest first, and a sentence for each key among them that is none.
func (f *Fleet) revisions(ctx context.Context) (all []cluster.Revision, damaged []string, err error) {
	err = f.list(ctx, f.keys.Revisions(), func(rest string, value []byte) error {
		var r cluster.Revision
		n, ok := f.numberOf(rest)
		switch err := decode(value, &r); {
		case err != nil:
			damaged = append(damaged, fmt.Sprintf("the key revision/%s is %v", rest, err))
		case !ok || r.Number != n:
			damaged = append(damaged, fmt.Sprintf("the key revision/%s is no record of culvert's, since somebody has written it by hand: its number is %d", rest, r.Number))
		default:
			all = append(all, r)
		}
		return nil
	})
	return all, damaged, err
}

// damagedText stands for a document that is not the one that its revision was written with. No document has it.
const damagedText = "\x00"

// intact returns the documents of a revision, none for 0, with its record. Those that are not the ones that it was written with are damagedText, and
// bad has a sentence for each of them, and for each that was added by hand. If the record itself is none, all are damaged.
func (f *Fleet) intact(ctx context.Context, n int64) (docs Documents, r cluster.Revision, bad map[string]string, err error) {
	docs, bad = make(Documents), make(map[string]string)
	if n == 0 {
		return docs, r, bad, nil
	}
	r, broken := f.Revision(ctx, n)
	if broken != nil && !isDamaged(broken) {
		return nil, r, nil, broken
	}
	err = f.list(ctx, f.keys.Documents(n), func(scope string, value []byte) error {
		switch want, known := r.Documents[scope]; {
		case broken != nil:
			docs[scope], bad[scope] = damagedText, fmt.Sprintf("the record revision/%016d is damaged", n)
		case !known: // nodes refuse a revision with it
			bad[scope] = fmt.Sprintf("the key config/%016d/%s has been added by hand", n, scope)
		case want != sum(value):
			docs[scope], bad[scope] = damagedText, fmt.Sprintf("the key config/%016d/%s has been changed by hand", n, scope)
		default:
			docs[scope] = string(value)
		}
		return nil
	})
	for scope := range r.Documents {
		if _, there := docs[scope]; !there {
			docs[scope], bad[scope] = damagedText, fmt.Sprintf("the key config/%016d/%s is missing", n, scope)
		}
	}
	return docs, r, bad, err
}

// damagedCurrent says that the key current is none.
const damagedCurrent = "the key current is no record of culvert's, since somebody has written it by hand: nodes go on with what they run; " +
	"'culvert fleet rollback REV' or 'culvert fleet apply' writes it anew"

// damagedKnown says that the key known is none.
const damagedKnown = "the key known is no record of culvert's, since somebody has written it by hand: nobody knows which nodes are away; " +
	"the next rollout writes it anew, with the nodes that are there"

// addDamagedMaintains adds which nodes' maintenance is none of culvert's: nodes do not obey it.
func (f *Fleet) addDamagedMaintains(ctx context.Context, to *[]string) error {
	return f.list(ctx, f.keys.Maintains(), func(node string, value []byte) error {
		if _, err := cluster.ParseMaintain(value); err != nil {
			*to = append(*to, fmt.Sprintf("the key maintain/%s is no record of culvert's, since somebody has written it by hand (%v): no node obeys it, and "+
				"'culvert fleet resume %[1]s' takes it away", node, err))
		}
		return nil
	})
}

// damagedRevision says in a line each what of a revision is not as it was written, for those who look at it often: documents are read only if one
// was written after the record.
func (f *Fleet) damagedRevision(ctx context.Context, n int64) (lines []string, err error) {
	if n == 0 {
		return nil, nil
	}
	var r cluster.Revision
	recorded, err := f.get(ctx, f.keys.Revision(n), &r)
	switch {
	case isDamaged(err) || err == nil && recorded != 0 && r.Number != n:
		return []string{fmt.Sprintf("the key revision/%016d is no record of culvert's, since somebody has written it by hand", n)}, nil
	case err != nil:
		return nil, err
	case recorded == 0:
		return []string{fmt.Sprintf("the key revision/%016d is missing", n)}, nil
	}
	written := make(map[string]int64) // when a document was written last, by scope
	err = f.callAgain(ctx, "reading "+f.keys.Documents(n), func(ctx context.Context) error {
		got, err := f.etcd.Get(ctx, f.keys.Documents(n), clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		for _, kv := range got.Kvs {
			written[string(kv.Key[len(f.keys.Documents(n)):])] = kv.ModRevision
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	suspect := false
	for scope, at := range written {
		_, known := r.Documents[scope]
		suspect = suspect || !known || at > recorded
	}
	for scope := range r.Documents {
		suspect = suspect || written[scope] == 0
	}
	if suspect {
		_, _, bad, err := f.intact(ctx, n)
		if err != nil {
			return nil, err
		}
		lines = slices.AppendSeq(lines, maps.Values(bad))
	}
	slices.Sort(lines)
	return lines, nil
}

// stands returns what nodes are to run. Where the key current is no record, that is the revision that nodes say they run, and damaged is set: all
// of them if they are to agree, most of them otherwise.
func (f *Fleet) stands(ctx context.Context, agree bool, say Teller) (c cluster.Current, damaged bool, err error) {
	c, err = f.Current(ctx)
	if !isDamaged(err) {
		return c, false, err
	}
	states, failed := f.States(ctx)
	if failed != nil {
		return c, true, failed
	}
	run := make(map[int64]int)
	for _, s := range states {
		run[s.Revision]++
	}
	most := int64(-1)
	for _, n := range slices.Sorted(maps.Keys(run)) {
		if most < 0 || run[n] >= run[most] {
			most = n
		}
	}
	switch {
	case len(run) > 1 && agree:
		var texts []string
		for _, n := range slices.Sorted(maps.Keys(run)) {
			texts = append(texts, strconv.FormatInt(n, 10))
		}
		return c, true, fmt.Errorf("the key current is damaged, and nodes run the revisions %s: 'culvert fleet rollback REV' first", strings.Join(texts, ", "))
	case len(run) == 0 && agree:
		return c, true, errors.New("the key current is damaged, and no node is there that says what it runs: 'culvert fleet rollback REV' first")
	case len(run) == 0:
		return cluster.Current{}, true, nil
	}
	say.Line("the key current is damaged: it is written anew, from revision %d, which nodes run", most)
	return cluster.Current{Revision: most}, true, nil
}
