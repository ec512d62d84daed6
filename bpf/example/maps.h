/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_EXAMPLE_MAPS_H
#define CULVERT_EXAMPLE_MAPS_H

#include "core/packet.h"

/* Fixed at load time. */
const volatile bool example_on;

/* The destination that clients send to. */
struct example_service {
	struct ip_addr addr;
	__be16 port;
	__u16 proto;
};

/* The destination that packets get instead. */
struct example_target {
	struct ip_addr addr;
	__be16 port;
	__u16 pad;
};

/* Writer: internal/example. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct example_service);
	__type(value, struct example_target);
} example_targets SEC(".maps");

#endif
