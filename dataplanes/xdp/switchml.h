/* The switch of SwitchML jobs: crates/protocols/src/switchml/switch.rs, function by function, for a job's only switch. The names are those of
 * that file, and a test holds the packets that come out of both together. */
#pragma once

/* A contribution without its elements. */
struct form {
	__u32 slot, round, fingerprint;
	__u32 header_bytes, payload_bytes;
	__u16 receiver;
	__s16 exponent;
	__u8 op, attempt, has_exponent, has_call;
};

/* The form of a contribution in `scratch`; a drop reason where it is none, or -1. */
static __always_inline int read_form(struct fanin_scratch *s, __u32 rest_bytes, struct form *form)
{
	__u32 kind = U8(s, HEAD), call;

	form->has_exponent = kind == SML_KIND_SCALED_CONTRIBUTION || kind == SML_KIND_SCALED_CONTRIBUTION_WITH_A_CALL;
	form->has_call = kind == SML_KIND_CONTRIBUTION_WITH_A_CALL || kind == SML_KIND_SCALED_CONTRIBUTION_WITH_A_CALL;
	form->fingerprint = 0;
	form->receiver = RECEIVER_ALL;
	form->op = 0;
	form->header_bytes = form->has_exponent ? SML_BYTES_SCALED_CONTRIBUTION : SML_BYTES_CONTRIBUTION;
	if (form->has_call) {
		call = HEAD + form->header_bytes;
		form->header_bytes += SML_BYTES_CONTRIBUTION_WITH_A_CALL - SML_BYTES_CONTRIBUTION;
		if (rest_bytes < form->header_bytes)
			return DROP_MALFORMED;
		form->fingerprint = U32(s, call + SML_FINGERPRINT_7 - SML_BYTES_CONTRIBUTION);
		form->receiver = U16(s, call + SML_RECEIVER_7 - SML_BYTES_CONTRIBUTION);
		form->op = U8(s, call + SML_OP_7 - SML_BYTES_CONTRIBUTION);
		/* There is one way to say nothing. */
		if (!form->fingerprint && form->receiver == RECEIVER_ALL && !form->op)
			return DROP_MALFORMED;
	}
	form->payload_bytes = U16(s, HOP + HOP_PAYLOAD_BYTES);
	if (rest_bytes < form->header_bytes + form->payload_bytes)
		return DROP_MALFORMED;
	if (form->has_exponent && U16(s, HEAD + SML_EXPONENT + 2))
		return DROP_MALFORMED;
	form->exponent = form->has_exponent ? (__s16)U16(s, HEAD + SML_EXPONENT) : 0;
	form->attempt = U8(s, HEAD + SML_ATTEMPT);
	form->slot = U16(s, HEAD + SML_SLOT);
	form->round = U32(s, HEAD + SML_ROUND);
	return -1;
}

/* Whether there is such an operator, and its blocks are in fixed point where this one is. */
static __always_inline int is_our_form(const struct form *form, __u16 op)
{
	return (op & OP_IS) && !(op & OP_FIXED_POINT) == !form->has_exponent;
}

