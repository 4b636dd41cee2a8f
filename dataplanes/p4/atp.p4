/*
 * The switch of ATP and A2TP (a2tp 2, 3, 5.1, 5.2; A2TP, Fig. 6): aggregators that all jobs share, first come, first served. What finds its
 * aggregator taken goes on to the job's server, which adds it.
 *
 * The packet is the one of A2TP's published code: Ethernet (type 0x0700), IPv4, 15 bytes of ATP, 62 words, and 12 bytes that the switch does
 * not look at. One level of aggregators, one server a job, up to 31 workers a job.
 *
 * Each array of registers is accessed once a packet, at one place, as a stateful ALU can: what is read there says what is written. The two
 * indices of a packet name its aggregator in the first and the second half of the pipeline's memory; bmv2 has one, so that one index is used
 * for all words, and the other must fit it.
 */
#include <core.p4>
#include <v1model.p4>
#include "generated.p4"

#define ATP_FIELD(i) bit<32> v##i;
header atp_elements_h { ATP_ELEMENTS(ATP_FIELD) }

struct headers_t {
    ethernet_h ethernet;
    ipv4_h ipv4;
    atp_h atp;
    atp_elements_h elements;
    atp_tail_h tail;
}

struct metadata_t {
    /* All workers of the job, where its server is, and after how long an aggregator is anybody's (a2tp 9, P4). */
    bit<32>   all;
    bit<9>  server_port;
    bit<32>   reclaim_us;
}

parser AtpParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            KIND_ATP: atp;
            default: accept;
        }
    }

    state atp {
        packet.extract(hdr.ipv4);
        packet.extract(hdr.atp);
        packet.extract(hdr.elements);
        packet.extract(hdr.tail);
        transition accept;
    }
}

control NoChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {}
}

#define ATP_REGISTER(i) register<bit<32>>(ATP_AGGREGATORS) value_##i;
#define ATP_STORE(i)    value_##i.write(at, hdr.elements.v##i);
#define ATP_ADD(i)      value_##i.read(word, at); value_##i.write(at, word + hdr.elements.v##i);
#define ATP_SUM(i)      value_##i.read(word, at); hdr.elements.v##i = word + hdr.elements.v##i; value_##i.write(at, hdr.elements.v##i);
#define ATP_LOAD(i)     value_##i.read(hdr.elements.v##i, at);

/* In place of the workers that are missing: what was there has been sent on (Fanin's `Flushed`, a2tp 9, P1). */
const bit<32> FLUSHED = 0x80000000;

/* What is met in an aggregator, besides its owner: the job that had it last, whether another fragment wanted it when its sum had gone on, and
 * the marks of its contributions. */
struct marks_t {
    bit<16> app;
    bit<1>  late;
    bit<1>  col;
    bit<1>  ecn;
}

control AtpIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    /* Owner (32 bits, 0 for nobody) and when something was last heard of its fragment (32 bits, microseconds). */
    register<bit<64>>(ATP_AGGREGATORS) owners;
    /* The workers that are missing; 0 where the sum is complete. */
    register<bit<32>>(ATP_AGGREGATORS) missing;
    register<bit<32>>(ATP_AGGREGATORS) marks;
    ATP_ELEMENTS(ATP_REGISTER)

    action discard() {
        mark_to_drop(standard);
    }

    /* A worker of a job: its packets come by its port, with its bit and the job's size. */
    action contribute(bit<32> all, bit<9> server_port, bit<32> reclaim_us) {
        meta.all = all;
        meta.server_port = server_port;
        meta.reclaim_us = reclaim_us;
    }

    @name(".member")
    table member {
        key = {
            standard.ingress_port: exact;
            hdr.atp.app: exact;
            hdr.atp.workers: exact;
            hdr.atp.bitmap: exact;
        }
        actions = { @name(".contribute") contribute; discard; }
        const default_action = discard();
        size = 4096;
    }

    /* a2tp 5.2: what comes from a job's server goes to all its workers. */
    action from_server(bit<16> group) {
        standard.mcast_grp = group;
    }

    @name(".server")
    table server {
        key = {
            standard.ingress_port: exact;
            hdr.atp.app: exact;
        }
        actions = { @name(".from_server") from_server; discard; }
        const default_action = discard();
        size = 4096;
    }

    action to_port(bit<9> port) {
        standard.egress_spec = port;
    }

    /* What is no aggregation goes its way. */
    @name(".forward")
    table forward {
        key = { hdr.ethernet.dst: exact; }
        actions = { @name(".to_port") to_port; discard; }
        const default_action = discard();
        size = 4096;
    }

    action to_server() {
        standard.egress_spec = meta.server_port;
    }

    /* The packet carries what the aggregator held: whose contributions, and what they met. */
    action carry(bit<32> ranks, bit<1> resend, bit<1> collision, marks_t met) {
        hdr.atp.bitmap = ranks;
        hdr.atp.resend = resend;
        hdr.atp.collision = collision;
        hdr.atp.ecn = met.ecn;
        hdr.atp.col = met.col;
        standard.egress_spec = meta.server_port;
    }

    /* a2tp 5.2. */
    action acknowledge(bit<32> at, bit<32> tag) {
        bit<64> owner;
        owners.read(owner, at);
        owners.write(at, owner[63:32] == tag ? 0 : owner);
    }

    apply {
        if (standard.parser_error != error.NoError) {
            discard();
            return;
        }
        if (!hdr.atp.isValid()) {
            forward.apply();
            return;
        }
        /* No format that a worker or a server of ours sends. */
        if (hdr.atp.server != 0 || hdr.atp.half != 0 || hdr.atp.reserved != 0 || hdr.atp.app == 0
            || hdr.atp.second_index != hdr.atp.index + (bit<16>) ATP_AGGREGATORS || hdr.atp.ack == 1 && hdr.atp.resend == 1) {
            discard();
            return;
        }
        bit<32> at = (bit<32>)hdr.atp.index;
        bit<32> tag = hdr.atp.app ++ hdr.atp.seq;
        if (hdr.atp.ack == 1) {
            if (server.apply().hit) {
                if (hdr.atp.overflow == 0 && at < ATP_AGGREGATORS) {
                    acknowledge(at, tag);
                }
                if (hdr.ipv4.service[1:0] == 3) {
                    hdr.atp.ecn = 1;
                }
            }
            return;
        }
        if (!member.apply().hit) {
            return;
        }
        if (at >= ATP_AGGREGATORS) {
            discard();
            return;
        }
        if (hdr.ipv4.service[1:0] == 3) {
            hdr.atp.ecn = 1;
        }
        /* a2tp 5.1, step 1: what is no fixed point is the server's to add. */
        if (hdr.atp.overflow == 1) {
            to_server();
            return;
        }

        /* Whose the aggregator is. What was sent again, or has lost elsewhere, takes none. */
        bool asks = hdr.atp.resend == 1 || hdr.atp.collision == 1;
        bit<32> now = (bit<32>)standard.ingress_global_timestamp;
        bit<64> owner;
        owners.read(owner, at);
        bool ours = owner[63:32] == tag;
        bool free = owner[63:32] == 0 || now - owner[31:0] >= meta.reclaim_us;
        /* A lone worker of its switch has nothing to be added to here. */
        bool takes = !ours && free && !asks && hdr.atp.bitmap != meta.all;
        if (ours || takes) {
            owner = tag ++ now;
        }
        owners.write(at, owner);
        if (!ours && (asks || hdr.atp.bitmap == meta.all)) {
            to_server();
            return;
        }

        /* Who is missing (a2tp 5.1, step 2b). */
        bit<32> before;
        missing.read(before, at);
        if (takes) {
            before = meta.all;
        }
        bool collides = !ours && !takes;
        bool flushed = before == FLUSHED;
        bool is_new = !flushed && before & hdr.atp.bitmap != 0;
        bit<32> now_missing = is_new ? before ^ hdr.atp.bitmap : before;
        bit<32> kept = now_missing;
        if (ours && asks) {
            kept = FLUSHED;
        }
        if (!collides) {
            missing.write(at, kept);
        }

        /* What contributions met: congestion, and others that wanted the aggregator (A2TP 3.3). */
        bit<32> word;
        marks_t met;
        marks.read(word, at);
        met = { word[31:16], word[2:2], word[1:1], word[0:0] };
        if (collides) {
            met.late = flushed || before == 0 ? 1w1 : 1w0;
            met.col = 1;
        } else if (takes) {
            /* A job goes round its aggregators: what one met too late to be told is told the next time. */
            bit<1> told = met.app == hdr.atp.app ? met.late : 1w0;
            met = { hdr.atp.app, 0, hdr.atp.col | told, hdr.atp.ecn };
        } else if (!flushed && (!asks || is_new)) {
            met.col = met.col | hdr.atp.col;
            met.ecn = met.ecn | hdr.atp.ecn;
        }
        marks.write(at, met.app ++ 13w0 ++ met.late ++ met.col ++ met.ecn);
        if (collides) {
            hdr.atp.collision = 1;
            to_server();
            return;
        }

        /* The words: stored, added, added and read, or read. */
        if (flushed) {
            if (!asks) {
                hdr.atp.resend = 1;
            }
            to_server();
        } else if (takes) {
            ATP_ELEMENTS(ATP_STORE)
            discard();
        } else if (is_new && !asks && now_missing != 0) {
            ATP_ELEMENTS(ATP_ADD)
            discard();
        } else if (is_new) {
            ATP_ELEMENTS(ATP_SUM)
            carry(meta.all & ~now_missing, (bit<1>)asks, asks ? hdr.atp.collision : 1w0, met);
        } else if (before == 0 || asks) {
            /* The sum may have been lost; where it was not complete, the server completes it (a2tp 5.1, steps 2d and 3). */
            ATP_ELEMENTS(ATP_LOAD)
            carry(meta.all & ~before, 1, before == 0 ? 1w0 : hdr.atp.collision, met);
        } else {
            discard();
        }
    }
}

control AtpEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {}
}

control AtpDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.atp);
        packet.emit(hdr.elements);
        packet.emit(hdr.tail);
    }
}

V1Switch(AtpParser(), NoChecksum(), AtpIngress(), AtpEgress(), NoChecksum(), AtpDeparser()) main;
