/* A packet of a job, on its way through the programs: whose it is, whether it can be believed, why it goes no further, and what is sent for it. */
#pragma once

/* A packet from the socket of a rank: in `s`, as are all answers. */
struct packet {
	struct xdp_md *ctx;
	struct fanin_scratch *s;
	struct fanin_job *job;
	struct fanin_counts *counts;
	struct fanin_rank *rank;
	/* The job's place, the rank, bytes behind the system's number. */
	__u32 place, number, bytes;
};

/* What becomes of a contribution. */
enum outcome { DROP, UP, ADDED, REJECT, COMPLETE, ANSWER, NAME_MISSING };

struct verdict {
	enum outcome outcome;
	/* Why, where it is dropped or goes up. */
	__u32 reason;
};

static __always_inline struct verdict of(enum outcome outcome, __u32 reason)
{
	struct verdict verdict = { .outcome = outcome, .reason = reason };

	return verdict;
}

static __always_inline int newer(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0;
}

static __always_inline int drop(struct fanin_counts *counts, __u32 reason)
{
	counts->dropped[reason]++;
	return XDP_DROP;
}

static __always_inline int up(struct fanin_counts *counts, __u32 reason)
{
	counts->up[reason]++;
	return XDP_PASS;
}

/* The packet that the program at the entrance has put into `scratch`; false where there is none. */
static __always_inline int load(struct xdp_md *ctx, struct packet *p)
{
	__u32 zero = 0, at;

	p->ctx = ctx;
	p->s = bpf_map_lookup_elem(&scratch, &zero);
	if (!p->s || p->s->bytes < HOP_BYTES + TAG_BYTES || p->s->bytes > FRAME_BYTES_MAX - HOP || p->s->number >= RANKS_MAX)
		return 0;
	p->place = p->s->place;
	p->number = p->s->number;
	p->bytes = p->s->bytes - HOP_BYTES - TAG_BYTES;
	at = p->place * RANKS_MAX + p->number;
	p->job = bpf_map_lookup_elem(&jobs, &p->place);
	p->counts = bpf_map_lookup_elem(&counts, &p->place);
	p->rank = bpf_map_lookup_elem(&ranks, &at);
	return p->job && p->counts && p->rank;
}

/* Whether it is of this job and system, from a worker to its switch. */
static __always_inline int is_ours(struct packet *p)
{
	struct fanin_scratch *s = p->s;
	struct fanin_job *job = p->job;

	return U8(s, HOP + HOP_VERSION) == HOP_MAGIC_VERSION && (U8(s, HOP + HOP_NEIGHBOUR) & ~HOP_ECN_BITS) == HOP_FLAGS_NEIGHBOUR &&
	       U8(s, HOP + HOP_ROLES) == HOP_ROLES_UP && U8(s, HOP + HOP_SYSTEM) == job->system && U16(s, HOP + HOP_JOB) == job->job &&
	       U8(s, REST) == job->system;
}

/* Why it cannot be believed, or -1. Before this no word of it is. */
static __always_inline int distrust(struct packet *p)
{
	struct fanin_scratch *s = p->s;

	if (crc_of(s, HOP, HOP_CHECK, crc_of(s, REST, p->bytes + TAG_BYTES, 0)) != U32(s, HOP + HOP_CHECK))
		return DROP_CORRUPTED;
	return U32(s, HOP + HOP_EPOCH) == p->job->epoch ? -1 : DROP_UNPROVEN;
}

/* It goes no further, for what is wrong with it. */
static __always_inline int refuse(struct packet *p, int wrong)
{
	__sync_fetch_and_add(&p->rank->packets_dropped, 1);
	return (__u32)wrong < sizeof(p->counts->dropped) / 8 ? drop(p->counts, wrong) : XDP_DROP;
}

/* The way to a rank is the way from it. Until it has contributed here, it is the one that user space knows. */
static __always_inline void learn(struct fanin_scratch *s, struct fanin_rank *rank)
{
	if (*(__u32 *)(rank->ethernet + 2) != U32(s, ETHERNET_SOURCE + 2) || *(__u16 *)rank->ethernet != U16(s, ETHERNET_SOURCE) ||
	    *(__u16 *)(rank->ethernet + 6) != U16(s, 0) || *(__u32 *)(rank->ethernet + 8) != U32(s, 2)) {
		__builtin_memcpy(rank->ethernet, s->frame + ETHERNET_SOURCE, 6);
		__builtin_memcpy(rank->ethernet + 6, s->frame, 6);
	}
	if (*(__u32 *)rank->ip != U32(s, IP_DESTINATION))
		*(__u32 *)rank->ip = U32(s, IP_DESTINATION);
}

