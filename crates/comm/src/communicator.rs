//! The communicator: what users call.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytemuck::{AnyBitPattern, NoUninit};
use fanin_control::{Admitted, CustomCall};
use fanin_core::{CollectiveKind, DType, ElementOp, Operator, OrderFree, Rank};
use fanin_daemon::DaemonHandle;
use fanin_operator::CustomOperator;
use fanin_runtime::Statistics;

use crate::call::{Buffers, CallOp, Of, Progress, RegisteredOperator, copies, is_copy};
use crate::config::{Config, ConfigError, Fallback, INTERRUPT_LOOK, INTERRUPTED, Meeting, TIMEOUT_MAX, Transport};
use crate::core::{Core, Engine};
use crate::element::Element;
use crate::error::CommError;
use crate::link::{Link, Opened, Survival};
use crate::lock::locked;
use crate::meeting::around::{self, Around};
use crate::meeting::fabric::{Home, Place};
use crate::meeting::{self, Wanted, may_fall_back};
use crate::path::datagrams::DatagramPath;
use crate::path::fabric;
use crate::path::hierarchy::{HierarchyPath, Level, Levels};
use crate::path::memory::MemoryPath;
use crate::path::operators::Operators;
use crate::path::{ONE_FOR_ALL, Path, PathReport};
use crate::queue::{Handle, Lent, Queue, Run, SparseTask, Task};
use crate::reproducible::Scratch;
use crate::runner::Runner;
use crate::sparse::{Given, Sparse};
use crate::timeouts::Timeouts;
use crate::turns::{Turn, Turns};

/// A rank's place in a job.
///
/// Every rank makes the same calls in the same order, with vectors of the same type and length; anything else is an error at every rank.
/// After [`CommError::Failed`] a communicator is of no use: every later call gives the same error. Calls from several threads are run one
/// after another, in the order in which they were made.
///
/// Dropping a communicator leaves the job; the others go on until they need this rank. Rank 0, where it runs the switch, stays until the
/// others have left as well, but at most for the configured timeout.
pub struct Communicator {
    core: Arc<Core>,
    queue: Mutex<Option<Queue>>,
    control: Mutex<Option<JoinHandle<()>>>,
    /// The switch in this process, for as long as anybody needs it.
    embedded: Option<Arc<DaemonHandle>>,
    switch: Option<SocketAddr>,
    report: PathReport,
    splits: Mutex<u32>,
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator")
            .field("job", &self.core.config.job)
            .field("rank", &self.rank())
            .field("world", &self.world())
            .finish()
    }
}

impl Communicator {
    /// Joins a job; returns once all of its ranks have.
    ///
    /// # Errors
    /// [`CommError`], at the latest a few seconds after the configured timeout.
    pub fn join(config: Config) -> Result<Self, CommError> {
        let runner = if matches!(config.meeting, Meeting::Rendezvous(_)) { Runner::RANK_0 } else { Runner::Switch };
        Communicator::join_at(config, runner)
    }

