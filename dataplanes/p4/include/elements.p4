/* Elements of a packet, and the passes in which they are added.
 *
 * A switch adds 32 integers in a pass (Canary 5.1). A longer packet comes by again, once for every 32 elements ("striping the packet across
 * pipelines", Canary 5.1; SwitchML has 256): each pass takes the first 32 elements off the packet, and the parser never needs more than that
 * many. When a packet is to leave with a sum, passes go back and put 32 elements each in front of what is there, the last ones first:
 *
 *     in     e0..e31 | e32..e63 | e64..e95        pass 0 adds e0..e31     and takes them off
 *            e32..e63 | e64..e95                  pass 1 adds e32..e63    and takes them off
 *            e64..e95                             pass 2 adds e64..e95    and leaves their sum in the packet
 *            s64..s95                             pass 1 puts s32..s63 in front
 *     out    s0..s31 | s32..s63 | s64..s95        pass 0 puts s0..s31 in front
 *
 * So 32 elements take one pass, and n times 32 take n where nothing is sent, and 2n - 1 where a sum is. All packets take their passes in
 * the same order, so that sums are right whatever else passes in between: an element is read only when the last contribution to it is added.
 *
 * The includer has to define CELLS, the places that each element has in a pass.
 */
#ifndef ELEMENTS_P4
#define ELEMENTS_P4

/* What a pass does to the elements of a place. */
@noWarn("unused") const bit<8> DO_NOTHING = 0; // they stay in the packet, and the packet as it is
@noWarn("unused") const bit<8> DO_SET = 1;     // the packet's take the place of what was there
@noWarn("unused") const bit<8> DO_ADD = 2;     // the packet's are added
@noWarn("unused") const bit<8> DO_SKIP = 3;    // the packet's are taken off
@noWarn("unused") const bit<8> DO_GET = 4;     // what is there goes into the packet

/* What becomes of a packet when its passes are over. */
@noWarn("unused") const bit<8> THEN_DROP = 0;
@noWarn("unused") const bit<8> THEN_PORT = 1;  // to the port `target`
@noWarn("unused") const bit<8> THEN_GROUP = 2; // to the multicast group `target`
@noWarn("unused") const bit<8> THEN_ROUTE = 3; // to where its header says
@noWarn("unused") const bit<8> THEN_SHARD = 4; // to children, shard by shard

/* Where a packet goes that comes by again; no device is behind it. As in crates/p4/src/control.rs. */
const bit<9> AGAIN_PORT = 510;
/* instance_type of such packets, in bmv2. */
const bit<32> IS_AGAIN = 4;

/* In front of a packet on its way round. */
header pass_h {
    bit<8> op;       // what this pass does
    bit<8> number;   // of this pass
    bit<8> last;     // number of the packet's last pass
    bit<8> then;     // what becomes of it
    bit<16> target;  // a port or a group
    bit<32> place;   // which place of the elements
    bit<64> ports;   // children to send to
}

#define DO(n) bit<32> e##n;
header elements_h {
    ELEMENTS(DO)
}
#undef DO

/* One element of each place. A register is read and written once for a packet. */
control Element(in bit<8> op, in bit<32> cell, inout bit<32> value) {
    register<bit<32>>(CELLS * PASSES) sums;

    apply {
        bit<32> held;
        sums.read(held, cell);
        if (op == DO_SET) {
            held = value;
        } else if (op == DO_ADD) {
            held = held + value;
        }
        sums.write(cell, held);
        value = held;
    }
}

/* The 32 elements of a pass. */
control Elements(in bit<8> op, in bit<32> cell, inout elements_h elements) {
#define DO(n) Element() sum##n;
    ELEMENTS(DO)
#undef DO

    apply {
#define DO(n) sum##n.apply(op, cell, elements.e##n);
        ELEMENTS(DO)
#undef DO
    }
}

/* What this pass does, and what is next: `again` where the packet has to come by once more, with `pass` as it is then. */
control Pass(inout pass_h pass, inout elements_h elements, out bool again) {
    Elements() sums;

    apply {
        again = false;
        if (pass.op == DO_GET) {
            elements.setValid();
        }
        bool ends = pass.number == pass.last;
        bit<8> op = pass.op;
        if (op == DO_SKIP && ends) {
            op = DO_GET;
        }
        if (op == DO_SET || op == DO_ADD || op == DO_GET) {
            bit<32> cell = (bit<32>) pass.number * CELLS + pass.place;
            sums.apply(op, cell, elements);
        }
        if (pass.op != DO_NOTHING && pass.op != DO_GET) {
            // Elements come off.
            if (!ends) {
                elements.setInvalid();
                pass.number = pass.number + 1;
                again = true;
            } else if (pass.then != THEN_DROP) {
                // This pass has left its sums; those before it are put in front of them.
                pass.op = DO_GET;
            }
        }
        if (pass.op == DO_GET && !again && pass.number != 0) {
            pass.number = pass.number - 1;
            again = true;
        }
    }
}

#endif