/* It is to be believed: the way to the rank, and its counts. */
static __always_inline void believe(struct packet *p, __u32 payload_bytes)
{
	learn(p->s, p->rank);
	p->rank->heard = U32(p->s, HOP + HOP_SEQUENCE);
	__sync_fetch_and_add(&p->rank->packets_received, 1);
	__sync_fetch_and_add(&p->rank->payload_bytes_received, payload_bytes);
}

/* What a contribution is to its sum. Of Canary a sum goes to the leader of its block, which answers when it has contributed itself: both are waited
 * for, and it is one sum. */
enum part_in_sum { PART_OF_SUM, COMPLETES_SUM, ANSWERS_SUM };

/* A contribution was counted, as the last one to a sum or not: how long had the sum nothing else to wait for? crates/runtime/src/last.rs. */
static __always_inline void count_last(struct packet *p, enum part_in_sum part)
{
	__u64 now = bpf_ktime_get_ns(), before = p->job->came_at;
	__u32 i;

	p->job->came_at = now;
	if (part == PART_OF_SUM)
		return;
	if (part == COMPLETES_SUM)
		__sync_fetch_and_add(&p->rank->completed, 1);
	if (!before || now < before)
		return;
	__sync_fetch_and_add(&p->rank->awaited_ns, now - before);
	for (i = 0; i < LATE_LIMITS; i++) {
		if (now - before > p->job->late_ns[i])
			__sync_fetch_and_add(&p->rank->late[i], 1);
	}
}

/* Puts what is in `scratch` into the frame. */
static __always_inline int store(struct xdp_md *ctx, struct fanin_scratch *s, __u32 behind_udp)
{
	__u32 bytes = HOP + behind_udp, before = bpf_xdp_get_buff_len(ctx);

	if (bytes > FRAME_BYTES_MAX)
		return -1;
	if (bytes != before && bpf_xdp_adjust_tail(ctx, (int)bytes - (int)before))
		return -1;
	return bpf_xdp_store_bytes(ctx, 0, s->frame, bytes);
}

/* Sends what is behind the hop header in `scratch` to the rank that the frame has come from, by the same device. */
static __always_inline int answer(struct packet *p, __u32 header_bytes, __u32 payload_bytes)
{
	__u32 rest_bytes = TAG_BYTES + header_bytes + payload_bytes;

	address(p->s, p->rank);
	write_ip(p->s, HOP_BYTES + rest_bytes);
	write_hop(p->s, p->job, payload_bytes);
	seal(p->s, p->rank, crc_of(p->s, REST, rest_bytes, 0));
	if (store(p->ctx, p->s, HOP_BYTES + rest_bytes))
		return drop(p->counts, DROP_QUEUE_FULL);
	/* Not XDP_TX: a veth keeps such frames until something else comes, unless its other end has a program too. */
	return bpf_redirect(p->ctx->ingress_ifindex, 0);
}

/* Sends the result to all ranks: the program at each device's exit writes each rank's addresses and number. */
static __always_inline int multicast(struct packet *p, __u32 header_bytes, __u32 payload_bytes)
{
	__u32 rest_bytes = TAG_BYTES + header_bytes + payload_bytes;
	void *to = bpf_map_lookup_elem(&targets, &p->place);
	struct fanin_scratch *s = p->s;

	if (!to)
		return drop(p->counts, DROP_NO_ROUTE);
	U16(s, UDP_SOURCE) = U16(s, UDP_DESTINATION);
	write_ip(s, HOP_BYTES + rest_bytes);
	write_hop(s, p->job, payload_bytes);
	/* All copies have this checksum of what follows their hop header. */
	U32(s, HOP + HOP_CHECK) = crc_of(s, REST, rest_bytes, 0);
	if (store(p->ctx, s, HOP_BYTES + rest_bytes))
		return drop(p->counts, DROP_QUEUE_FULL);
	return bpf_redirect_map(to, 0, BPF_F_BROADCAST);
}

/* The lowest bit that is set, of one that is. */
static __always_inline __u32 lowest(__u64 bits)
{
	__u32 first = 0, i;

	for (i = 32; i; i >>= 1) {
		if (!(bits & ((1ull << i) - 1))) {
			bits >>= i;
			first += i;
		}
	}
	return first;
}

/* All ranks of a job, as bits. */
static __always_inline __u64 all_ranks(struct fanin_job *job)
{
	return job->ranks < 64 ? (1ull << (job->ranks & 63)) - 1 : ~0ull;
}
