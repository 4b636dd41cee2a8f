//! A node's process: started in a group of its own, listened to, ended by its number. Whatever happens, it does not outlive this value.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use fanin_core::NodeId;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How long a process that is told to end may take.
const END_LIMIT: Duration = Duration::from_secs(2);

/// How much of a log is shown where its process has failed.
const LAST_WORDS_BYTES: usize = 1_000;

/// What a process has said, or that it says no more.
#[derive(Debug)]
pub struct Said {
    /// Which node.
    pub node: NodeId,
    /// Which start of it: a node that is started again has a new number.
    pub start: u32,
    /// A line of its standard output; `None` when that has ended.
    pub line: Option<String>,
}

/// A running process, or one that has ended.
#[derive(Debug)]
pub struct Process {
    child: Child,
    input: Option<ChildStdin>,
    log: PathBuf,
    /// It stands still.
    paused: bool,
}

impl Process {
    /// Starts a process. Each line of its standard output goes to `tell`, its standard error to `log`.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn start(mut command: Command, node: NodeId, start: u32, log: &Path, tell: &Sender<Said>) -> Result<Self> {
        let errors = File::options().create(true).append(true).open(log).with_context(|| format!("{} cannot be written", log.display()))?;
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            // A group of its own: Ctrl-C reaches the testbed only, which then ends everything in order.
            .process_group(0)
            .spawn();
        let mut child = child.with_context(|| format!("`{}` cannot be started", command.get_program().display()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let process = Process { child, input, log: log.to_path_buf(), paused: false };
        let output = output.ok_or_else(|| anyhow!("a child without output"))?;
        let tell = tell.clone();
        thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok).map(Some);
            for line in lines.chain([None]) {
                if tell.send(Said { node, start, line }).is_err() {
                    break;
                }
            }
        });
        Ok(process)
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its standard input. That it has ended is noticed by the end of its output.
    pub fn say(&mut self, line: &str) {
        if let Some(input) = &mut self.input {
            let _ = input.write_all(format!("{line}\n").as_bytes());
        }
    }

    fn pid(&self) -> Result<Pid> {
        Pid::from_raw(self.child.id() as i32).ok_or_else(|| anyhow!("a process without a number"))
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(self.pid()?, signal).with_context(|| format!("process {} takes no signal", self.child.id()))
    }

    /// Ends it at once, with whatever it has started, and waits until it has ended.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn kill(&mut self) -> Result<()> {
        self.paused = false;
        // Not waited for yet, so that the number is still its own.
        if self.child.try_wait()?.is_none() {
            kill_process_group(self.pid()?, Signal::KILL)?;
            self.child.wait()?;
        }
        Ok(())
    }

    /// Lets it stand still.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn pause(&mut self) -> Result<()> {
        self.paused = true;
        self.signal(Signal::STOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// Where it has ended.
    pub fn resume(&mut self) -> Result<()> {
        self.paused = false;
        self.signal(Signal::CONT)
    }

    /// Tells it to end, without waiting: its input ends, and it gets a SIGTERM.
    pub fn dismiss(&mut self) {
        self.input = None;
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.signal(Signal::TERM);
            if self.paused {
                let _ = self.resume();
            }
        }
    }

    /// Waits for its end until `deadline`; by force then.
    pub fn finish(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(2)),
                _ => {
                    let _ = self.kill();
                    return None;
                }
            }
        }
    }

    /// How it has ended, in words, with the end of its log.
    pub fn last_words(&mut self) -> String {
        // Its output has ended, so that it is about to.
        let how = match self.finish(Instant::now() + END_LIMIT) {
            Some(status) => match status.signal() {
                Some(signal) => format!("was ended by signal {signal}"),
                None => format!("ended with {status}"),
            },
            None => "closed its output".to_string(),
        };
        // A log that goes to a device has no end.
        let is_file = fs::metadata(&self.log).is_ok_and(|data| data.is_file());
        let log = if is_file { fs::read_to_string(&self.log).unwrap_or_default() } else { String::new() };
        let from = log.len().saturating_sub(LAST_WORDS_BYTES);
        let from = (from..log.len()).find(|&at| log.is_char_boundary(at)).unwrap_or(log.len());
        match log[from..].trim() {
            "" => how,
            words => format!("{how}: {words}"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn shell(script: &str, test: &str) -> (Process, std::sync::mpsc::Receiver<Said>) {
        let (tell, heard) = channel();
        let log = std::env::temp_dir().join(format!("fanin-process-{}-{test}.log", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        (Process::start(command, NodeId(3), 1, &log, &tell).unwrap(), heard)
    }

    fn is_there(process: u32) -> bool {
        Path::new(&format!("/proc/{process}")).exists()
    }

    #[test]
    fn lines_come_one_by_one_and_the_end_is_told_with_the_last_words() {
        let (mut process, heard) = shell("read line; echo got $line; echo the reason >&2; exit 7", "words");
        process.say("this");
        assert_eq!(heard.recv().unwrap().line.as_deref(), Some("got this"));
        let end = heard.recv().unwrap();
        assert_eq!((end.node, end.start, end.line), (NodeId(3), 1, None));
        assert_eq!(process.last_words(), "ended with exit status: 7: the reason");
        let _ = fs::remove_file(&process.log);
    }

    #[test]
    fn a_process_ends_when_it_is_killed_dismissed_while_paused_or_dropped() {
        let (mut killed, _heard) = shell("sleep 1000; echo never", "killed");
        killed.kill().unwrap();
        assert!(!is_there(killed.id()));
        // What it would wait for is its own end only.
        let (mut paused, heard) = shell("trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done", "paused");
        assert_eq!(heard.recv().unwrap().line.as_deref(), Some("up"));
        paused.pause().unwrap();
        paused.dismiss();
        assert!(paused.finish(Instant::now() + Duration::from_secs(60)).is_some_and(|status| status.success()));
        let (dropped, _heard) = shell("exec sleep 1000", "dropped");
        let number = dropped.id();
        drop(dropped);
        assert!(!is_there(number));
        for test in ["killed", "paused", "dropped"] {
            let _ = fs::remove_file(std::env::temp_dir().join(format!("fanin-process-{}-{test}.log", std::process::id())));
        }
    }
}
