/* Canary at one switch (v1model): sums of what meets within a short time, towards whatever leader the packet names; and back down to where
 * it came from.
 *
 * The packet is the paper's (Canary 4.1), on Ethernet, with kinds in its padding. No job needs an entry: what a switch must know is in its
 * packets. Time is the number of scans that the packet generator has begun: each of its clock packets names a scan and an entry of the array
 * (Canary 4.3), so that a timeout is a number of scans and no clock has to be read.
 *
 * `dst` is looked up in one table of ways. A load balancer (Canary 3.2) takes that table's place; nothing else here chooses a port.
 *
 * Each register is read and written at one place, at most once for a packet.
 */
#include <core.p4>
#include <v1model.p4>

#include "generated.p4"
#define CELLS CANARY_DESCRIPTORS
#include "include/elements.p4"

/* States of a descriptor (`canary 3`). */
const bit<8> FREE = 0;
const bit<8> COLLECTING = 1;
const bit<8> SENT = 2;

/* Packets for which elements are taken off: first passes of contributions, and passes that add. */
const bit<8> DO_ENTER = 255;

struct headers_t {
    pass_h pass;
    ethernet_h ethernet;
    canary_h canary;
    clock_h clock;
    elements_h elements;
}

/* What the control plane says about this switch. */
struct own_t {
    bit<32> ip;
    bit<16> number;
    bit<32> descriptors; // length of the array
    bit<32> timeout;     // scans until a block is sent on
    bit<32> lifetime;    // scans until a descriptor that was sent on is given up
    bit<8> last;         // number of the last pass
    bit<64> ports;       // all there are
    bit<8> width;        // ports of a shard
}

struct meta_t {
    own_t own;
    bit<64> port_bit; // of the port that the packet came by
    @field_list(0) bit<8> op; // what a packet that comes by again comes for, which its header says as well
}

parser CanaryParser(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    state start {
        meta.op = DO_ENTER;
        transition select(standard.instance_type) {
            IS_AGAIN: again;
            default: ethernet;
        }
    }

    state again {
        packet.extract(hdr.pass);
        meta.op = hdr.pass.op;
        transition ethernet;
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
        // Zeros, which are left out.
        packet.advance((standard.packet_length - (bit<32>) (ETHERNET_BYTES + CLOCK_BYTES)) << 3);
        transition accept;
    }

    // Elements stay where they are in packets that are not added: the deparser puts what is not parsed behind what is.
    state canary {
        packet.extract(hdr.canary);
        transition select(hdr.canary.bypass, hdr.canary.multicast, hdr.canary.kind, meta.op) {
            (_, _, _, DO_SET): elements;
            (_, _, _, DO_ADD): elements;
            (0, 0, CANARY_REDUCE, DO_ENTER): elements;
            default: accept;
        }
    }

    state elements {
        packet.extract(hdr.elements);
        transition accept;
    }
}

control CanaryVerify(inout headers_t hdr, inout meta_t meta) {
    apply { }
}