    /// As [`Communicator::join`], at a switch that is run by `runner`.
    fn join_at(mut config: Config, runner: Runner) -> Result<Self, CommError> {
        config.check()?;
        config.timeout = config.timeout.min(TIMEOUT_MAX);
        if config.sums_by_tree() {
            // Hosts add in another order.
            config.fallback = Some(Fallback::Error);
        }
        if !matches!(config.meeting, Meeting::Fabric(_)) && config.system.is_some() {
            // What is asked for is what a switch does.
            config.transport = Transport::Udp;
        }
        if config.world == 1 {
            let operators = config.operators.clone();
            return Ok(Communicator::build(
                config,
                Path::Alone(Box::new(Operators::new(&operators))),
                None,
                None,
                None,
                PathReport::alone(),
            ));
        }
        if matches!(config.meeting, Meeting::Fabric(_)) {
            return Communicator::join_fabric(config);
        }
        let joined = meeting::join(&config, Wanted::DENSE, &runner)?;
        let report = PathReport::of(&joined, config.system_beside().map_or(ONE_FOR_ALL, |system| system.name()));
        let path = match joined.memory {
            Ok(pool) => Path::Memory(Box::new(MemoryPath::new(pool, config.rank, &config.operators))),
            Err(_) => Path::Datagrams(Box::new(DatagramPath::new(&config, &joined.admitted, joined.socket)?)),
        };
        let survival = match (&runner, &path) {
            (Runner::Switch, Path::Memory(_)) => Survival::Memory,
            // Without the switch there is nobody to make keys, or to look at tokens.
            (Runner::Switch, _) if may_fall_back(&config, Wanted::DENSE) && joined.admitted.keys.is_empty() && !config.is_guarded() => {
                Survival::ResumeOrHosts
            }
            (Runner::Switch | Runner::Manager, _) => Survival::Resume,
            (Runner::Rank { .. }, _) => Survival::None,
        };
        if let (Some(why), Path::Datagrams(_)) = (&joined.admitted.by_hosts, &path) {
            config.notices.tell(&format!("job {:?}: goes on by hosts alone, since {why}", config.job));
        }
        let opened = Opened { stream: joined.stream, session: joined.session, join: joined.join, admitted: joined.admitted };
        let (link, thread) = Link::start(&config, opened, survival, runner)?;
        if let Path::Datagrams(path) = &path {
            link.set_waker(path.waker());
        }
        tracing::info!(job = config.job, rank = config.rank, world = config.world, path = %report, "joined");
        let control = Some((link, thread));
        Ok(Communicator::build(config, path, control, joined.embedded, Some(joined.switch), report))
    }

    /// Joins a job at the manager of a fabric.
    fn join_fabric(config: Config) -> Result<Self, CommError> {
        let mut around = around::look(&config)?;
        if let Some((place, why)) = around.elsewhere.take() {
            if config.sums_by_tree() {
                let expected = "element or block in a group that goes by rank 0, which adds in the order in which vectors come".into();
                return Err(ConfigError::Value { what: "reproducible", value: "tree".into(), expected }.into());
            }
            config.notices.tell(&format!("job {:?}: rank 0 sums for all, and not the fabric, since {why}", config.job));
            let meeting = Meeting::Rendezvous(place);
            return Communicator::join_at(Config { meeting, system: None, fallback: None, fabric_host: None, ..config }, Runner::RANK_0);
        }
        match around.place.take() {
            Some(place) if around.hosts.len() == config.world as usize => Communicator::join_at_host(config, &place),
            place => Communicator::join_hierarchy(config, around, place),
        }
    }

    /// Joins a job whose ranks share hosts: among the ranks of the host, and for them among hosts. `place`: this rank's in the fabric, where it is
    /// the first one of its host.
    fn join_hierarchy(config: Config, around: Around, place: Option<Place>) -> Result<Self, CommError> {
        Communicator::check_shared_hosts(&config)?;
        let (host, number) = around.of(config.rank);
        let here = &around.hosts[host];
        let ranks = Config { reproducible: None, unread: Vec::new(), fallback: None, ..config.clone() };
        around.check_local(&config)?;
        let transport = if config.transport == Transport::Udp { Transport::Udp } else { Transport::Memory };
        let local = Communicator::join_at(
            Config {
                job: format!("{}@{}", config.job, here.name),
                rank: number as u32,
                world: here.ranks.len() as u32,
                meeting: around.local.clone().map_or(Meeting::Nowhere, Meeting::Rendezvous),
                transport,
                system: None,
                fabric_host: None,
                // They meet on loopback.
                tls: None,
                ..ranks.clone()
            },
            Runner::RANK_0,
        )?;
        let hosts = around.hosts.len() as u32;
        let between = match place.filter(|_| hosts > 1) {
            Some(place) => {
                let reproducible = config.reproducible.filter(|_| config.sums_by_tree());
                let config = Config { rank: host as u32, world: hosts, fallback: config.fallback, reproducible, ..ranks };
                let joined = Communicator::join_at_host(config, &place).inspect_err(|error| local.abort(&error.to_string()));
                Some(joined?)
            }
            None => None,
        };
        // Nobody returns before all have joined.
        let barrier = (CollectiveKind::Barrier, copies(DType::U8).into(), 0);
        local.call_part((config.timeout * 2).min(TIMEOUT_MAX), barrier, (None, None), &mut Buffers::InPlace(&mut []))?;
        let between = between.map(|between| Box::new(between) as Box<dyn Level>);
        let levels = Arc::new(Levels::new(&config.job, around.hosts.clone(), config.rank, Box::new(local), between));
        let report = levels.report();
        tracing::info!(job = config.job, rank = config.rank, world = config.world, path = %report, "joined");
        let path = Path::Hierarchy(Box::new(HierarchyPath::new(&config, levels)));
        Ok(Communicator::build(config, path, None, None, None, report))
    }

