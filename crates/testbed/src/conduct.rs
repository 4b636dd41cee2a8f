//! A run from its first process to its results.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use fanin_control::fabric::JobStatus;
use fanin_core::NodeId;
use fanin_fabric::Fabric;

use super::crew::{Crew, Heard};
use super::idle::Samples;
use super::job::{JobRun, jobs};
use super::place::Place;
use super::results::{EventRecord, HostRecord, LostRecord, Record, StreamRecord, SwitchRecord};
use super::schedule::{Pending, Stream, Turn, plain};
use super::series::{SeriesRow, Watch, Watched};
use super::workload::{Action, Workload};
use crate::host::messages::{self as messages, Event, HostStatus, Order, TrafficTotal};

/// How long processes may take to start, or to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// How often what is due is looked for.
const TICK: Duration = Duration::from_millis(5);

/// How long the end of a process's output may take to be noticed.
const LAST_WORDS_WAIT: Duration = Duration::from_millis(100);

/// How long packets of streams may be on their way after the last was sent.
const STREAMS_SETTLE: Duration = Duration::from_millis(100);

/// Leads a run.
pub struct Conductor<'a> {
    fabric: &'a Fabric,
    place: &'a Place,
    workload: &'a Workload,
    interrupted: &'a AtomicBool,
    crew: Crew<'a>,
    jobs: Vec<JobRun>,
    streams: Vec<Stream>,
    events: Vec<Pending>,
    samples: Samples,
    /// Processes that have said that they are there.
    up: BTreeSet<NodeId>,
    /// Hosts whose uplink is up.
    linked: BTreeSet<NodeId>,
    /// Hosts that have taken up what a job has there, with the job.
    ready: BTreeSet<(NodeId, u16)>,
    /// Streams that have ended, with what was sent.
    stopped: Vec<Option<TrafficTotal>>,
    /// What hosts have said at their end.
    statuses: Vec<(NodeId, HostStatus)>,
    /// Switches that were started again and have not heard of the jobs.
    ignorant: BTreeSet<NodeId>,
    /// Jobs that are over and that switches have been told so of.
    told_over: BTreeSet<u16>,
    /// What switches had counted of these until then.
    counted: Vec<(NodeId, JobStatus)>,
    /// Events that happened.
    happened: Vec<EventRecord>,
    /// When the run is given up.
    deadline: Instant,
}

impl<'a> Conductor<'a> {
    /// Nothing runs yet.
    pub fn new(
        fabric: &'a Fabric,
        place: &'a Place,
        workload: &'a Workload,
        seed: u64,
        crew: Crew<'a>,
        interrupted: &'a AtomicBool,
    ) -> Self {
        let general = &workload.general;
        Conductor {
            fabric,
            place,
            workload,
            interrupted,
            crew,
            jobs: jobs(workload, fabric, seed),
            streams: general.traffic.iter().cloned().map(Stream::new).collect(),
            events: general.event.iter().cloned().map(Pending::new).collect(),
            samples: Samples::default(),
            up: BTreeSet::new(),
            linked: BTreeSet::new(),
            ready: BTreeSet::new(),
            stopped: vec![None; general.traffic.len()],
            statuses: Vec::new(),
            ignorant: BTreeSet::new(),
            told_over: BTreeSet::new(),
            counted: Vec::new(),
            happened: Vec::new(),
            deadline: Instant::now() + plain(general.run.time_limit.0),
        }
    }

    /// The whole run. Processes end with it, whatever it gives.
    ///
    /// # Errors
    /// Where a process fails that nobody has killed, or nothing moves.
    pub fn run(mut self) -> Result<Record> {
        let result = self.perform();
        match result {
            // Who does not answer may be dead, and that is what the user wants to know.
            Err(error) if !self.interrupted.load(Ordering::Relaxed) => Err(self.lost().map_or(error, |words| anyhow!(words))),
            result => result,
        }
    }

    /// A process that has ended by itself, with its last words.
    fn lost(&mut self) -> Option<String> {
        while let Ok(Some(heard)) = self.crew.hear(LAST_WORDS_WAIT) {
            if let Heard::Lost(node) = heard {
                return Some(self.crew.bury(node));
            }
        }
        None
    }

