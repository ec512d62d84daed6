/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_FILTER_RULES_H
#define CULVERT_FILTER_RULES_H

#include "bond.h"
#include "count.h"
#include "limit.h"
#include "load.h"
#include "flow_keys.h"
#include "set.h"

/*
 * The result of filter_rules for a packet that a rule lets pass. Other results are a reason to drop the packet, or 0 if
 * no rule matches.
 */
#define FILTER_PASS REASON_MAX

/*
 * The rules. User space replaces this body by their code. The body calls all functions that such code may call, because
 * clang leaves out functions that nobody calls. The result is volatile, so that clang assumes nothing about it.
 */
__noinline int filter_rules(struct xdp_md *ctx, struct flow_keys *keys)
{
	volatile int answer = filter_load(ctx, 0, 1) + filter_hit(ctx, 0) + filter_short(ctx, keys);

	answer +=
		filter_dev(ctx) + filter_set_has(keys, 0, 0) + filter_set_has_endpoint(keys, 0, 0);
	answer += filter_over(ctx, keys, 0);
	return answer;
}

#endif
