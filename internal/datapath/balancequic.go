// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"

	"culvert/internal/bpfobj"
)

// BalanceMaxServerID is LB_ID_MAX of bpf/lb/maps.h: bytes of a server ID in QUIC connection IDs at most.
const BalanceMaxServerID = 8

func serverKey(vip uint32, id []byte) (k bpfobj.PipelineLbServerKey, err error) {
	if len(id) < 1 || len(id) > BalanceMaxServerID {
		return k, fmt.Errorf("server ID of %d bytes: use 1 to %d", len(id), BalanceMaxServerID)
	}
	k = bpfobj.PipelineLbServerKey{Vip: vip, Len: uint8(len(id))}
	copy(k.Id[:], id)
	return k, nil
}

// SetServerID says which member of a VIP has a server ID, as QUIC connection IDs name it. It counts where the VIP's ServerID
// is its length.
func (p *BalancePlane) SetServerID(vip uint32, id []byte, owner BalanceOwner) error {
	k, err := serverKey(vip, id)
	if err == nil {
		err = p.inst.maps[bpfobj.PipelineMapLbServers].Put(k, uint32(owner))
	}
	if err != nil {
		return fmt.Errorf("writing server ID %x of %s: %w", id, p.Name(), err)
	}
	return nil
}

// DeleteServerID is no error if there is none.
func (p *BalancePlane) DeleteServerID(vip uint32, id []byte) error {
	k, err := serverKey(vip, id)
	if err == nil {
		err = p.inst.maps[bpfobj.PipelineMapLbServers].Delete(k)
	}
	if err != nil && !bpfobj.NotExist(err) {
		return fmt.Errorf("deleting server ID %x of %s: %w", id, p.Name(), err)
	}
	return nil
}

// ServerIDs returns the server IDs of a VIP, as strings of their bytes, and who has them.
func (p *BalancePlane) ServerIDs(vip uint32) (map[string]BalanceOwner, error) {
	var (
		k     bpfobj.PipelineLbServerKey
		owner uint32
	)
	ids := make(map[string]BalanceOwner)
	it := p.inst.maps[bpfobj.PipelineMapLbServers].Iterate()
	for it.Next(&k, &owner) {
		if k.Vip == vip {
			ids[string(k.Id[:min(int(k.Len), len(k.Id))])] = BalanceOwner(owner)
		}
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("listing the server IDs of %s: %w", p.Name(), err)
	}
	return ids, nil
}
