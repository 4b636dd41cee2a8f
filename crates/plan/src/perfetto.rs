//! Events over time, as a file that Perfetto and Chrome open.

use std::io::{self, Write};

use serde_json::{Value, json};

/// A file of events; who writes numbers its processes and their threads.
pub struct Events<'a> {
    out: &'a mut dyn Write,
    is_first: bool,
}

impl<'a> Events<'a> {
    /// Begins the file.
    ///
    /// # Errors
    /// Those of `out`, as of all that follows.
    pub fn begin(out: &'a mut dyn Write) -> io::Result<Self> {
        write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        Ok(Events { out, is_first: true })
    }

    fn put(&mut self, event: &Value) -> io::Result<()> {
        self.out.write_all(if self.is_first { b"\n" } else { b",\n" })?;
        self.is_first = false;
        serde_json::to_writer(&mut *self.out, event).map_err(io::Error::from)
    }

    /// The name of a process, or of one of its threads.
    pub fn name(&mut self, what: &str, process: usize, thread: usize, name: &str) -> io::Result<()> {
        self.put(&json!({ "ph": "M", "name": what, "pid": process, "tid": thread, "args": { "name": name } }))
    }

    /// Something that lasts, in picoseconds; spans of a thread contain each other or do not overlap.
    pub fn span(&mut self, (process, thread): (usize, usize), name: &str, span: (u64, u64), args: Value) -> io::Result<()> {
        let (ts, dur) = (span.0 as f64 / 1e6, (span.1 - span.0) as f64 / 1e6);
        self.put(&json!({ "ph": "X", "name": name, "pid": process, "tid": thread, "ts": ts, "dur": dur, "args": args }))
    }

    /// Something that happens, in picoseconds.
    pub fn instant(&mut self, (process, thread): (usize, usize), name: &str, at_ps: u64) -> io::Result<()> {
        self.put(&json!({ "ph": "i", "s": "t", "name": name, "pid": process, "tid": thread, "ts": at_ps as f64 / 1e6 }))
    }

    /// A number from now on.
    pub fn counter(&mut self, process: usize, name: &str, at_ps: u64, bytes: u64) -> io::Result<()> {
        self.put(&json!({ "ph": "C", "name": name, "pid": process, "ts": at_ps as f64 / 1e6, "args": { "bytes": bytes } }))
    }

    /// Ends the file.
    pub fn end(self) -> io::Result<()> {
        writeln!(self.out, "\n]}}")
    }
}
