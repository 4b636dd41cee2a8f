/* Rina's slots: part of ../rina.p4, which has its types. */
#ifndef RINA_SLOT_P4
#define RINA_SLOT_P4

/* What the packet's slot is of, who has arrived, and what becomes of the packet. */
control Slot(inout headers_t hdr, inout meta_t meta) {
    Register<bit<32>, bit<16>>(CELLS) times;   // epoch and operation
    Register<bit<32>, bit<16>>(CELLS) numbers; // and 1
    Register<piece_t, bit<16>>(CELLS) pieces;
    Register<bit<16>, bit<16>>(CELLS) arrivals;
    Register<bit<16>, bit<16>>(CELLS) counts;
    Register<bit<8>, bit<16>>(CELLS) notes;

    // What is of another epoch or operation is empty (`rina` P5).
    RegisterAction<bit<32>, bit<16>, bit<1>>(times) put_time = {
        void apply(inout bit<32> held, out bit<1> result) {
            result = 0;
            if (held == meta.time) {
                result = 1;
            }
            held = meta.time;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<1>>(times) see_time = {
        void apply(inout bit<32> held, out bit<1> result) {
            result = 0;
            if (held == meta.time) {
                result = 1;
            }
        }
    };
    action time_put() { meta.current = put_time.execute(hdr.pass.cell); }
    action time_see() { meta.current = see_time.execute(hdr.pass.cell); }
    table use_times {
        key = { meta.is: exact; meta.operation: exact; }
        actions = { time_put; time_see; NoAction; }
        const default_action = NoAction();
        const entries = {
            (IS_TASK, LATER): time_put();
            (IS_TASK, SAME): time_put();
            (IS_GRADIENT, SAME): time_see();
        }
        size = 4;
    }

    RegisterAction<bit<32>, bit<16>, bit<4>>(numbers) put_number = {
        void apply(inout bit<32> held, out bit<4> result) {
            result = 0;
            held = meta.number;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<4>>(numbers) advance_number = {
        void apply(inout bit<32> held, out bit<4> result) {
            result = this.predicate(held <= meta.number, held == meta.number);
            if (held <= meta.number) {
                held = meta.number;
            }
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<4>>(numbers) see_number = {
        void apply(inout bit<32> held, out bit<4> result) {
            result = this.predicate(held <= meta.number, held == meta.number);
        }
    };
    action number_put() {
        put_number.execute(hdr.pass.cell);
        meta.later = LATER;
    }
    action number_advance() { meta.later = advance_number.execute(hdr.pass.cell); }
    action number_see() { meta.later = see_number.execute(hdr.pass.cell); }
    table use_numbers {
        key = { meta.is: exact; meta.operation: exact; meta.current: exact; }
        actions = { number_put; number_advance; number_see; NoAction; }
        const default_action = NoAction();
        const entries = {
            (IS_TASK, LATER, 0): number_put();
            (IS_TASK, SAME, 0): number_put();
            (IS_TASK, LATER, 1): number_advance();
            (IS_TASK, SAME, 1): number_advance();
            (IS_GRADIENT, SAME, 1): number_see();
        }
        size = 8;
    }

    RegisterAction<piece_t, bit<16>, bit<4>>(pieces) put_piece = {
        void apply(inout piece_t held, out bit<4> result) {
            result = 0;
            held.segment = hdr.rina.segment;
            held.partition = (bit<32>) hdr.rina.partition;
        }
    };
    RegisterAction<piece_t, bit<16>, bit<4>>(pieces) see_piece = {
        void apply(inout piece_t held, out bit<4> result) {
            result = this.predicate(held.segment == hdr.rina.segment, held.partition == (bit<32>) hdr.rina.partition);
        }
    };
    action piece_put() {
        put_piece.execute(hdr.pass.cell);
        meta.piece = LATER;
    }
    action piece_see() { meta.piece = see_piece.execute(hdr.pass.cell); }
    table use_pieces {
        key = { meta.is: exact; meta.later: exact; }
        actions = { piece_put; piece_see; NoAction; }
        const default_action = NoAction();
        const entries = {
            (IS_TASK, LATER): piece_put();
            (IS_TASK, SAME): piece_see();
            (IS_GRADIENT, SAME): piece_see();
        }
        size = 4;
    }

    RegisterAction<bit<16>, bit<16>, bit<16>>(arrivals) clear = {
        void apply(inout bit<16> held, out bit<16> result) {
            held = 0;
            result = held;
        }
    };
    RegisterAction<bit<16>, bit<16>, bit<16>>(arrivals) see_arrived = {
        void apply(inout bit<16> held, out bit<16> result) {
            result = held;
        }
    };
    RegisterAction<bit<16>, bit<16>, bit<16>>(arrivals) arrive = {
        void apply(inout bit<16> held, out bit<16> result) {
            result = held;
            held = held | meta.bit_;
        }
    };
    action arrivals_clear() { meta.arrived = clear.execute(hdr.pass.cell); }
    action arrivals_see() { meta.arrived = see_arrived.execute(hdr.pass.cell); }
    action arrivals_join() { meta.arrived = arrive.execute(hdr.pass.cell); }
    // Who is no member of the rack adds nothing.
    action stays_out() { meta.piece = NONE; }
    table use_arrivals {
        key = { meta.is: exact; meta.piece: exact; meta.in_rack: ternary; }
        actions = { arrivals_clear; arrivals_see; arrivals_join; stays_out; NoAction; }
        const default_action = NoAction();
        const entries = {
            (IS_TASK, LATER, _): arrivals_clear();
            (IS_TASK, SAME, _): arrivals_see();
            (IS_GRADIENT, SAME, 0): stays_out();
            (IS_GRADIENT, SAME, _): arrivals_join();
        }
        size = 4;
    }

    action compare() {
        meta.seen = meta.arrived & meta.bit_;
        meta.lacks = meta.arrived ^ meta.rest;
        meta.missing = meta.members & ~meta.arrived;
    }
    table to_compare {
        actions = { compare; }
        const default_action = compare();
        size = 1;
    }

    RegisterAction<bit<16>, bit<16>, bit<16>>(counts) clear_count = {
        void apply(inout bit<16> held, out bit<16> result) {
            held = 0;
            result = held;
        }
    };
    RegisterAction<bit<16>, bit<16>, bit<16>>(counts) add_count = {
        void apply(inout bit<16> held, out bit<16> result) {
            held = held + hdr.sum.contributors;
            result = held;
        }
    };
    RegisterAction<bit<16>, bit<16>, bit<16>>(counts) see_count = {
        void apply(inout bit<16> held, out bit<16> result) {
            result = held;
        }
    };
    RegisterAction<bit<8>, bit<16>, bit<8>>(notes) put_note = {
        void apply(inout bit<8> held, out bit<8> result) {
            held = meta.note;
            result = held;
        }
    };
    RegisterAction<bit<8>, bit<16>, bit<8>>(notes) add_note = {
        void apply(inout bit<8> held, out bit<8> result) {
            held = held | meta.note;
            result = held;
        }
    };
    action count_clear() { meta.kept_count = clear_count.execute(hdr.pass.cell); }
    action count_add() { meta.kept_count = add_count.execute(hdr.pass.cell); }
    action count_see() { meta.kept_count = see_count.execute(hdr.pass.cell); }
    action note_put() { meta.kept_note = put_note.execute(hdr.pass.cell); }
    action note_add() { meta.kept_note = add_note.execute(hdr.pass.cell); }
    table use_counts {
        key = { meta.is: exact; meta.piece: exact; meta.seen: ternary; }
        actions = { count_clear; count_add; count_see; NoAction; }
        const default_action = NoAction();
        const entries = {
            (IS_TASK, LATER, _): count_clear();
            (IS_TASK, SAME, _): count_see();
            (IS_GRADIENT, SAME, 0): count_add();
        }
        size = 4;
    }
    table use_notes {
        key = { meta.is: exact; meta.piece: exact; meta.seen: ternary; }
        actions = { note_put; note_add; NoAction; }
        const default_action = NoAction();
        const entries = {
            (IS_TASK, LATER, _): note_put();
            (IS_TASK, SAME, _): note_add();
            (IS_GRADIENT, SAME, 0): note_add();
        }
        size = 4;
    }

    // `rina 4.1`, 2: workers are asked for the piece.
    action pull(bit<1> begins) {
        hdr.rina.kind = KIND_OF_PULL;
        hdr.rina.flag = begins;
        hdr.pass.then = THEN_GROUP;
        hdr.pass.target = meta.members;
    }
    // `rina 4.4`: only who is missing is asked again.
    action pull_again() {
        hdr.rina.kind = KIND_OF_PULL;
        hdr.rina.flag = 0;
        hdr.pass.then = THEN_GROUP;
        hdr.pass.target = meta.missing;
    }
    // What is complete goes out again.
    action load() {
        hdr.pass.op = DO_GET;
        hdr.pass.number = PASSES - 1;
        hdr.pass.cell = hdr.pass.cell + (PASSES - 1) * CELLS;
        hdr.pass.then = THEN_PORT;
        hdr.pass.port = meta.way;
        meta.sends = 1;
    }
    action store() {
        hdr.pass.op = DO_SET;
    }
    action add() {
        hdr.pass.op = DO_ADD;
    }
    // `rina 4.1`, 3: the sum goes to the next group.
    action store_and_send() {
        hdr.pass.op = DO_SET;
        hdr.pass.then = THEN_PORT;
        hdr.pass.port = meta.way;
        meta.sends = 1;
    }
    action add_and_send() {
        hdr.pass.op = DO_ADD;
        hdr.pass.then = THEN_PORT;
        hdr.pass.port = meta.way;
        meta.sends = 1;
    }
    table judge {
        key = {
            meta.is: exact;
            meta.piece: exact;
            meta.operation: ternary;
            meta.seen: ternary;
            meta.arrived: ternary;
            meta.lacks: ternary;
            meta.missing: ternary;
        }
        actions = { pull; pull_again; load; store; add; store_and_send; add_and_send; NoAction; }
        const default_action = NoAction();
        const entries = {
            (IS_TASK, LATER, LATER, _, _, _, _): pull(1);
            (IS_TASK, LATER, _, _, _, _, _): pull(0);
            (IS_TASK, SAME, _, _, _, _, 0): load();
            (IS_TASK, SAME, _, _, _, _, _): pull_again();
            (IS_GRADIENT, SAME, _, 0, 0, 0, _): store_and_send();
            (IS_GRADIENT, SAME, _, 0, _, 0, _): add_and_send();
            (IS_GRADIENT, SAME, _, 0, 0, _, _): store();
            (IS_GRADIENT, SAME, _, 0, _, _, _): add();
        }
        size = 16;
    }

    action fill_sum(bit<1> asks, bit<1> flag) {
        hdr.rina.kind = KIND_OF_SUM;
        hdr.rina.value = 0;
        hdr.rina.asks = asks;
        hdr.rina.flag = flag;
    }
    table to_fill_sum {
        key = { meta.kept_note: exact; }
        actions = { fill_sum; NoAction; }
        const default_action = NoAction();
        const entries = {
            0: fill_sum(0, 0);
            NOTE_MARKED: fill_sum(0, 1);
            NOTE_ASKS: fill_sum(1, 0);
            NOTE_ASKS | NOTE_MARKED: fill_sum(1, 1);
        }
        size = 4;
    }
    action be_sum() {
        hdr.task.setInvalid();
        hdr.sum.setValid();
        hdr.sum.contributors = meta.kept_count;
        hdr.sum.pad = 0;
    }
    table to_be_sum {
        actions = { be_sum; }
        const default_action = be_sum();
        size = 1;
    }
    action be_pull() {
        hdr.task.setInvalid();
        hdr.sum.setValid();
        hdr.sum.contributors = 0;
        hdr.sum.pad = 0;
        hdr.rina.value = 1;
        hdr.rina.asks = 0;
    }
    table to_be_pull {
        actions = { be_pull; }
        const default_action = be_pull();
        size = 1;
    }

    apply {
        use_times.apply();
        use_numbers.apply();
        use_pieces.apply();
        use_arrivals.apply();
        to_compare.apply();
        use_counts.apply();
        use_notes.apply();
        judge.apply();
        if (meta.sends == 1) {
            to_be_sum.apply();
            to_fill_sum.apply();
        } else if (hdr.pass.then == THEN_GROUP) {
            to_be_pull.apply();
        }
    }
}

#endif
