//! What a running switch sees at its ports, written by a thread of its own.

use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow};
use fanin_transparent::{Tap, TapBatch, tap};

use super::pcapng::{Direction, PcapNg};

/// The thread that writes.
pub struct Writer {
    thread: JoinHandle<Result<u64>>,
}

/// Begins a file with an interface for each port, and gives the tap that fills it with the first `frames_max` frames.
///
/// # Errors
/// What the system says.
pub fn begin(path: &Path, ports: &[String], frames_max: u64) -> Result<(Tap, Writer)> {
    let mut file = PcapNg::create(path, ports)?;
    let (tap, reader) = tap(frames_max);
    let start_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let write = move || {
        let mut written = 0;
        let mut take = |batch: &TapBatch| -> Result<()> {
            for (seen, frame) in batch.frames() {
                let direction = if seen.left { Direction::Out } else { Direction::In };
                file.add(seen.port, start_ns + seen.at_ns, direction, frame)?;
                written += 1;
            }
            Ok(())
        };
        while reader.next(&mut take)? {}
        file.finish().map(|()| written)
    };
    let thread = thread::Builder::new().name("fanin-trace".into()).spawn(write)?;
    Ok((tap, Writer { thread }))
}

impl Writer {
    /// Waits until all is written, once the tap is gone; gives how many frames there are.
    ///
    /// # Errors
    /// Why the file is not whole.
    pub fn finish(self) -> Result<u64> {
        self.thread.join().map_err(|_| anyhow!("the thread that writes the trace has panicked"))?
    }
}
