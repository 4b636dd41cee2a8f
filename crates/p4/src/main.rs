//! Golden packets and control planes of the P4 programs, for `scripts/p4.py`.
//!
//!     fanin-p4 golden FOLDER [--seed N] [--packets N] [--cases N]    cases of packets in and out, one folder each
//!     fanin-p4 replay FOLDER                                         a case's packets out anew, from its packets in
//!     fanin-p4 control PROGRAM SWITCH.json                           the commands for simple_switch_CLI
//!     fanin-p4 dpdk PROGRAM SWITCH.json                              what dataplanes/dpdk/play is told
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use fanin_p4::{control, dpdk, golden};

const USAGE: &str = "usage: fanin-p4 golden FOLDER [--seed N] [--packets N] [--cases N]\n       fanin-p4 replay FOLDER\n       fanin-p4 control|dpdk PROGRAM SWITCH.json";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["golden", folder, options @ ..] => write_cases(Path::new(folder), options),
        ["control", program, file] => commands(control::commands, program, Path::new(file)).map(|text| print!("{text}")),
        ["dpdk", program, file] => commands(dpdk::configuration, program, Path::new(file)).map(|text| print!("{text}")),
        ["replay", folder] => replay(Path::new(folder)),
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::from(2)
        }
    }
}

/// The value of an option.
fn option(options: &[&str], name: &str, default: u64) -> Result<u64, String> {
    match options.iter().position(|word| *word == name) {
        None => Ok(default),
        Some(at) => options.get(at + 1).and_then(|text| text.parse().ok()).ok_or(format!("{name} needs a number")),
    }
}

fn write_cases(folder: &Path, options: &[&str]) -> Result<(), String> {
    let known = ["--seed", "--packets", "--cases"];
    if let Some(word) = options.iter().step_by(2).find(|word| !known.contains(word)) {
        return Err(format!("{word}: no such option\n{USAGE}"));
    }
    let (seed, packets) = (option(options, "--seed", 1)?, option(options, "--packets", 400)? as usize);
    for (name, files) in golden::cases(seed, packets, option(options, "--cases", 1)?) {
        write_case(&folder.join(name), &files).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    Ok(())
}

fn write_case(folder: &Path, files: &BTreeMap<String, Vec<u8>>) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    files.iter().try_for_each(|(name, bytes)| std::fs::write(folder.join(name), bytes))
}

fn replay(folder: &Path) -> Result<(), String> {
    let read = |name: String| std::fs::read(folder.join(&name)).map_err(|error| format!("{}: {error}", folder.join(name).display()));
    let text = |name: &str| String::from_utf8(read(name.into())?).map_err(|error| format!("{name}: {error}"));
    let about: serde_json::Value = serde_json::from_str(&text("case.json")?).map_err(|error| format!("case.json: {error}"))?;
    let (Some(program), Some(ports)) = (about["program"].as_str(), about["ports"].as_u64()) else {
        return Err("case.json names no program or no number of ports".into());
    };
    let into: Vec<Vec<u8>> = (0..ports).map(|port| read(format!("p{port}_in.pcap"))).collect::<Result<_, _>>()?;
    let files = golden::replay(program, &text("switch.json")?, &into)?;
    write_case(folder, &files).map_err(|error| format!("{}: {error}", folder.display()))
}

/// What is made of a switch's configuration for a program.
fn commands(make: impl Fn(&str, &str) -> Result<String, String>, program: &str, file: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    make(program, &text).map_err(|error| format!("{}: {error}", file.display()))
}
