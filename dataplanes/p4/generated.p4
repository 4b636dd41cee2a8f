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

// A2TP's published code, `a2tp 2`
header atp_h {
    bit<32> bitmap; // a bit for each worker whose contribution is in it
    bit<8> workers; // how many the aggregator waits for: all of the job
    bit<1> overflow; // the elements are no fixed point
    bit<2> server; // zero
    bit<1> half; // zero
    bit<1> ecn; // congestion was experienced
    bit<1> resend; // takes out of its aggregator what is there
    bit<1> collision; // found its aggregator taken
    bit<1> ack; // from the server
    bit<16> app; // job, not zero
    bit<16> seq; // fragment
    bit<7> reserved; // zero
    bit<1> col; // A2TP: another fragment wanted the aggregator
    bit<16> index; // aggregator
    bit<16> second_index; // the same in the second half of the memory
}
// Its length.
@noWarn("unused") const bit<16> ATP_BYTES = 0xf;

// A2TP's published code, `a2tp 2`
header atp_tail_h {
    bit<64> tensor; // tensor (`key`)
    bit<32> tensor_length; // its length; in acknowledgements the next index
}
// Its length.
@noWarn("unused") const bit<16> ATP_TAIL_BYTES = 0xc;

// `rina 2`; the paper gives no format
header rina_h {
    bit<8> kind; // 1 task, 2 pull, 3 gradient, 4 sum, 5 result
    bit<1> flag; // pull: the switch begins; gradient, sum: met congestion
    bit<7> value; // task, pull: 1 piece; gradient: which worker; result: 0 direct, 1 relayed, 2 repair
    bit<16> epoch; // workers that the sender knows to be excluded
    bit<16> operation; // its number's low half
    bit<16> partition; // partition
    bit<1> asks; // the sender waits for the acknowledgement
    bit<31> number; // packet between two groups
    bit<32> segment; // packet of the partition
}
// Its length.
@noWarn("unused") const bit<16> RINA_BYTES = 0x10;

// `rina 2`
header rina_task_h {
    bit<48> members; // a bit for each worker of the switch
    bit<16> next; // rank that gets the sums
}
// Its length.
@noWarn("unused") const bit<16> RINA_TASK_BYTES = 0x8;

// `rina 2`
header rina_sum_h {
    bit<16> contributors; // ranks in it
    bit<48> pad; // zero
}
// Its length.
@noWarn("unused") const bit<16> RINA_SUM_BYTES = 0x8;

// `rina 2`
header rina_result_h {
    bit<32> to; // host of the next group
    bit<16> group; // group that counts it
    bit<16> hops; // groups that follow
}
// Its length.
@noWarn("unused") const bit<16> RINA_RESULT_BYTES = 0x8;

// InfiniBand Architecture 9.2
header bth_h {
    bit<8> opcode; // 6 first, 7 middle, 8 last, 10 only packet of a write
    bit<2> events; // zero
    bit<2> pad; // zero
    bit<4> version; // zero
    bit<16> partition; // the default one
    bit<1> marked; // forward congestion: the contribution met it
    bit<1> notifies; // backward congestion: zero
    bit<5> unused; // zero
    bit<1> summed; // reserved in InfiniBand: the payload is a sum
    bit<24> queue_pair; // the connection at its receiver: rank and 2
    bit<1> asks; // an acknowledgement is asked for
    bit<7> reserved; // zero
    bit<24> psn; // number of the packet
}
// Its length.
@noWarn("unused") const bit<16> BTH_BYTES = 0xc;

// InfiniBand Architecture 9.3
header reth_h {
    bit<32> high; // zero
    bit<32> address; // in the receiver's memory
    bit<32> region; // key: the ring
    bit<32> length; // of the message
}
// Its length.
@noWarn("unused") const bit<16> RETH_BYTES = 0x10;

// NetReduce 4.1, `netreduce 2`
header ina_h {
    bit<32> tag; // 0x1ae7fa41
    bit<16> ring; // which aggregators
    bit<16> rank; // sender
    bit<32> message; // number of the message
    bit<16> packets; // of this message
    bit<16> summed; // zero
}
// Its length.
@noWarn("unused") const bit<16> INA_BYTES = 0x10;

