//! Vectors over a fabric of several switches, with any system that sums dense vectors.
//!
//! A job in a fabric has one element type and one operator, so a communicator has a job for each kind of call and type: the first one is joined
//! with the communicator, others when they are first of use, as `NAME/KIND/TYPE-OPERATOR`. What a system does not offer, hosts do by themselves
//! (`exchange`).
//!
//! | module | what it holds |
//! |---|---|
//! | `port` | this process's host: its socket, and the thread that answers between calls |

pub(crate) mod port;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;

use fanin_control::{Admitted, JobAnnouncement};
use fanin_core::{Address, CollectiveKind, DType, ElementOp, FailureReason, JobId, Operator, Placed, Role, Suspect};
use fanin_net::Waker;
use fanin_runtime::{BlockSet, CollectiveCall, RunError, Statistics, Vectors};
use fanin_systems::{ExchangeParameters, System};

use super::VERDICT_WAIT;
use super::datagrams::vectors;
use super::mean;
use super::patience::Patience;
use super::traffic::Traffic;
use crate::call::{Blocks, Buffers, Call, copies, is_copy};
use crate::config::Config;
use crate::error::CommError;
use crate::link::{Link, Survival};
use crate::meeting::Wanted;
use crate::meeting::fabric::{Joined, Place, join_or_fall_back};
use crate::runner::Runner;

/// What makes jobs of a communicator differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    kind: &'static str,
    dtype: &'static str,
    operator: &'static str,
}

impl Key {
    fn of(kind: CollectiveKind, op: ElementOp) -> Self {
        Key { kind: kind.name(), dtype: op.dtype.name(), operator: op.operator.name() }
    }
}

/// One rank's end of the path.
pub(crate) struct FabricPath {
    config: Config,
    system: System,
    place: Place,
    jobs: BTreeMap<Key, FabricJob>,
    traffic: Arc<Traffic>,
    /// Blocks of the running call whose result is here.
    delivered: BlockSet,
    /// A copy of what a call contributes where the result takes its place: it may be asked for again.
    input: Vec<u8>,
    /// All shares of a reduction of which a rank gets one.
    sums: Vec<u8>,
}

/// The system that sums, of those that have been asked for.
pub(crate) fn system_of(config: &Config, op: ElementOp) -> Wanted {
    Wanted { system: config.system.unwrap_or_else(default_system), op, switch_instance: None }
}

/// Canary, whose switches know how many contributions of a block can come: software has no timeouts of microseconds to lose.
fn default_system() -> System {
    Config::system_named("canary").expect("it is there")
}

/// What a communicator's first job reduces.
pub(crate) const FIRST: (CollectiveKind, ElementOp) = (CollectiveKind::Allreduce, ElementOp::F32_SUM);

/// Makes what a job needs of this rank's host.
///
/// # Errors
/// What was admitted makes no sense.
pub(crate) fn enter(config: &Config, place: &Place, admitted: &Admitted, op: ElementOp) -> Result<(), CommError> {
    let broken = |reason: String| CommError::System { what: "what the manager has admitted this rank to".into(), reason };
    let announcement = JobAnnouncement::of_ranks(&admitted.into(), op.into(), place.hosts(admitted)?);
    let nodes = announcement.nodes(&place.fabric.map).map_err(|error| broken(error.to_string()))?;
    let worker = nodes.workers.into_iter().nth(config.rank as usize).ok_or_else(|| broken("no place for this rank".into()))?;
    // A host may have a shard of a parameter server, or all of it.
    let here = |placed: &Placed<_>| placed.at == Address { node: place.node, role: Role::Server };
    let server = nodes.others.into_iter().find(here);
    let (job, number) = (JobId(admitted.job_id), admitted.system.number());
    place.port.with(|driver| {
        // A job of that number that ended here is not this one.
        driver.remove_job(job);
        driver.add_job(job, number, worker.node);
        if let Some(server) = server {
            driver.add_server(job, number, server.node);
        }
    });
    Ok(())
}

impl FabricPath {
    pub(crate) fn new(config: &Config, place: &Place) -> Self {
        let traffic = Arc::new(Traffic::of(place.port.watch()));
        FabricPath {
            config: config.clone(),
            system: system_of(config, ElementOp::F32_SUM).system,
            place: place.clone(),
            jobs: BTreeMap::new(),
            traffic,
            delivered: BlockSet::default(),
            input: Vec::new(),
            sums: Vec::new(),
        }
    }

    /// What has been sent and received, for other threads.
    pub(crate) fn traffic(&self) -> Arc<Traffic> {
        self.traffic.clone()
    }

    /// What has been sent and received, up to now.
    pub(crate) fn statistics(&self) -> Statistics {
        self.traffic.with(&self.place.port.with(|driver| driver.statistics()))
    }

