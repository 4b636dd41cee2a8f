//! One run of a scenario, from its first process to what is left when all have ended.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fanin_core::NodeId;
use fanin_core::hash::derive;

use super::leaks::{self, Possessions};
use super::messages::{Order, Report, Setup};
use super::outcome::{JobOutcome, Outcome, RankEnd, RankOutcome, judge};
use super::scenario::{Call, Fault, FaultKind, Job, Meets, Party, Place, Scenario, Target};
use super::site::Site;
use crate::process::{Process, Said};

/// How long switches and the manager may take until they serve.
const READY_LIMIT: Duration = Duration::from_secs(20);

/// How long processes may take to end once they are told to.
const END_LIMIT: Duration = Duration::from_secs(12);

/// How often what is due is looked for.
const TICK: Duration = Duration::from_millis(2);

/// So many calls are allowed at a time: they end soon after the job's time is over.
const CALLS_AHEAD: u64 = 8;

/// What a run needs on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Means<'a> {
    /// The `fanin` program.
    pub program: &'a Path,
    /// For files and logs; it is there, and empty.
    pub folder: &'a Path,
    /// What a rank may take beyond its timeout until it has an error.
    pub grace: Duration,
    /// The user wants it to end.
    pub interrupted: &'a AtomicBool,
}

/// A switch or the manager.
struct Service {
    party: Party,
    process: Option<Process>,
    starts: u32,
    /// Whether this start has said that it serves.
    is_ready: bool,
    /// Where this start has its metrics.
    metrics: Option<SocketAddr>,
    /// What this start had when it began to serve.
    first: Possessions,
}

/// A rank.
struct Member {
    party: Party,
    process: Option<Process>,
    calls: u64,
    joined_ms: Option<u64>,
    notices: Vec<String>,
    /// When something was last heard of it that is a step ahead.
    last: Instant,
    end: Option<RankEnd>,
}

/// A job as it runs.
struct JobRun {
    job: Job,
    name: String,
    members: Vec<Member>,
    /// Calls that ranks may do.
    allowed: u64,
    is_closed: bool,
    /// When its ranks were told to leave.
    dismissed: Option<Instant>,
    started: Option<Instant>,
}

/// A fault, and how far it is.
struct Due {
    fault: Fault,
    is_done: bool,
    is_undone: bool,
    /// Whether it began before all was over.
    is_made: bool,
    /// What the process had before.
    limit: Option<leaks::Descriptors>,
}

struct Run<'a> {
    scenario: &'a Scenario,
    means: Means<'a>,
    site: Site,
    services: Vec<Service>,
    jobs: Vec<JobRun>,
    due: Vec<Due>,
    tell: Sender<Said>,
    heard: Receiver<Said>,
    begun: Instant,
    /// When a fault last began or ended.
    last_fault: Instant,
    findings: Vec<String>,
    not_made: Vec<String>,
}

/// Processes of ranks have numbers from here on.
const RANKS_FROM: u32 = 1_000;
const RANKS_PER_JOB: u32 = 100;

/// Runs a scenario.
///
/// # Errors
/// Where this machine does not let it, or the user wants no more.
pub fn run(scenario: &Scenario, means: Means<'_>) -> Result<Outcome> {
    let begun = Instant::now();
    let shared = leaks::shared_memory();
    let site = Site::make(scenario, means.program, means.folder)?;
    let (tell, heard) = channel();
    let mut run = Run {
        scenario,
        means,
        site,
        services: Vec::new(),
        jobs: Vec::new(),
        due: scenario
            .fault
            .iter()
            .cloned()
            .map(|fault| Due { fault, is_done: false, is_undone: false, is_made: false, limit: None })
            .collect(),
        tell,
        heard,
        begun,
        last_fault: begun,
        findings: Vec::new(),
        not_made: Vec::new(),
    };
    run.start_services()?;
    run.begun = Instant::now();
    run.jobs = scenario.job.iter().enumerate().map(|(number, job)| run.job(job, number)).collect();
    run.until_over()?;
    let mut outcome = Outcome { jobs: run.outcomes(), ..Outcome::default() };
    // What was to come later has disturbed nobody.
    outcome.faults = run.due.iter().filter(|due| due.is_made).map(|due| due.fault.clone()).collect();
    run.findings.extend(judge(&Scenario { fault: outcome.faults.clone(), ..scenario.clone() }, &outcome.jobs));
    if run.findings.is_empty() {
        run.probe()?;
    }
    // Who is about to serve would not know yet what a signal means.
    if let Err(error) = run.until_ready() {
        run.findings.push(format!("not as before: {error:#}"));
    }
    run.end_services();
    run.look_for_panics();
    run.findings.extend(leaks::shared_memory().difference(&shared).map(|name| format!("left behind: /dev/shm/{name}")));
    (outcome.findings, outcome.not_made) = (run.findings, run.not_made);
    outcome.wall_s = begun.elapsed().as_secs_f64();
    Ok(outcome)
}

