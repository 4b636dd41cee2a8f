//! A dissector for Wireshark and tshark, made from the layouts that `fanin_wire` has of all formats, so that it shows every field and no
//! other.

use std::fmt::Write;

use fanin_systems::LAYOUTS;
use fanin_wire::hop::VERSION;
use fanin_wire::layout::hop::{HOP, WAY};
use fanin_wire::layout::{Field, Layout, Show};
use fanin_wire::link::LINK_SYSTEM;

/// What is the same whatever the formats are.
const CODE: &str = include_str!("dissector.lua");

/// Fields that the packet list shows in its column for information.
const SHOWN: &[&str] = &[
    "block",
    "generation",
    "counter",
    "rank",
    "slot",
    "round",
    "tensor",
    "seq",
    "operation",
    "step",
    "segment",
    "number",
    "message",
    "offset",
    "packet_number",
    "count",
    "suspect",
];

/// The dissector as a Lua program.
pub fn lua() -> String {
    let mut text =
        String::from("-- Made by `fanin trace --dissector`: a dissector of the packets that Fanin's processes send each other.\n");
    let _ = writeln!(text, "-- Wireshark and tshark read it with -X lua_script:FILE, or from their folder of plug-ins.\n");
    let _ = writeln!(text, "local VERSION = {VERSION}");
    let _ = writeln!(text, "local LINK = {LINK_SYSTEM}");
    let _ = writeln!(text, "local HOP = {}", layout(&HOP));
    let _ = writeln!(text, "local WAY = {}", fields(WAY));
    let _ = writeln!(text, "local SYSTEMS = {{");
    for (number, _, of_system) in LAYOUTS {
        let _ = writeln!(text, "  [{number}] = {},", layout(of_system));
    }
    let _ = writeln!(text, "}}\nlocal NAMES = {{");
    for (number, name, _) in LAYOUTS {
        let _ = writeln!(text, "  [{number}] = {name:?},");
    }
    let shown: Vec<String> = SHOWN.iter().map(|name| format!("{name} = true")).collect();
    let _ = writeln!(text, "}}\nlocal SHOWN = {{ {} }}\n", shown.join(", "));
    text + CODE
}

fn layout(layout: &Layout) -> String {
    let (at, mask) = layout.kind;
    let kind = |kind: &fanin_wire::layout::Kind| format!("[{}] = {{ {:?}, {} }}", kind.number, kind.name, kind.header_bytes);
    let kinds: Vec<String> = layout.kinds.iter().map(kind).collect();
    format!(
        "{{\n  name = {:?}, title = {:?}, big = {}, kind_at = {at}, kind_shift = {}, kind_width = {},\n  kinds = {{ {} }},\n  fields = {},\n}}",
        layout.name,
        layout.title,
        layout.big_endian,
        mask.trailing_zeros(),
        mask.count_ones(),
        kinds.join(", "),
        fields(layout.fields)
    )
}

fn fields(fields: &[Field]) -> String {
    let lines: Vec<String> = fields.iter().map(|field| format!("    {},\n", one(field))).collect();
    format!("{{\n{}  }}", lines.concat())
}

/// A field: its bits are counted from the lowest one on.
fn one(field: &Field) -> String {
    let mask = field.whole_mask();
    let (shift, width) = (mask.trailing_zeros(), mask.count_ones());
    let kinds: Vec<String> = field.kinds.iter().map(|kind| format!("[{kind}] = true")).collect();
    let kinds = if kinds.is_empty() { "nil".into() } else { format!("{{ {} }}", kinds.join(", ")) };
    let values: Vec<String> = field.values.iter().map(|(value, name)| format!("[{value}] = {name:?}")).collect();
    let values = if values.is_empty() { "nil".into() } else { format!("{{ {} }}", values.join(", ")) };
    let show = match field.show {
        Show::Decimal => "decimal",
        Show::Hex | Show::Bits => "hex",
        Show::Signed => "signed",
    };
    format!(
        "{{ name = {:?}, at = {}, bytes = {}, shift = {shift}, width = {width}, kinds = {kinds}, show = {show:?}, values = {values} }}",
        field.name, field.at, field.bytes
    )
}
