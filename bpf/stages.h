/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_STAGES_H
#define CULVERT_STAGES_H

/*
 * The only file that knows all stages. Each has a folder; core/ and the other stages know nothing of it.
 * Programs include this file before anything of core/.
 */
#include "lb/needs.h"
#include "route/needs.h"
#include "scion/needs.h"

/*
 * The stages in the order in which a packet is offered to them, a line each. NAME/needs.h of a stage has
 * NAME_NEEDS, what it needs parsed (core/parse.h), and NAME_PORT, what it keeps of an interface
 * (core/port.h). name_stage(ctx, pkt) answers with a reason, or with REASON_NONE for a packet that is not
 * the stage's.
 */
#define STAGES(STAGE)                     \
	STAGE(lb, LB)                     \
	STAGE(scion, SCION)               \
	STAGE(lb_unclaimed, LB_UNCLAIMED) \
	STAGE(route, ROUTE)

/* The stage whose packets are spread over worker CPUs: it tells them, and hashes their flow. */
#define STAGE_FLOW_HASH scion_flow_hash

#endif
