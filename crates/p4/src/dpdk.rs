//! The same switches for DPDK's software pipeline (`dataplanes/dpdk`): programs made from templates and the formats' numbers, and what the
//! driver there (`play`) is told of a configuration.
//!
//! A `.spec` has no loops and no constants. So a template has `@for i N` and `@end` around what is repeated for i = 0 to N - 1, and `{NAME}`
//! for a number.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::control::{canary, switchml};
use crate::formats::canary::{BROADCAST, CANARY, DESCRIPTORS, FAILED, KIND_CANARY, KIND_CLOCK, REDUCE, RESTORE};
use crate::formats::switchml::{CELLS, PORT, PORT_MASK, SWITCHML, WORKERS_MAX, passes, size_of};
use crate::formats::{ELEMENTS_MAX, PASS_ELEMENTS};
use crate::frames::{ETHERNET, HOPS, IPV4, KIND_IPV4, PROTOCOL_UDP, UDP};

/// The programs, by name.
pub const PROGRAMS: [&str; 2] = ["canary", "switchml"];

/// The numbers of a program's template.
///
/// # Errors
/// Where there is no such program.
pub fn numbers(program: &str) -> Result<BTreeMap<&'static str, u64>, String> {
    let elements = ELEMENTS_MAX as u64;
    match program {
        "canary" => Ok(BTreeMap::from([
            ("BROADCAST_FLAGS", flags("multicast") | BROADCAST),
            ("BYPASS", flags("bypass")),
            ("DESCRIPTORS", DESCRIPTORS.into()),
            ("ELEMENTS_SHIFT", elements.ilog2().into()),
            ("ETHERNET_BYTES", ETHERNET.bytes() as u64),
            ("FAILED", FAILED),
            ("FRONT_BYTES", (ETHERNET.bytes() + CANARY.bytes()) as u64),
            ("KIND_CANARY", KIND_CANARY),
            ("KIND_CLOCK", KIND_CLOCK),
            ("PASSES", passes(ELEMENTS_MAX) as u64),
            ("PASS_BYTES_SHIFT", (4 * PASS_ELEMENTS).ilog2().into()),
            ("PASS_ELEMENTS", PASS_ELEMENTS as u64),
            ("REDUCE", REDUCE),
            ("RESTORE", RESTORE),
            ("RESTORE_FLAGS", flags("bypass") | RESTORE),
            ("WORDS", u64::from(DESCRIPTORS) * elements),
        ])),
        "switchml" => Ok(BTreeMap::from([
            ("CELLS", CELLS.into()),
            ("ELEMENTS_SHIFT", elements.ilog2().into()),
            ("ETHERNET_BYTES", ETHERNET.bytes() as u64),
            ("FRONT_BYTES", (ETHERNET.bytes() + IPV4.bytes() + UDP.bytes() + SWITCHML.bytes()) as u64),
            ("HOPS_UDP", HOPS << 8 | PROTOCOL_UDP),
            ("IPV4_BYTES", IPV4.bytes() as u64),
            ("KIND_IPV4", KIND_IPV4),
            ("PASSES", passes(ELEMENTS_MAX) as u64),
            ("PASS_BYTES", 4 * PASS_ELEMENTS as u64),
            ("PASS_ELEMENTS", PASS_ELEMENTS as u64),
            ("PORT", PORT.into()),
            ("PORT_MASK", PORT_MASK.into()),
            ("PROTOCOL_UDP", PROTOCOL_UDP),
            ("UDP_HEADERS_BYTES", (UDP.bytes() + SWITCHML.bytes()) as u64),
            ("WORDS", u64::from(CELLS) * elements),
        ])),
        _ => Err(format!("there is no program {program} for DPDK: there are {}", PROGRAMS.join(", "))),
    }
}

/// A bit of the last byte of Canary's header.
fn flags(name: &str) -> u64 {
    u64::from(*CANARY.with(&[(name, 1)]).last().expect("a header has bytes"))
}

/// Makes a program of its template.
///
/// # Errors
/// The line that is wrong, and why.
pub fn expand(template: &str, numbers: &BTreeMap<&str, u64>) -> Result<String, String> {
    let lines: Vec<(usize, &str)> = template.lines().enumerate().map(|(number, line)| (number + 1, line)).collect();
    let mut known = numbers.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let mut text = String::new();
    repeat(&lines, &mut known, &mut text)?;
    Ok(text)
}

