// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"errors"
	"fmt"

	"culvert/internal/bpfobj"
)

// Keep notes the keys, their schedule, and the interfaces of links. They are in maps that an earlier program may use too, so a
// commit that fails has to leave them as they were: back brings them back.
func (p Plane) Keep() (back func() error, err error) {
	slots, err := p.keySlots()
	if err != nil {
		return nil, err
	}
	refused, err := p.refused()
	if err != nil {
		return nil, err
	}
	schedule, slow := p.schedule(), p.slowPathKey()
	return func() error {
		errs := []error{p.putKeys(slots), p.writeSchedule(schedule), p.noteSlowPathKey(slow)}
		for link := range refused {
			errs = append(errs, p.putRefused(link, refused[link]))
		}
		return errors.Join(errs...)
	}, nil
}

// putKeys makes the loaded keys those of slots, each at its index.
func (p Plane) putKeys(slots [MaxKeys]bpfobj.PipelineAesCmacKey) error {
	now, err := p.keySlots()
	if err != nil {
		return err
	}
	for index, k := range slots {
		if now[index].Id != 0 && now[index].Id != k.Id {
			if err := p.RemoveKey(index); err != nil {
				return err
			}
		}
		if k.Id != 0 {
			if err := p.addKey(index, k); err != nil {
				return err
			}
		}
	}
	return nil
}

// refused returns the interfaces that each link refuses, as writeAccept writes them.
func (p Plane) refused() ([]uint64, error) {
	all := make([]uint64, len(p.Config().Links))
	for link := range all {
		if err := p.Map(bpfobj.PipelineMapScionRefused).Lookup(uint32(link), &all[link]); err != nil {
			return nil, fmt.Errorf("reading the interfaces of link %d of %s: %w", link, p.Name(), err)
		}
	}
	return all, nil
}
