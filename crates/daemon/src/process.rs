//! What the operating system says about this process.

use std::fs;
use std::time::Duration;

/// Resources of this process, as far as the system tells.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct ProcessStatus {
    pub(crate) cpu: Duration,
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) open_files: Option<u64>,
    pub(crate) threads: Option<u64>,
}

impl ProcessStatus {
    pub(crate) fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        ProcessStatus {
            cpu: fanin_runtime::clock::process_cpu_time(),
            resident_bytes: field("VmRSS").map(|kib| kib << 10),
            // The listing itself opens a file.
            open_files: fs::read_dir("/proc/self/fd").ok().map(|entries| (entries.count() as u64).saturating_sub(1)),
            threads: field("Threads"),
        }
    }
}
