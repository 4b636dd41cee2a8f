//! How the ranks of a job find each other: by a switch, or by one that rank 0 runs in its own process; and whether they share memory.

pub(crate) mod around;
pub(crate) mod fabric;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use std::{fs, thread};

use fanin_channel::{HandshakeError, ServerTls, Stream};
use fanin_control::{
    ALIVE_INTERVAL_MS, Admitted, ByHosts, ClientError, ClientMessage, ClientSession, FailureKind, HostId, JobWish, Join, OperationPlan,
    OperatorWish, Refusal, Refused, ResumeState, SwitchMessage, Token, encode,
};
use fanin_core::{ElementOp, hash};
use fanin_daemon::{DaemonConfig, DaemonHandle};
use fanin_net::shm::{Pool, Segment};
use fanin_net::{FaultPlan, Socket, SocketConfig};
use fanin_operator::CustomOperator;
use fanin_systems::{SwitchMlParameters, System};
use fanin_trust::Protection;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::config::{Config, Fallback, INTERRUPT_LOOK, INTERRUPTED, Meeting, TIMEOUT_MAX, Transport};
use crate::error::CommError;
use crate::lock::locked;
use crate::own_time::{self, Stop};
use crate::path::layout;
use crate::reach::{self, Reach};
use crate::runner::{Loss, Runner};

/// How often an address is tried at which nobody listens yet.
const RETRY: Duration = Duration::from_millis(50);
/// How long one attempt takes at most.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// How much later than the switch a rank gives up by itself.
const DEADLINE_GRACE: Duration = Duration::from_secs(3);
/// Headers of IP and UDP, of either version of IP.
const IPV4_UDP_BYTES: u32 = 28;
const IPV6_UDP_BYTES: u32 = 48;
/// What the others are told of shared memory (by rank 0), and whether it works (by every rank).
const MEMORY_KEY: &str = "memory";
const MAPPED_KEY: &str = "mapped";
const MAPPED: &str = "ok";

/// The program's name and version, for the other side.
pub(crate) const SOFTWARE: &str = concat!("fanin ", env!("CARGO_PKG_VERSION"));

/// A job that has been joined and started.
pub(crate) struct Joined {
    pub(crate) stream: Stream,
    pub(crate) session: ClientSession,
    /// What this rank has said when it joined.
    pub(crate) join: Join,
    pub(crate) admitted: Admitted,
    pub(crate) switch: SocketAddr,
    pub(crate) socket: Socket,
    /// The rank's end of the shared memory, or why there is none.
    pub(crate) memory: Result<Pool, String>,
    /// The switch in this process, if it is here; it ends with the last communicator that uses it.
    pub(crate) embedded: Option<Arc<DaemonHandle>>,
}

/// Which system a job runs, and by what it reduces where packets do not say that.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Wanted {
    pub(crate) system: System,
    pub(crate) op: ElementOp,
    /// The only life of the switch in which that is of use.
    pub(crate) switch_instance: Option<u64>,
}

impl Wanted {
    /// What communicators are: every operation says its type and operator.
    pub(crate) const DENSE: Wanted =
        Wanted { system: System::SwitchMl(SwitchMlParameters { fixed_point: false }), op: ElementOp::F32_SUM, switch_instance: None };
}

