//! The control connection of a running job: tells the switch that this rank is alive and what it is doing, and hears why a job has failed.
//!
//! | module | what it holds |
//! |---|---|
//! | `fabric` | what a job over a fabric does without its manager, and where the fabric does not carry it any more |

mod fabric;

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fanin_channel::Stream;
use fanin_control::{
    ALIVE_INTERVAL_MS, Admitted, Attach, ByHosts, CallDescription, ClientError, ClientMessage, ClientSession, Failed, FailureKind, Join,
    Refusal, Refused, SILENCE_MS_MIN, SwitchMessage, Token, encode,
};
use fanin_daemon::DaemonHandle;
use fanin_net::Waker;

use crate::call::Progress;
use crate::config::{Config, Interrupt, Notices};
use crate::error::CommError;
use crate::lock::locked;
use crate::meeting::{self, Knock, Place};
use crate::own_time::{self, Stop};
use crate::reach::Reach;
use crate::runner::{Loss, Runner};
use crate::standby::Standby;

/// How often the thread looks at its clock while nothing comes.
const TICK: Duration = Duration::from_millis(100);

/// How long one attempt to reach a lost switch takes at most.
const KNOCK_LIMIT: Duration = Duration::from_secs(2);
/// What a rank tells the others that needs nothing of them any more.
const DONE_KEY: &str = "done";

/// Where rank 0 is to be found without the switch.
const STANDBY_KEY: &str = "standby";
/// How long one attempt to reach rank 0 there takes at most.
const STANDBY_KNOCK_LIMIT: Duration = Duration::from_millis(500);
/// How long hosts wait for a lost switch before they go on without it: longer than a restart of it takes.
const HOSTS_AFTER: Duration = Duration::from_secs(3);

/// How often a lost switch is tried again, and how often it is looked whether a call has taken the job up again.
const RETRY: Duration = Duration::from_millis(20);

/// What becomes of a job whose switch is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Survival {
    /// It ends: the switch was rank 0's.
    None,
    /// Vectors do not need the switch; only who dies is not noticed at once any more.
    Memory,
    /// Vectors need the fabric's switches and not the manager; who dies is not noticed at once any more.
    Fabric,
    /// It goes on where it was when the switch is there again.
    Resume,
    /// It goes on when the switch is there again and, as long as it is not, by hosts alone.
    ResumeOrHosts,
    /// As [`Survival::Fabric`]; where the fabric does not carry it any more, it goes on by hosts alone until it does.
    FabricOrHosts,
}

impl Survival {
    fn resumes(self) -> bool {
        matches!(self, Survival::Resume | Survival::ResumeOrHosts)
    }

    /// Whether hosts may go on alone.
    fn has_hosts(self) -> bool {
        matches!(self, Survival::ResumeOrHosts | Survival::FabricOrHosts)
    }
}

/// Whether a job has failed for what is not its ranks' matter.
pub(crate) fn is_of_the_switch(error: &CommError) -> bool {
    match error {
        CommError::Unreachable { .. } | CommError::Refused { .. } => true,
        CommError::Failed { kind, .. } => matches!(kind, None | Some(FailureKind::Full | FailureKind::Shutdown | FailureKind::Switch)),
        _ => false,
    }
}

/// What is needed to find the switch again.
struct Ticket {
    join: Join,
    admitted: Admitted,
    switch_instance: u64,
}

/// A connection on which a job has been started.
pub(crate) struct Opened {
    pub(crate) stream: Stream,
    pub(crate) session: ClientSession,
    pub(crate) join: Join,
    pub(crate) admitted: Admitted,
}

/// How a conversation with the switch has ended.
enum End {
    /// This side has no more to say, or the job has failed.
    Over,
    /// The connection is of no use any more, for this reason.
    Lost(Loss),
    /// Hosts need not go on by themselves any more.
    SentBack,
    /// They must, for this reason.
    Uncarried(String),
}

/// What has been heard.
enum Heard {
    Nothing,
    SentBack,
    /// The switch ends, in these words; the job need not.
    Ends(String),
    /// The fabric does not carry the job any more, for this reason; its hosts go on.
    Uncarried(String),
}

/// What is done where the switch was restarted.
type Idle = Box<dyn Fn() + Send + Sync>;

