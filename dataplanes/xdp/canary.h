/* The switch of Canary jobs: crates/protocols/src/canary/switch.rs, function by function, for a job's only switch, whose array of descriptors is
 * the job's own. The names are those of that file.
 *
 * A descriptor is a version: `round` is the block's name, `arrived` the children, `missing` how many contributions can come at most, and
 * STATE_DONE is `Sent`. Where there is always room on the way out there is no `Ready` and no `Descending`.
 *
 * Packets that find their way by their destination have a longer hop header than those between neighbours. What is for another rank is passed
 * on. Time is what the last clock packet says (Canary 4.3). */
#pragma once

/* What follows the longer hop header. */
#define LONG_REST (REST + HOP_WAY_BYTES)
#define LONG_HEAD (LONG_REST + TAG_BYTES)
#define LONG_PAYLOAD (LONG_HEAD + CANARY_BYTES_REDUCE)
#define SHORT_PAYLOAD (HEAD + CANARY_BYTES_BROADCAST)
#define FLAGS_HERE (HOP_NEIGHBOUR_BITS | HOP_ECN_BITS | HOP_BY_AGGREGATORS_BITS)
#define IP_SERVICE (IP + 1)

/* What becomes of a packet of a block. */
enum canary_outcome { CANARY_DROP, CANARY_UP, CANARY_ADDED, CANARY_SUM, CANARY_STRAGGLER, CANARY_COLLISION };

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

/* `ReplayWindow::accept`: -1 where a number is new, and the reason where it is not; `WINDOW_LENGTH` where it is beyond the window. */
#define IS_AHEAD 1000

static __always_inline int accept(struct packet *p)
{
	__u32 at = p->place * RANKS_MAX + p->number, low = U32(p->s, HOP + HOP_SEQUENCE), i;
	struct fanin_window *w = bpf_map_lookup_elem(&windows, &at);
	__u64 near, sequence, bit, offset;
	__s64 ahead;
	int wrong = -1;

	if (!w)
		return DROP_UNPROVEN;
	bpf_spin_lock(&w->lock);
	near = w->base + WINDOW_SPAN;
	ahead = (__s32)(low - (__u32)near);
	sequence = ahead < 0 && near < (__u64)-ahead ? low : near + ahead;
	offset = sequence - w->base;
	if (sequence < w->base) {
		wrong = DROP_TOO_OLD;
	} else if (offset >= WINDOW_LENGTH) {
		wrong = IS_AHEAD;
	} else {
		bit = 1ull << (sequence & 63);
		at = sequence / 64 % WINDOW_WORDS;
		if (w->seen[at] & bit) {
			wrong = DROP_REPEATED;
		} else {
			w->seen[at] |= bit;
			if (offset >= WINDOW_SPAN) {
				w->upper++;
				w->credit = w->credit + WINDOW_CREDIT < WINDOW_CREDIT_MAX ? w->credit + WINDOW_CREDIT : WINDOW_CREDIT_MAX;
				for (i = 0; i < WINDOW_CREDIT_MAX / 64; i++) {
					if (w->upper < WINDOW_EVIDENCE || w->credit < 64)
						break;
					w->seen[w->base / 64 % WINDOW_WORDS] = 0;
					w->upper -= __builtin_popcountll(w->seen[(w->base + WINDOW_SPAN) / 64 % WINDOW_WORDS]);
					w->base += 64;
					w->credit -= 64;
				}
			}
		}
	}
	if (wrong < 0 && sequence >= w->past)
		w->past = sequence + 1;
	bpf_spin_unlock(&w->lock);
	return wrong;
}

/* The longer hop header of a packet that this switch makes, without number and checksum. */
static __always_inline void write_way(struct packet *p, __u32 destination, __u8 flags, __u32 payload_bytes)
{
	struct fanin_scratch *s = p->s;
	struct fanin_job *job = p->job;

	U8(s, HOP + HOP_VERSION) = HOP_MAGIC_VERSION;
	U8(s, HOP + HOP_SYSTEM) = job->system;
	U8(s, HOP + HOP_NEIGHBOUR) = flags;
	U8(s, HOP + HOP_ROLES) = HOP_ROLES_DOWN;
	U16(s, HOP + HOP_JOB) = job->job;
	U16(s, HOP + HOP_PAYLOAD_BYTES) = payload_bytes;
	/* The star's switch is behind its hosts. */
	U32(s, HOP + HOP_SOURCE) = job->ranks;
	U32(s, HOP + HOP_DESTINATION) = destination;
	U32(s, HOP + HOP_FLOW) = job->job;
	U8(s, LONG_REST) = job->system;
}