    fn perform(&mut self) -> Result<Record> {
        self.gather()?;
        self.introduce()?;
        let warm = Instant::now();
        let warm_until = warm + plain(self.workload.general.run.warm_up.0);
        while !self.streams.is_empty() && Instant::now() < warm_until {
            self.turn_streams(warm)?;
            self.hear()?;
        }
        let begun = Instant::now();
        let series = self.run_sampled(warm, begun)?;
        let wall_s = begun.elapsed().as_secs_f64();
        let cpu_idle_share = self.samples.idle_share(begun, Instant::now());
        self.end_streams()?;
        let dead: Vec<NodeId> = self.fabric.switches().filter(|switch| !self.crew.is_alive(*switch)).collect();
        dead.into_iter().try_for_each(|switch| self.settle_losses(switch))?;
        let switches = self.switches();
        self.end_hosts()?;
        let mut record = Record { wall_s, cpu_idle_share, switches, series, ..Record::default() };
        record.jobs = self.jobs.iter().map(|job| job.record(&self.samples, begun)).collect();
        record.streams = self.stream_records();
        let name = |node: NodeId| self.fabric.name(node).to_string();
        record.hosts =
            std::mem::take(&mut self.statuses).into_iter().map(|(node, status)| HostRecord { name: name(node), status }).collect();
        record.hosts.sort_by_key(|host| self.fabric.node_named(&host.name));
        record.events = std::mem::take(&mut self.happened);
        record.processors = std::thread::available_parallelism().map_or(1, usize::from);
        record.cpu_used_share = record.used_share();
        self.crew.dismiss();
        Ok(record)
    }

