// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"crypto/rand"
	"errors"
	"hash"
	"reflect"
	"sync"
	"time"
	"unsafe"

	"github.com/scionproto/scion/pkg/scrypto"
	scionrouter "github.com/scionproto/scion/router"
)

const (
	// margin is how long before and after its time a key is looked at. It is longer than a packet waits between the socket
	// and the verification.
	margin = 5 * time.Second
	// mostNoted is how many hop fields are noted before the oldest are forgotten. It is more than the reference has buffers
	// for packets.
	mostNoted = 1 << 16
)

// block is what the MAC of a hop field covers.
type block = [16]byte

// Ring computes MACs of hop fields for the reference's data plane, which does not say what it compares them with. While two keys are
// valid, the sockets' readers note which key each hop field is valid under (Reader). A noted hop field gets its MAC under that
// key, if the key is still valid, and any other under the current key. A MAC in a packet is compared with that, so a hop field is
// accepted if it is valid under one of the valid keys, and under no other.
//
// Two hop fields may differ in nothing but key and MAC: a control service that gets another key extends the same beacon again. So a
// reader keeps a packet back until the reference has verified those before it with the same hop field under the other key.
type Ring struct {
	keys []Key
	// now is time.Now, but in tests.
	now func() time.Time
	// nobody is a key that nobody has. No hop field is valid while no key is.
	nobody [16]byte

	mu sync.Mutex
	// noted has the hop fields noted last, older those noted before.
	noted, older map[block]*entry
	// waited is how long readers have kept packets back in the second that began at second.
	second time.Time
	waited time.Duration
}

// entry is a hop field that was noted.
type entry struct {
	key int
	// pending is how many packets with it have not been verified yet, and last when the last of them came. Some of them may
	// never be, because they are refused for another reason.
	pending int
	last    time.Time
}

// New returns a ring of keys, in the order of Sort.
func New(keys []Key, now func() time.Time) *Ring {
	r := &Ring{keys: keys, now: now, noted: map[block]*entry{}}
	_, _ = rand.Read(r.nobody[:]) // it never fails (crypto/rand)
	return r
}

// Install gives a data plane of the reference, which has no key yet, the keys of the ring. The reference does not export its
// key, so this writes the unexported field. The error is about a version of the reference without that field.
func (r *Ring) Install(c *scionrouter.Connector) error {
	f := reflect.ValueOf(&c.DataPlane).Elem().FieldByName("macFactory")
	if !f.IsValid() || f.Type() != reflect.TypeFor[func() hash.Hash]() {
		return errors.New("this version of the reference router does not let its forwarding key change")
	}
	for _, k := range r.keys {
		if _, err := scrypto.InitMac(k.Secret[:]); err != nil {
			return err
		}
	}
	*(*func() hash.Hash)(unsafe.Pointer(f.UnsafeAddr())) = r.Hash
	return nil
}

// overlapping tells whether hop fields under different keys may be in the data plane.
func (r *Ring) overlapping(now time.Time) bool {
	n := 0
	for _, k := range r.keys {
		if near(k.Span, now) {
			n++
		}
	}
	return n > 1
}

func near(s Span, now time.Time) bool {
	return s.Valid(now) || s.Valid(now.Add(margin)) || s.Valid(now.Add(-margin))
}

// current returns the index of the current key, len(keys) for nobody's.
func (r *Ring) current(now time.Time) int {
	current := -1
	for i, k := range r.keys {
		if k.Valid(now) {
			current = i // they are in order
		}
	}
	if current < 0 {
		return len(r.keys)
	}
	return current
}

// pick returns the index of the key for a hop field.
func (r *Ring) pick(input []byte) int {
	now := r.now()
	if len(input) == len(block{}) && r.overlapping(now) {
		if i, ok := r.verified(block(input)); ok && r.keys[i].Valid(now) {
			return i
		}
	}
	return r.current(now)
}

// verified returns the key that a hop field was noted with, for a packet that is being verified.
func (r *Ring) verified(b block) (key int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.find(b)
	if e == nil {
		return 0, false
	}
	e.pending = max(e.pending-1, 0)
	return e.key, true
}

func (r *Ring) find(b block) *entry {
	if e := r.noted[b]; e != nil {
		return e
	}
	return r.older[b]
}

// hopKey is a hop field with the key that it is valid under.
type hopKey struct {
	block block
	key   int
}

// note notes the hop fields of a packet. It returns false, and notes none, if packets with one of them under another key have not
// been verified yet, unless it is told to do so all the same.
func (r *Ring) note(hops []hopKey, always bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, h := range hops {
		if e := r.find(h.block); !always && e != nil && e.key != h.key && e.pending > 0 && now.Sub(e.last) < longestWait {
			return false
		}
	}
	for _, h := range hops {
		e := r.find(h.block)
		if e == nil || e.key != h.key {
			e = &entry{key: h.key}
		}
		e.pending, e.last = e.pending+1, now
		if len(r.noted) >= mostNoted {
			r.noted, r.older = map[block]*entry{}, r.noted
		}
		r.noted[h.block] = e
	}
	return true
}

const (
	// longestWait is how long a packet is kept back at most, and mostWaiting how long all are in a second. So packets that are
	// never verified do not stop a reader.
	longestWait = 20 * time.Millisecond
	mostWaiting = 100 * time.Millisecond
	// waitStep is the time between two looks. A packet is usually verified in less.
	waitStep = 100 * time.Microsecond
)

// mayWait tells whether a reader may keep a packet back for one more step.
func (r *Ring) mayWait() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.second) > time.Second {
		r.second, r.waited = now, 0
	}
	r.waited += waitStep
	return r.waited <= mostWaiting
}

// secret returns the key at an index, len(keys) for nobody's.
func (r *Ring) secret(i int) []byte {
	if i == len(r.keys) {
		return r.nobody[:]
	}
	return r.keys[i].Secret[:]
}

// macs has the functions for the MACs under each key. One goroutine at a time may use it.
type macs struct {
	ring *Ring
	of   []hash.Hash
}

func (m *macs) sum(key int, input, to []byte) []byte {
	if m.of == nil {
		m.of = make([]hash.Hash, len(m.ring.keys)+1)
	}
	if m.of[key] == nil {
		m.of[key], _ = scrypto.InitMac(m.ring.secret(key)) // Install has tried it
	}
	h := m.of[key]
	h.Reset()
	_, _ = h.Write(input) // it never fails (hash.Hash)
	return h.Sum(to)
}

// Hash returns the function for MACs of hop fields. One goroutine at a time may use it.
func (r *Ring) Hash() hash.Hash { return &ringHash{macs: macs{ring: r}} }

// ringHash implements hash.Hash.
type ringHash struct {
	macs
	input []byte
}

func (h *ringHash) Write(b []byte) (int, error) {
	h.input = append(h.input, b...)
	return len(b), nil
}

func (h *ringHash) Sum(to []byte) []byte { return h.sum(h.ring.pick(h.input), h.input, to) }
func (h *ringHash) Reset()               { h.input = h.input[:0] }
func (h *ringHash) Size() int            { return len(block{}) }
func (h *ringHash) BlockSize() int       { return len(block{}) }
