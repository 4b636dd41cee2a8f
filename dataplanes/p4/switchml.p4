/* SwitchML at one switch (v1model): sums of integers in a pool of slots with two versions each.
 *
 * The packet is the paper's (`switchml 2`), over UDP. Two things differ from the published program:
 * - A version knows its round. The published program clears a worker's bit of one version when the worker sends for the other, and so takes
 *   a packet that is two uses of its slot late for a new one (`switchml 10`). Here `tsi`, which that program only echoes, is the number of
 *   the slot's use, and whatever is late is told by it. Nothing has to be cleared.
 * - Contributions are not counted: a version is complete when the bits of all workers are set.
 *
 * Each register is read and written at one place, at most once for a packet.
 */
#include <core.p4>
#include <v1model.p4>

#include "generated.p4"
#define CELLS SWITCHML_CELLS
#include "include/elements.p4"

struct headers_t {
    pass_h pass;
    ethernet_h ethernet;
    ipv4_h ipv4;
    udp_h udp;
    switchml_h switchml;
    elements_h elements;
}

/* What the tables say about a packet's worker and job. */
struct member_t {
    bit<32> bit_;   // the worker's
    bit<32> all;    // those of all workers
    bit<32> first;  // the job's first cell
    bit<16> slots;  // of the job's pool
    bit<32> ahead;  // how much later than a version's last round its next one may be
    bit<8> last;    // number of the last pass
    bit<16> group;  // all workers
}

struct meta_t {
    member_t member;
    @field_list(0) bit<8> op; // what a packet that comes by again comes for, which its header says as well
}

parser SwitchMlParser(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    state start {
        meta.op = DO_NOTHING;
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
            KIND_IPV4: ipv4;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        // No options, no fragments.
        transition select(hdr.ipv4.version, hdr.ipv4.words, hdr.ipv4.more, hdr.ipv4.offset, hdr.ipv4.protocol) {
            (4, 5, 0, 0, PROTOCOL_UDP): udp;
            default: accept;
        }
    }

    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst) {
            SWITCHML_PORT &&& SWITCHML_PORT_MASK: switchml;
            default: accept;
        }
    }

    state switchml {
        packet.extract(hdr.switchml);
        transition select(meta.op) {
            DO_GET: accept;
            default: elements;
        }
    }

    state elements {
        packet.extract(hdr.elements);
        transition accept;
    }
}

