//! `--executor`: runs that are computed by other processes and machines, through an engine that Python knows (Dask, Ray, local processes).
//!
//! The engine's client is a process of Python, `python3 -m fanin.executor ADDRESS`. What is to be done goes to its standard input, a line of JSON
//! and the bytes of the bundle; parts come back on its standard output in the order in which they end, a line and bytes each.

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use fanin_plan::elsewhere::{Elsewhere, Take};
use serde::{Deserialize, Serialize};

/// Names the Python that has Fanin's package.
pub const PYTHON: &str = "FANIN_PYTHON";

/// A part is not longer than this.
const PART_BYTES_MAX: u64 = 1 << 32;

/// An engine that computes elsewhere.
pub struct Executor {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

/// What is asked of the client.
#[derive(Serialize)]
struct Request<'a> {
    /// `plan` or `check`.
    kind: &'a str,
    /// Length of the bundle, which follows.
    bytes: usize,
    /// So many runs.
    runs: usize,
}

/// What the client says.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    /// The part from this run on; so many bytes follow.
    Part { first: usize, bytes: u64 },
    /// All parts have come.
    Done,
    /// Why not all will come.
    Failed(String),
}

impl Executor {
    /// Starts the client of an engine.
    ///
    /// # Errors
    /// In words: there is no Python, or none with Fanin's package.
    pub fn start(address: &str) -> Result<Executor, String> {
        let python = python();
        let mut command = Command::new(&python);
        command.args(["-m", "fanin.executor", address]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let expected = format!("expected a Python with Fanin's package, by {PYTHON} or as python3");
        let mut child = command.spawn().map_err(|error| format!("--executor: {}: {error}; {expected}", python.display()))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(to), Some(from)) => Ok(Executor { child, to: Some(to), from: BufReader::new(from) }),
            _ => Err("--executor: the client has no standard input and output".into()),
        }
    }

    /// Has so many runs of a bundle computed; `take` gets each part with the number of its first run.
    ///
    /// # Errors
    /// In words: that of `take`, of the engine, or that its client has ended.
    pub fn ask(&mut self, kind: &str, bundle: &[u8], runs: usize, take: &mut Take<'_>) -> Result<(), String> {
        let mut request = serde_json::to_vec(&Request { kind, bytes: bundle.len(), runs }).map_err(|error| error.to_string())?;
        request.push(b'\n');
        let to = self.to.as_mut().ok_or("the executor has ended")?;
        let sent = to.write_all(&request).and_then(|()| to.write_all(bundle)).and_then(|()| to.flush());
        if let Err(error) = sent {
            return Err(self.ended(&error));
        }
        loop {
            match self.reply() {
                Ok((Reply::Part { first, .. }, bytes)) => take(first, &bytes)?,
                Ok((Reply::Done, _)) => return Ok(()),
                Ok((Reply::Failed(why), _)) => return Err(why),
                Err(error) => return Err(self.ended(&error)),
            }
        }
    }

    fn reply(&mut self) -> io::Result<(Reply, Vec<u8>)> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let reply: Reply = serde_json::from_str(&line).map_err(io::Error::other)?;
        let mut bytes = Vec::new();
        if let Reply::Part { bytes: length, .. } = reply {
            if length > PART_BYTES_MAX {
                return Err(io::Error::other(format!("a part of {length} bytes: expected at most {PART_BYTES_MAX}")));
            }
            (&mut self.from).take(length).read_to_end(&mut bytes)?;
            if bytes.len() as u64 != length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok((reply, bytes))
    }

    /// Why nothing more comes; what the client has said of it stands on standard error.
    fn ended(&mut self, error: &io::Error) -> String {
        self.to = None;
        let how = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        format!("--executor: its client, {} -m fanin.executor, has ended ({how}): {error}", python().display())
    }
}

impl Elsewhere for Executor {
    fn parts(&mut self, bundle: &[u8], runs: usize, take: &mut Take<'_>) -> Result<(), String> {
        self.ask("plan", bundle, runs, take)
    }
}

impl Drop for Executor {
    /// The client leaves when it can read no more, and takes what it has started with it.
    fn drop(&mut self) {
        self.to = None;
        let _ = self.child.wait();
    }
}

/// What [`PYTHON`] names, or the Python beside this program, as in an environment, or whichever is found.
fn python() -> PathBuf {
    let named: Option<OsString> = env::var_os(PYTHON).filter(|named| !named.is_empty());
    if let Some(named) = named {
        return named.into();
    }
    let beside = env::current_exe().ok().and_then(|program| Some(program.parent()?.join("python3")));
    beside.filter(|python| python.exists()).unwrap_or_else(|| "python3".into())
}
