// SPDX-License-Identifier: Apache-2.0

package sflowplane

import (
	"math"
	"math/rand/v2"
)

// logBits is SFLOW_LOG_BITS of bpf/core/sflow.h.
const logBits = 24

// scale returns the constants with which the programs draw (sflow_draw). For U in (0, 1] and N = rate, they compute
// log(U) / log(1 - 1/N) as -log2(U) * factor / 2^(shift-logBits).
func scale(rate int) (factor, shift uint32) {
	if rate == 1 {
		return 0, logBits // log(0) is no number: the next packet is always sampled
	}
	c := math.Ln2 / -math.Log1p(-1/float64(rate))
	_, exponent := math.Frexp(c) // c < 2^exponent
	bits := 32 - exponent
	return uint32(min(math.Round(math.Ldexp(c, bits)), math.MaxUint32)), uint32(logBits + bits)
}

// draw returns how many packets there are until one is sampled, which is among them.
func draw(rate int) uint64 {
	if rate == 1 {
		return 1
	}
	u := 1 - rand.Float64() // in (0, 1]
	return 1 + uint64(math.Log(u)/math.Log1p(-1/float64(rate)))
}
