/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_EXAMPLE_NEEDS_H
#define CULVERT_EXAMPLE_NEEDS_H

/* Only objects for tests have this stage. Other stages need no such macro. */
#ifdef CULVERT_EXAMPLE
#define EXAMPLE(STAGE, name, NAME) STAGE(name, NAME)
#else
#define EXAMPLE(STAGE, name, NAME)
#endif

#define EXAMPLE_ON example_on
#define EXAMPLE_NEEDS (PARSE_IP | NEEDS_REWRITE)
#define EXAMPLE_PORT

#endif
