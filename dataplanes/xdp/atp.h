/* The switch of ATP and A2TP jobs: crates/protocols/src/shared/aggregation/switch.rs, function by function, for jobs of up to 64 workers with one
 * switch, which each tell of their own collisions. The aggregators are shared by all such jobs in the kernel, first come, first served. The names
 * are those of that file.
 *
 * An aggregator is a version: `leader` is the job's place, one more; `fingerprint` and `round` are the fragment; `arrived` the ranks, `missing` how many
 * complete it, `op` the flags, `counter` whether it was wanted late, `deadline` when it was touched, `unsent` and `hosts` the spread. */
#pragma once

#define ATP_FIRST_PAYLOAD (LONG_HEAD + ATP_BYTES_GRADIENT)
#define ATP_SHORT_PAYLOAD (HEAD + ATP_BYTES_GRADIENT)
#define ATP_MET (ATP_ECN_BITS | ATP_COL_BITS)
#define ATP_FLAGS_OF_GRADIENTS (ATP_DIRECT_BITS | ATP_RESEND_BITS | ATP_COLLIDED_BITS | ATP_MET | ATP_FLOAT_BITS)
#define ATP_FLAGS_OF_ACKS (ATP_COLLIDED_BITS | ATP_MET | ATP_FLOAT_BITS)

/* States of an aggregator. */
#define ATP_OPEN STATE_AGGREGATING
#define ATP_COMPLETE STATE_DONE
#define ATP_FLUSHED (STATE_DONE + 1)

/* What becomes of a gradient: it goes on, or a sum does in its place. */
enum atp_outcome { ATP_DROP, ATP_UP, ATP_ADDED, ATP_PASS, ATP_SUM };

/* A gradient without its elements, as it goes on. */
struct gradient {
	__u64 ranks;
	__u32 tensor, seq, waited, bytes, reason;
	__u16 index;
	__u8 flags, attempt, fan_in;
	/* It takes something out, of which a part could not be added. */
	__u8 left_out;
};

static __always_inline __u32 waited_at(struct fanin_scratch *s, __u32 at)
{
	return U16(s, at) | U8(s, at + 2) << 16;
}

/* The time in ns: the clock's, or what a test says. */
static __always_inline __u64 atp_now(struct packet *p)
{
	struct fanin_clock *clock = bpf_map_lookup_elem(&clocks, &p->place);

	return clock && clock->now ? clock->now : bpf_ktime_get_ns();
}

/* `Spread::begin`: when the first contribution would have come; false where that is not known. */
static __always_inline __u8 spread_begin(const struct gradient *packet, __u64 now, __u64 *first)
{
	if (packet->attempt || packet->waited == ATP_WAITED_UNKNOWN) {
		*first = 0;
		return 0;
	}
	*first = now > packet->waited ? now - packet->waited : 0;
	return 1;
}

static __always_inline void spread_join(struct fanin_version *v, const struct gradient *packet, __u64 now)
{
	__u64 first;
	__u8 known = spread_begin(packet, now, &first);

	if (first < v->unsent)
		v->unsent = first;
	v->hosts = v->hosts && known;
}

static __always_inline __u32 spread_waited(struct fanin_version *v, __u64 now)
{
	__u64 waited = now > v->unsent ? now - v->unsent : 0;

	if (!v->hosts)
		return ATP_WAITED_UNKNOWN;
	return waited < ATP_WAITED_UNKNOWN - 1 ? waited : ATP_WAITED_UNKNOWN - 1;
}

static __always_inline __u32 ones(__u64 bits)
{
	return __builtin_popcountll(bits);
}

/* What an aggregator holds takes the packet's place. */
static __always_inline enum atp_outcome atp_hold(struct packet *p, struct fanin_version *v, struct gradient *packet, __u8 flags, __u32 waited)
{
	packet->ranks = v->arrived;
	packet->flags = flags;
	packet->waited = waited;
	packet->bytes = v->bytes;
	copy_sum(v, p->s, ATP_FIRST_PAYLOAD - HEAD);
	return ATP_SUM;
}

/* `join`: the aggregator is this fragment's. */
static __always_inline enum atp_outcome atp_join(struct packet *p, struct fanin_version *v, struct gradient *packet, __u64 now)
{
	v->deadline = now;
	if (v->state == ATP_FLUSHED) {
		packet->flags |= ATP_RESEND_BITS;
		return ATP_PASS;
	}
	v->op |= packet->flags & ATP_MET;
	if (v->arrived & packet->ranks) {
		packet->reason = DROP_DUPLICATE;
		return v->state == ATP_COMPLETE ? atp_hold(p, v, packet, v->op | ATP_RESEND_BITS, ATP_WAITED_UNKNOWN) : ATP_DROP;
	}
	if (v->state == ATP_COMPLETE || packet->bytes != v->bytes || packet->bytes > PAYLOAD_BYTES_MAX)
		return ATP_PASS;
	reduce(v, p->s, ATP_FIRST_PAYLOAD, packet->bytes, p->job->ops[0]);
	v->arrived |= packet->ranks;
	spread_join(v, packet, now);
	if (ones(v->arrived) < v->missing)
		return ATP_ADDED;
	v->state = ATP_COMPLETE;
	return atp_hold(p, v, packet, v->op, spread_waited(v, now));
}

