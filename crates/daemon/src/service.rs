//! The loop that joins connections, jobs and time: events go into [`Jobs`], and what it decides is carried out.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fanin_channel::Door;
use fanin_control::fabric::LastStatus;
use fanin_control::jobs::Phase;
use fanin_control::{Action, ClientMessage, ConnectionId, JobAnnouncement, Jobs, Note, ONLY_MEETS, OpenJob, Pass, encode};
use fanin_core::{DropReason, Suspect};
use fanin_net::FaultPlan;
use fanin_operator::{CustomOperator, Faults};
use fanin_runtime::{Last, Statistics};
use fanin_trust::FabricKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, sleep_until};

use crate::accept::{ACCEPT_PAUSE, EMFILE, ENFILE};
use crate::awaited::Awaited;
use crate::clock::OwnClock;
use crate::compile::{Compiled, Compiler};
use crate::config::DaemonConfig;
use crate::connection::{self, ConnectionEvent, Outbox, Shares};
use crate::entrance::Arrived;
use crate::fabric::{Observer, Seen, Switches};
use crate::gate::Gate;
use crate::http::{Http, Scrape, well_until};
use crate::metrics::{JobView, Totals, View, render};
use crate::pace::Allowances;
use crate::process::ProcessStatus;
use crate::worker::{JobWorker, JobWorkers, Ports};
use crate::xdp::Plane;

/// How often the data plane's counts are looked at.
const TRAFFIC_INTERVAL: Duration = Duration::from_millis(250);

/// Events of connections that may wait; a connection that has more to say waits itself.
const EVENTS_WAITING: usize = 1_024;

/// From the handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Command {
    Drain,
    Stop,
    SendBack,
}

/// A job's thread has ended, with the reason where it was not told to.
struct WorkerEnded {
    job_id: u16,
    instance: u64,
    reason: Option<String>,
}

/// Whether the switches of a fabric have taken a job.
struct BegunInFabric {
    job_id: u16,
    instance: u64,
    result: Result<(), String>,
}

pub(crate) struct Service {
    jobs: Jobs,
    listener: TcpListener,
    clock: OwnClock,
    outboxes: BTreeMap<ConnectionId, Outbox>,
    shares: Shares,
    compiler: Compiler,
    workers: JobWorkers,
    /// The switches of the fabric that this manages, where it sums nothing by itself.
    switches: Option<Switches>,
    /// Told to stop, and not ended yet; by instance, since job numbers are used again.
    ending: BTreeMap<u64, JobWorker>,
    /// Packets that did not fit their operation, when last looked at, by job.
    mismatches: BTreeMap<u16, u64>,
    /// Who is waited for, by job.
    awaited: BTreeMap<u16, Awaited>,
    /// The same at each switch of the fabric, and the hosts of the job by rank.
    awaited_at: BTreeMap<u16, (Vec<String>, BTreeMap<String, Awaited>)>,
    ports: Ports,
    /// The program in the kernel, where there is one.
    plane: Option<Plane>,
    /// Who may join, where not everybody may.
    gate: Option<Gate>,
    /// By what connections come in, where not as they are.
    door: Option<Door>,
    faults: FaultPlan,
    /// How fast tenants' jobs may go.
    allowances: Allowances,
    totals: Totals,
    draining: Arc<AtomicBool>,
    next_connection: u64,
    next_traffic: Instant,
    events: (connection::Events, mpsc::Receiver<(ConnectionId, ConnectionEvent)>),
    ended: (UnboundedSender<WorkerEnded>, UnboundedReceiver<WorkerEnded>),
    compiled: (UnboundedSender<Compiled>, UnboundedReceiver<Compiled>),
    begun: (UnboundedSender<BegunInFabric>, UnboundedReceiver<BegunInFabric>),
    /// What is seen of the switches of the fabric.
    seen: UnboundedReceiver<Seen>,
    scrapes: mpsc::Receiver<Scrape>,
}

