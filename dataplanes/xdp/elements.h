/* Elements of a version: eight bytes a turn, as many elements at once as a word has. crates/core/src/payload/kernels.rs has the same operators,
 * one element a turn. All of this runs while the version is locked, where programs may call nothing. */
#pragma once

#define WORDS_MAX (PAYLOAD_BYTES_MAX / 8)

static __always_inline int is_whole(__u32 bytes, __u16 op)
{
	return !(bytes & ((1u << (op >> OP_LENGTH_SHIFT & 3)) - 1));
}

/* The highest bit of each element in a word. */
static __always_inline __u64 high_bits(__u16 op)
{
	switch (op >> OP_LENGTH_SHIFT & 3) {
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

/* Sums wrap: no bit carries into the next element. */
static __always_inline void add_words(struct fanin_version *v, struct fanin_scratch *s, __u32 at, __u32 words, __u64 high)
{
	__u32 i;

	for (i = 0; i < WORDS_MAX; i++) {
		__u64 a, b;

		if (i >= words)
			break;
		a = v->sum[i];
		b = U64(s, at + 8 * i);
		v->sum[i] = ((a & ~high) + (b & ~high)) ^ ((a ^ b) & high);
	}
}

/* All bits of the elements whose highest bit is set. */
static __always_inline __u64 spread(__u64 highest, __u32 bits)
{
	return highest | (highest - (highest >> bits));
}

/* The larger or the smaller of two elements. `flip` makes signed ones unsigned, in the same order. The difference of the lower bits has no
 * borrow from the next element, since the highest bit was set before; with the highest bits it says which one is larger. */
static __always_inline void choose_words(struct fanin_version *v, struct fanin_scratch *s, __u32 at, __u32 words, __u64 high, __u32 bits,
					 __u64 flip, __u64 other)
{
	__u32 i;

	for (i = 0; i < WORDS_MAX; i++) {
		__u64 a, b, x, y, mask;

		if (i >= words)
			break;
		a = v->sum[i];
		b = U64(s, at + 8 * i);
		x = a ^ flip;
		y = b ^ flip;
		mask = (x | high) - (y & ~high);
		mask = ((x & ~y) | (~(x ^ y) & mask)) & high;
		/* All bits of an element that is at least as large as the one that comes. */
		mask = spread(mask, bits) ^ other;
		v->sum[i] = (a & mask) | (b & ~mask);
	}
}

/* `minimum` or `maximum` of IEEE 754-2019, in integers: the bits of floats are ordered as the floats are, once those of negative ones are turned
 * round, -0 before +0. What is beyond infinity is a NaN, which wins, and is always the same one. */
static __always_inline void choose_floats(struct fanin_version *v, struct fanin_scratch *s, __u32 at, __u32 words, __u64 high, __u32 bits,
					  __u64 infinity, __u64 nan, __u64 other)
{
	__u32 i;

	for (i = 0; i < WORDS_MAX; i++) {
		__u64 a, b, x, y, mask, nans;

		if (i >= words)
			break;
		a = v->sum[i];
		b = U64(s, at + 8 * i);
		x = a ^ (spread(a & high, bits) | high);
		y = b ^ (spread(b & high, bits) | high);
		mask = (x | high) - (y & ~high);
		mask = spread(((x & ~y) | (~(x ^ y) & mask)) & high, bits) ^ other;
		nans = ~(((infinity | high) - (a & ~high)) & ((infinity | high) - (b & ~high))) & high;
		nans = spread(nans, bits);
		v->sum[i] = (((a & mask) | (b & ~mask)) & ~nans) | (nan & nans);
	}
}

/* The infinity and the NaN of a word's floats. */
static __always_inline __u64 infinity_of(__u16 op)
{
	switch (op >> OP_LENGTH_SHIFT & 3) {
	case 1:
		return op & OP_BFLOAT ? INFINITY_BF16 : INFINITY_F16;
	case 2:
		return INFINITY_F32;
	default:
		return INFINITY_F64;
	}
}

static __always_inline __u64 nan_of(__u16 op)
{
	switch (op >> OP_LENGTH_SHIFT & 3) {
	case 1:
		return op & OP_BFLOAT ? NAN_BF16 : NAN_F16;
	case 2:
		return NAN_F32;
	default:
		return NAN_F64;
	}
}

/* Bits of both, bits of one of them, or both of these. */
static __always_inline void join_words(struct fanin_version *v, struct fanin_scratch *s, __u32 at, __u32 words, __u64 both, __u64 one)
{
	__u32 i;

	for (i = 0; i < WORDS_MAX; i++) {
		__u64 a, b;

		if (i >= words)
			break;
		a = v->sum[i];
		b = U64(s, at + 8 * i);
		v->sum[i] = (a & b & both) | ((a ^ b) & one);
	}
}

/* Bits at which elements begin. */
static __always_inline __u64 starts_of(__u32 length)
{
	return length == 1 ? 0x0101010101010101ull : length == 2 ? 0x0001000100010001ull : length == 4 ? 0x0000000100000001ull : 1;
}

/* Products wrap: the lowest bits of a product are those of the lowest bits' product. Without a branch in the loop, of which the verifier would follow
 * both sides each time. */
static __always_inline void multiply_words(struct fanin_version *v, struct fanin_scratch *s, __u32 at, __u32 words, __u32 length)
{
	__u64 starts = starts_of(length), mask = length < 8 ? (1ull << (8 * length & 63)) - 1 : ~0ull;
	__u32 i, j;

	for (i = 0; i < WORDS_MAX; i++) {
		__u64 a, b, product = 0;

		if (i >= words)
			break;
		a = v->sum[i];
		b = U64(s, at + 8 * i);
#pragma unroll
		for (j = 0; j < 64; j += 8)
			product |= ((a >> j) * (b >> j) & mask & -(starts >> j & 1)) << j;
		v->sum[i] = product;
	}
}

/* Adds elements to those that a version holds, as many bytes of them, by the job's operator: `ElementOp::reduce`. */
static __always_inline void reduce(struct fanin_version *v, struct fanin_scratch *s, __u32 at, __u32 bytes, __u16 op)
{
	__u32 words = (bytes + 7) >> 3, length = 1u << (op >> OP_LENGTH_SHIFT & 3), kind = op >> OP_KIND_SHIFT;
	__u64 high = high_bits(op), flip = op & OP_SIGNED ? high : 0;

	if (kind == OP_KIND_SUM)
		add_words(v, s, at, words, high);
	else if (kind == OP_KIND_MIN || kind == OP_KIND_MAX)
		choose_words(v, s, at, words, high, 8 * length - 1, flip, kind == OP_KIND_MIN ? ~0ull : 0);
	else if (kind == OP_KIND_MINIMUM || kind == OP_KIND_MAXIMUM)
		choose_floats(v, s, at, words, high, 8 * length - 1, infinity_of(op), nan_of(op), kind == OP_KIND_MINIMUM ? ~0ull : 0);
	else if (kind == OP_KIND_PROD)
		multiply_words(v, s, at, words, length);
	else
		join_words(v, s, at, words, kind == OP_KIND_XOR ? 0 : ~0ull, kind == OP_KIND_AND ? 0 : ~0ull);
}

/* Puts what a version holds behind a result's header. */
static __always_inline void copy_sum(struct fanin_version *v, struct fanin_scratch *s, __u32 header_bytes)
{
	__u32 words = (v->bytes + 7) >> 3, i;

	for (i = 0; i < WORDS_MAX; i++) {
		if (i >= words)
			break;
		U64(s, HEAD + header_bytes + 8 * i) = v->sum[i];
	}
}