/* Sends what lies in `scratch` to these ranks; `rest` is the checksum of the `rest_bytes` bytes from `rest_at` on. The programs at the exits look up
 * who is meant where the first bytes of the frame say. */
static __always_inline int canary_send(struct packet *p, __u64 to, __u32 rest_at, __u32 rest_bytes, __u32 rest)
{
	__u32 counter = COPIES_MAX, number, bytes = rest_at - HOP + rest_bytes;
	struct fanin_scratch *s = p->s;
	void *map = bpf_map_lookup_elem(&targets, &p->place);
	__u64 *next = bpf_map_lookup_elem(&copies, &counter), *left;

	if (!to)
		return XDP_DROP;
	if (!map || !next)
		return drop(p->counts, DROP_NO_ROUTE);
	number = __sync_fetch_and_add(next, 1) % COPIES_MAX;
	left = bpf_map_lookup_elem(&copies, &number);
	if (!left)
		return drop(p->counts, DROP_NO_ROUTE);
	*left = to;
	__builtin_memcpy(s->frame + UDP_SOURCE, p->rank->ports, 2);
	write_ip(s, bytes);
	U32(s, 0) = number;
	U32(s, HOP + HOP_EPOCH) = p->job->epoch;
	U32(s, HOP + HOP_CHECK) = rest;
	if (store(p->ctx, s, bytes))
		return drop(p->counts, DROP_QUEUE_FULL);
	if (to & (to - 1))
		return bpf_redirect_map(map, 0, BPF_F_BROADCAST);
	return bpf_redirect_map(map, lowest(to), 0);
}

