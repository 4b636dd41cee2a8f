//! Reductions at one switch by another system than SwitchML: jobs beside the communicator's own.
//!
//! A job of such a system has one element type and one operator, so there is one for each kind of call, type and operator, as
//! `NAME/KIND/TYPE-OPERATOR`, joined at the same life of the same switch when it is first of use. Each has a socket of its own, whose thread answers
//! between calls: others may need this rank after it has its result. Of ATP and A2TP rank 0 has the server as well. The communicator's own job, which is
//! SwitchML's, knows who is gone and whether the switch was restarted, and does what is not a reduction.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fanin_control::{Admitted, FailureKind};
use fanin_core::{CollectiveKind, Duration as SimDuration, ElementOp, JobId};
use fanin_runtime::{CollectiveCall, RunError, Vectors, Watch};
use fanin_systems::{A2tpParameters, AtpParameters, System};

use super::VERDICT_WAIT;
use super::fabric::port::HostPort;
use super::job::{Key, PortJob, why_not};
use super::star::{self, Nodes};
use super::stop::Stop;
use super::traffic::Traffic;
use crate::config::{Config, Fallback, Interrupt, Meeting, Transport};
use crate::error::CommError;
use crate::link::{Link, Opened, Survival};
use crate::meeting::{self, Wanted};

/// How often it is looked, while a job is joined, whether it still makes sense.
const LOOK: Duration = Duration::from_millis(1);

/// Places for blocks at a switch of Canary, for each packet of a window: ranks are less than a window apart, so blocks that follow each other find
/// their places free.
const PLACES: u32 = 2;
/// Aggregators at a switch of ATP or A2TP, for each packet of a window: blocks find theirs by a hash, and of a full window one in nine finds its own
/// taken by another one (1 - 4 (1 - e^(-1/4))).
const AGGREGATORS: u32 = 4;
/// As many of either as a switch takes.
const PLACES_MAX: u32 = 16_384;

/// After how long without its sum a switch of Canary gives a block up, whose ranks ask for it then. Names of blocks are used again after twice as long.
const LIFETIME: SimDuration = SimDuration::from_ms(2_000);

/// Whether a job was not joined since its switch is about to end.
fn ends(error: &CommError) -> bool {
    matches!(error, CommError::Failed { kind: Some(FailureKind::Shutdown), .. })
}

/// A communicator's jobs of the system that was asked for, at one switch.
pub(crate) struct SwitchJobs {
    config: Config,
    system: System,
    /// Packets under way, as many as in the communicator's own job.
    window: u32,
    jobs: BTreeMap<Key, PortJob>,
    /// Tells jobs apart that a communicator has had before its switch was lost, and again.
    suffix: String,
    /// Counts what all of them send.
    traffic: Arc<Traffic>,
}

impl SwitchJobs {
    /// `None` where the communicator's own job does all that is asked for.
    pub(crate) fn new(config: &Config, admitted: &Admitted, traffic: &Arc<Traffic>) -> Option<Self> {
        let system = config.system_beside()?;
        let (jobs, suffix) = (BTreeMap::new(), String::new());
        Some(SwitchJobs { config: config.clone(), system, window: admitted.window, jobs, suffix, traffic: traffic.clone() })
    }

    /// Leaves all jobs; those that are joined from now on are of this life of the communicator's own.
    pub(crate) fn renew(&mut self, admitted: &Admitted) {
        self.clear();
        (self.window, self.suffix) = (admitted.window, format!("/{:x}", admitted.instance));
    }

    /// Leaves all jobs.
    pub(crate) fn clear(&mut self) {
        self.jobs.clear();
        self.traffic.end_beside();
    }

    /// Whether reductions of a kind are for these jobs.
    pub(crate) fn offers(&self, kind: CollectiveKind) -> bool {
        self.system.offers(kind)
    }

    /// Whether the system divides sums itself where means are asked for.
    pub(super) fn divides(&self) -> bool {
        self.system.divides()
    }

    /// Runs a reduction in the job of its kind, which is joined where it is the first one.
    ///
    /// # Errors
    /// [`Stop`].
    pub(super) fn run(
        &mut self,
        what: &CollectiveCall,
        vectors: Vectors<'_>,
        link: &Link,
        goes_on: &mut dyn FnMut(u32) -> bool,
    ) -> Result<(), Stop> {
        let key = Key::of(what.kind, what.op);
        if !self.jobs.contains_key(&key) {
            let (job, watch) = self.open(key, what.op, link, goes_on)?;
            self.traffic.add_beside(watch);
            self.jobs.insert(key, job);
        }
        self.jobs[&key].collective(what, vectors, link, goes_on)
    }

