/* The switch of Canary jobs: crates/protocols/src/canary/switch.rs, function by function, for a job's only switch, whose array of descriptors is
 * the job's own. The names are those of that file.
 *
 * A descriptor is a version: `round` is the block's name, `arrived` the children, `missing` how many contributions can come at most, and
 * STATE_DONE is `Sent`. Where there is always room on the way out there is no `Ready` and no `Descending`.
 *
 * Time is what the last clock packet says (Canary 4.3). */
#pragma once

#define LONG_PAYLOAD (LONG_HEAD + CANARY_BYTES_REDUCE)
#define SHORT_PAYLOAD (HEAD + CANARY_BYTES_BROADCAST)

/* What becomes of a packet of a block. */
enum canary_outcome { CANARY_DROP, CANARY_UP, CANARY_ADDED, CANARY_SUM, CANARY_STRAGGLER, CANARY_TAKEN };

/* A block, as packets towards its leader name it: `PartialSum`. */
struct partial_sum {
	__u32 id, leader;
	__u16 counter, hosts, bytes;
};

static __always_inline void tally(struct fanin_counts *counts, __u32 what)
{
	counts->tallies[what]++;
}

static __always_inline __u64 fold(__u64 a, __u64 b)
{
	__u64 low = (a & ~0u) * (b & ~0u), one = (a & ~0u) * (b >> 32), other = (a >> 32) * (b & ~0u);
	__u64 middle = (low >> 32) + (one & ~0u) + (other & ~0u);

	return ((middle << 32) | (low & ~0u)) ^ ((a >> 32) * (b >> 32) + (one >> 32) + (other >> 32) + (middle >> 32));
}

/* crates/core/src/hash.rs. */
static __always_inline __u64 mix(__u64 key, __u64 value)
{
	__u64 once = fold(value ^ 0x9e3779b97f4a7c15ull, key ^ 0xe7037ed1a0b428dbull);

	return fold(once ^ 0x8ebc6af09c88c6e3ull, (key << 32 | key >> 32) ^ 0x589965cc75374cc3ull ^ (value << 23 | value >> 41));
}

/* The descriptor of a block: `Table::choice`, with one place. */
static __always_inline struct fanin_version *canary_place(struct fanin_job *job, __u32 id)
{
	__u32 length = job->pool, index;

	if (!length)
		return 0;
	if (job->hashed)
		index = (mix(CANARY_HASH_KEY, (__u64)job->job << 32 | id) >> 32) * length >> 32;
	else
		index = (id & CANARY_BLOCK_BITS) % length;
	index += job->first;
	return bpf_map_lookup_elem(&versions, &index);
}

/* Sends a packet that this switch makes, whose system's header and elements are there, to the host of a block's leader, or to whoever it is for. */
static __always_inline int canary_route(struct packet *p, __u32 host, __u8 flags, __u32 payload_bytes)
{
	__u32 rest_bytes = TAG_BYTES + CANARY_BYTES_REDUCE + payload_bytes;

	if (host >= p->job->ranks || host >= RANKS_MAX)
		return drop(p->counts, DROP_NO_ROUTE);
	write_way(p, host, flags, payload_bytes);
	return send_routed(p, 1ull << (host & 63), LONG_REST, rest_bytes, crc_of(p->s, LONG_REST, rest_bytes, 0));
}

/* `descriptor.partial_sum()`, when it is sent on (`canary 5.3`); the version is locked. */
static __always_inline void send_up(struct packet *p, struct fanin_version *v, __u64 now, struct partial_sum *sum)
{
	sum->id = v->round;
	sum->leader = v->leader;
	sum->counter = v->counter;
	sum->hosts = v->hosts;
	sum->bytes = v->bytes;
	copy_sum(v, p->s, LONG_PAYLOAD - HEAD);
	v->state = STATE_DONE;
	v->deadline = p->job->lifetime_ns == ~0ull ? ~0ull : now + p->job->lifetime_ns;
}

/* A sum whose elements are there already goes its way. */
static __always_inline int canary_sum(struct packet *p, const struct partial_sum *sum)
{
	struct fanin_scratch *s = p->s;
	__u32 bytes = sum->bytes;

	if (bytes > PAYLOAD_BYTES_MAX)
		return XDP_DROP;
	tally(p->counts, TALLY_SUMS);
	U32(s, LONG_HEAD + CANARY_DST) = sum->leader;
	U32(s, LONG_HEAD + CANARY_BLOCK) = sum->id;
	U16(s, LONG_HEAD + CANARY_COUNTER) = sum->counter;
	U16(s, LONG_HEAD + CANARY_HOSTS) = sum->hosts;
	U32(s, LONG_HEAD + CANARY_PORT) = 0;
	U16(s, LONG_HEAD + CANARY_SWITCH_ADDR) = 0;
	U8(s, LONG_HEAD + CANARY_BYPASS) = CANARY_KIND_REDUCE;
	return canary_route(p, sum->leader, HOP_BY_AGGREGATORS_BITS, bytes);
}

