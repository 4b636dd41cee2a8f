/* Rina's switch (v1model; rina 1, 3, 4.1, 4.2, 4.4): it sums what its agent has asked for, a slot for each piece, and hands results down.
 *
 * The paper has no packets: these are on Ethernet, with the fields of Fanin's (`rina 2`). A task is one piece.
 *
 * What an agent says of its rack (epoch, operation, members, whom sums go to) holds for all slots. A slot of another epoch or operation is
 * empty: nothing is cleared, but told by what the slot is of (`rina` P5).
 *
 * A result that comes to the rack goes down to its workers and on to the next group at once (`rina 4.2`, 2): its multicast group has the packet by
 * again, as the one that goes on.
 *
 * Each register is read and written at one place, at most once for a packet.
 */
#include <core.p4>
#include <v1model.p4>

#include "generated.p4"

#define RINA_FIELD(i) bit<32> v##i;
header rina_elements_h { RINA_ELEMENTS(RINA_FIELD) }

struct headers_t {
    ethernet_h ethernet;
    rina_h rina;
    rina_task_h task;
    rina_sum_h sum;
    rina_result_h result;
    rina_elements_h elements;
}

/* Packets that pass again come from no port: bmv2 says so. */
const bit<32> IS_AGAIN = 4;
const bit<9> AGAIN_PORT = 510;

/* What becomes of a packet. */
const bit<8> THEN_DROP = 0;
const bit<8> THEN_GROUP = 1;
const bit<8> THEN_ROUTE = 2;

struct meta_t {
    bit<48> all;        // bits of all workers of the switch
    bit<8> width;       // how many there are
    bit<32> mask;       // slots, less one
    bit<48> bit_;       // of the worker at the packet's port, or none
    bit<7> number;      // which one it is
    bit<32> node;       // its host
    bit<32> next;       // the host of a task's next group
    @field_list(0) bit<8> then; // of the pass
    bit<48> set;        // workers that get it
    bit<1> onward;      // and the next group gets it too
    bit<32> to;         // whom it is routed to
    bit<32> onward_to;  // whom the copy that passes again goes to
    bit<16> onward_hops;
}

