//! `dataplanes/p4/generated.p4`: headers and constants of the programs; and `fields.json`, where fields of packets are, for the runner.
//! They are made here from the formats and kept beside the programs; a test holds them together.

use std::fmt::Write;

use crate::formats::{self, Header, atp, canary, netreduce, rina, switchml};
use crate::frames;

/// The headers of the programs.
pub const HEADERS: &[&Header] = &[
    &frames::ETHERNET,
    &frames::IPV4,
    &frames::UDP,
    &switchml::SWITCHML,
    &canary::CANARY,
    &canary::CLOCK,
    &atp::ATP,
    &atp::ATP_TAIL,
    &rina::RINA,
    &rina::RINA_TASK,
    &rina::RINA_SUM,
    &rina::RINA_RESULT,
    &netreduce::BTH,
    &netreduce::RETH,
    &netreduce::INA,
    &netreduce::ICRC,
];

const NOTICE: &str = "Made by crates/p4 from its formats. Do not change it here: change those, and run\n   FANIN_WRITE=1 cargo test -p fanin-p4 --test generated.";

fn constant(text: &mut String, name: &str, bits: usize, value: u64, what: &str) {
    writeln!(text, "// {what}\n@noWarn(\"unused\") const bit<{bits}> {name} = {value:#x};").expect("a String takes all text");
}

/// A number that the compiler may be given another value for.
fn size(text: &mut String, name: &str, value: u64, what: &str) {
    writeln!(text, "// {what}\n#ifndef {name}\n#define {name} {value}\n#endif").expect("a String takes all text");
}

fn header(text: &mut String, header: &Header) {
    writeln!(text, "// {}\nheader {}_h {{", header.source, header.name).expect("a String takes all text");
    for field in header.fields {
        writeln!(text, "    bit<{}> {}; // {}", field.bits, field.name, field.what).expect("a String takes all text");
    }
    *text += "}\n";
}

/// A field of a header in TNA that is several of its format's: the header's name, theirs, and its own.
///
/// A Tofino calculates with whole containers, and no field is shifted: what is calculated with has to be whole bytes.
const WHOLE: &[(&Header, &[&str], &str)] = &[(&switchml::SWITCHML, &["version", "slot"], "place")];

/// A header as TNA's programs have it.
fn whole_header(text: &mut String, header: &Header, merged: &[&str], whole: &str) {
    writeln!(text, "// {}; in TNA, where a field has whole bytes\nheader {}_tna_h {{", header.source, header.name)
        .expect("a String takes all text");
    for field in header.fields {
        if merged.first() == Some(&field.name) {
            let bits: usize = header.fields.iter().filter(|field| merged.contains(&field.name)).map(|field| field.bits).sum();
            writeln!(text, "    bit<{bits}> {whole}; // {}", merged.join(", ")).expect("a String takes all text");
        } else if !merged.contains(&field.name) {
            writeln!(text, "    bit<{}> {}; // {}", field.bits, field.name, field.what).expect("a String takes all text");
        }
    }
    *text += "}\n\n";
}

/// A macro that does something for each of so many.
fn times(text: &mut String, name: &str, count: usize, what: &str) {
    let each: Vec<String> = (0..count).map(|number| format!("DO({number})")).collect();
    writeln!(text, "// {what}\n#define {name}(DO) {}", each.join(" ")).expect("a String takes all text");
}

/// What programs need whose packets pass once.
fn others(text: &mut String) {
    constant(text, "KIND_ATP", 16, atp::KIND_ATP, "Ethernet's number for ATP.");
    size(text, "ATP_AGGREGATORS", atp::AGGREGATORS.into(), "Aggregators.");
    times(text, "ATP_ELEMENTS", atp::ELEMENTS, "Once for each element of a packet of ATP.");
    times(text, "ATP_HALF", atp::ELEMENTS / 2, "Once for each element of a half of ATP's packet.");
    constant(text, "KIND_RINA", 16, rina::KIND_RINA, "Ethernet's number for Rina.");
    let kinds = [("TASK", rina::TASK), ("PULL", rina::PULL), ("GRADIENT", rina::GRADIENT), ("SUM", rina::SUM), ("RESULT", rina::RESULT)];
    kinds.iter().for_each(|(name, kind)| constant(text, &format!("KIND_OF_{name}"), 8, *kind, "A kind of packet of Rina."));
    constant(text, "RINA_DATA_BYTES", 16, 4 * rina::ELEMENTS as u64, "Elements of a packet of Rina.");
    size(text, "RINA_WINDOW", crate::control::rina::WINDOW_MAX.into(), "Slots.");
    of_netreduce(text);
    times(text, "RINA_ELEMENTS", rina::ELEMENTS, "Once for each element of a packet of Rina.");
}

