/* The switch of SwitchML jobs as an XDP program: crates/protocols/src/switchml/switch.rs, line by line, for a job's only switch. The names
 * are those of that file, and a test holds the packets that come out of both together.
 *
 * The program takes contributions of jobs that user space has given to it. Whatever else comes goes up the stack, to the socket that user
 * space has at the same port, and is counted by reason. */
#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "generated.h"
#include "maps.h"
#include "frame.h"

#define WORDS_MAX (PAYLOAD_BYTES_MAX / 8)

/* A contribution without its elements. */
struct form {
	__u32 slot, round, fingerprint;
	__u32 header_bytes, payload_bytes;
	__u16 receiver;
	__s16 exponent;
	__u8 op, attempt, has_exponent, has_call;
};

/* What becomes of a contribution. */
enum outcome { DROP, UP, ADDED, REJECT, COMPLETE, ANSWER, NAME_MISSING };

struct verdict {
	enum outcome outcome;
	/* Why, where it is dropped or goes up. */
	__u32 reason;
	/* Of a result: its length. */
	__u32 bytes;
	/* The first rank that is missing. */
	__u64 arrived;
};

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

/* The form of a contribution in `scratch`; a drop reason where it is none, or -1. */
static __always_inline int read_form(struct fanin_scratch *s, __u32 rest_bytes, struct form *form)
{
	__u32 kind = U8(s, SML), call;

	form->has_exponent = kind == SML_KIND_SCALED_CONTRIBUTION || kind == SML_KIND_SCALED_CONTRIBUTION_WITH_A_CALL;
	form->has_call = kind == SML_KIND_CONTRIBUTION_WITH_A_CALL || kind == SML_KIND_SCALED_CONTRIBUTION_WITH_A_CALL;
	form->fingerprint = 0;
	form->receiver = SML_RECEIVER_ALL;
	form->op = 0;
	form->header_bytes = form->has_exponent ? SML_BYTES_SCALED_CONTRIBUTION : SML_BYTES_CONTRIBUTION;
	if (form->has_call) {
		call = SML + form->header_bytes;
		form->header_bytes += SML_BYTES_CONTRIBUTION_WITH_A_CALL - SML_BYTES_CONTRIBUTION;
		if (rest_bytes < form->header_bytes)
			return DROP_MALFORMED;
		form->fingerprint = U32(s, call + SML_FINGERPRINT_7 - SML_BYTES_CONTRIBUTION);
		form->receiver = U16(s, call + SML_RECEIVER_7 - SML_BYTES_CONTRIBUTION);
		form->op = U8(s, call + SML_OP_7 - SML_BYTES_CONTRIBUTION);
		/* There is one way to say nothing. */
		if (!form->fingerprint && form->receiver == SML_RECEIVER_ALL && !form->op)
			return DROP_MALFORMED;
	}
	form->payload_bytes = U16(s, HOP + HOP_PAYLOAD_BYTES);
	if (rest_bytes < form->header_bytes + form->payload_bytes)
		return DROP_MALFORMED;
	if (form->has_exponent && U16(s, SML + SML_EXPONENT + 2))
		return DROP_MALFORMED;
	form->exponent = form->has_exponent ? (__s16)U16(s, SML + SML_EXPONENT) : 0;
	form->attempt = U8(s, SML + SML_ATTEMPT);
	form->slot = U16(s, SML + SML_SLOT);
	form->round = U32(s, SML + SML_ROUND);
	return -1;
}

static __always_inline struct verdict of(enum outcome outcome, __u32 reason)
{
	struct verdict verdict = { .outcome = outcome, .reason = reason };

	return verdict;
}

/* Whether there is such an operator, and its blocks are in fixed point where this one is. */
static __always_inline int is_our_form(const struct form *form, __u8 op)
{
	return (op & OP_IS) && !(op & OP_FIXED_POINT) == !form->has_exponent;
}

static __always_inline int is_whole(__u32 bytes, __u8 op)
{
	return !(bytes & ((1u << (op >> OP_LENGTH_SHIFT)) - 1));
}

/* Bits that must not carry into the next element, in a word of elements. */
static __always_inline __u64 high_bits(__u8 op)
{
	switch (op >> OP_LENGTH_SHIFT) {
	case 0:
		return 0x8080808080808080ull;
	case 1:
		return 0x8000800080008000ull;
	case 2:
		return 0x8000000080000000ull;
	default:
		return 0x8000000000000000ull;
	}
}

