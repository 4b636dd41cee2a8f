//! Programs with a mistake each: the traces must tell every one of them from its state machine, or they would show nothing about the program that
//! has none.

use std::fs;
use std::path::Path;
use std::process::Command;

use fanin_xdp::Kernel;

use crate::{atp, canary, switchml, tree};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dataplanes/xdp");

/// A place in a source, which stands there once, and what stands there instead.
struct Mistake {
    what: &'static str,
    file: &'static str,
    place: &'static str,
    instead: &'static str,
    shown_by: fn(&Kernel) -> Option<String>,
}

const fn mistake(
    shown_by: fn(&Kernel) -> Option<String>,
    what: &'static str,
    file: &'static str,
    place: &'static str,
    instead: &'static str,
) -> Mistake {
    Mistake { what, file, place, instead, shown_by }
}

const SWITCHML: &[Mistake] = &[
    mistake(
        switchml::shown_by,
        "a rank is not sent the sum",
        "switchml.h",
        "v->unsent = all_ranks(job);",
        "v->unsent = all_ranks(job) & ~1ull;",
    ),
    mistake(
        switchml::shown_by,
        "who asks for a sum is not answered",
        "switchml.h",
        "return of(ANSWER, RETRANSMIT_ASKED);",
        "return of(DROP, DROP_DUPLICATE);",
    ),
    mistake(
        switchml::shown_by,
        "an old round takes a slot",
        "switchml.h",
        "if (state != STATE_EMPTY && !newer(form->round, v->round))",
        "if (state == STATE_DONE && !newer(form->round, v->round))",
    ),
];

const TREE: &[Mistake] = &[
    mistake(
        tree::shown_by,
        "a contribution of another length is added",
        "tree.h",
        "if (bytes != v->bytes || bytes > PAYLOAD_BYTES_MAX)",
        "if (bytes > PAYLOAD_BYTES_MAX)",
    ),
    mistake(
        tree::shown_by,
        "an old block takes a slot",
        "tree.h",
        "if (v->state != STATE_EMPTY && !newer(what->block, v->round))",
        "if (v->state == STATE_DONE && !newer(what->block, v->round))",
    ),
];

const CANARY: &[Mistake] = &[
    mistake(
        canary::shown_by,
        "a straggler is no child",
        "canary.h",
        "v->arrived |= 1ull << (p->number & 63);\n\t\treturn CANARY_STRAGGLER;",
        "return CANARY_STRAGGLER;",
    ),
    mistake(canary::shown_by, "a broadcast goes back", "canary.h", "to = v->arrived & ~(1ull << (p->number & 63));", "to = v->arrived;"),
    mistake(canary::shown_by, "a counter wraps", "canary.h", "v->counter = count > 0xffff ? 0xffff : count;", "v->counter = count;"),
    mistake(canary::shown_by, "a failed generation frees its successor", "canary.h", "if (i >= generation)", "if (i > generation)"),
    mistake(
        canary::shown_by,
        "a time ends too late",
        "canary.h",
        "if (v->state == STATE_AGGREGATING && v->deadline <= clock->now)",
        "if (v->state == STATE_AGGREGATING && v->deadline + 50000 <= clock->now)",
    ),
    mistake(
        canary::shown_by,
        "a sum is not counted for who was last",
        "canary.h",
        "count_last(p, outcome == CANARY_SUM ? COMPLETES_SUM : PART_OF_SUM);",
        "count_last(p, PART_OF_SUM);",
    ),
    mistake(canary::shown_by, "what comes twice counts twice", "routed.h", "w->seen[at] |= bit;", ""),
    mistake(canary::shown_by, "a mark of congestion is lost", "routed.h", "U8(s, HOP + HOP_ECN) |= HOP_ECN_BITS;", ";"),
];

const ATP: &[Mistake] = &[
    mistake(
        atp::shown_by,
        "marks are forgotten",
        "atp.h",
        "v->op |= packet->flags & ATP_MET;\n\tif (v->arrived & packet->ranks) {",
        "if (v->arrived & packet->ranks) {",
    ),
    mistake(atp::shown_by, "a late collision is told to nobody", "atp.h", "v->counter = v->state != ATP_OPEN;", "v->counter = 0;"),
    mistake(
        atp::shown_by,
        "an acknowledgement frees another fragment's aggregator",
        "atp.h",
        "if (atp_is_of(p, v, packet))\n\t\t\tv->state = STATE_EMPTY;",
        "v->state = STATE_EMPTY;",
    ),
    mistake(
        atp::shown_by,
        "an aggregator is never reclaimed",
        "atp.h",
        "if (v->state != STATE_EMPTY && (now < v->deadline || now - v->deadline < p->job->timeout_ns)) {",
        "if (v->state != STATE_EMPTY) {",
    ),
    mistake(atp::shown_by, "a collision is not marked", "atp.h", "packet->flags |= ATP_COLLIDED_BITS;", ""),
    mistake(
        atp::shown_by,
        "an aggregator waits for one more",
        "atp.h",
        "if (ones(v->arrived) < v->missing)",
        "if (ones(v->arrived) <= v->missing)",
    ),
];

/// The programs with a mistake, as `build.rs` compiles those without.
fn compiled(mistake: &Mistake, folder: &Path) -> Vec<u8> {
    let Mistake { what, file, place, instead, .. } = mistake;
    for entry in fs::read_dir(SOURCES).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    let text = fs::read_to_string(folder.join(file)).unwrap();
    assert_eq!(text.matches(place).count(), 1, "{what}: this must stand in {file} once: {place}");
    fs::write(folder.join(file), text.replace(place, instead)).unwrap();
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let (source, object) = (folder.join("switch.bpf.c"), folder.join("switch.bpf.o"));
    let arguments = ["-O2", "-g", "-target", "bpf", "-mcpu=v3", &headers, "-c"];
    let status = Command::new(clang).args(arguments).arg(source).arg("-o").arg(&object).status().unwrap();
    assert!(status.success(), "{what}: clang: {status}");
    fs::read(object).unwrap()
}

#[test]
#[ignore = "needs CAP_BPF and CAP_NET_ADMIN"]
fn every_mistake_in_a_program_is_found() {
    let folder = std::env::temp_dir().join(format!("fanin-xdp-mistakes-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let mut missed = Vec::new();
    for mistake in [SWITCHML, TREE, CANARY, ATP].into_iter().flatten() {
        let kernel = Kernel::load_object(&compiled(mistake, &folder)).unwrap_or_else(|error| panic!("{}: {error}", mistake.what));
        match (mistake.shown_by)(&kernel) {
            Some(difference) => println!("{}: {}", mistake.what, difference.lines().next().unwrap_or_default()),
            None => missed.push(mistake.what),
        }
    }
    fs::remove_dir_all(&folder).unwrap();
    assert!(missed.is_empty(), "no trace has shown: {missed:?}");
}