impl Service {
    /// Takes over the listeners; must be called in the runtime that will drive them.
    pub(crate) fn open(
        config: DaemonConfig,
        (control, http): (StdListener, Option<StdListener>),
        plane: Option<Plane>,
        (door, gate): (Option<Door>, Option<Gate>),
        draining: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let (ask, scrapes) = mpsc::channel(16);
        if let Some(listener) = http {
            let http = Http { scrapes: ask, health: well_until(draining.clone()) };
            tokio::spawn(http.serve(TcpListener::from_std(listener)?));
        }
        let start = Instant::now();
        let seen = mpsc::unbounded_channel();
        let tell = seen.0.clone();
        // The service may have ended, and then nobody needs to be told.
        let observer: Observer = Arc::new(move |seen| drop(tell.send(seen)));
        let packets = (config.packets, config.fabric_key.as_ref().map(FabricKey::check_value));
        Ok(Service {
            jobs: Jobs::new(config.jobs),
            listener: TcpListener::from_std(control)?,
            clock: OwnClock::new(start),
            outboxes: BTreeMap::new(),
            shares: Shares::default(),
            compiler: Compiler::default(),
            workers: JobWorkers::new(),
            switches: config
                .fabric
                .map(|managed| Switches::new(managed.0, (config.to_switches.as_ref(), &packets), &observer))
                .transpose()?,
            ending: BTreeMap::new(),
            mismatches: BTreeMap::new(),
            awaited: BTreeMap::new(),
            awaited_at: BTreeMap::new(),
            ports: Ports::new(config.data_ports, config.nearby),
            plane,
            gate,
            door,
            faults: config.faults,
            allowances: Allowances::default(),
            totals: Totals::default(),
            draining,
            next_connection: 0,
            next_traffic: start,
            events: mpsc::channel(EVENTS_WAITING),
            ended: mpsc::unbounded_channel(),
            compiled: mpsc::unbounded_channel(),
            begun: mpsc::unbounded_channel(),
            seen: seen.1,
            scrapes,
        })
    }

    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Serves until told to end, and then until nothing is left.
    /// Gives what all jobs together have done.
    pub(crate) async fn run(mut self, mut commands: UnboundedReceiver<Command>) -> io::Result<Statistics> {
        loop {
            self.carry_out();
            if self.jobs.is_drained() && self.workers.is_empty() && self.ending.is_empty() {
                // What is still connected has no job.
                self.jobs.stop();
                self.carry_out();
                break;
            }
            let tick = self.jobs.next_tick_ms().map(|at_ms| self.clock.at(at_ms));
            let looks_at_traffic = !self.workers.is_empty();
            self.clock.sleeps_until(tick);
            tokio::select! {
                accepted = self.listener.accept() => self.on_accept(accepted).await,
                Some((connection, event)) = self.events.1.recv() => self.on_event(connection, event),
                Some(ended) = self.ended.1.recv() => self.on_worker_ended(ended),
                Some(compiled) = self.compiled.1.recv() => self.on_compiled(compiled),
                Some(begun) = self.begun.1.recv() => self.on_begun(begun),
                Some(seen) = self.seen.recv() => self.on_seen(seen),
                command = commands.recv() => self.on_command(command.unwrap_or(Command::Stop)),
                Some(scrape) = self.scrapes.recv() => drop(scrape.send(self.metrics())),
                () = sleep_until(tick.unwrap_or(self.next_traffic)), if tick.is_some() => self.on_tick(),
                () = sleep_until(self.next_traffic), if looks_at_traffic => self.look_at_traffic(),
            }
        }
        let done = self.totals.gone.clone();
        self.say_goodbye().await;
        tracing::info!("the switch has ended");
        Ok(done)
    }

    /// Gives what was said last a moment to leave.
    async fn say_goodbye(mut self) {
        self.outboxes.clear();
        self.compiler.forget_all();
        let Service { events: (sender, mut receiver), .. } = self;
        drop(sender);
        // Every connection holds a sender until both sides have closed.
        let _ = tokio::time::timeout(Duration::from_secs(1), async { while receiver.recv().await.is_some() {} }).await;
    }

