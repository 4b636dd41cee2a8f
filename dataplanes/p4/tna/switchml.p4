/* SwitchML at one switch (TNA): sums of integers in a pool of slots with two versions each. ../switchml.p4 is the same on v1model.
 *
 * A stateful unit compares twice and knows one word or pair. So a slot's version takes three of them:
 * - `newest` is the latest round that a packet within the window was of. It says whether a packet may begin a round;
 * - `versions` has the round and who is missing: whether the packet is of this round, begins it, or is neither;
 * - `missing` has who is missing once more, and tells who was before.
 * A version that nobody has used knows no round: the control plane writes one that is before the job's first.
 */
#include "include/arch.p4"
#include "../generated.p4"

#define CELLS SWITCHML_CELLS
#define DO_ELEMENTS(DO) ELEMENTS(DO)
#define PASS_FIELDS
#include "include/elements.p4"

struct headers_t {
    pass_h pass;
    ethernet_h ethernet;
    ipv4_h ipv4;
    udp_h udp;
    switchml_tna_h switchml;
    elements_h elements;
}

struct meta_t {
    bit<1> checksum_error;
    bit<32> bit_;    // the worker's
    bit<32> others;  // those of all others
    bit<32> oldest;  // the round that is as far before the packet's as a version may lag behind
    bit<16> group;   // all workers
    bit<4> class_;   // what the packet is to its version
    bit<32> before;  // who was missing
    bit<32> open;    // the worker's bit, where it was missing
}

struct egress_meta_t { }

/* What a packet is to a version: the predicate of `versions`. */
@noWarn("unused") const bit<4> OF_NONE = 1;   // an earlier round, or one that comes too early
const bit<4> OF_ROUND = 2;  // the round that is being summed
const bit<4> OF_NEXT = 4;   // a round that it begins
const bit<4> OF_RESULT = 8; // the round whose sum is complete

parser SwitchMlIngressParser(packet_in packet, out headers_t hdr, out meta_t meta, out ingress_intrinsic_metadata_t standard) {
    Checksum() checksum;

    state start {
        packet.extract(standard);
        packet.advance(PORT_METADATA_SIZE);
        meta.checksum_error = 0;
        transition select(standard.ingress_port) {
            AGAIN_PORT: again;
            default: ethernet;
        }
    }

    state again {
        packet.extract(hdr.pass);
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        packet.extract(hdr.switchml);
        transition select(hdr.pass.op) {
            DO_GET: accept;
            default: elements;
        }
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
        checksum.add(hdr.ipv4);
        meta.checksum_error = (bit<1>) checksum.verify();
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
        transition elements;
    }

    state elements {
        packet.extract(hdr.elements);
        transition accept;
    }
}

struct version_t {
    bit<32> round;
    bit<32> missing;
}

