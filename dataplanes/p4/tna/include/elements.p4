/* Elements of a packet, and the passes in which they are added: as in ../../include/elements.p4, in TNA.
 *
 * A packet's header `pass` is in front of it from the ingress of its first pass to the egress of its last one. `number` passes were before this
 * one, and `left` elements' passes are to come: in place of a comparison of two numbers, both are compared with zero.
 *
 * The includer defines CELLS, the places that each element has in a pass, and DO_ELEMENTS, once for each element of a pass.
 */
#ifndef TNA_ELEMENTS_P4
#define TNA_ELEMENTS_P4

/* What a pass does to the elements of a place. */
@noWarn("unused") const bit<8> DO_NOTHING = 0; // they stay in the packet, and the packet as it is
@noWarn("unused") const bit<8> DO_SET = 1;     // the packet's take the place of what was there
@noWarn("unused") const bit<8> DO_ADD = 2;     // the packet's are added
@noWarn("unused") const bit<8> DO_SKIP = 3;    // the packet's are taken off
@noWarn("unused") const bit<8> DO_GET = 4;     // what is there goes into the packet
@noWarn("unused") const bit<8> DO_TAKE = 5;    // the packet's are taken off, and what is there goes into it: the last pass of DO_SKIP

/* What becomes of a packet when its passes are over. */
@noWarn("unused") const bit<8> THEN_DROP = 0;
@noWarn("unused") const bit<8> THEN_PORT = 1;  // to the port `target`
@noWarn("unused") const bit<8> THEN_GROUP = 2; // to the multicast group `target`
@noWarn("unused") const bit<8> THEN_ROUTE = 3; // to where its header says
@noWarn("unused") const bit<8> THEN_SHARD = 4; // to children, shard by shard

/* In front of a packet on its way round. */
header pass_h {
    bit<8> op;       // what this pass does
    bit<8> number;   // of this pass
    bit<8> left;     // passes that follow, up to the packet's last elements
    bit<8> then;     // what becomes of it
    bit<16> target;  // a port or a group
    bit<16> cell;    // which place of the elements
    PASS_FIELDS      // a program's own
}

#define DO(n) bit<32> e##n;
header elements_h {
    DO_ELEMENTS(DO)
}
#undef DO

/* One element of each place: one stateful unit, which a packet accesses once. */
control Element(in bit<8> op, in bit<16> cell, inout bit<32> value) {
    Register<bit<32>, bit<16>>(CELLS * PASSES) sums;

    RegisterAction<bit<32>, bit<16>, bit<32>>(sums) store = {
        void apply(inout bit<32> held, out bit<32> result) {
            held = value;
            result = held;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(sums) add = {
        void apply(inout bit<32> held, out bit<32> result) {
            held = held + value;
            result = held;
        }
    };
    RegisterAction<bit<32>, bit<16>, bit<32>>(sums) load = {
        void apply(inout bit<32> held, out bit<32> result) {
            result = held;
        }
    };

    action do_set() {
        value = store.execute(cell);
    }

    action do_add() {
        value = add.execute(cell);
    }

    action do_get() {
        value = load.execute(cell);
    }

    table sum {
        key = { op: exact; }
        actions = { do_set; do_add; do_get; NoAction; }
        const default_action = NoAction();
        const entries = {
            DO_SET: do_set();
            DO_ADD: do_add();
            DO_GET: do_get();
            DO_TAKE: do_get();
        }
        size = 4;
    }

    apply {
        sum.apply();
    }
}

/* This pass, and what is next: `again` is 1 where the packet has to come by once more, with `pass` as it is then. */
control Pass(inout pass_h pass, inout elements_h elements, out bit<1> again) {
#define DO(n) Element() sum##n;
    DO_ELEMENTS(DO)
#undef DO

    bit<8> op; // of this pass

    action as_it_is() {
        op = pass.op;
    }

    action take() {
        op = DO_TAKE;
    }

    action get() {
        op = DO_GET;
        elements.setValid();
    }

    // One table, and so one stage: with two conditions after each other, elements begin a stage later.
    table begin {
        key = {
            pass.op: ternary;
            pass.left: ternary;
        }
        actions = { as_it_is; take; get; }
        const default_action = as_it_is();
        const entries = {
            (DO_SKIP, 0): take();
            (DO_GET, _): get();
        }
        size = 4;
    }

    action stay() {
        again = 0;
    }

    action onward() {
        again = 1;
        elements.setInvalid();
        pass.number = pass.number + 1;
        pass.left = pass.left - 1;
        pass.cell = pass.cell + CELLS;
    }

    action back() {
        again = 1;
        pass.op = DO_GET;
        pass.number = pass.number - 1;
        pass.cell = pass.cell - CELLS;
    }

    table next {
        key = {
            pass.op: ternary;
            pass.left: ternary;
            pass.number: ternary;
            pass.then: ternary;
        }
        actions = { stay; onward; back; }
        const default_action = stay();
        const entries = {
            (DO_NOTHING, _, _, _): stay();
            (DO_GET, _, 0, _): stay();
            (DO_GET, _, _, _): back();
            (_, 0, _, THEN_DROP): stay();
            (_, 0, 0, _): stay();
            (_, 0, _, _): back();
            (_, _, _, _): onward();
        }
        size = 8;
    }

    apply {
        bit<16> cell = pass.cell;
        begin.apply();
#define DO(n) sum##n.apply(op, cell, elements.e##n);
        DO_ELEMENTS(DO)
#undef DO
        next.apply();
    }
}

#endif
