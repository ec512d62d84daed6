/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_DECAP_REASONS_H
#define CULVERT_DECAP_REASONS_H

/* What becomes of a packet: verdict, name, and the sentence that explains it to users. */
/* clang-format off */
#define DECAP_REASONS(R) \
	R(DECAP, IPIP, "protocol 4 or 41: taken off") \
	R(DECAP, GUE, "GUE: taken off") \
	R(PASS, OTHER, "no tunnel's: everything else that comes by the interface; also frames to another MAC address, with two tags, and later fragments of UDP") \
	R(PASS, NOT_LOCAL, "a tunnel's, to an address that is not among those of this host: it got another one since, or forwards tunnels") \
	R(PASS, SOURCE, "from a source that is not in `--from`") \
	R(PASS, FRAGMENT, "a fragment of an outer packet: the way from the balancer has too small an MTU") \
	R(PASS, OPTIONS, "IPv4 options or extension headers of IPv6 in the outer packet") \
	R(PASS, MALFORMED, "cut off, or lengths or versions that contradict each other; headers beyond the first buffer") \
	R(PASS, CHECKSUM, "of the outer IPv4 header or of UDP, wrong") \
	R(PASS, GUE, "GUE that is a control message, has flags, or carries another protocol than IP") \
	R(PASS, VIP, "inner destination that is not in `--vip`") \
	R(DROP, ECN, "the network marked congestion on the outer header of a packet whose sender does not know ECN: RFC 6040 has it dropped, as a router would have")
/* clang-format on */

#endif
