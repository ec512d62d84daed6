/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What every program of the bench includes. */
#ifndef CULVERT_BENCH_BENCH_H
#define CULVERT_BENCH_BENCH_H

#include <stdbool.h>

#include <linux/types.h>

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#endif