    /// Wakes a rank that sleeps in its socket.
    pub(crate) fn waker(&self) -> Waker {
        self.place.port.waker()
    }

    /// Takes the job that was joined with the communicator.
    pub(crate) fn begin_with(&mut self, admitted: &Admitted, wanted: Wanted) {
        let (kind, op) = FIRST;
        self.jobs.insert(Key::of(kind, op), FabricJob::new(&self.place, admitted, wanted, None));
    }

    /// Runs a call.
    ///
    /// # Errors
    /// The job has failed.
    pub(crate) fn run(&mut self, call: &Call, buffers: &mut Buffers<'_>, link: &Link, mut patience: Patience<'_>) -> Result<(), CommError> {
        let asked = call;
        let call = &as_bytes(asked);
        let kind = if call.elements == 0 { CollectiveKind::Barrier } else { call.kind };
        let op = self.op_of(kind, call);
        let key = Key::of(kind, op);
        if !self.jobs.contains_key(&key) {
            let job = self.open(key, kind, op, link)?;
            self.jobs.insert(key, job);
        }
        let job = &self.jobs[&key];
        let (op, by_hosts) = (job.op, matches!(job.system, System::Exchange(_)));
        let total = Blocks::new(call, (job.payload_bytes / call.width() as u32).max(1)).count();
        link.begin(asked.describe(total));
        self.delivered.reset(total);
        let what = CollectiveCall {
            kind,
            op,
            element_bytes: call.width() as u32,
            op_number: 0,
            fixed_point: None,
            elements: if kind == CollectiveKind::Barrier { 0 } else { call.elements * u64::from(call.shares()) },
            // 0 would say that there is nothing to agree on.
            fingerprint: (asked.fingerprint() as u32).max(1),
        };
        let result = {
            let memory = match &mut *buffers {
                // What a rank contributes may be asked for again when its result is there.
                Buffers::InPlace(bytes) => {
                    self.input.clear();
                    self.input.extend_from_slice(bytes);
                    Vectors::Apart { input: &self.input, input_start: 0, output: bytes, output_start: 0 }
                }
                // Hosts add up others' shares on the way, for which a rank's own share has no room.
                Buffers::Apart { input, .. } if by_hosts && kind == CollectiveKind::ReduceScatter => {
                    self.sums.resize(input.len(), 0);
                    Vectors::Apart { input, input_start: 0, output: &mut self.sums, output_start: 0 }
                }
                apart @ Buffers::Apart { .. } => vectors(call, apart),
            };
            job.collective(&what, memory, (&mut self.delivered, total), link, &mut patience)
        };
        result.map_err(|error| self.explain(error, link, &mut patience))?;
        if by_hosts && kind == CollectiveKind::ReduceScatter {
            let output = buffers.output_mut();
            let own = call.rank as usize * output.len();
            output.copy_from_slice(&self.sums[own..own + output.len()]);
        }
        let receives = (0..call.shares()).any(|share| call.receives(share));
        if call.op.operator == Operator::Avg && op.operator == Operator::Sum && receives {
            mean::divide(op.dtype, buffers.output_mut(), call.world);
        }
        link.end(call.number.wrapping_add(1));
        Ok(())
    }

    /// Element type and operator of the job that a call runs in: means of systems that do not divide are sums at first.
    fn op_of(&self, kind: CollectiveKind, call: &Call) -> ElementOp {
        if kind == CollectiveKind::Barrier {
            return copies(DType::U8);
        }
        let divides = self.system_for(kind).divides();
        let operator = if call.op.operator == Operator::Avg && !is_copy(kind) && !divides { Operator::Sum } else { call.op.operator };
        ElementOp { operator, ..call.op }
    }

    /// The system that runs calls of a kind.
    fn system_for(&self, kind: CollectiveKind) -> System {
        if self.system.offers(kind) { self.system } else { System::Exchange(ExchangeParameters::default()) }
    }

    /// Joins one more job of the communicator.
    fn open(&self, key: Key, kind: CollectiveKind, op: ElementOp, main: &Link) -> Result<FabricJob, CommError> {
        let Key { kind: name, dtype, operator } = key;
        let config = Config { job: format!("{}/{name}/{dtype}-{operator}", self.config.job), ..self.config.clone() };
        let wanted = Wanted { system: self.system_for(kind), op, switch_instance: None };
        let enter = |place: &Place, admitted: &Admitted, op| enter(&config, place, admitted, op);
        let joined = join_or_fall_back(&config, (wanted, kind), Some(&self.place), enter);
        // The communicator's own job knows who is gone.
        let (Joined { opened, .. }, wanted) = joined.map_err(|error| link_failure(main, error))?;
        let admitted = opened.admitted.clone();
        let (link, thread) = Link::start(&config, opened, Survival::Fabric, Runner::Manager)?;
        link.set_waker(self.place.port.waker());
        tracing::info!(job = config.job, rank = config.rank, system = wanted.system.name(), "joined");
        Ok(FabricJob::new(&self.place, &admitted, wanted, Some((link, thread))))
    }