control SwitchMlVerify(inout headers_t hdr, inout meta_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid(), { hdr.ipv4.version, hdr.ipv4.words, hdr.ipv4.service, hdr.ipv4.length, hdr.ipv4.id,
            hdr.ipv4.reserved, hdr.ipv4.whole, hdr.ipv4.more, hdr.ipv4.offset, hdr.ipv4.hops, hdr.ipv4.protocol, hdr.ipv4.src,
            hdr.ipv4.dst }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

/* `switchml 4`: what a packet is to its slot, and what follows from it. */
control Slots(inout headers_t hdr, in member_t member, in bit<9> port) {
    // A version's round, the workers that have contributed to it, and the largest exponents.
    register<bit<32>>(CELLS) rounds;
    register<bit<32>>(CELLS) bitmaps;
    register<bit<16>>(CELLS) exponents;

    apply {
        bit<32> round;
        bit<32> bitmap;
        // The lowest bit selects the version (`switchml 2`).
        bit<32> place = member.first + ((bit<32>) hdr.switchml.slot << 1) + (bit<32>) hdr.switchml.version;
        rounds.read(round, place);
        bitmaps.read(bitmap, place);
        bit<32> later = hdr.switchml.tsi - round;
        bool done = bitmap == member.all;
        bool fresh = bitmap == 0 || (done && later != 0 && later <= member.ahead);
        bool same = bitmap != 0 && later == 0;
        bool repeated = same && bitmap & member.bit_ != 0;

        hdr.pass.place = place;
        hdr.pass.last = member.last;
        if (fresh) {
            // The first contribution of a round: what was there is nobody's any more.
            bitmap = member.bit_;
            round = hdr.switchml.tsi;
            hdr.pass.op = DO_SET;
        } else if (repeated) {
            // The shadow copy, for who has lost the result.
            if (done) {
                hdr.pass.op = DO_SKIP;
                hdr.pass.then = THEN_PORT;
                hdr.pass.target = (bit<16>) port;
            }
        } else if (same) {
            bitmap = bitmap | member.bit_;
            hdr.pass.op = DO_ADD;
        }
        if ((hdr.pass.op == DO_SET || hdr.pass.op == DO_ADD) && bitmap == member.all) {
            hdr.pass.then = THEN_GROUP;
            hdr.pass.target = member.group;
        }
        bitmaps.write(place, bitmap);
        rounds.write(place, round);

        if (hdr.pass.op != DO_NOTHING) {
            bit<16> held;
            exponents.read(held, place);
            if (hdr.pass.op == DO_SET) {
                held = hdr.switchml.e0 ++ hdr.switchml.e1;
            } else if (hdr.pass.op == DO_ADD) {
                if ((int<8>) hdr.switchml.e0 > (int<8>) held[15:8]) {
                    held[15:8] = hdr.switchml.e0;
                }
                if ((int<8>) hdr.switchml.e1 > (int<8>) held[7:0]) {
                    held[7:0] = hdr.switchml.e1;
                }
            }
            exponents.write(place, held);
            hdr.switchml.e0 = held[15:8];
            hdr.switchml.e1 = held[7:0];
        }
    }
}

control SwitchMlIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    Slots() slots;
    Pass() one_pass;

    action contribute(bit<32> bit_, bit<32> all, bit<32> first, bit<16> slots_, bit<32> ahead, bit<8> last, bit<16> group) {
        meta.member.bit_ = bit_;
        meta.member.all = all;
        meta.member.first = first;
        meta.member.slots = slots_;
        meta.member.ahead = ahead;
        meta.member.last = last;
        meta.member.group = group;
    }

    // Whose packet it is: only a worker of the job, at its own port, with packets of the job's length.
    @name(".member")
    table member {
        key = {
            standard.ingress_port: exact;
            hdr.ipv4.src: exact;
            hdr.ipv4.dst: exact;
            hdr.switchml.job: exact;
            hdr.switchml.size: exact;
        }
        actions = { @name(".contribute") contribute; NoAction; }
        const default_action = NoAction();
        size = 1024;
    }

    apply {
        bool again;
        if (!hdr.pass.isValid()) {
            hdr.pass.setValid();
            hdr.pass.op = DO_NOTHING;
            hdr.pass.number = 0;
            hdr.pass.last = 0;
            hdr.pass.then = THEN_DROP;
            hdr.pass.target = 0;
            hdr.pass.place = 0;
            hdr.pass.ports = 0;
            bool sound = standard.parser_error == error.NoError && standard.checksum_error == 0 && hdr.elements.isValid()
                && hdr.switchml.msg_type == 0 && hdr.switchml.unused == 0 && hdr.switchml.version == hdr.switchml.tsi[0:0]
                && hdr.udp.length + IPV4_BYTES == hdr.ipv4.length
                && (bit<32>) hdr.ipv4.length + (bit<32>) ETHERNET_BYTES == standard.packet_length;
            if (sound && member.apply().hit) {
                bit<16> bytes = UDP_BYTES + SWITCHML_BYTES + PASS_BYTES * ((bit<16>) meta.member.last + 1);
                if (hdr.udp.length == bytes && (bit<16>) hdr.switchml.slot < meta.member.slots) {
                    slots.apply(hdr, meta.member, standard.ingress_port);
                }
            }
        }
        one_pass.apply(hdr.pass, hdr.elements, again);
        if (again) {
            standard.egress_spec = AGAIN_PORT;
        } else {
            if (hdr.pass.then == THEN_GROUP) {
                standard.mcast_grp = hdr.pass.target;
            } else if (hdr.pass.then == THEN_PORT) {
                standard.egress_spec = (bit<9>) hdr.pass.target;
            } else {
                mark_to_drop(standard);
            }
            hdr.pass.setInvalid();
        }
    }
}

control SwitchMlEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    action set_own_address(bit<48> mac, bit<32> ip) {
        hdr.ethernet.src = mac;
        hdr.ipv4.src = ip;
    }

    @name(".own_address")
    table own_address {
        actions = { @name(".set_own_address") set_own_address; NoAction; }
        default_action = NoAction();
    }

    // A result is a packet of the switch's own, from the port that the last contribution went to.
    action to_worker(bit<48> mac, bit<32> ip, bit<16> udp) {
        hdr.ethernet.dst = mac;
        hdr.ipv4.dst = ip;
        hdr.ipv4.service = 0;
        hdr.ipv4.id = 0;
        hdr.ipv4.reserved = 0;
        hdr.ipv4.whole = 1;
        hdr.ipv4.hops = HOPS;
        hdr.udp.src = hdr.udp.dst;
        hdr.udp.dst = udp;
        hdr.udp.checksum = 0;
    }

    action drop() {
        mark_to_drop(standard);
    }

    @name(".worker")
    table worker {
        key = {
            hdr.switchml.job: exact;
            standard.egress_port: exact;
        }
        actions = { @name(".to_worker") to_worker; drop; }
        const default_action = drop();
        size = 1024;
    }

    apply {
        if (hdr.pass.isValid()) {
            recirculate_preserving_field_list(0);
        } else {
            own_address.apply();
            worker.apply();
        }
    }
}

control SwitchMlChecksum(inout headers_t hdr, inout meta_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(), { hdr.ipv4.version, hdr.ipv4.words, hdr.ipv4.service, hdr.ipv4.length, hdr.ipv4.id,
            hdr.ipv4.reserved, hdr.ipv4.whole, hdr.ipv4.more, hdr.ipv4.offset, hdr.ipv4.hops, hdr.ipv4.protocol, hdr.ipv4.src,
            hdr.ipv4.dst }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control SwitchMlDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.pass);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.switchml);
        packet.emit(hdr.elements);
    }
}

V1Switch(SwitchMlParser(), SwitchMlVerify(), SwitchMlIngress(), SwitchMlEgress(), SwitchMlChecksum(), SwitchMlDeparser()) main;