/* `flush_with`: what is there of the fragment goes on, with this contribution in it where that is new. */
static __always_inline enum atp_outcome atp_flush_with(struct packet *p, struct fanin_version *v, struct gradient *packet, __u64 now)
{
	__u8 kept = packet->flags & (ATP_COLLIDED_BITS | ATP_DIRECT_BITS);

	v->deadline = now;
	if (v->state == ATP_OPEN) {
		if (!(v->arrived & packet->ranks)) {
			if (packet->bytes != v->bytes || packet->bytes > PAYLOAD_BYTES_MAX) {
				packet->left_out = 1;
			} else {
				reduce(v, p->s, ATP_FIRST_PAYLOAD, packet->bytes, p->job->ops[0]);
				v->arrived |= packet->ranks;
				spread_join(v, packet, now);
				v->op |= packet->flags & ATP_MET;
			}
		}
		v->state = ATP_FLUSHED;
		return atp_hold(p, v, packet, v->op | ATP_RESEND_BITS | kept, spread_waited(v, now));
	}
	if (v->state == ATP_COMPLETE && (v->arrived & packet->ranks)) {
		v->state = ATP_FLUSHED;
		return atp_hold(p, v, packet, v->op | ATP_RESEND_BITS, ATP_WAITED_UNKNOWN);
	}
	return ATP_PASS;
}

/* `take`: the first contribution takes an aggregator that nobody has. */
static __always_inline enum atp_outcome atp_take(struct packet *p, struct fanin_version *v, struct gradient *packet, __u64 now, __u32 fan_in)
{
	__u64 first;

	if (packet->bytes > PAYLOAD_BYTES_MAX || !is_whole(packet->bytes, p->job->ops[0]))
		return ATP_PASS;
	assign(v, p->s, ATP_FIRST_PAYLOAD, packet->bytes);
	/* A job goes round its aggregators: what one met too late to be told is told the next time. */
	v->op = (packet->flags & ATP_MET) | (v->counter && v->leader == p->place + 1 ? ATP_COL_BITS : 0);
	v->counter = 0;
	v->state = ATP_OPEN;
	v->leader = p->place + 1;
	v->fingerprint = packet->tensor;
	v->round = packet->seq;
	v->arrived = packet->ranks;
	v->missing = fan_in;
	v->deadline = now;
	v->hosts = spread_begin(packet, now, &first);
	v->unsent = first;
	return ATP_ADDED;
}

static __always_inline int atp_is_of(struct packet *p, struct fanin_version *v, const struct gradient *packet)
{
	return v->state != STATE_EMPTY && v->leader == p->place + 1 && v->fingerprint == packet->tensor && v->round == packet->seq;
}

/* `on_gradient`, from where the aggregator is looked at; the version is locked. */
static __always_inline enum atp_outcome atp_decide(struct packet *p, struct fanin_version *v, struct gradient *packet, __u64 now, __u32 all)
{
	__u32 is_ours = atp_is_of(p, v, packet), fan_in = packet->fan_in ? packet->fan_in : all;

	if (p->job->state != JOB_HERE)
		return ATP_UP;
	if (packet->flags & (ATP_RESEND_BITS | ATP_COLLIDED_BITS))
		return is_ours ? atp_flush_with(p, v, packet, now) : ATP_PASS;
	if (is_ours)
		return atp_join(p, v, packet, now);
	/* A lone worker of its switch has nothing to be added to here. */
	if (fan_in <= 1)
		return ATP_PASS;
	/* P4: an aggregator that nobody has spoken of for long is a zombie, and free. */
	if (v->state != STATE_EMPTY && (now < v->deadline || now - v->deadline < p->job->timeout_ns)) {
		v->op |= ATP_COL_BITS;
		v->counter = v->state != ATP_OPEN;
		packet->flags |= ATP_COLLIDED_BITS;
		packet->reason = 1;
		return ATP_PASS;
	}
	v->state = STATE_EMPTY;
	return atp_take(p, v, packet, now, fan_in);
}