    /// What cannot be where ranks share hosts, which reduce in two steps.
    fn check_shared_hosts(config: &Config) -> Result<(), CommError> {
        if config.sums_by_tree() && config.transport == Transport::Udp {
            let expected = "auto where ranks share hosts and floats are summed in the order of a tree".into();
            return Err(ConfigError::Value { what: "transport", value: "udp".into(), expected }.into());
        }
        Ok(())
    }

    /// Joins a job at the manager of a fabric, as one of its hosts.
    fn join_at_host(config: Config, place: &Place) -> Result<Self, CommError> {
        let (kind, op) = fabric::FIRST;
        let wanted = (fabric::system_of(&config, op), kind);
        let enter = |place: &Place, admitted: &Admitted, op| fabric::enter(&config, place, admitted, (op, None));
        let (joined, wanted) = meeting::fabric::join_or_fall_back(&config, wanted, Some(place), enter)?;
        let meeting::fabric::Joined { opened, place, manager } = joined;
        let config = Config { fabric_host: Some(place.name().to_owned()), ..config };
        let home = Home { place: place.clone(), job: opened.join.job.clone(), wanted };
        let path = DatagramPath::in_fabric(&config, &opened.admitted, home);
        let is_as_asked = wanted.system == fabric::dense_of(&config);
        let system = config.system.filter(|_| is_as_asked).unwrap_or(wanted.system);
        let report = PathReport::Fabric {
            manager,
            file: place.file.clone(),
            host: place.name().to_owned(),
            system: system.name(),
            payload_bytes: opened.admitted.payload_bytes,
            window: opened.admitted.window,
            link_bits_per_second: place.link_bits_per_second(),
            by_hosts: None,
        };
        let survival = if may_fall_back(&config, wanted) { Survival::FabricOrHosts } else { Survival::Fabric };
        let (link, thread) = Link::start(&config, opened, survival, Runner::Manager)?;
        link.set_waker(path.waker());
        tracing::info!(job = config.job, rank = config.rank, world = config.world, path = %report, "joined");
        Ok(Communicator::build(config, Path::Fabric(Box::new(path)), Some((link, thread)), None, Some(manager), report))
    }

    /// Joins the job that the environment describes: see [`Config::from_env`].
    ///
    /// # Errors
    /// As [`Communicator::join`].
    pub fn from_env() -> Result<Self, CommError> {
        Communicator::join(Config::from_env()?)
    }

    fn build(
        config: Config,
        path: Path,
        control: Option<(Arc<Link>, JoinHandle<()>)>,
        embedded: Option<Arc<DaemonHandle>>,
        switch: Option<SocketAddr>,
        report: PathReport,
    ) -> Self {
        let (link, thread) = control.unzip();
        let traffic = match &path {
            Path::Datagrams(path) | Path::Fabric(path) => Some(path.traffic()),
            Path::Memory(_) | Path::Alone(_) | Path::Hierarchy(_) => None,
        };
        let payload_bytes = if let Path::Datagrams(path) | Path::Fabric(path) = &path { Some(path.payload_bytes()) } else { None };
        let path_levels = if let Path::Hierarchy(path) = &path { Some(path.levels()) } else { None };
        let engine = Mutex::new(Engine { path, next: 0, closed: false, scratch: Scratch::default() });
        let core = Arc::new(Core {
            timeouts: Timeouts::new(config.timeout),
            config,
            link,
            engine,
            turns: Turns::default(),
            traffic,
            payload_bytes,
            switch_way: Mutex::default(),
            switch_traffic: OnceLock::new(),
            levels: path_levels,
        });
        if let Some(link) = &core.link {
            let core = Arc::downgrade(&core);
            link.set_idle(move || {
                if let Some(core) = core.upgrade() {
                    core.resume_if_idle();
                }
            });
        }
        Communicator { core, queue: Mutex::new(None), control: Mutex::new(thread), embedded, switch, report, splits: Mutex::new(0) }
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.core.config.rank
    }

