/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_FILTER_REASONS_H
#define CULVERT_FILTER_REASONS_H

/* The reasons of the filter: see core/reason.h. */
/* clang-format off */
#define FILTER_REASONS(R) \
	R(DROP, FILTER, "dropped by a rule") \
	R(DROP, FILTER_LIMIT, "over the rate of a rule") \
	R(DROP, FILTER_COOKIE, "to a protected service, with no SYN cookie of ours") \
	R(DROP, FILTER_TAGS, "with more VLAN tags than the filter looks behind") \
	R(DROP, FILTER_HEADERS, "what a rule asks for is behind more headers than the filter looks behind") \
	R(XMIT, FILTER_SYNACK, "a SYN to a protected service, answered with a cookie")
/* clang-format on */

#define FILTER_ROOM 8 /* indexes reserved for its reasons */

#endif
