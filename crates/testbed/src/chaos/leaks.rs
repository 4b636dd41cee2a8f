//! What processes have, and what they must not keep; and taking descriptors from them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// How long what jobs had may take to be gone after them: connections are closed, and threads end.
const GONE_LIMIT: Duration = Duration::from_secs(6);

/// How long metrics may take.
const METRICS_LIMIT: Duration = Duration::from_secs(3);

/// What a service may have more than when it began to serve: connections between the manager and its switches, which they keep, and the one that asks for
/// metrics.
const SLACK: usize = 8;

/// What a process has.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Possessions {
    threads: usize,
    descriptors: usize,
}

/// What a process has just now.
pub fn possessions(process: u32) -> Possessions {
    let count = |what: &str| fs::read_dir(format!("/proc/{process}/{what}")).map_or(0, Iterator::count);
    Possessions { threads: count("task"), descriptors: count("fd") }
}

/// Names in `/dev/shm`; none where there is no such folder.
pub fn shared_memory() -> BTreeSet<String> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(|name| name.contains("fanin")).collect()
}

/// What a service still has after its jobs, in words; and bugs that it has noticed itself.
pub fn find(process: u32, first: Possessions, metrics: Option<SocketAddr>) -> Vec<String> {
    let mut found = Vec::new();
    let deadline = Instant::now() + GONE_LIMIT;
    loop {
        let now = possessions(process);
        if now.threads <= first.threads + SLACK && now.descriptors <= first.descriptors + SLACK {
            break;
        }
        if Instant::now() >= deadline {
            found.push(format!("left behind: {now:?} after all jobs, {first:?} before them"));
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    let Some(address) = metrics else { return found };
    match page(address) {
        Ok(page) => {
            let broken =
                page.lines().filter(|line| line.contains("_broken_invariants_total") && !line.starts_with('#') && !line.ends_with(" 0"));
            found.extend(broken.map(|line| format!("broken invariant: {line}")));
        }
        Err(error) => found.push(format!("no metrics: {error:#}")),
    }
    found
}

/// The metrics of a service.
fn page(address: SocketAddr) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, METRICS_LIMIT).context("the connection")?;
    stream.set_read_timeout(Some(METRICS_LIMIT))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text).context("the answer")?;
    Ok(text)
}

/// How many descriptors a process might have before it was allowed no more than it has.
#[derive(Debug)]
pub struct Descriptors(Rlimit);

impl Descriptors {
    /// Lets a process open nothing more.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn exhaust(process: u32) -> Result<Self> {
        let pid = Pid::from_raw(process as i32).context("a process without a number")?;
        // The lowest numbers are taken; what is closed from now on may be opened again.
        let open = possessions(process).descriptors as u64;
        let before = prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(open), maximum: hard(process)? })?;
        Ok(Descriptors(before))
    }

    /// Lets it open what it could.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn restore(self, process: u32) -> Result<()> {
        let pid = Pid::from_raw(process as i32).context("a process without a number")?;
        // Whoever has ended needs nothing.
        let _ = prlimit(Some(pid), Resource::Nofile, self.0);
        Ok(())
    }
}

/// The limit that a process can raise its own to; it stays as it is, since only root could raise it again.
fn hard(process: u32) -> Result<Option<u64>> {
    let text = fs::read_to_string(format!("/proc/{process}/limits")).context("the limits of a process")?;
    let line = text.lines().find(|line| line.starts_with("Max open files")).context("the limits of a process")?;
    Ok(line.split_whitespace().nth(4).and_then(|word| word.parse().ok()))
}