/// What the control thread and the callers of collectives share.
pub(crate) struct Link {
    job: String,
    rank: u32,
    /// The job's switch.
    home: SocketAddr,
    /// Whether, at home, hosts may sum by themselves.
    home_by_hosts: ByHosts,
    home_runner: Runner,
    /// Where the job is.
    place: Mutex<Place>,
    patience: Duration,
    notices: Notices,
    survival: Survival,
    /// Rank 0: where ranks meet without the switch. Others: where rank 0 has said that it is.
    standby: Mutex<Option<Standby>>,
    standby_at: Mutex<Option<SocketAddr>>,
    /// How often the job has gone on by hosts alone.
    gone_on: AtomicU32,
    /// Why hosts sum by themselves, if they do.
    by_hosts: Mutex<Option<String>>,
    /// The last time that this process did not run.
    stopped: Mutex<Option<Stop>>,
    /// When the link's thread has last looked at the clock, while it listens.
    looked: Mutex<Option<Instant>>,
    /// How the switch was lost, while it is looked for.
    lost: Mutex<Option<String>>,
    ticket: Mutex<Ticket>,
    /// How its switch is gone to.
    reach: Reach,
    /// What gives the right to come back.
    token: Option<Token>,
    /// Takes the job up again if no call runs.
    idle: OnceLock<Idle>,
    /// Another life of the switch has answered: whoever has the engine takes the job up again.
    restarted: Arc<AtomicBool>,
    /// The connection on which that was done, for the control thread.
    fresh: Mutex<Option<(Stream, ClientSession)>>,
    writer: Mutex<Stream>,
    /// Set with `failure`, so that waiting loops need no lock.
    failed: Arc<AtomicBool>,
    failure: Mutex<Option<CommError>>,
    closing: AtomicBool,
    /// What the rank is doing.
    current: Mutex<CallDescription>,
    finished_blocks: AtomicU64,
    /// For how long nothing has moved in the running call, when that was last looked at; in ms.
    stalled_ms: AtomicU64,
    /// Ranks that need nothing of the others any more.
    done: Mutex<BTreeSet<u32>>,
    /// Interrupts a caller that sleeps in its socket.
    waker: Mutex<Option<Waker>>,
}

impl Link {
    /// Takes over a connection on which the job has been started.
    ///
    /// # Errors
    /// Where no thread is to be had.
    pub(crate) fn start(
        config: &Config,
        opened: Opened,
        survival: Survival,
        runner: Runner,
    ) -> Result<(Arc<Link>, JoinHandle<()>), CommError> {
        let broken = |error| CommError::system("the control connection")(error);
        let Opened { stream, session, join, admitted } = opened;
        let switch_instance = session.switch().map_or(0, |hello| hello.switch_instance);
        let home = stream.peer_addr().map_err(broken)?;
        let place = Place { address: home, runner: runner.clone(), by_hosts: join.by_hosts.clone() };
        let link = Arc::new(Link {
            job: config.job.clone(),
            rank: config.rank,
            home,
            home_by_hosts: join.by_hosts.clone(),
            home_runner: runner,
            place: Mutex::new(place),
            patience: Duration::from_millis(admitted.patience_ms),
            notices: config.notices.clone(),
            survival,
            standby: Mutex::new(None),
            standby_at: Mutex::new(None),
            gone_on: AtomicU32::new(0),
            by_hosts: Mutex::new(admitted.by_hosts.clone()),
            stopped: Mutex::new(None),
            looked: Mutex::new(None),
            lost: Mutex::new(None),
            ticket: Mutex::new(Ticket { join, admitted, switch_instance }),
            reach: Reach::of(config),
            token: config.token.clone(),
            idle: OnceLock::new(),
            restarted: Arc::default(),
            fresh: Mutex::new(None),
            writer: Mutex::new(stream.clone()),
            failed: Arc::default(),
            failure: Mutex::new(None),
            closing: AtomicBool::new(false),
            current: Mutex::new(CallDescription::idle(0)),
            finished_blocks: AtomicU64::new(0),
            stalled_ms: AtomicU64::new(0),
            done: Mutex::default(),
            waker: Mutex::new(None),
        });
        if link.keeps_standby() {
            link.keep_standby(&stream);
        }
        let mine = link.clone();
        let thread = thread::Builder::new()
            .name("fanin-control".into())
            .spawn(move || mine.run(stream, session))
            .map_err(CommError::system("a thread for the control connection"))?;
        Ok((link, thread))
    }