/* A contribution that begins a round. */
static __always_inline struct verdict begin(struct fanin_job *job, struct fanin_version *v, struct fanin_scratch *s, const struct form *form,
					    __u16 op, __u64 bit, __u32 at)
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
static __always_inline struct verdict add(struct fanin_version *v, struct fanin_scratch *s, const struct form *form, __u16 op, __u64 bit,
					  __u32 at, __u32 block_bytes)
{
	__u32 bytes = form->payload_bytes;

	if (v->op != form->op || v->receiver != form->receiver || v->fingerprint != form->fingerprint || !is_our_form(form, op))
		return of(REJECT, DROP_MISMATCH);
	if (!form->has_call || (bytes && v->bytes)) {
		if (bytes != v->bytes || bytes > PAYLOAD_BYTES_MAX)
			return of(REJECT, DROP_MISMATCH);
		if (bytes && !(op & OP_REDUCES))
			return of(UP, UP_OPERATOR);
		reduce(v, s, at, bytes, op);
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

/* What becomes of a contribution; the version is locked. */
static __always_inline struct verdict decide(struct fanin_job *job, struct fanin_version *v, struct fanin_scratch *s, const struct form *form,
					     __u16 op, __u64 bit)
{
	__u32 at = (HEAD + form->header_bytes) & 127;
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
	U8(s, HEAD) = form->has_exponent ? SML_KIND_SCALED_RESULT : SML_KIND_RESULT;
	U8(s, HEAD + SML_ATTEMPT) = 0;
	U16(s, HEAD + SML_SLOT) = form->slot;
	U32(s, HEAD + SML_ROUND) = form->round;
	if (!form->has_exponent)
		return SML_BYTES_RESULT;
	U16(s, HEAD + SML_EXPONENT) = exponent;
	U16(s, HEAD + SML_EXPONENT + 2) = 0;
	return SML_BYTES_SCALED_RESULT;
}

/* `name_missing`. */
static __always_inline __u32 write_waiting(struct fanin_scratch *s, __u64 arrived)
{
	U8(s, HEAD) = SML_KIND_WAITING;
	U8(s, HEAD + SML_SUSPECT_KIND) = SUSPECT_IS_RANK;
	U32(s, HEAD + SML_SUSPECT) = lowest(~arrived);
	return SML_BYTES_WAITING;
}

/* A contribution of one of the job's ranks, in `scratch`, whose checksum and epoch are right. */
static __always_inline int on_contribution(struct packet *p, const struct form *form)
{
	struct fanin_counts *counts = p->counts;
	struct fanin_scratch *s = p->s;
	struct fanin_job *job = p->job;
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
	verdict = decide(job, v, s, form, job->ops[form->op], 1ull << (p->number & 63));
	if (verdict.outcome == COMPLETE) {
		v->state = STATE_DONE;
		v->unsent = all_ranks(job);
	}
	receiver = v->receiver;
	arrived = v->arrived;
	if (verdict.outcome == COMPLETE || verdict.outcome == ANSWER) {
		/* A repetition may differ in form from what was counted: the answer is to that. */
		header_bytes = (job->ops[v->op] & OP_FIXED_POINT) ? SML_BYTES_SCALED_RESULT : SML_BYTES_RESULT;
		bytes = v->bytes;
		exponent = v->exponent;
		if (verdict.outcome == ANSWER && receiver < job->ranks && receiver != p->number)
			bytes = 0;
		else
			copy_sum(v, s, header_bytes);
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
	case ANSWER: {
		struct form result = *form;

		result.has_exponent = header_bytes == SML_BYTES_SCALED_RESULT;
		write_result(s, &result, exponent);
		if (verdict.outcome == COMPLETE)
			return multicast(p, header_bytes, bytes);
		counts->retransmitted[RETRANSMIT_ASKED]++;
		return answer(p, header_bytes, bytes);
	}
	case REJECT:
		counts->dropped[DROP_MISMATCH]++;
		U8(s, HEAD) = SML_KIND_REJECTED;
		U8(s, HEAD + SML_ATTEMPT) = 0;
		return answer(p, SML_BYTES_REJECTED, 0);
	case NAME_MISSING:
		counts->dropped[DROP_IN_PROGRESS]++;
		return answer(p, write_waiting(s, arrived), 0);
	default:
		return verdict.reason < sizeof(counts->dropped) / 8 ? drop(counts, verdict.reason) : XDP_DROP;
	}
}

/* A packet of a job of SwitchML. */
static __always_inline int switchml_packet(struct packet *p)
{
	__u32 kind = U8(p->s, HEAD);
	struct form form = {};
	int wrong;

	if (p->bytes < SML_BYTES_CONTRIBUTION || !is_ours(p))
		return up(p->counts, UP_FOREIGN);
	if (kind != SML_KIND_CONTRIBUTION && kind != SML_KIND_SCALED_CONTRIBUTION && kind != SML_KIND_CONTRIBUTION_WITH_A_CALL &&
	    kind != SML_KIND_SCALED_CONTRIBUTION_WITH_A_CALL)
		return up(p->counts, UP_KIND);
	wrong = distrust(p);
	if (wrong < 0)
		wrong = read_form(p->s, p->bytes, &form);
	if (wrong >= 0)
		return refuse(p, wrong);
	believe(p, form.payload_bytes);
	return on_contribution(p, &form);
}

/* Where the version is that a result on its way out comes from. */
static __always_inline __u32 switchml_index(struct fanin_job *job, struct fanin_scratch *s)
{
	return job->first + (U32(s, HEAD + SML_ROUND) & 1) * job->pool + U16(s, HEAD + SML_SLOT);
}
