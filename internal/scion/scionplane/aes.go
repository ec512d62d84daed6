// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"crypto/aes"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/bits"

	"culvert/internal/bpfobj"
)

// KeySize is the length of a forwarding key in bytes.
const KeySize = 16

// Key is an AES-128 key for the MACs of hop fields, as derived from a master key.
type Key = [KeySize]byte

// double multiplies by x in the field of AES (FIPS 197, 4.2.1).
func double(x byte) byte {
	d := x << 1
	if x&0x80 != 0 {
		d ^= 0x1b
	}
	return d
}

// sbox returns the substitution table of FIPS 197, 5.1.1: the inverse in the field, then an affine map. 3 generates the
// field's units, so p runs through all of them while q runs through their inverses.
func sbox() (s [256]byte) {
	p, q := byte(1), byte(1)
	for {
		p ^= double(p)
		q ^= q << 1
		q ^= q << 2
		q ^= q << 4
		if q&0x80 != 0 {
			q ^= 0x09
		}
		x := q ^ bits.RotateLeft8(q, 1) ^ bits.RotateLeft8(q, 2) ^ bits.RotateLeft8(q, 3) ^
			bits.RotateLeft8(q, 4)
		s[p] = x ^ 0x63
		if p == 1 {
			break
		}
	}
	s[0] = 0x63
	return s
}

// aesTables returns aes_te of bpf/scion/aes.h: SubBytes and MixColumns of each byte in each row, as little-endian columns.
func aesTables() (te [4][256]uint32) {
	for x, s := range sbox() {
		d := double(s)
		column := uint32(d) | uint32(s)<<8 | uint32(s)<<16 | uint32(d^s)<<24
		for r := range te {
			te[r][x] = bits.RotateLeft32(column, 8*r)
		}
	}
	return te
}

// expandKey returns the key schedule of FIPS 197, 5.2. The words are little-endian columns.
func expandKey(key Key) (rk [44]uint32) {
	s := sbox()
	for i := range 4 {
		rk[i] = binary.LittleEndian.Uint32(key[4*i:])
	}
	rcon := byte(1)
	for i := 4; i < len(rk); i++ {
		w := rk[i-1]
		if i%4 == 0 {
			w = bits.RotateLeft32(w, -8)
			w = uint32(s[byte(w)]) | uint32(s[byte(w>>8)])<<8 | uint32(s[byte(w>>16)])<<16 |
				uint32(s[byte(w>>24)])<<24
			w ^= uint32(rcon)
			rcon = double(rcon)
		}
		rk[i] = rk[i-4] ^ w
	}
	return rk
}

// cmacSubkey returns the subkey K1 of RFC 4493, 2.3.
func cmacSubkey(key Key) (k1 [16]byte) {
	c, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the size is fixed
	}
	c.Encrypt(k1[:], k1[:])
	hi, lo := binary.BigEndian.Uint64(k1[:8]), binary.BigEndian.Uint64(k1[8:])
	carry := hi >> 63
	binary.BigEndian.PutUint64(k1[:8], hi<<1|lo>>63)
	binary.BigEndian.PutUint64(k1[8:], lo<<1^carry*0x87)
	return k1
}

// cmacKey prepares a key for aes_cmac in bpf/scion/aes.h. The first round key includes K1, and the second the table
// lookups of the block's bytes that are always zero (0, 1, 8, 14, 15).
func cmacKey(key Key) bpfobj.PipelineAesCmacKey {
	k := bpfobj.PipelineAesCmacKey{Rk: expandKey(key), Id: keyID(key), NotAfter: never}
	k1 := cmacSubkey(key)
	for i := range 4 {
		k.Rk[i] ^= binary.LittleEndian.Uint32(k1[4*i:])
	}
	te := aesTables()
	for _, b := range []int{0, 1, 8, 14, 15} {
		column, row := b/4, b%4
		x := byte(k.Rk[column] >> (8 * row))
		// ShiftRows moves a byte to the left by as many columns as its row.
		k.Rk[4+(column-row+4)%4] ^= te[row][x]
	}
	return k
}

// never is the time of a key without an end.
const never = math.MaxUint64

// keyID returns the ID of a key, never 0. Entries of the cache of verified hop fields carry the ID of the key that verified
// them. The ID is a hash of the key, so that the entries are valid again when the key is loaded again.
func keyID(key Key) uint64 {
	sum := sha256.Sum256(key[:])
	return binary.LittleEndian.Uint64(sum[:8]) | 1
}