    /// What takes the job up again if no call runs.
    pub(crate) fn set_idle(&self, idle: impl Fn() + Send + Sync + 'static) {
        let _ = self.idle.set(Box::new(idle));
    }

    /// Where the job is: at its switch, or at rank 0.
    pub(crate) fn switch(&self) -> SocketAddr {
        locked(&self.place).address
    }

    /// The same, with how it is joined there.
    pub(crate) fn place(&self) -> Place {
        locked(&self.place).clone()
    }

    /// Which life of the switch the job is at.
    pub(crate) fn switch_instance(&self) -> u64 {
        locked(&self.ticket).switch_instance
    }

    /// Whether the job must be taken up again at a switch that knows nothing of it.
    #[inline]
    pub(crate) fn was_restarted(&self) -> bool {
        self.restarted.load(Ordering::Acquire)
    }

    /// The job was taken up again, on this connection.
    pub(crate) fn resumed(&self, opened: Opened) {
        let Opened { stream, session, join, admitted } = opened;
        let switch_instance = session.switch().map_or(0, |hello| hello.switch_instance);
        let is_home = self.is_home();
        let by_hosts = admitted.by_hosts.clone();
        *locked(&self.ticket) = Ticket { join, admitted, switch_instance };
        *locked(&self.writer) = stream.clone();
        *locked(&self.fresh) = Some((stream, session));
        *locked(&self.lost) = None;
        self.restarted.store(false, Ordering::Release);
        if is_home
            && self.keeps_standby()
            && let Some((stream, _)) = &*locked(&self.fresh)
        {
            self.keep_standby(stream);
        }
        let before = std::mem::replace(&mut *locked(&self.by_hosts), by_hosts.clone());
        let goes_on = match (before, &by_hosts) {
            // It has been said.
            (Some(before), Some(now)) if before == *now => return,
            (_, Some(why)) => format!("by hosts alone, since {why}"),
            (Some(_), None) if self.home_runner == Runner::Manager => format!("over the fabric that is managed at {} again", self.home),
            (None, None) if self.home_runner == Runner::Manager => format!("at the manager at {}, which was restarted", self.home),
            (Some(_), None) => format!("by the switch at {} again", self.home),
            (None, None) => format!("at the switch at {}, which was restarted", self.home),
        };
        self.notices.tell(&format!("job {:?}: goes on {goes_on}", self.job));
    }

    /// Why hosts sum by themselves, if they do.
    pub(crate) fn by_hosts(&self) -> Option<String> {
        locked(&self.by_hosts).clone()
    }

    /// Whoever sleeps in this socket is woken when the job fails.
    pub(crate) fn set_waker(&self, waker: Waker) {
        *locked(&self.waker) = Some(waker);
    }

    /// Whether the job has failed.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Ends waiting for other ranks where the user wants it, where the job has failed, or where it goes on elsewhere.
    pub(crate) fn interrupts(&self, user: &Interrupt) -> Interrupt {
        let (user, failed, restarted) = (user.clone(), self.failed.clone(), self.restarted.clone());
        Interrupt::when(move || user.is_wanted() || failed.load(Ordering::Acquire) || restarted.load(Ordering::Acquire))
    }

    /// Why the job has failed, if it has.
    pub(crate) fn failure(&self) -> Option<CommError> {
        if self.has_failed() { locked(&self.failure).clone() } else { None }
    }

    /// Waits for the job to have failed, for so long at most.
    pub(crate) fn await_failure(&self, limit: Duration) -> Option<CommError> {
        let start = Instant::now();
        while !self.has_failed() && start.elapsed() < limit {
            thread::sleep(Duration::from_millis(1));
        }
        self.failure()
    }

    /// Waits until the job has failed, or is to be taken up again, for so long at most; says whether it is the latter.
    pub(crate) fn await_restart(&self, limit: Duration) -> bool {
        let start = Instant::now();
        while !self.has_failed() && !self.was_restarted() && start.elapsed() < limit {
            thread::sleep(Duration::from_millis(1));
        }
        self.was_restarted() && !self.has_failed()
    }

    /// The job has failed for this reason; the first one stays. Gives the one that stays.
    pub(crate) fn fail(&self, error: CommError) -> CommError {
        // Whoever runs first after a stop tells it, be it this thread or the link's own, which looks at the clock at every tick.
        let unseen = locked(&self.looked).and_then(|looked| own_time::stop(looked, TICK)).map(Stop::of);
        let error = match unseen.or(*locked(&self.stopped)) {
            Some(stop) => stop.explain(error, self.rank, self.patience),
            None => error,
        };
        let stays = locked(&self.failure).get_or_insert(error).clone();
        self.failed.store(true, Ordering::Release);
        if let Some(waker) = &*locked(&self.waker) {
            waker.wake();
        }
        stays
    }

