/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef CULVERT_SCION_LIMIT_H
#define CULVERT_SCION_LIMIT_H

#include "core/limit.h"

#include "path.h"

/* Domains: first those of the services of the AS, by the slot of their interface, then those of links, by index. */
#define DOMAIN_SERVICES DOMAIN_STAGES
#define DOMAIN_LINKS (DOMAIN_SERVICES + MAX_PORTS)

/* Whether a datagram comes from a service of the AS. Its outer source tells. */
static __always_inline bool scion_from_service(struct xdp_md *ctx, const struct scion_packet *p)
{
	void *data = (void *)(long)ctx->data;
	void *data_end = (void *)(long)ctx->data_end;
	struct ip_addr src __attribute__((aligned(8))) = {.w[2] = IP4_MAPPED};

	if (!scion_services_on)
		return false;
	if (p->v6) {
		if (data + IPV6_SADDR + 16 > data_end)
			return false;
		copy(&src, data + IPV6_SADDR, 16);
	} else {
		if (data + IPV4_SADDR + 4 > data_end)
			return false;
		src.w[3] = LOAD32(data + IPV4_SADDR);
	}
	return bpf_map_lookup_elem(&scion_services, &src);
}

/*
 * The domain that is charged for a punt. Each neighbor AS and each sibling has its own. Packets from inside are charged
 * to their interface. There the services of the AS have a domain apart from the other hosts. hosts is the domain of the
 * hosts behind the ingress interface. The function is not inlined, because only punts come here.
 */
static __noinline __u32 scion_domain(struct xdp_md *ctx, struct scion_packet *p, __u32 hosts)
{
	if (p->in.link)
		return DOMAIN_LINKS + p->in.link;
	if (scion_from_service(ctx, p))
		return hosts + DOMAIN_SERVICES - DOMAIN_HOSTS;
	return hosts;
}

#endif