// InfiniBand Architecture, annex A17.3.3
header icrc_h {
    bit<32> crc; // lowest byte first
}
// Its length.
@noWarn("unused") const bit<16> ICRC_BYTES = 0x4;

// SwitchML, `switchml 2`; in TNA, where a field has whole bytes
header switchml_tna_h {
    bit<4> msg_type; // zero
    bit<1> unused; // zero
    bit<3> size; // 0 to 3: 32, 64, 128, 256 elements
    bit<8> job; // job
    bit<32> tsi; // how often the slot was used before
    bit<16> place; // version, slot
    bit<8> e0; // exponent of the slot's next block, signed
    bit<8> e1; // as `e0`
}

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
// Ethernet's number for ATP.
@noWarn("unused") const bit<16> KIND_ATP = 0x700;
// Aggregators.
#ifndef ATP_AGGREGATORS
#define ATP_AGGREGATORS 7936
#endif
// Once for each element of a packet of ATP.
#define ATP_ELEMENTS(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15) DO(16) DO(17) DO(18) DO(19) DO(20) DO(21) DO(22) DO(23) DO(24) DO(25) DO(26) DO(27) DO(28) DO(29) DO(30) DO(31) DO(32) DO(33) DO(34) DO(35) DO(36) DO(37) DO(38) DO(39) DO(40) DO(41) DO(42) DO(43) DO(44) DO(45) DO(46) DO(47) DO(48) DO(49) DO(50) DO(51) DO(52) DO(53) DO(54) DO(55) DO(56) DO(57) DO(58) DO(59) DO(60) DO(61)
// Once for each element of a half of ATP's packet.
#define ATP_HALF(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15) DO(16) DO(17) DO(18) DO(19) DO(20) DO(21) DO(22) DO(23) DO(24) DO(25) DO(26) DO(27) DO(28) DO(29) DO(30)
// Ethernet's number for Rina.
@noWarn("unused") const bit<16> KIND_RINA = 0x88b5;
// A kind of packet of Rina.
@noWarn("unused") const bit<8> KIND_OF_TASK = 0x1;
// A kind of packet of Rina.
@noWarn("unused") const bit<8> KIND_OF_PULL = 0x2;
// A kind of packet of Rina.
@noWarn("unused") const bit<8> KIND_OF_GRADIENT = 0x3;
// A kind of packet of Rina.
@noWarn("unused") const bit<8> KIND_OF_SUM = 0x4;
// A kind of packet of Rina.
@noWarn("unused") const bit<8> KIND_OF_RESULT = 0x5;
// Elements of a packet of Rina.
@noWarn("unused") const bit<16> RINA_DATA_BYTES = 0x100;
// Slots.
#ifndef RINA_WINDOW
#define RINA_WINDOW 16384
#endif
// The UDP port of RoCEv2.
@noWarn("unused") const bit<16> ROCE_PORT = 0x12b7;
// An operation code.
@noWarn("unused") const bit<8> WRITE_FIRST = 0x6;
// An operation code.
@noWarn("unused") const bit<8> WRITE_MIDDLE = 0x7;
// An operation code.
@noWarn("unused") const bit<8> WRITE_LAST = 0x8;
// An operation code.
@noWarn("unused") const bit<8> WRITE_ONLY = 0xa;
// What an INA header begins with.
@noWarn("unused") const bit<32> INA_TAG = 0x1ae7fa41;
// Of so many packets one asks for an acknowledgement.
@noWarn("unused") const bit<24> ACK_EVERY = 0x10;
// Packets of a message at most.
#ifndef NETREDUCE_PACKETS
#define NETREDUCE_PACKETS 170
#endif
// Once for each element behind the first four words of a packet of NetReduce.
#define NETREDUCE_ELEMENTS(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15) DO(16) DO(17) DO(18) DO(19) DO(20) DO(21) DO(22) DO(23) DO(24) DO(25) DO(26) DO(27) DO(28) DO(29) DO(30) DO(31) DO(32) DO(33) DO(34) DO(35) DO(36) DO(37) DO(38) DO(39) DO(40) DO(41) DO(42) DO(43) DO(44) DO(45) DO(46) DO(47) DO(48) DO(49) DO(50) DO(51) DO(52) DO(53) DO(54) DO(55) DO(56) DO(57) DO(58) DO(59) DO(60) DO(61) DO(62) DO(63) DO(64) DO(65) DO(66) DO(67) DO(68) DO(69) DO(70) DO(71) DO(72) DO(73) DO(74) DO(75) DO(76) DO(77) DO(78) DO(79) DO(80) DO(81) DO(82) DO(83) DO(84) DO(85) DO(86) DO(87) DO(88) DO(89) DO(90) DO(91) DO(92) DO(93) DO(94) DO(95) DO(96) DO(97) DO(98) DO(99) DO(100) DO(101) DO(102) DO(103) DO(104) DO(105) DO(106) DO(107) DO(108) DO(109) DO(110) DO(111) DO(112) DO(113) DO(114) DO(115) DO(116) DO(117) DO(118) DO(119) DO(120) DO(121) DO(122) DO(123) DO(124) DO(125) DO(126) DO(127) DO(128) DO(129) DO(130) DO(131) DO(132) DO(133) DO(134) DO(135) DO(136) DO(137) DO(138) DO(139) DO(140) DO(141) DO(142) DO(143) DO(144) DO(145) DO(146) DO(147) DO(148) DO(149) DO(150) DO(151) DO(152) DO(153) DO(154) DO(155) DO(156) DO(157) DO(158) DO(159) DO(160) DO(161) DO(162) DO(163) DO(164) DO(165) DO(166) DO(167) DO(168) DO(169) DO(170) DO(171) DO(172) DO(173) DO(174) DO(175) DO(176) DO(177) DO(178) DO(179) DO(180) DO(181) DO(182) DO(183) DO(184) DO(185) DO(186) DO(187) DO(188) DO(189) DO(190) DO(191) DO(192) DO(193) DO(194) DO(195) DO(196) DO(197) DO(198) DO(199) DO(200) DO(201) DO(202) DO(203) DO(204) DO(205) DO(206) DO(207) DO(208) DO(209) DO(210) DO(211) DO(212) DO(213) DO(214) DO(215) DO(216) DO(217) DO(218) DO(219) DO(220) DO(221) DO(222) DO(223) DO(224) DO(225) DO(226) DO(227) DO(228) DO(229) DO(230) DO(231) DO(232) DO(233) DO(234) DO(235) DO(236) DO(237) DO(238) DO(239) DO(240) DO(241) DO(242) DO(243) DO(244) DO(245) DO(246) DO(247) DO(248) DO(249) DO(250) DO(251)
// Once for each of these words, where a packet is not the first of its message.
#define NETREDUCE_FRONT(DO) DO(252) DO(253) DO(254) DO(255)
// Elements of a packet of NetReduce, or the INA header and the others.
@noWarn("unused") const bit<16> NETREDUCE_DATA_BYTES = 0x400;
// Messages of a window.
@noWarn("unused") const bit<32> NETREDUCE_WINDOW = 0x2;
// Once for each element of a packet of Rina.
#define RINA_ELEMENTS(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14) DO(15) DO(16) DO(17) DO(18) DO(19) DO(20) DO(21) DO(22) DO(23) DO(24) DO(25) DO(26) DO(27) DO(28) DO(29) DO(30) DO(31) DO(32) DO(33) DO(34) DO(35) DO(36) DO(37) DO(38) DO(39) DO(40) DO(41) DO(42) DO(43) DO(44) DO(45) DO(46) DO(47) DO(48) DO(49) DO(50) DO(51) DO(52) DO(53) DO(54) DO(55) DO(56) DO(57) DO(58) DO(59) DO(60) DO(61) DO(62) DO(63)

#endif