    /// Runs all jobs, and asks the switches at intervals if the workload says so.
    fn run_sampled(&mut self, warm: Instant, begun: Instant) -> Result<Vec<SeriesRow>> {
        let Some(interval) = self.workload.general.run.series_interval else { return self.run_jobs(warm, begun).map(|()| Vec::new()) };
        let watched = |job: &JobRun| {
            let announcement = job.announcement();
            Watched { job: announcement.job, payload_bytes: announcement.payload_bytes, workers: job.served() }
        };
        let jobs = self.jobs.iter().map(watched).collect();
        let watch = Watch { place: self.place, fabric: self.fabric, jobs, interval: plain(interval.0), begun };
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let rows = scope.spawn(|| watch.rows(&done));
            let result = self.run_jobs(warm, begun);
            done.store(true, Ordering::Relaxed);
            let rows = rows.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result.map(|()| rows)
        })
    }

    fn run_jobs(&mut self, warm: Instant, begun: Instant) -> Result<()> {
        while !self.jobs.iter().all(JobRun::is_over) {
            self.turn_jobs(begun)?;
            self.turn_streams(warm)?;
            self.turn_events(begun)?;
            self.hear()?;
            self.tell_what_is_over();
            ensure!(Instant::now() < self.deadline, "the run has not ended within run.time_limit");
        }
        Ok(())
    }

    /// Starts all processes and waits until all neighbours have heard of each other.
    fn gather(&mut self) -> Result<()> {
        let all: Vec<NodeId> = self.fabric.switches().chain(self.fabric.hosts()).collect();
        for &node in &all {
            self.crew.start(node)?;
        }
        let names = |of: &mut dyn Iterator<Item = NodeId>, fabric: &Fabric| of.map(|node| fabric.name(node)).collect::<Vec<_>>().join(", ");
        let limit = Instant::now() + ANSWER_LIMIT;
        let hosts = self.fabric.map.hosts() as usize;
        while self.up.len() < all.len() || self.linked.len() < hosts {
            self.hear()?;
            if Instant::now() >= limit {
                let mut silent =
                    all.iter().copied().filter(|node| !self.up.contains(node) || (node.0 < hosts as u32 && !self.linked.contains(node)));
                bail!("not there within {} s: {}", ANSWER_LIMIT.as_secs(), names(&mut silent, self.fabric));
            }
        }
        for switch in self.fabric.switches() {
            while let Some(down) = self.down_at(switch)? {
                self.hear()?;
                ensure!(Instant::now() < limit, "{} has not heard of {down} within {} s", self.fabric.name(switch), ANSWER_LIMIT.as_secs());
            }
        }
        Ok(())
    }

    /// A neighbour that a switch has not heard of, if there is one.
    fn down_at(&self, switch: NodeId) -> Result<Option<String>> {
        let status = self.place.client(switch, self.fabric)?.status().with_context(|| self.fabric.name(switch).to_string())?;
        Ok(status.ports.into_iter().find(|port| !port.is_up()).map(|port| port.peer))
    }

    /// Tells switches and workers of their jobs.
    fn introduce(&mut self) -> Result<()> {
        for switch in self.fabric.switches() {
            self.announce(switch)?;
        }
        let mut members = BTreeSet::new();
        for number in 0..self.jobs.len() {
            let (job, order) = (self.jobs[number].announcement().job, self.jobs[number].order());
            for host in self.jobs[number].members() {
                members.insert((host, job));
                self.crew.order(host, &order)?;
            }
        }
        let limit = Instant::now() + ANSWER_LIMIT;
        while !members.is_subset(&self.ready) {
            self.hear()?;
            ensure!(Instant::now() < limit, "not all workers and servers were ready within {} s", ANSWER_LIMIT.as_secs());
        }
        Ok(())
    }

    /// Tells a switch of all jobs that are not over.
    fn announce(&self, switch: NodeId) -> Result<()> {
        let name = self.fabric.name(switch);
        let mut client = self.place.client(switch, self.fabric)?;
        for job in self.jobs.iter().filter(|job| !job.is_over()) {
            client.announce(job.announcement()).with_context(|| format!("{name} does not take job {}", job.announcement().job - 1))?;
        }
        Ok(())
    }

    /// Tells switches of jobs that have done all that they had to do while others go on: what they have there is free for those. Of a job that
    /// failed nobody is left to say so, as in life.
    fn tell_what_is_over(&mut self) {
        if self.jobs.iter().all(JobRun::is_over) {
            return;
        }
        let over = self.jobs.iter().filter(|job| job.is_complete()).map(|job| job.announcement().job);
        for job in over.filter(|job| !self.told_over.contains(job)).collect::<Vec<_>>() {
            self.told_over.insert(job);
            for switch in self.fabric.switches().filter(|switch| self.crew.is_alive(*switch) && !self.ignorant.contains(switch)) {
                match self.end_job(switch, job) {
                    Ok(counted) => self.counted.extend(counted.map(|counted| (switch, counted))),
                    // It may stand still; what the job has there stays taken.
                    Err(error) => tracing::warn!(switch = self.fabric.name(switch), job, "does not hear that a job is over: {error:#}"),
                }
            }
        }
    }

    /// Ends a job at a switch; gives what the switch has counted of it, if it had a part in it.
    fn end_job(&self, switch: NodeId, job: u16) -> Result<Option<JobStatus>> {
        let mut client = self.place.client(switch, self.fabric)?;
        let counted = client.status()?.jobs.into_iter().find(|known| known.job == job);
        client.end(job)?;
        Ok(counted)
    }

    /// Waits a little for what comes, and takes it in.
    fn hear(&mut self) -> Result<()> {
        if self.interrupted.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        self.samples.take();
        let mut limit = TICK;
        while let Some(heard) = self.crew.hear(limit)? {
            // What has come meanwhile, without waiting for more.
            limit = Duration::ZERO;
            match heard {
                Heard::SwitchUp(switch) => {
                    self.up.insert(switch);
                    if self.ignorant.remove(&switch) {
                        self.announce(switch)?;
                    }
                }
                Heard::Lost(node) => return Err(anyhow!(self.crew.bury(node))),
                Heard::Event(host, event) => self.on_event(host, *event)?,
            }
        }
        Ok(())
    }

    fn on_event(&mut self, host: NodeId, event: Event) -> Result<()> {
        let jobs = &mut self.jobs;
        match event {
            Event::Ready { .. } => drop(self.up.insert(host)),
            Event::Link { state } if state == "up" => drop(self.linked.insert(host)),
            Event::Link { state } => tracing::info!(host = self.fabric.name(host), state, "the link has changed"),
            Event::JobReady { job, .. } => drop(self.ready.insert((host, job))),
            Event::Progress { operation, done, .. } => jobs.iter_mut().for_each(|job| job.on_progress(host, operation, done)),
            Event::Finished { operation, seconds, .. } => {
                let now = Instant::now();
                jobs.iter_mut().for_each(|job| job.on_finished(host, operation, seconds, now));
            }
            Event::Operation(end) => jobs.iter_mut().for_each(|job| job.on_end(host, &end)),
            Event::JobDone { .. } => jobs.iter_mut().for_each(|job| job.on_over(host)),
            Event::TrafficStopped { id, packets, bytes } => {
                if let Some(stopped) = self.stopped.get_mut(id as usize) {
                    *stopped = Some(TrafficTotal { packets, bytes });
                }
            }
            Event::Refused { order, text } => bail!("{} refuses {order}: {text}", self.fabric.name(host)),
            Event::Status(status) => {
                self.statuses.push((host, *status));
                self.crew.release(host);
            }
        }
        Ok(())
    }

    /// Lets jobs begin that are due.
    fn turn_jobs(&mut self, begun: Instant) -> Result<()> {
        let now = Instant::now();
        for number in 0..self.jobs.len() {
            if self.jobs[number].is_due(now, begun) {
                let order = Order::Start { job: self.jobs[number].announcement().job };
                for host in self.jobs[number].hosts().to_vec() {
                    self.crew.order(host, &order)?;
                }
            }
        }
        Ok(())
    }

    /// Lets streams begin and end that are due.
    fn turn_streams(&mut self, warm: Instant) -> Result<()> {
        let now = Instant::now();
        for number in 0..self.streams.len() {
            let turn = self.streams[number].turn(now, warm);
            self.tell_stream(number, turn)?;
        }
        Ok(())
    }

    fn tell_stream(&mut self, number: usize, turn: Option<Turn>) -> Result<()> {
        let traffic = &self.streams[number].traffic;
        let host = self.fabric.node_named(&traffic.from).context("a stream's host")?;
        let id = number as u32;
        let order = match turn {
            None => return Ok(()),
            Some(Turn::Begin) => Order::Traffic(messages::Stream {
                id,
                to: traffic.to.clone(),
                bits_per_second: traffic.rate.bits_per_second(self.uplink_rate(host)),
                payload_bytes: traffic.payload.0 as u16,
                via: traffic.via.clone(),
            }),
            Some(Turn::End) => Order::StopTraffic { id },
        };
        self.crew.order(host, &order)
    }

    /// Rate of a host's link.
    fn uplink_rate(&self, host: NodeId) -> u64 {
        self.fabric.ports(host).first().map_or(0, |port| port.settings.bits_per_second)
    }

    /// Ends streams that are under way, and waits until what was sent has arrived or is lost.
    fn end_streams(&mut self) -> Result<()> {
        let mut ending = Vec::new();
        for number in 0..self.streams.len() {
            let turn = self.streams[number].end();
            self.tell_stream(number, turn)?;
            let from = self.fabric.node_named(&self.streams[number].traffic.from);
            if turn.is_some() && from.is_some_and(|from| self.crew.is_alive(from)) {
                ending.push(number);
            }
        }
        if ending.is_empty() {
            return Ok(());
        }
        let limit = Instant::now() + ANSWER_LIMIT;
        while ending.iter().any(|&number| self.stopped[number].is_none()) {
            self.hear()?;
            ensure!(Instant::now() < limit, "streams have not ended within {} s", ANSWER_LIMIT.as_secs());
        }
        let settled = Instant::now() + STREAMS_SETTLE;
        while Instant::now() < settled {
            self.hear()?;
        }
        Ok(())
    }

    /// Lets happen what is due.
    fn turn_events(&mut self, begun: Instant) -> Result<()> {
        let now = Instant::now();
        let progress: Vec<_> = self.jobs.iter().map(JobRun::progress).collect();
        for number in 0..self.events.len() {
            if self.events[number].is_due(now, begun, &progress) {
                let event = &self.events[number].event;
                let (action, name) = (event.action, event.node.clone());
                self.happened.push(EventRecord {
                    action: action.name(),
                    node: name.clone(),
                    at_s: now.saturating_duration_since(begun).as_secs_f64(),
                    progress: progress.iter().map(|progress| (progress.operation, progress.done)).collect(),
                    lost: None,
                });
                self.strike(&name, action)?;
            }
        }
        Ok(())
    }

    fn strike(&mut self, name: &str, action: Action) -> Result<()> {
        let node = self.fabric.node_named(name).context("an event's node")?;
        let lost = if action == Action::Kill && !self.fabric.map.is_host(node) { Some(self.last_words(node)?) } else { None };
        if action == Action::Restart {
            self.settle_losses(node)?;
        }
        self.crew.strike(node, action)?;
        match action {
            Action::Kill => {
                if let Some(event) = self.happened.last_mut() {
                    event.lost = lost;
                }
                let at_s = self.happened.last().map_or(0.0, |event| event.at_s);
                self.jobs.iter_mut().for_each(|job| job.on_death(node, name, at_s));
                Ok(())
            }
            Action::Restart => {
                self.ignorant.insert(node);
                self.crew.start(node)
            }
            Action::Pause | Action::Resume => Ok(()),
        }
    }

    /// What a switch says just before it is killed.
    fn last_words(&self, switch: NodeId) -> Result<LostRecord> {
        let status = self.place.client(switch, self.fabric)?.status().with_context(|| self.fabric.name(switch).to_string())?;
        let payload = |job: u16| self.jobs.iter().map(JobRun::announcement).find(|known| known.job == job).map(|known| known.payload_bytes);
        let held = |job: &JobStatus| job.slot_bytes / u64::from(payload(job.job).unwrap_or(1).max(1));
        Ok(LostRecord {
            held_blocks: status.jobs.iter().map(held).sum(),
            packets_received: status.ports.iter().map(|port| port.packets_received).sum(),
            packets_unread: None,
        })
    }

    /// Counts what neighbours have sent to a switch that was killed, before it comes back or the run ends.
    fn settle_losses(&mut self, switch: NodeId) -> Result<()> {
        let name = self.fabric.name(switch);
        let Some(number) = self.happened.iter().rposition(|event| event.lost.is_some() && event.node == name) else { return Ok(()) };
        let sent = self.sent_to(switch)?;
        if let Some(lost) = &mut self.happened[number].lost
            && lost.packets_unread.is_none()
        {
            lost.packets_unread = sent.map(|sent| sent.saturating_sub(lost.packets_received));
        }
        Ok(())
    }

    /// Packets that all neighbours of a switch have sent to it.
    fn sent_to(&self, switch: NodeId) -> Result<Option<u64>> {
        let (name, mut sent) = (self.fabric.name(switch), 0);
        for next in self.fabric.map.neighbours(switch) {
            if self.fabric.map.is_host(next.node) || !self.crew.is_alive(next.node) {
                return Ok(None);
            }
            let status = self.place.client(next.node, self.fabric)?.status().with_context(|| self.fabric.name(next.node).to_string())?;
            sent += status
                .ports
                .iter()
                .filter(|port| port.port == next.their_port.0 && port.peer == name)
                .map(|port| port.packets_sent)
                .sum::<u64>();
        }
        Ok(Some(sent))
    }

    /// What the switches that are alive have counted.
    fn switches(&self) -> Vec<SwitchRecord> {
        let mut records = Vec::new();
        for switch in self.fabric.switches().filter(|switch| self.crew.is_alive(*switch)) {
            let name = self.fabric.name(switch).to_string();
            let status = self.place.client(switch, self.fabric).and_then(|mut client| {
                let mut status = client.status()?;
                status.jobs.extend(self.counted.iter().filter(|(at, _)| *at == switch).map(|(_, counted)| counted.clone()));
                status.jobs.sort_by_key(|job| job.job);
                Ok(serde_json::to_value(status)?)
            });
            match status {
                Ok(status) => records.push(SwitchRecord { name, status }),
                // It may stand still; what it has counted is not worth the results.
                Err(error) => tracing::warn!(name, "says nothing: {error:#}"),
            }
        }
        records
    }

    /// Lets all hosts say what they have counted, and end.
    fn end_hosts(&mut self) -> Result<()> {
        let alive: Vec<NodeId> = self.fabric.hosts().filter(|host| self.crew.is_alive(*host)).collect();
        for &host in &alive {
            // One that stands still says nothing.
            self.crew.strike(host, Action::Resume)?;
            self.crew.order(host, &Order::End)?;
        }
        let limit = Instant::now() + ANSWER_LIMIT;
        while self.statuses.len() < alive.len() {
            self.hear()?;
            ensure!(Instant::now() < limit, "not all hosts have said what they counted within {} s", ANSWER_LIMIT.as_secs());
        }
        Ok(())
    }

    fn stream_records(&self) -> Vec<StreamRecord> {
        let received = |name: &str| {
            let host = self.fabric.node_named(name);
            self.statuses.iter().find(|(node, _)| Some(*node) == host).map(|(_, status)| status.traffic_received).unwrap_or_default()
        };
        let record = |(number, stream): (usize, &Stream)| {
            let traffic = &stream.traffic;
            let rate = self.fabric.node_named(&traffic.from).map_or(0, |host| traffic.rate.bits_per_second(self.uplink_rate(host)));
            StreamRecord {
                from: traffic.from.clone(),
                to: traffic.to.clone(),
                offered_mbit_s: rate as f64 / 1e6,
                sent: self.stopped[number].unwrap_or_default(),
                received: received(&traffic.to),
            }
        };
        self.streams.iter().enumerate().map(record).collect()
    }
}