/* `switchml 4`: what a packet is to its slot, and what follows from it. */
control Slots(inout headers_t hdr, inout meta_t meta, in bit<9> port) {
    Register<bit<32>, bit<16>>(CELLS) newest;
    Register<version_t, bit<16>>(CELLS) versions;
    Register<bit<32>, bit<16>>(CELLS) missing;
    Register<int<8>, bit<16>>(CELLS) exponents0;
    Register<int<8>, bit<16>>(CELLS) exponents1;

    RegisterAction<bit<32>, bit<16>, bit<1>>(newest) enter = {
        void apply(inout bit<32> held, out bit<1> result) {
            result = 0;
            if ((int<32>) (hdr.switchml.tsi - held) >= 0 && (int<32>) (meta.oldest - held) <= 0) {
                held = hdr.switchml.tsi;
                result = 1;
            }
        }
    };
    RegisterAction<version_t, bit<16>, bit<4>>(versions) begin_or_join = {
        void apply(inout version_t held, out bit<4> result) {
            if (held.round == hdr.switchml.tsi) {
                held.missing = held.missing & meta.others;
            } else if (held.missing == 0) {
                held.round = hdr.switchml.tsi;
                held.missing = meta.others;
            }
            result = this.predicate(held.round == hdr.switchml.tsi, held.missing == 0);
        }
    };
    // Of a round that is not the newest: begun it may be, but it does not begin.
    RegisterAction<version_t, bit<16>, bit<4>>(versions) join = {
        void apply(inout version_t held, out bit<4> result) {
            if (held.round == hdr.switchml.tsi) {
                held.missing = held.missing & meta.others;
            }
            result = this.predicate(held.round == hdr.switchml.tsi, held.missing == 0);
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(missing) begin_missing = {
        void apply(inout bit<32> held, out bit<32> result) {
            held = meta.others;
            result = held;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(missing) join_missing = {
        void apply(inout bit<32> held, out bit<32> result) {
            result = held;
            held = held & meta.others;
        }
    };
#define EXPONENT(n)                                                                  \
    RegisterAction<int<8>, bit<16>, int<8>>(exponents##n) set_exponent##n = {        \
        void apply(inout int<8> held, out int<8> result) {                           \
            held = (int<8>) hdr.switchml.e##n;                                       \
            result = held;                                                           \
        }                                                                            \
    };                                                                               \
    RegisterAction<int<8>, bit<16>, int<8>>(exponents##n) raise_exponent##n = {      \
        void apply(inout int<8> held, out int<8> result) {                           \
            if ((int<8>) hdr.switchml.e##n > held) {                                 \
                held = (int<8>) hdr.switchml.e##n;                                   \
            }                                                                        \
            result = held;                                                           \
        }                                                                            \
    };                                                                               \
    RegisterAction<int<8>, bit<16>, int<8>>(exponents##n) get_exponent##n = {        \
        void apply(inout int<8> held, out int<8> result) {                           \
            result = held;                                                           \
        }                                                                            \
    };                                                                               \
    action first_exponent##n() { hdr.switchml.e##n = (bit<8>) set_exponent##n.execute(hdr.pass.cell); }    \
    action later_exponent##n() { hdr.switchml.e##n = (bit<8>) raise_exponent##n.execute(hdr.pass.cell); }  \
    action result_exponent##n() { hdr.switchml.e##n = (bit<8>) get_exponent##n.execute(hdr.pass.cell); }   \
    table exponent##n {                                                              \
        key = { hdr.pass.op: exact; }                                                \
        actions = { first_exponent##n; later_exponent##n; result_exponent##n; NoAction; } \
        const default_action = NoAction();                                           \
        const entries = {                                                            \
            DO_SET: first_exponent##n();                                             \
            DO_ADD: later_exponent##n();                                             \
            DO_SKIP: result_exponent##n();                                           \
        }                                                                            \
        size = 4;                                                                    \
    }
    EXPONENT(0)
    EXPONENT(1)

    action find_open() {
        meta.open = meta.before & meta.bit_;
    }

    // A table, for a condition cannot calculate.
    table was_open {
        actions = { find_open; }
        const default_action = find_open();
        size = 1;
    }

    apply {
        bit<1> may_begin = enter.execute(hdr.pass.cell);
        if (may_begin == 1) {
            meta.class_ = begin_or_join.execute(hdr.pass.cell);
        } else {
            meta.class_ = join.execute(hdr.pass.cell);
        }
        if (may_begin == 1 && meta.class_ == OF_NEXT) {
            hdr.pass.op = DO_SET;
            begin_missing.execute(hdr.pass.cell);
            if (meta.others == 0) {
                hdr.pass.then = THEN_GROUP;
                hdr.pass.target = meta.group;
            }
        } else if (meta.class_ == OF_ROUND) {
            meta.before = join_missing.execute(hdr.pass.cell);
            was_open.apply();
            if (meta.open != 0) {
                hdr.pass.op = DO_ADD;
            }
            if (meta.before == meta.bit_) {
                hdr.pass.then = THEN_GROUP;
                hdr.pass.target = meta.group;
            }
        } else if (meta.class_ == OF_RESULT) {
            // The shadow copy, for who has lost the result.
            hdr.pass.op = DO_SKIP;
            hdr.pass.then = THEN_PORT;
            hdr.pass.target = (bit<16>) port;
        }
        exponent0.apply();
        exponent1.apply();
    }
}

control SwitchMlIngress(inout headers_t hdr, inout meta_t meta, in ingress_intrinsic_metadata_t standard,
                        in ingress_intrinsic_metadata_from_parser_t parsed, inout ingress_intrinsic_metadata_for_deparser_t deparsed,
                        inout ingress_intrinsic_metadata_for_tm_t manager) {
    Slots() slots;
    Pass() one_pass;

    action contribute(bit<32> bit_, bit<32> others, bit<16> first, bit<32> behind, bit<8> last, bit<16> group) {
        meta.bit_ = bit_;
        meta.others = others;
        meta.oldest = hdr.switchml.tsi + behind; // less so many
        meta.group = group;
        hdr.pass.cell = first + hdr.switchml.place;
        hdr.pass.left = last;
    }

    // Whose packet it is: only a worker of the job, at its own port, with packets of the job's length, for slots of its pool. `place` is the version
    // and the slot, so `first` is less by 0x8000 for the second versions.
    @name(".member")
    table member {
        key = {
            standard.ingress_port: exact;
            hdr.ipv4.src: exact;
            hdr.ipv4.dst: exact;
            hdr.switchml.job: exact;
            hdr.switchml.size: exact;
            hdr.switchml.place: range;
        }
        actions = { @name(".contribute") contribute; NoAction; }
        const default_action = NoAction();
        size = 1024;
    }

    action sound() { }

    // What the headers say of lengths and of the version. Whether the frame is that long, an ingress does not know.
    table form {
        key = {
            hdr.switchml.size: exact;
            hdr.udp.length: exact;
            hdr.ipv4.length: exact;
            hdr.switchml.place[15:15]: exact @name("version");
            hdr.switchml.tsi[0:0]: exact @name("round");
            hdr.switchml.msg_type: exact;
            hdr.switchml.unused: exact;
        }
        actions = { sound; NoAction; }
        const default_action = NoAction();
#define FORM(size, passes)                                                                                         \
            (size, UDP_BYTES + SWITCHML_BYTES + PASS_BYTES * passes, IPV4_BYTES + UDP_BYTES + SWITCHML_BYTES + PASS_BYTES * passes, 0, 0, 0, 0): sound(); \
            (size, UDP_BYTES + SWITCHML_BYTES + PASS_BYTES * passes, IPV4_BYTES + UDP_BYTES + SWITCHML_BYTES + PASS_BYTES * passes, 1, 1, 0, 0): sound();
        const entries = {
            FORM(0, 1)
            FORM(1, 2)
            FORM(2, 4)
            FORM(3, 8)
        }
        size = 8;
    }

    apply {
        bit<1> again = 0;
        if (!hdr.pass.isValid()) {
            hdr.pass.setValid();
            hdr.pass.op = DO_NOTHING;
            hdr.pass.number = 0;
            hdr.pass.left = 0;
            hdr.pass.then = THEN_DROP;
            hdr.pass.target = 0;
            hdr.pass.cell = 0;
            if (parsed.parser_err == PARSER_ERROR_OK && meta.checksum_error == 0 && hdr.elements.isValid()) {
                if (form.apply().hit) {
                    if (member.apply().hit) {
                        slots.apply(hdr, meta, standard.ingress_port);
                    }
                }
            }
#if DECIDES_FIRST
            if (hdr.pass.op != DO_NOTHING) {
                again = 1;
            }
        } else {
#else
        }
        {
#endif
            one_pass.apply(hdr.pass, hdr.elements, again);
        }
        if (again == 1) {
            manager.ucast_egress_port = AGAIN_PORT;
        } else if (hdr.pass.then == THEN_GROUP) {
            manager.mcast_grp_a = hdr.pass.target;
        } else if (hdr.pass.then == THEN_PORT) {
            manager.ucast_egress_port = (bit<9>) hdr.pass.target;
        } else {
            deparsed.drop_ctl = 1;
        }
    }
}

control SwitchMlIngressDeparser(packet_out packet, inout headers_t hdr, in meta_t meta,
                                in ingress_intrinsic_metadata_for_deparser_t deparsed) {
    apply {
        packet.emit(hdr);
    }
}

parser SwitchMlEgressParser(packet_in packet, out headers_t hdr, out egress_meta_t meta, out egress_intrinsic_metadata_t standard) {
    // Elements stay where they are.
    state start {
        packet.extract(standard);
        packet.extract(hdr.pass);
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        packet.extract(hdr.switchml);
        transition accept;
    }
}

control SwitchMlEgress(inout headers_t hdr, inout egress_meta_t meta, in egress_intrinsic_metadata_t standard,
                       in egress_intrinsic_metadata_from_parser_t parsed, inout egress_intrinsic_metadata_for_deparser_t deparsed,
                       inout egress_intrinsic_metadata_for_output_port_t output) {
    action set_own_address(bit<48> mac, bit<32> ip) {
        hdr.ethernet.src = mac;
        hdr.ipv4.src = ip;
    }

    @name(".own_address")
    table own_address {
        actions = { @name(".set_own_address") set_own_address; NoAction; }
        default_action = NoAction();
        size = 1;
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
        deparsed.drop_ctl = 1;
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
        if (standard.egress_port != AGAIN_PORT) {
            hdr.pass.setInvalid();
            own_address.apply();
            worker.apply();
        }
    }
}

control SwitchMlEgressDeparser(packet_out packet, inout headers_t hdr, in egress_meta_t meta,
                               in egress_intrinsic_metadata_for_deparser_t deparsed) {
    Checksum() checksum;

    apply {
        hdr.ipv4.checksum = checksum.update({ hdr.ipv4.version, hdr.ipv4.words, hdr.ipv4.service, hdr.ipv4.length, hdr.ipv4.id,
            hdr.ipv4.reserved, hdr.ipv4.whole, hdr.ipv4.more, hdr.ipv4.offset, hdr.ipv4.hops, hdr.ipv4.protocol, hdr.ipv4.src,
            hdr.ipv4.dst });
        packet.emit(hdr);
    }
}

Pipeline(SwitchMlIngressParser(), SwitchMlIngress(), SwitchMlIngressDeparser(), SwitchMlEgressParser(), SwitchMlEgress(),
         SwitchMlEgressDeparser()) pipeline;
Switch(pipeline) main;