    /// Number of ranks.
    pub fn world(&self) -> u32 {
        self.core.config.world
    }

    /// The job's name.
    pub fn job(&self) -> &str {
        &self.core.config.job
    }

    /// How vectors travel, and why so.
    pub fn path(&self) -> PathReport {
        let mut report = self.report.clone();
        if let (PathReport::Datagrams { by_hosts, .. } | PathReport::Fabric { by_hosts, .. }, Some(link)) = (&mut report, &self.core.link) {
            *by_hosts = link.by_hosts();
        }
        report
    }

    /// What this rank has sent and received by UDP, with what went wrong on the way, by reason; nothing in shared memory. While a call runs
    /// the counts may be 0.2 s old.
    pub fn statistics(&self) -> Statistics {
        let core = &self.core;
        let mut all = match core.engine.try_lock().as_deref() {
            Ok(Engine { path: Path::Datagrams(path) | Path::Fabric(path), .. }) => path.statistics(),
            Ok(Engine { path: Path::Hierarchy(path), .. }) => path.statistics(),
            _ => core.traffic.as_ref().map(|traffic| traffic.read()).unwrap_or_default(),
        };
        if let Some(sparse) = core.switch_traffic.get().map(|traffic| traffic.read()) {
            all.add(&sparse.counters, &sparse.sent);
        }
        all
    }

    /// How far the running call is; `None` where none runs, or there is only one rank.
    pub fn progress(&self) -> Option<Progress> {
        self.core.link.as_ref().and_then(|link| link.running())
    }

    /// Every rank gets the reduction of all vectors, in place.
    ///
    /// # Errors
    /// [`CommError::Arguments`] where type and operator do not go together; [`CommError::Failed`].
    pub fn allreduce<T: Element>(&self, vector: &mut [T], operator: Operator) -> Result<(), CommError> {
        let elements = vector.len() as u64;
        self.call(self.timeout(), CollectiveKind::Allreduce, element_op::<T>(operator)?, elements, &mut in_place(vector))
    }

    /// As [`Communicator::allreduce`], with a vector for the result.
    ///
    /// # Errors
    /// As [`Communicator::allreduce`], and where the lengths differ.
    pub fn allreduce_into<T: Element>(&self, input: &[T], output: &mut [T], operator: Operator) -> Result<(), CommError> {
        let elements = input.len() as u64;
        self.call(self.timeout(), CollectiveKind::Allreduce, element_op::<T>(operator)?, elements, &mut apart(input, output))
    }

    /// An operator that the job has brought along ([`Config::operators`]), for calls.
    ///
    /// # Errors
    /// [`CommError::Arguments`], where it has not.
    pub fn operator(&self, operator: &CustomOperator) -> Result<RegisteredOperator, CommError> {
        let index = self.core.config.operators.iter().position(|known| known == operator).ok_or_else(|| {
            let (name, job) = (operator.name(), self.job());
            CommError::Arguments(format!(
                "job `{job}` was joined without the operator `{name}`: expected it in `operators` of its configuration"
            ))
        })?;
        let element_bytes = operator.layout().element_bytes as u32;
        Ok(RegisteredOperator(CustomCall { index: index as u8, element_bytes }))
    }

    /// As [`Communicator::allreduce`], by an operator that the job has brought along; `T` is what its module takes for an element.
    ///
    /// # Errors
    /// [`CommError::Arguments`] where the job has no such operator, or elements have another length; [`CommError::Failed`], also where the
    /// operator traps or never ends.
    pub fn allreduce_custom<T: NoUninit + AnyBitPattern>(&self, vector: &mut [T], operator: &CustomOperator) -> Result<(), CommError> {
        let elements = vector.len() as u64;
        let operator = operator.clone().for_elements_of(size_of::<T>()).map_err(|error| CommError::Arguments(error.to_string()))?;
        self.call(
            self.timeout(),
            CollectiveKind::Allreduce,
            self.operator(&operator)?,
            elements,
            &mut Buffers::InPlace(bytemuck::cast_slice_mut(vector)),
        )
    }

