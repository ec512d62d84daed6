// SPDX-License-Identifier: Apache-2.0

package scionplane

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/scionproto/scion/pkg/slayers/path"

	"culvert/internal/bpfobj"
	"culvert/internal/scion/scionpkt"
)

// macRunner runs the MAC code of the eBPF programs by itself (bpf/test/mac_test.bpf.c).
type macRunner struct {
	macObjects
	t *testing.T
}

func loadMACRunner(t *testing.T) *macRunner {
	t.Helper()
	spec, err := loadMac()
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.Variables[bpfobj.PipelineVarAesTe].Set(aesTables()); err != nil {
		t.Fatal(err)
	}
	m := &macRunner{t: t}
	if err := spec.LoadAndAssign(&m.macObjects, nil); err != nil {
		t.Fatalf("loading (root is needed): %v", err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func (m *macRunner) setKey(index uint32, key Key) {
	m.t.Helper()
	if err := m.ScionKeys.Put(index, cmacKey(key)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *macRunner) clearKey(index uint32) {
	m.t.Helper()
	if err := m.ScionKeys.Put(index, bpfobj.PipelineAesCmacKey{}); err != nil {
		m.t.Fatal(err)
	}
}

func (m *macRunner) run(p *ebpf.Program, info path.InfoField, hop path.HopField) [8]byte {
	m.t.Helper()
	packet := make([]byte, 28)
	if err := info.SerializeTo(packet[:8]); err != nil {
		m.t.Fatal(err)
	}
	if err := hop.SerializeTo(packet[8:20]); err != nil {
		m.t.Fatal(err)
	}
	ret, out, err := p.Test(packet)
	if err != nil || ret != 2 {
		m.t.Fatalf("verdict %d, error %v", ret, err)
	}
	return [8]byte(out[20:28])
}

func (m *macRunner) verified(info path.InfoField, hop path.HopField) bool {
	return m.run(m.Verify, info, hop) != [8]byte{}
}

func vectors(t *testing.T, n int) []scionpkt.MACVector {
	t.Helper()
	v, err := scionpkt.MACVectors(rand.New(rand.NewPCG(7, 7)), n)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestMACIsTheReferences(t *testing.T) {
	m := loadMACRunner(t)
	for _, v := range vectors(t, 5000) {
		m.setKey(0, v.Key)
		got := m.run(m.Compute, v.Info, v.Hop)
		if [6]byte(got[:6]) != [6]byte(v.Full[:6]) || got[6] != 0 || got[7] != 0 {
			t.Fatalf("key %x, block %x: got %x, want %x", v.Key, v.Input, got, v.Full[:6])
		}
	}
}

// TestOneWrongBitIsRefused checks that a hop field is refused if one bit is wrong that its MAC covers, or one bit of the
// MAC. The right hop field is in the cache all the time.
func TestOneWrongBitIsRefused(t *testing.T) {
	m := loadMACRunner(t)
	for _, v := range vectors(t, 50) {
		m.setKey(0, v.Key)
		hop := v.Hop
		hop.Mac = [6]byte(v.Full[:6])
		for bit := range 8 * 17 {
			if !m.verified(v.Info, hop) {
				t.Fatal("a right MAC is refused")
			}
			badInfo, badHop := flip(v.Info, hop, bit)
			if m.verified(badInfo, badHop) {
				t.Fatalf("bit %d: a wrong hop field is accepted", bit)
			}
		}
	}
}

// flip inverts one bit of segid, timestamp, expiry, interfaces or MAC.
func flip(info path.InfoField, hop path.HopField, bit int) (path.InfoField, path.HopField) {
	byteAt, mask := bit/8, byte(1)<<(bit%8)
	var b [17]byte
	binary.BigEndian.PutUint16(b[0:], info.SegID)
	binary.BigEndian.PutUint32(b[2:], info.Timestamp)
	b[6] = hop.ExpTime
	binary.BigEndian.PutUint16(b[7:], hop.ConsIngress)
	binary.BigEndian.PutUint16(b[9:], hop.ConsEgress)
	copy(b[11:], hop.Mac[:])
	b[byteAt] ^= mask
	info.SegID = binary.BigEndian.Uint16(b[0:])
	info.Timestamp = binary.BigEndian.Uint32(b[2:])
	hop.ExpTime = b[6]
	hop.ConsIngress = binary.BigEndian.Uint16(b[7:])
	hop.ConsEgress = binary.BigEndian.Uint16(b[9:])
	copy(hop.Mac[:], b[11:])
	return info, hop
}

// TestCacheBelongsToTheKey checks that a cached hop field is valid only as long as the key that verified it is loaded.
func TestCacheBelongsToTheKey(t *testing.T) {
	m := loadMACRunner(t)
	v := vectors(t, 2)
	old, other := v[0], v[1]
	hop := old.Hop
	hop.Mac = [6]byte(old.Full[:6])
	m.setKey(0, old.Key)
	if !m.verified(old.Info, hop) {
		t.Fatal("refused under its key")
	}
	m.setKey(1, other.Key)
	if !m.verified(old.Info, hop) {
		t.Fatal("refused while two keys are loaded")
	}
	m.clearKey(0)
	if m.verified(old.Info, hop) {
		t.Fatal("accepted after its key was removed")
	}
	m.setKey(0, other.Key)
	m.setKey(1, old.Key)
	if !m.verified(old.Info, hop) {
		t.Fatal("refused under its key at the other index")
	}
	m.clearKey(0)
	m.clearKey(1)
	if m.verified(old.Info, hop) {
		t.Fatal("accepted without any key")
	}
}

func TestKeySchedule(t *testing.T) {
	// FIPS 197, appendix A.1.
	key := Key{0x2b, 0x7e, 0x15, 0x16, 0x28, 0xae, 0xd2, 0xa6, 0xab, 0xf7, 0x15, 0x88, 0x09, 0xcf, 0x4f, 0x3c}
	rk := expandKey(key)
	var last [4]byte
	binary.LittleEndian.PutUint32(last[:], rk[43])
	if last != [4]byte{0xb6, 0x63, 0x0c, 0xa6} {
		t.Errorf("last word is %x, want b6630ca6", last)
	}
	// RFC 4493, section 4.
	k1 := cmacSubkey(key)
	want := [16]byte{0xfb, 0xee, 0xd6, 0x18, 0x35, 0x71, 0x33, 0x66, 0x7c, 0x85, 0xe0, 0x8f, 0x72, 0x36, 0xa8, 0xde}
	if k1 != want {
		t.Errorf("K1 is %x, want %x", k1, want)
	}
}

func TestKeyIDsDiffer(t *testing.T) {
	a, b := keyID(Key{1}), keyID(Key{2})
	if a == b || a == 0 || b == 0 || a != keyID(Key{1}) {
		t.Errorf("IDs are %x and %x", a, b)
	}
}