fn of_netreduce(text: &mut String) {
    use fanin_wire::netreduce::InaHeader;
    use fanin_wire::roce::{UDP_PORT, opcode};
    constant(text, "ROCE_PORT", 16, UDP_PORT.into(), "The UDP port of RoCEv2.");
    let codes =
        [("FIRST", opcode::WRITE_FIRST), ("MIDDLE", opcode::WRITE_MIDDLE), ("LAST", opcode::WRITE_LAST), ("ONLY", opcode::WRITE_ONLY)];
    codes.iter().for_each(|(name, code)| constant(text, &format!("WRITE_{name}"), 8, (*code).into(), "An operation code."));
    constant(text, "INA_TAG", 32, InaHeader::TAG.into(), "What an INA header begins with.");
    let every = fanin_protocols::shared::connection::ACK_EVERY;
    constant(text, "ACK_EVERY", 24, every.into(), "Of so many packets one asks for an acknowledgement.");
    size(text, "NETREDUCE_PACKETS", netreduce::MESSAGE_PACKETS.into(), "Packets of a message at most.");
    let (front, all) = (netreduce::FRONT_ELEMENTS, netreduce::ELEMENTS);
    times(text, "NETREDUCE_ELEMENTS", all - front, "Once for each element behind the first four words of a packet of NetReduce.");
    let each: Vec<String> = (all - front..all).map(|number| format!("DO({number})")).collect();
    let what = "Once for each of these words, where a packet is not the first of its message.";
    writeln!(text, "// {what}\n#define NETREDUCE_FRONT(DO) {}", each.join(" ")).expect("a String takes all text");
    constant(text, "NETREDUCE_DATA_BYTES", 16, 4 * all as u64, "Elements of a packet of NetReduce, or the INA header and the others.");
    constant(text, "NETREDUCE_WINDOW", 32, netreduce::WINDOW.into(), "Messages of a window.");
}

/// The text of `generated.p4`.
pub fn p4() -> String {
    let mut text = format!("/* {NOTICE} */\n#ifndef GENERATED_P4\n#define GENERATED_P4\n\n");
    HEADERS.iter().for_each(|each| {
        header(&mut text, each);
        constant(&mut text, &format!("{}_BYTES", each.name.to_uppercase()), 16, each.bytes() as u64, "Its length.");
        text.push('\n');
    });
    WHOLE.iter().for_each(|(header, merged, whole)| whole_header(&mut text, header, merged, whole));
    constant(&mut text, "KIND_IPV4", 16, frames::KIND_IPV4, "Ethernet's number for IPv4.");
    constant(&mut text, "PROTOCOL_UDP", 8, frames::PROTOCOL_UDP, "IPv4's number for UDP.");
    constant(&mut text, "HOPS", 8, frames::HOPS, "The time to live of what the switch sends.");
    constant(&mut text, "SWITCHML_PORT", 16, switchml::PORT.into(), "The first of its UDP ports.");
    constant(&mut text, "SWITCHML_PORT_MASK", 16, switchml::PORT_MASK.into(), "Their common bits.");
    constant(&mut text, "KIND_CANARY", 16, canary::KIND_CANARY, "Ethernet's number for Canary.");
    constant(&mut text, "KIND_CLOCK", 16, canary::KIND_CLOCK, "Ethernet's number for clock packets.");
    constant(&mut text, "CANARY_REDUCE", 4, canary::REDUCE, "A contribution or partial sum.");
    constant(&mut text, "CANARY_BROADCAST", 4, canary::BROADCAST, "A sum on its way down.");
    constant(&mut text, "CANARY_RESTORE", 4, canary::RESTORE, "A sum for a switch that had a collision.");
    constant(&mut text, "CANARY_FAILED", 4, canary::FAILED, "A word of failure.");
    constant(&mut text, "PASS_BYTES", 16, 4 * formats::PASS_ELEMENTS as u64, "What a pass of a packet adds.");
    size(&mut text, "SWITCHML_CELLS", switchml::CELLS.into(), "Versions of slots, of all jobs together.");
    size(&mut text, "CANARY_DESCRIPTORS", canary::DESCRIPTORS.into(), "Descriptors (Canary 5.1).");
    let passes = formats::ELEMENTS_MAX / formats::PASS_ELEMENTS;
    size(&mut text, "PASSES", passes as u64, "Passes of the longest packet: memory for so many times 32 elements.");
    times(&mut text, "ELEMENTS", formats::PASS_ELEMENTS, "Once for each element of a pass.");
    others(&mut text);
    text + "\n#endif\n"
}

/// The text of `fields.json`: by header, its fields' names and bits.
pub fn json() -> String {
    let fields = |header: &Header| {
        let fields: Vec<String> = header.fields.iter().map(|field| format!("[\"{}\", {}]", field.name, field.bits)).collect();
        format!("  \"{}\": [{}]", header.name, fields.join(", "))
    };
    let headers: Vec<String> = HEADERS.iter().map(|header| fields(header)).collect();
    format!("{{\n{}\n}}\n", headers.join(",\n"))
}
