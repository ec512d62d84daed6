// SPDX-License-Identifier: Apache-2.0

// Package urgent carries out the urgent changes of a cluster on a data plane, and undoes them when they end. It keeps a journal on disk,
// so that a process that starts knows what one before has done to the data plane, which goes on without a process.
package urgent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"culvert/internal/cluster/agent"
	"culvert/internal/cluster/lastgood"
	"culvert/internal/datapath"
	"culvert/internal/edit"
	"culvert/internal/filter/filterstage"
)

// Keeper carries out urgent changes.
type Keeper struct {
	path string

	mu      sync.Mutex
	plane   uint64 // the data plane on which they were carried out
	carried []carried
}

// carried is a change that is in force.
type carried struct {
	Held agent.Held `json:"held"`
	Undo *edit.Undo `json:"undo"`
}

// journal is what is on disk.
type journal struct {
	// Plane tells the data plane from others, and Boot this run of the machine: what was done to one that is gone is of no use.
	Plane   uint64    `json:"plane"`
	Boot    string    `json:"boot"`
	Carried []carried `json:"carried"`
}

// Open returns a keeper with what the journal at path has. An error says why it cannot be read: then nothing is known to be in force.
func Open(path string) (*Keeper, error) {
	k := &Keeper{path: path}
	text, err := lastgood.ReadSealed(path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	var j journal
	if err == nil {
		err = json.Unmarshal(text, &j)
	}
	if err != nil {
		return k, fmt.Errorf("the journal of urgent changes %s cannot be read, so that some which have ended may stay in force: %w: "+
			"compare 'culvert filter list' and 'culvert lb show' with 'culvert fleet urgent'", path, err)
	}
	if j.Boot == bootID() {
		k.plane, k.carried = j.Plane, j.Carried
	}
	return k, nil
}

// bootID tells this run of the machine from others.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Held returns the changes in force.
func (k *Keeper) Held() (all []agent.Held) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.carried {
		all = append(all, c.Held)
	}
	return all
}

// Bring brings exactly these changes into force, undoes others, and returns why some could not be carried out, by ID.
func (k *Keeper) Bring(ctx context.Context, inst *datapath.Instance, changes []agent.Held) map[string]error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.renew(inst.ID())
	failed := make(map[string]error)
	ended := k.end(inst, changes) // what could not be undone stays in the journal, and is tried again
	for _, h := range changes {
		q, err := request(h)
		switch {
		case err != nil:
		case k.index(h) >= 0:
			err = k.ensure(ctx, inst, h, q) // the end of another one may have taken something of it back
		default:
			var concerned bool
			if concerned, err = edit.Concerns(q, inst); err == nil && !concerned {
				err = agent.ErrUnconcerned
			}
			if err == nil {
				err = k.carryOut(ctx, inst, h, q)
			}
		}
		if err != nil {
			failed[h.ID] = err
		}
	}
	if ended != nil {
		failed[ended.id] = ended.error
	}
	return failed
}

// Without returns what becomes of changes on a node without a data plane, by ID: those that are about what no such node has are nothing to it, and why
// says what becomes of the others.
func Without(changes []agent.Held, why error) map[string]error {
	failed := make(map[string]error)
	for _, h := range changes {
		failed[h.ID] = why
		q, err := request(h)
		if err != nil {
			failed[h.ID] = err
			continue
		}
		if concerned, err := edit.Concerns(q, nil); err == nil && !concerned {
			failed[h.ID] = agent.ErrUnconcerned
		}
	}
	return failed
}

// Renew forgets what was carried out on another data plane than that of an ID, 0 for none.
func (k *Keeper) Renew(plane uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.renew(plane)
}

func (k *Keeper) renew(plane uint64) {
	if plane != k.plane {
		k.plane, k.carried = plane, nil
	}
}

// request returns the request of a change.
func request(h agent.Held) (edit.Request, error) {
	q, err := edit.Parse(h.Words, h.Request)
	if err == nil {
		err = edit.CheckUrgent(q)
	}
	return q, err
}

