/* Packets that find their way by their destination, whose hop header is longer than that of packets between neighbours, on a star of one switch: which
 * of them are for the switch, how those are sent that it makes, and how those go on that are for somebody else. Systems whose sums would count
 * twice what comes twice have the window of links' numbers here, as the driver has it. */
#pragma once

/* What follows the longer hop header. */
#define LONG_REST (REST + HOP_WAY_BYTES)
#define LONG_HEAD (LONG_REST + TAG_BYTES)
#define FLAGS_HERE (HOP_NEIGHBOUR_BITS | HOP_ECN_BITS | HOP_BY_AGGREGATORS_BITS)
#define IP_SERVICE (IP + 1)

/* The system whose packets a job has: A2TP's are ATP's. */
static __always_inline __u8 packets_of(struct fanin_job *job)
{
	return job->system == SYSTEM_A2TP ? SYSTEM_ATP : job->system;
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
	U8(s, LONG_REST) = packets_of(job);
}

/* Sends what lies in `scratch` to these ranks; `rest` is the checksum of the `rest_bytes` bytes from `rest_at` on. The programs at the exits look up
 * who is meant where the first bytes of the frame say. */
static __always_inline int send_routed(struct packet *p, __u64 to, __u32 rest_at, __u32 rest_bytes, __u32 rest)
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

/* What is for another rank goes on: only its hop header changes. */
static __always_inline int forward(struct packet *p, __u32 rest)
{
	struct fanin_scratch *s = p->s;
	__u32 to = U32(s, HOP + HOP_DESTINATION);

	if (to == p->number)
		return drop(p->counts, DROP_NO_ROUTE);
	if ((U8(s, IP_SERVICE) & 3) == 3)
		U8(s, HOP + HOP_ECN) |= HOP_ECN_BITS;
	return send_routed(p, 1ull << (to & 63), LONG_REST, p->bytes + TAG_BYTES - HOP_WAY_BYTES, rest);
}

/* A packet that has come, and what is known of it. */
struct routed {
	/* Where the system's header is, and its kind; bytes behind the system's number, and what they are said to carry. */
	__u32 head, kind, bytes, payload_bytes;
	/* The checksum of what follows the hop header. */
	__u32 rest;
	/* Whether it came by the longer hop header; from a server; is for this switch. */
	__u8 is_long, is_servers, is_here;
};

/* Which packets a system's program takes for its switch: kinds as bits, by the hop header; where the kind is; the shortest header. */
struct form_of_system {
	__u32 long_kinds, short_kinds, kind_at, kind_bits, bytes_min;
	__u8 has_servers;
};

#define IS_ADMITTED 1000

/* `admit`: IS_ADMITTED, or what becomes of a packet that goes no further. */
static __always_inline int admit(struct packet *p, struct routed *what, const struct form_of_system *form)
{
	struct fanin_scratch *s = p->s;
	struct fanin_job *job = p->job;
	__u32 flags = U8(s, HOP + HOP_NEIGHBOUR), roles = U8(s, HOP + HOP_ROLES), source = roles & HOP_SOURCE_ROLE_BITS, to, check;
	int wrong;

	what->is_long = !(flags & HOP_NEIGHBOUR_BITS);
	what->is_servers = source == (HOP_ROLES_FROM_SERVER & HOP_SOURCE_ROLE_BITS);
	what->is_here = 1;
	if (U8(s, HOP + HOP_VERSION) != HOP_MAGIC_VERSION || (flags & ~FLAGS_HERE) || U8(s, HOP + HOP_SYSTEM) != job->system ||
	    U16(s, HOP + HOP_JOB) != job->job || (source && !(form->has_servers && what->is_servers)))
		return up(p->counts, UP_FOREIGN);
	roles &= HOP_DESTINATION_ROLE_BITS;
	if (what->is_long) {
		to = U32(s, HOP + HOP_DESTINATION);
		if (p->bytes < HOP_WAY_BYTES + form->bytes_min || U8(s, LONG_REST) != packets_of(job) || U32(s, HOP + HOP_SOURCE) != p->number)
			return up(p->counts, UP_FOREIGN);
		if (roles == HOP_ROLES_UP ? to != job->ranks :
			to >= job->ranks || (roles && !(form->has_servers && roles == (HOP_ROLES_TO_SERVER & HOP_DESTINATION_ROLE_BITS))))
			return up(p->counts, UP_FOREIGN);
		what->is_here = roles == HOP_ROLES_UP || (flags & HOP_BY_AGGREGATORS_BITS);
		what->head = LONG_HEAD;
		what->bytes = p->bytes - HOP_WAY_BYTES;
		what->kind = U8(s, LONG_HEAD + form->kind_at) & form->kind_bits;
		if (what->is_here && (what->kind > 31 || !(form->long_kinds >> what->kind & 1)))
			return up(p->counts, UP_KIND);
		what->rest = crc_of(s, LONG_REST, what->bytes + TAG_BYTES, 0);
	} else {
		if (p->bytes < form->bytes_min || U8(s, REST) != packets_of(job) || roles != HOP_ROLES_UP || (flags & HOP_BY_AGGREGATORS_BITS))
			return up(p->counts, UP_FOREIGN);
		what->head = HEAD;
		what->bytes = p->bytes;
		what->kind = U8(s, HEAD + form->kind_at) & form->kind_bits;
		if (what->kind > 31 || !(form->short_kinds >> what->kind & 1))
			return up(p->counts, UP_KIND);
		what->rest = crc_of(s, REST, what->bytes + TAG_BYTES, 0);
	}
	what->payload_bytes = U16(s, HOP + HOP_PAYLOAD_BYTES);
	check = crc_of(s, HOP, HOP_CHECK, what->rest);
	if (what->is_long)
		check = crc_of(s, REST, HOP_WAY_BYTES, check);
	if (check != U32(s, HOP + HOP_CHECK))
		return refuse(p, DROP_CORRUPTED);
	if (U32(s, HOP + HOP_EPOCH) != job->epoch)
		return refuse(p, DROP_UNPROVEN);
	wrong = accept(p);
	if (wrong == IS_AHEAD)
		return up(p->counts, UP_AHEAD);
	if (wrong >= 0)
		return refuse(p, wrong);
	if (what->is_here)
		return IS_ADMITTED;
	believe(p, what->payload_bytes);
	return forward(p, what->rest);
}

/* A copy on its way out: to the next of those that are meant who is behind this device. */
static __always_inline int routed_exit(struct xdp_md *ctx, struct fanin_scratch *s, __u32 place, __u64 mask)
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
