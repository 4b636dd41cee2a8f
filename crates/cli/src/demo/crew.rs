//! The child processes, seen from the demo: starting, telling, hearing, ending. Whatever happens, no child outlives this process: each
//! ends when its standard input ends.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::DemoArgs;
use super::messages::{Order, Report};
use super::view::View;

/// How long a child may take for anything that does not depend on the network (making or comparing vectors, starting).
const CHORE_LIMIT: Duration = Duration::from_secs(120);
/// How long children may take to say what they have done.
const ENDED_LIMIT: Duration = Duration::from_secs(10);
/// How long children may take to end by themselves.
const END_LIMIT: Duration = Duration::from_secs(3);

/// A child that has ended before it was told to.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    name: String,
    status: Option<ExitStatus>,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => match status.signal() {
                Some(signal) => write!(f, "{} was ended by signal {signal}", self.name),
                None => write!(f, "{} ended: {status}", self.name),
            },
            None => write!(f, "{} closed its output", self.name),
        }
    }
}

struct Member {
    name: String,
    process: Child,
    input: Option<ChildStdin>,
    alive: bool,
    /// How far its operation was when it last said so.
    done: f64,
}

/// All child processes; the workers come first.
pub(super) struct Crew {
    members: Vec<Member>,
    workers: u32,
    heard: Receiver<(u32, Option<Report>)>,
    lost: Vec<Lost>,
    interrupted: Arc<AtomicBool>,
    patience: Duration,
    /// What the user sees of all this.
    pub(super) view: View,
}