func (k *Keeper) index(h agent.Held) int {
	return slices.IndexFunc(k.carried, func(c carried) bool { return same(c.Held, h) })
}

func same(a, b agent.Held) bool {
	return a.ID == b.ID && a.Words == b.Words && string(a.Request) == string(b.Request)
}

func (k *Keeper) carryOut(ctx context.Context, inst *datapath.Instance, h agent.Held, q edit.Request) error {
	undo, err := edit.CarryOut(ctx, q, inst)
	if err != nil {
		return err
	}
	k.carried = append(k.carried, carried{h, undo})
	return k.store()
}

// undoError says which change could not be undone.
type undoError struct {
	id string
	error
}

// end undoes what is not among changes, the last one first.
func (k *Keeper) end(inst *datapath.Instance, changes []agent.Held) (failed *undoError) {
	for n := len(k.carried) - 1; n >= 0; n-- {
		c := &k.carried[n]
		at := slices.IndexFunc(changes, func(h agent.Held) bool { return same(c.Held, h) })
		if at >= 0 {
			c.Held = changes[at] // it may have another end
			continue
		}
		if err := c.Undo.Back(inst); err != nil {
			failed = &undoError{c.Held.ID, fmt.Errorf("it has ended, and could not be undone: %w", err)}
			continue
		}
		k.carried = slices.Delete(k.carried, n, n+1)
	}
	if err := k.store(); err != nil && failed == nil {
		failed = &undoError{"journal", err}
	}
	return failed
}

// ensure carries out again what of a change is in force no more. What the change is about may be gone since, with another configuration.
func (k *Keeper) ensure(ctx context.Context, inst *datapath.Instance, h agent.Held, q edit.Request) error {
	newer, err := edit.Ensure(ctx, q, inst)
	if err != nil {
		if concerned, unknown := edit.Concerns(q, inst); unknown == nil && !concerned {
			return agent.ErrUnconcerned
		}
		return err
	}
	if newer == nil {
		return nil
	}
	k.carried[k.index(h)].Undo.Join(newer)
	return k.store()
}

// Again carries out again what a configuration has taken back that came into force since. It returns the errors by ID.
func (k *Keeper) Again(ctx context.Context, inst *datapath.Instance) map[string]error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.renew(inst.ID())
	failed := make(map[string]error)
	for _, c := range slices.Clone(k.carried) {
		q, err := request(c.Held)
		if err == nil {
			err = k.ensure(ctx, inst, c.Held, q)
		}
		if err != nil {
			failed[c.Held.ID] = err
		}
	}
	return failed
}

// Overlay adds what is in force to the plan of a configuration. The function that it returns is to be called each time that the plan has come
// into force.
func (k *Keeper) Overlay(p *filterstage.Plan) (inForce func(*datapath.Instance) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	newer := make(map[string]*edit.Undo)
	for _, c := range k.carried {
		if q, err := request(c.Held); err == nil {
			newer[c.Held.ID] = edit.Overlay(q, p)
		}
	}
	return func(inst *datapath.Instance) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		var errs []error
		for n := range k.carried {
			k.carried[n].Undo.Join(newer[k.carried[n].Held.ID])
		}
		for id, undo := range newer {
			ended := !slices.ContainsFunc(k.carried, func(c carried) bool { return c.Held.ID == id })
			if ended && undo != nil {
				errs = append(errs, undo.Back(inst))
			}
		}
		return errors.Join(append(errs, k.store())...)
	}
}

// store writes the journal.
func (k *Keeper) store() error {
	text, err := json.Marshal(journal{k.plane, bootID(), k.carried})
	if err == nil {
		err = lastgood.WriteSealed(k.path, text)
	}
	if err != nil {
		return fmt.Errorf("writing the journal of urgent changes: %w", err)
	}
	return nil
}
