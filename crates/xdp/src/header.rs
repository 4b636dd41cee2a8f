//! The C header of the programs: offsets and numbers from the packets' formats, tables, and values of maps. It is made here and kept beside
//! the programs; a test holds the two together.

use std::fmt::Write;

use fanin_core::{Address, DType, DropReason, JobId, NodeId, ReplayWindow, RetransmitReason, Role, Tally, TrafficClass, Via, Wire};
use fanin_systems::{AnyHeader, CANARY_HASH_KEY};
use fanin_wire::atp::{AtpHeader, Waited};
use fanin_wire::canary::CanaryId;
use fanin_wire::hop::HopHeader;
use fanin_wire::layout::{Field, Layout, hop};
use fanin_wire::switchml::CallLabel;
use fanin_wire::{atp, canary, switchml, tree};

use crate::job::XdpSystem;
use crate::layout::{self, Kind, RECORDS, Up};

/// Bytes that are looked up at once: a turn of the loop waits for the one before, however many bytes it has.
const CRC_BYTES: usize = 16;

/// CRC-32 of a byte, reflected (IEEE 802.3), and of a byte with zeros behind it, one to fifteen.
const fn crc_tables() -> [[u32; 256]; CRC_BYTES] {
    let mut tables = [[0; 256]; CRC_BYTES];
    let mut byte = 0;
    while byte < 256 {
        let (mut value, mut bit) = (byte as u32, 0);
        while bit < 8 {
            value = if value & 1 == 1 { 0xEDB8_8320 ^ (value >> 1) } else { value >> 1 };
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut table = 1;
    while table < CRC_BYTES {
        let mut byte = 0;
        while byte < 256 {
            let before: u32 = tables[table - 1][byte];
            tables[table][byte] = tables[0][(before & 0xFF) as usize] ^ (before >> 8);
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// A word of floats that are all this number.
fn word_of(dtype: DType, number: f64) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < 8 {
        dtype.push_f64(number, &mut bytes);
    }
    format!("0x{:016x}ull", bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)))
}

fn define(text: &mut String, name: &str, value: impl std::fmt::Display) {
    writeln!(text, "#define {name} {value}").expect("a String takes all text");
}

fn upper(name: &str) -> String {
    name.to_uppercase().replace([' ', '-'], "_")
}

/// Where fields of a format are. Where a field is elsewhere in another kind its name has the kind's number as well.
fn offsets(text: &mut String, prefix: &str, fields: &[Field]) {
    for field in fields {
        let is_one_of_several = fields.iter().filter(|other| other.name == field.name).count() > 1;
        let kind = if is_one_of_several { format!("_{}", field.kinds[0]) } else { String::new() };
        define(text, &format!("{prefix}_{}{kind}", upper(field.name)), field.at);
        if field.mask != 0 {
            define(text, &format!("{prefix}_{}{kind}_BITS", upper(field.name)), format!("0x{:x}", field.mask));
        }
    }
}

fn format_of(text: &mut String, prefix: &str, format: &Layout) {
    offsets(text, prefix, format.fields);
    define(text, &format!("{prefix}_KIND"), format.kind.0);
    define(text, &format!("{prefix}_KIND_BITS"), format!("0x{:x}", format.kind.1));
    for kind in format.kinds {
        define(text, &format!("{prefix}_KIND_{}", upper(kind.name)), kind.number);
        define(text, &format!("{prefix}_BYTES_{}", upper(kind.name)), kind.header_bytes);
    }
}

/// The first four bytes of packets between a worker and its switch: what is the same in all of them.
fn fronts(text: &mut String) {
    let at = |role| Address { node: NodeId(0), role };
    let front = |source, destination| {
        let header = HopHeader {
            system: 0,
            via: Via::Direct,
            ecn: false,
            neighbour: true,
            class: TrafficClass::Collective,
            source: at(source),
            destination: at(destination),
            job: JobId(0),
            flow: fanin_core::FlowLabel(0),
            epoch: 0,
            sequence: 0,
            payload_bytes: 0,
        };
        let mut bytes = [0; HopHeader::NEIGHBOUR_LEN];
        header.emit(&mut bytes);
        bytes
    };
    let (up, down) = (front(Role::Worker, Role::Switch), front(Role::Switch, Role::Worker));
    define(text, "HOP_BYTES", HopHeader::NEIGHBOUR_LEN);
    define(text, "HOP_MAGIC_VERSION", format!("0x{:x}", up[0]));
    define(text, "HOP_FLAGS_NEIGHBOUR", format!("0x{:x}", up[2]));
    define(text, "HOP_ROLES", 3);
    define(text, "HOP_ROLES_UP", format!("0x{:x}", up[3]));
    define(text, "HOP_ROLES_DOWN", format!("0x{:x}", down[3]));
    define(text, "HOP_ROLES_FROM_SERVER", format!("0x{:x}", front(Role::Server, Role::Worker)[3]));
    define(text, "HOP_ROLES_SWITCH_TO_SERVER", format!("0x{:x}", front(Role::Switch, Role::Server)[3]));
    define(text, "HOP_ROLES_TO_SERVER", format!("0x{:x}", front(Role::Worker, Role::Server)[3]));
    // What hop headers have more of packets that are not for the neighbour.
    define(text, "HOP_WAY_BYTES", HopHeader::MAX_LEN - HopHeader::NEIGHBOUR_LEN);
    // The system's number, which stands before its header once more.
    define(text, "TAG_BYTES", AnyHeader::Background.wire_len());
}

/// Sizes of what programs have, and numbers that they share with this process.
fn limits(text: &mut String) {
    let numbers = [
        ("RANKS_MAX", u64::from(layout::RANKS_MAX)),
        ("JOBS_MAX", u64::from(layout::JOBS_MAX)),
        ("PAYLOAD_BYTES_MAX", u64::from(layout::PAYLOAD_BYTES_MAX)),
        ("FRAME_BYTES_MAX", layout::FRAME_BYTES_MAX as u64),
        ("LATE_LIMITS", layout::LATE_LIMITS as u64),
        ("VERSIONS_MAX", u64::from(layout::VERSIONS_MAX)),
        ("COPIES_MAX", u64::from(layout::COPIES_MAX)),
        ("CLOCK_ENTRIES", u64::from(layout::CLOCK_ENTRIES)),
        ("CLOCK_BYTES", layout::CLOCK_BYTES as u64),
        ("CLOCK_PLACE", layout::CLOCK_PLACE as u64),
        ("CLOCK_NOW", layout::CLOCK_NOW as u64),
        ("WINDOW_SPAN", ReplayWindow::SPAN),
        ("WINDOW_LENGTH", ReplayWindow::LENGTH),
        ("WINDOW_WORDS", ReplayWindow::WORDS as u64),
        ("WINDOW_EVIDENCE", u64::from(ReplayWindow::EVIDENCE)),
        ("WINDOW_CREDIT", u64::from(ReplayWindow::CREDIT)),
        ("WINDOW_CREDIT_MAX", u64::from(ReplayWindow::CREDIT_MAX)),
        ("JOB_HERE", layout::JOB_HERE),
        ("STATE_EMPTY", layout::EMPTY),
        ("STATE_AGGREGATING", layout::AGGREGATING),
        ("STATE_DONE", layout::DONE),
        ("OP_IS", layout::OP_IS.into()),
        ("OP_FIXED_POINT", layout::OP_FIXED_POINT.into()),
        ("OP_REDUCES", layout::OP_REDUCES.into()),
        ("OP_NEVER", layout::OP_NEVER.into()),
        ("OP_LENGTH_SHIFT", layout::OP_LENGTH_SHIFT.into()),
        ("OP_SIGNED", layout::OP_SIGNED.into()),
        ("OP_BFLOAT", layout::OP_BFLOAT.into()),
        ("OP_KIND_SHIFT", layout::OP_KIND_SHIFT.into()),
    ];
    numbers.into_iter().for_each(|(name, value)| define(text, name, value));
}

/// The text of the C header.
pub fn header() -> String {
    let mut text = String::from(
        "/* Made by crates/xdp from the formats in crates/wire and the layouts in crates/xdp/src/layout.rs. Do not change it here: change those,\n \
         * and run FANIN_WRITE=1 cargo test -p fanin-xdp --test header. */\n#pragma once\n\n",
    );
    offsets(&mut text, "HOP", hop::HOP.fields);
    offsets(&mut text, "HOP", hop::WAY);
    fronts(&mut text);
    text += "\n";
    let formats = [("SML", &switchml::LAYOUT), ("TREE", &tree::LAYOUT), ("CANARY", &canary::LAYOUT), ("ATP", &atp::LAYOUT)];
    for (prefix, format) in formats {
        format_of(&mut text, prefix, format);
        text += "\n";
    }
    let shortest = formats.iter().flat_map(|(_, format)| format.kinds).map(|kind| kind.header_bytes).min();
    define(&mut text, "HEADER_BYTES_MIN", shortest.unwrap_or_default());
    for system in XdpSystem::ALL {
        define(&mut text, &format!("SYSTEM_{}", upper(system.system().name())), system.number());
    }
    define(&mut text, "RECEIVER_ALL", CallLabel::ALL);
    define(&mut text, "SUSPECT_IS_RANK", fanin_wire::layout::SUSPECTS.iter().find(|(_, name)| *name == "rank").map_or(0, |at| at.0));
    text += "\n";
    for reason in DropReason::ALL {
        define(&mut text, &format!("DROP_{}", upper(reason.name())), reason.index());
    }
    for up in Up::ALL {
        define(&mut text, &format!("UP_{}", upper(up.name())), *up as u8);
    }
    for tally in Tally::ALL {
        define(&mut text, &format!("TALLY_{}", upper(tally.name())), tally.index());
    }
    define(&mut text, "CANARY_HASH_KEY", format!("0x{CANARY_HASH_KEY:x}ull"));
    define(&mut text, "ATP_TO_ALL", AtpHeader::TO_ALL);
    define(&mut text, "ATP_WAITED_UNKNOWN", Waited::UNKNOWN.to_bits());
    define(&mut text, "ATP_ALL_OF_SWITCH", atp::RankSet::GROUPS);
    define(&mut text, "ONE_GENERATION", CanaryId::new(0, 1, 0).bits());
    define(&mut text, "RETRANSMIT_ASKED", RetransmitReason::Asked.index());
    text += "\n";
    limits(&mut text);
    for kind in Kind::ALL {
        define(&mut text, &format!("OP_KIND_{}", upper(kind.name())), *kind as u8);
    }
    for dtype in DType::ALL.iter().filter(|dtype| dtype.is_float()) {
        define(&mut text, &format!("INFINITY_{}", upper(dtype.name())), word_of(*dtype, f64::INFINITY));
        define(&mut text, &format!("NAN_{}", upper(dtype.name())), word_of(*dtype, f64::NAN));
    }
    text += "\n";
    RECORDS.iter().for_each(|record| text += &record.c());
    text += &format!("static const __u32 crc_table[{CRC_BYTES}][256] = {{\n");
    for table in crc_tables() {
        text += "\t{\n";
        for row in table.chunks(16) {
            let row: Vec<String> = row.iter().map(|value| format!("0x{value:08x}")).collect();
            writeln!(text, "\t\t{},", row.join(", ")).expect("a String takes all text");
        }
        text += "\t},\n";
    }
    text + "};\n"
}
