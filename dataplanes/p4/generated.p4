/* Made by crates/p4 from its formats. Do not change it here: change those, and run
   FANIN_WRITE=1 cargo test -p fanin-p4 --test generated. */
#ifndef GENERATED_P4
#define GENERATED_P4

// IEEE 802.3
header ethernet_h {
    bit<48> dst; // receiver
    bit<48> src; // sender
    bit<16> kind; // what follows
}
// Its length.
@noWarn("unused") const bit<16> ETHERNET_BYTES = 0xe;

// RFC 791
header ipv4_h {
    bit<4> version; // 4
    bit<4> words; // length of the header in words of 32 bits: 5, for there are no options
    bit<8> service; // type of service
    bit<16> length; // length in bytes, with this header
    bit<16> id; // of fragments
    bit<1> reserved; // zero
    bit<1> whole; // not to be cut into fragments
    bit<1> more; // more fragments follow
    bit<13> offset; // of the fragment
    bit<8> hops; // time to live
    bit<8> protocol; // what follows
    bit<16> checksum; // of this header
    bit<32> src; // sender
    bit<32> dst; // receiver
}
// Its length.
@noWarn("unused") const bit<16> IPV4_BYTES = 0x14;

// RFC 768
header udp_h {
    bit<16> src; // sender's port
    bit<16> dst; // receiver's port
    bit<16> length; // length in bytes, with this header
    bit<16> checksum; // zero: none
}
// Its length.
@noWarn("unused") const bit<16> UDP_BYTES = 0x8;

// SwitchML, `switchml 2`
header switchml_h {
    bit<4> msg_type; // zero
    bit<1> unused; // zero
    bit<3> size; // 0 to 3: 32, 64, 128, 256 elements
    bit<8> job; // job
    bit<32> tsi; // how often the slot was used before
    bit<1> version; // which of the slot's two versions: the lowest bit of `tsi`
    bit<15> slot; // slot of the job's pool
    bit<8> e0; // exponent of the slot's next block, signed
    bit<8> e1; // as `e0`
}
// Its length.
@noWarn("unused") const bit<16> SWITCHML_BYTES = 0xa;

// Canary 4.1
header canary_h {
    bit<32> dst; // leader's address; that of the switch in a restoration; of a host where bypassed
    bit<32> id; // block: application 8 bits, generation 4 bits, number 20 bits
    bit<16> counter; // contributions in this packet
    bit<16> hosts; // hosts that take part
    bit<32> children; // collided: the port that it came by; restoration: shard of 16 ports, and a bit for each of them
    bit<16> switch_addr; // collided: the switch
    bit<1> bypass; // switches only forward it
    bit<1> multicast; // to the children
    bit<2> reserved; // zero
    bit<4> kind; // 0 reduce, 1 broadcast, 2 restoration, 5 failed; others are between hosts
}
// Its length.
@noWarn("unused") const bit<16> CANARY_BYTES = 0x13;

// Canary 4.3, a clock packet; the paper gives no format
header clock_h {
    bit<32> batch; // scans of the array so far: the time
    bit<32> entry; // the descriptor to look at
}
// Its length.
@noWarn("unused") const bit<16> CLOCK_BYTES = 0x8;

// Ethernet's number for IPv4.
@noWarn("unused") const bit<16> KIND_IPV4 = 0x800;
// IPv4's number for UDP.
@noWarn("unused") const bit<8> PROTOCOL_UDP = 0x11;
// The time to live of what the switch sends.
@noWarn("unused") const bit<8> HOPS = 0x40;
// The first of its UDP ports.
@noWarn("unused") const bit<16> SWITCHML_PORT = 0xbee0;
// Their common bits.
@noWarn("unused") const bit<16> SWITCHML_PORT_MASK = 0xfff0;
// Ethernet's number for Canary.
@noWarn("unused") const bit<16> KIND_CANARY = 0x88b5;
// Ethernet's number for clock packets.
@noWarn("unused") const bit<16> KIND_CLOCK = 0x88b6;
// A contribution or partial sum.
@noWarn("unused") const bit<4> CANARY_REDUCE = 0x0;
// A sum on its way down.
@noWarn("unused") const bit<4> CANARY_BROADCAST = 0x1;
// A sum for a switch that had a collision.
@noWarn("unused") const bit<4> CANARY_RESTORE = 0x2;
// A word of failure.
@noWarn("unused") const bit<4> CANARY_FAILED = 0x5;
// What a pass of a packet adds.
@noWarn("unused") const bit<16> PASS_BYTES = 0x80;
// Versions of slots, of all jobs together.
#ifndef SWITCHML_CELLS
#define SWITCHML_CELLS 16384
#endif
// Descriptors (Canary 5.1).
#ifndef CANARY_DESCRIPTORS
#define CANARY_DESCRIPTORS 32768
#endif
// Passes of the longest packet: memory for so many times 32 elements.
#ifndef PASSES
#define PASSES 8
#endif
// Once for each element of a pass.
#define ELEMENTS(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15) DO(16) DO(17) DO(18) DO(19) DO(20) DO(21) DO(22) DO(23) DO(24) DO(25) DO(26) DO(27) DO(28) DO(29) DO(30) DO(31)

#endif
