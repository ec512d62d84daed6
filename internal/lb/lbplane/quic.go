// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"

	"culvert/internal/bpfobj"
)

// MaxServerID is LB_ID_MAX of bpf/lb/maps.h: bytes of a server ID in QUIC connection IDs at most.
const MaxServerID = 8

func serverKey(vip uint32, id []byte) (k bpfobj.PipelineLbServerKey, err error) {
	if len(id) < 1 || len(id) > MaxServerID {
		return k, fmt.Errorf("server ID of %d bytes: use 1 to %d", len(id), MaxServerID)
	}
	k = bpfobj.PipelineLbServerKey{Vip: vip, Len: uint8(len(id))}
	copy(k.Id[:], id)
	return k, nil
}

// SetServerID says which backend of a VIP has a server ID, as QUIC connection IDs name it. It counts where the VIP's ServerID
// is its length.
func (p *Plane) SetServerID(vip uint32, id []byte, backend BackendID) error {
	k, err := serverKey(vip, id)
	if err == nil {
		err = p.inst.Map(bpfobj.PipelineMapLbServers).Put(k, uint32(backend))
	}
	if err != nil {
		return fmt.Errorf("writing server ID %x of %s: %w", id, p.Name(), err)
	}
	return nil
}

// DeleteServerID is no error if there is none.
func (p *Plane) DeleteServerID(vip uint32, id []byte) error {
	k, err := serverKey(vip, id)
	if err == nil {
		err = p.inst.Map(bpfobj.PipelineMapLbServers).Delete(k)
	}
	if err != nil && !bpfobj.NotExist(err) {
		return fmt.Errorf("deleting server ID %x of %s: %w", id, p.Name(), err)
	}
	return nil
}

// ServerIDs returns the server IDs of a VIP, as strings of their bytes, and who has them.
func (p *Plane) ServerIDs(vip uint32) (map[string]BackendID, error) {
	var (
		k       bpfobj.PipelineLbServerKey
		backend uint32
	)
	ids := make(map[string]BackendID)
	it := p.inst.Map(bpfobj.PipelineMapLbServers).Iterate()
	for it.Next(&k, &backend) {
		if k.Vip == vip {
			ids[string(k.Id[:min(int(k.Len), len(k.Id))])] = BackendID(backend)
		}
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("listing the server IDs of %s: %w", p.Name(), err)
	}
	return ids, nil
}