fn repeat(lines: &[(usize, &str)], known: &mut BTreeMap<String, u64>, text: &mut String) -> Result<(), String> {
    let mut rest = lines;
    while let Some(((number, line), behind)) = rest.split_first() {
        rest = behind;
        if let Some(loops) = line.strip_prefix("@for ") {
            let (name, count) = loops.split_once(' ').ok_or(format!("line {number}: expected @for NAME COUNT"))?;
            let count = fill(*number, count, known)?;
            let count: u64 = count.parse().map_err(|_| format!("line {number}: {count} is no count"))?;
            let end = end_of(behind).ok_or(format!("line {number}: @for without @end"))?;
            if known.contains_key(name) {
                return Err(format!("line {number}: {name} has a value already"));
            }
            for value in 0..count {
                known.insert(name.to_owned(), value);
                repeat(&behind[..end], known, text)?;
            }
            known.remove(name);
            rest = &behind[end + 1..];
        } else if *line == "@end" {
            return Err(format!("line {number}: @end without @for"));
        } else {
            *text += &fill(*number, line, known)?;
            text.push('\n');
        }
    }
    Ok(())
}

/// Where the `@end` is of a loop whose lines begin here.
fn end_of(lines: &[(usize, &str)]) -> Option<usize> {
    let mut depth = 1;
    lines.iter().position(|(_, line)| {
        depth += i32::from(line.starts_with("@for ")) - i32::from(*line == "@end");
        depth == 0
    })
}

/// A line with numbers in place of their names.
fn fill(number: usize, line: &str, known: &BTreeMap<String, u64>) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once('{') {
        text += before;
        // A block of the program begins: what is behind a brace at the end of a line.
        if behind.is_empty() {
            text.push('{');
            return Ok(text);
        }
        let (name, behind) = behind.split_once('}').ok_or(format!("line {number}: a brace that is not closed"))?;
        let value = known.get(name).ok_or(format!("line {number}: {{{name}}} is no number of this program"))?;
        write!(text, "{value}").expect("a String takes all text");
        rest = behind;
    }
    Ok(text + rest)
}

/// What the driver is told of a switch: `dataplanes/dpdk/play.c` says how it reads that.
///
/// # Errors
/// What is wrong with the configuration.
pub fn configuration(program: &str, json: &str) -> Result<String, String> {
    match program {
        "switchml" => {
            let switch: switchml::Switch = serde_json::from_str(json).map_err(|error| error.to_string())?;
            of_switchml(&switch)
        }
        "canary" => {
            let switch: canary::Switch = serde_json::from_str(json).map_err(|error| error.to_string())?;
            of_canary(&switch)
        }
        _ => numbers(program).map(|_| String::new()),
    }
}

fn of_switchml(switch: &switchml::Switch) -> Result<String, String> {
    switch.check().map_err(|error| error.to_string())?;
    let address = |ip: std::net::Ipv4Addr| u32::from(ip);
    let mut lines = vec![format!("register OWN 0 {:#x}", switch.at.mac.0), format!("register OWN 1 {:#x}", address(switch.at.ip))];
    let (mut first, own) = (0u32, address(switch.at.ip));
    for job in &switch.jobs {
        let number = job.job;
        let size = size_of(job.elements).ok_or(format!("job {number} has {} elements in a packet", job.elements))?;
        let all = u32::MAX >> (WORKERS_MAX - job.members.len());
        for (rank, member) in job.members.iter().enumerate() {
            let (port, slots, ahead, workers) = (member.port, job.slots, job.ahead(), job.members.len());
            let (ip, bit) = (address(member.at.ip), 1u32 << rank);
            lines.push(format!(
                "table member match {port} {ip:#x} {own:#x} {number} {size} action contribute rank {rank} bit {bit:#x} all {all:#x} first {first} \
                 slots {slots} ahead {ahead} workers {workers}"
            ));
            let (mac, udp) = (member.at.mac.0, member.at.udp);
            lines.push(format!("table worker match {number} {rank} action to_worker mac {mac:#x} ip {ip:#x} udp {udp} port {port}"));
        }
        first += 2 * u32::from(job.slots);
    }
    Ok(lines.join("\n") + "\n")
}

/// The CRC-32 that switches have, of each byte (IEEE 802.3, reflected): what is put together of a word's bytes.
fn crc(byte: u32) -> u32 {
    (0..8).fold(byte, |word, _| if word & 1 == 1 { word >> 1 ^ 0xedb8_8320 } else { word >> 1 })
}

