// SPDX-License-Identifier: Apache-2.0

package lbplane

import (
	"fmt"

	"culvert/internal/bpfobj"
)

// MaxServerID is LB_ID_MAX of bpf/lb/maps.h: the largest length in bytes of a server ID in QUIC connection IDs.
const MaxServerID = 8

func serverKey(vip uint32, id []byte) (k bpfobj.PipelineLbServerKey, err error) {
	if len(id) < 1 || len(id) > MaxServerID {
		return k, fmt.Errorf("server ID of %d bytes: use 1 to %d", len(id), MaxServerID)
	}
	k = bpfobj.PipelineLbServerKey{Vip: vip, Len: uint8(len(id))}
	copy(k.Id[:], id)
	return k, nil
}

// SetServerID assigns a server ID of QUIC connection IDs to a backend of the VIP with that number. It is used only if its
// length is the VIP's ServerID.
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

// DeleteServerID deletes a server ID. It returns no error if there is none.
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

// ServerIDs returns the backends of the VIP with that number by server ID, a string of its bytes.
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
