/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_FILTER_RULES_H
#define CULVERT_FILTER_RULES_H

#include "count.h"
#include "limit.h"
#include "load.h"
#include "flow_keys.h"
#include "set.h"

/* What rules answer beside the reasons to drop (FILTER_REASON), and 0 for nothing: a packet that a rule lets pass. */
#define FILTER_PASS REASON_MAX

/*
 * The rules. User space puts their code in the place of this body, which has nothing but the calls
 * that such code may make, or clang would leave the functions out. Nobody is to know what it answers.
 */
__noinline int filter_rules(struct xdp_md *ctx, struct flow_keys *keys)
{
	volatile int answer = filter_load(ctx, 0, 1) + filter_hit(ctx, 0) + filter_short(ctx, keys);

	answer += filter_set_has(keys, 0, 0) + filter_set_has_endpoint(keys, 0, 0);
	answer += filter_over(ctx, keys, 0);
	return answer;
}

#endif
