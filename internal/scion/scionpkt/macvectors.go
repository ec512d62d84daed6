// SPDX-License-Identifier: Apache-2.0

package scionpkt

import (
	"fmt"
	"math/rand/v2"

	"github.com/scionproto/scion/pkg/scrypto"
	"github.com/scionproto/scion/pkg/slayers/path"
)

// MACVector is a hop field with the MAC that the reference computes for it.
type MACVector struct {
	Key  [16]byte
	Info path.InfoField
	// Hop.Mac is the MAC of the hop field.
	Hop path.HopField
	// Input is the block over which the MAC is computed. Full is the whole CMAC. Its first 6 bytes are
	// the MAC.
	Input, Full [16]byte
}

// MACVectors makes n hop fields with random keys and contents.
func MACVectors(rng *rand.Rand, n int) ([]MACVector, error) {
	vs := make([]MACVector, n)
	for i := range vs {
		v := &vs[i]
		for k := range v.Key {
			v.Key[k] = byte(rng.Uint32())
		}
		v.Info = path.InfoField{
			ConsDir: rng.IntN(2) == 0, Peer: rng.IntN(2) == 0,
			SegID: uint16(rng.Uint32()), Timestamp: rng.Uint32(),
		}
		v.Hop = path.HopField{
			IngressRouterAlert: rng.IntN(2) == 0, EgressRouterAlert: rng.IntN(2) == 0,
			ExpTime:     uint8(rng.Uint32()),
			ConsIngress: uint16(rng.Uint32()), ConsEgress: uint16(rng.Uint32()),
		}
		mac, err := scrypto.InitMac(v.Key[:])
		if err != nil {
			return nil, fmt.Errorf("mac vector: key: %w", err)
		}
		path.MACInput(v.Info.SegID, v.Info.Timestamp, v.Hop.ExpTime, v.Hop.ConsIngress,
			v.Hop.ConsEgress, v.Input[:])
		copy(v.Full[:], path.FullMAC(mac, v.Info, v.Hop, nil))
		v.Hop.Mac = path.MAC(mac, v.Info, v.Hop, nil)
	}
	return vs, nil
}
