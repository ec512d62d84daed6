/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_FENCE_H
#define CULVERT_CORE_FENCE_H

#include "compiler.h"

/*
 * Orders all loads and stores in front of it before those behind it, except on x86 a store before a load. Nothing
 * here needs that one.
 *
 * BPF has no fence, and clang 19 selects neither acquire loads nor release stores for it. On arm64 an exchange of a
 * word on the stack serves as one. The JIT turns it into SWPAL, which with acquire and release is a full barrier (Arm
 * ARM, B2.3, "barrier-ordered-before"), or without LSE into LDXR and STLXR with DMB ISH behind them.
 *
 * x86 never reorders two loads, two stores, or a load with a later store. Only clang has to be held back, while an
 * exchange would cost 1 % of a SCION packet. Therefore objects with a fence exist once for each architecture: bpf2go
 * sets the macro.
 */
#if defined(__TARGET_ARCH_x86)
static __always_inline void fence(void)
{
	barrier();
}
#elif defined(__TARGET_ARCH_arm64)
static __always_inline void fence(void)
{
	__u64 word = 0, *p = &word;

	barrier();
	/* clang removes an exchange of a word that nobody else can see. */
	barrier_var(p);
	__sync_lock_test_and_set(p, 0);
	barrier();
}
#else
#error "what orders loads and stores on this architecture? see bpf2go -target"
#endif

#endif
