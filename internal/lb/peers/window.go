// SPDX-License-Identifier: Apache-2.0

package peers

// window says which sequence numbers of a sender are new: as in RFC 4303, 3.4.3, it knows of the last 64 which ones have come.
type window struct {
	last uint64 // the highest one
	seen uint64 // bit n: last - n has come
}

// windowSize is how far a datagram may be behind the newest.
const windowSize = 64

// startWindow returns a window for a sender whose last datagram had that number. Neither that nor an earlier one is taken.
func startWindow(last uint64) window { return window{last, ^uint64(0)} }

// take returns whether a number is new, and then knows it. lost is how many numbers that have not come are too old now.
func (w *window) take(seq uint64) (fresh bool, lost uint64) {
	if seq <= w.last {
		behind := w.last - seq
		if behind >= windowSize || w.seen&(1<<behind) != 0 {
			return false, 0
		}
		w.seen |= 1 << behind
		return true, 0
	}
	ahead := seq - w.last
	for range min(ahead, windowSize) {
		if w.seen>>(windowSize-1) == 0 {
			lost++
		}
		w.seen <<= 1
	}
	if ahead > windowSize {
		lost += ahead - windowSize
	}
	w.last = seq
	w.seen |= 1
	return true, lost
}
