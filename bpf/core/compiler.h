/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_COMPILER_H
#define CULVERT_CORE_COMPILER_H

/* Keeps clang from reasoning about v, and so from dropping a bound that the verifier needs. */
#ifndef barrier_var
#define barrier_var(v) asm volatile("" : "+r"(v))
#endif

/* Keeps clang from moving loads and stores across. */
#ifndef barrier
#define barrier() asm volatile("" ::: "memory")
#endif

#endif