/* A block's descriptor, and what a packet does to it. */
control Descriptor(inout headers_t hdr, in meta_t meta, in bit<9> port, in bool is_clock, in bit<32> place, in bit<32> now) {
    register<bit<8>>(CELLS) phases;
    register<bit<32>>(CELLS) stamps; // when the descriptor was taken; once it was sent on, when that was
    register<bit<32>>(CELLS) ids;
    register<bit<32>>(CELLS) leaders;
    register<bit<32>>(CELLS) counts; // contributions, and hosts
    register<bit<64>>(CELLS) children;

    apply {
        bit<8> phase;
        bit<32> stamp;
        bit<32> id;
        bit<32> leader;
        bit<32> count;
        bit<64> ports;
        phases.read(phase, place);
        stamps.read(stamp, place);
        ids.read(id, place);
        leaders.read(leader, place);
        counts.read(count, place);
        children.read(ports, place);
        bit<32> age = now - stamp;
        bool here = phase != FREE && id == hdr.canary.id;
        bool sends = false;

        if (is_clock) {
            if (phase == COLLECTING && age >= meta.own.timeout) {
                // `canary 5.3`: the clock packet carries the sum on.
                sends = true;
                hdr.clock.setInvalid();
                hdr.canary.setValid();
                hdr.ethernet.kind = KIND_CANARY;
                hdr.pass.op = DO_GET;
                hdr.pass.number = meta.own.last;
            } else if (phase == SENT && age >= meta.own.lifetime) {
                // `canary 5.10`
                phase = FREE;
            }
        } else if (hdr.canary.kind == CANARY_BROADCAST) {
            // `canary 5.5`: children get the sum and the descriptor is free. A sum that lacks what is still here is not of a job's making.
            if (here && phase == SENT) {
                phase = FREE;
                hdr.pass.then = THEN_SHARD;
                hdr.pass.ports = ports & ~meta.port_bit;
            }
        } else if (here && phase == SENT) {
            // `canary 5.2`, 4: a straggler goes on at once; the broadcast will find its way back.
            ports = ports | meta.port_bit;
            hdr.pass.then = THEN_ROUTE;
        } else if (phase != FREE && !here) {
            // `canary 5.2`, 5: a collision. The leader is told whom the broadcast will not reach, and no switch touches the packet any more.
            hdr.canary.switch_addr = meta.own.number;
            hdr.canary.children = (bit<32>) (bit<16>) port;
            hdr.canary.bypass = 1;
            hdr.pass.then = THEN_ROUTE;
        } else {
            // `canary 5.2`, 2 and 3: the first packet of a block takes the descriptor, others are added.
            if (here) {
                hdr.pass.op = DO_ADD;
                count[31:16] = count[31:16] |+| hdr.canary.counter;
                ports = ports | meta.port_bit;
            } else {
                hdr.pass.op = DO_SET;
                phase = COLLECTING;
                stamp = now;
                id = hdr.canary.id;
                leader = hdr.canary.dst;
                count = hdr.canary.counter ++ hdr.canary.hosts;
                ports = meta.port_bit;
            }
            // The leader sends none (`canary 5.2`, 3a).
            sends = count[31:16] >= count[15:0] - 1;
        }
        if (sends) {
            phase = SENT;
            stamp = now;
            hdr.canary.dst = leader;
            hdr.canary.id = id;
            hdr.canary.counter = count[31:16];
            hdr.canary.hosts = count[15:0];
            hdr.canary.children = 0;
            hdr.canary.switch_addr = 0;
            hdr.canary.bypass = 0;
            hdr.canary.multicast = 0;
            hdr.canary.reserved = 0;
            hdr.canary.kind = CANARY_REDUCE;
            hdr.pass.then = THEN_ROUTE;
        }
        hdr.pass.place = place;
        hdr.pass.last = meta.own.last;

        phases.write(place, phase);
        stamps.write(place, stamp);
        ids.write(place, id);
        leaders.write(place, leader);
        counts.write(place, count);
        children.write(place, ports);
    }
}

control CanaryIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    // The scan that the last clock packet was of.
    register<bit<32>>(1) scans;

    Descriptor() descriptor;
    Pass() one_pass;

    action set_own(bit<32> ip, bit<16> number, bit<32> descriptors, bit<32> timeout, bit<32> lifetime, bit<8> last, bit<64> ports,
                   bit<8> width) {
        meta.own.ip = ip;
        meta.own.number = number;
        meta.own.descriptors = descriptors;
        meta.own.timeout = timeout;
        meta.own.lifetime = lifetime;
        meta.own.last = last;
        meta.own.ports = ports;
        meta.own.width = width;
    }

    @name(".own")
    table own {
        actions = { @name(".set_own") set_own; NoAction; }
        default_action = NoAction();
    }

    action tick() { }

    // Clock packets are taken from the packet generator only: those of a host would end blocks before their time.
    @name(".generator")
    table generator {
        key = { standard.ingress_port: exact; }
        actions = { @name(".tick") tick; NoAction; }
        const default_action = NoAction();
        size = 4;
    }

    action set_port_bit(bit<64> port_bit) {
        meta.port_bit = port_bit;
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
        standard.egress_spec = port;
    }

    action drop() {
        mark_to_drop(standard);
    }

    // Ways to hosts and switches.
    @name(".route")
    table route {
        key = { hdr.canary.dst: exact; }
        actions = { @name(".to_port") to_port; drop; }
        const default_action = drop();
        size = 4096;
    }

    apply {
        own.apply();
        bool again = false;
        if (!hdr.pass.isValid()) {
            hdr.pass.setValid();
            hdr.pass.op = DO_NOTHING;
            hdr.pass.number = 0;
            hdr.pass.last = 0;
            hdr.pass.then = THEN_DROP;
            hdr.pass.target = 0;
            hdr.pass.place = 0;
            hdr.pass.ports = 0;
            bool is_clock = false;
            bool uses_descriptor = false;
            bit<32> place = 0;
            bit<32> bytes = (bit<32>) (ETHERNET_BYTES + CANARY_BYTES + PASS_BYTES * ((bit<16>) meta.own.last + 1));
            bool full = standard.packet_length == bytes && standard.parser_error == error.NoError;
            if (hdr.clock.isValid()) {
                if (full && generator.apply().hit) {
                    is_clock = true;
                    place = hdr.clock.entry;
                    uses_descriptor = place < meta.own.descriptors;
                }
            } else if (hdr.canary.isValid()) {
                // Fields that a kind does not use are zero.
                bool plain = hdr.canary.children == 0 && hdr.canary.reserved == 0;
                bool empty = hdr.canary.counter == 0 && hdr.canary.hosts == 0 && hdr.canary.switch_addr == 0 && hdr.canary.reserved == 0;
                bool is_own = hdr.canary.kind == CANARY_RESTORE && hdr.canary.dst == meta.own.ip;
                if ((hdr.canary.bypass == 1 && !is_own) || hdr.canary.kind == CANARY_FAILED) {
                    // `canary 5.4`
                    hdr.pass.then = THEN_ROUTE;
                } else if (is_own) {
                    // `canary 5.6`: the sum for children whom a collision kept out of the descriptor.
                    bit<16> shard = hdr.canary.children[31:16];
                    bit<64> ports = (bit<64>) hdr.canary.children[15:0] << (bit<8>) (shard << 4);
                    bool fits = shard < 4 && ports & ~meta.own.ports == 0;
                    if (full && empty && hdr.canary.bypass == 1 && hdr.canary.multicast == 0 && fits) {
                        hdr.pass.then = THEN_SHARD;
                        hdr.pass.ports = ports;
                    }
                } else if (full) {
                    one_hot.apply();
                    hash(place, HashAlgorithm.crc32, (bit<32>) 0, { hdr.canary.id }, meta.own.descriptors);
                    if (hdr.canary.kind == CANARY_BROADCAST) {
                        uses_descriptor = plain && empty && hdr.canary.multicast == 1 && hdr.canary.dst == 0;
                    } else if (hdr.canary.kind == CANARY_REDUCE) {
                        uses_descriptor = plain && hdr.canary.multicast == 0 && hdr.canary.switch_addr == 0
                            && hdr.canary.counter != 0 && hdr.canary.counter < hdr.canary.hosts;
                    }
                }
            }
            bit<32> now;
            scans.read(now, 0);
            if (is_clock) {
                now = hdr.clock.batch;
            }
            scans.write(0, now);
            if (uses_descriptor) {
                descriptor.apply(hdr, meta, standard.ingress_port, is_clock, place, now);
            }
            if (hdr.pass.then == THEN_SHARD) {
                hdr.canary.dst = 0;
                hdr.canary.children = 0;
                hdr.canary.bypass = 0;
                hdr.canary.multicast = 1;
                hdr.canary.kind = CANARY_BROADCAST;
            }
        }

        one_pass.apply(hdr.pass, hdr.elements, again);
        if (again) {
            standard.egress_spec = AGAIN_PORT;
        } else if (hdr.pass.then == THEN_SHARD) {
            // Canary 4.2: one shard of the ports after the other; `target` is the shard's number. Each group but those of the last shard has
            // the packet come by again. So this header goes along, and is taken off on the way out.
            bit<8> first = (bit<8>) hdr.pass.target * meta.own.width;
            bit<64> shard = hdr.pass.ports >> first;
            bit<16> set = shard[15:0] & (bit<16>) ((32w1 << meta.own.width) - 1);
            standard.mcast_grp = 1 + (hdr.pass.target << meta.own.width | set);
            hdr.pass.target = hdr.pass.target + 1;
        } else if (hdr.pass.then == THEN_ROUTE) {
            hdr.pass.setInvalid();
            route.apply();
        } else {
            drop();
        }
    }
}

control CanaryEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    action set_neighbour(bit<48> own, bit<48> mac) {
        hdr.ethernet.src = own;
        hdr.ethernet.dst = mac;
    }

    action drop() {
        mark_to_drop(standard);
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
        if (standard.egress_port == AGAIN_PORT) {
            recirculate_preserving_field_list(0);
        } else {
            hdr.pass.setInvalid();
            neighbour.apply();
        }
    }
}

control CanaryChecksum(inout headers_t hdr, inout meta_t meta) {
    apply { }
}

control CanaryDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.pass);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.canary);
        packet.emit(hdr.clock);
        packet.emit(hdr.elements);
    }
}

V1Switch(CanaryParser(), CanaryVerify(), CanaryIngress(), CanaryEgress(), CanaryChecksum(), CanaryDeparser()) main;
