// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"culvert/internal/cluster"
)

// Over names an urgent change whose time is over by the node's clock. Such a change never comes back, whatever etcd has of it: an etcd that
// gets another leader gives the leases of keys their whole time again.
type Over struct {
	ID string `json:"id"`
	// Sum tells the change from another one with its ID, which an etcd that has lost its data may give again.
	Sum string `json:"sum"`
}

// MostOver is how many changes that are over a node remembers: the last ones.
const MostOver = 1024

// OverOf names a change.
func OverOf(u cluster.Urgent) Over {
	// An encoding of the request of its own is none of the change's.
	text, _ := json.Marshal(struct {
		Words, Request string
		At             int64
		For            time.Duration
	}{u.Words, string(u.Request), u.At.UnixNano(), u.For})
	sum := sha256.Sum256(text)
	const bytes = 8
	return Over{u.ID, hex.EncodeToString(sum[:bytes])}
}

// AddOver adds a change to those that are over. It returns false if it was among them.
func AddOver(all []Over, o Over) ([]Over, bool) {
	if slices.Contains(all, o) {
		return all, false
	}
	all = append(slices.Clone(all), o)
	return all[max(len(all)-MostOver, 0):], true
}

// overNow tells whether the time of a change is over. Its caller holds the lock.
func (a *Agent) overNow(h Held, now time.Duration) bool {
	if h.Until == 0 || h.Until > now {
		return false
	}
	all, added := AddOver(a.over, OverOf(h.Urgent))
	if added {
		a.over, a.overUnkept = all, true
	}
	return true
}

// keepOver stores which changes are over, before they are undone: a process that starts between the two undoes them.
func (a *Agent) keepOver() {
	a.mu.Lock()
	all, unkept := a.over, a.overUnkept
	a.mu.Unlock()
	if !unkept || a.KeepOver == nil {
		return
	}
	err := a.KeepOver(all)
	told := false
	a.update(func(i *is) {
		text := ""
		if a.overUnkept = err != nil; err != nil {
			text = err.Error()
		}
		told = i.overProblem == text
		i.overProblem = text
	})
	if err != nil && !told {
		a.Log.Error("urgent changes whose time is over may come back after a restart: this is tried again", "err", err)
	}
}

// overIn returns the IDs of the changes that etcd still has although their time is over. Its caller holds the lock.
func (a *Agent) overIn() (ids []string) {
	for id, h := range a.want.urgents {
		if h.Until > 0 && slices.Contains(a.over, OverOf(h.Urgent)) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, cluster.CompareIDs)
	return ids
}