    /// Joins a job while the call's patience goes on: where a rank does not come, or calls something else, the communicator's own job finds out.
    fn open(&self, key: Key, op: ElementOp, link: &Link, goes_on: &mut dyn FnMut(u32) -> bool) -> Result<(PortJob, Watch), Stop> {
        let given_up = Arc::new(AtomicBool::new(false));
        let (told, user) = (given_up.clone(), link.interrupts(&self.config.interrupt));
        let interrupt = Interrupt::when(move || told.load(Ordering::Relaxed) || user.is_wanted());
        let joined = thread::scope(|scope| {
            let joining = scope.spawn(|| self.join(key, op, link, interrupt));
            while !joining.is_finished() {
                // Nothing is done meanwhile.
                if !given_up.load(Ordering::Relaxed) && !goes_on(u32::MAX) {
                    given_up.store(true, Ordering::Relaxed);
                }
                thread::sleep(LOOK);
            }
            joining.join()
        });
        match joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
            Ok(joined) => Ok(joined),
            Err(_) if given_up.load(Ordering::Relaxed) => Err(Stop::Run(RunError::Stopped)),
            // Who is gone from this job is gone from the communicator's own as well, which says so in a moment, and who it was.
            Err(error)
                if error.suspect_rank().is_some_and(|rank| rank != self.config.rank) && link.await_failure(VERDICT_WAIT).is_some() =>
            {
                Err(Stop::Run(RunError::Stopped))
            }
            Err(error) if ends(&error) && link.may_go_elsewhere() => {
                // The switch takes no new jobs, and is about to leave this one to hosts, which then sum what is asked for.
                while !link.was_restarted() && !link.has_failed() && goes_on(u32::MAX) {
                    thread::sleep(LOOK);
                }
                Err(Stop::Run(RunError::Stopped))
            }
            Err(error) => Err(match why_not(error, link) {
                // All ranks are to know: others may have been taken, and wait.
                Stop::Path(error) | Stop::Failed(error) => Stop::Failed(link.abort(&error.to_string())),
                stop => stop,
            }),
        }
    }

    /// The system with as much memory at the switch as the window asks for.
    fn sized(&self) -> System {
        let places = |each| self.window.saturating_mul(each).min(PLACES_MAX);
        let mut system = self.system;
        match &mut system {
            System::Canary(parameters) => {
                parameters.lifetime_ps = LIFETIME.as_ps();
                parameters.descriptors = places(PLACES);
            }
            System::Atp(AtpParameters { aggregators, .. }) | System::A2tp(A2tpParameters { aggregators, .. }) => {
                *aggregators = places(AGGREGATORS);
            }
            _ => {}
        }
        system
    }

    fn join(&self, key: Key, op: ElementOp, link: &Link, interrupt: Interrupt) -> Result<(PortJob, Watch), CommError> {
        let config = Config {
            job: key.name(&self.config.job, &self.suffix),
            meeting: Meeting::Switch(link.switch().to_string()),
            transport: Transport::Udp,
            window: Some(self.window),
            operators: Vec::new(),
            fallback: Some(Fallback::Error),
            interrupt,
            ..self.config.clone()
        };
        let wanted = Wanted { system: self.sized(), op, switch_instance: Some(link.switch_instance()) };
        let joined = meeting::join(&config, wanted, &link.runner())?;
        // A rank's patience ends before, which knows why.
        let patience = SimDuration::from_ms(joined.admitted.patience_ms.saturating_mul(2));
        let Nodes { worker, server } = star::nodes_within(&config, &joined.admitted, op, patience)?;
        let id = JobId(joined.admitted.job_id);
        let mut driver = star::driver(&config, &joined.admitted, joined.socket, (worker, op))?;
        if let Some(server) = server {
            driver.add_server(id, self.system.number(), server);
        }
        let port = HostPort::around(driver)?;
        let opened = Opened { stream: joined.stream, session: joined.session, join: joined.join, admitted: joined.admitted };
        let (own, thread) = Link::start(&config, opened, Survival::None, link.runner())?;
        own.set_waker(port.waker());
        tracing::info!(job = config.job, rank = config.rank, system = self.system.name(), "joined");
        let watch = port.watch();
        Ok((PortJob::new(port, id, op, Some((own, thread))), watch))
    }
}
