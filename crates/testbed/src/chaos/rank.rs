//! The process of one rank: it joins as it is told, calls collectives, and compares every result.

use std::fs;
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fanin_comm::{CollectiveKind, CommError, Communicator, Config, ElementOp, FaultPlan, Notices};

use super::messages::{Order, Report, Setup};
use super::vectors::{Vectors, Wrong};

/// How often it is told how far the rank is, at most.
const TELL_EVERY: Duration = Duration::from_millis(20);

/// How long what a communicator has made may take to be gone after it has.
const GONE_LIMIT: Duration = Duration::from_secs(8);

/// Says something; whoever listens may have ended.
fn say(report: &Report) {
    let mut out = std::io::stdout().lock();
    if let Ok(line) = serde_json::to_string(report) {
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

/// Threads that a program has for its log, the first of which begins with its first line; they are nobody's else.
const OF_LOGS: &[&str] = &["fanin-log", "fanin-counts"];

/// The names of this process's threads, without those of its log.
fn threads() -> Vec<String> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let names = threads.filter_map(|thread| Some(fs::read_to_string(thread.path().join("comm")).ok()?.trim().to_owned()));
    names.filter(|name| !OF_LOGS.contains(&name.as_str())).collect()
}

/// How many threads and descriptors this process has.
fn possessions() -> (i64, i64) {
    (threads().len() as i64, fs::read_dir(Path::new("/proc/self/fd")).map_or(0, |entries| entries.count() as i64))
}

/// Runs a rank that gets its [`Setup`] and its [`Order`]s as lines of standard input, and says [`Report`]s. `end` ends the process once nobody speaks
/// to it any more.
///
/// # Errors
/// Where it does not understand what it is told.
pub fn serve(end: impl FnOnce() + Send + 'static) -> Result<()> {
    let mut setup = String::new();
    std::io::stdin().read_line(&mut setup).context("there is no setup")?;
    let setup: Setup = serde_json::from_str(&setup).context("the setup")?;
    let (tell, orders) = channel();
    thread::spawn(move || {
        let lines = std::io::stdin().lock().lines().map_while(Result::ok);
        for order in lines.map_while(|line| serde_json::from_str::<Order>(&line).ok()) {
            let _ = tell.send(order);
        }
        end();
    });
    let before = possessions();
    perform(&setup, &orders)?;
    let deadline = Instant::now() + GONE_LIMIT;
    let more = loop {
        let (threads, descriptors) = possessions();
        let more = (threads - before.0, descriptors - before.1);
        if more.0.max(more.1) <= 0 || Instant::now() >= deadline {
            break more;
        }
        thread::sleep(Duration::from_millis(20));
    };
    let names = if more.0.max(more.1) > 0 { threads() } else { Vec::new() };
    say(&Report::Left { threads: more.0, descriptors: more.1, names });
    Ok(())
}

/// Joins, calls, waits until it may leave, and leaves.
fn perform(setup: &Setup, orders: &Receiver<Order>) -> Result<()> {
    let noise = setup.noise;
    let faults = FaultPlan {
        seed: setup.noise_seed,
        loss: noise.loss,
        duplicate: noise.duplication,
        reorder: noise.reordering,
        corrupt: noise.corruption,
    };
    let notices = Notices::to(|text| say(&Report::Notice { text: text.to_owned() }));
    let begun = Instant::now();
    let config = Config::from_variables(|name| setup.variables.get(name).cloned()).map_err(CommError::from);
    let comm = match config.and_then(|config| Communicator::join(Config { faults, notices, ..config })) {
        Ok(comm) => comm,
        Err(error) => {
            say(&failed(None, &error, begun));
            return Ok(());
        }
    };
    say(&Report::Joined { path: comm.path().to_string() });
    if call_on(&comm, setup, orders)? {
        // Who has left cannot help others to a result.
        while orders.recv().is_ok_and(|order| order != Order::Leave) {}
    }
    Ok(())
}

/// Calls until it may not or cannot any more; says whether it has done all.
fn call_on(comm: &Communicator, setup: &Setup, orders: &Receiver<Order>) -> Result<bool> {
    let calls = setup.calls.iter().map(|call| Ok((call.parts()?, call.elements))).collect::<Result<Vec<_>>>()?;
    let (mut done, mut allowed, mut told) = (0, 0, Instant::now());
    loop {
        while done >= allowed {
            match orders.recv() {
                Ok(Order::Until(until)) => allowed = until,
                Ok(Order::NoMore) => {
                    say(&Report::Finished { calls: done });
                    return Ok(true);
                }
                Ok(Order::Leave) | Err(_) => return Ok(false),
            }
        }
        let ((kind, op), elements) = calls[(done % calls.len() as u64) as usize];
        let begun = Instant::now();
        match one_call(comm, setup.seed, done, (kind, op), elements) {
            Ok(Ok(())) => done += 1,
            Ok(Err(Wrong { elements, first })) => {
                say(&Report::Wrong { call: done, elements, first });
                return Ok(false);
            }
            Err(error) => {
                say(&failed(Some(done), &error, begun));
                return Ok(false);
            }
        }
        if told.elapsed() >= TELL_EVERY || done >= allowed {
            say(&Report::Done { calls: done });
            told = Instant::now();
        }
        thread::sleep(Duration::from_millis(setup.pause_ms));
    }
}

/// A call, in place where its number says so, and what is wrong with its result.
fn one_call(
    comm: &Communicator,
    seed: u64,
    number: u64,
    (kind, op): (CollectiveKind, ElementOp),
    elements: u64,
) -> Result<Result<(), Wrong>, CommError> {
    let vectors = Vectors::new(seed, number, comm.world(), kind, (op.dtype, op.operator), elements);
    let input = vectors.input(comm.rank());
    let length = vectors.lengths().1 as usize * op.dtype.bytes();
    if kind == CollectiveKind::Barrier {
        return comm.barrier().map(Ok);
    }
    // Parts of a vector have no place in it, and a reduction to one rank or a broadcast has its result where its vector is.
    let is_apart = matches!(kind, CollectiveKind::ReduceScatter | CollectiveKind::AllGather)
        || (kind == CollectiveKind::Allreduce && number.is_multiple_of(2));
    let output = if is_apart {
        let mut output = vec![0xa5; length];
        comm.call_bytes(kind, op, elements, &input, &mut output)?;
        output
    } else {
        let mut vector = input;
        comm.call_bytes_in_place(kind, op, elements, &mut vector)?;
        vector
    };
    Ok(vectors.check(comm.rank(), &output))
}

fn failed(call: Option<u64>, error: &CommError, begun: Instant) -> Report {
    let kind = match error {
        CommError::Config(_) => "configuration",
        CommError::Arguments(_) => "arguments",
        CommError::Unreachable { .. } => "unreachable",
        CommError::Refused { .. } => "refused",
        CommError::Failed { kind: Some(kind), .. } => kind.name(),
        CommError::Failed { kind: None, .. } => "failed",
        CommError::System { .. } => "system",
        CommError::Closed { .. } => "closed",
        _ => "other",
    };
    let after_ms = begun.elapsed().as_millis() as u64;
    Report::Failed { call, text: error.to_string(), kind: kind.to_owned(), suspect: error.suspect_rank(), after_ms }
}
