/* Canary's switch (TNA): descriptors by hash, timeouts by clock packets of the packet generator, restoration (Canary 3 to 5).
 * ../canary.p4 is the same on v1model.
 *
 * Each register is one stateful unit's, which a packet accesses once, and the stages say in which order. So what depends on a later register
 * comes by again: a sum on its way down, and a clock packet that finds a descriptor whose time is over, learn first that the block was sent
 * on, and free the descriptor in a second pass. What they read then is what stragglers have left up to there.
 *
 * What a packet is to its descriptor is decided in a pass of its own, on a Tofino 2 as well: see include/arch.p4.
 *
 * In place of a phase and two counts there is what is missing of a block: `missing` contributions, 0 or less of them where it was sent on.
 */
#include "include/arch.p4"
#include "../generated.p4"

/* Descriptors: a power of two, for a hash has bits. */
#ifndef CANARY_PLACE_BITS
#define CANARY_PLACE_BITS 15
#endif
#define CELLS (1 << CANARY_PLACE_BITS)
/* Ports of a shard (Canary 4.2), which has 2 to so many groups: 8, or fewer where a switch has at most 4 shards. */
#ifndef SHARD_PORTS
#define SHARD_PORTS 8
#endif
#define DO_ELEMENTS(DO) ELEMENTS(DO)
#define PASS_FIELDS   \
    bit<8> step;      \
    bit<32> ports0; /* the port that it came by; children */ \
    bit<32> ports1;
#include "include/elements.p4"

/* What a packet does to a descriptor. */
const bit<8> STEP_NONE = 0;
const bit<8> STEP_REDUCE = 1;    // a contribution, as it comes
const bit<8> STEP_DOWN = 2;      // a sum on its way down
const bit<8> STEP_CLOCK = 3;     // looks whether it is time
const bit<8> STEP_RELEASE = 4;   // the sum's second pass
const bit<8> STEP_FORGET = 5;    // the clock packet's second pass
const bit<8> STEP_FIRST = 6;     // a contribution that has taken a descriptor
const bit<8> STEP_NEXT = 7;      // a contribution to the descriptor's block
const bit<8> STEP_COLLIDES = 8;  // a contribution to another block

/* In place of what is missing: sent on, and something has come since; nobody's. */
const bit<16> GONE = 0x8000;
const bit<16> IDLE = 0xa000;

struct headers_t {
    pass_h pass;
    ethernet_h ethernet;
    canary_h canary;
    clock_h clock;
    elements_h elements;
}

struct meta_t {
    bit<32> own_ip;
    bit<16> own_number;
    bit<16> timeout;     // scans until a block is sent on
    bit<16> lifetime;    // scans until a descriptor that was sent on is given up
    bit<16> ports0;      // all there are
    bit<16> ports1;
    bit<16> ports2;
    bit<16> ports3;
    bit<8> last;         // number of the last pass
    bit<16> last_cell;   // the first cell of that pass
    bit<1> is_own;
    bit<1> has_way;
    bit<1> is_clock;
    bit<16> now;
    bit<16> deadline;    // what was taken up to then is sent on
    bit<16> grave;       // what was sent on up to then is given up
    bit<16> left;        // contributions that are missing behind this packet
    bit<16> sum_of;      // contributions in what is sent on
    bit<32> port;        // that the packet came by
    bit<4> owner;        // whose the descriptor is: the predicate of `owners`
    bit<1> due;
    bit<1> over;
    bit<1> sends;
    bit<1> returns;      // comes by again for the descriptor
    bit<32> id;
    bit<32> leader;
    bit<16> hosts;
    bit<16> stray;       // ports of a restoration that there are not
    bit<16> set;         // ports of a shard
}

struct egress_meta_t { }

parser CanaryIngressParser(packet_in packet, out headers_t hdr, out meta_t meta, out ingress_intrinsic_metadata_t standard) {
    state start {
        packet.extract(standard);
        packet.advance(PORT_METADATA_SIZE);
        transition select(standard.ingress_port) {
            AGAIN_PORT: again;
            default: ethernet;
        }
    }

    state again {
        packet.extract(hdr.pass);
        packet.extract(hdr.ethernet);
        transition select(hdr.pass.step, hdr.ethernet.kind) {
            (STEP_FORGET, _): clock;
            default: canary_again;
        }
    }

    state canary_again {
        packet.extract(hdr.canary);
        transition select(hdr.pass.op) {
            DO_SET: elements;
            DO_ADD: elements;
            default: accept;
        }
    }

    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            KIND_CANARY: canary;
            KIND_CLOCK: clock;
            default: accept;
        }
    }

    state clock {
        packet.extract(hdr.clock);
        transition accept;
    }

    // Elements stay where they are in packets that are not added.
    state canary {
        packet.extract(hdr.canary);
        transition select(hdr.canary.bypass, hdr.canary.multicast, hdr.canary.kind) {
            (0, 0, CANARY_REDUCE): elements;
            default: accept;
        }
    }

    state elements {
        packet.extract(hdr.elements);
        transition accept;
    }
}