    /// Rank `root` gets the reduction of all vectors, in place; the other ranks' vectors stay as they are.
    ///
    /// # Errors
    /// As [`Communicator::allreduce`], and where there is no such rank.
    pub fn reduce<T: Element>(&self, vector: &mut [T], operator: Operator, root: u32) -> Result<(), CommError> {
        let (kind, elements) = (CollectiveKind::Reduce { root: self.root(root)? }, vector.len() as u64);
        self.call(self.timeout(), kind, element_op::<T>(operator)?, elements, &mut in_place(vector))
    }

    /// Every rank gets rank `root`'s vector.
    ///
    /// # Errors
    /// As [`Communicator::reduce`].
    pub fn broadcast<T: Element>(&self, vector: &mut [T], root: u32) -> Result<(), CommError> {
        let (kind, elements) = (CollectiveKind::Broadcast { root: self.root(root)? }, vector.len() as u64);
        self.call(self.timeout(), kind, copies(T::DTYPE), elements, &mut in_place(vector))
    }

    /// Returns once all ranks have called it.
    ///
    /// # Errors
    /// [`CommError::Failed`].
    pub fn barrier(&self) -> Result<(), CommError> {
        self.call(self.timeout(), CollectiveKind::Barrier, copies(DType::U8), 0, &mut in_place::<u8>(&mut []))
    }

    /// Every rank gets its part of the reduction of all vectors: `input` has a part of `output`'s length for each rank.
    ///
    /// # Errors
    /// As [`Communicator::allreduce`], and where the lengths do not fit.
    pub fn reduce_scatter<T: Element>(&self, input: &[T], output: &mut [T], operator: Operator) -> Result<(), CommError> {
        let elements = output.len() as u64;
        self.call(self.timeout(), CollectiveKind::ReduceScatter, element_op::<T>(operator)?, elements, &mut apart(input, output))
    }

    /// Every rank gets the vectors of all ranks, in the order of ranks: `output` has a part of `input`'s length for each.
    ///
    /// # Errors
    /// As [`Communicator::allreduce`], and where the lengths do not fit.
    pub fn all_gather<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<(), CommError> {
        let elements = input.len() as u64;
        self.call(self.timeout(), CollectiveKind::AllGather, copies(T::DTYPE), elements, &mut apart(input, output))
    }

    /// As [`Communicator::allreduce`], in the background: the vector comes back by the handle.
    ///
    /// # Errors
    /// As [`Communicator::allreduce`]; what goes wrong later is told by the handle.
    pub fn allreduce_async<T: Element>(&self, vector: Vec<T>, operator: Operator) -> Result<Handle<Vec<T>>, CommError> {
        let elements = vector.len() as u64;
        self.call_async(CollectiveKind::Allreduce, element_op::<T>(operator)?, elements, vector)
    }

    /// Any collective over bytes, in the background and in place, for callers that know element types at run time only. `elements` is the
    /// length of a share: of the vector, or of one rank's part of it (reduce-scatter, all-gather).
    ///
    /// # Errors
    /// [`CommError::Arguments`]; what goes wrong later is told by the handle.
    pub fn call_async<B: Lent>(
        &self,
        kind: CollectiveKind,
        op: impl Into<CallOp>,
        elements: u64,
        vector: B,
    ) -> Result<Handle<B>, CommError> {
        let (handle, answer) = Handle::new();
        // Nobody may be interested any more.
        self.call_async_then(kind, op, elements, vector, move |vector, result| drop(answer.send((vector, result))))?;
        Ok(handle)
    }

    /// As [`Communicator::call_async`]; the end of the call is told to `done`, in the thread that runs calls in the background and before the
    /// next one begins.
    ///
    /// # Errors
    /// [`CommError::Arguments`], without calling `done`; what goes wrong later is told to it.
    pub fn call_async_then<B: Lent>(
        &self,
        kind: CollectiveKind,
        op: impl Into<CallOp>,
        elements: u64,
        vector: B,
        done: impl FnOnce(B, Result<(), CommError>) + Send + 'static,
    ) -> Result<(), CommError> {
        self.start(self.timeout(), kind, op, elements, vector, done)
    }

