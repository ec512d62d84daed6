// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"culvert/internal/host/pins"

	"github.com/cilium/ebpf"
)

// keptFilter holds the filter that is in force open, for its pins go when somebody else removes the instance.
type keptFilter struct {
	plane *filterPlane // nil before it was looked at
	// newest is the number of the last pin that there was, running the program on the links.
	newest  int
	running ebpf.ProgramID
}

// KeepFilter has Restore bring back the filter that is in force now. It is for whoever serves the instance, and costs
// little while nothing has changed. Others do not wait for it: while one of them makes a change it keeps what it had.
func (i *Instance) KeepFilter() error {
	if i.temporary || i.Removed() {
		return nil
	}
	dir := filepath.Join(i.dir, filterDir)
	look := func() keptFilter { return keptFilter{newest: newestNumber(dir), running: pins.Running(i.dir)} }
	now := look()
	i.mu.Lock()
	same := i.kept.plane != nil && now.newest == i.kept.newest && now.running == i.kept.running
	i.mu.Unlock()
	if same {
		return nil
	}
	// Whoever detaches holds this lock until all is gone: what is half gone is not read.
	unlock, err := tryEdits(i.dir)
	if errors.Is(err, pins.ErrGone) || err == nil && unlock == nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	if i.Removed() {
		return nil
	}
	now = look()
	if now.plane, err = openFilter(i.dir, now.running); err != nil {
		return fmt.Errorf("keeping the filter of %s: %w", i.Name(), err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.kept.plane.close()
	i.kept = now
	return nil
}

func newestNumber(dir string) int {
	if all := generations(dir); len(all) > 0 {
		return all[0]
	}
	return 0
}

// pin pins the filter for the instance in dir that was made again. A program that leads to a generation of another
// number is for AttachPort, which loads it anew.
func (k *keptFilter) pin(dir string) error {
	p := k.plane
	if p == nil || p.state.Filter.empty() {
		return nil
	}
	p.dir = filepath.Join(dir, filterDir)
	p.fresh = p.fresh[:0]
	for name := range p.maps {
		p.fresh = append(p.fresh, name)
	}
	slices.Sort(p.fresh)
	if err := p.pin(); err != nil {
		return fmt.Errorf("bringing the filter back: %w", err)
	}
	k.newest = 0 // to be looked at again
	return nil
}