    /// Why a call has stopped, in the manager's words if it has any.
    fn explain(&self, stop: Stop, link: &Link, patience: &mut Patience<'_>) -> CommError {
        let error = match stop {
            Stop::Patience(error) => return error,
            Stop::Run(error) => error,
            Stop::Without(ranks) => {
                let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
                let text = format!("the sum lacks the contributions of rank {}", ranks.join(", "));
                return link.await_failure(VERDICT_WAIT).unwrap_or_else(|| link.fail(link.failed_with(text, None, None)));
            }
        };
        if let RunError::Failed(failure) = &error
            && failure.reason == FailureReason::Mismatch
        {
            patience.ask();
        }
        // The control connection knows who is gone, and learns it a moment later than the sockets for vectors.
        if let Some(failure) = link.await_failure(VERDICT_WAIT) {
            return failure;
        }
        let (text, suspect) = match &error {
            RunError::Failed(failure) => match failure.suspect {
                Suspect::Switch(node) => (format!("{failure} ({})", self.place.fabric.name(node)), None),
                Suspect::Rank(rank) => (failure.to_string(), Some(rank.0)),
                Suspect::Unknown => (failure.to_string(), None),
            },
            _ => (error.to_string(), None),
        };
        link.fail(link.failed_with(text, suspect, None))
    }
}

/// What is only copied goes as bytes, so that it needs one job for all types.
fn as_bytes(call: &Call) -> Call {
    if is_copy(call.kind) { Call { op: copies(DType::U8), elements: call.elements * call.width() as u64, ..*call } } else { *call }
}

/// Why the job has failed, in the words of the communicator's own link where it has any.
fn link_failure(main: &Link, error: CommError) -> CommError {
    main.failure().unwrap_or_else(|| main.fail(error))
}

/// Why a collective has not ended well.
enum Stop {
    /// Nothing moved for too long, or the job has failed.
    Patience(CommError),
    Run(RunError),
    /// A system has gone on without these ranks.
    Without(Vec<u32>),
}

/// A job at this rank.
struct FabricJob {
    id: JobId,
    /// What it is, which others than the communicator's system may be.
    system: System,
    op: ElementOp,
    payload_bytes: u32,
    place: Place,
    /// Of jobs beside the communicator's own.
    control: Option<(Arc<Link>, JoinHandle<()>)>,
}

impl FabricJob {
    fn new(place: &Place, admitted: &Admitted, wanted: Wanted, control: Option<(Arc<Link>, JoinHandle<()>)>) -> Self {
        let Wanted { system, op, .. } = wanted;
        FabricJob { id: JobId(admitted.job_id), system, op, payload_bytes: admitted.payload_bytes, place: place.clone(), control }
    }

    fn has_failed(&self) -> bool {
        self.control.as_ref().is_some_and(|(link, _)| link.has_failed())
    }

    fn collective(
        &self,
        what: &CollectiveCall,
        vectors: Vectors<'_>,
        (delivered, total): (&mut BlockSet, u64),
        link: &Link,
        patience: &mut Patience<'_>,
    ) -> Result<(), Stop> {
        let (mut known, mut error) = (u32::MAX, None);
        let (result, without) = self.place.port.with(|driver| {
            if !driver.select(self.id) {
                return (Err(RunError::NoJob), Vec::new());
            }
            let result = driver.collective(what, vectors, (delivered, 0), |remaining| {
                if link.has_failed() || self.has_failed() {
                    return false;
                }
                error = if remaining == known {
                    patience.check(|| None).err()
                } else {
                    known = remaining;
                    link.progress(total.saturating_sub(u64::from(remaining)));
                    patience.go_on().err()
                };
                error.is_none()
            });
            driver.publish();
            (result, driver.excluded().iter().map(|rank| rank.0).collect())
        });
        match (result, error) {
            (_, Some(error)) => Err(Stop::Patience(error)),
            (Err(error), None) => Err(Stop::Run(error)),
            (Ok(()), None) if without.is_empty() => Ok(()),
            (Ok(()), None) => Err(Stop::Without(without)),
        }
    }
}

impl Drop for FabricJob {
    fn drop(&mut self) {
        self.place.port.with(|driver| driver.remove_job(self.id));
        if let Some((link, thread)) = self.control.take() {
            link.close(0);
            // It ends with the connection.
            let _ = thread.join();
        }
    }
}
