//! Vectors over a fabric of several switches, with any system that sums dense vectors.
//!
//! A job in a fabric has one element type and one operator, so a communicator has a job for each kind of call and type: the first one is joined
//! with the communicator, others when they are first of use, as `NAME/KIND/TYPE-OPERATOR`. What a system does not offer, hosts do by themselves
//! (`exchange`).
//!
//! | module | what it holds |
//! |---|---|
//! | `port` | this process's host: its socket, and the thread that answers between calls |
//! | `own` | reductions by operators that the job has brought along, at the switches |

pub(super) mod own;
pub(crate) mod port;

use std::collections::{BTreeMap, BTreeSet};

use fanin_control::{Admitted, JobAnnouncement, OperatorName};
use fanin_core::{Address, CollectiveKind, ElementOp, JobId, Operator, Placed, Role};
use fanin_operator::{CustomOperator, Faults};
use fanin_runtime::{CollectiveCall, Vectors};
use fanin_systems::{ExchangeParameters, SumOrder, System, TreeParameters};

use super::job::{Key, PortJob, why_not};
use super::stop::Stop;
use crate::call::is_copy;
use crate::config::Config;
use crate::error::CommError;
use crate::link::{Link, Survival};
use crate::meeting::Wanted;
use crate::meeting::fabric::{Home, Joined, Place, join_or_fall_back};
use crate::runner::Runner;

/// A communicator's jobs in a fabric.
pub(crate) struct FabricJobs {
    config: Config,
    /// The system that sums.
    system: System,
    place: Place,
    /// Bytes of elements in a packet.
    payload_bytes: u32,
    jobs: BTreeMap<Key, PortJob>,
    /// Tells jobs apart that a communicator has had before it was away, and again.
    suffix: String,
    /// Operators of the job's own that no switch runs, and all ranks know it.
    by_ranks: BTreeSet<u8>,
    /// Reductions that hosts do by themselves, and rank 0 has said so.
    by_hosts: BTreeSet<&'static str>,
}

/// The system that sums dense vectors, of those that have been asked for.
pub(crate) fn system_of(config: &Config, op: ElementOp) -> Wanted {
    Wanted { system: dense_of(config), op, switch_instance: None }
}

/// The same, alone: Flare's dense sums are those of a static tree whose switches add in a fixed order (`flare 4.3`).
pub(crate) fn dense_of(config: &Config) -> System {
    let asked = config.system.unwrap_or_else(default_system);
    let in_order = config.is_flare() || config.sums_by_tree();
    if in_order { System::Tree(TreeParameters { trees: 1, sum_order: SumOrder::Fixed }) } else { asked }
}

/// Canary, whose switches know how many contributions of a block can come: software has no timeouts of microseconds to lose.
fn default_system() -> System {
    Config::system_named("canary").expect("it is there")
}

/// What a communicator's first job reduces.
pub(crate) const FIRST: (CollectiveKind, ElementOp) = (CollectiveKind::Allreduce, ElementOp::F32_SUM);

/// Makes what a job needs of this rank's host; `own`: the operator of the job's own by which its switches reduce, in place of that of `op`.
///
/// # Errors
/// What was admitted makes no sense.
pub(crate) fn enter(
    config: &Config,
    place: &Place,
    admitted: &Admitted,
    (op, own): (ElementOp, Option<&CustomOperator>),
) -> Result<(), CommError> {
    let broken = |reason: String| CommError::System { what: "what the manager has admitted this rank to".into(), reason };
    let mut announcement = JobAnnouncement::of_ranks(&admitted.into(), op.into(), place.hosts(admitted)?);
    if let Some(own) = own {
        announcement.operator = Some(OperatorName { name: own.name().into(), sha256: own.digest().to_string(), module: None });
        // A worker reduces nothing: the lengths of elements matter.
        announcement.kernel = Some(own.payload_op(&Faults::default()));
    }
    let nodes = announcement.nodes(&place.fabric.map).map_err(|error| broken(error.to_string()))?;
    let worker = nodes.workers.into_iter().nth(config.rank as usize).ok_or_else(|| broken("no place for this rank".into()))?;
    // A host may have a shard of a parameter server, or all of it.
    let here = |placed: &Placed<_>| placed.at == Address { node: place.node, role: Role::Server };
    let server = nodes.others.into_iter().find(here);
    let (job, number) = (JobId(admitted.job_id), admitted.system.number());
    place.port.with(|driver| {
        // What a manager without keys says of them changes nothing.
        driver.protect_links(&admitted.keys);
        // A job of that number that ended here is not this one.
        driver.remove_job(job);
        driver.add_job(job, number, worker.node);
        if let Some(server) = server {
            driver.add_server(job, number, server.node);
        }
    });
    Ok(())
}