impl Run<'_> {
    fn log(&self, name: &str) -> std::path::PathBuf {
        // Whatever is written there finds no room, as on a disk that is full.
        if self.scenario.logs_full { "/dev/full".into() } else { self.means.folder.join(format!("{name}.log")) }
    }

    fn spawn(&self, command: Command, number: u32, start: u32, name: &str) -> Result<Process> {
        Process::start(command, NodeId(number), start, &self.log(name), &self.tell).with_context(|| name.to_owned())
    }

    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    // ---- Switches and the manager.

    /// Starts the switches, and then the manager, which finds them.
    fn start_services(&mut self) -> Result<()> {
        let switches = self.scenario.place.switches().into_iter().map(Party::Switch);
        let manager = (self.scenario.place != Place::Switch).then_some(Party::Manager);
        for party in switches.chain(manager) {
            let service = Service { party, process: None, starts: 0, is_ready: false, metrics: None, first: Possessions::default() };
            self.services.push(service);
        }
        for number in 0..self.services.len() {
            self.start_service(number)?;
        }
        self.until_ready()
    }

    fn start_service(&mut self, number: usize) -> Result<()> {
        self.services[number].starts += 1;
        let (party, start) = (self.services[number].party.clone(), self.services[number].starts);
        let process = self.spawn(self.site.service(&party, start), number as u32, start, &party.to_string())?;
        let service = &mut self.services[number];
        (service.process, service.is_ready, service.metrics) = (Some(process), false, None);
        Ok(())
    }

    /// Waits until every switch and the manager that run say that they serve.
    fn until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + READY_LIMIT;
        while let Some(silent) = self.services.iter().find(|service| service.process.is_some() && service.metrics.is_none()) {
            ensure!(Instant::now() < deadline, "{} does not serve within {} s", silent.party, READY_LIMIT.as_secs());
            self.hear()?;
        }
        Ok(())
    }

    fn hear_service(&mut self, number: usize, line: Option<&str>) {
        let service = &mut self.services[number];
        match line {
            None => {
                if let Some(mut process) = service.process.take() {
                    self.findings.push(format!("died: {} {}", service.party, process.last_words()));
                }
            }
            Some(line) => {
                service.is_ready = true;
                if let Some(rest) = line.strip_prefix("metrics at http://") {
                    service.metrics = rest.split('/').next().and_then(|address| address.parse().ok());
                    service.first = service.process.as_ref().map(|process| leaks::possessions(process.id())).unwrap_or_default();
                }
            }
        }
    }

    // ---- Jobs.

    fn job(&self, job: &Job, number: usize) -> JobRun {
        let member = |rank: usize| Member {
            party: Party::Rank { job: number, rank: rank as u32 },
            process: None,
            calls: 0,
            joined_ms: None,
            notices: Vec::new(),
            last: Instant::now(),
            end: None,
        };
        JobRun {
            members: (0..job.hosts.len()).map(member).collect(),
            name: format!("job{number}"),
            job: job.clone(),
            allowed: 0,
            is_closed: false,
            dismissed: None,
            started: None,
        }
    }

    fn start_job(&mut self, number: usize) -> Result<()> {
        // Where rank 0 listens, if it does.
        let at_rank_0 = self.site.address()?;
        let job_seed = derive(self.scenario.seed, number as u64);
        for rank in 0..self.jobs[number].members.len() {
            let run = &self.jobs[number];
            let party = &run.members[rank].party;
            // A rank that was killed before its job began.
            if run.members[rank].end.is_some() {
                continue;
            }
            let setup = Setup {
                variables: self.site.variables(&run.job, &run.name, party, at_rank_0),
                seed: job_seed,
                noise: self.scenario.noise,
                noise_seed: derive(job_seed, rank as u64),
                calls: run.job.call.clone(),
                pause_ms: run.job.pause_ms,
            };
            let id = RANKS_FROM + number as u32 * RANKS_PER_JOB + rank as u32;
            let mut process = self.spawn(self.site.rank(), id, 1, &party.to_string())?;
            process.say(&serde_json::to_string(&setup)?);
            let member = &mut self.jobs[number].members[rank];
            (member.process, member.last) = (Some(process), Instant::now());
        }
        self.jobs[number].started = Some(Instant::now());
        Ok(())
    }

    /// Does what is due until every rank has ended.
    fn until_over(&mut self) -> Result<()> {
        while !self.jobs.iter().all(JobRun::is_over) {
            self.turn_faults()?;
            for number in 0..self.jobs.len() {
                let due = self.begun + Duration::from_millis(self.jobs[number].job.start_ms);
                if self.jobs[number].started.is_none() && Instant::now() >= due {
                    self.start_job(number)?;
                }
                self.jobs[number].turn();
            }
            self.hear()?;
            self.find_hung();
        }
        self.undo_all()
    }

    /// Waits a little for what comes, and takes it in.
    fn hear(&mut self) -> Result<()> {
        if self.means.interrupted.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        let mut limit = TICK;
        while let Ok(Said { node, start, line }) = self.heard.recv_timeout(limit) {
            limit = Duration::ZERO;
            if node.0 >= RANKS_FROM {
                let (job, rank) = ((node.0 - RANKS_FROM) / RANKS_PER_JOB, (node.0 - RANKS_FROM) % RANKS_PER_JOB);
                self.hear_rank(job as usize, rank as usize, line)?;
            } else if self.services[node.index()].starts == start {
                self.hear_service(node.index(), line.as_deref());
            }
        }
        Ok(())
    }

    fn hear_rank(&mut self, job: usize, rank: usize, line: Option<String>) -> Result<()> {
        let now_ms = self.now_ms();
        let member = &mut self.jobs[job].members[rank];
        let Some(line) = line else {
            let Some(mut process) = member.process.take() else { return Ok(()) };
            let words = process.last_words();
            let has_ended = words.starts_with("ended with exit status: 0");
            if member.end.is_none() || !has_ended {
                member.end = Some(RankEnd::Died { text: words });
            }
            return Ok(());
        };
        let report: Report =
            serde_json::from_str(&line).with_context(|| format!("{} says what nobody understands: {line}", member.party))?;
        if !matches!(report, Report::Notice { .. }) {
            member.last = Instant::now();
        }
        match report {
            Report::Joined { .. } => member.joined_ms = Some(now_ms),
            Report::Done { calls } => member.calls = calls,
            Report::Finished { calls } => (member.calls, member.end) = (calls, Some(RankEnd::Exact)),
            Report::Wrong { call, elements, first } => {
                member.calls = call;
                member.end = Some(RankEnd::Wrong { call, text: format!("{elements} elements are wrong: {first}") });
            }
            Report::Failed { call, text, kind, suspect, .. } => {
                member.calls = call.unwrap_or(0);
                member.end = Some(RankEnd::Failed { call, kind, text, suspect });
            }
            Report::Notice { text } => member.notices.push(format!("{now_ms} ms: {text}")),
            Report::Left { threads, descriptors, names } if threads.max(descriptors) > 0 => {
                self.findings.push(format!(
                    "left behind: {} has {threads} threads and {descriptors} descriptors more after it has left; its threads are {}",
                    member.party,
                    names.join(", ")
                ));
            }
            Report::Left { .. } => {}
        }
        Ok(())
    }

    /// Gives up ranks from which nothing comes for too long.
    fn find_hung(&mut self) {
        for run in &mut self.jobs {
            let limit = Duration::from_millis(run.job.timeout_ms) + self.means.grace;
            let (allowed, is_closed, dismissed) = (run.allowed, run.is_closed, run.dismissed);
            for member in run.members.iter_mut().filter(|member| member.process.is_some()) {
                let quiet = member.last.max(self.last_fault).max(dismissed.unwrap_or(self.begun)).elapsed();
                // It waits for others' calls or for others to end, not for its own.
                let waits = member.end.is_none() && member.joined_ms.is_some() && member.calls >= allowed && !is_closed;
                if quiet < limit || waits || (member.end.is_some() && dismissed.is_none()) {
                    continue;
                }
                let doing = match (&member.end, member.joined_ms) {
                    (Some(_), _) => "leaving".to_owned(),
                    (None, None) => "joining".to_owned(),
                    (None, Some(_)) => format!("in call {}", member.calls),
                };
                let text = format!("neither a result nor an error for {:.1} s {doing}; notices: {:?}", quiet.as_secs_f64(), member.notices);
                member.end = Some(RankEnd::Hung { text });
                if let Some(mut process) = member.process.take() {
                    let _ = process.kill();
                }
            }
        }
    }

    fn outcomes(&self) -> Vec<JobOutcome> {
        let begun = self.begun;
        let outcome = |run: &JobRun| JobOutcome {
            started_ms: run.started.map_or(0, |started| started.duration_since(begun).as_millis() as u64),
            ranks: run.members.iter().map(Member::outcome).collect(),
        };
        self.jobs.iter().map(outcome).collect()
    }

    // ---- Faults.

    fn turn_faults(&mut self) -> Result<()> {
        let now_ms = self.now_ms();
        for number in 0..self.due.len() {
            let Due { fault, is_done, is_undone, .. } = &self.due[number];
            let ends = fault.for_ms.is_some();
            let (begins, is_over) = (!is_done && now_ms >= fault.at_ms, *is_done && ends && !is_undone && now_ms >= fault.end_ms());
            if begins {
                (self.due[number].is_done, self.due[number].is_made) = (true, true);
                self.apply(number)?;
            } else if is_over {
                self.undo(number)?;
            }
        }
        Ok(())
    }

    /// Ends all that was done: nothing stands still, is cut or dead.
    fn undo_all(&mut self) -> Result<()> {
        for number in 0..self.due.len() {
            if self.due[number].is_done && !self.due[number].is_undone {
                self.undo(number)?;
            }
            // What has not begun yet never does.
            (self.due[number].is_done, self.due[number].is_undone) = (true, true);
        }
        Ok(())
    }

    fn process(&mut self, party: &Party) -> Option<&mut Process> {
        match party {
            Party::Rank { job, rank } => self.jobs.get_mut(*job)?.members.get_mut(*rank as usize)?.process.as_mut(),
            _ => self.services.iter_mut().find(|service| service.party == *party)?.process.as_mut(),
        }
    }

    fn apply(&mut self, number: usize) -> Result<()> {
        self.last_fault = Instant::now();
        let fault = self.due[number].fault.clone();
        match (fault.target()?, fault.kind) {
            (Target::Link(from, to, both), _) => {
                self.site.set_cut(&from, &to, true);
                if both {
                    self.site.set_cut(&to, &from, true);
                }
            }
            (Target::One(party), FaultKind::Kill) => self.kill(&party)?,
            (Target::One(party), FaultKind::Pause) => {
                if let Some(process) = self.process(&party) {
                    process.pause()?;
                }
            }
            (Target::One(party), _) => {
                let Some(id) = self.process(&party).map(|process| process.id()) else { return Ok(()) };
                match leaks::Descriptors::exhaust(id) {
                    Ok(before) => self.due[number].limit = Some(before),
                    Err(error) => self.not_made.push(format!("{} of {party}: {error}", fault.kind.name())),
                }
            }
        }
        Ok(())
    }

    fn kill(&mut self, party: &Party) -> Result<()> {
        if let Party::Rank { job, rank } = party {
            let member = &mut self.jobs[*job].members[*rank as usize];
            // Whose job is over leaves, and nobody needs it.
            if member.end.is_none() {
                member.end = Some(RankEnd::Killed);
                if let Some(mut process) = member.process.take() {
                    process.kill()?;
                }
            }
            return Ok(());
        }
        if let Some(service) = self.services.iter_mut().find(|service| service.party == *party)
            && let Some(mut process) = service.process.take()
        {
            process.kill()?;
        }
        Ok(())
    }

    fn undo(&mut self, number: usize) -> Result<()> {
        self.last_fault = Instant::now();
        self.due[number].is_undone = true;
        let (fault, limit) = (self.due[number].fault.clone(), self.due[number].limit.take());
        match (fault.target()?, fault.kind) {
            (Target::Link(from, to, both), _) => {
                self.site.set_cut(&from, &to, false);
                if both {
                    self.site.set_cut(&to, &from, false);
                }
            }
            (Target::One(Party::Rank { .. }), FaultKind::Kill) => {}
            (Target::One(party), FaultKind::Kill) => {
                let dead = self.services.iter().position(|service| service.party == party && service.process.is_none());
                if let Some(dead) = dead {
                    self.start_service(dead)?;
                }
            }
            (Target::One(party), FaultKind::Pause) => {
                if let Some(process) = self.process(&party) {
                    process.resume()?;
                }
            }
            (Target::One(party), _) => {
                if let (Some(limit), Some(process)) = (limit, self.process(&party)) {
                    limit.restore(process.id())?;
                }
            }
        }
        Ok(())
    }

    // ---- Afterwards.

    /// A job over all that there is, now that nothing is wrong any more: it must be exact.
    fn probe(&mut self) -> Result<()> {
        for number in 0..self.services.len() {
            if self.services[number].process.is_none() {
                self.start_service(number)?;
            }
        }
        if let Err(error) = self.until_ready() {
            self.findings.push(format!("not as before: {error:#}"));
            return Ok(());
        }
        let hosts = self.scenario.place.hosts().clamp(2, 4);
        let call = |element: &str, elements| Call {
            collective: "allreduce".into(),
            element: element.into(),
            operator: "sum".into(),
            elements,
            root: 0,
        };
        let job = Job {
            system: "auto".into(),
            meets: Meets::Place,
            transport: if self.scenario.place == Place::Switch { "udp" } else { "auto" }.into(),
            fallback: "ring".into(),
            timeout_ms: 20_000,
            hosts: (0..hosts).collect(),
            start_ms: 0,
            run_ms: 0,
            pause_ms: 0,
            call: vec![call("f32", 5_000), call("i32", 5_000)],
        };
        let number = self.jobs.len();
        let mut probe = self.job(&job, number);
        probe.name = "probe".into();
        self.jobs.push(probe);
        self.until_over()?;
        let outcome = self.outcomes().pop().context("the probe")?;
        for (rank, its) in outcome.ranks.iter().enumerate() {
            if its.end != RankEnd::Exact {
                self.findings
                    .push(format!("not as before: rank {rank} of a job after all faults: {:?}; notices: {:?}", its.end, its.notices));
            }
        }
        Ok(())
    }

    /// Looks what switches and the manager have left, tells them to end, and sees how they do.
    fn end_services(&mut self) {
        for service in &self.services {
            let Some(process) = service.process.as_ref().filter(|_| service.metrics.is_some()) else { continue };
            self.findings.extend(
                leaks::find(process.id(), service.first, service.metrics).into_iter().map(|text| format!("{}: {text}", service.party)),
            );
        }
        for service in self.services.iter_mut().rev() {
            if let Some(process) = &mut service.process {
                process.dismiss();
            }
        }
        let deadline = Instant::now() + END_LIMIT;
        for service in &mut self.services {
            if let Some(mut process) = service.process.take() {
                match process.finish(deadline) {
                    Some(status) if status.success() => {}
                    Some(status) => self.findings.push(format!("bad end: {} ended with {status}", service.party)),
                    None => self.findings.push(format!("bad end: {} did not end within {} s", service.party, END_LIMIT.as_secs())),
                }
            }
        }
    }

    fn look_for_panics(&mut self) {
        let Ok(entries) = fs::read_dir(self.means.folder) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let text = fs::read_to_string(&path).unwrap_or_default();
            if let Some(line) = text.lines().find(|line| line.contains("panicked at")) {
                self.findings.push(format!("panic: {}: {line}", path.file_stem().unwrap_or_default().display()));
            }
        }
    }
}

