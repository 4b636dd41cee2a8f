//! Chakra execution traces as tools write them: versions, dimensions, types of numbers, gzip, process groups, and what is damaged.

mod common;

use std::io::Write as _;

use common::{attribute, file, number, part, varint};
use fanin_workload::import::{Format, Imported, Input, Options, import};
use fanin_workload::{CollectiveKind, Summary, Workload, validate};
use flate2::Compression;
use flate2::write::GzEncoder;

const COMPUTE: u64 = 4;
const COLLECTIVE: u64 = 7;

/// A node with what it waits for by data.
fn node(id: u64, name: &str, kind: u64, after: &[u64], rest: &[Vec<u8>]) -> Vec<u8> {
    let after: Vec<u8> = after.iter().flat_map(|id| number(5, *id)).collect();
    [number(1, id), part(2, name.as_bytes()), number(3, kind), after, rest.concat()].concat()
}

fn text(name: &str, value: &str) -> Vec<u8> {
    part(10, &[part(1, name.as_bytes()), part(29, value.as_bytes())].concat())
}

/// `involved_dim`: a list of bools, packed as proto3 does it, or one by one.
fn dimensions(values: &[bool], packed: bool) -> Vec<u8> {
    let bytes: Vec<u8> = values.iter().map(|one| u8::from(*one)).collect();
    let list = if packed { part(1, &bytes) } else { bytes.iter().flat_map(|one| number(1, u64::from(*one))).collect() };
    part(10, &[part(1, b"involved_dim"), part(28, &list)].concat())
}

/// 12 us of computing, then a collective.
fn trace(version: &str, attributes: &[Vec<u8>]) -> Vec<u8> {
    let head = if version.is_empty() { Vec::new() } else { part(1, version.as_bytes()) };
    file(&[head, node(1, "multiply", COMPUTE, &[], &[number(7, 12)]), node(2, "sum", COLLECTIVE, &[1], attributes)])
}

fn all_reduce(more: &[Vec<u8>]) -> Vec<Vec<u8>> {
    [&[attribute("comm_type", 9, 0), attribute("comm_size", 9, 1 << 20)], more].concat()
}

fn read(files: &[(&str, Vec<u8>)]) -> Result<(Imported, Summary), String> {
    let inputs = files.iter().map(|(name, bytes)| Input::new(name, bytes.clone()));
    let inputs: Vec<Input> = inputs.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    assert_eq!(inputs.iter().find_map(Format::of), Some(Format::Chakra));
    let found = import(Format::Chakra, &inputs, &Options::default()).map_err(|error| error.to_string())?;
    let again = Workload::from_toml("w.toml", &found.workload.to_toml()).map_err(|error| error.to_string())?;
    let checked = validate(&again, "w.toml").map_err(|error| error.to_string())?;
    let summary = Summary::new(&again, &checked);
    Ok((found, summary))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::default());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

#[test]
fn dimensions_of_the_network_that_are_left_out_are_said() {
    let of = |values: &[bool], packed| {
        let bytes = trace("0.0.4", &all_reduce(&[dimensions(values, packed)]));
        read(&[("a.0.et", bytes.clone()), ("a.1.et", bytes)]).unwrap()
    };
    for packed in [true, false] {
        let (found, summary) = of(&[true, true, true], packed);
        assert_eq!((summary.ranks, summary.collectives[0].bytes_of_rank), (2, 1 << 20));
        assert!(found.report.assumed.iter().all(|one| !one.contains("involved_dim")), "{:?}", found.report);
        let (found, _) = of(&[true, false], packed);
        assert!(found.report.assumed.iter().any(|one| one.starts_with("involved_dim does not count")), "{:?}", found.report);
    }
}

#[test]
fn gzip_files_have_their_ranks_in_their_names() {
    let bytes = gzip(&trace("0.0.4", &all_reduce(&[])));
    let files = [("a.3.et.gz", bytes.clone()), ("a.0.et.gz", bytes.clone()), ("a.2.et.gz", bytes.clone()), ("a.1.et.gz", bytes.clone())];
    let (found, summary) = read(&files).unwrap();
    assert_eq!((summary.ranks, summary.programs, summary.span.map(|span| span.as_ps())), (4, 1, Some(12_000_000)));
    assert!(found.report.assumed.iter().all(|one| !one.contains("order in which they are given")), "{:?}", found.report);
    let error = Input::new("a.0.et.gz", bytes[..bytes.len() - 9].to_vec()).unwrap_err().to_string();
    assert!(error.starts_with("a.0.et.gz: gzip: "), "{error}");
}

#[test]
fn other_versions_are_read_and_said() {
    for version in ["0.0.1", "0.0.5"] {
        let (found, _) = read(&[("a.0.et", trace(version, &all_reduce(&[]))), ("a.1.et", trace(version, &all_reduce(&[])))]).unwrap();
        assert!(found.report.assumed.contains(&format!("version {version:?} of the format is read as 0.0.4")), "{:?}", found.report);
    }
    // A feeder of ASTRA-sim writes no version: the file's name tells what it is.
    let bytes = trace("", &all_reduce(&[]));
    let (_, summary) = read(&[("a.0.et", bytes.clone()), ("a.1.et", bytes)]).unwrap();
    assert_eq!(summary.ranks, 2);
}

/// Converters write the same number in fields of different types.
#[test]
fn numbers_may_be_of_any_type() {
    // int32, int64, uint32, uint64; sint32 and sint64 in zigzag.
    for (tag, of) in [(7, 1u64), (9, 1), (11, 1), (13, 1), (15, 2), (17, 2)] {
        let attributes = [attribute("comm_type", tag, 0), attribute("comm_size", tag, 4_096 * of)];
        let bytes = trace("0.0.4", &attributes);
        let (_, summary) = read(&[("a.0.et", bytes.clone()), ("a.1.et", bytes)]).unwrap_or_else(|error| panic!("{tag}: {error}"));
        assert_eq!(summary.collectives[0].bytes_of_rank, 4_096, "{tag}");
    }
}