    async fn on_accept(&mut self, accepted: io::Result<(TcpStream, SocketAddr)>) {
        let local = accepted.and_then(|(stream, peer)| Ok((stream.local_addr()?, stream, peer)));
        match local {
            Ok((local, stream, peer)) => {
                let id = ConnectionId(self.next_connection);
                self.next_connection += 1;
                let arrived = Arrived::at(self.door.as_mut(), stream);
                self.outboxes.insert(id, connection::serve(id, arrived, self.events.0.clone(), &self.shares));
                self.jobs.on_connect(self.now_ms(), id, peer, local.ip());
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a control connection");
                // Where descriptors are used up, one of a connection that has joined no job is given to whoever comes now.
                if matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) {
                    self.jobs.on_exhausted();
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }

    fn on_event(&mut self, connection: ConnectionId, event: ConnectionEvent) {
        let now_ms = self.now_ms();
        match event {
            ConnectionEvent::Message(message) => {
                if let Some(message) = self.pass_gate(connection, message) {
                    self.jobs.on_message(now_ms, connection, message);
                }
            }
            ConnectionEvent::Unwanted(text) => self.jobs.on_no_pass(connection, text),
            ConnectionEvent::Garbage(error) => self.jobs.on_garbage(connection, &error),
            ConnectionEvent::Closed => {
                self.outboxes.remove(&connection);
                self.jobs.on_closed(now_ms, connection);
            }
        }
    }

    /// A request to join is heard where its token is good for it. The token is not kept.
    fn pass_gate(&mut self, connection: ConnectionId, message: ClientMessage) -> Option<ClientMessage> {
        let ClientMessage::Join(mut join) = message else { return Some(message) };
        if let Some(gate) = &mut self.gate
            && self.jobs.awaits_join(connection)
        {
            match gate.admit(&join) {
                Ok(pass) => self.jobs.on_pass(connection, pass),
                Err(text) => {
                    self.jobs.on_no_pass(connection, text);
                    return None;
                }
            }
        }
        join.token = None;
        Some(ClientMessage::Join(join))
    }

    fn on_command(&mut self, command: Command) {
        self.draining.fetch_or(command != Command::SendBack, Ordering::Relaxed);
        match command {
            Command::Drain => {
                tracing::info!("draining: no new jobs; running ones may end");
                self.jobs.drain(self.now_ms());
            }
            Command::Stop => self.jobs.stop(),
            Command::SendBack => self.jobs.send_back(),
        }
    }

    /// Does what [`Jobs`] has decided.
    fn carry_out(&mut self) {
        while let Some(action) = self.jobs.next_action() {
            match action {
                Action::Send(connection, message) => {
                    let Some(outbox) = self.outboxes.get(&connection) else { continue };
                    if outbox.send(encode(&message)).is_err() {
                        // It does not read: as good as gone.
                        self.outboxes.remove(&connection);
                        self.jobs.on_closed(self.now_ms(), connection);
                    }
                }
                Action::Close(connection) => drop(self.outboxes.remove(&connection)),
                Action::OpenJob(open) if self.switches.is_some() && !runs_operator(&open) => self.begin_in_fabric(&open, None),
                Action::AdoptJob(open) => self.adopt_in_fabric(&open),
                Action::OpenJob(open) if open.operators.is_empty() => self.open_job(&open, &[]),
                Action::OpenJob(open) => self.compile(open),
                Action::CloseJob { job_id } => {
                    self.mismatches.remove(&job_id);
                    self.awaited.remove(&job_id);
                    self.awaited_at.remove(&job_id);
                    self.compiler.forget(job_id);
                    if let Some(switches) = &self.switches {
                        switches.end(job_id);
                    }
                    if let Some(worker) = self.workers.remove(&job_id) {
                        worker.stop();
                        self.ending.insert(worker.instance, worker);
                    }
                }
                Action::Note(note) => self.take_note(note),
            }
        }
    }

    /// Sees to it that the operators of a job are compiled; the job is opened after that.
    fn compile(&mut self, open: Box<OpenJob>) {
        let (job_id, tell) = (open.job_id, self.compiled.0.clone());
        if let Err(text) = self.compiler.start(open, move |compiled| drop(tell.send(compiled))) {
            self.jobs.on_full(job_id, text);
        }
    }

    fn on_compiled(&mut self, compiled: Compiled) {
        let Compiled { open, operators } = compiled;
        // Nobody may wait for it any more, and another job may have its number.
        if !self.jobs.is_opening(open.job_id, open.instance) {
            return;
        }
        match operators {
            Ok(operators) if self.switches.is_some() => self.begin_in_fabric(&open, operators.into_iter().next()),
            Ok(operators) => self.open_job(&open, &operators),
            Err(text) => self.jobs.on_operator_failed(open.job_id, &format!("the switch refuses an operator of the job: {text}"), Some(0)),
        }
    }

    fn open_job(&mut self, open: &OpenJob, operators: &[CustomOperator]) {
        let (job_id, instance, tell) = (open.job_id, open.instance, self.ended.0.clone());
        // The service may have ended, and then nobody needs to be told.
        let on_end = move |reason| drop(tell.send(WorkerEnded { job_id, instance, reason }));
        let how = (self.faults, self.allowances.of(open.pass.as_ref()));
        let result = JobWorker::start(open, operators, (&mut self.ports, self.plane.as_ref()), how, on_end).map(|worker| {
            let port = worker.port;
            self.workers.insert(job_id, worker);
            port
        });
        if self.workers.len() == 1 {
            self.next_traffic = Instant::now() + TRAFFIC_INTERVAL;
        }
        self.jobs.on_opened(self.now_ms(), job_id, result);
    }

    /// All switches of the fabric are told of a job, without waiting for them; `operator`: what they are to combine by.
    fn begin_in_fabric(&mut self, open: &OpenJob, operator: Option<CustomOperator>) {
        let Some(switches) = &self.switches else { return };
        self.awaited_at.insert(open.job_id, (open.nodes.clone(), BTreeMap::new()));
        let (job_id, instance, tell) = (open.job_id, open.instance, self.begun.0.clone());
        let element_bytes = open.op.dtype.bytes();
        let kernel = match operator.map(|operator| operator.for_levels(element_bytes)).transpose() {
            Ok(operator) => operator.map(|operator| operator.payload_op(&Faults::default())),
            Err(error) => return self.jobs.on_operator_failed(job_id, &error.to_string(), Some(0)),
        };
        match switches.hosts(&open.nodes) {
            Ok(hosts) => {
                let announcement = JobAnnouncement { kernel, ..announced(open, hosts) };
                // The service may have ended, and then nobody needs to be told.
                switches.begin(announcement, Box::new(move |result| drop(tell.send(BegunInFabric { job_id, instance, result }))));
            }
            Err(text) => self.jobs.on_opened(self.now_ms(), job_id, Err(text)),
        }
    }

    /// All switches of the fabric have a job of an earlier manager, which is looked after from now on.
    fn adopt_in_fabric(&mut self, open: &OpenJob) {
        let Some(switches) = &self.switches else { return };
        self.awaited_at.insert(open.job_id, (open.nodes.clone(), BTreeMap::new()));
        match switches.hosts(&open.nodes) {
            Ok(hosts) => switches.adopt(&announced(open, hosts)),
            Err(text) => self.jobs.on_broken(open.job_id, &text),
        }
    }

    fn on_seen(&mut self, seen: Seen) {
        match seen {
            Seen::Answers(switch, answers) => {
                tracing::warn!(switch, answers, "a switch of the fabric");
                self.jobs.on_fabric_switch(self.now_ms(), &switch, answers);
            }
            Seen::Jobs(switch, jobs) => self.jobs.on_fabric_jobs(&switch, jobs),
            Seen::Refuses(job_id, text) => self.jobs.on_fabric_refusal(job_id, text),
            Seen::Last(switch, job_id, last) => self.look_at_last(&switch, job_id, &last),
            Seen::OperatorFailed(job_id, text) => self.jobs.on_operator_failed(job_id, &text, None),
        }
    }

    /// Who was last at a switch of the fabric. Where a switch below it has sums of several ranks, that one knows which of them it was.
    fn look_at_last(&mut self, switch: &str, job_id: u16, last: &[LastStatus]) {
        let (Some(switches), Some((nodes, at))) = (&self.switches, self.awaited_at.get_mut(&job_id)) else { return };
        let now = std::time::Instant::now();
        let counts: Vec<Last> = last
            .iter()
            .map(|last| Last { completed: last.completed, awaited_ps: last.awaited_us.saturating_mul(1_000_000), ..Last::default() })
            .collect();
        let name = |index: usize| {
            let hosts = switches.hosts_at(&last.get(index)?.contributor);
            let mut ranks = nodes.iter().enumerate().filter(|(_, node)| hosts.contains(node));
            match (ranks.next(), ranks.next()) {
                (Some((rank, host)), None) => Some(format!("rank {rank} ({host}, at {switch})")),
                _ => None,
            }
        };
        let text = at.entry(switch.to_owned()).or_insert_with(|| Awaited::new(now)).look_at(now, &counts, name);
        if let Some(text) = text {
            self.jobs.on_awaited(job_id, text);
        }
    }

    fn on_tick(&mut self) {
        let now_ms = self.now_ms();
        self.jobs.on_tick(now_ms);
        let Some(switches) = &self.switches else { return };
        switches.ask_all(self.jobs.any_away());
        for (job_id, system, hosts) in self.jobs.away(now_ms) {
            if switches.carries(&system, &hosts) {
                self.jobs.on_fit(job_id);
            }
        }
    }

    fn on_begun(&mut self, begun: BegunInFabric) {
        // Nobody may wait for it any more, and another job may have its number.
        if self.jobs.is_opening(begun.job_id, begun.instance) {
            self.jobs.on_opened(self.now_ms(), begun.job_id, begun.result.map(|()| 0));
        }
    }

    fn on_worker_ended(&mut self, ended: WorkerEnded) {
        if let Some(reason) = ended.reason {
            tracing::error!(job_id = ended.job_id, reason, "a job's thread has ended");
            if self.workers.get(&ended.job_id).is_some_and(|worker| worker.instance == ended.instance) {
                // Moves the worker to those that end.
                self.jobs.on_broken(ended.job_id, &reason);
                self.carry_out();
            }
        }
        if let Some(worker) = self.ending.remove(&ended.instance) {
            let last = worker.join();
            self.totals.gone.add(&last.counters, &last.sent);
        }
    }

    /// Tells [`Jobs`] how many packets have come from whom, and whether any did not fit.
    fn look_at_traffic(&mut self) {
        self.next_traffic = Instant::now() + TRAFFIC_INTERVAL;
        let now_ms = self.now_ms();
        for (&job_id, worker) in &self.workers {
            let snapshot = worker.read();
            let packets: Vec<u64> = snapshot.peers.iter().map(|peer| peer.packets_received).collect();
            self.jobs.on_traffic(job_id, &packets);
            let last: Vec<Last> = snapshot.peers.iter().map(|peer| peer.last).collect();
            let now = std::time::Instant::now();
            if let Some(text) = self.awaited.entry(job_id).or_insert_with(|| Awaited::new(now)).look(now, &last) {
                self.jobs.on_awaited(job_id, text);
            }
            let mismatches = snapshot.counters.dropped_for(DropReason::Mismatch);
            if self.mismatches.insert(job_id, mismatches).unwrap_or(0) < mismatches {
                self.jobs.on_mismatch(now_ms, job_id);
            }
            if let (Some((contributor, block)), Some(fault)) = (snapshot.counters.operator_failed, worker.operator_fault()) {
                let (text, rank) = operator_failure(fault, contributor, block);
                self.jobs.on_operator_failed(job_id, &text, rank);
            }
        }
    }

    fn metrics(&self) -> String {
        let mut shown: BTreeMap<String, usize> = BTreeMap::new();
        let mut is_shown = |pass: Option<&Pass>| {
            let Some(Pass { tenant, quota }) = pass else { return true };
            let count = shown.entry(tenant.clone()).or_default();
            *count += 1;
            *count <= quota.metrics_jobs_max
        };
        let view = |status: fanin_control::jobs::JobStatus<'_>| JobView {
            is_shown: is_shown(status.pass),
            job_id: status.job_id,
            name: status.name.to_owned(),
            phase: status.phase,
            present: status.present,
            in_kernel: self.workers.get(&status.job_id).and_then(JobWorker::in_kernel),
            snapshot: self.workers.get(&status.job_id).filter(|_| status.phase != Phase::Waiting).map(JobWorker::read),
        };
        render(&View {
            totals: &self.totals,
            jobs: self.jobs.status().map(view).collect(),
            connections: self.jobs.connections(),
            memory_bytes: self.jobs.memory_bytes(),
            draining: self.draining.load(Ordering::Relaxed),
            process: ProcessStatus::read(),
        })
    }

    fn take_note(&mut self, note: Note) {
        let totals = &mut self.totals;
        match note {
            Note::Refused { peer, code, text } => {
                *totals.refused.entry(code).or_default() += 1;
                tracing::warn!(%peer, reason = code.name(), text, "refused");
            }
            Note::Admitted { job_id, name, peer, world, resumed, by_hosts } => {
                totals.admitted += 1;
                totals.resumed += u64::from(resumed);
                if let Some(why) = by_hosts.filter(|why| why != ONLY_MEETS) {
                    totals.by_hosts += 1;
                    tracing::warn!(job = name, job_id, %peer, why, "its hosts sum by themselves");
                }
                let port = self.workers.get(&job_id).map(|worker| worker.port);
                tracing::info!(job = name, job_id, world, port, resumed, %peer, "admitted");
            }
            Note::Started { job_id, name, peer } => tracing::info!(job = name, job_id, %peer, "started"),
            Note::Detached { name, peer, rank } => tracing::warn!(job = name, rank, %peer, "lost the connection of a rank"),
            Note::Attached { name, peer, rank } => {
                totals.reattached += 1;
                tracing::info!(job = name, rank, %peer, "a rank has come back");
            }
            Note::Notice { name, peer, text } => {
                totals.notices += 1;
                tracing::warn!(job = name, %peer, text, "nothing moves");
            }
            Note::Awaited { name, peer, text } => {
                totals.notices += 1;
                tracing::warn!(job = name, %peer, text, "one rank keeps others waiting");
            }
            Note::SentBack { job_id, name, peer } => {
                totals.sent_back += 1;
                tracing::info!(job = name, job_id, %peer, "its hosts need not sum by themselves any more");
            }
            Note::Ended { job_id, name, peer } => {
                totals.ended += 1;
                tracing::info!(job = name, job_id, %peer, "ended");
            }
            Note::Failed { job_id, name, peer, kind, text } => {
                *totals.failed.entry(kind).or_default() += 1;
                tracing::warn!(job = name, job_id, reason = kind.name(), %peer, text, "failed");
            }
        }
    }
}

/// Whether the switches of a fabric are to run the operator that a job brings along. Where they are not, its ranks do.
fn runs_operator(open: &OpenJob) -> bool {
    open.system.takes_operators() && !open.operators.is_empty()
}

/// What the switches of a fabric are told of a job.
fn announced(open: &OpenJob, hosts: Vec<u32>) -> JobAnnouncement {
    let operator = open.operators.first().filter(|_| runs_operator(open)).map(Into::into);
    JobAnnouncement { operator, ..JobAnnouncement::of_ranks(&open.into(), open.op, hosts) }
}

/// How an operator that a job has brought along has failed, and on whose contribution where it was one rank's.
fn operator_failure(fault: &str, contributor: Suspect, block: u32) -> (String, Option<u32>) {
    match contributor {
        Suspect::Rank(rank) => (format!("{fault}; that was the contribution of rank {} to the job's block {block}", rank.0), Some(rank.0)),
        _ => (format!("{fault}; that was the job's block {block}"), None),
    }
}