/// Joins the job of `config` and returns once all ranks are ready.
///
/// # Errors
/// [`CommError`], within the configured timeout.
pub(crate) fn join(config: &Config, wanted: Wanted, runner: &Runner) -> Result<Joined, CommError> {
    config.tell_unread();
    count_job();
    let deadline = Instant::now() + config.timeout;
    let (text, whom) = match &config.meeting {
        Meeting::Switch(text) => (text, "the switch"),
        Meeting::Rendezvous(text) => (text, "rank 0"),
        Meeting::Fabric(_) | Meeting::Nowhere => return Err(crate::ConfigError::NoMeeting { world: config.world }.into()),
    };
    let address = resolve(text, deadline)?;
    let embedded = match &config.meeting {
        Meeting::Rendezvous(_) if config.rank == 0 => {
            Some(embedded_switch(address, config.timeout, (switch_faults(config), config.tls.as_ref().and_then(reach::server_of)))?)
        }
        _ => None,
    };
    loop {
        let stream = connect(config, &Reach::of(config), (address, whom), deadline)?;
        let local = stream.local_addr().map_err(CommError::system("the control connection"))?;
        let socket = open_socket(config.bind.unwrap_or_else(|| local.ip()), embedded.is_some())?;
        let mut talk = Talk::new(config, stream, deadline, (address, runner));
        talk.switch_instance = wanted.switch_instance;
        talk.say(&ClientSession::greeting(SOFTWARE))?;
        let join = request(config, wanted, socket.local_address(), address);
        talk.say(&encode(&ClientMessage::Join(Box::new(join.clone()))))?;
        let admitted = match talk.until_admitted() {
            // The switch takes a connection that says nothing for seconds for one that never will. This rank has not come to its turn: it tries again.
            Err(_) if talk.is_too_slow.get() && Instant::now() < deadline => continue,
            admitted => admitted?,
        };
        let memory = talk.share_memory(&admitted)?;
        talk.say(&encode(&ClientMessage::Ready))?;
        while !matches!(talk.hear()?, SwitchMessage::Start) {}
        if let (Transport::Memory, Err(reason)) = (config.transport, &memory) {
            let text = format!("shared memory was asked for, but is not possible: {reason}");
            return Err(CommError::Failed { job: config.job.clone(), text, suspect_rank: None, kind: None });
        }
        return Ok(Joined { stream: talk.stream, session: talk.session, join, admitted, switch: address, socket, memory, embedded });
    }
}

/// A connection to a switch that may be another one than before; only greetings were exchanged.
pub(crate) struct Knock {
    pub(crate) stream: Stream,
    pub(crate) session: ClientSession,
    /// Which life of the switch answers.
    pub(crate) switch_instance: u64,
}

/// Sees whether a switch answers at `address`; `gives_up` is asked while keys are agreed upon, which may take longer than `limit`.
///
/// # Errors
/// In words, where nobody does.
pub(crate) fn knock(reach: &Reach, address: SocketAddr, limit: Duration, gives_up: &dyn Fn() -> bool) -> Result<Knock, String> {
    // Keys take several ways to the other end and back to agree upon, and the answer one more.
    let deadline = Instant::now() + if reach.is_sealed() { limit.max(reach::HANDSHAKE_LIMIT) } else { limit };
    let mut stream = reach.open(address, limit, gives_up).map_err(|error| error.to_string())?;
    stream.write_all(&ClientSession::greeting(SOFTWARE)).map_err(|error| error.to_string())?;
    let (mut session, mut bytes) = (ClientSession::new(), [0; 1 << 10]);
    loop {
        if session.next().map_err(|error| error.to_string())?.is_none()
            && let Some(switch_instance) = session.switch().map(|hello| hello.switch_instance)
        {
            return Ok(Knock { stream, session, switch_instance });
        }
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
        match stream.read(&mut bytes) {
            Ok(0) => return Err("it has closed the connection".into()),
            Ok(count) => session.push(&bytes[..count]),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// A job that goes on at a switch that was restarted.
pub(crate) struct Rejoined {
    pub(crate) stream: Stream,
    pub(crate) session: ClientSession,
    pub(crate) join: Join,
    pub(crate) admitted: Admitted,
    /// For vectors; none where they go over a fabric.
    pub(crate) socket: Option<Socket>,
    /// What is left of the operations that were running.
    pub(crate) plans: Vec<OperationPlan>,
}

/// Where a job is joined again.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    /// Who answers there.
    pub(crate) runner: Runner,
    pub(crate) by_hosts: ByHosts,
}

/// Why a job was not joined again.
pub(crate) enum NotRejoined {
    /// Its switch is there again.
    SentBack,
    Failed(CommError),
}

impl From<CommError> for NotRejoined {
    fn from(error: CommError) -> Self {
        NotRejoined::Failed(error)
    }
}

/// Joins a job again, where nothing is known of it any more; returns once all ranks have.
///
/// # Errors
/// Within the configured timeout.
pub(crate) fn rejoin(config: &Config, place: &Place, resume: &ResumeState) -> Result<Rejoined, NotRejoined> {
    let deadline = Instant::now() + config.timeout;
    let whom = if place.runner.is_rank() { "rank 0" } else { "the switch" };
    let reach = Reach::of(config);
    loop {
        let stream = connect(config, &reach, (place.address, whom), deadline)?;
        let mut talk = Talk::new(config, stream, deadline, (place.address, &place.runner));
        match talk.rejoin(resume, place) {
            Ok((join, admitted, socket, plans)) => {
                return Ok(Rejoined { stream: talk.stream, session: talk.session, join, admitted, socket: Some(socket), plans });
            }
            Err(_) if talk.is_sent_back => return Err(NotRejoined::SentBack),
            // That was still the old switch, which had not quite ended, or the new one was restarted as well.
            Err(_) if talk.is_closed && !place.runner.is_rank() && Instant::now() < deadline => thread::sleep(RETRY),
            Err(error) => return Err(error.into()),
        }
    }
}

/// What a rank gets that has joined again.
type JoinedAgain = (Join, Admitted, Socket, Vec<OperationPlan>);

/// With so many jobs a process is one of those that may need more descriptors than 1024, which is what many systems allow it at first.
const JOBS_FEW: usize = 32;
/// What it then asks for, where it may have so many.
const FILES_WANTED: u64 = 1 << 16;

/// A job takes up to eight descriptors: rather than fail with `EMFILE` in the middle of a program that has many, the process's own limit is
/// raised as far as the system lets every process raise it.
fn count_job() {
    static JOBS: AtomicUsize = AtomicUsize::new(0);
    if JOBS.fetch_add(1, Ordering::Relaxed) != JOBS_FEW {
        return;
    }
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.map_or(FILES_WANTED, |most| most.min(FILES_WANTED));
    if limit.current.is_some_and(|current| current < most)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit })
    {
        tracing::debug!(%error, most, "the limit of open files stays");
    }
}

