// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/cluster/etcd"
	"culvert/internal/edit"
	"culvert/internal/show/text"
	"culvert/internal/show/usage"
)

// UrgentWait is how long an operator waits at most until an urgent change is in force everywhere.
const UrgentWait = 5 * time.Second

// mostRequest bounds the length of an urgent change, in bytes. It goes to every node at once, and stays in etcd.
const mostRequest = 256 << 10

// Reach is how far something has come.
type Reach struct {
	// ID is that of the urgent change.
	ID string `json:"id"`
	// Nodes are those that are meant and there; Done those that have it.
	Nodes []string `json:"nodes"`
	Done  []string `json:"done"`
	// Unconcerned are those that do not have what the change is about. They are not among Nodes.
	Unconcerned []string `json:"unconcerned,omitempty"`
	// Failed says why a node could not carry it out, Missing are those that have not said anything, Away those that are not there.
	Failed  map[string]string `json:"failed,omitempty"`
	Missing []string          `json:"missing,omitempty"`
	Away    []string          `json:"away,omitempty"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
	// Undone tells that the change was taken back: Done are the nodes that do not have it any more.
	Undone bool `json:"undone,omitempty"`
	// none tells that it was no change, but a key by hand.
	none bool
}

// Err returns an error if a node that is there has not got it.
func (r *Reach) Err() error {
	var texts []string
	if len(r.Failed) > 0 {
		texts = append(texts, fmt.Sprintf("%s could not carry it out", some(slices.Sorted(maps.Keys(r.Failed)))))
	}
	if r.Undone && len(r.Missing) > 0 {
		return fmt.Errorf("%s: %s did not answer within %s; it is over there once they can", r.ID, some(r.Missing), UrgentWait)
	}
	if len(r.Missing) > 0 {
		texts = append(texts, fmt.Sprintf("%s did not answer within %s and will have it once they can", some(r.Missing), UrgentWait))
	}
	if len(r.Nodes) == 0 && len(r.Unconcerned) > 0 {
		texts = append(texts, "no node has what it is about")
	}
	if len(texts) == 0 {
		return nil
	}
	text := texts[0]
	if len(texts) > 1 {
		text += "; " + texts[1]
	}
	return fmt.Errorf("%s: %s ('culvert fleet undo %s' takes it back)", r.ID, text, r.ID)
}

// Lines returns it for people.
func (r *Reach) Lines() []string {
	is, will := "in force", "they have it once they are back"
	if r.Undone {
		is, will = "taken back", "it is over there once they are back"
	}
	lines := []string{fmt.Sprintf("%s: %s on %d of %s after %.1f s", r.ID, is, len(r.Done), text.Count(uint64(len(r.Nodes)), "node"), r.Seconds)}
	if r.none {
		return []string{r.ID + ": taken away; it was no urgent change, and no node carried it out"}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Failed)) {
		lines = append(lines, fmt.Sprintf("  %s: %s", name, r.Failed[name]))
	}
	for _, name := range r.Missing {
		lines = append(lines, fmt.Sprintf("  %s: no answer", name))
	}
	if len(r.Unconcerned) > 0 {
		lines = append(lines, "  not concerned: "+some(r.Unconcerned))
	}
	if len(r.Away) > 0 {
		lines = append(lines, "  not there: "+some(r.Away)+" ("+will+")")
	}
	return lines
}

// Urgent has nodes carry out a request at once, for a time or until Undo. It waits until all of those that are there have it, at most
// UrgentWait.
func (f *Fleet) Urgent(ctx context.Context, q edit.Request, scope cluster.Scope, lasts time.Duration, force bool) (*Reach, error) {
	words := edit.WordsOf(q)
	if words == "" {
		return nil, errors.New("this is no change of a data plane")
	}
	if err := q.Check(); err != nil {
		return nil, err
	}
	if lasts != 0 && lasts < time.Second {
		return nil, usage.Errorf("--for %s: write a second or more", lasts)
	}
	request, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	if len(request) > mostRequest {
		return nil, fmt.Errorf("an urgent change of %d bytes: it has at most %d; bring more with 'culvert fleet apply' and [[filter.set]] file", len(request), mostRequest)
	}
	nodes, states, stop, err := f.following(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	if err := nobody([]string{scope.String()}, states, force, "writes the change"); err != nil {
		return nil, err
	}
	begun := time.Now()
	u := cluster.Urgent{Scope: scope, Words: words, Request: request, At: time.Now().UTC(), For: lasts.Truncate(time.Second), By: f.by}
	if err := f.writeUrgent(ctx, &u); err != nil {
		return nil, err
	}
	r := f.reach(ctx, nodes, u.ID, scope, begun, func(s cluster.State) (done bool, failed string) {
		return slices.Contains(s.Urgent, u.ID) || slices.Contains(s.UrgentOver, u.ID), s.UrgentFailed[u.ID]
	})
	f.audit(ctx, "urgent", fmt.Sprintf("%s, %s: %s", u.ID, scope, commandLine(u)+forText(u.For)), r.Err())
	return r, nil
}

// following follows the states of nodes until stop is called.
func (f *Fleet) following(ctx context.Context) (nodes *Nodes, now States, stop func(), err error) {
	following, stop := context.WithCancel(ctx)
	if nodes, err = f.Follow(following); err != nil {
		stop()
		return nil, nil, nil, err
	}
	now, _ = nodes.Now()
	return nodes, now, stop, nil
}

// writeUrgent gives a change an ID and writes it, under a lease if it ends. IDs are numbers that grow, since etcd's revision does. An
// attempt without an answer is repeated with the same ID, so that the change is there once.
func (f *Fleet) writeUrgent(ctx context.Context, u *cluster.Urgent) error {
	var lease clientv3.LeaseID
	unanswered := false
	err := f.callAgain(ctx, "writing an urgent change", func(ctx context.Context) (err error) {
		defer func() { unanswered = unanswered || err != nil && etcd.Unanswered(err) }()
		var options []clientv3.OpOption
		if u.For > 0 && lease == 0 {
			g, err := f.etcd.Grant(ctx, int64(u.For/time.Second))
			if err != nil {
				return err
			}
			lease = g.ID
		}
		if lease != 0 {
			options = append(options, clientv3.WithLease(lease))
		}
		for {
			if u.ID == "" {
				r, err := f.etcd.Get(ctx, f.keys.Current(), clientv3.WithCountOnly())
				if err != nil {
					return err
				}
				u.ID = fmt.Sprintf("%08d", r.Header.Revision)
			}
			record, err := json.Marshal(u)
			if err != nil {
				return err
			}
			key := f.keys.Urgent(u.ID)
			w, err := f.etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
				Then(clientv3.OpPut(key, string(record), options...)).Else(clientv3.OpGet(key)).Commit()
			if err != nil || w.Succeeded {
				return err
			}
			if found := w.Responses[0].GetResponseRange().Kvs; len(found) == 1 && bytes.Equal(found[0].Value, record) {
				return nil // an attempt without an answer has written it
			}
			u.ID = "" // somebody else has this one
		}
	})
	if err != nil && lease != 0 {
		_, _ = f.etcd.Revoke(context.WithoutCancel(ctx), lease)
	}
	if err != nil && unanswered && u.ID != "" {
		return fmt.Errorf("%w; see 'culvert fleet urgent' whether it was written all the same", err)
	}
	return err
}

// reach waits until done tells of all nodes of a scope that they have got something.
func (f *Fleet) reach(ctx context.Context, nodes *Nodes, id string, scope cluster.Scope, begun time.Time,
	look func(cluster.State) (done bool, failed string),
) *Reach {
	end := time.After(UrgentWait)
	for {
		states, _ := nodes.Now()
		r := &Reach{ID: id, Nodes: []string{}, Done: []string{}, Failed: make(map[string]string), Seconds: time.Since(begun).Seconds()}
		for _, name := range states.In(scope) {
			done, failed := look(states[name])
			if !done && slices.Contains(states[name].UrgentUnconcerned, id) {
				r.Unconcerned = append(r.Unconcerned, name)
				continue
			}
			r.Nodes = append(r.Nodes, name)
			switch {
			case done:
				r.Done = append(r.Done, name)
			case failed != "":
				r.Failed[name] = failed
			default:
				r.Missing = append(r.Missing, name)
			}
		}
		if len(r.Missing) == 0 {
			r.Away = f.awayIn(ctx, scope, states)
			return r
		}
		select {
		case <-nodes.Changed():
			continue
		case <-end:
		case <-ctx.Done():
		}
		r.Away = f.awayIn(context.WithoutCancel(ctx), scope, states)
		return r
	}
}

// awayIn returns the nodes that are not there and may be meant. Which roles they have is not known.
func (f *Fleet) awayIn(ctx context.Context, scope cluster.Scope, states States) []string {
	away, _ := f.away(ctx, states)
	if scope.Kind == cluster.ScopeNode {
		return slices.DeleteFunc(away, func(name string) bool { return name != scope.Name })
	}
	return away
}

// Urgents returns the urgent changes, the oldest first, with the seconds that those have left that end.
func (f *Fleet) Urgents(ctx context.Context) ([]UrgentLeft, error) {
	states, err := f.States(ctx)
	if err != nil {
		return nil, err
	}
	return f.urgents(ctx, states)
}

func (f *Fleet) urgents(ctx context.Context, states States) (all []UrgentLeft, err error) {
	err = f.callAgain(ctx, "reading the urgent changes", func(ctx context.Context) error {
		r, err := f.etcd.Get(ctx, f.keys.Urgents(), clientv3.WithPrefix())
		if err != nil {
			return err
		}
		all = nil
		for _, kv := range r.Kvs {
			var u UrgentLeft
			id := string(kv.Key[len(f.keys.Urgents()):])
			if decode(kv.Value, &u.Urgent) != nil || !isUrgent(id, u.Urgent) { // by hand: the others are listed all the same
				u.Urgent = cluster.Urgent{Words: noUrgent}
			}
			u.ID = id
			if kv.Lease != 0 {
				ttl, err := f.etcd.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
				if err != nil {
					return err
				}
				u.Left = max(ttl.TTL, 0)
			}
			u.overOn(states)
			all = append(all, u)
		}
		return nil
	})
	slices.SortFunc(all, func(a, b UrgentLeft) int { return cluster.CompareIDs(a.ID, b.ID) })
	return all, err
}

// isUrgent tells whether a key is an urgent change, as nodes tell.
func isUrgent(id string, u cluster.Urgent) bool { return cluster.CheckID(id) == nil && u.Words != "" }

// noUrgent are the words of a key that is no urgent change.
const noUrgent = "no record of culvert's, written by hand: no node carries it out, and 'culvert fleet undo' takes it away"

// UrgentLeft is an urgent change with the seconds that it has left, 0 without an end and when its time is over.
type UrgentLeft struct {
	cluster.Urgent
	Left int64 `json:"left,omitempty"`
	// Over are the nodes by whose clocks its time is over, although etcd still has it: they do not carry it out again.
	Over []string `json:"over,omitempty"`
}

// overOn adds on which nodes the change is over. If none has it any more it has no time left, whatever the lease of its key has.
func (u *UrgentLeft) overOn(states States) {
	inForce := false
	for _, name := range states.Names() {
		if slices.Contains(states[name].UrgentOver, u.ID) {
			u.Over = append(u.Over, name)
		}
		inForce = inForce || slices.Contains(states[name].Urgent, u.ID)
	}
	if len(u.Over) > 0 && !inForce {
		u.Left = 0
	}
}

// left says how long the change lasts.
func (u *UrgentLeft) left() string {
	switch left := (time.Duration(u.Left) * time.Second).String(); {
	case u.Left > 0 && len(u.Over) > 0:
		return left + ", over on " + some(u.Over)
	case u.Left > 0:
		return left
	case len(u.Over) > 0:
		return "over"
	}
	return "-"
}

// UrgentList is what 'culvert fleet urgent' prints as JSON.
type UrgentList struct {
	Urgents []UrgentLeft `json:"urgents"`
}

// UrgentLines returns urgent changes for people.
func UrgentLines(all []UrgentLeft) []string {
	if len(all) == 0 {
		return []string{"no urgent changes"}
	}
	var t text.Table
	t.Add("ID", "FOR", "LEFT", "WHEN", "BY", "CHANGE")
	for _, u := range all {
		if u.Words == noUrgent {
			t.Add(u.ID, "-", u.left(), "-", "-", noUrgent)
			continue
		}
		t.Add(u.ID, u.Scope.String(), u.left(), when(u.At), u.By, commandLine(u.Urgent))
	}
	return t.Lines()
}

// commandLine returns what follows 'culvert fleet' on the command line that makes an urgent change.
func commandLine(u cluster.Urgent) string {
	line := edit.CommandLine(u.Words, u.Request)
	if set, ok := strings.CutPrefix(line, "filter set "); ok {
		return "set " + set
	}
	if u.Words == "lb drain" && !bytes.Contains(u.Request, []byte(`"vip"`)) { // at all VIPs
		return strings.TrimPrefix(line, "lb ")
	}
	return line
}

// forText returns the flag of a change for a time, with a blank in front, and "" for one without an end.
func forText(lasts time.Duration) string {
	if lasts <= 0 {
		return ""
	}
	text := lasts.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return " --for " + text
}

// UrgentVerbs returns the words of the verbs that print a Reach.
func UrgentVerbs() []string {
	all := []string{"fleet drain", "fleet undrain", "fleet undo"}
	for _, words := range []string{
		"filter add", "filter del", "filter protect", "filter unprotect", "set add", "set del",
		"lb vip add", "lb vip set", "lb vip del", "lb backend add", "lb backend set", "lb backend del", "lb drain", "lb undrain",
	} {
		all = append(all, "fleet "+words)
	}
	return all
}

// RuleName returns a name for an urgent rule without one. It is the same on all nodes.
func RuleName() string { return "urgent-" + newID() }

// Undo takes an urgent change back and waits until no node has it any more. A key that is no urgent change, written by hand, is taken away too.
func (f *Fleet) Undo(ctx context.Context, id string) (*Reach, error) {
	ids := []string{id}
	if n, err := strconv.ParseInt(id, 10, 64); err == nil {
		ids = []string{fmt.Sprintf("%08d", n), id}
	}
	var u cluster.Urgent
	var changed int64
	for _, id = range ids {
		var err error
		if changed, err = f.get(ctx, f.keys.Urgent(id), &u); err != nil && changed == 0 {
			return nil, err
		}
		if changed != 0 {
			break
		}
	}
	if changed == 0 {
		return nil, fmt.Errorf("there is no urgent change %s: see 'culvert fleet urgent'", ids[0])
	}
	nodes, _, stop, err := f.following(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	begun := time.Now()
	if err := f.callAgain(ctx, "taking back an urgent change", func(ctx context.Context) error {
		_, err := f.etcd.Delete(ctx, f.keys.Urgent(id))
		return err
	}); err != nil {
		return nil, err
	}
	r := f.reach(ctx, nodes, id, u.Scope, begun, func(s cluster.State) (bool, string) {
		return !slices.Contains(s.Urgent, id), ""
	})
	r.Undone, r.none = true, !isUrgent(id, u)
	f.audit(ctx, "undo", id+": "+commandLine(u)+forText(u.For), nil)
	return r, nil
}

// UndoSame takes back the urgent changes with the same request and scope: 'undrain' after 'drain'.
func (f *Fleet) UndoSame(ctx context.Context, q edit.Request, scope cluster.Scope) ([]*Reach, error) {
	all, err := f.Urgents(ctx)
	if err != nil {
		return nil, err
	}
	request, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	var done []*Reach
	for _, u := range all {
		if u.Words != edit.WordsOf(q) || u.Scope != scope || string(u.Request) != string(request) {
			continue
		}
		r, err := f.Undo(ctx, u.ID)
		if err != nil {
			return done, err
		}
		done = append(done, r)
	}
	if len(done) == 0 {
		return nil, errors.New("no urgent change of that kind is there: see 'culvert fleet urgent'")
	}
	return done, nil
}