#include "include/canary_descriptor.p4"

control CanaryIngress(inout headers_t hdr, inout meta_t meta, in ingress_intrinsic_metadata_t standard,
                      in ingress_intrinsic_metadata_from_parser_t parsed, inout ingress_intrinsic_metadata_for_deparser_t deparsed,
                      inout ingress_intrinsic_metadata_for_tm_t manager) {
    // The scan that the last clock packet was of.
    Register<bit<16>, bit<1>>(1) scans;
    RegisterAction<bit<16>, bit<1>, bit<16>>(scans) put_scan = {
        void apply(inout bit<16> held, out bit<16> result) {
            held = hdr.clock.batch[15:0];
            result = held;
        }
    };
    RegisterAction<bit<16>, bit<1>, bit<16>>(scans) get_scan = {
        void apply(inout bit<16> held, out bit<16> result) {
            result = held;
        }
    };
    Hash<bit<CANARY_PLACE_BITS>>(HashAlgorithm_t.CRC32) hash_of_id;

    Descriptor() descriptor;
    Pass() one_pass;

    action set_own(bit<32> ip, bit<16> number, bit<32> descriptors, bit<16> timeout, bit<16> lifetime, bit<8> last, bit<64> ports,
                   bit<8> width, bit<16> last_cell) {
        meta.own_ip = ip;
        meta.own_number = number;
        meta.timeout = timeout;
        meta.lifetime = lifetime;
        meta.last = last;
        meta.last_cell = last_cell;
        meta.ports0 = ports[15:0];
        meta.ports1 = ports[31:16];
        meta.ports2 = ports[47:32];
        meta.ports3 = ports[63:48];
    }

    // `descriptors` and `width` are the program's: CANARY_PLACE_BITS, SHARD_PORTS.
    @name(".own")
    table own {
        actions = { @name(".set_own") set_own; NoAction; }
        default_action = NoAction();
        size = 1;
    }

    action tick() {
        meta.is_clock = 1;
    }

    // Clock packets are taken from the packet generator only: those of a host would end blocks before their time.
    @name(".generator")
    table generator {
        key = { standard.ingress_port: exact; }
        actions = { @name(".tick") tick; NoAction; }
        const default_action = NoAction();
        size = 4;
    }

    action set_port_bit(bit<64> port_bit, bit<32> number) {
        meta.port = number;
        hdr.pass.ports0 = port_bit[31:0];
        hdr.pass.ports1 = port_bit[63:32];
    }

    // "The one-hot encoding of the input port is retrieved" (Canary 4.2).
    @name(".one_hot")
    table one_hot {
        key = { standard.ingress_port: exact; }
        actions = { @name(".set_port_bit") set_port_bit; NoAction; }
        const default_action = NoAction();
        size = 64;
    }

    action to_port(bit<9> port) {
        manager.ucast_egress_port = port;
        meta.has_way = 1;
    }

    action drop() {
        deparsed.drop_ctl = 1;
    }

    // Ways to hosts and switches. Looked up first, for what goes on in this pass has the address that it came with.
    @name(".route")
    table route {
        key = { hdr.canary.dst: exact; }
        actions = { @name(".to_port") to_port; NoAction; }
        const default_action = NoAction();
        size = 4096;
    }

    action pass_on() {
        hdr.pass.then = THEN_ROUTE;
    }
    action restore() {
        hdr.pass.then = THEN_SHARD;
    }
    action is_reduce() {
        hdr.pass.step = STEP_REDUCE;
    }
    action is_down() {
        hdr.pass.step = STEP_DOWN;
    }
    // What a packet is. Fields that a kind does not use are zero.
    table form {
        key = {
            hdr.canary.kind: ternary;
            meta.is_own: ternary;
            hdr.canary.bypass: ternary;
            hdr.canary.multicast: ternary;
            hdr.canary.reserved: ternary;
            hdr.canary.counter: ternary;
            hdr.canary.hosts: ternary;
            hdr.canary.switch_addr: ternary;
            hdr.canary.children: ternary;
            hdr.canary.dst: ternary;
            meta.left: ternary;
            meta.stray: ternary;
            parsed.parser_err: ternary;
        }
        actions = { pass_on; restore; is_reduce; is_down; NoAction; }
        const default_action = NoAction();
        const entries = {
            (CANARY_FAILED, _, _, _, _, _, _, _, _, _, _, _, _): pass_on();
            (CANARY_RESTORE, 1, 1, 0, 0, 0, 0, 0, 0 &&& 0xfffc0000, _, _, 0, _): restore();
            (CANARY_RESTORE, 1, _, _, _, _, _, _, _, _, _, _, _): NoAction();
            (_, _, 1, _, _, _, _, _, _, _, _, _, _): pass_on();
            (CANARY_BROADCAST, _, 0, 1, 0, 0, 0, 0, 0, 0, _, _, _): is_down();
            (CANARY_REDUCE, _, 0, 0, 0, 0, _, _, _, _, _, _, _): NoAction();
            (CANARY_REDUCE, _, 0, 0, 0, _, _, _, _, _, 0x8000 &&& 0x8000, _, _): NoAction();
            (CANARY_REDUCE, _, 0, 0, 0, _, _, 0, 0, _, _, _, PARSER_ERROR_OK): is_reduce();
        }
        size = 8;
    }

    // `canary 5.6`: the sum for children whom a collision kept out of the descriptor. A shard here has 16 ports, whatever the groups have.
#define RESTORE(n, word, high, low)                                         \
    action restore_shard##n() {                                                    \
        hdr.pass.ports##word[high:low] = hdr.canary.children[15:0];                 \
        meta.stray = hdr.canary.children[15:0] & ~meta.ports##n;                   \
    }
    RESTORE(0, 0, 15, 0) RESTORE(1, 0, 31, 16) RESTORE(2, 1, 15, 0) RESTORE(3, 1, 31, 16)
    table restored {
        key = { hdr.canary.children[31:16]: exact @name("shard"); }
        actions = { restore_shard0; restore_shard1; restore_shard2; restore_shard3; NoAction; }
        const default_action = NoAction();
        const entries = {
            0: restore_shard0();
            1: restore_shard1();
            2: restore_shard2();
            3: restore_shard3();
        }
        size = 4;
    }

    // In tables of their own, for each is a stage's: the compiler would make one expression of them. 16 bits, as in the header: no field gets
    // from a container of one size to one of another.
    action subtract() {
        meta.left = hdr.canary.hosts - hdr.canary.counter;
    }
    table to_subtract {
        actions = { subtract; }
        const default_action = subtract();
        size = 1;
    }
    // The leader sends none.
    action leave_leader_out() {
        meta.left = meta.left - 1;
    }
    table without_leader {
        actions = { leave_leader_out; }
        const default_action = leave_leader_out();
        size = 1;
    }

    // Canary 4.2: one shard of the ports after the other; `target` is the shard's number. Each group but those of the last shard has the packet
    // come by again. So this header goes along, and is taken off on the way out.
    // A hash, for only that has bits of a word in another container. A shard's ports are always the lowest bits: those of the next one are shifted
    // there. With a hash for each shard, 8 tables and their hashes fill two stages, and elements find no place there.
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) low_ports;
    action find_set() {
        meta.set = low_ports.get({ hdr.pass.ports0[SHARD_PORTS - 1:0] });
    }
    table to_find_set {
        actions = { find_set; }
        const default_action = find_set();
        size = 1;
    }
    action find_group(bit<16> first, bit<16> next) {
        manager.mcast_grp_a = meta.set + first;
        hdr.pass.target = next;
        hdr.pass.ports0 = hdr.pass.ports0 >> SHARD_PORTS;
    }
    // Four shards are in a word.
    action find_last_group(bit<16> first, bit<16> next) {
        manager.mcast_grp_a = meta.set + first;
        hdr.pass.target = next;
        hdr.pass.ports0 = hdr.pass.ports1;
    }
    table group {
        key = { hdr.pass.target: exact; }
        actions = { find_group; find_last_group; drop; }
        const default_action = drop();
#define GROUPS(n) n: find_group(1 + (n << SHARD_PORTS), n + 1);
        const entries = {
            GROUPS(0) GROUPS(1) GROUPS(2)
            3: find_last_group(1 + (3 << SHARD_PORTS), 4);
            GROUPS(4) GROUPS(5) GROUPS(6) GROUPS(7)
        }
        size = 8;
    }

    apply {
        bit<1> again = 0;
        own.apply();
        if (hdr.canary.isValid()) {
            route.apply();
        }
        if (hdr.pass.isValid() && hdr.pass.step == STEP_NONE) {
            one_pass.apply(hdr.pass, hdr.elements, again);
            if (again == 1) {
                manager.ucast_egress_port = AGAIN_PORT;
            } else if (hdr.pass.then == THEN_SHARD) {
                hdr.canary.dst = 0;
                hdr.canary.children = 0;
                hdr.canary.bypass = 0;
                hdr.canary.multicast = 1;
                hdr.canary.kind = CANARY_BROADCAST;
                to_find_set.apply();
                group.apply();
            } else if (hdr.pass.then != THEN_ROUTE || meta.has_way == 0) {
                drop();
            }
        } else {
            if (hdr.pass.isValid()) {
                meta.left = IDLE;
            } else {
                hdr.pass.setValid();
                hdr.pass.op = DO_NOTHING;
                hdr.pass.number = 0;
                hdr.pass.left = 0;
                hdr.pass.then = THEN_DROP;
                hdr.pass.target = 0;
                hdr.pass.cell = 0;
                hdr.pass.step = STEP_NONE;
                hdr.pass.ports0 = 0;
                hdr.pass.ports1 = 0;
                if (hdr.canary.isValid()) {
                    if (hdr.canary.dst == meta.own_ip) {
                        meta.is_own = 1;
                    }
                    hdr.pass.left = meta.last;
                    hdr.pass.cell = (bit<16>) hash_of_id.get({ hdr.canary.id });
                    to_subtract.apply();
                    without_leader.apply();
                    // Before what decides, which would else begin behind it.
                    if (hdr.canary.kind == CANARY_RESTORE) {
                        restored.apply();
                    } else {
                        one_hot.apply();
                    }
                    form.apply();
                } else if (hdr.clock.isValid()) {
                    generator.apply();
                    if (meta.is_clock == 1) {
                        hdr.pass.cell = hdr.clock.entry[15:0];
                        hdr.pass.step = STEP_CLOCK;
                    }
                }
            }
            if (meta.is_clock == 1) {
                meta.now = put_scan.execute(0);
            } else {
                meta.now = get_scan.execute(0);
            }
            meta.deadline = meta.now - meta.timeout;
            meta.grave = meta.now - meta.lifetime;
            descriptor.apply(hdr, meta);
            if (meta.returns == 0) {
                hdr.pass.step = STEP_NONE;
            }
            if (hdr.pass.op != DO_NOTHING || hdr.pass.then == THEN_SHARD || meta.returns == 1) {
                manager.ucast_egress_port = AGAIN_PORT;
            } else if (hdr.pass.then != THEN_ROUTE || meta.has_way == 0) {
                drop();
            }
        }
    }
}