    /// Who runs the switch.
    pub(crate) fn runner(&self) -> Runner {
        locked(&self.place).runner.clone()
    }

    /// How the switch was lost, while it is looked for.
    pub(crate) fn lost(&self) -> Option<String> {
        locked(&self.lost).clone()
    }

    /// Ends the job, for all ranks, in these words; gives what the job has failed with.
    pub(crate) fn abort(&self, text: &str) -> CommError {
        if !self.has_failed() {
            let _ = self.send(&ClientMessage::Abort { text: text.into() });
        }
        let whole = format!("rank {} has ended the job: {text}", self.rank);
        self.fail(self.failed_with(whole, Some(self.rank), Some(FailureKind::Aborted)))
    }

    /// A failure of this job in these words.
    pub(crate) fn failed_with(&self, text: String, suspect_rank: Option<u32>, kind: Option<FailureKind>) -> CommError {
        CommError::Failed { job: self.job.clone(), text, suspect_rank, kind }
    }

    /// A call begins.
    pub(crate) fn begin(&self, call: CallDescription) {
        *locked(&self.current) = call;
        self.finished_blocks.store(0, Ordering::Relaxed);
        self.stalled_ms.store(0, Ordering::Relaxed);
    }

    /// A call makes progress.
    #[inline]
    pub(crate) fn progress(&self, finished_blocks: u64) {
        self.finished_blocks.store(finished_blocks, Ordering::Relaxed);
        self.stalled_ms.store(0, Ordering::Relaxed);
    }

    /// A call has ended; `next` is the number of the next one.
    pub(crate) fn end(&self, next: u32) {
        *locked(&self.current) = CallDescription::idle(next);
        self.stalled_ms.store(0, Ordering::Relaxed);
    }

    /// How far the running call is, if one runs.
    pub(crate) fn running(&self) -> Option<Progress> {
        let call = self.call();
        let running = !call.is_idle();
        running.then_some(Progress { call: call.operation, finished_blocks: call.finished_blocks, blocks: call.total_blocks })
    }

    fn call(&self) -> CallDescription {
        let mut call = *locked(&self.current);
        if !call.is_idle() {
            let finished = self.finished_blocks.load(Ordering::Relaxed);
            (call.finished_blocks, call.waiting_block) = (finished, Some(finished));
        }
        call
    }

    /// Nothing moves: the switch is asked to find out why.
    /// `timeout` is how long this rank waits in this call.
    pub(crate) fn report_stall(&self, still: Duration, timeout: Duration) {
        let (idle_ms, patience_ms) = (still.as_millis() as u64, Some(timeout.as_millis() as u64));
        self.stalled_ms.store(idle_ms, Ordering::Relaxed);
        let _ = self.send(&ClientMessage::Stalled { call: self.call(), idle_ms, patience_ms });
    }

    fn send(&self, message: &ClientMessage) -> io::Result<()> {
        locked(&self.writer).write_all(&encode(message))
    }