/* `on_reduce`, `begin`, `join`; the version is locked. */
static __always_inline enum canary_outcome canary_decide(struct packet *p, struct fanin_version *v, struct partial_sum *sum, __u64 now)
{
	struct fanin_job *job = p->job;
	__u32 bytes = sum->bytes, count;

	if (job->state != JOB_HERE)
		return CANARY_UP;
	if (v->state == STATE_EMPTY) {
		/* `canary 5.2`, 2: the first packet of a block takes a descriptor. */
		if (bytes > job->block_bytes || bytes > PAYLOAD_BYTES_MAX || !is_whole(bytes, job->ops[0]))
			return CANARY_DROP;
		assign(v, p->s, LONG_PAYLOAD, bytes);
		v->state = STATE_AGGREGATING;
		v->round = sum->id;
		v->leader = sum->leader;
		v->counter = sum->counter;
		v->hosts = sum->hosts;
		v->missing = sum->hosts - 1;
		if (job->fan_in && sum->leader < job->ranks && job->fan_in < v->missing)
			v->missing = job->fan_in;
		v->arrived = 1ull << (p->number & 63);
		v->deadline = now + job->timeout_ns;
		__sync_fetch_and_add(&job->in_use, 1);
	} else if (v->round != sum->id) {
		return CANARY_TAKEN;
	} else if (v->state == STATE_DONE) {
		v->arrived |= 1ull << (p->number & 63);
		return CANARY_STRAGGLER;
	} else {
		if (bytes != v->bytes || bytes > PAYLOAD_BYTES_MAX)
			return CANARY_DROP;
		reduce(v, p->s, LONG_PAYLOAD, bytes, job->ops[0]);
		count = v->counter + sum->counter;
		v->counter = count > 0xffff ? 0xffff : count;
		v->arrived |= 1ull << (p->number & 63);
	}
	if (v->counter < v->missing)
		return CANARY_ADDED;
	send_up(p, v, now, sum);
	return CANARY_SUM;
}

/* `canary 5.2`: a contribution or a partial aggregate. */
static __always_inline int canary_reduce(struct packet *p, __u32 bytes)
{
	struct fanin_scratch *s = p->s;
	struct partial_sum sum = {
		.id = U32(s, LONG_HEAD + CANARY_BLOCK),
		.leader = U32(s, LONG_HEAD + CANARY_DST),
		.counter = U16(s, LONG_HEAD + CANARY_COUNTER),
		.hosts = U16(s, LONG_HEAD + CANARY_HOSTS),
		.bytes = bytes,
	};
	struct fanin_clock *clock = bpf_map_lookup_elem(&clocks, &p->place);
	struct fanin_version *v = canary_place(p->job, sum.id);
	enum canary_outcome outcome;

	if (!v || !clock)
		return XDP_DROP;
	bpf_spin_lock(&v->lock);
	outcome = canary_decide(p, v, &sum, clock->now);
	bpf_spin_unlock(&v->lock);
	if (outcome != CANARY_UP && outcome != CANARY_DROP)
		count_last(p, outcome == CANARY_SUM ? COMPLETES_SUM : PART_OF_SUM);
	switch (outcome) {
	case CANARY_UP:
		return up(p->counts, UP_HANDED_OVER);
	case CANARY_ADDED:
		tally(p->counts, TALLY_SUMMED);
		return XDP_DROP;
	case CANARY_SUM:
		tally(p->counts, TALLY_SUMMED);
		return canary_sum(p, &sum);
	case CANARY_STRAGGLER:
		/* `canary 5.2`, 4: it goes on as it is. */
		tally(p->counts, TALLY_STRAGGLERS);
		return canary_route(p, sum.leader, HOP_BY_AGGREGATORS_BITS, bytes);
	case CANARY_TAKEN:
		/* `canary 5.2`, 5: the leader is told whom the broadcast will not reach, and no switch touches the packet any more. */
		tally(p->counts, TALLY_COLLISIONS);
		U32(s, LONG_HEAD + CANARY_PORT) = p->number;
		U16(s, LONG_HEAD + CANARY_SWITCH_ADDR) = p->job->ranks;
		U8(s, LONG_HEAD + CANARY_BYPASS) = CANARY_KIND_REDUCE | CANARY_BYPASS_BITS;
		return canary_route(p, sum.leader, 0, bytes);
	default:
		return drop(p->counts, DROP_MISMATCH);
	}
}

