/* The switch of jobs on static trees: crates/protocols/src/shared/trees/switch.rs, function by function, for a job's only switch, which is the
 * root of its only tree and recovers losses (`reliable`). The names are those of that file. */
#pragma once

/* A contribution without its elements. */
struct contribution {
	__u32 block, payload_bytes;
	__u8 attempt;
};

/* The slot of a block: `Slots::index_of`. The window is a power of two. */
static __always_inline __u32 tree_index_of(struct fanin_job *job, __u32 block)
{
	return job->first + (block & (2 * job->pool - 1));
}

/* `TreePacket::new`: a drop reason where it is none, or -1. */
static __always_inline int tree_read(struct packet *p, struct contribution *what)
{
	struct fanin_scratch *s = p->s;

	what->payload_bytes = U16(s, HOP + HOP_PAYLOAD_BYTES);
	/* What stands between the attempt and the block is reserved. */
	if (U16(s, HEAD + TREE_ATTEMPT + 1) || p->bytes < TREE_BYTES_CONTRIBUTION + what->payload_bytes)
		return DROP_MALFORMED;
	what->attempt = U8(s, HEAD + TREE_ATTEMPT);
	what->block = U32(s, HEAD + TREE_BLOCK);
	return -1;
}

/* `At::begin`: a block's first contribution takes the slot. */
static __always_inline struct verdict tree_begin(struct packet *p, struct fanin_version *v, const struct contribution *what, __u64 bit)
{
	__u32 bytes = what->payload_bytes;

	if (!bytes || bytes > p->job->block_bytes || bytes > PAYLOAD_BYTES_MAX || !is_whole(bytes, p->job->ops[0]))
		return of(REJECT, DROP_MISMATCH);
	assign(v, p->s, HEAD + TREE_BYTES_CONTRIBUTION, bytes);
	v->round = what->block;
	v->state = STATE_AGGREGATING;
	v->missing = p->job->ranks - 1;
	v->arrived = bit;
	v->op = 0;
	v->receiver = RECEIVER_ALL;
	return of(v->missing ? ADDED : COMPLETE, 0);
}

/* `Reduction::add`: a child's first contribution to a block that has begun. */
static __always_inline struct verdict tree_add(struct packet *p, struct fanin_version *v, const struct contribution *what, __u64 bit)
{
	__u32 bytes = what->payload_bytes;

	if (bytes != v->bytes || bytes > PAYLOAD_BYTES_MAX)
		return of(REJECT, DROP_MISMATCH);
	reduce(v, p->s, HEAD + TREE_BYTES_CONTRIBUTION, bytes, p->job->ops[0]);
	v->arrived |= bit;
	v->missing--;
	return of(v->missing ? ADDED : COMPLETE, 0);
}

/* `At::on_repeat`. */
static __always_inline struct verdict tree_repeat(struct fanin_version *v, const struct contribution *what)
{
	if (!what->attempt)
		return of(DROP, DROP_DUPLICATE);
	if (v->state == STATE_DONE)
		return of(ANSWER, RETRANSMIT_ASKED);
	return of(what->attempt < 2 ? DROP : NAME_MISSING, DROP_IN_PROGRESS);
}

/* `At::on_contribution`; the version is locked. */
static __always_inline struct verdict tree_decide(struct packet *p, struct fanin_version *v, const struct contribution *what, __u64 bit)
{
	if (p->job->state != JOB_HERE)
		return of(UP, UP_HANDED_OVER);
	if (v->state != STATE_EMPTY && v->round == what->block) {
		if (v->state == STATE_AGGREGATING && !(v->arrived & bit))
			return tree_add(p, v, what, bit);
		return tree_repeat(v, what);
	}
	/* Later blocks take the slot also where it is not complete: a late packet has begun the block after this switch lost its memory. */
	if (v->state != STATE_EMPTY && !newer(what->block, v->round))
		return of(DROP, DROP_STALE);
	return tree_begin(p, v, what, bit);
}

/* The header of a sum, of a block that stands there already. */
static __always_inline __u32 tree_write(struct fanin_scratch *s, __u8 kind, __u8 suspect_kind)
{
	U8(s, HEAD) = kind;
	U8(s, HEAD + TREE_SUSPECT_KIND) = suspect_kind;
	return TREE_BYTES_AGGREGATE;
}

/* `Reduction::on_packet`: a contribution whose checksum and epoch are right. */
static __always_inline int tree_contribution(struct packet *p, const struct contribution *what)
{
	__u32 index = tree_index_of(p->job, what->block), bytes = 0;
	struct fanin_counts *counts = p->counts;
	struct fanin_version *v = bpf_map_lookup_elem(&versions, &index);
	struct fanin_scratch *s = p->s;
	struct verdict verdict;
	__u64 arrived;

	if (!v)
		return drop(counts, DROP_OUTSIDE_WINDOW);
	bpf_spin_lock(&v->lock);
	verdict = tree_decide(p, v, what, 1ull << (p->number & 63));
	if (verdict.outcome == COMPLETE) {
		v->state = STATE_DONE;
		v->unsent = all_ranks(p->job);
	}
	arrived = v->arrived;
	if (verdict.outcome == COMPLETE || verdict.outcome == ANSWER) {
		bytes = v->bytes;
		copy_sum(v, s, TREE_BYTES_AGGREGATE);
	}
	bpf_spin_unlock(&v->lock);
	if (bytes > PAYLOAD_BYTES_MAX)
		bytes = PAYLOAD_BYTES_MAX;
	if (verdict.outcome == ADDED || verdict.outcome == COMPLETE)
		count_last(p, verdict.outcome == COMPLETE ? COMPLETES_SUM : PART_OF_SUM);
	switch (verdict.outcome) {
	case ADDED:
		return XDP_DROP;
	case UP:
		return up(counts, verdict.reason);
	case COMPLETE:
		return multicast(p, tree_write(s, TREE_KIND_AGGREGATE, 0), bytes);
	case ANSWER:
		counts->retransmitted[RETRANSMIT_ASKED]++;
		return answer(p, tree_write(s, TREE_KIND_AGGREGATE, 0), bytes);
	case REJECT:
		counts->dropped[DROP_MISMATCH]++;
		return answer(p, tree_write(s, TREE_KIND_REJECTED, 0), 0);
	case NAME_MISSING:
		counts->dropped[DROP_IN_PROGRESS]++;
		tree_write(s, TREE_KIND_WAITING, SUSPECT_IS_RANK);
		U32(s, HEAD + TREE_SUSPECT) = lowest(~arrived);
		return answer(p, TREE_BYTES_WAITING, 0);
	default:
		return verdict.reason < sizeof(counts->dropped) / 8 ? drop(counts, verdict.reason) : XDP_DROP;
	}
}

/* A packet of a job on a static tree. */
static __always_inline int tree_packet(struct packet *p)
{
	struct contribution what = {};
	int wrong;

	if (p->bytes < TREE_BYTES_CONTRIBUTION || !is_ours(p))
		return up(p->counts, UP_FOREIGN);
	if (U8(p->s, HEAD) != TREE_KIND_CONTRIBUTION)
		return up(p->counts, UP_KIND);
	wrong = distrust(p);
	if (wrong < 0)
		wrong = tree_read(p, &what);
	if (wrong >= 0)
		return refuse(p, wrong);
	believe(p, what.payload_bytes);
	return tree_contribution(p, &what);
}

/* Where the slot is that a sum on its way out comes from. */
static __always_inline __u32 tree_index(struct fanin_job *job, struct fanin_scratch *s)
{
	return tree_index_of(job, U32(s, HEAD + TREE_BLOCK));
}
