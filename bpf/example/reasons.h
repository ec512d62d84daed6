/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_EXAMPLE_REASONS_H
#define CULVERT_EXAMPLE_REASONS_H

/* The reasons of the example: see core/reason.h. */
/* clang-format off */
#define EXAMPLE_REASONS(R) \
	R(PUNT, EXAMPLE_HEADERS, "to a service that is translated, but its ports cannot be: a fragment, options, or a header that is cut off") \
	R(DROP, EXAMPLE_TUNNEL, "an outer header for this host's end of the tunnel with no whole IPv4 header behind it")
/* clang-format on */

#define EXAMPLE_ROOM 4 /* indexes reserved for its reasons */

#endif
