/* The switch of ATP and A2TP (TNA): aggregators that all jobs share, first come, first served (a2tp 2, 3, 5.1, 5.2). ../atp.p4 is the same on
 * v1model.
 *
 * 62 words take two passes of 31, as in the paper, whose packets have an index for each half of the memory. Here a pass that stores or adds
 * takes the first words off, and one that reads puts them in front again: a sum takes three.
 *
 * In place of a word of marks there is a register for each, and in place of an owner and a time a pair.
 */
#include "include/arch.p4"
#define PASSES 2
#include "../generated.p4"

#define CELLS ATP_AGGREGATORS
/* Once for each word of a pass. */
#define DO_ELEMENTS(DO) ATP_HALF(DO)
#define PASS_FIELDS
#include "include/elements.p4"

struct headers_t {
    pass_h pass;
    ethernet_h ethernet;
    ipv4_h ipv4;
    atp_h atp;
    elements_h elements;
}

struct meta_t {
    bit<32> all;         // all workers of the job
    bit<32> rest;        // all but the packet's
    bit<32> others;      // and bit 31
    bit<32> bit_;        // the packet's
    bit<9> server_port;
    bit<32> now;
    bit<16> second;      // the index that the second half has to have
    bit<32> tag;         // job and fragment
    bit<1> asks;         // sent again, or lost elsewhere: takes no aggregator
    bit<1> alone;        // no other worker is at this switch
    bit<1> is_member;    // a worker of ours sends it
    bit<1> is_server;    // a server of ours does
    bit<16> group;       // the workers of that server
    bit<1> is_sound;     // the format is one of those
    bit<1> inside;       // the index is an aggregator's
    bit<1> matches;      // and so is the second one
    bit<1> other;        // goes another way than a contribution
    bit<4> owner;        // whose the aggregator is: the predicate of `owners`
    bit<32> before;      // who was missing
    bit<32> open;        // the packet's workers, where they were missing
    bit<32> after;       // who is missing
    bit<1> carries;      // what the aggregator held
    bit<8> same_app;
    bit<8> late;
    bit<8> col;
    bit<8> ecn;
    bit<8> met_col;
    bit<8> met_ecn;
}

struct egress_meta_t { }

/* What a packet is to its aggregator. */
const bit<8> STEP_NONE = 0;
const bit<8> STEP_TAKE = 1;     // a contribution that may take it
const bit<8> STEP_LOOK = 2;     // one that may not
const bit<8> STEP_ACK = 3;      // frees it (a2tp 5.2)
const bit<8> STEP_TAKES = 4;    // has taken it
const bit<8> STEP_OURS = 5;     // is of its fragment
const bit<8> STEP_ASKS = 6;     // is, and takes out what is there
const bit<8> STEP_COLLIDES = 7; // is of another fragment

/* In place of the workers that are missing: what was there has been sent on (a2tp 9, P1). */
const bit<32> FLUSHED = 0x80000000;

parser AtpIngressParser(packet_in packet, out headers_t hdr, out meta_t meta, out ingress_intrinsic_metadata_t standard) {
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
        packet.extract(hdr.ipv4);
        packet.extract(hdr.atp);
        transition select(hdr.pass.op) {
            DO_GET: accept;
            default: elements;
        }
    }

    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            KIND_ATP: atp;
            default: accept;
        }
    }

    state atp {
        packet.extract(hdr.ipv4);
        packet.extract(hdr.atp);
        transition elements;
    }

    state elements {
        packet.extract(hdr.elements);
        transition accept;
    }
}

struct owner_t {
    bit<32> tag;  // job and fragment, 0 for nobody
    bit<32> time; // when something was last heard of it: the control plane frees what is old (a2tp 9, P4)
}

