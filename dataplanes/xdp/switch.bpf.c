/* The switch as XDP programs: one at the entrance of devices, which finds out whose a frame is, one for each system, and one at the exit. What a
 * system's program does is in its own file.
 *
 * The programs take contributions of jobs that user space has given to them. Whatever else comes goes up the stack, to the socket that user
 * space has at the same port, and is counted by reason. */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "generated.h"
#include "maps.h"
#include "frame.h"
#include "elements.h"
#include "packet.h"
#include "switchml.h"
#include "tree.h"
#include "routed.h"
#include "canary.h"
#include "atp.h"

/* A contribution of a job of SwitchML. */
SEC("xdp")
int fanin_switchml(struct xdp_md *ctx)
{
	struct packet p = {};

	return load(ctx, &p) ? switchml_packet(&p) : XDP_PASS;
}

/* A contribution of a job on a static tree. */
SEC("xdp")
int fanin_tree(struct xdp_md *ctx)
{
	struct packet p = {};

	return load(ctx, &p) ? tree_packet(&p) : XDP_PASS;
}

/* A packet of a job of Canary. */
SEC("xdp")
int fanin_canary(struct xdp_md *ctx)
{
	struct packet p = {};

	return load(ctx, &p) ? canary_packet(&p) : XDP_PASS;
}

/* A packet of a job of ATP or A2TP. */
SEC("xdp")
int fanin_atp(struct xdp_md *ctx)
{
	struct packet p = {};

	return load(ctx, &p) ? atp_packet(&p) : XDP_PASS;
}

/* Time passes for a job of Canary: user space runs this program, which is at no device, on frames of its own making. */
SEC("xdp")
int fanin_clock(struct xdp_md *ctx)
{
	struct packet p = { .ctx = ctx };
	__u32 zero = 0, at;
	__u64 now;

	p.s = bpf_map_lookup_elem(&scratch, &zero);
	if (!p.s || bpf_xdp_load_bytes(ctx, 0, p.s->frame, CLOCK_BYTES))
		return XDP_DROP;
	p.place = U32(p.s, CLOCK_PLACE);
	now = U64(p.s, CLOCK_NOW);
	at = p.place * RANKS_MAX;
	p.job = bpf_map_lookup_elem(&jobs, &p.place);
	p.counts = bpf_map_lookup_elem(&counts, &p.place);
	p.rank = bpf_map_lookup_elem(&ranks, &at);
	if (!p.job || !p.counts || !p.rank || p.job->system != SYSTEM_CANARY)
		return XDP_DROP;
	return canary_clock(&p, now);
}

/* By the system's number in packets. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 256);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} programs SEC(".maps") = {
	.values = {
		[SYSTEM_SWITCHML] = (void *)&fanin_switchml,
		[SYSTEM_TREE] = (void *)&fanin_tree,
		[SYSTEM_CANARY] = (void *)&fanin_canary,
		[SYSTEM_ATP] = (void *)&fanin_atp,
		[SYSTEM_A2TP] = (void *)&fanin_atp,
	},
};

/* What comes in at a device. */
SEC("xdp")
int fanin_switch(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct fanin_member member = {};
	struct fanin_counts *count;
	struct fanin_scratch *s;
	struct fanin_job *job;
	__u32 zero = 0, port, place, bytes, fragment, *found;

	if (data + HOP > end)
		return XDP_PASS;
	if (*(__u16 *)(data + ETHERNET_TYPE) != bpf_htons(ETHERNET_IPV4) || *(__u8 *)(data + IP) != IP_VERSION_LENGTH ||
	    *(__u8 *)(data + IP_PROTOCOL) != IP_UDP)
		return XDP_PASS;
	/* Fragments but the first have no port: they go the way of all that is not ours. */
	fragment = bpf_ntohs(*(__u16 *)(data + IP_FRAGMENT)) & IP_FRAGMENT_BITS;
	if (fragment & 0x1fff)
		return XDP_PASS;
	port = bpf_ntohs(*(__u16 *)(data + UDP_DESTINATION));
	found = bpf_map_lookup_elem(&ports, &port);
	if (!found)
		return XDP_PASS;
	place = *found;
	job = bpf_map_lookup_elem(&jobs, &place);
	count = bpf_map_lookup_elem(&counts, &place);
	s = bpf_map_lookup_elem(&scratch, &zero);
	if (!job || !count || !s)
		return XDP_PASS;
	if (job->state != JOB_HERE)
		return up(count, UP_HANDED_OVER);
	member.place = place;
	__builtin_memcpy(member.ip, data + IP_SOURCE, sizeof(member.ip));
	__builtin_memcpy(member.port, data + UDP_SOURCE, sizeof(member.port));
	found = bpf_map_lookup_elem(&members, &member);
	if (!found)
		return up(count, UP_STRANGER);
	if (fragment)
		return up(count, UP_FRAGMENT);
	bytes = (__u32)bpf_ntohs(*(__u16 *)(data + UDP_LENGTH)) - UDP_BYTES;
	if (bytes < HOP_BYTES + TAG_BYTES + HEADER_BYTES_MIN || bytes > 65535 || bpf_xdp_get_buff_len(ctx) < HOP + bytes)
		return up(count, UP_FOREIGN);
	if (bytes > FRAME_BYTES_MAX - HOP)
		return up(count, UP_TOO_LONG);
	if (bpf_xdp_load_bytes(ctx, 0, s->frame, HOP + bytes))
		return up(count, UP_FOREIGN);
	s->place = place;
	s->number = *found;
	s->bytes = bytes;
	bpf_tail_call(ctx, &programs, job->system);
	/* No job is here whose system has no program. */
	return up(count, UP_FOREIGN);
}

