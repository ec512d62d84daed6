// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"

	"culvert/internal/bpfobj"
)

// carrier takes flows into a flow table that programs work on, one at a time.
type carrier struct{ prog *ebpf.Program }

// carrierTries bounds how often a carrier tries for a bucket that the programs are at.
const carrierTries = 100

// loadCarrier loads it for the flow table of an instance.
func (i *Instance) loadCarrier() (*carrier, error) {
	spec, err := bpfobj.LoadMigrate()
	if err != nil {
		return nil, err
	}
	flows := i.maps[bpfobj.PipelineMapLbFlows]
	for name, value := range map[string]any{
		bpfobj.MigrateVarLbIdle:    i.Balance().idle(),
		bpfobj.MigrateVarLbBuckets: flows.MaxEntries(),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("setting %s: %w", name, err)
		}
	}
	spec.Maps[bpfobj.MigrateMapLbFlows].MaxEntries = flows.MaxEntries()
	var loaded bpfobj.MigratePrograms // the other maps of the object are the stage's, and are not made
	err = spec.LoadAndAssign(&loaded, &ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{bpfobj.MigrateMapLbFlows: flows},
	})
	if err != nil {
		return nil, bpfobj.LoadError(err)
	}
	return &carrier{loaded.LbMigrate}, nil
}

// take takes a flow in, unless the table has it or no room for it. One whose bucket stays busy is left behind.
func (c *carrier) take(e balanceEntry) error {
	for range carrierTries {
		done, err := c.prog.Run(&ebpf.RunOptions{Data: e.bytes()})
		if err != nil || done != 0 {
			return err
		}
	}
	return nil
}

func (c *carrier) Close() { c.prog.Close() }

// bytes is struct lb_migrate_entry of bpf/lb/migrate.bpf.c.
func (e balanceEntry) bytes() []byte {
	b := make([]byte, 40)
	bpfobj.Native.PutUint64(b, e.src[0])
	bpfobj.Native.PutUint64(b[8:], e.src[1])
	bpfobj.Native.PutUint32(b[16:], e.ports)
	bpfobj.Native.PutUint32(b[20:], e.vip)
	bpfobj.Native.PutUint64(b[24:], e.hash)
	bpfobj.Native.PutUint32(b[32:], uint32(e.owner))
	bpfobj.Native.PutUint16(b[36:], e.time)
	return b
}