/* The rest of a packet between neighbours: a broadcast's header is there. */
static __always_inline int canary_down(struct packet *p, __u64 to, __u32 bytes)
{
	__u32 rest_bytes = TAG_BYTES + CANARY_BYTES_BROADCAST + bytes;

	write_hop(p->s, p->job, bytes);
	return send_routed(p, to, REST, rest_bytes, crc_of(p->s, REST, rest_bytes, 0));
}

/* `canary 5.5`: the children get the sum, and the descriptor is free. */
static __always_inline int canary_broadcast(struct packet *p, __u32 bytes)
{
	__u32 id = U32(p->s, HEAD + CANARY_BLOCK), reason = 0, is_up = 0, known;
	struct fanin_version *v = canary_place(p->job, id);
	__u64 to = 0;

	if (!v)
		return XDP_DROP;
	bpf_spin_lock(&v->lock);
	known = v->bytes;
	if (p->job->state != JOB_HERE) {
		is_up = 1;
	} else if (v->state == STATE_EMPTY || v->round != id) {
		reason = DROP_NO_SLOT;
	} else if (v->state == STATE_AGGREGATING) {
		reason = DROP_IN_PROGRESS;
	} else if (bytes > p->job->block_bytes || (bytes != known && bytes && known)) {
		reason = DROP_MISMATCH;
	} else {
		to = v->arrived & ~(1ull << (p->number & 63));
		v->state = STATE_EMPTY;
		__sync_fetch_and_add(&p->job->in_use, -1);
	}
	bpf_spin_unlock(&v->lock);
	if (is_up)
		return up(p->counts, UP_HANDED_OVER);
	if (reason)
		return drop(p->counts, reason);
	/* The leader's contribution is the last one that the sum has waited for. */
	count_last(p, bytes ? ANSWERS_SUM : PART_OF_SUM);
	return canary_down(p, to, bytes);
}

/* `canary 5.6`: the sum for children that a collision kept out of the descriptor. */
static __always_inline int canary_restore(struct packet *p, __u32 bytes)
{
	struct fanin_scratch *s = p->s;
	__u32 where = U32(s, LONG_HEAD + CANARY_PORTS), ports = where & 0xffff, first = (where >> 16) * 16, words = (bytes + 7) >> 3, end, i;

	if (U32(s, LONG_HEAD + CANARY_DST) != p->job->ranks)
		return drop(p->counts, DROP_NOT_A_MEMBER);
	for (end = first, i = 0; i < 16; i++) {
		if (ports >> i & 1)
			end = first + i + 1;
	}
	if (end > p->job->ranks)
		return drop(p->counts, DROP_MISMATCH);
	tally(p->counts, TALLY_RESTORATIONS);
	U32(s, HEAD + CANARY_BLOCK) = U32(s, LONG_HEAD + CANARY_BLOCK);
	for (i = 0; i < FRAME_BYTES_MAX / 8; i++) {
		if (i >= words)
			break;
		/* Programs have no `memmove`, which clang would make of it. */
		*(volatile __u64 *)(s->frame + SHORT_PAYLOAD + 8 * i) = U64(s, LONG_PAYLOAD + 8 * i);
	}
	U32(s, HEAD + CANARY_DST) = 0;
	U32(s, HEAD + CANARY_COUNTER) = 0;
	U32(s, HEAD + CANARY_PORT) = 0;
	U16(s, HEAD + CANARY_SWITCH_ADDR) = 0;
	U8(s, HEAD + CANARY_BYPASS) = CANARY_KIND_BROADCAST | CANARY_MULTICAST_BITS;
	return canary_down(p, ports ? (__u64)ports << (first & 63) : 0, bytes);
}

/* `canary 5.14`: descriptors of the generations before wait for nothing any more. */
static __always_inline int canary_failed(struct packet *p)
{
	struct fanin_scratch *s = p->s;
	__u32 id = U32(s, LONG_HEAD + CANARY_BLOCK), generation = (id & CANARY_GENERATION_BITS) / ONE_GENERATION, i;

	for (i = 0; i < 15; i++) {
		__u32 old = (id & ~CANARY_GENERATION_BITS) | i * ONE_GENERATION;
		struct fanin_version *v;

		if (i >= generation)
			break;
		v = canary_place(p->job, old);
		if (!v)
			return XDP_DROP;
		bpf_spin_lock(&v->lock);
		if (v->state == STATE_DONE && v->round == old) {
			v->state = STATE_EMPTY;
			__sync_fetch_and_add(&p->job->in_use, -1);
		}
		bpf_spin_unlock(&v->lock);
	}
	return canary_route(p, U32(s, LONG_HEAD + CANARY_DST), HOP_BY_AGGREGATORS_BITS, 0);
}