/* The first contribution's elements. Words are copied whole: what follows the last element is never sent. */
static __always_inline void assign(struct fanin_version *v, struct fanin_scratch *s, __u32 at, __u32 bytes)
{
	__u32 words = (bytes + 7) >> 3, i;

	for (i = 0; i < WORDS_MAX; i++) {
		if (i >= words)
			break;
		v->sum[i] = U64(s, at + 8 * i);
	}
	v->bytes = bytes;
}

/* Adds elements, as many at once as a word has; sums wrap. */
static __always_inline void reduce(struct fanin_version *v, struct fanin_scratch *s, __u32 at, __u32 bytes, __u64 high)
{
	__u32 words = (bytes + 7) >> 3, i;

	for (i = 0; i < WORDS_MAX; i++) {
		__u64 a, b;

		if (i >= words)
			break;
		a = v->sum[i];
		b = U64(s, at + 8 * i);
		v->sum[i] = ((a & ~high) + (b & ~high)) ^ ((a ^ b) & high);
	}
}

/* A contribution that begins a round. */
static __always_inline struct verdict begin(struct fanin_job *job, struct fanin_version *v, struct fanin_scratch *s, const struct form *form,
					    __u8 op, __u64 bit, __u32 at)
{
	__u32 bytes = form->payload_bytes;

	if (!is_our_form(form, op))
		return of(REJECT, DROP_MISMATCH);
	if (bytes > job->block_bytes || bytes > PAYLOAD_BYTES_MAX || (!bytes && !form->has_exponent && !form->has_call))
		return of(REJECT, DROP_MISMATCH);
	if (op & OP_NEVER)
		return of(UP, UP_OPERATOR);
	if (!is_whole(bytes, op))
		return of(REJECT, DROP_MISMATCH);
	assign(v, s, at, bytes);
	v->round = form->round;
	v->state = STATE_AGGREGATING;
	v->missing = job->ranks - 1;
	v->arrived = bit;
	v->op = form->op;
	v->receiver = form->receiver;
	v->fingerprint = form->fingerprint;
	if (form->has_exponent)
		v->exponent = form->exponent;
	return of(v->missing ? ADDED : COMPLETE, 0);
}

/* A rank's first contribution to a round that has begun. */
static __always_inline struct verdict add(struct fanin_version *v, struct fanin_scratch *s, const struct form *form, __u8 op, __u64 bit,
					  __u32 at, __u32 block_bytes)
{
	__u32 bytes = form->payload_bytes;

	if (v->op != form->op || v->receiver != form->receiver || v->fingerprint != form->fingerprint || !is_our_form(form, op))
		return of(REJECT, DROP_MISMATCH);
	if (!form->has_call || (bytes && v->bytes)) {
		if (bytes != v->bytes || bytes > PAYLOAD_BYTES_MAX)
			return of(REJECT, DROP_MISMATCH);
		if (bytes && !(op & OP_ADDS))
			return of(UP, UP_OPERATOR);
		reduce(v, s, at, bytes, high_bits(op));
	} else if (bytes) {
		if (bytes > block_bytes || bytes > PAYLOAD_BYTES_MAX || !is_whole(bytes, op))
			return of(REJECT, DROP_MISMATCH);
		assign(v, s, at, bytes);
	}
	if (form->has_exponent && form->exponent > (__s16)v->exponent)
		v->exponent = form->exponent;
	v->arrived |= bit;
	v->missing--;
	return of(v->missing ? ADDED : COMPLETE, 0);
}

/* A contribution that is counted already. */
static __always_inline struct verdict repeat(struct fanin_version *v, const struct form *form)
{
	if (!form->attempt)
		return of(DROP, DROP_DUPLICATE);
	if (v->state == STATE_DONE)
		return of(ANSWER, RETRANSMIT_ASKED);
	return of(form->attempt < 2 ? DROP : NAME_MISSING, DROP_IN_PROGRESS);
}

/* Puts what a version holds behind the result's header. */
static __always_inline void copy_sum(struct fanin_version *v, struct fanin_scratch *s, __u32 header_bytes)
{
	__u32 words = (v->bytes + 7) >> 3, i;

	for (i = 0; i < WORDS_MAX; i++) {
		if (i >= words)
			break;
		U64(s, SML + header_bytes + 8 * i) = v->sum[i];
	}
}

