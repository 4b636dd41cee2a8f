/* NetReduce's accelerator in one rack (v1model; netreduce 2, 3, 5.2): in the middle of the reliable connections of a ring of network cards, it
 * holds their writes, and lets each go on in its own connection with the sum as its payload.
 *
 * Packets are those of RoCEv2 with the INA header (`netreduce 2`). Elements are integers, little-endian, as cards copy them.
 *
 * The ICRC covers the payload, so it is checked and made anew, as a hash over all fields of a packet. bmv2 hashes a kilobyte; a switch like Tofino
 * hashes some words of what its parser has taken apart, and could not: there the accelerator is where the paper has it, in an FPGA beside the
 * switch (NetReduce 4), or a port's MAC makes the ICRC.
 *
 * The paper's accelerator holds the packets of all workers and adds them up when they are there; here each is added once as it comes, and
 * a worker's bit tells a repetition. That is the same as long as what is sent again is the same, which reliable connections promise (`netreduce 9`,
 * P6, P7). Headers are not held either: number and address of a packet follow from its message's first one. So a sum's headers are made when copies
 * of the last packet leave, one for each worker.
 *
 * Messages of two windows have slots and entries, four of each. A packet that is not the first of its message looks at all four entries of its
 * connection, and a sum frees the slot of the message a window ago. On hardware each of the four is an array of its own, so that each is accessed
 * once.
 */
#include <core.p4>
#include <v1model.p4>

#include "generated.p4"

/* Ranks of a ring, and messages that have slots. */
#define RANKS 32
#define KEPT 4
#define SLOTS (KEPT * NETREDUCE_PACKETS)

#define NETREDUCE_FIELD(i) bit<32> v##i;
header front_h { NETREDUCE_FRONT(NETREDUCE_FIELD) }
header elements_h { NETREDUCE_ELEMENTS(NETREDUCE_FIELD) }

struct headers_t {
    ethernet_h ethernet;
    ipv4_h ipv4;
    udp_h udp;
    bth_h bth;
    reth_h reth;
    ina_h ina;
    front_h front;
    elements_h elements;
    icrc_h icrc;
}

/* States of a slot. */
const bit<2> EMPTY = 0;
const bit<2> AGGREGATING = 1;
const bit<2> DONE = 2;

/* What becomes of a packet. */
const bit<8> THEN_DROP = 0;
const bit<8> THEN_ALL = 1;
const bit<8> THEN_ONE = 2;

struct meta_t {
    bit<16> ring;
    bit<32> all;      // bits of all workers
    bit<16> packets;  // of a message at most
    bit<16> group;    // all workers
    bit<32> rank;     // whose connection it is
    bit<32> bit_;
    bit<9> end;       // the port at which that ends
    bit<8> then;
    bit<32> message;
    bit<16> offset;
    bit<32> marks;    // workers whose contributions met congestion
}

/* What first packets have said of each connection's messages. Egress makes headers of it. */
register<bit<32>>(RANKS * KEPT) entry_messages;
register<bit<24>>(RANKS * KEPT) entry_numbers;
register<bit<32>>(RANKS * KEPT) entry_lengths;
register<bit<32>>(RANKS * KEPT) entry_addresses;
register<bit<16>>(RANKS * KEPT) entry_packets;

parser NetReduceParser(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            KIND_IPV4: ipv4;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.version, hdr.ipv4.words, hdr.ipv4.more, hdr.ipv4.offset, hdr.ipv4.protocol) {
            (4, 5, 0, 0, PROTOCOL_UDP): udp;
            default: accept;
        }
    }

    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst) {
            ROCE_PORT: bth;
            default: accept;
        }
    }

    state bth {
        packet.extract(hdr.bth);
        transition select(hdr.bth.opcode) {
            WRITE_FIRST: first;
            WRITE_ONLY: first;
            WRITE_MIDDLE: next;
            WRITE_LAST: next;
            default: accept;
        }
    }

    state first {
        packet.extract(hdr.reth);
        packet.extract(hdr.ina);
        transition elements;
    }

    state next {
        packet.extract(hdr.front);
        transition elements;
    }

    state elements {
        packet.extract(hdr.elements);
        packet.extract(hdr.icrc);
        transition accept;
    }
}

