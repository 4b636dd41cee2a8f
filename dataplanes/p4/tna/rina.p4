/* Rina's switch (TNA; rina 1, 3, 4.1, 4.2, 4.4): it sums what its agent has asked for, a slot for each piece, and hands results down.
 * ../rina.p4 is the same on v1model.
 *
 * Each register is one stateful unit's, which a packet accesses once, and the stages say in which order: what the rack works on, what the slot
 * is of, who has arrived. A register compares twice at most, so an epoch and an operation are two, and so are a slot's time, number and piece.
 *
 * 64 integers take two passes of 32.
 */
#include "include/arch.p4"
#define PASSES 2
#include "../generated.p4"

/* Slots: a power of two. */
#ifndef RINA_WINDOW_BITS
#define RINA_WINDOW_BITS 14
#endif
#define CELLS (1 << RINA_WINDOW_BITS)
#define DO_ELEMENTS(DO) ELEMENTS(DO)
#define PASS_FIELDS  \
    bit<16> port;    /* that it leaves by */ \
    bit<32> to;      /* the host that a result's other copy is for */ \
    bit<16> hops;    /* and groups that follow */
#include "include/elements.p4"

/* In place of THEN_GROUP: the packet that comes by again is a result's other copy. */
const bit<8> THEN_ONWARD = 5;

/* What a packet is. */
const bit<8> IS_NONE = 0;
const bit<8> IS_TASK = 1;
const bit<8> IS_GRADIENT = 2;
const bit<8> IS_RESULT = 3; // that has not been handed down yet
const bit<8> IS_HANDED = 4; // or has been

/* What a packet's time is to the rack's, and its number to the slot's: predicates of `epochs`, `operations`, `numbers`; and of `pieces`. */
#define EARLIER 1
#define LATER 2
#define SAME 8
const bit<4> NONE = 0;
/* A frame's least length, without Ethernet's check sequence. */
const bit<16> FRAME_BYTES_MIN = 60;
/* No port of a switch. */
const bit<16> NOWHERE = 0x1ff;

/* What a slot knows of its packets. */
const bit<8> NOTE_ASKS = 2;   // the agent waits for the acknowledgement
const bit<8> NOTE_MARKED = 1; // a gradient met congestion

struct headers_t {
    pass_h pass;
    ethernet_h ethernet;
    rina_h rina;
    rina_task_h task;
    rina_sum_h sum;
    rina_result_h result;
    elements_h elements;
}

struct meta_t {
    bit<16> bit_;         // of the worker at the packet's port, or none
    bit<16> others;       // all bits but that
    bit<32> node;         // its host
    bit<16> mine;         // a task's members that are the sender
    bit<16> odd;          // and that are no workers
    bit<1> is_named;      // the gradient says who sends it
    bit<1> is_home;       // the result is for who sends it
    bit<1> has_next;      // the task's next group is known
    bit<16> way;          // the port that leads there
    bit<32> next;         // a task's next group
    bit<8> is;            // IS_*
    bit<32> time;         // epoch and operation
    bit<32> number;       // and 1: 0 is no piece's
    bit<8> note;          // NOTE_*
    bit<4> epoch;         // the packet's to the rack's
    bit<4> operation;
    bit<1> is_agents;     // the result is the agent's
    bit<16> members;      // of the rack
    bit<16> rest;         // and not the sender
    bit<16> in_rack;      // the sender, if it is a member
    bit<32> to;           // whom the packet is routed to
    bit<1> current;       // the slot is of this operation
    bit<4> later;         // the piece's number to the slot's
    bit<4> piece;         // and the piece to the slot's
    bit<16> arrived;      // who had contributed
    bit<16> seen;         // the sender, if it had
    bit<16> lacks;        // 0 where the sender is the last one
    bit<16> missing;      // who has not contributed
    bit<1> sends;
    bit<8> kept_note;
    bit<16> kept_count;
}

struct piece_t {
    bit<32> segment;
    bit<32> partition;
}

struct egress_meta_t { }

parser RinaIngressParser(packet_in packet, out headers_t hdr, out meta_t meta, out ingress_intrinsic_metadata_t standard) {
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
        packet.extract(hdr.rina);
        transition select(hdr.rina.kind) {
            KIND_OF_RESULT: result;
            default: sum_again;
        }
    }

    state sum_again {
        packet.extract(hdr.sum);
        transition select(hdr.pass.op) {
            DO_GET: accept;
            default: elements;
        }
    }

    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            KIND_RINA: rina;
            default: accept;
        }
    }

    state rina {
        packet.extract(hdr.rina);
        transition select(hdr.rina.kind) {
            KIND_OF_TASK: task;
            KIND_OF_GRADIENT: gradient;
            KIND_OF_RESULT: result;
            default: accept;
        }
    }

    // A frame is filled up to Ethernet's least length: what is behind a task is left out.
    state task {
        packet.extract(hdr.task);
        packet.advance((bit<32>) ((FRAME_BYTES_MIN - ETHERNET_BYTES - RINA_BYTES - RINA_TASK_BYTES) << 3));
        transition accept;
    }

    state gradient {
        packet.extract(hdr.sum);
        transition elements;
    }

    // Elements stay where they are.
    state result {
        packet.extract(hdr.result);
        transition accept;
    }

    state elements {
        packet.extract(hdr.elements);
        transition accept;
    }
}

