// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"crypto/aes"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"time"

	"culvert/internal/bpfobj"
)

// HopMACInput is what the MAC of a hop field covers: one block (scionproto pkg/slayers/path, MACInput).
type HopMACInput = [aes.BlockSize]byte

// HopMAC is the MAC of a hop field.
type HopMAC = [6]byte

// VerifyHop returns the keys under which the MAC of a hop field is valid at a time, as hop_verify of bpf/scion/mac.h does, and all
// loaded keys.
func (p Plane) VerifyHop(input HopMACInput, mac HopMAC, at time.Time) (valid, loaded []KeyInfo, err error) {
	slots, err := p.keySlots()
	if err != nil {
		return nil, nil, err
	}
	if loaded, err = p.Keys(); err != nil {
		return nil, nil, err
	}
	for _, info := range loaded {
		k := slots[info.Index]
		now := uint64(at.UnixNano())
		if now < k.NotBefore || now > k.NotAfter {
			continue
		}
		if want := hopMAC(k, input); subtle.ConstantTimeCompare(want[:], mac[:]) == 1 {
			valid = append(valid, info)
		}
	}
	return valid, loaded, nil
}

// hopMAC computes the MAC of a hop field under a loaded key: the CMAC of one block (RFC 4493).
func hopMAC(k bpfobj.PipelineAesCmacKey, input HopMACInput) (mac HopMAC) {
	key := loadedKey(k)
	c, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the size is fixed
	}
	k1 := cmacSubkey(key)
	subtle.XORBytes(input[:], input[:], k1[:])
	c.Encrypt(input[:], input[:])
	copy(mac[:], input[:])
	return mac
}

// loadedKey is the reverse of cmacKey. The first eight words of the round keys are changed there; the others have the key
// (FIPS 197, 5.2).
func loadedKey(k bpfobj.PipelineAesCmacKey) (key Key) {
	s := sbox()
	rk := k.Rk
	for i := 7; i >= 0; i-- {
		w := rk[i+3]
		if i%4 == 0 {
			w = bits.RotateLeft32(w, -8)
			w = uint32(s[byte(w)]) | uint32(s[byte(w>>8)])<<8 | uint32(s[byte(w>>16)])<<16 | uint32(s[byte(w>>24)])<<24
			w ^= uint32(1) << (i / 4) // the round constants of the first two rounds
		}
		rk[i] = rk[i+4] ^ w
	}
	for i := range 4 {
		binary.LittleEndian.PutUint32(key[4*i:], rk[i])
	}
	return key
}

// Refuses tells whether datagrams of a link must not come in by an interface, given its index.
func (p Plane) Refuses(link, ifindex int) (bool, error) {
	port, ok := p.Port(ifindex)
	if !ok || port.Slot == 0 {
		return false, nil
	}
	var refused uint64
	if err := p.Map(bpfobj.PipelineMapScionRefused).Lookup(uint32(link), &refused); err != nil {
		return false, fmt.Errorf("reading the interfaces of link %d of %s: %w", link, p.Name(), err)
	}
	return refused>>(port.Slot-1)&1 != 0, nil
}

// HostNextHop returns the next hop of an end host of the AS, and whether the programs know the host.
func (p Plane) HostNextHop(addr netip.Addr) (NextHop, bool, error) {
	var h bpfobj.PipelineScionHost
	err := p.Map(bpfobj.PipelineMapScionHosts).Lookup(bpfobj.AddrWords(addr), &h)
	if bpfobj.NotExist(err) {
		return NextHop{}, false, nil
	}
	if err != nil {
		return NextHop{}, false, fmt.Errorf("reading the next hop of host %s: %w", addr, err)
	}
	return NextHop{IfIndex: int(h.Hop.Port), SrcMAC: h.Hop.Smac, DstMAC: h.Hop.Dmac, MTU: h.Hop.Mtu, LinearOnly: h.Hop.LinearOnly != 0}, true, nil
}
