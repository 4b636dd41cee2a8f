//! What is kept beside the programs is what this crate makes: headers and constants, and a small corpus of golden packets.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fanin_p4::{generated, golden};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dataplanes/p4")
}

fn writes() -> bool {
    std::env::var_os("FANIN_WRITE").is_some()
}

fn compare(path: &Path, made: &[u8]) {
    if writes() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, made).unwrap();
    }
    let kept = fs::read(path).unwrap_or_default();
    assert!(made == kept, "{} is stale: FANIN_WRITE=1 cargo test -p fanin-p4 --test generated writes it", path.display());
}

#[test]
fn headers_and_constants_are_made_from_the_formats() {
    compare(&folder().join("generated.p4"), generated::p4().as_bytes());
    compare(&folder().join("fields.json"), generated::json().as_bytes());
}

/// The committed cases: enough packets to meet what can happen, fewer where they are long.
fn corpus() -> BTreeMap<String, golden::Files> {
    let of = |packets, is_long: bool| golden::cases(1, packets, 1).into_iter().filter(move |(name, _)| name.contains("-long-") == is_long);
    of(120, true).chain(of(300, false)).collect()
}

#[test]
fn the_corpus_is_what_the_state_machines_say() {
    let kept_in = folder().join("golden");
    let cases = corpus();
    for (name, files) in &cases {
        files.iter().for_each(|(file, bytes)| compare(&kept_in.join(name).join(file), bytes));
    }
    let kept = fs::read_dir(&kept_in).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for name in kept {
        assert!(cases.contains_key(&name), "{name} in {} is no case any more", kept_in.display());
    }
}

/// What comes out does not depend on how a trace was made: the packets in say it all.
#[test]
fn packets_in_played_anew_give_the_same_packets_out() {
    for (name, files) in golden::cases(5, 300, 1) {
        let program = name.split('-').next().unwrap();
        let ports = files.keys().filter(|file| file.ends_with("_in.pcap")).count();
        let into: Vec<Vec<u8>> = (0..ports).map(|port| files[&format!("p{port}_in.pcap")].clone()).collect();
        let out = golden::replay(program, std::str::from_utf8(&files["switch.json"]).unwrap(), &into).unwrap();
        assert_eq!(out.len(), ports);
        for (file, bytes) in out {
            assert!(bytes == files[&file], "{name}: {file}");
        }
        let control = fanin_p4::control::commands(program, std::str::from_utf8(&files["switch.json"]).unwrap()).unwrap();
        assert_eq!(control.as_bytes(), files["commands.txt"]);
    }
}

/// 81.25 % of a Tofino's 48 stateful units (Canary 5.1) are 39. Each register of the program would be one's.
#[test]
fn canarys_program_has_as_many_registers_as_the_prototype_has_units() {
    let registers = |file: &str| {
        let text = fs::read_to_string(folder().join(file)).unwrap();
        text.lines().filter(|line| line.trim_start().starts_with("register<")).count()
    };
    let elements = fanin_p4::formats::PASS_ELEMENTS;
    assert_eq!((registers("canary.p4"), registers("include/elements.p4")), (7, 1), "one for each of {elements} elements, and 7");
    assert_eq!((elements + 7) as f64 / 48.0, 0.8125);
}