fn of_canary(switch: &canary::Switch) -> Result<String, String> {
    switch.check().map_err(|error| error.to_string())?;
    let ports = u64::MAX >> (u64::BITS - u32::from(switch.ports()));
    let own = [
        switch.mac.0,
        u64::from(u32::from(switch.ip)),
        switch.number.into(),
        switch.descriptors.into(),
        switch.timeout.into(),
        switch.lifetime.into(),
        ports,
        passes(switch.elements) as u64,
        switch.clock_port.into(),
    ];
    let mut lines: Vec<String> = own.iter().enumerate().map(|(place, value)| format!("register OWN {place} {value:#x}")).collect();
    lines.extend((0..256).map(|byte| format!("register CRC {byte} {:#x}", crc(byte))));
    for way in &switch.ways {
        lines.push(format!("table route match {:#x} action to_port port {}", u32::from(way.to), way.port));
    }
    for (port, mac) in switch.neighbours.iter().enumerate() {
        lines.push(format!("table neighbour match {port} action set_neighbour mac {:#x}", mac.0));
    }
    Ok(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::switchml::Shape;

    fn expanded(template: &str) -> Result<String, String> {
        expand(template, &BTreeMap::from([("TWO", 2), ("PORT", 0xbee0)]))
    }

    #[test]
    fn loops_and_numbers_are_filled_in() {
        assert_eq!(expanded("apply {\n\tmov m.a {PORT}\n}\n").unwrap(), "apply {\n\tmov m.a 48864\n}\n");
        let nested = "@for i {TWO}\n@for j 3\na{i}{j}\n@end\nb{i}\n@end\nc\n";
        assert_eq!(expanded(nested).unwrap(), "a00\na01\na02\nb0\na10\na11\na12\nb1\nc\n");
        assert_eq!(expanded("@for i 0\na\n@end\n").unwrap(), "");
    }

    #[test]
    fn what_is_wrong_with_a_template_is_named() {
        let error = |template: &str| expanded(template).unwrap_err();
        assert_eq!(error("a\n{THREE}"), "line 2: {THREE} is no number of this program");
        assert_eq!(error("{i}"), "line 1: {i} is no number of this program");
        assert_eq!(error("@for i 2\n@end\n{i}"), "line 3: {i} is no number of this program");
        assert_eq!(error("@for i 2\na"), "line 1: @for without @end");
        assert_eq!(error("a\n@end"), "line 2: @end without @for");
        assert_eq!(error("@for i\n@end"), "line 1: expected @for NAME COUNT");
        assert_eq!(error("@for i x\n@end"), "line 1: x is no count");
        assert_eq!(error("@for TWO 1\n@end"), "line 1: TWO has a value already");
        assert_eq!(error("mov {PORT"), "line 1: a brace that is not closed");
    }

    #[test]
    fn places_are_made_of_the_crc_of_bytes() {
        let by_bytes = |id: u32| !id.to_be_bytes().iter().fold(u32::MAX, |word, byte| word >> 8 ^ crc((word ^ u32::from(*byte)) & 0xff));
        for id in [0, 1, 0x3132_3334, u32::MAX] {
            assert_eq!(by_bytes(id), crc32fast::hash(&id.to_be_bytes()));
        }
        let json = serde_json::to_string(&crate::golden::canary::Shape::Short.switch()).unwrap();
        let text = configuration("canary", &json).unwrap();
        assert!(
            text.contains("register OWN 6 0xff\nregister OWN 7 0x1\nregister OWN 8 0x7\nregister CRC 0 0x0\nregister CRC 1 0x77073096\n"),
            "{text}"
        );
        assert!(
            text.contains("table route match 0xa000003 action to_port port 3\n")
                && text.ends_with("match 7 action set_neighbour mac 0x20000000107\n"),
            "{text}"
        );
    }

    #[test]
    fn members_of_a_job_have_its_cells_and_their_own_bits() {
        let json = serde_json::to_string(&Shape::OneAndMany.switch()).unwrap();
        let text = configuration("switchml", &json).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["register OWN 0 0x200000000fe", "register OWN 1 0xa0000fe"]);
        assert_eq!(
            lines[2],
            "table member match 3 0xa000004 0xa0000fe 0 0 action contribute rank 0 bit 0x1 all 0x1 first 0 slots 1 ahead 6 workers 1"
        );
        assert_eq!(
            lines[10..],
            [
                "table member match 3 0xa000004 0xa0000fe 255 1 action contribute rank 3 bit 0x8 all 0xf first 2 slots 4 ahead 12 workers 4",
                "table worker match 255 3 action to_worker mac 0x20000000004 ip 0xa000004 udp 4255 port 3",
            ]
        );
        assert!(configuration("switchml", "{}").unwrap_err().contains("missing field"));
        assert_eq!(configuration("sharp", "{}").unwrap_err(), "there is no program sharp for DPDK: there are canary, switchml");
    }
}
