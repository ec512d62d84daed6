/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_EXAMPLE_NEEDS_H
#define CULVERT_EXAMPLE_NEEDS_H

#define EXAMPLE_ON example_on
#define EXAMPLE_NEEDS (PARSE_IP | NEEDS_REWRITE)
#define EXAMPLE_PORT

#endif
