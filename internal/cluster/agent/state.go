// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"culvert/internal/cluster"
	"culvert/internal/cluster/etcd"
)

// state returns the node's state as it is now.
func (a *Agent) state() cluster.State {
	s := cluster.State{
		Node: a.Node, Instance: a.Instance, Host: a.Host, Version: a.Version, Roles: a.Roles, Health: cluster.HealthGood,
	}
	a.Plane.State(&s)
	a.mu.Lock()
	defer a.mu.Unlock()
	s.Revision, s.Digest, s.Maintain = max(revisionOf(a.is.running), 0), a.is.digest, a.is.maintain
	if wanted := a.want.current.Of(a.Node); a.want.seen && (wanted != s.Revision || wanted == a.is.refusedNumber) {
		s.Wanted = wanted // also where another revision of that number runs
	}
	s.Refused = a.is.refused
	s.Urgent, s.UrgentFailed = slices.Clone(a.is.inForce), maps.Clone(a.is.failed)
	for id, why := range a.want.urgentsBad {
		if s.UrgentFailed == nil {
			s.UrgentFailed = make(map[string]string)
		}
		s.UrgentFailed[id] = why
	}
	s.UrgentOver, s.UrgentUnconcerned = a.overIn(), slices.Clone(a.is.unconcerned)
	for _, problem := range []string{a.is.keepProblem, a.is.overProblem} {
		if problem != "" {
			s.Problems = append(s.Problems, problem)
		}
	}
	return s
}

// weightOf returns what of a state is to be known at once.
func weightOf(s cluster.State) string {
	s.Interfaces, s.Backends = nil, nil
	text, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// longest is how much of a sentence fits into a state, in bytes.
const longest = 300

// most is how much of a list fits into a state at best. The rest is cut off at once: cutting one by one takes long.
const most = 64

func cutList[T any](list *[]T, most int, more *int) {
	if n := len(*list) - most; n > 0 {
		*list, *more = (*list)[:most], *more+n
	}
}

func cutMap(m map[string]string, most int, more *int) {
	if len(m) <= most {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(m))[most:] {
		delete(m, key)
		*more++
	}
}

// bounded returns the JSON of a state, with as much of it as fits. What matters least is left out first.
func bounded(s *cluster.State) ([]byte, error) {
	s.Refused = short(s.Refused, longest)
	for n := range s.Problems {
		s.Problems[n] = short(s.Problems[n], longest/2)
	}
	for id, why := range s.UrgentFailed {
		s.UrgentFailed[id] = short(why, longest/2)
	}
	cutList(&s.Interfaces, most, &s.More)
	cutList(&s.Announced, most, &s.More)
	cutList(&s.Problems, most, &s.More)
	cutList(&s.UrgentOver, most, &s.More)
	cutList(&s.UrgentUnconcerned, most, &s.More)
	for name, why := range s.Sources {
		s.Sources[name] = short(why, longest/2)
	}
	cutMap(s.Backends, most, &s.More)
	cutMap(s.Sources, most, &s.More)
	cutMap(s.Stages, most, &s.More)
	cutMap(s.UrgentFailed, most, &s.More)
	for {
		text, err := json.Marshal(s)
		if err != nil || len(text) <= cluster.MostState {
			return text, err
		}
		s.More++
		switch {
		case len(s.Interfaces) > 4:
			s.Interfaces = s.Interfaces[:len(s.Interfaces)-1]
		case len(s.Announced) > 4:
			s.Announced = s.Announced[:len(s.Announced)-1]
		case len(s.Backends) > 0:
			delete(s.Backends, slices.Max(slices.Collect(maps.Keys(s.Backends))))
		case len(s.Sources) > 1:
			delete(s.Sources, slices.Max(slices.Collect(maps.Keys(s.Sources))))
		case len(s.UrgentFailed) > 3:
			delete(s.UrgentFailed, slices.Max(slices.Collect(maps.Keys(s.UrgentFailed))))
		case len(s.Urgent) > 20: // the newest are looked for
			s.Urgent = s.Urgent[1:]
		case len(s.UrgentUnconcerned) > 0:
			s.UrgentUnconcerned = s.UrgentUnconcerned[1:]
		case len(s.UrgentOver) > 0:
			s.UrgentOver = s.UrgentOver[1:]
		case len(s.Problems) > 1:
			s.Problems = s.Problems[:len(s.Problems)-1]
		case len(s.Sources) > 0:
			clear(s.Sources)
		case len(s.Interfaces) > 0:
			s.Interfaces = s.Interfaces[:len(s.Interfaces)-1]
		case len(s.Announced) > 0:
			s.Announced = s.Announced[:len(s.Announced)-1]
		case len(s.Stages) > 0:
			delete(s.Stages, slices.Max(slices.Collect(maps.Keys(s.Stages))))
		case len(s.UrgentFailed) > 0:
			delete(s.UrgentFailed, slices.Max(slices.Collect(maps.Keys(s.UrgentFailed))))
		case len(s.Urgent) > 0:
			s.Urgent = s.Urgent[1:]
		case len(s.Problems) > 0:
			s.Problems = s.Problems[:len(s.Problems)-1]
		case len(s.Roles) > 0:
			s.Roles = s.Roles[:len(s.Roles)-1]
		default:
			return nil, fmt.Errorf("the node's state has %d bytes, more than %d", len(text), cluster.MostState)
		}
	}
}

func short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const dots = "…"
	cut := most - len(dots)
	for cut > 0 && text[cut]&0xc0 == 0x80 { // inside of a character
		cut--
	}
	return text[:cut] + dots
}

// answerTTL is how long an answer stays, in seconds.
const answerTTL = 30

// answer writes the answer to a question.
func (a *Agent) answer(ctx context.Context, client *clientv3.Client, q cluster.Ask) {
	reply := a.reply(ctx, client, q)
	reply.Node = a.Node
	text, err := json.Marshal(reply)
	if err == nil {
		calling, cancel := context.WithTimeout(ctx, etcd.CallTime)
		defer cancel()
		var lease *clientv3.LeaseGrantResponse
		if lease, err = client.Grant(calling, answerTTL); err == nil {
			_, err = client.Put(calling, a.keys.Answer(a.Node, q.ID), string(text), clientv3.WithLease(lease.ID))
		}
	}
	if err != nil && ctx.Err() == nil {
		a.Log.Warn("a question was not answered", "id", q.ID, "err", etcd.Reason(err))
	}
}

// reply fetches the sets of documents that are to be checked before it asks the data plane.
func (a *Agent) reply(ctx context.Context, client *clientv3.Client, q cluster.Ask) cluster.Answer {
	if q.Kind == cluster.AskCheck && a.Fetch != nil {
		if err := a.Fetch(ctx, client, cluster.Revision{Sets: q.Sets}); err != nil {
			return cluster.Answer{Errors: []string{oneLine(err)}}
		}
	}
	return a.Plane.Answer(ctx, q)
}
