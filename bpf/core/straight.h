/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_STRAIGHT_H
#define CULVERT_CORE_STRAIGHT_H

/*
 * A stage may have a straight way for what most packets are. It repeats its general code for these packets alone, and leaves
 * all others to it. The general code is the definition. This takes the straight ways out, for the bench and for the tests that
 * compare.
 */
const volatile bool straight_off;

#endif
