/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_FENCE_H
#define CULVERT_CORE_FENCE_H

#include "compiler.h"

/*
 * Orders all loads and stores before it before those after it. On x86 it does not order a store before a later load,
 * which nothing here needs.
 *
 * BPF has no fence, and clang 19 selects neither acquire loads nor release stores for it. On arm64 an atomic operation
 * that returns the old value of a word on the stack serves as one. The JIT turns it into LDSETAL, which with acquire and
 * release is a full barrier (Arm ARM, B2.3, "barrier-ordered-before"), or without LSE into LDXR and STLXR followed by
 * DMB ISH. It is an OR and not an exchange, because assembler cannot name the word in an exchange.
 *
 * x86 never reorders two loads, two stores, or a load with a later store. There the fence only holds clang back,
 * because an exchange would add 1 % to the cost of a SCION packet. Objects with a fence are therefore built once for
 * each architecture: bpf2go sets the macro.
 */
#if defined(__TARGET_ARCH_x86)
static __always_inline void fence(void)
{
	barrier();
}
#elif defined(__TARGET_ARCH_arm64)
static __always_inline void fence(void)
{
	__u64 word, old = 0;

	/* By the builtin it would take two registers, and clang would save others on the stack, which is scarce. */
	asm volatile("*(u64 *)%[word] = %[old]\n\t"
		     "%[old] = atomic_fetch_or((u64 *)%[word], %[old])"
		     : [word] "=m"(word), [old] "+r"(old)
		     :
		     : "memory");
}
#else
#error "what orders loads and stores on this architecture? see bpf2go -target"
#endif

#endif
