/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_LB_NEEDS_H
#define CULVERT_LB_NEEDS_H

#define LB_ON lb_on
#define LB_NEEDS PARSE_IP
#define LB_PORT

/* The second stage of the load balancer, for packets that no stage has claimed. It needs no more than the first one. */
#define LB_UNCLAIMED_ON false
#define LB_UNCLAIMED_NEEDS 0
#define LB_UNCLAIMED_PORT
#define LB_UNCLAIMED_REASONS(R) /* those of LB_REASONS */
#define LB_UNCLAIMED_ROOM 0

#endif