/* Whose the aggregator is, who is missing, and what contributions met. */
control Aggregator(inout headers_t hdr, inout meta_t meta, inout bit<8> step) {
    Register<owner_t, bit<16>>(CELLS) owners;
    Register<bit<32>, bit<16>>(CELLS) missing; // 0 where the sum is complete
    Register<bit<16>, bit<16>>(CELLS) apps;    // the job that had it last
    Register<bit<8>, bit<16>>(CELLS) lates;    // another fragment wanted it when its sum had gone on
    Register<bit<8>, bit<16>>(CELLS) cols;     // another fragment wanted it
    Register<bit<8>, bit<16>>(CELLS) ecns;     // a contribution met congestion

    RegisterAction<owner_t, bit<16>, bit<4>>(owners) take = {
        void apply(inout owner_t held, out bit<4> result) {
            result = this.predicate(held.tag == meta.tag, held.tag == 0);
            if (held.tag == meta.tag || held.tag == 0) {
                held.tag = meta.tag;
                held.time = meta.now;
            }
        }
    };
    RegisterAction<owner_t, bit<16>, bit<4>>(owners) look = {
        void apply(inout owner_t held, out bit<4> result) {
            result = this.predicate(held.tag == meta.tag, held.tag == 0);
            if (held.tag == meta.tag) {
                held.time = meta.now;
            }
        }
    };
    RegisterAction<owner_t, bit<16>, bit<4>>(owners) release = {
        void apply(inout owner_t held, out bit<4> result) {
            result = this.predicate(held.tag == meta.tag, held.tag == 0);
            if (held.tag == meta.tag) {
                held.tag = 0;
            }
        }
    };
    action owner_take() { meta.owner = take.execute(hdr.pass.cell); }
    action owner_look() { meta.owner = look.execute(hdr.pass.cell); }
    action owner_release() { meta.owner = release.execute(hdr.pass.cell); }
    table use_owners {
        key = { step: exact; }
        actions = { owner_take; owner_look; owner_release; NoAction; }
        const default_action = NoAction();
        const entries = {
            STEP_TAKE: owner_take();
            STEP_LOOK: owner_look();
            STEP_ACK: owner_release();
        }
        size = 4;
    }

    action is(bit<8> next) {
        step = next;
    }
    // The predicate: 1 another's, 2 this fragment's, 4 nobody's.
    table see_owner {
        key = { step: exact; meta.owner: exact; meta.asks: exact; }
        actions = { is; NoAction; }
        const default_action = NoAction();
        const entries = {
            (STEP_TAKE, 1, 0): is(STEP_COLLIDES);
            (STEP_TAKE, 2, 0): is(STEP_OURS);
            (STEP_TAKE, 4, 0): is(STEP_TAKES);
            (STEP_LOOK, 2, 0): is(STEP_OURS);
            (STEP_LOOK, 2, 1): is(STEP_ASKS);
            (STEP_ACK, 2, 0): is(STEP_NONE);
            (STEP_ACK, 2, 1): is(STEP_NONE);
        }
        size = 8;
    }

    RegisterAction<bit<32>, bit<16>, bit<32>>(missing) begin = {
        void apply(inout bit<32> held, out bit<32> result) {
            held = meta.rest;
            result = held;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(missing) join = {
        void apply(inout bit<32> held, out bit<32> result) {
            result = held;
            held = held & meta.others;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(missing) flush = {
        void apply(inout bit<32> held, out bit<32> result) {
            result = held;
            held = FLUSHED;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(missing) see = {
        void apply(inout bit<32> held, out bit<32> result) {
            result = held;
        }
    };
    action missing_begin() { meta.before = begin.execute(hdr.pass.cell); }
    action missing_join() { meta.before = join.execute(hdr.pass.cell); }
    action missing_flush() { meta.before = flush.execute(hdr.pass.cell); }
    action missing_see() { meta.before = see.execute(hdr.pass.cell); }
    table use_missing {
        key = { step: exact; }
        actions = { missing_begin; missing_join; missing_flush; missing_see; NoAction; }
        const default_action = NoAction();
        const entries = {
            STEP_TAKES: missing_begin();
            STEP_OURS: missing_join();
            STEP_ASKS: missing_flush();
            STEP_COLLIDES: missing_see();
        }
        size = 4;
    }

    action find_open() {
        meta.open = meta.before & meta.bit_;
        meta.after = meta.before & meta.others;
    }
    table to_find_open {
        actions = { find_open; }
        const default_action = find_open();
        size = 1;
    }

    RegisterAction<bit<16>, bit<16>, bit<8>>(apps) put_app = {
        void apply(inout bit<16> held, out bit<8> result) {
            result = 0;
            if (held == hdr.atp.app) {
                result = 1;
            }
            held = hdr.atp.app;
        }
    };
    action see_app() { meta.same_app = put_app.execute(hdr.pass.cell); }
    table use_apps {
        key = { step: exact; }
        actions = { see_app; NoAction; }
        const default_action = NoAction();
        const entries = {
            STEP_TAKES: see_app();
        }
        size = 1;
    }

#define LATE(name, value)                                                      \
    RegisterAction<bit<8>, bit<16>, bit<8>>(lates) name = {                    \
        void apply(inout bit<8> held, out bit<8> result) {                     \
            result = held;                                                     \
            held = value;                                                      \
        }                                                                      \
    };
    LATE(put_late, 1)
    LATE(take_late, 0)
    action late_put() { put_late.execute(hdr.pass.cell); }
    action late_clear() { take_late.execute(hdr.pass.cell); }
    action late_take() { meta.late = take_late.execute(hdr.pass.cell); }
    table use_lates {
        key = { step: exact; meta.before: ternary; }
        actions = { late_put; late_clear; late_take; NoAction; }
        const default_action = NoAction();
        const entries = {
            (STEP_TAKES, _): late_take();
            (STEP_COLLIDES, FLUSHED): late_put();
            (STEP_COLLIDES, 0): late_put();
            (STEP_COLLIDES, _): late_clear();
        }
        size = 4;
    }

#define MARK(name)                                                             \
    RegisterAction<bit<8>, bit<16>, bit<8>>(name##s) put_##name = {            \
        void apply(inout bit<8> held, out bit<8> result) {                     \
            held = meta.name;                                                  \
            result = held;                                                     \
        }                                                                      \
    };                                                                         \
    RegisterAction<bit<8>, bit<16>, bit<8>>(name##s) add_##name = {            \
        void apply(inout bit<8> held, out bit<8> result) {                     \
            held = held | meta.name;                                           \
            result = held;                                                     \
        }                                                                      \
    };                                                                         \
    RegisterAction<bit<8>, bit<16>, bit<8>>(name##s) see_##name = {            \
        void apply(inout bit<8> held, out bit<8> result) {                     \
            result = held;                                                     \
        }                                                                      \
    };                                                                         \
    action name##_put() { meta.met_##name = put_##name.execute(hdr.pass.cell); } \
    action name##_add() { meta.met_##name = add_##name.execute(hdr.pass.cell); } \
    action name##_see() { meta.met_##name = see_##name.execute(hdr.pass.cell); }
    MARK(col)
    MARK(ecn)
    RegisterAction<bit<8>, bit<16>, bit<8>>(cols) tell = {
        void apply(inout bit<8> held, out bit<8> result) {
            held = 1;
            result = held;
        }
    };
    action col_tell() { meta.met_col = tell.execute(hdr.pass.cell); }

    // A job goes round its aggregators: what one met too late to be told is told the next time. What was flushed or has come before adds no mark.
    table use_cols {
        key = { step: exact; meta.same_app: ternary; meta.late: ternary; meta.before: ternary; meta.open: ternary; }
        actions = { col_put; col_add; col_see; col_tell; NoAction; }
        const default_action = NoAction();
        const entries = {
            (STEP_TAKES, 1, 1, _, _): col_tell();
            (STEP_TAKES, _, _, _, _): col_put();
            (STEP_COLLIDES, _, _, _, _): col_tell();
            (STEP_OURS, _, _, FLUSHED, _): col_see();
            (STEP_OURS, _, _, _, _): col_add();
            (STEP_ASKS, _, _, FLUSHED, _): col_see();
            (STEP_ASKS, _, _, _, 0): col_see();
            (STEP_ASKS, _, _, _, _): col_add();
        }
        size = 8;
    }
    table use_ecns {
        key = { step: exact; meta.before: ternary; meta.open: ternary; }
        actions = { ecn_put; ecn_add; ecn_see; NoAction; }
        const default_action = NoAction();
        const entries = {
            (STEP_TAKES, _, _): ecn_put();
            (STEP_OURS, FLUSHED, _): ecn_see();
            (STEP_OURS, _, _): ecn_add();
            (STEP_ASKS, FLUSHED, _): ecn_see();
            (STEP_ASKS, _, 0): ecn_see();
            (STEP_ASKS, _, _): ecn_add();
        }
        size = 8;
    }

    apply {
        use_owners.apply();
        see_owner.apply();
        use_missing.apply();
        use_apps.apply();
        to_find_open.apply();
        use_lates.apply();
        use_cols.apply();
        use_ecns.apply();
    }
}

@pa_container_size("ingress", "meta.tag", 32)
@pa_container_size("ingress", "meta.now", 32)
control AtpIngress(inout headers_t hdr, inout meta_t meta, in ingress_intrinsic_metadata_t standard,
                   in ingress_intrinsic_metadata_from_parser_t parsed, inout ingress_intrinsic_metadata_for_deparser_t deparsed,
                   inout ingress_intrinsic_metadata_for_tm_t manager) {
    Aggregator() aggregator;
    Pass() one_pass;

    bit<8> step;

    action discard() {
        deparsed.drop_ctl = 1;
    }

    /* A worker of a job: its packets come by its port, with its bit and the job's size. `others` has bit 31 as well, for FLUSHED to stay. */
    action contribute(bit<32> all, bit<32> rest, bit<32> others, bit<1> alone, bit<16> server_port) {
        meta.all = all;
        meta.rest = rest;
        meta.others = others;
        meta.alone = alone;
        meta.is_member = 1;
        hdr.pass.target = server_port;
    }
    @name(".member")
    table member {
        key = {
            standard.ingress_port: exact;
            hdr.atp.app: exact;
            hdr.atp.workers: exact;
            hdr.atp.bitmap: exact;
        }
        actions = { @name(".contribute") contribute; NoAction; }
        const default_action = NoAction();
        size = 4096;
    }

    /* a2tp 5.2: what comes from a job's server goes to all its workers. */
    action from_server(bit<16> group) {
        meta.group = group;
        meta.is_server = 1;
    }
    @name(".server")
    table server {
        key = {
            standard.ingress_port: exact;
            hdr.atp.app: exact;
        }
        actions = { @name(".from_server") from_server; NoAction; }
        const default_action = NoAction();
        size = 4096;
    }

    action to_port(bit<9> port) {
        manager.ucast_egress_port = port;
    }
    /* What is no aggregation goes its way. */
    @name(".forward")
    table forward {
        key = { hdr.ethernet.dst: exact; }
        actions = { @name(".to_port") to_port; discard; }
        const default_action = discard();
        size = 4096;
    }

    action sound() {
        meta.is_sound = 1;
    }
    /* A format that a worker or a server of ours sends. */
    table form {
        key = {
            hdr.atp.server: ternary;
            hdr.atp.half: ternary;
            hdr.atp.reserved: ternary;
            hdr.atp.app: ternary;
            hdr.atp.ack: ternary;
            hdr.atp.resend: ternary;
        }
        actions = { sound; NoAction; }
        const default_action = NoAction();
        const entries = {
            (_, _, _, 0, _, _): NoAction();
            (0, 0, 0, _, 1, 0): sound();
            (0, 0, 0, _, 0, _): sound();
        }
        size = 4;
    }
    action within() {
        meta.inside = 1;
    }
    table is_within {
        key = { hdr.atp.index: range; }
        actions = { within; NoAction; }
        const default_action = NoAction();
        const entries = {
            0 .. ATP_AGGREGATORS - 1: within();
        }
        size = 1;
    }

    action find_second() {
        meta.second = hdr.atp.index + ATP_AGGREGATORS;
        meta.bit_ = hdr.atp.bitmap;
        hdr.pass.cell = hdr.atp.index;
    }
    table to_find_second {
        actions = { find_second; }
        const default_action = find_second();
        size = 1;
    }

    action mark(bit<1> asks, bit<8> ecn, bit<8> col) {
        meta.asks = asks;
        meta.ecn = ecn;
        meta.col = col;
    }
    action mark_congested(bit<1> asks, bit<8> col) {
        hdr.atp.ecn = 1;
        meta.asks = asks;
        meta.ecn = 1;
        meta.col = col;
    }
    // One table, for each `if` in front of what decides is a stage.
#define MARKS(resend, collision, asks)                                     \
            (resend, collision, 0, 3, _): mark_congested(asks, 0);         \
            (resend, collision, 1, 3, _): mark_congested(asks, 1);         \
            (resend, collision, 0, _, 0): mark(asks, 0, 0);                \
            (resend, collision, 0, _, 1): mark(asks, 1, 0);                \
            (resend, collision, 1, _, 0): mark(asks, 0, 1);                \
            (resend, collision, 1, _, 1): mark(asks, 1, 1);
    table marks {
        key = {
            hdr.atp.resend: exact;
            hdr.atp.collision: exact;
            hdr.atp.col: exact;
            hdr.ipv4.service[1:0]: ternary @name("congestion");
            hdr.atp.ecn: ternary;
        }
        actions = { mark; mark_congested; NoAction; }
        const default_action = NoAction();
        const entries = {
            MARKS(0, 0, 0) MARKS(0, 1, 1) MARKS(1, 0, 1) MARKS(1, 1, 1)
        }
        size = 24;
    }

    action acknowledge(bit<8> next) {
        meta.other = 1;
        manager.mcast_grp_a = meta.group;
        step = next;
    }
    // a2tp 5.1, step 1: what is no fixed point is the server's to add.
    action pass_by() {
        hdr.pass.then = THEN_PORT;
    }
    action contribution(bit<8> next) {
        step = next;
    }
    // What a packet is. Its keys are found side by side.
    table enter {
        key = {
            meta.is_sound: exact;
            meta.matches: exact;
            hdr.atp.ack: exact;
            meta.inside: ternary;
            hdr.atp.overflow: ternary;
            meta.asks: ternary;
            meta.alone: ternary;
            meta.is_server: ternary;
            meta.is_member: ternary;
        }
        actions = { acknowledge; pass_by; contribution; NoAction; }
        const default_action = NoAction();
        const entries = {
            (1, 1, 1, 1, 0, _, _, 1, _): acknowledge(STEP_ACK);
            (1, 1, 1, _, _, _, _, 1, _): acknowledge(STEP_NONE);
            (1, 1, 0, 1, 1, _, _, _, 1): pass_by();
            (1, 1, 0, 1, 0, 1, _, _, 1): contribution(STEP_LOOK);
            (1, 1, 0, 1, 0, _, 1, _, 1): contribution(STEP_LOOK);
            (1, 1, 0, 1, 0, _, _, _, 1): contribution(STEP_TAKE);
        }
        size = 8;
    }

    action send() {
        hdr.pass.then = THEN_PORT;
    }
    action collide() {
        hdr.atp.collision = 1;
        hdr.pass.then = THEN_PORT;
    }
    // What has been flushed: the server adds it.
    action send_late() {
        hdr.atp.resend = 1;
        hdr.pass.then = THEN_PORT;
    }
    action store() {
        hdr.pass.op = DO_SET;
    }
    action add() {
        hdr.pass.op = DO_ADD;
    }
    action sum(bit<1> resend) {
        hdr.pass.op = DO_ADD;
        hdr.pass.then = THEN_PORT;
        hdr.atp.resend = resend;
        meta.carries = 1;
    }
    // The sum may have been lost; where it was not complete, the server completes it (a2tp 5.1, steps 2d and 3).
    action load() {
        hdr.pass.op = DO_SKIP;
        hdr.pass.then = THEN_PORT;
        hdr.atp.resend = 1;
        meta.carries = 1;
    }
    action load_sum() {
        hdr.pass.op = DO_SKIP;
        hdr.pass.then = THEN_PORT;
        hdr.atp.resend = 1;
        hdr.atp.collision = 0;
        meta.carries = 1;
    }
    // a2tp 5.1, by step, who was missing, whether the packet's workers were, and who is missing.
    table judge {
        key = { step: exact; meta.before: ternary; meta.open: ternary; meta.after: ternary; }
        actions = { send; collide; send_late; store; add; sum; load; load_sum; NoAction; }
        const default_action = NoAction();
        const entries = {
            (STEP_LOOK, _, _, _): send();
            (STEP_COLLIDES, _, _, _): collide();
            (STEP_TAKES, _, _, _): store();
            (STEP_OURS, FLUSHED, _, _): send_late();
            (STEP_ASKS, FLUSHED, _, _): send();
            (STEP_OURS, 0, _, _): load();
            (STEP_OURS, _, 0, _): NoAction();
            (STEP_OURS, _, _, 0): sum(0);
            (STEP_OURS, _, _, _): add();
            (STEP_ASKS, 0, _, _): load_sum();
            (STEP_ASKS, _, 0, _): load();
            (STEP_ASKS, _, _, _): sum(1);
        }
        size = 16;
    }

    action carry() {
        hdr.atp.bitmap = meta.all & ~meta.after;
    }
    table to_carry {
        actions = { carry; }
        const default_action = carry();
        size = 1;
    }
    action carry_marks(bit<1> ecn, bit<1> col) {
        hdr.atp.ecn = ecn;
        hdr.atp.col = col;
    }
    table to_carry_marks {
        key = { meta.met_ecn: exact; meta.met_col: exact; }
        actions = { carry_marks; NoAction; }
        const default_action = NoAction();
        const entries = {
            (0, 0): carry_marks(0, 0);
            (0, 1): carry_marks(0, 1);
            (1, 0): carry_marks(1, 0);
            (1, 1): carry_marks(1, 1);
        }
        size = 4;
    }

    apply {
        bit<1> again = 0;
        step = STEP_NONE;
        if (!hdr.pass.isValid()) {
            hdr.pass.setValid();
            hdr.pass.op = DO_NOTHING;
            hdr.pass.number = 0;
            hdr.pass.left = PASSES - 1;
            hdr.pass.then = THEN_DROP;
            hdr.pass.target = 0;
            hdr.pass.cell = 0;
            meta.now = parsed.global_tstamp[47:16]; // units of 65.536 us
            if (!hdr.atp.isValid()) {
                meta.other = 1;
                forward.apply();
            } else if (parsed.parser_err == PARSER_ERROR_OK) {
                to_find_second.apply();
                meta.tag = hdr.atp.app ++ hdr.atp.seq;
                marks.apply();
                is_within.apply();
                form.apply();
                server.apply();
                member.apply();
                if (hdr.atp.second_index == meta.second) {
                    meta.matches = 1;
                }
                enter.apply();
            }
            if (step != STEP_NONE) {
                aggregator.apply(hdr, meta, step);
                judge.apply();
                if (meta.carries == 1) {
                    to_carry.apply();
                    to_carry_marks.apply();
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
        if (meta.other == 0) {
            if (again == 1) {
                manager.ucast_egress_port = AGAIN_PORT;
            } else if (hdr.pass.then == THEN_PORT) {
                manager.ucast_egress_port = (bit<9>) hdr.pass.target;
            } else {
                discard();
            }
        }
    }
}

control AtpIngressDeparser(packet_out packet, inout headers_t hdr, in meta_t meta, in ingress_intrinsic_metadata_for_deparser_t deparsed) {
    apply {
        packet.emit(hdr);
    }
}

parser AtpEgressParser(packet_in packet, out headers_t hdr, out egress_meta_t meta, out egress_intrinsic_metadata_t standard) {
    // What follows stays where it is.
    state start {
        packet.extract(standard);
        packet.extract(hdr.pass);
        transition accept;
    }
}

control AtpEgress(inout headers_t hdr, inout egress_meta_t meta, in egress_intrinsic_metadata_t standard,
                  in egress_intrinsic_metadata_from_parser_t parsed, inout egress_intrinsic_metadata_for_deparser_t deparsed,
                  inout egress_intrinsic_metadata_for_output_port_t output) {
    apply {
        if (standard.egress_port != AGAIN_PORT) {
            hdr.pass.setInvalid();
        }
    }
}

control AtpEgressDeparser(packet_out packet, inout headers_t hdr, in egress_meta_t meta,
                          in egress_intrinsic_metadata_for_deparser_t deparsed) {
    apply {
        packet.emit(hdr);
    }
}

Pipeline(AtpIngressParser(), AtpIngress(), AtpIngressDeparser(), AtpEgressParser(), AtpEgress(), AtpEgressDeparser()) pipeline;
Switch(pipeline) main;