/* Writes a gradient's header as it goes on; elements are there. */
static __always_inline int atp_to_server(struct packet *p, const struct gradient *packet, __u32 server)
{
	struct fanin_scratch *s = p->s;
	__u32 bytes = packet->bytes, rest_bytes = TAG_BYTES + ATP_BYTES_GRADIENT + bytes;

	if (server >= p->job->ranks || bytes > FRAME_BYTES_MAX - ATP_FIRST_PAYLOAD)
		return drop(p->counts, DROP_NO_ROUTE);
	U8(s, LONG_HEAD + ATP_ECN) = packet->flags;
	U64(s, LONG_HEAD + ATP_BITMAP) = packet->ranks;
	U32(s, LONG_HEAD + ATP_WAITED) = packet->waited;
	write_way(p, server, HOP_BY_AGGREGATORS_BITS, bytes);
	U8(s, HOP + HOP_ROLES) = HOP_ROLES_SWITCH_TO_SERVER;
	return send_routed(p, 1ull << (server & 63), LONG_REST, rest_bytes, crc_of(s, LONG_REST, rest_bytes, 0));
}

/* `a2tp 5.1`. */
static __always_inline int atp_gradient(struct packet *p, struct gradient *packet, __u32 server)
{
	struct fanin_job *job = p->job;
	__u64 workers = job->workers & ~(1ull << (server & 63)), now = atp_now(p);
	struct fanin_scratch *s = p->s;
	__u32 at = job->first + packet->index;
	struct fanin_version *v;
	enum atp_outcome outcome = ATP_PASS;

	packet->ranks = U64(s, LONG_HEAD + ATP_BITMAP);
	packet->waited = waited_at(s, LONG_HEAD + ATP_WAITED);
	packet->attempt = U8(s, LONG_HEAD + ATP_ATTEMPT);
	/* This switch is the server's. */
	packet->fan_in = U8(s, LONG_HEAD + ATP_FAN_IN1);
	if (U8(s, LONG_HEAD + ATP_GROUP) || packet->ranks != 1ull << (p->number & 63) || !(packet->ranks & workers))
		return drop(p->counts, DROP_NOT_A_MEMBER);
	if (packet->index >= job->pool)
		return drop(p->counts, DROP_OUTSIDE_WINDOW);
	/* 5.1, step 1: what is no fixed point is the server's to add, and so is what cannot be in an aggregator. */
	if ((packet->flags & ATP_FLOAT_BITS) || !packet->bytes || packet->bytes > job->block_bytes)
		return atp_to_server(p, packet, server);
	v = bpf_map_lookup_elem(&versions, &at);
	if (!v)
		return drop(p->counts, DROP_OUTSIDE_WINDOW);
	bpf_spin_lock(&v->lock);
	outcome = atp_decide(p, v, packet, now, ones(workers));
	bpf_spin_unlock(&v->lock);
	if (outcome == ATP_DROP)
		return drop(p->counts, DROP_DUPLICATE);
	if (outcome == ATP_UP)
		return up(p->counts, UP_HANDED_OVER);
	if (outcome == ATP_ADDED)
		return XDP_DROP;
	if (outcome == ATP_PASS && packet->reason)
		tally(p->counts, TALLY_COLLISIONS);
	/* One packet leaves for each that comes: what differs in length is sent again, and passes. */
	if (packet->left_out)
		p->counts->dropped[DROP_MISMATCH]++;
	return atp_to_server(p, packet, server);
}

/* `a2tp 5.2`: the acknowledgement frees the aggregator and goes on to all workers, or to the one that asked. */
static __always_inline int atp_ack(struct packet *p, struct gradient *packet, __u32 server)
{
	struct fanin_scratch *s = p->s;
	struct fanin_job *job = p->job;
	__u32 to = U16(s, LONG_HEAD + ATP_TO), at = job->first + packet->index, bytes = packet->bytes, words, rest_bytes, i;
	__u64 workers = job->workers & ~(1ull << (server & 63)), receivers = workers;
	struct fanin_version *v = bpf_map_lookup_elem(&versions, &at);

	if (!(packet->flags & ATP_FLOAT_BITS) && packet->index < job->pool && v) {
		bpf_spin_lock(&v->lock);
		if (atp_is_of(p, v, packet))
			v->state = STATE_EMPTY;
		bpf_spin_unlock(&v->lock);
	}
	if (to != ATP_TO_ALL) {
		receivers = to < 64 ? workers & 1ull << (to & 63) : 0;
		if (!receivers)
			return drop(p->counts, DROP_NOT_A_MEMBER);
	}
	U8(s, LONG_HEAD + ATP_ECN) = packet->flags;
	if (bytes > FRAME_BYTES_MAX - ATP_FIRST_PAYLOAD)
		return XDP_DROP;
	/* The header and the elements, behind the shorter hop header. */
	words = (ATP_BYTES_ACKNOWLEDGEMENT + bytes + 7) >> 3;
	for (i = 0; i < FRAME_BYTES_MAX / 8; i++) {
		if (i >= words)
			break;
		*(volatile __u64 *)(s->frame + HEAD + 8 * i) = U64(s, LONG_HEAD + 8 * i);
	}
	rest_bytes = TAG_BYTES + ATP_BYTES_ACKNOWLEDGEMENT + bytes;
	write_hop(s, job, bytes);
	U8(s, REST) = packets_of(job);
	return send_routed(p, receivers, REST, rest_bytes, crc_of(s, REST, rest_bytes, 0));
}