control NetReduceVerify(inout headers_t hdr, inout meta_t meta) {
    apply {
        verify_checksum(hdr.icrc.isValid(), { hdr.ipv4.version, hdr.ipv4.words, hdr.ipv4.service, hdr.ipv4.length, hdr.ipv4.id,
            hdr.ipv4.reserved, hdr.ipv4.whole, hdr.ipv4.more, hdr.ipv4.offset, hdr.ipv4.hops, hdr.ipv4.protocol, hdr.ipv4.src,
            hdr.ipv4.dst }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

#define SWAPPED(x) (x[7:0] ++ x[15:8] ++ x[23:16] ++ x[31:24])
#define NETREDUCE_VALUE(i) hdr.elements.v##i,
#define NETREDUCE_FRONT_VALUE(i) hdr.front.v##i,

/* InfiniBand Architecture, annex A17.3.3: what routers change counts as ones, and so do eight bytes in front. */
#define ICRC_HEADERS 64w0xffffffffffffffff, hdr.ipv4.version, hdr.ipv4.words, 8w0xff, hdr.ipv4.length, hdr.ipv4.id, hdr.ipv4.reserved, \
    hdr.ipv4.whole, hdr.ipv4.more, hdr.ipv4.offset, 8w0xff, hdr.ipv4.protocol, 16w0xffff, hdr.ipv4.src, hdr.ipv4.dst, hdr.udp.src, \
    hdr.udp.dst, hdr.udp.length, 16w0xffff, hdr.bth.opcode, hdr.bth.events, hdr.bth.pad, hdr.bth.version, hdr.bth.partition, 8w0xff, \
    hdr.bth.queue_pair, hdr.bth.asks, hdr.bth.reserved, hdr.bth.psn

control Icrc(in headers_t hdr, out bit<32> crc) {
    apply {
        if (hdr.ina.isValid()) {
            hash(crc, HashAlgorithm.crc32, 32w0, { ICRC_HEADERS, hdr.reth.high, hdr.reth.address, hdr.reth.region, hdr.reth.length,
                hdr.ina.tag, hdr.ina.ring, hdr.ina.rank, hdr.ina.message, hdr.ina.packets, hdr.ina.summed,
                NETREDUCE_ELEMENTS(NETREDUCE_VALUE) 0w0 }, 64w0x100000000);
        } else {
            hash(crc, HashAlgorithm.crc32, 32w0, { ICRC_HEADERS, NETREDUCE_FRONT(NETREDUCE_FRONT_VALUE)
                NETREDUCE_ELEMENTS(NETREDUCE_VALUE) 0w0 }, 64w0x100000000);
        }
        crc = SWAPPED(crc);
    }
}

#define NETREDUCE_REGISTER(i) register<bit<32>>(SLOTS) value_##i;
#define NETREDUCE_SWAP(i) hdr.elements.v##i = SWAPPED(hdr.elements.v##i);
#define NETREDUCE_STORE(i) value_##i.write(at, hdr.elements.v##i);
#define NETREDUCE_SUM(i) value_##i.read(word, at); word = word + hdr.elements.v##i; value_##i.write(at, word); hdr.elements.v##i = word;
#define NETREDUCE_LOAD(i) value_##i.read(hdr.elements.v##i, at);
#define NETREDUCE_FRONT_SWAP(i) hdr.front.v##i = SWAPPED(hdr.front.v##i);
#define NETREDUCE_FRONT_STORE(i) value_##i.write(at, hdr.front.v##i);
#define NETREDUCE_FRONT_SUM(i) value_##i.read(word, at); word = word + hdr.front.v##i; value_##i.write(at, word); hdr.front.v##i = word;
#define NETREDUCE_FRONT_LOAD(i) value_##i.read(hdr.front.v##i, at);

/* Of numbers that wrap. */
#define NEWER(a, b) ((a) != (b) && ((a) - (b))[31:31] == 0)

control NetReduceIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    // By rank: the newest message that has shown its first packet, and whether there is one.
    register<bit<32>>(RANKS) newest;
    register<bit<1>>(RANKS) is_known;
    register<bit<32>>(SLOTS) slot_messages;
    register<bit<2>>(SLOTS) states;
    register<bit<32>>(SLOTS) arrivals;
    register<bit<32>>(SLOTS) marks;
    NETREDUCE_ELEMENTS(NETREDUCE_REGISTER)
    NETREDUCE_FRONT(NETREDUCE_REGISTER)

    Icrc() icrc;

    action set_own(bit<16> ring, bit<32> all, bit<16> packets, bit<16> group) {
        meta.ring = ring;
        meta.all = all;
        meta.packets = packets;
        meta.group = group;
    }

    @name(".own")
    table own {
        actions = { @name(".set_own") set_own; NoAction; }
        default_action = NoAction();
    }

    action contribute(bit<32> rank, bit<32> bit_, bit<9> end) {
        meta.rank = rank;
        meta.bit_ = bit_;
        meta.end = end;
    }

    // `netreduce 3`: the connection lookup table, by addresses and the connection's number.
    @name(".connection")
    table connection {
        key = {
            standard.ingress_port: exact;
            hdr.ipv4.src: exact;
            hdr.ipv4.dst: exact;
            hdr.bth.queue_pair: exact;
        }
        actions = { @name(".contribute") contribute; NoAction; }
        const default_action = NoAction();
        size = 1024;
    }

    action to_port(bit<9> port) {
        standard.egress_spec = port;
    }

    action drop() {
        mark_to_drop(standard);
    }

    // `netreduce 5.6`: what is no contribution goes by.
    @name(".forward")
    table forward {
        key = { hdr.ipv4.dst: exact; }
        actions = { @name(".to_port") to_port; drop; }
        const default_action = drop();
        size = 4096;
    }

    apply {
        meta.then = THEN_DROP;
        if (standard.parser_error != error.NoError || !hdr.ipv4.isValid()) {
            drop();
            return;
        }
        own.apply();
        if (!hdr.icrc.isValid() || !connection.apply().hit) {
            forward.apply();
            return;
        }

        // All checks of a network card, and those of flow control.
        bool is_first = hdr.ina.isValid();
        bit<16> packet_bytes = UDP_BYTES + BTH_BYTES + NETREDUCE_DATA_BYTES + ICRC_BYTES + (is_first ? RETH_BYTES : 0);
        bit<32> crc;
        icrc.apply(hdr, crc);
        bool sound = standard.checksum_error == 0 && crc == hdr.icrc.crc && hdr.ipv4.reserved == 0 && hdr.udp.length == packet_bytes
            && hdr.ipv4.length == packet_bytes + IPV4_BYTES && standard.packet_length == (bit<32>) (packet_bytes + IPV4_BYTES + ETHERNET_BYTES)
            && hdr.bth.events == 0 && hdr.bth.pad == 0 && hdr.bth.version == 0 && hdr.bth.partition == 0xffff && hdr.bth.notifies == 0
            && hdr.bth.unused == 0 && hdr.bth.summed == 0 && hdr.bth.reserved == 0;
        if (is_first) {
            sound = sound && hdr.ina.tag == INA_TAG && hdr.ina.ring == meta.ring && (bit<32>) hdr.ina.rank == meta.rank
                && hdr.ina.packets != 0 && hdr.ina.packets <= meta.packets && hdr.ina.summed == 0 && hdr.reth.high == 0
                && hdr.reth.region == (bit<32>) meta.ring && (hdr.ina.packets == 1) == (hdr.bth.opcode == WRITE_ONLY);
        }
        if (!sound) {
            drop();
            return;
        }

        // `netreduce 5.2`, steps 1 and 2: which packet of which message it is.
        bool found = false;
        bit<32> latest;
        bit<1> known;
        newest.read(latest, meta.rank);
        is_known.read(known, meta.rank);
        bit<32> entry_message;
        bit<24> entry_number;
        bit<32> entry_length;
        bit<32> entry_address;
        bit<16> entry_count;
        if (is_first) {
            bit<32> entry = meta.rank * KEPT + (hdr.ina.message & (KEPT - 1));
            entry_messages.read(entry_message, entry);
            entry_numbers.read(entry_number, entry);
            entry_lengths.read(entry_length, entry);
            entry_addresses.read(entry_address, entry);
            entry_packets.read(entry_count, entry);
            meta.message = hdr.ina.message;
            meta.offset = 0;
            if (entry_count != 0 && entry_message == hdr.ina.message) {
                found = entry_number == hdr.bth.psn && entry_length == hdr.reth.length && entry_address == hdr.reth.address
                    && entry_count == hdr.ina.packets;
            } else {
                found = true;
                // An old one does not take the place of a newer one.
                if (entry_count == 0 || !NEWER(entry_message, hdr.ina.message)) {
                    entry_messages.write(entry, hdr.ina.message);
                    entry_numbers.write(entry, hdr.bth.psn);
                    entry_lengths.write(entry, hdr.reth.length);
                    entry_addresses.write(entry, hdr.reth.address);
                    entry_packets.write(entry, hdr.ina.packets);
                }
                if (known == 0 || NEWER(hdr.ina.message, latest)) {
                    newest.write(meta.rank, hdr.ina.message);
                    is_known.write(meta.rank, 1);
                }
            }
        } else if (known == 1) {
            bit<32> entry;
            bit<24> ahead;
#define LOOK(back) \
            entry = meta.rank * KEPT + ((latest - back) & (KEPT - 1)); \
            entry_messages.read(entry_message, entry); \
            entry_numbers.read(entry_number, entry); \
            entry_packets.read(entry_count, entry); \
            ahead = hdr.bth.psn - entry_number; \
            if (!found && entry_message == latest - back && ahead < (bit<24>) entry_count) { \
                found = true; \
                meta.message = entry_message; \
                meta.offset = ahead[15:0]; \
            }
            LOOK(0)
            LOOK(1)
            LOOK(2)
            LOOK(3)
            // That of a message's first packet, on a packet of another kind.
            if (meta.offset == 0) {
                found = false;
            }
        }
        if (!found) {
            drop();
            return;
        }

        // Steps 3 to 6.
        bit<32> at = (meta.message & (KEPT - 1)) * NETREDUCE_PACKETS + (bit<32>) meta.offset;
        bit<32> slot_message;
        bit<2> state;
        bit<32> arrived;
        slot_messages.read(slot_message, at);
        states.read(state, at);
        arrivals.read(arrived, at);
        marks.read(meta.marks, at);
        if (state == EMPTY || slot_message != meta.message) {
            if (!NEWER(meta.message, slot_message)) {
                drop();
                return;
            }
            slot_message = meta.message;
            state = AGGREGATING;
            arrived = 0;
        }
        bool stores = false;
        bool adds = false;
        bool loads = false;
        if (state == AGGREGATING) {
            meta.marks = meta.marks & ~meta.bit_;
            // Congestion before the accelerator, as the IPv4 header says.
            if (hdr.ipv4.service[1:0] == 3) {
                meta.marks = meta.marks | meta.bit_;
            }
            if (arrived & meta.bit_ == 0) {
                stores = arrived == 0;
                adds = !stores;
                arrived = arrived | meta.bit_;
                if (arrived == meta.all) {
                    state = DONE;
                    meta.then = THEN_ALL;
                }
            }
        } else {
            // Its receiver has lost the sum: in this connection only (P1).
            loads = true;
            meta.then = THEN_ONE;
        }
        slot_messages.write(at, slot_message);
        states.write(at, state);
        arrivals.write(at, arrived);
        marks.write(at, meta.marks);
        if (meta.then == THEN_ALL) {
            // Whoever sends message m has the sums of all up to m - N (P3).
            bit<32> before = meta.message - NETREDUCE_WINDOW;
            bit<32> freed = (before & (KEPT - 1)) * NETREDUCE_PACKETS + (bit<32>) meta.offset;
            slot_messages.read(slot_message, freed);
            states.read(state, freed);
            if (slot_message == before) {
                states.write(freed, EMPTY);
            }
        }

        // Where there are no words in front (a first packet's), their registers get what nobody reads.
        bit<32> word;
        if (stores || adds) {
            NETREDUCE_ELEMENTS(NETREDUCE_SWAP)
            NETREDUCE_FRONT(NETREDUCE_FRONT_SWAP)
        }
        if (stores) {
            NETREDUCE_ELEMENTS(NETREDUCE_STORE)
            NETREDUCE_FRONT(NETREDUCE_FRONT_STORE)
        } else if (adds) {
            NETREDUCE_ELEMENTS(NETREDUCE_SUM)
            NETREDUCE_FRONT(NETREDUCE_FRONT_SUM)
        } else if (loads) {
            NETREDUCE_ELEMENTS(NETREDUCE_LOAD)
            NETREDUCE_FRONT(NETREDUCE_FRONT_LOAD)
        }
        if (meta.then != THEN_DROP) {
            NETREDUCE_ELEMENTS(NETREDUCE_SWAP)
            NETREDUCE_FRONT(NETREDUCE_FRONT_SWAP)
        }
        if (meta.then == THEN_ALL) {
            standard.mcast_grp = meta.group;
        } else if (meta.then == THEN_ONE) {
            standard.egress_spec = meta.end;
        } else {
            drop();
        }
    }
}

control NetReduceEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    Icrc() icrc;
    bit<32> rank;
    bit<32> bit_;

    // Whose connection ends at a port, and what is around its packets.
    action set_ending(bit<32> rank_, bit<32> own_bit, bit<48> src, bit<48> dst, bit<32> ip_src, bit<32> ip_dst, bit<16> udp) {
        rank = rank_;
        bit_ = own_bit;
        hdr.ethernet.src = src;
        hdr.ethernet.dst = dst;
        hdr.ipv4.src = ip_src;
        hdr.ipv4.dst = ip_dst;
        hdr.udp.src = udp;
    }

    action drop() {
        mark_to_drop(standard);
    }

    @name(".ending")
    table ending {
        key = { standard.egress_port: exact; }
        actions = { @name(".set_ending") set_ending; drop; }
        const default_action = drop();
        size = 64;
    }

    apply {
        rank = 0;
        bit_ = 0;
        if (meta.then == THEN_DROP) {
            return;
        }
        if (!ending.apply().hit) {
            return;
        }
        hdr.ipv4.service = 0;
        hdr.ipv4.id = 0;
        hdr.ipv4.whole = 1;
        hdr.ipv4.hops = HOPS;
        hdr.udp.checksum = 0;
        hdr.bth.summed = 1;
        hdr.bth.marked = 0;
        bit<32> entry = rank * KEPT + (meta.message & (KEPT - 1));
        bit<32> message;
        bit<24> number;
        bit<16> packets;
        entry_messages.read(message, entry);
        entry_numbers.read(number, entry);
        entry_packets.read(packets, entry);
        // A receiver whose sender's first packet has never come misses this one, and has it sent again.
        if (packets == 0 || message != meta.message || meta.offset >= packets) {
            drop();
            return;
        }
        bool last = meta.offset + 1 == packets;
        if (meta.then == THEN_ALL) {
            hdr.bth.queue_pair = rank[23:0] + 2;
            hdr.bth.psn = number + (bit<24>) meta.offset;
            hdr.bth.asks = last || hdr.bth.psn & (ACK_EVERY - 1) == ACK_EVERY - 1 ? 1w1 : 1w0;
            hdr.bth.marked = meta.marks & bit_ != 0 ? 1w1 : 1w0;
        }
        if (hdr.ina.isValid()) {
            hdr.bth.opcode = last ? WRITE_ONLY : WRITE_FIRST;
            entry_addresses.read(hdr.reth.address, entry);
            entry_lengths.read(hdr.reth.length, entry);
            hdr.ina.rank = rank[15:0];
            hdr.ina.packets = packets;
        } else {
            hdr.bth.opcode = last ? WRITE_LAST : WRITE_MIDDLE;
        }
        icrc.apply(hdr, hdr.icrc.crc);
    }
}

control NetReduceChecksum(inout headers_t hdr, inout meta_t meta) {
    apply {
        update_checksum(meta.then != THEN_DROP, { hdr.ipv4.version, hdr.ipv4.words, hdr.ipv4.service, hdr.ipv4.length,
            hdr.ipv4.id, hdr.ipv4.reserved, hdr.ipv4.whole, hdr.ipv4.more, hdr.ipv4.offset, hdr.ipv4.hops, hdr.ipv4.protocol,
            hdr.ipv4.src, hdr.ipv4.dst }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control NetReduceDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.udp);
        packet.emit(hdr.bth);
        packet.emit(hdr.reth);
        packet.emit(hdr.ina);
        packet.emit(hdr.front);
        packet.emit(hdr.elements);
        packet.emit(hdr.icrc);
    }
}

V1Switch(NetReduceParser(), NetReduceVerify(), NetReduceIngress(), NetReduceEgress(), NetReduceChecksum(), NetReduceDeparser()) main;
