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
 * The stages, a line each, in the order in which they are asked about a packet. A stage has three files:
 *
 *   NAME/needs.h    NAME_ON: whether the stage is on; NAME_NEEDS: what it needs parsed (core/parse.h);
 *                   NAME_PORT: its fields of struct port (core/port.h)
 *   NAME/reasons.h  NAME_REASONS and NAME_ROOM (core/reason.h)
 *   NAME/stage.h    name_stage(ctx, pkt): returns a reason, or REASON_NONE for a packet that is not the stage's
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
 * Selects packets that are spread over worker CPUs by other fields than those of IP, and hashes their flow (core/flow.h).
 * Only one stage can have this function.
 */
#define STAGE_FLOW_HASH scion_flow_hash

/*
 * Whether IP packets are spread, by addresses, protocol and ports: at all, and those to an address, given its
 * bloom_addr() (core/bloom.h). They are if a stage may forward them.
 */
#define STAGE_SPREADS_IP (LB_ON || ROUTE_ON)
#define STAGE_SPREADS(hash) (ROUTE_ON || lb_spreads(hash))

/* Called after each punt with its final reason, which tells whether the punt was within its rate. */
#define STAGE_PUNTED scion_punted

#endif
