/* Canary's descriptors: part of ../canary.p4, which has its types and steps. */
#ifndef CANARY_DESCRIPTOR_P4
#define CANARY_DESCRIPTOR_P4

struct owner_t {
    bit<32> id;
    bit<32> taken;
}

/* Registers of one word: what the steps do to it. */
#define WORD(name, type, in_, out_)                                            \
    Register<type, bit<16>>(CELLS) name;                                       \
    RegisterAction<type, bit<16>, type>(name) put_##name = {                   \
        void apply(inout type held, out type result) {                         \
            held = in_;                                                        \
            result = held;                                                     \
        }                                                                      \
    };                                                                         \
    RegisterAction<type, bit<16>, type>(name) get_##name = {                   \
        void apply(inout type held, out type result) {                         \
            result = held;                                                     \
        }                                                                      \
    };                                                                         \
    action write_##name() { out_ = put_##name.execute(hdr.pass.cell); }        \
    action read_##name() { out_ = get_##name.execute(hdr.pass.cell); }         \
    table use_##name {                                                         \
        key = { hdr.pass.step: exact; }                                        \
        actions = { write_##name; read_##name; NoAction; }                     \
        const default_action = NoAction();                                     \
        const entries = {                                                      \
            STEP_FIRST: write_##name();                                        \
            STEP_NEXT: read_##name();                                          \
            STEP_CLOCK: read_##name();                                         \
        }                                                                      \
        size = 4;                                                              \
    }

#define CHILDREN(n)                                                            \
    Register<bit<32>, bit<16>>(CELLS) children##n;                             \
    RegisterAction<bit<32>, bit<16>, bit<32>>(children##n) set_child##n = {    \
        void apply(inout bit<32> held, out bit<32> result) {                   \
            held = hdr.pass.ports##n;                                                \
            result = held;                                                     \
        }                                                                      \
    };                                                                         \
    RegisterAction<bit<32>, bit<16>, bit<32>>(children##n) add_child##n = {    \
        void apply(inout bit<32> held, out bit<32> result) {                   \
            held = held | hdr.pass.ports##n;                                         \
            result = held;                                                     \
        }                                                                      \
    };                                                                         \
    RegisterAction<bit<32>, bit<16>, bit<32>>(children##n) get_children##n = { \
        void apply(inout bit<32> held, out bit<32> result) {                   \
            result = held & ~hdr.pass.ports##n;                                \
        }                                                                      \
    };                                                                         \
    action first_child##n() { set_child##n.execute(hdr.pass.cell); }           \
    action next_child##n() { add_child##n.execute(hdr.pass.cell); }            \
    action all_children##n() { hdr.pass.ports##n = get_children##n.execute(hdr.pass.cell); } \
    table use_children##n {                                                    \
        key = { hdr.pass.step: exact; }                                        \
        actions = { first_child##n; next_child##n; all_children##n; NoAction; } \
        const default_action = NoAction();                                     \
        const entries = {                                                      \
            STEP_FIRST: first_child##n();                                      \
            STEP_NEXT: next_child##n();                                        \
            STEP_RELEASE: all_children##n();                                   \
        }                                                                      \
        size = 4;                                                              \
    }

