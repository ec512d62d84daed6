/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_FENCE_H
#define CULVERT_CORE_FENCE_H

#include "compiler.h"

/*
 * Orders every load and store before it in front of every one behind it, but on x86 not a store in front of a load,
 * which nobody here needs.
 *
 * BPF has no fence of its own, and clang 19 selects no acquire load and no release store for it. An exchange of a word
 * on the stack does on arm64. The JIT makes SWPAL of it, which with acquire and release is a full barrier (Arm ARM,
 * B2.3, "barrier-ordered-before"), or without LSE a loop of LDXR and STLXR with DMB ISH behind it.
 *
 * x86 reorders neither loads with loads nor stores with stores, nor a load with a later store. Only clang has to be kept
 * from it, and an exchange would cost 1 % of a SCION packet. So objects with a fence in them exist once for each
 * architecture: bpf2go sets the macro.
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

	barrier_var(p); /* or clang would see that nobody else has the word */
	__sync_lock_test_and_set(p, 0);
	barrier();
}
#else
#error "what orders loads and stores on this architecture? see bpf2go -target"
#endif

#endif