control CanaryIngressDeparser(packet_out packet, inout headers_t hdr, in meta_t meta,
                              in ingress_intrinsic_metadata_for_deparser_t deparsed) {
    apply {
        packet.emit(hdr);
    }
}

parser CanaryEgressParser(packet_in packet, out headers_t hdr, out egress_meta_t meta, out egress_intrinsic_metadata_t standard) {
    // What follows stays where it is.
    state start {
        packet.extract(standard);
        packet.extract(hdr.pass);
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control CanaryEgress(inout headers_t hdr, inout egress_meta_t meta, in egress_intrinsic_metadata_t standard,
                     in egress_intrinsic_metadata_from_parser_t parsed, inout egress_intrinsic_metadata_for_deparser_t deparsed,
                     inout egress_intrinsic_metadata_for_output_port_t output) {
    action set_neighbour(bit<48> own, bit<48> mac) {
        hdr.ethernet.src = own;
        hdr.ethernet.dst = mac;
    }

    action drop() {
        deparsed.drop_ctl = 1;
    }

    // Who is at a port.
    @name(".neighbour")
    table neighbour {
        key = { standard.egress_port: exact; }
        actions = { @name(".set_neighbour") set_neighbour; drop; }
        const default_action = drop();
        size = 64;
    }

    apply {
        if (standard.egress_port != AGAIN_PORT) {
            hdr.pass.setInvalid();
            neighbour.apply();
        }
    }
}

control CanaryEgressDeparser(packet_out packet, inout headers_t hdr, in egress_meta_t meta,
                             in egress_intrinsic_metadata_for_deparser_t deparsed) {
    apply {
        packet.emit(hdr);
    }
}

Pipeline(CanaryIngressParser(), CanaryIngress(), CanaryIngressDeparser(), CanaryEgressParser(), CanaryEgress(), CanaryEgressDeparser()) pipeline;
Switch(pipeline) main;
