/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_REASONS_H
#define CULVERT_CORE_REASONS_H

/* The reasons that belong to no stage: see reason.h. */
/* clang-format off */
#define CORE_REASONS(R) \
	R(PASS, OTHER, "claimed by no stage")
/* clang-format on */

#define CORE_ROOM 7 /* indexes reserved for its reasons */

#endif
