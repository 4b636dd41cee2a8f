/* The architecture: a Tofino's, or a Tofino 2's. scripts/p4_tna.py has programs on v1model from the same text. */
#ifndef ARCH_P4
#define ARCH_P4

#include <core.p4>
#if __TARGET_TOFINO__ == 2
#include <t2na.p4>
#else
#include <tna.p4>
#endif

/* Where a packet goes that comes by again: the loopback port of the pipeline. */
#ifndef AGAIN_PORT
#define AGAIN_PORT 68
#endif

/* What a packet is to its place takes so many stages, one after the other, that a Tofino's 12 leave too few for 32 elements: there it is decided
 * in a pass of its own, in which no element is touched. A Tofino 2 has 20 stages, and does both in one. */
#ifndef DECIDES_FIRST
#if __TARGET_TOFINO__ == 2
#define DECIDES_FIRST 0
#else
#define DECIDES_FIRST 1
#endif
#endif

#endif
