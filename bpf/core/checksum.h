/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_CORE_CHECKSUM_H
#define CULVERT_CORE_CHECKSUM_H

#include <stdbool.h>

#include "bytes.h"

/* The Internet checksum (RFC 1071). Sums are of 32-bit words as they stand in memory. */

/* Folds a sum of fewer than 64 words of 32 bits to 16 bits (RFC 1071). */
static __always_inline __u16 csum_fold(__u64 sum)
{
	__u32 part = (sum & 0xffff) + (sum >> 16);

	part = (part & 0xffff) + (part >> 16);
	return part + (part >> 16);
}

/* Sum of an IPv4 header of 20 bytes. */
static __always_inline __u64 ipv4_sum(const void *ip)
{
	return (__u64)LOAD32(ip) + LOAD32(ip + 4) + LOAD32(ip + 8) + LOAD32(ip + 12) +
	       LOAD32(ip + 16);
}

/* Sum of an IPv6 address. */
static __always_inline __u64 ipv6_sum(const void *addr)
{
	return (__u64)LOAD32(addr) + LOAD32(addr + 4) + LOAD32(addr + 8) + LOAD32(addr + 12);
}

/* Whether the checksum of an IPv4 header of 20 bytes is right (RFC 1071). */
static __always_inline bool ipv4_checks(const void *ip)
{
	return csum_fold(ipv4_sum(ip)) == 0xffff;
}

#endif
