/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_SCION_MAC_H
#define CULVERT_SCION_MAC_H

#include "core/clock.h"
#include "core/fence.h"

#include "aes.h"
#include "maps.h"

#define SCION_KEYS 2

/*
 * Forwarding keys. A hop field is valid if it is valid under any of them at a time of that key, so a schedule is kept
 * without a process too. Writer: scionplane.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SCION_KEYS);
	__type(key, __u32);
	__type(value, struct aes_cmac_key);
} scion_keys SEC(".maps");

/* What the MAC of a hop field covers, as columns of the CMAC's block, and the MAC. */
struct hop_mac {
	__u32 s0;
	__u32 s1;
	__u32 s2;
	__u32 s3;
	__u64 mac; /* bits 0 to 47 */
};

#define HOP_CACHE_SIZE 4096

/* A hop field that has been verified, and the ID of the key that it was verified with. All of it has to match. */
struct hop_cache_entry {
	__u64 block[2];
	__u64 mac;
	__u64 key_id;
};

/*
 * A direct-mapped cache of verified hop fields. Key: the MAC modulo HOP_CACHE_SIZE; a MAC is as good as random. Writer:
 * the programs.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HOP_CACHE_SIZE);
	__type(key, __u32);
	__type(value, struct hop_cache_entry);
} hop_cache SEC(".maps");

/*
 * Returns block and MAC of the hop field at hop under the info field at info. segid, as it stands in memory, replaces
 * the SegID of the info field. Layout: scionproto pkg/slayers/path, MACInput.
 */
static __always_inline struct hop_mac hop_mac_input(void *info, void *hop, __u16 segid)
{
	return (struct hop_mac){
		.s0 = (__u32)segid << 16,
		.s1 = LOAD32(info + 4),
		.s2 = LOAD32(hop) & 0xffffff00,
		.s3 = LOAD16(hop + 4),
		.mac = LOAD32(hop + 6) | (__u64)LOAD16(hop + 10) << 32,
	};
}

static __always_inline bool hop_verify_under(__u32 index, const struct hop_mac *h,
					     struct hop_cache_entry *e, bool cached, __u64 recent)
{
	struct aes_cmac_key *key = bpf_map_lookup_elem(&scion_keys, &index);
	__u64 id, mac;

	if (!key)
		return false;
	/*
	 * The ID is read once, because user space may replace the key meanwhile. Nothing may be cached under the new ID
	 * then.
	 */
	id = *(volatile __u64 *)&key->id;
	if (!id || recent < key->not_before || wall_past(key->not_after, recent))
		return false;
	if (cached && id == e->key_id)
		return true;
	fence();
	mac = aes_cmac(key, h->s0, h->s1, h->s2, h->s3);
	fence();
	if (mac != h->mac || *(volatile __u64 *)&key->id != id)
		return false;
	e->key_id = 0;
	barrier();
	e->block[0] = h->s0 | (__u64)h->s1 << 32;
	e->block[1] = h->s2 | (__u64)h->s3 << 32;
	e->mac = h->mac;
	barrier();
	e->key_id = id;
	return true;
}

/* recent is from wall_recent. */
static __always_inline bool hop_verify(const struct hop_mac *h, __u64 recent)
{
	__u32 slot = (__u32)h->mac % HOP_CACHE_SIZE;
	struct hop_cache_entry *e;
	bool cached;

	if (scion_skip_mac)
		return true;
	e = bpf_map_lookup_elem(&hop_cache, &slot);
	if (!e)
		return false;
	cached = e->mac == h->mac && e->block[0] == (h->s0 | (__u64)h->s1 << 32) &&
		 e->block[1] == (h->s2 | (__u64)h->s3 << 32);
	/* a loop over SCION_KEYS, unrolled for the verifier */
	return hop_verify_under(0, h, e, cached, recent) ||
	       hop_verify_under(1, h, e, cached, recent);
}

#endif