/* A copy of a result on its way out: the next rank behind this device that has not been sent it. */
static __always_inline int on_exit(struct xdp_md *ctx, __u32 ifindex)
{
	__u32 zero = 0, port, place, index, number, bytes, header_bytes, rest, at, *found;
	struct fanin_scratch *s = bpf_map_lookup_elem(&scratch, &zero);
	struct fanin_version *v;
	struct fanin_rank *rank;
	struct fanin_job *job;
	__u64 key, bit, left, *mask;

	if (!s || bpf_xdp_load_bytes(ctx, 0, s->frame, HEAD + HEADER_BYTES_MIN))
		return XDP_DROP;
	port = bpf_ntohs(U16(s, UDP_SOURCE));
	found = bpf_map_lookup_elem(&ports, &port);
	if (!found)
		return XDP_DROP;
	place = *found;
	job = bpf_map_lookup_elem(&jobs, &place);
	key = (__u64)place << 32 | ifindex;
	mask = bpf_map_lookup_elem(&behind, &key);
	if (!job || !mask)
		return XDP_DROP;
	if (job->system == SYSTEM_CANARY || job->system == SYSTEM_ATP || job->system == SYSTEM_A2TP)
		return routed_exit(ctx, s, place, *mask);
	index = job->system == SYSTEM_TREE ? tree_index(job, s) : switchml_index(job, s);
	v = bpf_map_lookup_elem(&versions, &index);
	if (!v)
		return XDP_DROP;
	left = v->unsent & *mask;
	if (!left)
		return XDP_DROP;
	bit = left & -left;
	/* Copies for one device leave by one processor, so nobody else takes this rank's. */
	__sync_fetch_and_and(&v->unsent, ~bit);
	number = lowest(left);
	at = place * RANKS_MAX + (number & 63);
	rank = bpf_map_lookup_elem(&ranks, &at);
	if (!rank)
		return XDP_DROP;
	rest = U32(s, HOP + HOP_CHECK);
	if (v->receiver < job->ranks && v->receiver != number && U16(s, HOP + HOP_PAYLOAD_BYTES)) {
		/* This rank does not need the sum, only to know that there is one. */
		header_bytes = U8(s, HEAD) == SML_KIND_SCALED_RESULT ? SML_BYTES_SCALED_RESULT : SML_BYTES_RESULT;
		if (bpf_xdp_load_bytes(ctx, HEAD, s->frame + HEAD, header_bytes))
			return XDP_DROP;
		rest = crc_of(s, REST, TAG_BYTES + header_bytes, 0);
		U16(s, HOP + HOP_PAYLOAD_BYTES) = 0;
		bytes = HEAD + header_bytes;
		U16(s, UDP_LENGTH) = bpf_htons(bytes - UDP);
		if (bpf_xdp_adjust_tail(ctx, (int)bytes - (int)bpf_xdp_get_buff_len(ctx)))
			return XDP_DROP;
	}
	address(s, rank);
	write_ip(s, bpf_ntohs(U16(s, UDP_LENGTH)) - UDP_BYTES);
	seal(s, rank, rest);
	return bpf_xdp_store_bytes(ctx, 0, s->frame, HEAD) ? XDP_DROP : XDP_PASS;
}

/* What the multicast gives to a device. */
SEC("xdp/devmap")
int fanin_exit(struct xdp_md *ctx)
{
	return on_exit(ctx, ctx->egress_ifindex);
}

/* The same for tests: the kernel does not run programs of devices' exits for them. The device is the one that the frame came in by. */
SEC("xdp")
int fanin_exit_probe(struct xdp_md *ctx)
{
	return on_exit(ctx, ctx->ingress_ifindex);
}

char _license[] SEC("license") = "Apache-2.0";
