// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
)

// migrator inserts flows, one at a time, into a flow table that programs are using.
type migrator struct{ prog *ebpf.Program }

// migratorTries is how often a migrator tries to lock a bucket that programs are using.
const migratorTries = 100

// loadMigrator loads the program for the flow table.
func (f flowMap) loadMigrator() (*migrator, error) {
	spec, err := bpfobj.LoadMigrate()
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]any{
		bpfobj.MigrateVarLbIdle:    f.options.idle(),
		bpfobj.MigrateVarLbBuckets: f.buckets(),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("setting %s: %w", name, err)
		}
	}
	spec.Maps[bpfobj.MigrateMapLbFlows].MaxEntries = f.buckets()
	var loaded bpfobj.MigratePrograms // the program uses no other maps, so none is created
	err = spec.LoadAndAssign(&loaded, &ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{bpfobj.MigrateMapLbFlows: f.flows},
	})
	if err != nil {
		return nil, bpfobj.LoadError(err)
	}
	return &migrator{loaded.LbMigrate}, nil
}

// migrateResult is what has become of a flow: enum lb_migrate_result of bpf/lb/migrate.bpf.c.
type migrateResult uint32

const (
	migrateLocked migrateResult = iota // the bucket stays locked
	migrateDone
	migrateKept
	migrateFull
)

// insert inserts a flow, unless the table has it already or has no room for it.
func (c *migrator) insert(e flowEntry) (migrateResult, error) {
	return c.run(e.bytes())
}

// insertModestly inserts a flow, and takes no way from a flow that has not expired. An entry of the flow with the backend and the
// time of was is replaced, if was is not nil.
func (c *migrator) insertModestly(e flowEntry, was *flowEntry) (migrateResult, error) {
	b := e.bytes()
	if was != nil {
		bpfobj.Native.PutUint16(b[38:], was.time)
		bpfobj.Native.PutUint32(b[40:], uint32(was.backend))
	}
	bpfobj.Native.PutUint32(b[44:], 1)
	return c.run(b)
}

// run gives a flow up whose bucket stays locked.
func (c *migrator) run(b []byte) (migrateResult, error) {
	for range migratorTries {
		done, err := c.prog.Run(&ebpf.RunOptions{Data: b})
		if err != nil || migrateResult(done) != migrateLocked {
			return migrateResult(done), err
		}
	}
	return migrateLocked, nil
}

func (c *migrator) Close() { c.prog.Close() }

// bytes returns the entry as struct lb_migrate_entry of bpf/lb/migrate.bpf.c.
func (e flowEntry) bytes() []byte {
	b := make([]byte, 48)
	bpfobj.Native.PutUint64(b, e.src[0])
	bpfobj.Native.PutUint64(b[8:], e.src[1])
	bpfobj.Native.PutUint32(b[16:], e.ports)
	bpfobj.Native.PutUint32(b[20:], e.vip)
	bpfobj.Native.PutUint64(b[24:], e.hash)
	bpfobj.Native.PutUint32(b[32:], uint32(e.backend))
	bpfobj.Native.PutUint16(b[36:], e.time)
	return b
}
