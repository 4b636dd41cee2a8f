//! Lines for people, written by a thread of their own: whoever has something to say neither waits for a reader that is slow, nor ends
//! because a disk is full or a pipe is closed. What cannot be written is counted, and told once there is room again.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What may wait for a slow reader, in bytes.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// What waits to be written.
#[derive(Default)]
struct State {
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Lines are being written at the moment.
    writing: bool,
    /// Lines that were not written, and why the last of them was not.
    lost: u64,
    why: String,
    /// The process that has the thread: in a copy of the process that `fork` has made there is none.
    process: u32,
}

/// Where lines go: standard error, say. All copies are the same one.
#[derive(Clone)]
pub struct Lines(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    open: fn() -> Box<dyn Write>,
}

impl Lines {
    /// Lines to what `open` gives, which is called by the thread that writes.
    pub fn to(open: fn() -> Box<dyn Write>) -> Self {
        Lines(Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), open }))
    }

    /// Lines to the standard error of this process.
    pub fn stderr() -> &'static Lines {
        static STDERR: std::sync::LazyLock<Lines> = std::sync::LazyLock::new(|| Lines::to(|| Box::new(io::stderr())));
        &STDERR
    }

    /// Writes a line (or several) soon; returns at once. Where a reader does not keep up it is lost, and counted.
    pub fn say(&self, line: impl Into<Vec<u8>>) {
        let line = line.into();
        let mut state = self.0.state();
        if state.bytes + line.len() > WAITING_BYTES_MAX {
            state.lost += 1;
            state.why = "its reader does not keep up".into();
            return;
        }
        state.bytes += line.len();
        state.waiting.push_back(line);
        if state.process != std::process::id() {
            state.process = std::process::id();
            state.writing = false;
            let shared = self.0.clone();
            // Without a thread lines are lost, which is what they are there to be where a machine has nothing left.
            if thread::Builder::new().name("fanin-log".into()).spawn(move || shared.write()).is_err() {
                state.process = 0;
            }
        }
        drop(state);
        self.0.changed.notify_all();
    }

    /// Waits until everything is written, but not longer than `limit`: the last words of a program.
    pub fn flush(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let mut state = self.0.state();
        while (state.writing || !state.waiting.is_empty()) && state.process == std::process::id() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes for as long as the process lives.
    fn write(&self) {
        let mut out = (self.open)();
        loop {
            let (lines, lost) = self.next();
            let mut unsaid = lost.is_some();
            if let Some((count, why)) = &lost {
                let s = if *count == 1 { "line was" } else { "lines were" };
                unsaid = write_whole(&mut *out, format!("fanin: {count} {s} lost here: {why}\n").as_bytes()).is_err();
            }
            let mut failed = None;
            let mut count = 0;
            for line in lines {
                if let Err(error) = write_whole(&mut *out, &line) {
                    count += 1;
                    failed = Some(error.to_string());
                }
            }
            let mut state = self.state();
            if let (true, Some((before, why))) = (unsaid, lost) {
                state.lost += before;
                state.why = why;
            }
            if let Some(why) = failed {
                state.lost += count;
                state.why = why;
            }
            state.writing = false;
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Waits for lines; gives with them how many were lost before.
    fn next(&self) -> (VecDeque<Vec<u8>>, Option<(u64, String)>) {
        let mut state = self.state();
        while state.waiting.is_empty() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.writing = true;
        state.bytes = 0;
        let lost = (state.lost > 0).then(|| (std::mem::take(&mut state.lost), std::mem::take(&mut state.why)));
        (std::mem::take(&mut state.waiting), lost)
    }
}

/// Writes a line, also where the other end of a pipe has said that it must not be waited for.
fn write_whole(out: &mut dyn Write, mut line: &[u8]) -> io::Result<()> {
    while !line.is_empty() {
        match out.write(line) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => line = &line[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(10)),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    static WRITTEN: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    static FULL: AtomicBool = AtomicBool::new(false);

    /// A disk that is full at times.
    struct Disk;

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if FULL.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            WRITTEN.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_full_disk_does_not_take_is_counted_and_said_when_it_takes_something_again() {
        const PATIENT: Duration = Duration::from_secs(60);
        let lines = Lines::to(|| Box::new(Disk));
        lines.say("one\n");
        lines.flush(PATIENT);
        FULL.store(true, Ordering::SeqCst);
        lines.say("two\n");
        lines.flush(PATIENT);
        lines.say("three\n");
        lines.flush(PATIENT);
        FULL.store(false, Ordering::SeqCst);
        lines.say("four\n");
        lines.flush(PATIENT);
        let why = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(
            String::from_utf8(WRITTEN.lock().unwrap().clone()).unwrap(),
            format!("one\nfanin: 2 lines were lost here: {why}\nfour\n")
        );
    }

    static READ: AtomicBool = AtomicBool::new(false);
    static PIPED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

    /// A pipe whose reader does something else.
    struct Pipe;

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            while !READ.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
            PIPED.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_does_not_read_holds_nobody_up_and_takes_no_memory() {
        const PATIENT: Duration = Duration::from_secs(60);
        let lines = Lines::to(|| Box::new(Pipe));
        for _ in 0..5_000 {
            lines.say(format!("{}\n", "x".repeat(999)));
        }
        lines.flush(Duration::from_millis(1));
        assert!(lines.0.state().bytes <= WAITING_BYTES_MAX);
        READ.store(true, Ordering::SeqCst);
        lines.flush(PATIENT);
        lines.say("the end\n");
        lines.flush(PATIENT);
        let piped = String::from_utf8(PIPED.lock().unwrap().clone()).unwrap();
        let written = piped.lines().filter(|line| line.starts_with('x')).count();
        let told = piped.lines().filter_map(|line| line.strip_prefix("fanin: ")?.split(' ').next()?.parse::<usize>().ok());
        assert_eq!(written + told.sum::<usize>(), 5_000, "what is lost is counted");
        assert!(written <= 2 * (WAITING_BYTES_MAX / 1_000 + 1) && piped.ends_with("the end\n"), "{written}");
    }
}