impl JobRun {
    /// Allows more calls, or no more, and lets ranks leave whose job is over.
    fn turn(&mut self) {
        let Some(started) = self.started else { return };
        let all_joined = self.members.iter().all(|member| member.joined_ms.is_some() || member.end.is_some());
        let farthest = self.members.iter().map(|member| member.calls).max().unwrap_or(0);
        let is_time_over = started.elapsed() >= Duration::from_millis(self.job.run_ms);
        // Each job does all of its calls once, also where they take long.
        let least = self.job.call.len() as u64;
        if all_joined && !self.is_closed {
            if !is_time_over || self.allowed < least {
                if farthest + CALLS_AHEAD / 2 >= self.allowed {
                    self.allowed = farthest + CALLS_AHEAD;
                    self.tell(Order::Until(self.allowed));
                }
            } else {
                self.is_closed = true;
                self.tell(Order::NoMore);
            }
        }
        if self.members.iter().all(|member| member.end.is_some()) && self.dismissed.is_none() {
            self.dismissed = Some(Instant::now());
            self.tell(Order::Leave);
        }
    }

    fn tell(&mut self, order: Order) {
        if let Ok(line) = serde_json::to_string(&order) {
            self.members.iter_mut().filter_map(|member| member.process.as_mut()).for_each(|process| process.say(&line));
        }
    }

    /// All ranks have ended what they had to do, and their processes.
    fn is_over(&self) -> bool {
        self.started.is_some() && self.members.iter().all(|member| member.end.is_some() && member.process.is_none())
    }
}

impl Member {
    fn outcome(&self) -> RankOutcome {
        let end = self.end.clone().unwrap_or(RankEnd::Killed);
        RankOutcome { end, calls: self.calls, joined_ms: self.joined_ms, notices: self.notices.clone() }
    }
}