/* A block's descriptor, and what a packet does to it. */
control Descriptor(inout headers_t hdr, inout meta_t meta) {
    Register<owner_t, bit<16>>(CELLS) owners;
    Register<bit<16>, bit<16>>(CELLS) stamps; // when the descriptor was taken
    Register<bit<16>, bit<16>>(CELLS) missing;
    Register<bit<16>, bit<16>>(CELLS) ends;   // when it was sent on
    WORD(leaders, bit<32>, hdr.canary.dst, meta.leader)
    WORD(host_counts, bit<16>, hdr.canary.hosts, meta.hosts)
    CHILDREN(0)
    CHILDREN(1)

    RegisterAction<owner_t, bit<16>, bit<4>>(owners) take = {
        void apply(inout owner_t held, out bit<4> result) {
            result = this.predicate(held.id == hdr.canary.id, held.taken == 0);
            if (held.taken == 0) {
                held.id = hdr.canary.id;
                held.taken = 1;
            }
        }
    };
    RegisterAction<owner_t, bit<16>, bit<4>>(owners) look = {
        void apply(inout owner_t held, out bit<4> result) {
            result = this.predicate(held.id == hdr.canary.id, held.taken == 0);
        }
    };
    RegisterAction<owner_t, bit<16>, bit<32>>(owners) whose = {
        void apply(inout owner_t held, out bit<32> result) {
            result = held.id;
        }
    };
    RegisterAction<owner_t, bit<16>, bit<32>>(owners) release = {
        void apply(inout owner_t held, out bit<32> result) {
            held.taken = 0;
            result = held.id;
        }
    };
    action owner_take() { meta.owner = take.execute(hdr.pass.cell); }
    action owner_look() { meta.owner = look.execute(hdr.pass.cell); }
    action owner_read() { meta.id = whose.execute(hdr.pass.cell); }
    action owner_release() { release.execute(hdr.pass.cell); }
    table use_owners {
        key = { hdr.pass.step: exact; }
        actions = { owner_take; owner_look; owner_read; owner_release; NoAction; }
        const default_action = NoAction();
        const entries = {
            STEP_REDUCE: owner_take();
            STEP_DOWN: owner_look();
            STEP_CLOCK: owner_read();
            STEP_RELEASE: owner_release();
            STEP_FORGET: owner_release();
        }
        size = 8;
    }

    action is(bit<8> step) {
        hdr.pass.step = step;
    }
    // The predicate: 1 another's, 2 this block's, 4 and 8 nobody's.
    table see_owner {
        key = { hdr.pass.step: exact; meta.owner: exact; }
        actions = { is; NoAction; }
        const default_action = NoAction();
        const entries = {
            (STEP_REDUCE, 1): is(STEP_COLLIDES);
            (STEP_REDUCE, 2): is(STEP_NEXT);
            (STEP_REDUCE, 4): is(STEP_FIRST);
            (STEP_REDUCE, 8): is(STEP_FIRST);
            (STEP_DOWN, 1): is(STEP_NONE);
            (STEP_DOWN, 4): is(STEP_NONE);
            (STEP_DOWN, 8): is(STEP_NONE);
        }
        size = 8;
    }

    RegisterAction<bit<16>, bit<16>, bit<1>>(stamps) put_stamp = {
        void apply(inout bit<16> held, out bit<1> result) {
            held = meta.now;
            result = 0;
        }
    };
    RegisterAction<bit<16>, bit<16>, bit<1>>(stamps) see_stamp = {
        void apply(inout bit<16> held, out bit<1> result) {
            result = 0;
            if ((int<16>) (meta.deadline - held) >= 0) {
                result = 1;
            }
        }
    };
    action stamp() { meta.due = put_stamp.execute(hdr.pass.cell); }
    action is_due() { meta.due = see_stamp.execute(hdr.pass.cell); }
    table use_stamps {
        key = { hdr.pass.step: exact; }
        actions = { stamp; is_due; NoAction; }
        const default_action = NoAction();
        const entries = {
            STEP_FIRST: stamp();
            STEP_CLOCK: is_due();
        }
        size = 2;
    }

    RegisterAction<bit<16>, bit<16>, bit<16>>(missing) first_missing = {
        void apply(inout bit<16> held, out bit<16> result) {
            held = meta.left;
            result = held;
        }
    };
    RegisterAction<bit<16>, bit<16>, bit<16>>(missing) next_missing = {
        void apply(inout bit<16> held, out bit<16> result) {
            if ((int<16>) held > 0) {
                held = held - hdr.canary.counter;
            } else {
                held = GONE;
            }
            result = held;
        }
    };
    RegisterAction<bit<16>, bit<16>, bit<16>>(missing) due_missing = {
        void apply(inout bit<16> held, out bit<16> result) {
            result = held;
            if ((int<16>) held > 0) {
                held = GONE;
            }
        }
    };
    RegisterAction<bit<16>, bit<16>, bit<16>>(missing) see_missing = {
        void apply(inout bit<16> held, out bit<16> result) {
            result = held;
        }
    };
    action begin() { meta.left = first_missing.execute(hdr.pass.cell); }
    action join() { meta.left = next_missing.execute(hdr.pass.cell); }
    action end() { meta.left = due_missing.execute(hdr.pass.cell); }
    action see() { meta.left = see_missing.execute(hdr.pass.cell); }
    table use_missing {
        key = { hdr.pass.step: exact; meta.due: ternary; }
        actions = { begin; join; end; see; NoAction; }
        const default_action = NoAction();
        const entries = {
            (STEP_FIRST, _): begin();
            (STEP_NEXT, _): join();
            (STEP_CLOCK, 1): end();
            (STEP_DOWN, _): see();
            (STEP_RELEASE, _): begin();
            (STEP_FORGET, _): begin();
        }
        size = 8;
    }

    // `canary 5.2`, 2 and 3: the first packet of a block takes the descriptor, others are added; the leader sends none.
    action store() {
        hdr.pass.op = DO_SET;
    }
    action add() {
        hdr.pass.op = DO_ADD;
    }
    action store_and_send() {
        hdr.pass.op = DO_SET;
        hdr.pass.then = THEN_ROUTE;
        meta.sends = 1;
    }
    action add_and_send() {
        hdr.pass.op = DO_ADD;
        hdr.pass.then = THEN_ROUTE;
        meta.sends = 1;
    }
    // `canary 5.2`, 4: a straggler goes on at once; the broadcast will find its way back.
    action straggle() {
        hdr.pass.then = THEN_ROUTE;
    }
    // `canary 5.2`, 5: a collision. The leader is told whom the broadcast will not reach, and no switch touches the packet any more.
    action collide() {
        hdr.canary.switch_addr = meta.own_number;
        hdr.canary.children = meta.port;
        hdr.canary.bypass = 1;
        hdr.pass.then = THEN_ROUTE;
    }
    // `canary 5.3`: the clock packet carries the sum on.
    action time_out() {
        hdr.clock.setInvalid();
        hdr.canary.setValid();
        hdr.canary.id = meta.id;
        hdr.ethernet.kind = KIND_CANARY;
        hdr.pass.op = DO_GET;
        hdr.pass.number = meta.last;
        hdr.pass.cell = hdr.pass.cell + meta.last_cell;
        hdr.pass.then = THEN_ROUTE;
        meta.sends = 1;
    }
    // Sent on: the time of that is looked at.
    action is_sent() {
        meta.over = 1;
    }
    // `canary 5.5`: comes by again, to free the descriptor and to go to the children.
    action go_down() {
        hdr.pass.step = STEP_RELEASE;
        meta.returns = 1;
    }
    action to_children() {
        hdr.pass.then = THEN_SHARD;
    }
    table judge {
        key = { hdr.pass.step: exact; meta.due: ternary; meta.left: ternary; }
        actions = { store; add; store_and_send; add_and_send; straggle; collide; time_out; is_sent; go_down; to_children; NoAction; }
        const default_action = NoAction();
        const entries = {
            (STEP_FIRST, _, 0): store_and_send();
            (STEP_FIRST, _, _): store();
            (STEP_NEXT, _, 0): add_and_send();
            (STEP_NEXT, _, 0xc000 &&& 0xc000): add_and_send();
            (STEP_NEXT, _, 0x8000 &&& 0x8000): straggle();
            (STEP_NEXT, _, _): add();
            (STEP_COLLIDES, _, _): collide();
            (STEP_CLOCK, 1, IDLE): NoAction();
            (STEP_CLOCK, 1, 0): is_sent();
            (STEP_CLOCK, 1, 0x8000 &&& 0x8000): is_sent();
            (STEP_CLOCK, 1, _): time_out();
            (STEP_DOWN, _, 0): go_down();
            (STEP_DOWN, _, 0x8000 &&& 0x8000): go_down();
            (STEP_RELEASE, _, _): to_children();
        }
        size = 16;
    }

    RegisterAction<bit<16>, bit<16>, bit<1>>(ends) put_end = {
        void apply(inout bit<16> held, out bit<1> result) {
            held = meta.now;
            result = 0;
        }
    };
    // `canary 5.10`
    RegisterAction<bit<16>, bit<16>, bit<1>>(ends) see_end = {
        void apply(inout bit<16> held, out bit<1> result) {
            result = 0;
            if ((int<16>) (meta.grave - held) >= 0) {
                result = 1;
            }
        }
    };

    action count_sum() {
        meta.sum_of = meta.hosts - meta.left;
    }
    table to_count_sum {
        actions = { count_sum; }
        const default_action = count_sum();
        size = 1;
    }
    action leave_leader_out() {
        meta.sum_of = meta.sum_of - 1;
    }
    table sum_without_leader {
        actions = { leave_leader_out; }
        const default_action = leave_leader_out();
        size = 1;
    }

    action send() {
        hdr.canary.children = 0;
        hdr.canary.switch_addr = 0;
        hdr.canary.bypass = 0;
        hdr.canary.multicast = 0;
        hdr.canary.reserved = 0;
        hdr.canary.kind = CANARY_REDUCE;
    }

    action send_counts() {
        hdr.canary.dst = meta.leader;
        hdr.canary.counter = meta.sum_of;
        hdr.canary.hosts = meta.hosts;
    }
    table to_send_counts {
        actions = { send_counts; }
        const default_action = send_counts();
        size = 1;
    }
    apply {
        use_owners.apply();
        see_owner.apply();
        use_stamps.apply();
        use_missing.apply();
        use_leaders.apply();
        use_host_counts.apply();
        use_children0.apply();
        use_children1.apply();
        bit<16> place = hdr.pass.cell;
        judge.apply();
        if (meta.sends == 1) {
            put_end.execute(place);
            to_count_sum.apply();
            sum_without_leader.apply();
            to_send_counts.apply();
            send();
        } else if (meta.over == 1) {
            bit<1> is_old = see_end.execute(place);
            if (is_old == 1) {
                hdr.pass.step = STEP_FORGET;
                meta.returns = 1;
            }
        }
    }
}

#endif