/* `CanaryPacket::new`, of the kinds that a switch looks at; `head` is where the header is. */
static __always_inline int canary_is_sound(struct fanin_scratch *s, __u32 head, __u32 kind)
{
	__u32 bits = U8(s, head + CANARY_BYPASS), counter = U16(s, head + CANARY_COUNTER), hosts = U16(s, head + CANARY_HOSTS);
	__u32 children = U32(s, head + CANARY_PORT), number = U16(s, head + CANARY_SWITCH_ADDR), flags = bits & ~kind;

	if (kind == CANARY_KIND_REDUCE)
		return counter && counter < hosts &&
		       (flags == CANARY_BYPASS_BITS ? children <= 0xffff : !flags && !children && !number);
	if (counter || hosts || number)
		return 0;
	if (kind == CANARY_KIND_BROADCAST)
		return flags == CANARY_MULTICAST_BITS && !U32(s, head + CANARY_DST) && !children;
	return kind == CANARY_KIND_RESTORE ? flags == CANARY_BYPASS_BITS : !flags && !children;
}

/* A packet of a Canary job. */
static __always_inline int canary_packet(struct packet *p)
{
	const struct form_of_system form = {
		.long_kinds = 1 << CANARY_KIND_REDUCE | 1 << CANARY_KIND_RESTORE | 1 << CANARY_KIND_FAILED,
		.short_kinds = 1 << CANARY_KIND_BROADCAST,
		.kind_at = CANARY_KIND,
		.kind_bits = CANARY_KIND_BITS,
		.bytes_min = CANARY_BYTES_REDUCE,
	};
	struct routed what = {};
	int verdict = admit(p, &what, &form);
	__u32 bytes = what.payload_bytes;

	if (verdict != IS_ADMITTED)
		return verdict;
	if (bytes > what.bytes - CANARY_BYTES_REDUCE || bytes > FRAME_BYTES_MAX - SHORT_PAYLOAD ||
	    !(what.is_long ? canary_is_sound(p->s, LONG_HEAD, what.kind) : canary_is_sound(p->s, HEAD, what.kind)))
		return refuse(p, DROP_MALFORMED);
	believe(p, bytes);
	if (!what.is_long)
		return canary_broadcast(p, bytes);
	if (what.kind == CANARY_KIND_RESTORE)
		return canary_restore(p, bytes);
	if (what.kind == CANARY_KIND_FAILED)
		return canary_failed(p);
	/* A packet that has collided is forwarded, which is the way of those that name no aggregators. */
	if (U8(p->s, LONG_HEAD + CANARY_BYPASS) & CANARY_BYPASS_BITS)
		return drop(p->counts, DROP_NOT_A_MEMBER);
	return canary_reduce(p, bytes);
}

/* Which descriptors' time is over, of the next CLOCK_ENTRIES that this scan has not come to: the first whose sum is to leave, or `pool`. Those whose
 * sum has not come for long are given up (`canary 5.10`). */
static __always_inline __u32 canary_scan(struct fanin_job *job, struct fanin_clock *clock)
{
	__u32 i;

	for (i = 0; i < CLOCK_ENTRIES; i++) {
		__u32 at = clock->cursor, index = job->first + at;
		struct fanin_version *v;

		if (at >= job->pool)
			break;
		clock->cursor = at + 1;
		v = bpf_map_lookup_elem(&versions, &index);
		if (!v)
			break;
		if (v->state == STATE_AGGREGATING && v->deadline <= clock->now)
			return at;
		if (v->state != STATE_DONE || v->deadline > clock->now)
			continue;
		bpf_spin_lock(&v->lock);
		if (v->state == STATE_DONE && v->deadline <= clock->now) {
			v->state = STATE_EMPTY;
			__sync_fetch_and_add(&job->in_use, -1);
		}
		bpf_spin_unlock(&v->lock);
	}
	return job->pool;
}

/* `on_timeout`, by a clock packet (Canary 4.3): a few descriptors are looked at, and the packet becomes the sum of one whose time is over. */
static __always_inline int canary_clock(struct packet *p, __u64 now)
{
	struct fanin_clock *clock = bpf_map_lookup_elem(&clocks, &p->place);
	struct partial_sum sum = {};
	struct fanin_version *v;
	__u32 index, is_over = 0;

	if (!clock)
		return XDP_DROP;
	if (clock->now != now) {
		clock->now = now;
		clock->cursor = 0;
	}
	index = canary_scan(p->job, clock);
	if (index >= p->job->pool)
		return XDP_DROP;
	index += p->job->first;
	v = bpf_map_lookup_elem(&versions, &index);
	if (!v)
		return XDP_DROP;
	bpf_spin_lock(&v->lock);
	if (v->state == STATE_AGGREGATING && v->deadline <= now) {
		send_up(p, v, now, &sum);
		is_over = 1;
	}
	bpf_spin_unlock(&v->lock);
	if (!is_over)
		return XDP_DROP;
	tally(p->counts, TALLY_TIMED_OUT);
	return canary_sum(p, &sum);
}