impl Crew {
    /// Starts the worker processes and these others, by name.
    pub(super) fn start(args: &DemoArgs, others: Vec<String>, interrupted: &Arc<AtomicBool>) -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let (tell, heard) = channel();
        let mut crew = Crew {
            members: Vec::new(),
            workers: args.workers,
            heard,
            lost: Vec::new(),
            interrupted: interrupted.clone(),
            patience: Duration::from_secs_f64(args.patience),
            view: View::open(args),
        };
        for (number, name) in (0..args.workers).map(|number| format!("worker {number}")).chain(others).enumerate() {
            let number = number as u32;
            let mut process = Command::new(&program)
                .args(["demo-node", "--name", &name])
                // What they warn of, the user hears from the workers.
                .env("RUST_LOG", std::env::var_os("RUST_LOG").unwrap_or_else(|| "error".into()))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                // A group of its own: Ctrl-C reaches this process only, which then ends the children in order.
                .process_group(0)
                .spawn()
                .with_context(|| format!("cannot start {name} ({})", program.display()))?;
            let output = process.stdout.take().ok_or_else(|| anyhow!("{name} has no output"))?;
            let input = process.stdin.take();
            crew.members.push(Member { name, process, input, alive: true, done: 0.0 });
            let tell = tell.clone();
            thread::spawn(move || listen(number, BufReader::new(output), &tell));
        }
        Ok(crew)
    }

    /// Number of processes.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Who has ended too early.
    pub(super) fn lost(&self) -> &[Lost] {
        &self.lost
    }

    /// Gives every process an order.
    pub(super) fn order_all(&mut self, order: impl Fn(u32) -> Order) -> Result<()> {
        self.order(self.members.len(), order)
    }

    /// Gives every worker process an order.
    pub(super) fn order_workers(&mut self, order: impl Fn(u32) -> Order) -> Result<()> {
        self.order(self.workers as usize, order)
    }

    /// Gives the worker processes of `ranks` an order, and waits for a report of each that is alive.
    pub(super) fn ask_some(&mut self, ranks: &[bool], order: &Order, hear: impl FnMut(u32, Report) -> Result<()>) -> Result<()> {
        self.give(ranks.len(), |number| ranks[number as usize].then(|| order.clone()))?;
        let limit = CHORE_LIMIT + self.patience;
        self.collect_from(|number| ranks.get(number).copied().unwrap_or(false), limit, hear)
    }

    fn order(&mut self, count: usize, order: impl Fn(u32) -> Order) -> Result<()> {
        self.give(count, |number| Some(order(number)))
    }

    fn give(&mut self, count: usize, order: impl Fn(u32) -> Option<Order>) -> Result<()> {
        for (number, member) in self.members[..count].iter_mut().enumerate().filter(|(_, member)| member.alive) {
            let Some(order) = order(number as u32) else { continue };
            let mut line = serde_json::to_string(&order)?;
            line.push('\n');
            if let Some(input) = &mut member.input {
                // A child that cannot be written to has ended, which is noticed by the end of its output.
                let _ = input.write_all(line.as_bytes());
            }
        }
        Ok(())
    }

    /// Waits for a report of every process; it is an error if one has ended.
    pub(super) fn collect_all(&mut self, hear: impl FnMut(u32, Report) -> Result<()>) -> Result<()> {
        self.collect_from(|_| true, CHORE_LIMIT, hear)?;
        match self.lost.first() {
            Some(lost) => bail!("{lost}"),
            None => Ok(()),
        }
    }

    /// Waits for a report of every worker that is alive.
    pub(super) fn collect_workers(&mut self, hear: impl FnMut(u32, Report) -> Result<()>) -> Result<()> {
        let limit = CHORE_LIMIT + self.patience;
        let workers = self.workers as usize;
        self.collect_from(|number| number < workers, limit, hear)
    }

    /// Tells all processes to say what they have done and to end; the switch last, as what it has done is complete when all workers have
    /// left.
    pub(super) fn end(&mut self, mut hear: impl FnMut(u32, Report) -> Result<()>) -> Result<()> {
        let workers = self.workers as usize;
        self.order_workers(|_| Order::End)?;
        self.collect_from(|number| number < workers, ENDED_LIMIT, &mut hear)?;
        self.give(self.members.len(), |number| (number as usize >= workers).then_some(Order::End))?;
        self.collect_from(|number| number >= workers, ENDED_LIMIT, hear)
    }

    fn collect_from(
        &mut self,
        awaited: impl Fn(usize) -> bool,
        limit: Duration,
        mut hear: impl FnMut(u32, Report) -> Result<()>,
    ) -> Result<()> {
        let mut heard = vec![false; self.members.len()];
        let mut last = Instant::now();
        while self.members.iter().enumerate().any(|(number, member)| member.alive && !heard[number] && awaited(number)) {
            if self.interrupted.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            match self.heard.recv_timeout(Duration::from_millis(50)) {
                Ok((number, Some(Report::Live(live)))) => {
                    let member = &mut self.members[number as usize];
                    // A worker that says so but does not move may not keep this waiting for ever.
                    if std::mem::replace(&mut member.done, live.done) != live.done {
                        last = Instant::now();
                    }
                    self.view.on_live(number, &live);
                }
                Ok((_, Some(Report::Notice { text }))) => self.view.on_notice(&text),
                Ok((number, Some(report))) => {
                    heard[number as usize] = true;
                    last = Instant::now();
                    let name = &self.members[number as usize].name;
                    hear(number, report).with_context(|| format!("{name} is out of step"))?;
                }
                Ok((number, None)) => self.on_end_of_output(number),
                Err(RecvTimeoutError::Timeout) if last.elapsed() < limit => {}
                Err(_) => bail!("no word from the child processes for {} s", limit.as_secs()),
            }
        }
        Ok(())
    }

    fn on_end_of_output(&mut self, number: u32) {
        let member = &mut self.members[number as usize];
        if member.alive {
            member.alive = false;
            let status = wait(&mut member.process, Duration::from_secs(1));
            self.lost.push(Lost { name: member.name.clone(), status });
        }
    }

    /// Kills a worker without warning.
    pub(super) fn kill(&mut self, rank: u32) -> Result<()> {
        self.members[rank as usize].process.kill().with_context(|| format!("cannot kill worker {rank}"))
    }

    /// Ends all children: by the end of their input, and by force if that does not help.
    pub(super) fn dismiss(&mut self) {
        self.members.iter_mut().for_each(|member| member.input = None);
        let start = Instant::now();
        for member in &mut self.members {
            if wait(&mut member.process, END_LIMIT.saturating_sub(start.elapsed())).is_none() {
                tracing::warn!(name = member.name, "does not end by itself");
                let _ = member.process.kill();
                let _ = member.process.wait();
            }
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.dismiss();
    }
}

/// Hands on what a child says, line by line, until its output ends.
fn listen(number: u32, output: impl BufRead, tell: &Sender<(u32, Option<Report>)>) {
    for line in output.lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(report) => {
                if tell.send((number, Some(report))).is_err() {
                    return;
                }
            }
            Err(error) => tracing::warn!(number, line, %error, "a child says what nobody understands"),
        }
    }
    // Nobody may be listening any more, and then it does not matter.
    let _ = tell.send((number, None));
}

/// Waits for the end of a process; `None` if that takes too long.
fn wait(process: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Ok(Some(status)) = process.try_wait() {
            return Some(status);
        }
        if start.elapsed() >= limit {
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
}