/* P1: the server wants what there is of a fragment. */
static __always_inline int atp_flush(struct packet *p, struct gradient *packet, __u32 server)
{
	struct fanin_scratch *s = p->s;
	__u32 at = p->job->first + packet->index;
	enum atp_outcome outcome = ATP_ADDED;
	struct fanin_version *v = bpf_map_lookup_elem(&versions, &at);
	__u64 now = atp_now(p);

	if (!v || packet->index >= p->job->pool)
		return XDP_DROP;
	bpf_spin_lock(&v->lock);
	if (atp_is_of(p, v, packet)) {
		v->deadline = now;
		if (v->state == ATP_OPEN || v->state == ATP_COMPLETE)
			outcome = atp_hold(p, v, packet, v->op | ATP_RESEND_BITS, ATP_WAITED_UNKNOWN);
		v->state = ATP_FLUSHED;
	}
	bpf_spin_unlock(&v->lock);
	if (outcome != ATP_SUM)
		return XDP_DROP;
	U8(s, LONG_HEAD + ATP_KIND) = ATP_KIND_GRADIENT;
	return atp_to_server(p, packet, server);
}

/* `AtpPacket::new`, of the kinds that a switch looks at. */
static __always_inline int atp_is_sound(struct fanin_scratch *s, const struct routed *what, __u8 flags)
{
	__u64 bits = U64(s, LONG_HEAD + ATP_BITMAP);
	__u8 group = U8(s, LONG_HEAD + ATP_GROUP);

	if (what->kind == ATP_KIND_FLUSH)
		return !flags && !U8(s, LONG_HEAD + ATP_ATTEMPT) && !U16(s, LONG_HEAD + ATP_TO);
	if (what->bytes < ATP_BYTES_GRADIENT)
		return 0;
	if (what->kind == ATP_KIND_GRADIENT)
		return !(flags & ~ATP_FLAGS_OF_GRADIENTS) && bits && (group != ATP_ALL_OF_SWITCH || bits <= 1 << 16);
	return !(flags & ~ATP_FLAGS_OF_ACKS) && !U16(s, LONG_HEAD + ATP_AGGREGATED + 2) && !group;
}

/* A packet of a job of ATP or A2TP. */
static __always_inline int atp_packet(struct packet *p)
{
	const struct form_of_system form = {
		.long_kinds = 1 << ATP_KIND_GRADIENT | 1 << ATP_KIND_ACKNOWLEDGEMENT | 1 << ATP_KIND_FLUSH,
		.kind_at = ATP_KIND,
		.kind_bits = ATP_KIND_BITS,
		.bytes_min = ATP_BYTES_FLUSH,
		.has_servers = 1,
	};
	struct fanin_scratch *s = p->s;
	struct routed what = {};
	int verdict = admit(p, &what, &form);
	struct gradient packet = {};
	__u32 header_bytes, number, server;

	if (verdict != IS_ADMITTED)
		return verdict;
	packet.flags = U8(s, LONG_HEAD + ATP_ECN);
	packet.bytes = what.payload_bytes;
	header_bytes = what.kind == ATP_KIND_FLUSH ? ATP_BYTES_FLUSH : ATP_BYTES_GRADIENT;
	if (!atp_is_sound(s, &what, packet.flags) || packet.bytes > what.bytes - header_bytes)
		return refuse(p, DROP_MALFORMED);
	believe(p, packet.bytes);
	packet.index = U16(s, LONG_HEAD + ATP_INDEX);
	packet.tensor = U32(s, LONG_HEAD + ATP_TENSOR);
	packet.seq = U32(s, LONG_HEAD + ATP_SEQ);
	number = U8(s, LONG_HEAD + ATP_SERVER) >> 4;
	if (number >= p->job->server_count)
		return drop(p->counts, DROP_NOT_A_MEMBER);
	server = p->job->servers[number & 15];
	if (what.kind != ATP_KIND_GRADIENT && (!what.is_servers || server != p->number))
		return drop(p->counts, DROP_NOT_A_MEMBER);
	if (what.kind != ATP_KIND_FLUSH && ((U8(s, IP_SERVICE) & 3) == 3 || (U8(s, HOP + HOP_ECN) & HOP_ECN_BITS)))
		packet.flags |= ATP_ECN_BITS;
	if (what.kind == ATP_KIND_GRADIENT)
		return atp_gradient(p, &packet, server);
	return what.kind == ATP_KIND_FLUSH ? atp_flush(p, &packet, server) : atp_ack(p, &packet, server);
}