/// The first address of `text`; names may take a moment to be known.
fn resolve(text: &str, deadline: Instant) -> Result<SocketAddr, CommError> {
    loop {
        let error = match text.to_socket_addrs() {
            Ok(mut addresses) => match addresses.next() {
                Some(address) => return Ok(address),
                None => io::Error::from(io::ErrorKind::NotFound),
            },
            Err(error) => error,
        };
        if Instant::now() >= deadline {
            return Err(CommError::system(format!("the address {text}"))(error));
        }
        thread::sleep(RETRY);
    }
}

/// Switches that run in this process, by the address at which they listen: several communicators with the same meeting place share one.
static EMBEDDED: Mutex<BTreeMap<SocketAddr, Weak<DaemonHandle>>> = Mutex::new(BTreeMap::new());

/// The switch in this process at `address`; it is started if there is none, with port 0 always.
///
/// # Errors
/// [`CommError::System`], where nobody can listen there.
pub(crate) fn embedded_switch(
    address: SocketAddr,
    linger: Duration,
    (faults, tls): (FaultPlan, Option<ServerTls>),
) -> Result<Arc<DaemonHandle>, CommError> {
    let mut running = locked(&EMBEDDED);
    if let Some(daemon) = running.get(&address).and_then(Weak::upgrade) {
        return Ok(daemon);
    }
    let mut daemon = embedded_config(address, linger);
    daemon.faults = faults;
    if tls.is_some() {
        // Who wants nobody to read what is said wants nobody to read or to alter vectors; their keys are safe on the way to the ranks.
        (daemon.tls, daemon.packets) = (tls, Protection::Seal);
    }
    let daemon = fanin_daemon::Daemon::start(daemon)
        .map_err(|error| CommError::System { what: format!("rank 0 cannot run a switch at {address}"), reason: error.to_string() })?;
    let daemon = Arc::new(daemon);
    running.retain(|_, daemon| daemon.strong_count() > 0);
    running.insert(daemon.control_address(), Arc::downgrade(&daemon));
    Ok(daemon)
}

/// A switch in rank 0's process.
pub(crate) fn embedded_config(address: SocketAddr, linger: Duration) -> DaemonConfig {
    let mut daemon = DaemonConfig::embedded(address);
    daemon.jobs.drain_ms = linger.min(TIMEOUT_MAX).as_millis() as u64;
    // It is rank 0's own, who knows how long it wants to wait.
    daemon.jobs.patience_ms_max = u64::MAX;
    daemon
}