parser RinaParser(packet_in packet, out headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    state start {
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

    state task {
        packet.extract(hdr.task);
        // A frame is filled up to its least length: what is behind a task is left out.
        packet.advance((standard.packet_length - (bit<32>) (ETHERNET_BYTES + RINA_BYTES + RINA_TASK_BYTES)) << 3);
        transition accept;
    }

    state gradient {
        packet.extract(hdr.sum);
        packet.extract(hdr.elements);
        transition accept;
    }

    state result {
        packet.extract(hdr.result);
        packet.extract(hdr.elements);
        transition accept;
    }
}

control NoChecksum(inout headers_t hdr, inout meta_t meta) {
    apply { }
}

#define RINA_REGISTER(i) register<bit<32>>(RINA_WINDOW) value_##i;
#define RINA_STORE(i) value_##i.write(at, hdr.elements.v##i);
#define RINA_SUM(i) value_##i.read(word, at); hdr.elements.v##i = word + hdr.elements.v##i; value_##i.write(at, hdr.elements.v##i);
#define RINA_LOAD(i) value_##i.read(hdr.elements.v##i, at);

/* What the agent's tasks say of the rack. */
struct rack_t {
    bit<1> known;
    bit<32> time;    // epoch and operation
    bit<32> agent;
    bit<48> members;
    bit<32> next;
}

/* What a slot sums. */
struct slot_t {
    bit<1> taken;
    bit<1> asks;
    bit<1> marked;
    bit<32> time;
    bit<32> number;
    bit<48> piece;   // partition and segment
    bit<48> arrived;
    bit<16> contributors;
}

control RinaIngress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
    register<bit<1>>(1) racks;
    register<bit<32>>(1) times;
    register<bit<32>>(1) agents;
    register<bit<48>>(1) member_sets;
    register<bit<32>>(1) nexts;
    register<bit<3>>(RINA_WINDOW) flags;
    register<bit<32>>(RINA_WINDOW) slot_times;
    register<bit<32>>(RINA_WINDOW) numbers;
    register<bit<48>>(RINA_WINDOW) pieces;
    register<bit<48>>(RINA_WINDOW) arrivals;
    register<bit<16>>(RINA_WINDOW) contributors;
    RINA_ELEMENTS(RINA_REGISTER)

    action set_own(bit<48> all, bit<8> width, bit<32> mask) {
        meta.all = all;
        meta.width = width;
        meta.mask = mask;
    }

    @name(".own")
    table own {
        actions = { @name(".set_own") set_own; NoAction; }
        default_action = NoAction();
    }

    action set_member(bit<48> bit_, bit<7> number, bit<32> node) {
        meta.bit_ = bit_;
        meta.number = number;
        meta.node = node;
    }

    // The worker at a port.
    @name(".member")
    table member {
        key = { standard.ingress_port: exact; }
        actions = { @name(".set_member") set_member; NoAction; }
        const default_action = NoAction();
        size = 64;
    }

    action set_next(bit<32> node) {
        meta.next = node;
    }

    // A worker of the job, by rank.
    @name(".rank")
    table rank {
        key = { hdr.task.next: exact; }
        actions = { @name(".set_next") set_next; NoAction; }
        const default_action = NoAction();
        size = 32768;
    }

    action to_port(bit<9> port) {
        standard.egress_spec = port;
    }

    action drop() {
        mark_to_drop(standard);
    }

    // The way to a worker's host.
    @name(".way")
    table way {
        key = { meta.to: exact; }
        actions = { @name(".to_port") to_port; drop; }
        const default_action = drop();
        size = 32768;
    }

    // `rina 4.1`, 3: the sum goes to the next group.
    action send_sum(bit<32> next, slot_t slot) {
        hdr.rina.kind = KIND_OF_SUM;
        hdr.rina.flag = slot.marked;
        hdr.rina.value = 0;
        hdr.rina.asks = slot.asks;
        hdr.task.setInvalid();
        hdr.sum.setValid();
        hdr.sum.contributors = slot.contributors;
        hdr.sum.pad = 0;
        meta.then = THEN_ROUTE;
        meta.to = next;
    }

    // `rina 4.1`, 2: workers are asked for the piece.
    action pull(bit<48> set, bit<1> fresh) {
        hdr.rina.kind = KIND_OF_PULL;
        hdr.rina.flag = fresh;
        hdr.rina.value = 1;
        hdr.rina.asks = 0;
        hdr.task.setInvalid();
        hdr.sum.setValid();
        hdr.sum.contributors = 0;
        hdr.sum.pad = 0;
        meta.then = THEN_GROUP;
        meta.set = set;
    }

    apply {
        meta.then = THEN_DROP;
        if (standard.instance_type == IS_AGAIN) {
            // It goes on to the next group.
            meta.then = THEN_ROUTE;
            meta.to = hdr.result.to;
        } else if (standard.parser_error == error.NoError && hdr.rina.isValid()) {
            own.apply();
            bool at_member = member.apply().hit;
            bit<32> bytes = (bit<32>) (ETHERNET_BYTES + RINA_BYTES + RINA_SUM_BYTES + RINA_DATA_BYTES);
            bool full = standard.packet_length == bytes;
            bool is_task = false;
            bool is_gradient = false;
            bool is_result = false;
            if (hdr.task.isValid()) {
                is_task = hdr.rina.flag == 0 && hdr.rina.value == 1 && at_member && hdr.task.members & meta.bit_ != 0
                    && hdr.task.members & ~meta.all == 0;
                if (is_task) {
                    is_task = rank.apply().hit;
                }
            } else if (hdr.sum.isValid()) {
                is_gradient = full && hdr.sum.pad == 0 && at_member && hdr.rina.value == meta.number;
            } else if (hdr.result.isValid()) {
                is_result = full && hdr.rina.flag == 0 && hdr.rina.value <= 2;
            }

            // What is known of the rack. A task of an older epoch or operation changes nothing.
            bit<32> time = hdr.rina.epoch ++ hdr.rina.operation;
            rack_t rack;
            racks.read(rack.known, 0);
            times.read(rack.time, 0);
            bit<16> epochs = rack.time[31:16] - hdr.rina.epoch;
            bit<16> operations = rack.time[15:0] - hdr.rina.operation;
            bool older = rack.known == 1 && ((epochs != 0 && epochs < 0x8000) || (epochs == 0 && operations != 0 && operations < 0x8000));
            bit<1> fresh = rack.known == 1 && rack.time == time ? 1w0 : 1w1;
            is_task = is_task && !older;
            agents.read(rack.agent, 0);
            member_sets.read(rack.members, 0);
            nexts.read(rack.next, 0);
            if (is_task) {
                rack = { 1, time, meta.node, hdr.task.members, meta.next };
            }
            racks.write(0, rack.known);
            times.write(0, rack.time);
            agents.write(0, rack.agent);
            member_sets.write(0, rack.members);
            nexts.write(0, rack.next);

            if (is_task || is_gradient) {
                bit<32> at = (bit<32>) hdr.rina.number & meta.mask;
                bit<48> piece = hdr.rina.partition ++ hdr.rina.segment;
                bit<3> flag;
                slot_t slot;
                flags.read(flag, at);
                slot.taken = flag[2:2];
                slot.asks = flag[1:1];
                slot.marked = flag[0:0];
                slot_times.read(slot.time, at);
                numbers.read(slot.number, at);
                pieces.read(slot.piece, at);
                arrivals.read(slot.arrived, at);
                contributors.read(slot.contributors, at);
                // What is of another epoch or operation is empty.
                bool taken = slot.taken == 1 && slot.time == rack.time;
                bit<32> later = (bit<32>) hdr.rina.number - slot.number;
                bool same = taken && rack.time == time && later == 0 && slot.piece == piece;
                bit<48> missing = rack.members & ~slot.arrived;
                bool adds = false;
                bool stores = false;
                bool loads = false;
                if (is_task) {
                    if (!taken || (later != 0 && later[31:31] == 0)) {
                        slot = { 1, hdr.rina.asks, 0, time, (bit<32>) hdr.rina.number, piece, 0, 0 };
                        pull(rack.members, fresh);
                    } else if (same) {
                        // `rina 4.4`: only who is missing is asked again; what is complete goes out again.
                        slot.asks = slot.asks | hdr.rina.asks;
                        if (missing == 0) {
                            loads = true;
                            send_sum(rack.next, slot);
                        } else {
                            pull(missing, 0);
                        }
                    }
                } else if (rack.known == 1 && rack.members & meta.bit_ != 0 && same && hdr.rina.asks == 0
                    && slot.arrived & meta.bit_ == 0) {
                    stores = slot.arrived == 0;
                    adds = !stores;
                    slot.arrived = slot.arrived | meta.bit_;
                    slot.contributors = slot.contributors + hdr.sum.contributors;
                    slot.marked = slot.marked | hdr.rina.flag;
                    if (slot.arrived == rack.members) {
                        send_sum(rack.next, slot);
                    }
                }
                flags.write(at, slot.taken ++ slot.asks ++ slot.marked);
                slot_times.write(at, slot.time);
                numbers.write(at, slot.number);
                pieces.write(at, slot.piece);
                arrivals.write(at, slot.arrived);
                contributors.write(at, slot.contributors);

                bit<32> word;
                if (stores) {
                    RINA_ELEMENTS(RINA_STORE)
                } else if (adds) {
                    RINA_ELEMENTS(RINA_SUM)
                } else if (loads) {
                    hdr.elements.setValid();
                    RINA_ELEMENTS(RINA_LOAD)
                }
            } else if (is_result) {
                if (rack.known == 1 && rack.time == time && rack.agent == hdr.result.to && hdr.rina.value == 0) {
                    // `rina 4.2`, 2.
                    meta.then = THEN_GROUP;
                    meta.set = at_member ? rack.members & ~meta.bit_ : rack.members;
                    meta.onward = hdr.result.hops != 0 ? 1w1 : 1w0;
                    meta.onward_to = rack.next;
                    meta.onward_hops = hdr.result.hops - 1;
                    hdr.rina.value = 1;
                    hdr.result.hops = 0;
                } else if (!(at_member && meta.node == hdr.result.to)) {
                    meta.then = THEN_ROUTE;
                    meta.to = hdr.result.to;
                }
            }
        }

        if (meta.then == THEN_ROUTE) {
            way.apply();
        } else if (meta.then == THEN_GROUP) {
            // Each set of workers has a group, and one that has the packet by again; the empty one has none.
            standard.mcast_grp = (bit<16>) meta.set | ((bit<16>) meta.onward << meta.width);
            if (standard.mcast_grp == 0) {
                drop();
            }
        } else {
            drop();
        }
    }
}

control RinaEgress(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t standard) {
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
            hdr.rina.value = 0;
            hdr.result.to = meta.onward_to;
            hdr.result.hops = meta.onward_hops;
            recirculate_preserving_field_list(0);
        } else {
            neighbour.apply();
        }
    }
}

control RinaDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.rina);
        packet.emit(hdr.task);
        packet.emit(hdr.sum);
        packet.emit(hdr.result);
        packet.emit(hdr.elements);
    }
}

V1Switch(RinaParser(), NoChecksum(), RinaIngress(), RinaEgress(), NoChecksum(), RinaDeparser()) main;