/* Sends a packet that this switch makes, whose system's header and elements are there, to the host of a block's leader, or to whoever it is for. */
static __always_inline int canary_route(struct packet *p, __u32 host, __u8 flags, __u32 payload_bytes)
{
	__u32 rest_bytes = TAG_BYTES + CANARY_BYTES_REDUCE + payload_bytes;

	if (host >= p->job->ranks || host >= RANKS_MAX)
		return drop(p->counts, DROP_NO_ROUTE);
	write_way(p, host, flags, payload_bytes);
	return canary_send(p, 1ull << (host & 63), LONG_REST, rest_bytes, crc_of(p->s, LONG_REST, rest_bytes, 0));
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
		return CANARY_COLLISION;
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
	case CANARY_COLLISION:
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
	return canary_send(p, to, REST, rest_bytes, crc_of(p->s, REST, rest_bytes, 0));
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

/* What is for another rank goes on: only its hop header changes. */
static __always_inline int canary_forward(struct packet *p, __u32 rest)
{
	struct fanin_scratch *s = p->s;
	__u32 to = U32(s, HOP + HOP_DESTINATION);

	if (to == p->number)
		return drop(p->counts, DROP_NO_ROUTE);
	if ((U8(s, IP_SERVICE) & 3) == 3)
		U8(s, HOP + HOP_ECN) |= HOP_ECN_BITS;
	return canary_send(p, 1ull << (to & 63), LONG_REST, p->bytes + TAG_BYTES - HOP_WAY_BYTES, rest);
}

/* A packet of a Canary job. */
static __always_inline int canary_packet(struct packet *p)
{
	struct fanin_scratch *s = p->s;
	struct fanin_job *job = p->job;
	__u32 flags = U8(s, HOP + HOP_NEIGHBOUR), roles = U8(s, HOP + HOP_ROLES), is_long = !(flags & HOP_NEIGHBOUR_BITS);
	__u32 kind, is_here = 1, room, payload_bytes, rest, to;
	int wrong;

	if (U8(s, HOP + HOP_VERSION) != HOP_MAGIC_VERSION || (flags & ~FLAGS_HERE) || U8(s, HOP + HOP_SYSTEM) != job->system ||
	    U16(s, HOP + HOP_JOB) != job->job)
		return up(p->counts, UP_FOREIGN);
	if (is_long) {
		to = U32(s, HOP + HOP_DESTINATION);
		if (p->bytes < HOP_WAY_BYTES + CANARY_BYTES_REDUCE || U8(s, LONG_REST) != job->system || U32(s, HOP + HOP_SOURCE) != p->number)
			return up(p->counts, UP_FOREIGN);
		if (!(roles == HOP_ROLES_UP && to == job->ranks) && !(roles == HOP_ROLES_ACROSS && to < job->ranks))
			return up(p->counts, UP_FOREIGN);
		is_here = roles == HOP_ROLES_UP || (flags & HOP_BY_AGGREGATORS_BITS);
		kind = U8(s, LONG_HEAD + CANARY_KIND) & CANARY_KIND_BITS;
		if (is_here && kind != CANARY_KIND_REDUCE && kind != CANARY_KIND_RESTORE && kind != CANARY_KIND_FAILED)
			return up(p->counts, UP_KIND);
		room = p->bytes - HOP_WAY_BYTES - CANARY_BYTES_REDUCE;
		rest = crc_of(s, LONG_REST, p->bytes + TAG_BYTES - HOP_WAY_BYTES, 0);
	} else {
		if (p->bytes < CANARY_BYTES_BROADCAST || U8(s, REST) != job->system || roles != HOP_ROLES_UP || (flags & HOP_BY_AGGREGATORS_BITS))
			return up(p->counts, UP_FOREIGN);
		kind = U8(s, HEAD + CANARY_KIND) & CANARY_KIND_BITS;
		if (kind != CANARY_KIND_BROADCAST)
			return up(p->counts, UP_KIND);
		room = p->bytes - CANARY_BYTES_BROADCAST;
		rest = crc_of(s, REST, p->bytes + TAG_BYTES, 0);
	}
	payload_bytes = U16(s, HOP + HOP_PAYLOAD_BYTES);
	wrong = crc_of(s, HOP, HOP_CHECK, rest);
	if (is_long)
		wrong = crc_of(s, REST, HOP_WAY_BYTES, wrong);
	if ((__u32)wrong != U32(s, HOP + HOP_CHECK))
		return refuse(p, DROP_CORRUPTED);
	if (U32(s, HOP + HOP_EPOCH) != job->epoch)
		return refuse(p, DROP_UNPROVEN);
	wrong = accept(p);
	if (wrong == IS_AHEAD)
		return up(p->counts, UP_AHEAD);
	if (wrong >= 0)
		return refuse(p, wrong);
	if (!is_here) {
		believe(p, payload_bytes);
		return canary_forward(p, rest);
	}
	if (payload_bytes > room || payload_bytes > FRAME_BYTES_MAX - SHORT_PAYLOAD ||
	    !(is_long ? canary_is_sound(s, LONG_HEAD, kind) : canary_is_sound(s, HEAD, kind)))
		return refuse(p, DROP_MALFORMED);
	believe(p, payload_bytes);
	if (!is_long)
		return canary_broadcast(p, payload_bytes);
	if (kind == CANARY_KIND_RESTORE)
		return canary_restore(p, payload_bytes);
	if (kind == CANARY_KIND_FAILED)
		return canary_failed(p);
	/* A packet that has collided is forwarded, which is the way of those that name no aggregators. */
	if (U8(s, LONG_HEAD + CANARY_BYPASS) & CANARY_BYPASS_BITS)
		return drop(p->counts, DROP_NOT_A_MEMBER);
	return canary_reduce(p, payload_bytes);
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

/* A copy on its way out: to the next of those that are meant who is behind this device. */
static __always_inline int canary_exit(struct xdp_md *ctx, struct fanin_scratch *s, __u32 place, __u64 mask)
{
	__u32 number = U32(s, 0) % COPIES_MAX, at, check;
	__u64 *to = bpf_map_lookup_elem(&copies, &number), left;
	struct fanin_rank *rank;

	if (!to || bpf_xdp_load_bytes(ctx, 0, s->frame, LONG_REST))
		return XDP_DROP;
	left = *to & mask;
	if (!left)
		return XDP_DROP;
	__sync_fetch_and_and(to, ~(left & -left));
	at = place * RANKS_MAX + (lowest(left) & 63);
	rank = bpf_map_lookup_elem(&ranks, &at);
	if (!rank)
		return XDP_DROP;
	address(s, rank);
	write_ip(s, bpf_ntohs(U16(s, UDP_LENGTH)) - UDP_BYTES);
	check = U32(s, HOP + HOP_CHECK);
	seal(s, rank, check);
	if (!(U8(s, HOP + HOP_NEIGHBOUR) & HOP_NEIGHBOUR_BITS))
		U32(s, HOP + HOP_CHECK) = crc_of(s, REST, HOP_WAY_BYTES, U32(s, HOP + HOP_CHECK));
	return bpf_xdp_store_bytes(ctx, 0, s->frame, LONG_REST) ? XDP_DROP : XDP_PASS;
}
