/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_STAGES_H
#define CULVERT_STAGES_H

/*
 * This is the only file that knows all stages. Each stage is a folder; core/ and the other stages know nothing of it.
 * Programs include this file before anything of core/.
 */
#include "example/needs.h"
#include "example/reasons.h"
#include "filter/reasons.h"
#include "lb/needs.h"
#include "lb/reasons.h"
#include "route/needs.h"
#include "route/reasons.h"
#include "scion/needs.h"
#include "scion/reasons.h"

/*
 * The stages in the order in which a packet is offered to them, a line each. Of a stage
 *
 *   NAME/needs.h    has NAME_ON, whether it is on, NAME_NEEDS, what it needs parsed then (core/parse.h), and
 *                   NAME_PORT, what it keeps of an interface (core/port.h),
 *   NAME/reasons.h  has NAME_REASONS and NAME_ROOM (core/reason.h), and
 *   NAME/stage.h    has name_stage(ctx, pkt): it answers with a reason, or with REASON_NONE for a packet that
 *                   is not the stage's.
 */
#define STAGES(STAGE)                     \
	STAGE(lb, LB)                     \
	STAGE(scion, SCION)               \
	STAGE(lb_unclaimed, LB_UNCLAIMED) \
	EXAMPLE(STAGE, example, EXAMPLE)  \
	STAGE(route, ROUTE)

/* Programs in front of the pipeline. Their reasons are counted with those of the stages. */
#define FRONTS(FRONT) FRONT(filter, FILTER)

/*
 * The function of the stage whose packets are spread over worker CPUs. It says which packets these are, and hashes
 * their flow.
 */
#define STAGE_FLOW_HASH scion_flow_hash

/* The function of the stage that has to know which punts were within their rate. */
#define STAGE_PUNTED scion_punted

#endif
