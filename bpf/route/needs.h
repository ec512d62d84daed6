/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_ROUTE_NEEDS_H
#define CULVERT_ROUTE_NEEDS_H

/* A device that IP packets come in by: an interface, or a VLAN device on one. */
struct route_dev {
	__u32 index; /* 0: not known */
	__u16 mac[3] __attribute__((aligned(4)));
	__u8 flags; /* ROUTE_DEV_ */
	__u8 pad;
};

#define ROUTE_DEV_FORWARD4 1
#define ROUTE_DEV_FORWARD6 2
#define ROUTE_DEV_STRICT 4 /* rp_filter */
#define ROUTE_DEV_LOOSE 8
#define ROUTE_DEV_REDIRECTS 16

#define ROUTE_ON route_on
#define ROUTE_NEEDS PARSE_IP
#define ROUTE_PORT struct route_dev route; /* for frames without a tag */

#endif