    /// Starts a call in the background that waits so long.
    pub(crate) fn start<B: Lent>(
        &self,
        timeout: Duration,
        kind: CollectiveKind,
        op: impl Into<CallOp>,
        elements: u64,
        vector: B,
        done: impl FnOnce(B, Result<(), CommError>) + Send + 'static,
    ) -> Result<(), CommError> {
        let op = op.into();
        self.check(kind, op)?;
        self.enqueue(|ticket| Box::new(Task::new(ticket, timeout, (kind, op), elements, vector, Box::new(done))))
    }

    /// Runs a task in the background, in its turn.
    fn enqueue(&self, task: impl FnOnce(u64) -> Box<dyn Run>) -> Result<(), CommError> {
        let mut queue = locked(&self.queue);
        let queue = match &mut *queue {
            Some(queue) => queue,
            none => none.insert(Queue::start(self.core.clone())?),
        };
        queue.push(task(self.core.turns.take()));
        Ok(())
    }

    /// The reduction (sum, minimum or maximum) of vectors of `size` elements of which each rank gives some, by their indices. All ranks get
    /// every index that any has given, with the reduction of what was given for it.
    ///
    /// Elements that a rank does not give have no part in the reduction: the maximum of a negative number and of nothing is the number. What
    /// is given counts also where it is zero, and a sum that is zero is in the result. Of an index that a rank gives several times, the
    /// values are combined first, in their order. How it was computed is in [`Sparse::report`]: a switch adds what it gets in the order in
    /// which it comes; lists are merged in the order of ranks, so that the same ones give the same bits every time; a dense vector is reduced as
    /// [`Communicator::allreduce`] does it.
    ///
    /// # Errors
    /// [`CommError::Arguments`] for another operator, an index that is not below `size`, or not as many values as indices;
    /// [`CommError::Failed`], also where ranks differ in size, type or operator.
    pub fn allreduce_sparse<T: Element>(
        &self,
        indices: &[u64],
        values: &[T],
        size: u64,
        operator: Operator,
    ) -> Result<Sparse<T>, CommError> {
        let given = Given::new(element_op::<T>(operator)?, indices, bytemuck::cast_slice(values), size)?;
        let _turn = self.turn(self.timeout());
        self.core.run_sparse(given).map(Sparse::of)
    }

    /// As [`Communicator::allreduce_sparse`] over the bytes of elements, in the background; how it ends is told to `done`, in the thread that
    /// runs calls in the background and before the next one begins.
    ///
    /// # Errors
    /// [`CommError::Arguments`], without calling `done`; what goes wrong later is told to it.
    pub fn call_sparse_async_then(
        &self,
        op: ElementOp,
        indices: &[u64],
        values: &[u8],
        size: u64,
        done: impl FnOnce(Result<Sparse<u8>, CommError>) + Send + 'static,
    ) -> Result<(), CommError> {
        self.start_sparse(self.timeout(), op, indices, values, size, done)
    }

    /// Starts a sparse allreduce in the background that waits so long.
    pub(crate) fn start_sparse(
        &self,
        timeout: Duration,
        op: ElementOp,
        indices: &[u64],
        values: &[u8],
        size: u64,
        done: impl FnOnce(Result<Sparse<u8>, CommError>) + Send + 'static,
    ) -> Result<(), CommError> {
        self.check(CollectiveKind::Allreduce, op.into())?;
        let given = Given::new(op, indices, values, size)?;
        let done = |result: Result<_, _>| done(result.map(Sparse::of));
        self.enqueue(|ticket| Box::new(SparseTask { ticket, timeout, given, done }))
    }

    /// Any collective over bytes, for callers that know element types at run time only. `elements` as in [`Communicator::call_async`].
    ///
    /// # Errors
    /// As [`Communicator::allreduce`], and where a vector is not as long as it must be.
    pub fn call_bytes(
        &self,
        kind: CollectiveKind,
        op: impl Into<CallOp>,
        elements: u64,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), CommError> {
        self.call(self.timeout(), kind, op, elements, &mut Buffers::Apart { input, output })
    }