    /// Tells the other ranks that this one needs nothing of them any more, and waits until all have said so, but not longer than `limit`: until
    /// then a rank may ask this one for something that was lost.
    pub(crate) fn await_all(&self, world: u32, limit: Duration) {
        let _ = self.send(&ClientMessage::Share { key: DONE_KEY.into(), value: String::new() });
        let start = Instant::now();
        while !self.is_over() && start.elapsed() < limit && (locked(&self.done).len() as u64) < u64::from(world) && self.lost().is_none() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Says goodbye; the thread ends soon after. `next` is the number of the first operation that this rank has no part in.
    pub(crate) fn close(&self, next: u32) {
        if !self.closing.swap(true, Ordering::AcqRel) {
            let _ = self.send(&ClientMessage::Leave { operation: next });
            // Reading ends at once, and with it the thread; what was written still arrives.
            let _ = locked(&self.writer).shutdown();
        }
    }

    fn run(&self, mut stream: Stream, mut session: ClientSession) {
        loop {
            let end = self.talk(&mut stream, &mut session);
            *locked(&self.looked) = None;
            let found = match end {
                End::Over => break,
                End::SentBack => {
                    self.go_home();
                    self.await_resumption()
                }
                End::Uncarried(why) => {
                    self.go_by_hosts_at_home(why);
                    self.await_resumption()
                }
                End::Lost(why) if self.survival == Survival::Fabric || self.is_over_fabric() => self.go_without_manager(&why),
                End::Lost(why) => self.find_again(&why),
            };
            match found {
                Some(found) => (stream, session) = found,
                None => break,
            }
        }
        tracing::debug!(job = self.job, "the control thread ends");
    }

    fn is_over(&self) -> bool {
        self.closing.load(Ordering::Acquire) || self.has_failed()
    }

    fn talk(&self, stream: &mut Stream, session: &mut ClientSession) -> End {
        let mut bytes = vec![0; 16 << 10];
        let (mut heard, mut said, mut sequence) = (Instant::now(), Instant::now(), 0);
        // Where hosts can go on by themselves they do so before ranks have waited too long for one another.
        let patience = if self.may_go_elsewhere() { self.patience / 3 } else { self.patience };
        let silence = patience.max(Duration::from_millis(SILENCE_MS_MIN));
        let mut looked = Instant::now();
        if let Err(error) = stream.set_read_timeout(Some(TICK)) {
            return End::Lost(Loss::Closed(error.to_string()));
        }
        while !self.is_over() {
            match self.hear(session) {
                Ok(Heard::Nothing) => {}
                Ok(Heard::SentBack) => return End::SentBack,
                Ok(Heard::Ends(text)) => return End::Lost(Loss::Closed(text)),
                Ok(Heard::Uncarried(text)) => return End::Uncarried(text),
                Err(error) => {
                    self.fail(error);
                    return End::Over;
                }
            }
            let read = stream.read(&mut bytes);
            if let Some(length) = own_time::stop(looked, TICK) {
                // Nothing could be heard meanwhile.
                heard += length;
                *locked(&self.stopped) = Some(Stop::of(length));
            }
            looked = Instant::now();
            *locked(&self.looked) = Some(looked);
            match read {
                Ok(0) if self.runner().is_rank() => return End::Lost(Loss::Closed("its connection was closed".into())),
                Ok(0) => return End::Lost(Loss::Closed("it has closed the connection: it has ended or was restarted".into())),
                Ok(count) => {
                    heard = Instant::now();
                    session.push(&bytes[..count]);
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return End::Lost(Loss::Closed(error.to_string())),
            }
            if said.elapsed() >= Duration::from_millis(ALIVE_INTERVAL_MS) {
                // An error shows at the next read as well.
                let _ = self.send(&ClientMessage::Alive { sequence });
                (said, sequence) = (Instant::now(), sequence + 1);
            }
            if heard.elapsed() > silence {
                return End::Lost(Loss::Silent(heard.elapsed().as_secs_f64()));
            }
        }
        End::Over
    }

    /// The switch is lost: tries to find it again for as long as ranks wait for each other.
    fn find_again(&self, why: &Loss) -> Option<(Stream, ClientSession)> {
        if self.is_over() {
            return None;
        }
        let Place { address, runner, .. } = self.place();
        let failure = || runner.failure(&self.job, address, why);
        if self.survival == Survival::None || (runner.is_rank() && (self.survival.resumes() || self.survival.has_hosts())) {
            self.fail(failure());
            return None;
        }
        let lost = runner.lost(address, why);
        *locked(&self.lost) = Some(lost.clone());
        let (again, seconds) = match self.survival {
            Survival::ResumeOrHosts | Survival::FabricOrHosts => ("hosts go on without it after", self.hosts_after().as_secs_f64()),
            _ => ("it is tried again for", self.patience.as_secs_f64()),
        };
        self.notices.tell(&format!("job {:?}: {lost}; {again} {seconds:.1} s", self.job));
        let (begun, deadline) = (Instant::now(), Instant::now() + self.patience);
        while !self.is_over() && Instant::now() < deadline {
            match meeting::knock(&self.reach, address, KNOCK_LIMIT, &|| self.is_over()) {
                Ok(knock) if knock.switch_instance == locked(&self.ticket).switch_instance => {
                    if let Some(found) = self.attach(knock) {
                        *locked(&self.lost) = None;
                        return Some(found);
                    }
                }
                Ok(_) if self.survival.resumes() || self.survival.has_hosts() => return self.await_resumption(),
                Ok(_) => break,
                Err(_) => {}
            }
            if self.survival.has_hosts() && self.goes_by_hosts(begun, &lost) {
                return self.await_resumption();
            }
            thread::sleep(RETRY);
        }
        let without = match self.survival {
            Survival::Memory => Some("in shared memory without the switch"),
            Survival::Fabric => Some("in the fabric without its manager"),
            _ => None,
        };
        if let Some(without) = without {
            self.notices.tell(&format!("job {:?}: goes on {without}", self.job));
        } else if !self.is_over() {
            self.fail(failure());
        }
        None
    }

    /// Whether the job is at its switch.
    fn is_home(&self) -> bool {
        self.switch() == self.home
    }

    /// The job goes on at its switch.
    pub(crate) fn go_home(&self) {
        *locked(&self.place) = Place { address: self.home, runner: self.home_runner.clone(), by_hosts: self.home_by_hosts.clone() };
    }

    /// Whether rank 0 is a place for the job where its switch is gone. Where the switch is known by a certificate, rank 0 has none to be known by.
    fn keeps_standby(&self) -> bool {
        // Rank 0 could neither be known by a certificate nor give anybody keys.
        self.survival.has_hosts() && !self.reach.is_sealed() && locked(&self.ticket).admitted.keys.is_empty()
    }

    /// Whether there is a place for the job besides its switch.
    pub(crate) fn may_go_elsewhere(&self) -> bool {
        self.keeps_standby() && self.is_home() && (self.rank == 0 || locked(&self.standby_at).is_some())
    }

    /// The job could not be joined again at `place`: whether there is another one to try.
    pub(crate) fn go_elsewhere(&self, place: &Place, error: &CommError) -> bool {
        if place.runner.is_rank() || !is_of_the_switch(error) {
            return false;
        }
        if self.is_over_fabric()
            && let CommError::Failed { kind: Some(FailureKind::Switch), text, .. } = error
        {
            self.go_by_hosts_at_home(text.clone());
            return true;
        }
        if !self.may_go_elsewhere() {
            return false;
        }
        let (begun, why) = (Instant::now(), error.to_string());
        while !self.is_over() && begun.elapsed() < self.patience {
            if self.goes_by_hosts(begun, &why) {
                return true;
            }
            thread::sleep(RETRY);
        }
        false
    }

    /// Whether the job goes on by hosts alone, which rank 0 decides; `begun` is when its switch was lost.
    fn goes_by_hosts(&self, begun: Instant, why: &str) -> bool {
        let Some(address) = (if self.rank == 0 { self.open_standby(begun) } else { self.find_standby() }) else { return false };
        *locked(&self.place) = Place { address, runner: Runner::RANK_0, by_hosts: ByHosts::Only(why.to_owned()) };
        true
    }

    /// How long hosts wait for their switch.
    fn hosts_after(&self) -> Duration {
        HOSTS_AFTER.min(self.patience / 2)
    }

    /// Rank 0: lets the others come, once the switch was lost for long enough.
    fn open_standby(&self, begun: Instant) -> Option<SocketAddr> {
        if begun.elapsed() < self.hosts_after() {
            return None;
        }
        let mut standby = locked(&self.standby);
        let reserved = standby.take()?;
        match reserved.start((&self.reach, self.home), self.patience, self.gone_on.fetch_add(1, Ordering::Relaxed)) {
            Ok(running) => Some(standby.insert(running).address()),
            Err(error) => {
                self.notices.tell(&format!("job {:?}: cannot go on by hosts alone: {error}", self.job));
                None
            }
        }
    }

    /// Another rank: whether rank 0 lets others come.
    fn find_standby(&self) -> Option<SocketAddr> {
        let address = (*locked(&self.standby_at))?;
        meeting::knock(&self.reach, address, STANDBY_KNOCK_LIMIT, &|| self.is_over()).ok().map(|_| address)
    }

    /// Rank 0 keeps an address where ranks meet if they lose their switch, and tells the others.
    fn keep_standby(&self, stream: &Stream) {
        if self.rank != 0 {
            return;
        }
        let reserved =
            stream.local_addr().map_err(CommError::system("the control connection")).and_then(|local| Standby::reserve(local.ip()));
        match reserved {
            Ok(reserved) => {
                let value = reserved.address().to_string();
                *locked(&self.standby) = Some(reserved);
                let _ = self.send(&ClientMessage::Share { key: STANDBY_KEY.into(), value });
            }
            Err(error) => self.notices.tell(&format!("job {:?}: cannot go on where its switch is lost: {error}", self.job)),
        }
    }

    /// What runs in this process where ranks have met here: others may need it longer than this rank does.
    pub(crate) fn daemon(&self) -> Option<Arc<DaemonHandle>> {
        locked(&self.standby).as_ref().and_then(Standby::daemon)
    }

    /// The same, which is no more looked after here.
    pub(crate) fn take_daemon(&self) -> Option<Arc<DaemonHandle>> {
        locked(&self.standby).take().and_then(|standby| standby.daemon())
    }

    /// The same switch, which still knows the job: only the connection is new.
    fn attach(&self, knock: Knock) -> Option<(Stream, ClientSession)> {
        let Knock { mut stream, session, .. } = knock;
        let join = {
            let ticket = locked(&self.ticket);
            // The file of a token may have another one by now.
            let token = self.token.as_ref().and_then(meeting::token);
            Join { attach: Some(Attach { instance: ticket.admitted.instance }), token, ..ticket.join.clone() }
        };
        stream.write_all(&encode(&ClientMessage::Join(Box::new(join)))).ok()?;
        *locked(&self.writer) = stream.clone();
        Some((stream, session))
    }

    /// Another life of the switch: whoever has the engine takes the job up again, a call that runs or this thread.
    fn await_resumption(&self) -> Option<(Stream, ClientSession)> {
        self.restarted.store(true, Ordering::Release);
        if let Some(waker) = &*locked(&self.waker) {
            waker.wake();
        }
        while !self.is_over() {
            if let Some(fresh) = locked(&self.fresh).take() {
                return Some(fresh);
            }
            if let Some(idle) = self.idle.get() {
                idle();
            }
            thread::sleep(Duration::from_millis(1));
        }
        None
    }

    fn hear(&self, session: &mut ClientSession) -> Result<Heard, CommError> {
        loop {
            match session.next() {
                Ok(None) => return Ok(Heard::Nothing),
                Ok(Some(SwitchMessage::Return)) => return Ok(Heard::SentBack),
                Ok(Some(SwitchMessage::Describe)) => {
                    let _ = self.send(&ClientMessage::Call { call: self.call() });
                }
                Ok(Some(SwitchMessage::Notice { text })) => self.notices.tell(&format!("job {:?}: {text}", self.job)),
                // Not of interest where rank 0 runs the switch and has only left before the others.
                Ok(Some(SwitchMessage::Draining { after_ms })) if self.survival != Survival::None => {
                    let seconds = after_ms as f64 / 1e3;
                    self.notices.tell(&format!("job {:?}: the switch shuts down in {seconds:.1} s", self.job));
                }
                Ok(Some(SwitchMessage::Shared { rank: 0, key, value })) if key == STANDBY_KEY && self.rank != 0 => {
                    *locked(&self.standby_at) = value.parse().ok();
                }
                Ok(Some(SwitchMessage::Shared { rank, key, .. })) if key == DONE_KEY => drop(locked(&self.done).insert(rank)),
                Ok(Some(_)) => {}
                // Rank 0 does not wait for ever for those who have not left.
                Err(ClientError::Failed(Failed { kind: FailureKind::Shutdown, text, .. })) if self.runner().is_rank() => {
                    let Place { address, runner, .. } = self.place();
                    return Err(runner.failure(&self.job, address, &Loss::Closed(text)));
                }
                // The job need not end with its switch.
                Err(ClientError::Failed(Failed { kind: FailureKind::Shutdown, text, .. })) if self.may_go_elsewhere() => {
                    return Ok(Heard::Ends(text));
                }
                // It has said so to the connection before this one, which was lost to that.
                Err(ClientError::Refused(Refused { code: Refusal::Draining, text })) if self.may_go_elsewhere() => {
                    thread::sleep(RETRY);
                    return Ok(Heard::Ends(text));
                }
                Err(ClientError::Failed(Failed { kind: FailureKind::Switch, text, .. })) if self.is_over_fabric() => {
                    return Ok(Heard::Uncarried(text));
                }
                Err(ClientError::Failed(Failed { kind, text, suspect_rank })) => {
                    return Err(self.failed_with(text, suspect_rank, Some(kind)));
                }
                Err(error) => return Err(self.failed_with(error.to_string(), None, None)),
            }
        }
    }
}