#include "include/rina_rack.p4"
#include "include/rina_slot.p4"

@pa_container_size("ingress", "meta.time", 32)
control RinaIngress(inout headers_t hdr, inout meta_t meta, in ingress_intrinsic_metadata_t standard,
                    in ingress_intrinsic_metadata_from_parser_t parsed, inout ingress_intrinsic_metadata_for_deparser_t deparsed,
                    inout ingress_intrinsic_metadata_for_tm_t manager) {
    Rack() rack;
    Slot() slot;
    Pass() one_pass;
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) low_number;

    action discard() {
        deparsed.drop_ctl = 1;
    }

    // Bits of a task's members that are no workers.
    action set_own(bit<16> strangers) {
        meta.odd = hdr.task.members[15:0] & strangers;
    }
    @name(".own")
    table own {
        actions = { @name(".set_own") set_own; NoAction; }
        default_action = NoAction();
        size = 1;
    }

    action set_member(bit<16> bit_, bit<16> others, bit<32> node) {
        meta.bit_ = bit_;
        meta.others = others;
        meta.node = node;
        meta.mine = hdr.task.members[15:0] & bit_;
    }
    action is_no_member() {
        meta.others = 0xffff;
    }
    // The worker at a port.
    @name(".member")
    table member {
        key = { standard.ingress_port: exact; }
        actions = { @name(".set_member") set_member; is_no_member; }
        const default_action = is_no_member();
        size = 64;
    }

    action name_it() {
        meta.is_named = 1;
    }
    // The number by which the worker at a port calls itself in gradients.
    @name(".named")
    table named {
        key = { standard.ingress_port: exact; hdr.rina.value: exact; }
        actions = { @name(".name_it") name_it; NoAction; }
        const default_action = NoAction();
        size = 64;
    }

    action is_for_sender() {
        meta.is_home = 1;
    }
    // The host of the worker at a port.
    @name(".home")
    table home {
        key = { standard.ingress_port: exact; hdr.result.to: exact; }
        actions = { @name(".is_for_sender") is_for_sender; NoAction; }
        const default_action = NoAction();
        size = 64;
    }

    action set_next(bit<32> node) {
        meta.next = node;
        meta.has_next = 1;
    }
    // A worker of the job, by rank.
    @name(".rank")
    table rank {
        key = { hdr.task.next: exact; }
        actions = { @name(".set_next") set_next; NoAction; }
        const default_action = NoAction();
        size = 4096;
    }

    action to_port(bit<9> port) {
        meta.way = (bit<16>) port;
    }
    action to_nowhere() {
        meta.way = NOWHERE;
    }
    // The way to a worker's host.
    @name(".way")
    table way {
        key = { meta.to: exact; }
        actions = { @name(".to_port") to_port; to_nowhere; }
        const default_action = to_nowhere();
        size = 4096;
    }

    action find_number() {
        hdr.pass.cell = low_number.get({ hdr.rina.number[RINA_WINDOW_BITS - 1:0] });
        meta.time = hdr.rina.epoch ++ hdr.rina.operation;
        meta.number = 1w0 ++ hdr.rina.number;
    }
    table to_find_number {
        actions = { find_number; }
        const default_action = find_number();
        size = 1;
    }
    action next_number() {
        meta.number = meta.number + 1;
    }
    table to_next_number {
        actions = { next_number; }
        const default_action = next_number();
        size = 1;
    }

    action is(bit<8> what) {
        meta.is = what;
    }
    // What workers and other racks send.
    table form {
        key = {
            hdr.rina.kind: exact;
            hdr.rina.flag: ternary;
            hdr.rina.value: ternary;
            hdr.rina.asks: ternary;
            hdr.task.members[47:16]: ternary @name("far");
            meta.odd: ternary;
            meta.mine: ternary;
            meta.has_next: ternary;
            hdr.sum.pad: ternary;
            meta.is_named: ternary;
        }
        actions = { is; NoAction; }
        const default_action = NoAction();
        const entries = {
            (KIND_OF_TASK, _, _, _, _, _, 0, _, _, _): NoAction();
            (KIND_OF_TASK, 0, 1, _, 0, 0, _, 1, _, _): is(IS_TASK);
            (KIND_OF_GRADIENT, _, _, 0, _, _, _, _, 0, 1): is(IS_GRADIENT);
            (KIND_OF_RESULT, 0, 0, _, _, _, _, _, _, _): is(IS_RESULT);
            (KIND_OF_RESULT, 0, 1, _, _, _, _, _, _, _): is(IS_HANDED);
            (KIND_OF_RESULT, 0, 2, _, _, _, _, _, _, _): is(IS_HANDED);
        }
        size = 8;
    }

    // `rina 4.2`, 2: down to the rack's workers and on to the next group.
    action hand_down() {
        hdr.rina.value = 1;
        hdr.pass.hops = hdr.result.hops - 1;
        hdr.pass.to = meta.to;
        hdr.pass.then = THEN_ONWARD;
        hdr.pass.target = meta.rest;
        hdr.result.hops = 0;
    }
    table to_hand_down {
        actions = { hand_down; }
        const default_action = hand_down();
        size = 1;
    }
    // Each set of workers has a group, and one that has the packet by again: so many further on.
    action find_onward(bit<16> sets) {
        hdr.pass.target = hdr.pass.target + sets;
    }
    @name(".onward")
    table onward {
        actions = { @name(".find_onward") find_onward; NoAction; }
        default_action = NoAction();
        size = 1;
    }
    // Its way has been looked up.
    action be_other_copy() {
        hdr.rina.value = 0;
        hdr.result.hops = hdr.pass.hops;
        hdr.result.to = hdr.pass.to;
        hdr.pass.then = THEN_PORT;
    }
    table to_be_other_copy {
        actions = { be_other_copy; }
        const default_action = be_other_copy();
        size = 1;
    }

    apply {
        bit<1> again = 0;
        if (!hdr.pass.isValid()) {
            hdr.pass.setValid();
            hdr.pass.op = DO_NOTHING;
            hdr.pass.number = 0;
            hdr.pass.left = PASSES - 1;
            hdr.pass.then = THEN_DROP;
            hdr.pass.target = 0;
            hdr.pass.port = 0;
            hdr.pass.cell = 0;
            hdr.pass.to = 0;
            hdr.pass.hops = 0;
            if (hdr.rina.isValid() && parsed.parser_err == PARSER_ERROR_OK) {
                own.apply();
                member.apply();
                named.apply();
                to_find_number.apply();
                to_next_number.apply();
                if (hdr.task.isValid()) {
                    rank.apply();
                }
                if (hdr.result.isValid()) {
                    home.apply();
                }
                // A task has no mark, and a gradient asks for nothing.
                if (hdr.rina.asks == 1) {
                    meta.note = NOTE_ASKS;
                } else if (hdr.rina.flag == 1) {
                    meta.note = NOTE_MARKED;
                }
                form.apply();
                rack.apply(hdr, meta);
                if (hdr.result.isValid() && meta.is_agents == 0) {
                    meta.to = hdr.result.to;
                }
                way.apply();
                if (hdr.result.isValid()) {
                    hdr.pass.port = meta.way;
                    if (meta.is_agents == 1) {
                        bit<16> hops = hdr.result.hops;
                        to_hand_down.apply();
                        if (hops != 0) {
                            onward.apply();
                        }
                    } else if (meta.is != IS_NONE && meta.is_home == 0) {
                        hdr.pass.then = THEN_PORT;
                    }
                }
                // Nothing for results; but not in an other branch, which would begin only behind all that decides which one is taken.
                slot.apply(hdr, meta);
            }
#if DECIDES_FIRST
            if (hdr.pass.op != DO_NOTHING) {
                again = 1;
            }
        } else if (hdr.pass.then == THEN_ONWARD) {
            to_be_other_copy.apply();
        } else {
#else
        } else if (hdr.pass.then == THEN_ONWARD) {
            to_be_other_copy.apply();
        }
        {
#endif
            one_pass.apply(hdr.pass, hdr.elements, again);
        }
        if (again == 1) {
            manager.ucast_egress_port = AGAIN_PORT;
        } else if (hdr.pass.then == THEN_PORT) {
            manager.ucast_egress_port = (bit<9>) hdr.pass.port;
        } else if (hdr.pass.then == THEN_GROUP || hdr.pass.then == THEN_ONWARD) {
            manager.mcast_grp_a = hdr.pass.target;
        } else {
            discard();
        }
    }
}

control RinaIngressDeparser(packet_out packet, inout headers_t hdr, in meta_t meta, in ingress_intrinsic_metadata_for_deparser_t deparsed) {
    apply {
        packet.emit(hdr);
    }
}

parser RinaEgressParser(packet_in packet, out headers_t hdr, out egress_meta_t meta, out egress_intrinsic_metadata_t standard) {
    // What follows stays where it is.
    state start {
        packet.extract(standard);
        packet.extract(hdr.pass);
        packet.extract(hdr.ethernet);
        transition accept;
    }
}

control RinaEgress(inout headers_t hdr, inout egress_meta_t meta, in egress_intrinsic_metadata_t standard,
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

control RinaEgressDeparser(packet_out packet, inout headers_t hdr, in egress_meta_t meta,
                           in egress_intrinsic_metadata_for_deparser_t deparsed) {
    apply {
        packet.emit(hdr);
    }
}

Pipeline(RinaIngressParser(), RinaIngress(), RinaIngressDeparser(), RinaEgressParser(), RinaEgress(), RinaEgressDeparser()) pipeline;
Switch(pipeline) main;