    /// As [`Communicator::call_bytes`], in place.
    ///
    /// # Errors
    /// As [`Communicator::call_bytes`].
    pub fn call_bytes_in_place(
        &self,
        kind: CollectiveKind,
        op: impl Into<CallOp>,
        elements: u64,
        vector: &mut [u8],
    ) -> Result<(), CommError> {
        self.call(self.timeout(), kind, op, elements, &mut Buffers::InPlace(vector))
    }

    /// A call that waits so long.
    pub(crate) fn call(
        &self,
        timeout: Duration,
        kind: CollectiveKind,
        op: impl Into<CallOp>,
        elements: u64,
        buffers: &mut Buffers<'_>,
    ) -> Result<(), CommError> {
        let op = op.into();
        self.check(kind, op)?;
        let _turn = self.turn(timeout);
        self.core.run(kind, op, elements, buffers)
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// Waits for the turn of a call that is made now and waits so long.
    fn turn(&self, timeout: Duration) -> Turn<'_> {
        let ticket = self.core.turns.take();
        // Calls before this one end soon once the job has.
        let turn = self.core.turns.wait(ticket, || {
            if self.core.config.interrupt.is_wanted() {
                self.core.fail(INTERRUPTED);
            }
        });
        self.core.timeouts.begin(timeout);
        turn
    }

    fn check(&self, kind: CollectiveKind, op: CallOp) -> Result<(), CommError> {
        if let CollectiveKind::Reduce { root } | CollectiveKind::Broadcast { root } = kind {
            self.root(root.0)?;
        }
        match op {
            CallOp::BuiltIn(op) => {
                ElementOp::new(op.dtype, op.operator).map_err(|error| CommError::Arguments(error.to_string()))?;
                if let Some(by) = self.core.config.reproducible
                    && !is_copy(kind)
                {
                    OrderFree::of(op, self.world(), by).map_err(|error| CommError::Arguments(error.to_string()))?;
                }
            }
            CallOp::Custom(RegisteredOperator(call)) => {
                let known = self.core.config.operators.get(usize::from(call.index));
                if known.is_none_or(|operator| operator.layout().element_bytes != call.element_bytes as usize) {
                    return Err(CommError::Arguments(format!("this job has no operator number {} of that kind", call.index)));
                }
            }
        }
        Ok(())
    }

    fn root(&self, root: u32) -> Result<Rank, CommError> {
        if root < self.world() {
            return Ok(Rank(root));
        }
        Err(CommError::Arguments(format!("root = {root}: there are only ranks 0 to {}", self.world() - 1)))
    }

    /// Divides the ranks into communicators by `color`; within one, ranks are in the order of `key`, and of their present ranks where
    /// keys are equal. A rank without a color gets none. All ranks call it.
    ///
    /// # Errors
    /// As [`Communicator::allreduce`] and [`Communicator::join`].
    pub fn split(&self, color: Option<u32>, key: i64) -> Result<Option<Communicator>, CommError> {
        let mine = [color.map_or(-1, i64::from), key];
        let mut all = vec![0; 2 * self.world() as usize];
        self.all_gather(&mine, &mut all)?;
        let number = {
            let mut splits = locked(&self.splits);
            *splits += 1;
            *splits
        };
        let Some(color) = color else { return Ok(None) };
        let mut members: Vec<(i64, u32)> =
            all.chunks_exact(2).zip(0..).filter(|(entry, _)| entry[0] == i64::from(color)).map(|(entry, rank)| (entry[1], rank)).collect();
        members.sort_unstable();
        let rank = members.iter().position(|(_, rank)| *rank == self.rank()).unwrap_or_default() as u32;
        let config = Config {
            rank,
            world: members.len() as u32,
            job: format!("{}/{number}.{color}", self.job()),
            meeting: self.meeting_of_groups(),
            unread: Vec::new(),
            ..self.core.config.clone()
        };
        let runner = match &self.core.link {
            Some(link) => link.runner().of_group(self.job(), members.iter().map(|(_, rank)| *rank)),
            None => Runner::Switch,
        };
        let mut child = Communicator::join_at(config, runner)?;
        // The switch in this process must outlive the parent.
        child.embedded = self.embedded.clone().or_else(|| self.core.link.as_ref().and_then(|link| link.daemon()));
        Ok(Some(child))
    }