/* What becomes of a contribution; the version is locked. */
static __always_inline struct verdict decide(struct fanin_job *job, struct fanin_version *v, struct fanin_scratch *s, const struct form *form,
					     __u8 op, __u64 bit)
{
	__u32 at = (SML + form->header_bytes) & 127;
	__u32 state = v->state;

	if (job->state != JOB_HERE)
		return of(UP, UP_HANDED_OVER);
	if (state != STATE_EMPTY && v->round == form->round) {
		if (state == STATE_AGGREGATING && !(v->arrived & bit))
			return add(v, s, form, op, bit, at, job->block_bytes);
		return repeat(v, form);
	}
	if (state != STATE_EMPTY && !newer(form->round, v->round))
		return of(DROP, DROP_STALE);
	/* No worker may be that far ahead ("Exactly once"), so this is not of our job's making. */
	if (state == STATE_AGGREGATING || (state == STATE_DONE && form->round - v->round > job->rounds_ahead_max))
		return of(DROP, DROP_OUTSIDE_WINDOW);
	return begin(job, v, s, form, op, bit, at);
}

/* The header of a result: its length. */
static __always_inline __u32 write_result(struct fanin_scratch *s, const struct form *form, __u16 exponent)
{
	U8(s, SML) = form->has_exponent ? SML_KIND_SCALED_RESULT : SML_KIND_RESULT;
	U8(s, SML + SML_ATTEMPT) = 0;
	U16(s, SML + SML_SLOT) = form->slot;
	U32(s, SML + SML_ROUND) = form->round;
	if (!form->has_exponent)
		return SML_BYTES_RESULT;
	U16(s, SML + SML_EXPONENT) = exponent;
	U16(s, SML + SML_EXPONENT + 2) = 0;
	return SML_BYTES_SCALED_RESULT;
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
static __always_inline int answer(struct xdp_md *ctx, struct fanin_scratch *s, struct fanin_job *job, struct fanin_rank *rank,
				  struct fanin_counts *counts, __u32 header_bytes, __u32 payload_bytes)
{
	__u32 rest_bytes = TAG_BYTES + header_bytes + payload_bytes;

	address(s, rank);
	write_ip(s, HOP_BYTES + rest_bytes);
	write_hop(s, job, payload_bytes);
	seal(s, rank, crc_of(s, REST, rest_bytes, 0));
	if (store(ctx, s, HOP_BYTES + rest_bytes))
		return drop(counts, DROP_QUEUE_FULL);
	/* Not XDP_TX: a veth keeps such frames until something else comes, unless its other end has a program too. */
	return bpf_redirect(ctx->ingress_ifindex, 0);
}

/* Sends the result to all ranks: the program at each device's exit writes each rank's addresses and number. */
static __always_inline int multicast(struct xdp_md *ctx, struct fanin_scratch *s, struct fanin_job *job, __u32 place,
				     struct fanin_counts *counts, __u32 header_bytes, __u32 payload_bytes)
{
	__u32 rest_bytes = TAG_BYTES + header_bytes + payload_bytes;
	void *to = bpf_map_lookup_elem(&targets, &place);

	if (!to)
		return drop(counts, DROP_NO_ROUTE);
	U16(s, UDP_SOURCE) = U16(s, UDP_DESTINATION);
	write_ip(s, HOP_BYTES + rest_bytes);
	write_hop(s, job, payload_bytes);
	/* All copies have this checksum of what follows their hop header. */
	U32(s, HOP + HOP_CHECK) = crc_of(s, REST, rest_bytes, 0);
	if (store(ctx, s, HOP_BYTES + rest_bytes))
		return drop(counts, DROP_QUEUE_FULL);
	return bpf_redirect_map(to, 0, BPF_F_BROADCAST);
}

/* Says who is missing. */
static __always_inline __u32 write_waiting(struct fanin_scratch *s, __u64 arrived)
{
	__u64 missing = ~arrived;
	__u32 first = 0, i;

	for (i = 32; i; i >>= 1) {
		if (!(missing & ((1ull << i) - 1))) {
			missing >>= i;
			first += i;
		}
	}
	U8(s, SML) = SML_KIND_WAITING;
	U8(s, SML + SML_SUSPECT_KIND) = SML_SUSPECT_IS_RANK;
	U32(s, SML + SML_SUSPECT) = first;
	return SML_BYTES_WAITING;
}

/* A contribution of one of the job's ranks, in `scratch`, whose checksum and epoch are right. */
static __always_inline int on_contribution(struct xdp_md *ctx, struct fanin_scratch *s, struct fanin_job *job, __u32 place,
					   struct fanin_counts *counts, __u32 number, struct fanin_rank *rank, const struct form *form)
{
	struct fanin_version *v;
	struct verdict verdict;
	__u32 index, bytes = 0, header_bytes = form->has_exponent ? SML_BYTES_SCALED_RESULT : SML_BYTES_RESULT;
	__u16 exponent = 0, receiver;
	__u64 arrived;

	if (form->slot >= job->pool)
		return drop(counts, DROP_OUTSIDE_WINDOW);
	index = job->first + (form->round & 1) * job->pool + form->slot;
	v = bpf_map_lookup_elem(&versions, &index);
	if (!v)
		return drop(counts, DROP_OUTSIDE_WINDOW);
	bpf_spin_lock(&v->lock);
	verdict = decide(job, v, s, form, job->ops[form->op], 1ull << (number & 63));
	if (verdict.outcome == COMPLETE) {
		v->state = STATE_DONE;
		v->unsent = job->ranks < 64 ? (1ull << (job->ranks & 63)) - 1 : ~0ull;
	}
	receiver = v->receiver;
	arrived = v->arrived;
	if (verdict.outcome == COMPLETE || verdict.outcome == ANSWER) {
		/* A repetition may differ in form from what was counted: the answer is to that. */
		header_bytes = (job->ops[v->op] & OP_FIXED_POINT) ? SML_BYTES_SCALED_RESULT : SML_BYTES_RESULT;
		bytes = v->bytes;
		exponent = v->exponent;
		if (verdict.outcome == ANSWER && receiver < job->ranks && receiver != number)
			bytes = 0;
		else
			copy_sum(v, s, header_bytes);
	}
	bpf_spin_unlock(&v->lock);
	if (bytes > PAYLOAD_BYTES_MAX)
		bytes = PAYLOAD_BYTES_MAX;
	switch (verdict.outcome) {
	case ADDED:
		return XDP_DROP;
	case UP:
		return up(counts, verdict.reason);
	case COMPLETE:
	case ANSWER: {
		struct form result = *form;

		result.has_exponent = header_bytes == SML_BYTES_SCALED_RESULT;
		write_result(s, &result, exponent);
		if (verdict.outcome == COMPLETE)
			return multicast(ctx, s, job, place, counts, header_bytes, bytes);
		counts->retransmitted[RETRANSMIT_ASKED]++;
		return answer(ctx, s, job, rank, counts, header_bytes, bytes);
	}
	case REJECT:
		counts->dropped[DROP_MISMATCH]++;
		U8(s, SML) = SML_KIND_REJECTED;
		U8(s, SML + SML_ATTEMPT) = 0;
		return answer(ctx, s, job, rank, counts, SML_BYTES_REJECTED, 0);
	case NAME_MISSING:
		counts->dropped[DROP_IN_PROGRESS]++;
		return answer(ctx, s, job, rank, counts, write_waiting(s, arrived), 0);
	default:
		return verdict.reason < sizeof(counts->dropped) / 8 ? drop(counts, verdict.reason) : XDP_DROP;
	}
}

/* The way to a rank is the way from it: it has contributed before anything is sent to it. */
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

/* A packet from the socket of a rank, in `scratch`: `bytes` behind the UDP header. */
static __always_inline int on_packet(struct xdp_md *ctx, struct fanin_scratch *s, struct fanin_job *job, __u32 place, struct fanin_counts *counts,
				     __u32 number, __u32 bytes)
{
	__u32 at = place * RANKS_MAX + number, kind = U8(s, SML);
	struct fanin_rank *rank = bpf_map_lookup_elem(&ranks, &at);
	struct form form = {};
	int wrong;

	if (!rank)
		return up(counts, UP_STRANGER);
	if (U8(s, HOP + HOP_VERSION) != HOP_MAGIC_VERSION || (U8(s, HOP + HOP_NEIGHBOUR) & ~HOP_ECN_BITS) != HOP_FLAGS_NEIGHBOUR ||
	    U8(s, HOP + HOP_ROLES) != HOP_ROLES_UP || U8(s, HOP + HOP_SYSTEM) != job->system || U16(s, HOP + HOP_JOB) != job->job ||
	    U8(s, REST) != job->system)
		return up(counts, UP_FOREIGN);
	if (kind != SML_KIND_CONTRIBUTION && kind != SML_KIND_SCALED_CONTRIBUTION && kind != SML_KIND_CONTRIBUTION_WITH_A_CALL &&
	    kind != SML_KIND_SCALED_CONTRIBUTION_WITH_A_CALL)
		return up(counts, UP_KIND);
	wrong = -1;
	/* Before any word of it is believed. */
	if (crc_of(s, HOP, HOP_CHECK, crc_of(s, REST, bytes - HOP_BYTES, 0)) != U32(s, HOP + HOP_CHECK))
		wrong = DROP_CORRUPTED;
	else if (U32(s, HOP + HOP_EPOCH) != job->epoch)
		wrong = DROP_UNPROVEN;
	else
		wrong = read_form(s, bytes - HOP_BYTES - TAG_BYTES, &form);
	if (wrong >= 0) {
		__sync_fetch_and_add(&rank->packets_dropped, 1);
		return (__u32)wrong < sizeof(counts->dropped) / 8 ? drop(counts, wrong) : XDP_DROP;
	}
	learn(s, rank);
	rank->heard = U32(s, HOP + HOP_SEQUENCE);
	__sync_fetch_and_add(&rank->packets_received, 1);
	__sync_fetch_and_add(&rank->payload_bytes_received, form.payload_bytes);
	return on_contribution(ctx, s, job, place, counts, number, rank, &form);
}

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
	if (bytes < HOP_BYTES + TAG_BYTES + SML_BYTES_CONTRIBUTION || bytes > 65535 || bpf_xdp_get_buff_len(ctx) < HOP + bytes)
		return up(count, UP_FOREIGN);
	if (bytes > FRAME_BYTES_MAX - HOP)
		return up(count, UP_TOO_LONG);
	if (bpf_xdp_load_bytes(ctx, 0, s->frame, HOP + bytes))
		return up(count, UP_FOREIGN);
	return on_packet(ctx, s, job, place, count, *found, bytes);
}