#[test]
fn process_groups_are_by_name_or_number() {
    let groups = ("groups.json", br#"{"7": [0, 2], "8": [1, 3]}"#.to_vec());
    let of = |name: &[u8], value: Vec<u8>| trace("0.0.4", &all_reduce(&[part(10, &[part(1, name), value].concat())]));
    for numbered in [true, false] {
        let value = |group: u64| if numbered { number(9, group) } else { part(29, group.to_string().as_bytes()) };
        let mut files: Vec<(&str, Vec<u8>)> = ["a.0.et", "a.1.et", "a.2.et", "a.3.et"]
            .iter()
            .zip(0u64..)
            .map(|(name, rank)| (*name, of(b"pg_name", value(7 + rank % 2))))
            .collect();
        files.push(groups.clone());
        let (found, summary) = read(&files).unwrap();
        let members: Vec<Vec<u32>> =
            found.workload.groups.iter().flat_map(|group| (0..group.members.instances(4)).map(|one| group.members.of(one))).collect();
        assert_eq!((summary.ranks, members), (4, vec![vec![0, 2], vec![1, 3]]), "{numbered}");
    }
    // A group that nobody lists is named, and what is of it is counted.
    let (found, _) = read(&[("a.0.et", of(b"pg_name", part(29, b"9"))), ("a.1.et", of(b"pg_name", part(29, b"9"))), groups]).unwrap();
    let left = &found.report.left_out[0];
    assert_eq!(
        (left.what.as_str(), left.count, left.first.as_str()),
        ("collectives of process group \"9\", whose ranks are nowhere", 2, "a.0.et: node 2 \"sum\"")
    );
    let wrong = |json: &str| {
        read(&[("a.0.et", trace("0.0.4", &all_reduce(&[]))), ("groups.json", json.as_bytes().to_vec())]).map(drop).unwrap_err()
    };
    assert_eq!(wrong("{\"7\": [0, 0]}"), "groups.json: group \"7\": expected different ranks");
    assert!(wrong("{\"7\": [0, 1").starts_with("groups.json:1: no process groups: "), "{}", wrong("{\"7\": [0, 1"));
}

#[test]
fn every_type_of_collective_is_taken_or_named() {
    use CollectiveKind as Kind;
    let kinds = [
        (0, Some(Kind::AllReduce)),
        (1, Some(Kind::Reduce)),
        (2, Some(Kind::AllGather)),
        (3, None),
        (4, None),
        (5, Some(Kind::Broadcast)),
        (6, Some(Kind::AllToAll)),
        (7, Some(Kind::ReduceScatter)),
        (9, Some(Kind::Barrier)),
        (12, None),
    ];
    for (number, expected) in kinds {
        let bytes = trace("0.0.4", &[attribute("comm_type", 9, number), attribute("comm_size", 9, 4_096)]);
        let (found, summary) = read(&[("a.0.et", bytes.clone()), ("a.1.et", bytes)]).unwrap();
        assert_eq!(summary.collectives.first().map(|row| row.kind), expected, "{number}");
        assert_eq!(found.report.left_out_count(), if expected.is_none() { 2 } else { 0 }, "{number}: {:?}", found.report);
    }
}

#[test]
fn damage_is_an_error_that_says_where() {
    let whole = trace("0.0.4", &all_reduce(&[text("pg_name", "")]));
    let refused = |bytes: Vec<u8>| read(&[("a.0.et", bytes)]).map(drop).unwrap_err();
    // All lengths: what is cut within a message is an error with the byte at which that begins; at its end a file is only shorter.
    let ends: Vec<usize> = {
        let (mut at, mut ends) = (0, vec![0]);
        while at < whole.len() {
            at += 1 + usize::from(whole[at]);
            ends.push(at);
        }
        ends
    };
    for length in 8..whole.len() {
        if ends.contains(&length) {
            continue;
        }
        let begin = ends.iter().rev().find(|end| **end < length).copied().unwrap_or(0);
        let error = refused(whole[..length].to_vec());
        assert!(error.starts_with(&format!("a.0.et: at byte {begin}: ")), "{length}: {error}");
    }
    // A length beyond the file, a field of another kind, an id twice, nodes that wait for each other.
    let error = refused([&whole[..], &varint(1 << 40)].concat());
    assert_eq!(error, format!("a.0.et: at byte {}: a message of 1099511627776 bytes, of which there are 0", whole.len()));
    let error = refused(file(&[part(1, b"0.0.4"), number(2, 5)]));
    assert!(error.starts_with("a.0.et: at byte 8: no node: "), "{error}");
    let twice = node(1, "multiply", COMPUTE, &[], &[]);
    assert_eq!(refused(file(&[part(1, b"0.0.4"), twice.clone(), twice])), "a.0.et: node 1 \"multiply\": another node has the same id");
    let circle = file(&[part(1, b"0.0.4"), node(1, "a", COMPUTE, &[2], &[]), node(2, "b", COMPUTE, &[1], &[])]);
    assert_eq!(refused(circle), "a.0.et: node 1 \"a\": waits for itself, by way of others");
    assert_eq!(
        read(&[("a.0.et", whole.clone()), ("b.0.et", whole)]).map(drop).unwrap_err(),
        "b.0.et: rank 0: expected one below 1048576 that no other file has"
    );
}
