/* Frames: Ethernet, IPv4 without options, UDP, hop header. They are read and written in `scratch`, where every offset can be checked; what
 * lies there goes back into the frame by one copy. */
#pragma once

/* Offsets in a frame. */
#define ETHERNET_SOURCE 6
#define ETHERNET_TYPE 12
#define IP 14
#define IP_LENGTH (IP + 2)
#define IP_FRAGMENT (IP + 6)
#define IP_PROTOCOL (IP + 9)
#define IP_CHECK (IP + 10)
#define IP_SOURCE (IP + 12)
#define IP_DESTINATION (IP + 16)
#define UDP 34
#define UDP_SOURCE UDP
#define UDP_DESTINATION (UDP + 2)
#define UDP_LENGTH (UDP + 4)
#define UDP_CHECK (UDP + 6)
#define HOP 42
/* All that follows the hop header: the system's number, its header, elements, padding. */
#define REST (HOP + HOP_BYTES)
/* The system's header. */
#define HEAD (REST + TAG_BYTES)

#define ETHERNET_IPV4 0x0800
#define IP_VERSION_LENGTH 0x45
#define IP_DO_NOT_FRAGMENT 0x4000
#define IP_FRAGMENT_BITS 0x3fff
#define IP_TTL 64
#define IP_UDP 17
#define UDP_BYTES 8

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "packets are little-endian, and so must this machine be"
#endif

#define U8(s, at) (*(__u8 *)((s)->frame + (at)))
#define U16(s, at) (*(__u16 *)((s)->frame + (at)))
#define U32(s, at) (*(__u32 *)((s)->frame + (at)))
#define U64(s, at) (*(__u64 *)((s)->frame + (at)))

/* What eight bytes become, by the tables from `first` on: so many bytes follow in the same turn. */
#define LOOK_UP(first, word)                                                                                                     \
	(crc_table[(first) + 7][(word) & 255] ^ crc_table[(first) + 6][(word) >> 8 & 255] ^ crc_table[(first) + 5][(word) >> 16 & 255] ^ \
	 crc_table[(first) + 4][(word) >> 24 & 255] ^ crc_table[(first) + 3][(word) >> 32 & 255] ^                                   \
	 crc_table[(first) + 2][(word) >> 40 & 255] ^ crc_table[(first) + 1][(word) >> 48 & 255] ^ crc_table[(first)][(word) >> 56])

/* CRC-32 of `bytes` bytes of the frame from `from` on, behind those of which `crc` is the checksum. A function of its own, which is verified once. */
__noinline __u32 crc_of(struct fanin_scratch *s, __u32 from, __u32 bytes, __u32 crc)
{
	__u32 pairs = bytes >> 4, i;

	if (!s || from > REST + HOP_WAY_BYTES || bytes > FRAME_BYTES_MAX - REST)
		return 0;
	crc = ~crc;
	for (i = 0; i < (FRAME_BYTES_MAX - REST) / 16; i++) {
		__u64 a, b;

		if (i >= pairs)
			break;
		a = U64(s, from + 16 * i) ^ crc;
		b = U64(s, from + 16 * i + 8);
		crc = LOOK_UP(8, a) ^ LOOK_UP(0, b);
	}
	from += bytes & ~15u;
	if (bytes & 8) {
		__u64 a = U64(s, from) ^ crc;

		crc = LOOK_UP(0, a);
		from += 8;
	}
	for (i = 0; i < 7; i++) {
		if (i >= (bytes & 7))
			break;
		crc = crc_table[0][(crc ^ U8(s, from + i)) & 255] ^ crc >> 8;
	}
	return ~crc;
}

/* The IP header of a packet with `bytes` behind the UDP header, and the UDP header's length. Of UDP's checksum there is none: packets have
 * their own. Addresses and ports are there already. */
static __always_inline void write_ip(struct fanin_scratch *s, __u32 bytes)
{
	__u32 sum = 0, i;

	U16(s, ETHERNET_TYPE) = bpf_htons(ETHERNET_IPV4);
	U16(s, IP) = IP_VERSION_LENGTH;
	U16(s, IP_LENGTH) = bpf_htons(HOP - IP + bytes);
	U16(s, IP + 4) = 0;
	U16(s, IP_FRAGMENT) = bpf_htons(IP_DO_NOT_FRAGMENT);
	U8(s, IP + 8) = IP_TTL;
	U8(s, IP_PROTOCOL) = IP_UDP;
	U16(s, IP_CHECK) = 0;
	for (i = 0; i < 10; i++)
		sum += U16(s, IP + 2 * i);
	sum = (sum & 0xffff) + (sum >> 16);
	sum += sum >> 16;
	U16(s, IP_CHECK) = ~sum;
	U16(s, UDP_LENGTH) = bpf_htons(UDP_BYTES + bytes);
	U16(s, UDP_CHECK) = 0;
}

/* The hop header of a packet from the switch to a rank, without number and checksum. */
static __always_inline void write_hop(struct fanin_scratch *s, struct fanin_job *job, __u32 payload_bytes)
{
	U8(s, HOP + HOP_VERSION) = HOP_MAGIC_VERSION;
	U8(s, HOP + HOP_SYSTEM) = job->system;
	U8(s, REST) = job->system;
	U8(s, HOP + HOP_NEIGHBOUR) = HOP_FLAGS_NEIGHBOUR;
	U8(s, HOP + HOP_ROLES) = HOP_ROLES_DOWN;
	U16(s, HOP + HOP_JOB) = job->job;
	U16(s, HOP + HOP_PAYLOAD_BYTES) = payload_bytes;
	U32(s, HOP + HOP_EPOCH) = job->epoch;
}

/* Numbers a packet to a rank and seals it; `rest` is the checksum of what follows the hop header. */
static __always_inline void seal(struct fanin_scratch *s, struct fanin_rank *rank, __u32 rest)
{
	U32(s, HOP + HOP_SEQUENCE) = __sync_fetch_and_add(&rank->next_sequence, 1);
	U32(s, HOP + HOP_CHECK) = crc_of(s, HOP, HOP_CHECK, rest);
	__sync_fetch_and_add(&rank->packets_sent, 1);
	__sync_fetch_and_add(&rank->payload_bytes_sent, U16(s, HOP + HOP_PAYLOAD_BYTES));
}

/* From us to the rank. */
static __always_inline void address(struct fanin_scratch *s, struct fanin_rank *rank)
{
	__builtin_memcpy(s->frame, rank->ethernet, sizeof(rank->ethernet));
	__builtin_memcpy(s->frame + IP_SOURCE, rank->ip, sizeof(rank->ip));
	__builtin_memcpy(s->frame + UDP_SOURCE, rank->ports, sizeof(rank->ports));
}
