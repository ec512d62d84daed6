/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_COMPILER_H
#define CULVERT_CORE_COMPILER_H

/* Makes v opaque to clang, which otherwise drops bounds that it can prove and the verifier cannot. */
#ifndef barrier_var
#define barrier_var(v) asm volatile("" : "+r"(v))
#endif

/* Keeps clang from moving loads and stores across this point. The CPU may still do so: see fence.h. */
#ifndef barrier
#define barrier() asm volatile("" ::: "memory")
#endif

#endif