    /// Where groups of this communicator's ranks meet.
    fn meeting_of_groups(&self) -> Meeting {
        match (&self.core.config.meeting, self.switch) {
            (Meeting::Fabric(manager), _) => Meeting::Fabric(manager.clone()),
            (_, Some(switch)) => Meeting::Switch(self.core.link.as_ref().map_or(switch, |link| link.switch()).to_string()),
            (_, None) => Meeting::Nowhere,
        }
    }

    /// Ends the job for all ranks, also in the middle of a call: each gets an error with this text that names this rank.
    pub fn abort(&self, text: &str) {
        self.core.fail(text);
    }

    /// Leaves the job; the same as dropping the communicator. Calls in the background are finished first.
    pub fn leave(self) {}

    fn close(&mut self) {
        // Without its sender the queue ends after its last task.
        drop(locked(&self.queue).take());
        locked(&self.core.switch_way).close();
        let next = {
            let mut engine = locked(&self.core.engine);
            engine.closed = true;
            engine.next
        };
        if let Some(link) = &self.core.link {
            let answers = matches!(&locked(&self.core.engine).path, Path::Datagrams(path) if path.has_jobs_beside());
            if answers || matches!(self.report, PathReport::Fabric { .. }) || link.by_hosts().is_some() {
                link.await_all(self.world(), self.core.config.timeout.min(LAST_ANSWERS));
            }
            // Who runs the switch waits below for all who have not left.
            if let Path::Datagrams(path) = &mut locked(&self.core.engine).path {
                path.leave_others();
            }
            link.close(next);
        }
        if let Some(thread) = locked(&self.control).take() {
            let _ = thread.join();
        }
        if let Some(link) = &self.core.link {
            let standby = link.take_daemon();
            self.embedded = self.embedded.take().or(standby);
        }
    }

    /// Where the switch is in this process and nobody here needs it any more, it stays until the other ranks have left too, but not
    /// longer than they would wait for one another: the last results may have to be sent again.
    fn linger(&mut self) {
        let Some(daemon) = self.embedded.take().and_then(Arc::into_inner) else { return };
        daemon.drain();
        let Config { timeout, interrupt, .. } = &self.core.config;
        let (mut looked, mut deadline) = (Instant::now(), Instant::now() + *timeout);
        while !daemon.has_ended() && Instant::now() < deadline {
            thread::sleep(LINGER_LOOK);
            if looked.elapsed() >= INTERRUPT_LOOK {
                looked = Instant::now();
                if interrupt.is_wanted() {
                    deadline = deadline.min(looked + LINGER_INTERRUPTED);
                }
            }
        }
    }
}

/// How long a host of a fabric stays for those who may have lost its last packets.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// How often a rank that runs the switch looks whether the others have left.
const LINGER_LOOK: Duration = Duration::from_millis(1);
/// How long it stays where its user does not want to wait: the others shall hear why their job has failed.
const LINGER_INTERRUPTED: Duration = Duration::from_secs(1);

impl Level for Communicator {
    fn call_part(
        &self,
        timeout: Duration,
        (kind, op, elements): (CollectiveKind, CallOp, u64),
        of: Of,
        buffers: &mut Buffers<'_>,
    ) -> Result<(), CommError> {
        let _turn = self.turn(timeout);
        self.core.run_part(kind, op, elements, buffers, of)
    }

    fn abort(&self, text: &str) {
        Communicator::abort(self, text);
    }

    fn statistics(&self) -> Statistics {
        Communicator::statistics(self)
    }

    fn path(&self) -> PathReport {
        Communicator::path(self)
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.close();
        self.linger();
    }
}

fn element_op<T: Element>(operator: Operator) -> Result<ElementOp, CommError> {
    ElementOp::new(T::DTYPE, operator).map_err(|error| CommError::Arguments(error.to_string()))
}

fn in_place<T: Element>(vector: &mut [T]) -> Buffers<'_> {
    Buffers::InPlace(bytemuck::cast_slice_mut(vector))
}

fn apart<'a, T: Element>(input: &'a [T], output: &'a mut [T]) -> Buffers<'a> {
    Buffers::Apart { input: bytemuck::cast_slice(input), output: bytemuck::cast_slice_mut(output) }
}