/// What the switch in rank 0's process does wrong where rank 0 does.
fn switch_faults(config: &Config) -> FaultPlan {
    FaultPlan { seed: hash::mix(config.faults.seed, u64::from(config.world)), ..config.faults }
}

/// The user does not want to wait for the others any more.
fn given_up(config: &Config) -> CommError {
    let text = format!("rank {} has not joined: {INTERRUPTED}", config.rank);
    CommError::Failed { job: config.job.clone(), text, suspect_rank: Some(config.rank), kind: Some(FailureKind::Aborted) }
}

/// Goes to where a job meets, and tries again as long as nobody is there.
fn connect(config: &Config, reach: &Reach, (address, whom): (SocketAddr, &'static str), deadline: Instant) -> Result<Stream, CommError> {
    loop {
        if config.interrupt.is_wanted() {
            return Err(given_up(config));
        }
        let left = deadline.saturating_duration_since(Instant::now()).clamp(Duration::from_millis(1), CONNECT_LIMIT);
        match reach.open(address, left, &|| config.interrupt.is_wanted()) {
            Ok(stream) => return Ok(stream),
            // The two do not trust each other: nothing changes by trying again.
            Err(HandshakeError::Refused(why)) => {
                return Err(CommError::Refused { rank: config.rank, text: format!("{whom} at {address}: {why}") });
            }
            Err(error) if Instant::now() >= deadline => {
                let (rank, seconds, reason) = (config.rank, config.timeout.as_secs_f64(), error.to_string());
                return Err(CommError::Unreachable { rank, whom, address, seconds, reason });
            }
            // Nobody listens there yet.
            Err(HandshakeError::Io(_)) => thread::sleep(RETRY),
        }
    }
}

/// `nearby`: the switch runs in this process.
fn open_socket(ip: IpAddr, nearby: bool) -> Result<Socket, CommError> {
    Socket::bind(&SocketConfig { nearby, ..SocketConfig::new(SocketAddr::new(ip, 0)) })
        .map_err(|error| CommError::System { what: "the socket for vectors".into(), reason: error.to_string() })
}

/// Whether hosts sum by themselves where the switch has no room for the job, or is gone: in jobs that are for all calls, at a switch of its own
/// and where not all ranks must share memory; and in fabrics.
pub(crate) fn may_fall_back(config: &Config, wanted: Wanted) -> bool {
    if matches!(config.meeting, Meeting::Fabric(_)) {
        return config.fallback != Some(Fallback::Error);
    }
    let at_switch = matches!(config.meeting, Meeting::Switch(_)) && config.transport != Transport::Memory;
    at_switch && config.fallback != Some(Fallback::Error) && wanted == Wanted::DENSE
}

fn request(config: &Config, wanted: Wanted, data: SocketAddr, switch: SocketAddr) -> Join {
    Join {
        job: config.job.clone(),
        rank: config.rank,
        world: config.world,
        data,
        host: host_id(),
        node: None,
        path_datagram_bytes: path_datagram_bytes(data.ip(), switch),
        wish: JobWish {
            system: wanted.system,
            payload_bytes: config.payload_bytes,
            window: config.window,
            patience_ms: config.timeout.as_millis() as u64,
            fixed_point: config.fixed_point,
            reproducible: config.reproducible,
            beside: config.system_beside().filter(|_| wanted == Wanted::DENSE),
            op: wanted.op.into(),
        },
        operators: config.operators.iter().map(|operator| wish(config, operator)).collect(),
        attach: None,
        resume: None,
        adopt: None,
        by_hosts: if may_fall_back(config, wanted) { ByHosts::WhereFull } else { ByHosts::Never },
        token: config.token.as_ref().and_then(token),
        takes_keys: true,
    }
}

/// The token itself, or what is in its file now.
pub(crate) fn token(said: &Token) -> Option<Token> {
    match said.0.strip_prefix('@') {
        None => Some(said.clone()),
        Some(path) => fs::read_to_string(path).ok().map(|text| Token(text.trim().to_owned())),
    }
}

/// An operator as the switch is told of it; the module itself comes from rank 0.
fn wish(config: &Config, operator: &CustomOperator) -> OperatorWish {
    let module = (config.rank == 0).then(|| OperatorWish::digits(operator.module()));
    OperatorWish { name: operator.name().into(), digest: operator.digest().to_string(), module }
}

/// What two processes have in common that can reach each other's memory through `/proc`: the running kernel, the namespace of process
/// numbers, the user.
fn host_id() -> HostId {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = fs::metadata("/proc/self/ns/pid").map(|metadata| metadata.ino()).unwrap_or_default();
    let user = rustix::process::geteuid().as_raw();
    HostId(format!("{}/{namespace}/{user}", boot.trim()))
}

/// The longest datagram (without headers of IP and UDP) that the kernel sends to `switch` whole, by its route and what it has learnt of
/// the path. As on Ethernet where the kernel does not say.
fn path_datagram_bytes(local: IpAddr, switch: SocketAddr) -> u32 {
    let mtu = || -> io::Result<u32> {
        let probe = UdpSocket::bind(SocketAddr::new(local, 0))?;
        probe.connect(switch)?;
        let mtu = if switch.is_ipv4() { rustix::net::sockopt::ip_mtu(&probe)? } else { rustix::net::sockopt::ipv6_mtu(&probe)? };
        Ok(mtu)
    };
    let headers = if switch.is_ipv4() { IPV4_UDP_BYTES } else { IPV6_UDP_BYTES };
    mtu().unwrap_or(1_500).saturating_sub(headers).min(fanin_net::DATAGRAM_BYTES_MAX as u32)
}

/// How rank 0 tells where its memory is found.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Offer {
    At { path: String, nonce: u64 },
    None { reason: String },
}

