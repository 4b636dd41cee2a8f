/* What Rina's rack works on: part of ../rina.p4, which has its types. */
#ifndef RINA_RACK_P4
#define RINA_RACK_P4

/* What the rack works on, and whom it sends to. */
control Rack(inout headers_t hdr, inout meta_t meta) {
    Register<bit<16>, bit<1>>(1) epochs;
    Register<bit<16>, bit<1>>(1) operations;
    Register<bit<32>, bit<1>>(1) agents;
    Register<bit<16>, bit<1>>(1) member_sets;
    Register<bit<32>, bit<1>>(1) nexts;

    // A task of an older epoch changes nothing; one of the same has an operation that is older, the same or newer.
    RegisterAction<bit<16>, bit<1>, bit<4>>(epochs) advance_epoch = {
        void apply(inout bit<16> held, out bit<4> result) {
            result = this.predicate((int<16>) (held - hdr.rina.epoch) <= 0, held == hdr.rina.epoch);
            if ((int<16>) (held - hdr.rina.epoch) <= 0) {
                held = hdr.rina.epoch;
            }
        }
    };
    RegisterAction<bit<16>, bit<1>, bit<4>>(epochs) see_epoch = {
        void apply(inout bit<16> held, out bit<4> result) {
            result = this.predicate((int<16>) (held - hdr.rina.epoch) <= 0, held == hdr.rina.epoch);
        }
    };
    action epoch_advance() { meta.epoch = advance_epoch.execute(0); }
    action epoch_see() { meta.epoch = see_epoch.execute(0); }
    table use_epochs {
        key = { meta.is: exact; }
        actions = { epoch_advance; epoch_see; NoAction; }
        const default_action = NoAction();
        const entries = {
            IS_TASK: epoch_advance();
            IS_GRADIENT: epoch_see();
            IS_RESULT: epoch_see();
        }
        size = 4;
    }

    RegisterAction<bit<16>, bit<1>, bit<4>>(operations) put_operation = {
        void apply(inout bit<16> held, out bit<4> result) {
            result = 0;
            held = hdr.rina.operation;
        }
    };
    RegisterAction<bit<16>, bit<1>, bit<4>>(operations) advance_operation = {
        void apply(inout bit<16> held, out bit<4> result) {
            result = this.predicate((int<16>) (held - hdr.rina.operation) <= 0, held == hdr.rina.operation);
            if ((int<16>) (held - hdr.rina.operation) <= 0) {
                held = hdr.rina.operation;
            }
        }
    };
    RegisterAction<bit<16>, bit<1>, bit<4>>(operations) see_operation = {
        void apply(inout bit<16> held, out bit<4> result) {
            result = this.predicate((int<16>) (held - hdr.rina.operation) <= 0, held == hdr.rina.operation);
        }
    };
    action operation_put() {
        put_operation.execute(0);
        meta.operation = LATER;
    }
    action operation_advance() { meta.operation = advance_operation.execute(0); }
    action operation_see() { meta.operation = see_operation.execute(0); }
    table use_operations {
        key = { meta.is: exact; meta.epoch: exact; }
        actions = { operation_put; operation_advance; operation_see; NoAction; }
        const default_action = NoAction();
        const entries = {
            (IS_TASK, LATER): operation_put();
            (IS_TASK, SAME): operation_advance();
            (IS_GRADIENT, SAME): operation_see();
            (IS_RESULT, SAME): operation_see();
        }
        size = 4;
    }

    RegisterAction<bit<32>, bit<1>, bit<1>>(agents) put_agent = {
        void apply(inout bit<32> held, out bit<1> result) {
            held = meta.node;
            result = 0;
        }
    };
    RegisterAction<bit<32>, bit<1>, bit<1>>(agents) see_agent = {
        void apply(inout bit<32> held, out bit<1> result) {
            result = 0;
            if (held == hdr.result.to) {
                result = 1;
            }
        }
    };
    action agent_put() { put_agent.execute(0); }
    action agent_see() { meta.is_agents = see_agent.execute(0); }
    RegisterAction<bit<16>, bit<1>, bit<16>>(member_sets) put_members = {
        void apply(inout bit<16> held, out bit<16> result) {
            held = hdr.task.members[15:0];
            result = held;
        }
    };
    RegisterAction<bit<16>, bit<1>, bit<16>>(member_sets) see_members = {
        void apply(inout bit<16> held, out bit<16> result) {
            result = held;
        }
    };
    action members_put() { meta.members = put_members.execute(0); }
    action members_see() { meta.members = see_members.execute(0); }
    RegisterAction<bit<32>, bit<1>, bit<32>>(nexts) put_next = {
        void apply(inout bit<32> held, out bit<32> result) {
            held = meta.next;
            result = held;
        }
    };
    RegisterAction<bit<32>, bit<1>, bit<32>>(nexts) see_next = {
        void apply(inout bit<32> held, out bit<32> result) {
            result = held;
        }
    };
    action next_put() { meta.to = put_next.execute(0); }
    action next_see() { meta.to = see_next.execute(0); }
    action next_of_result() { meta.to = see_next.execute(0); }
#define USE(name, on_task, on_gradient, on_result)                         \
    table use_##name {                                                     \
        key = { meta.is: exact; meta.operation: exact; }                   \
        actions = { on_task; on_gradient; on_result; NoAction; }           \
        const default_action = NoAction();                                 \
        const entries = {                                                  \
            (IS_TASK, LATER): on_task();                                   \
            (IS_TASK, SAME): on_task();                                    \
            (IS_GRADIENT, SAME): on_gradient();                            \
            (IS_RESULT, SAME): on_result();                                \
        }                                                                  \
        size = 4;                                                          \
    }
    action nothing() { }
    USE(agents, agent_put, nothing, agent_see)
    action members_of_result() { meta.members = see_members.execute(0); }
    USE(member_sets, members_put, members_see, members_of_result)
    USE(nexts, next_put, next_see, next_of_result)

    action find_rest() {
        meta.rest = meta.members & meta.others;
        meta.in_rack = meta.members & meta.bit_;
    }
    table to_find_rest {
        actions = { find_rest; }
        const default_action = find_rest();
        size = 1;
    }

    apply {
        use_epochs.apply();
        use_operations.apply();
        use_agents.apply();
        use_member_sets.apply();
        use_nexts.apply();
        to_find_rest.apply();
    }
}

#endif