impl FabricJobs {
    /// With the job that was joined with the communicator; `again`: after it was away.
    pub(crate) fn new(config: &Config, home: &Home, admitted: &Admitted, again: bool) -> Self {
        let (kind, op) = FIRST;
        let Home { place, wanted, .. } = home;
        let first = PortJob::new(place.port.clone(), JobId(admitted.job_id), wanted.op, None);
        FabricJobs {
            config: config.clone(),
            system: system_of(config, ElementOp::F32_SUM).system,
            place: place.clone(),
            payload_bytes: admitted.payload_bytes,
            by_ranks: BTreeSet::new(),
            by_hosts: BTreeSet::new(),
            jobs: BTreeMap::from([(Key::of(kind, op), first)]),
            suffix: if again { format!("/{:x}", admitted.instance) } else { String::new() },
        }
    }

    /// Leaves all jobs.
    pub(crate) fn clear(&mut self) {
        self.jobs.clear();
    }

    /// Whether calls of a kind are reductions whose order only switches keep.
    pub(super) fn keeps_order(&self, kind: CollectiveKind) -> bool {
        self.config.sums_by_tree() && !is_copy(kind)
    }

    /// Whether the system that runs calls of a kind divides sums itself.
    pub(super) fn divides(&self, kind: CollectiveKind) -> bool {
        self.system_for(kind).divides()
    }

    /// Runs a collective in the job of its kind, which is joined where it is the first one; says whether a mean was asked for and is only a sum.
    ///
    /// # Errors
    /// [`Stop`].
    pub(super) fn run(
        &mut self,
        what: &CollectiveCall,
        vectors: Vectors<'_>,
        link: &Link,
        goes_on: &mut dyn FnMut(u32) -> bool,
    ) -> Result<bool, Stop> {
        let key = Key::of(what.kind, what.op);
        if !self.jobs.contains_key(&key) {
            may_begin(link, key)?;
            self.tell_who_reduces(what.kind);
            let job = self.open(key, what.kind, what.op, link).map_err(|error| why_not(error, link))?;
            self.jobs.insert(key, job);
        }
        let job = &self.jobs[&key];
        // A job that hosts do for want of room only adds.
        let is_sum = job.op.operator == Operator::Sum && what.op.operator == Operator::Avg;
        job.collective(&CollectiveCall { op: job.op, ..*what }, vectors, link, goes_on)?;
        Ok(is_sum)
    }

    /// The system that runs calls of a kind.
    fn system_for(&self, kind: CollectiveKind) -> System {
        if self.system.offers(kind) { self.system } else { System::Exchange(ExchangeParameters::default()) }
    }

    /// Says once that a system whose switches sum leaves a kind of reductions to hosts. Who only copies has nothing summed.
    fn tell_who_reduces(&mut self, kind: CollectiveKind) {
        let is_told = self.config.rank == 0 && self.system.sums_at_switches() && !is_copy(kind) && !self.system.offers(kind);
        if is_told && self.by_hosts.insert(kind.name()) {
            let (job, kind, system) = (&self.config.job, kind.name(), self.config.system.unwrap_or(self.system).name());
            self.config.notices.tell(&format!("job {job:?}: hosts do each {kind} by themselves, since {system} has none"));
        }
    }

    /// The configuration of one more job of the communicator.
    fn config_of(&self, key: Key, link: &Link) -> Config {
        Config { interrupt: link.interrupts(&self.config.interrupt), job: key.name(&self.config.job, &self.suffix), ..self.config.clone() }
    }

    /// Joins one more job of the communicator.
    fn open(&self, key: Key, kind: CollectiveKind, op: ElementOp, link: &Link) -> Result<PortJob, CommError> {
        let config = self.config_of(key, link);
        let wanted = Wanted { system: self.system_for(kind), op, switch_instance: None };
        let enter = |place: &Place, admitted: &Admitted, op| enter(&config, place, admitted, (op, None));
        // The communicator's own job knows who is gone.
        let (Joined { opened, .. }, wanted) = join_or_fall_back(&config, (wanted, kind), Some(&self.place), enter)?;
        let admitted = opened.admitted.clone();
        let (link, thread) = Link::start(&config, opened, Survival::Fabric, Runner::Manager)?;
        link.set_waker(self.place.port.waker());
        tracing::info!(job = config.job, rank = config.rank, system = wanted.system.name(), "joined");
        Ok(PortJob::new(self.place.port.clone(), JobId(admitted.job_id), wanted.op, Some((link, thread))))
    }
}

/// Whether one more job may be joined.
fn may_begin(link: &Link, key: Key) -> Result<(), Stop> {
    match link.lost().filter(|_| link.may_go_by_hosts()) {
        Some(lost) => Err(Stop::Path(link.failed_with(format!("a {} of {} cannot begin: {lost}", key.kind, key.dtype), None, None))),
        None => Ok(()),
    }
}