/// A connection on which the job is not yet started.
struct Talk<'a> {
    config: &'a Config,
    stream: Stream,
    session: ClientSession,
    deadline: Instant,
    /// Where the switch is, and who runs it.
    switch: (SocketAddr, &'a Runner),
    /// When the switch was last told that this rank is here, and how often.
    alive: (Instant, u64),
    /// The last time that this process did not run.
    stopped: Option<Stop>,
    waiting_told: Instant,
    missing: String,
    /// The only life of the switch that it makes sense with.
    switch_instance: Option<u64>,
    /// The switch has gone away in the middle of it.
    is_closed: bool,
    /// The job goes on at its switch.
    is_sent_back: bool,
    /// The switch has refused the connection because it had said nothing for too long.
    is_too_slow: Cell<bool>,
}

impl<'a> Talk<'a> {
    fn new(config: &'a Config, stream: Stream, deadline: Instant, switch: (SocketAddr, &'a Runner)) -> Self {
        let session = ClientSession::new();
        Talk {
            config,
            stream,
            session,
            deadline,
            switch,
            alive: (Instant::now(), 0),
            stopped: None,
            waiting_told: Instant::now(),
            missing: String::new(),
            switch_instance: None,
            is_closed: false,
            is_sent_back: false,
            is_too_slow: Cell::new(false),
        }
    }

    /// Joins a job again.
    fn rejoin(&mut self, resume: &ResumeState, place: &Place) -> Result<JoinedAgain, CommError> {
        let local = self.stream.local_addr().map_err(CommError::system("the control connection"))?;
        let socket = open_socket(self.config.bind.unwrap_or_else(|| local.ip()), false)?;
        self.say(&ClientSession::greeting(SOFTWARE))?;
        let mut join = request(self.config, Wanted::DENSE, socket.local_address(), place.address);
        join.by_hosts = place.by_hosts.clone();
        // Blocks must be what they were.
        join.wish.payload_bytes = Some(resume.payload_bytes);
        join.resume = Some(resume.clone());
        let (admitted, plans) = self.go_on_with(&join, |_| Ok(()))?;
        join.resume = None;
        Ok((join, admitted, socket, plans))
    }

    /// Joins with what a rank has of its past; `enter` makes what the job needs before anybody sends a packet. Gives what is left to do.
    fn go_on_with(
        &mut self,
        join: &Join,
        enter: impl FnOnce(&Admitted) -> Result<(), CommError>,
    ) -> Result<(Admitted, Vec<OperationPlan>), CommError> {
        self.say(&encode(&ClientMessage::Join(Box::new(join.clone()))))?;
        let admitted = self.until_admitted()?;
        enter(&admitted)?;
        self.say(&encode(&ClientMessage::Ready))?;
        let mut plans = Vec::new();
        loop {
            match self.hear()? {
                SwitchMessage::Start => return Ok((admitted, plans)),
                SwitchMessage::Resume { plans: said } => plans = said,
                _ => {}
            }
        }
    }

    fn say(&mut self, bytes: &[u8]) -> Result<(), CommError> {
        // Where the switch has closed the connection it has said why, which is read next.
        let _ = self.stream.write_all(bytes);
        Ok(())
    }

    /// The next message.
    fn hear(&mut self) -> Result<SwitchMessage, CommError> {
        loop {
            match self.session.next().map_err(|error| self.refused(error))? {
                Some(SwitchMessage::Return) => {
                    self.is_sent_back = true;
                    return Err(self.failed("the job goes on at its switch".into()));
                }
                Some(message) => return Ok(message),
                None => self.hear_more()?,
            }
        }
    }

    /// Waits for something to come.
    fn hear_more(&mut self) -> Result<(), CommError> {
        let mut bytes = [0; 4 << 10];
        loop {
            if let (Some(wanted), Some(hello)) = (self.switch_instance, self.session.switch())
                && wanted != hello.switch_instance
            {
                return Err(self.failed("the switch was restarted".into()));
            }
            if self.config.interrupt.is_wanted() {
                return Err(given_up(self.config));
            }
            // The switch gives up first, and says who is missing; this is for one that says nothing.
            if Instant::now() >= self.deadline + DEADLINE_GRACE {
                let (seconds, runner) = (self.config.timeout.as_secs_f64(), self.switch.1);
                let error = self.failed(format!("{runner} has not started the job within {seconds:.1} s{}", self.missing));
                return Err(self.explain(error));
            }
            self.say_alive();
            self.stream.set_read_timeout(Some(INTERRUPT_LOOK)).map_err(CommError::system("the control connection"))?;
            let begun = Instant::now();
            let read = self.stream.read(&mut bytes);
            if let Some(length) = own_time::stop(begun, INTERRUPT_LOOK) {
                // Nothing could be heard meanwhile.
                self.deadline += length;
                self.stopped = Some(Stop::of(length));
            }
            match read {
                Ok(0) => {
                    self.is_closed = true;
                    return Err(self.lost("it has closed the connection before the job began".into()));
                }
                Ok(count) => {
                    self.session.push(&bytes[..count]);
                    return Ok(());
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted) => {}
                Err(error) => {
                    self.is_closed = true;
                    return Err(self.lost(format!("{error}, before the job began")));
                }
            }
        }
    }

    /// Now and then: this rank is still here, and waits.
    fn say_alive(&mut self) {
        let (said, sequence) = self.alive;
        if said.elapsed() >= Duration::from_millis(ALIVE_INTERVAL_MS) {
            self.alive = (Instant::now(), sequence + 1);
            // An error shows when it is read as well.
            let _ = self.stream.write_all(&encode(&ClientMessage::Alive { sequence }));
        }
    }

    /// The switch is gone.
    fn lost(&self, why: String) -> CommError {
        let (address, runner) = self.switch;
        self.explain(runner.failure(&self.config.job, address, &Loss::Closed(why)))
    }

    /// What has gone wrong, where this process was stopped before.
    fn explain(&self, error: CommError) -> CommError {
        match self.stopped {
            Some(stop) => stop.explain(error, self.config.rank, self.config.timeout),
            None => error,
        }
    }

    fn failed(&self, text: String) -> CommError {
        CommError::Failed { job: self.config.job.clone(), text, suspect_rank: None, kind: None }
    }

    fn refused(&self, error: ClientError) -> CommError {
        self.is_too_slow.set(matches!(error, ClientError::Refused(Refused { code: Refusal::TooSlow, .. })));
        match error {
            // Rank 0 has given up, or has left.
            ClientError::Failed(failed) if failed.kind == FailureKind::Shutdown && self.switch.1.is_rank() => self.lost(failed.text),
            ClientError::Failed(failed) => self.explain(CommError::Failed {
                job: self.config.job.clone(),
                text: failed.text,
                suspect_rank: failed.suspect_rank,
                kind: Some(failed.kind),
            }),
            // What is asked for is in order, and another life of the switch may do it.
            draining @ ClientError::Refused(Refused { code: Refusal::Draining, .. }) => CommError::Failed {
                job: self.config.job.clone(),
                text: draining.to_string(),
                suspect_rank: None,
                kind: Some(FailureKind::Shutdown),
            },
            other => CommError::Refused { rank: self.config.rank, text: other.to_string() },
        }
    }

    fn until_admitted(&mut self) -> Result<Admitted, CommError> {
        loop {
            match self.hear()? {
                SwitchMessage::Admitted(admitted) => return Ok(*admitted),
                SwitchMessage::Waiting { missing, missing_count } => self.tell_missing(&missing, missing_count),
                _ => {}
            }
        }
    }

    /// Now and then, who is missing.
    fn tell_missing(&mut self, missing: &[u32], count: u32) {
        let named: Vec<String> = missing.iter().take(8).map(u32::to_string).collect();
        let more = if count as usize > named.len() { format!(" and {} more", count as usize - named.len()) } else { String::new() };
        self.missing = format!("; waiting for rank {}{more}", named.join(", "));
        if self.waiting_told.elapsed() >= self.config.stall_notice {
            self.waiting_told = Instant::now();
            let text = format!("job {:?}: rank {} waits for rank {}{more} to join", self.config.job, self.config.rank, named.join(", "));
            self.config.notices.tell(&text);
        }
    }

    /// Finds out whether all ranks can share memory; all find the same.
    fn share_memory(&mut self, admitted: &Admitted) -> Result<Result<Pool, String>, CommError> {
        let mine = if self.config.rank == 0 { Some(self.offer(admitted)) } else { None };
        let mut segment: Result<Segment, String> = Err("rank 0 has said nothing".into());
        let mut answers = BTreeMap::new();
        if let Some((offer, made)) = mine {
            segment = made;
            let value = serde_json::to_string(&offer).unwrap_or_default();
            self.say(&encode(&ClientMessage::Share { key: MEMORY_KEY.into(), value }))?;
        }
        while answers.len() < self.config.world as usize {
            let SwitchMessage::Shared { rank, key, value } = self.hear()? else { continue };
            if key == MEMORY_KEY && rank == 0 {
                if self.config.rank != 0 {
                    segment = self.open(&value);
                }
                let value = match &segment {
                    Ok(_) => MAPPED.to_string(),
                    Err(reason) => reason.chars().take(500).collect(),
                };
                self.say(&encode(&ClientMessage::Share { key: MAPPED_KEY.into(), value }))?;
            } else if key == MAPPED_KEY {
                answers.insert(rank, value);
            }
        }
        // The lowest rank's reason, so that all say the same.
        if let Some((rank, reason)) = answers.iter().find(|(_, answer)| *answer != MAPPED) {
            return Ok(Err(if *rank == 0 { reason.clone() } else { format!("rank {rank}: {reason}") }));
        }
        Ok(segment.map(|segment| Pool::new(segment, self.config.rank, self.config.waiting)))
    }

    /// Rank 0: memory for all, if that can be.
    fn offer(&self, admitted: &Admitted) -> (Offer, Result<Segment, String>) {
        let made = self
            .may_share(admitted)
            .and_then(|()| Segment::create(layout::of(self.config.world), admitted.instance).map_err(|error| error.to_string()));
        match &made {
            Ok(segment) => (Offer::At { path: segment.path(), nonce: admitted.instance }, made),
            Err(reason) => (Offer::None { reason: reason.clone() }, made),
        }
    }

    fn may_share(&self, admitted: &Admitted) -> Result<(), String> {
        if self.config.transport == Transport::Udp {
            return Err("UDP was asked for".into());
        }
        if self.config.fixed_point {
            return Err("block fixed point is summed by a switch".into());
        }
        let mine = host_id();
        match admitted.peers.iter().find(|peer| peer.host != mine) {
            Some(peer) => Err(format!("rank {} is on another host (or in another container, or another user's) than rank 0", peer.rank)),
            None => Ok(()),
        }
    }

    fn open(&self, offer: &str) -> Result<Segment, String> {
        match serde_json::from_str(offer).map_err(|error| error.to_string())? {
            Offer::None { reason } => Err(reason),
            Offer::At { .. } if self.config.transport == Transport::Udp => Err("UDP was asked for".into()),
            Offer::At { path, nonce } => Segment::open(&path, layout::of(self.config.world), nonce).map_err(|error| error.to_string()),
        }
    }
}