/* A copy of a result on its way out: the next rank behind this device that has not been sent it. */
static __always_inline int on_exit(struct xdp_md *ctx, __u32 ifindex)
{
	__u32 zero = 0, port, place, index, number = 0, i, bytes, header_bytes, rest, at, *found;
	struct fanin_scratch *s = bpf_map_lookup_elem(&scratch, &zero);
	struct fanin_version *v;
	struct fanin_rank *rank;
	struct fanin_job *job;
	__u64 key, bit, left, *mask;

	if (!s || bpf_xdp_load_bytes(ctx, 0, s->frame, SML + SML_BYTES_RESULT))
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
	index = job->first + (U32(s, SML + SML_ROUND) & 1) * job->pool + U16(s, SML + SML_SLOT);
	v = bpf_map_lookup_elem(&versions, &index);
	if (!v)
		return XDP_DROP;
	left = v->unsent & *mask;
	if (!left)
		return XDP_DROP;
	bit = left & -left;
	/* Copies for one device leave by one processor, so nobody else takes this rank's. */
	__sync_fetch_and_and(&v->unsent, ~bit);
	for (i = 32; i; i >>= 1) {
		if (!(left & ((1ull << i) - 1))) {
			left >>= i;
			number += i;
		}
	}
	at = place * RANKS_MAX + (number & 63);
	rank = bpf_map_lookup_elem(&ranks, &at);
	if (!rank)
		return XDP_DROP;
	rest = U32(s, HOP + HOP_CHECK);
	if (v->receiver < job->ranks && v->receiver != number && U16(s, HOP + HOP_PAYLOAD_BYTES)) {
		/* This rank does not need the sum, only to know that there is one. */
		header_bytes = U8(s, SML) == SML_KIND_SCALED_RESULT ? SML_BYTES_SCALED_RESULT : SML_BYTES_RESULT;
		if (bpf_xdp_load_bytes(ctx, SML, s->frame + SML, header_bytes))
			return XDP_DROP;
		rest = crc_of(s, REST, TAG_BYTES + header_bytes, 0);
		U16(s, HOP + HOP_PAYLOAD_BYTES) = 0;
		bytes = SML + header_bytes;
		U16(s, UDP_LENGTH) = bpf_htons(bytes - UDP);
		if (bpf_xdp_adjust_tail(ctx, (int)bytes - (int)bpf_xdp_get_buff_len(ctx)))
			return XDP_DROP;
	}
	address(s, rank);
	write_ip(s, bpf_ntohs(U16(s, UDP_LENGTH)) - UDP_BYTES);
	seal(s, rank, rest);
	return bpf_xdp_store_bytes(ctx, 0, s->frame, SML) ? XDP_DROP : XDP_PASS;
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
