//! Model checking: a small network in which packets may overtake each other at will, a few are lost or repeated, and timers run out
//! whenever nothing else can happen, or a few times too early. Every state that can be reached is looked at.
//!
//! The nodes are those that run in the simulator and over sockets, driven through [`fanin_core::Tx`] by a driver that collects what
//! they send. Two states are one where nodes, packets under way and results are equal; nodes store times relative to the
//! present ([`AnyNode::rebase`]), so time that has passed makes no difference.
//!
//! Packets carry census weights or, for systems that look into them, real elements ([`NetworkModel::carrying`]); vectors of elements are dense,
//! or sparse ([`NetworkModel::with_pairs`]). Operations are allreduces, or of any kind ([`NetworkModel::with_kinds`]): then nobody may leave a
//! barrier to which not all have come.
//!
//! Packets that aggregators may absorb on their way go from switch to switch, by any of the shortest paths.
//!
//! What is left out: how long things take. A packet takes no time, a timer runs out when the model says so, and patience never ends; a
//! worker that is gone is noticed when the model says so ([`Losing`]). With a clock, timers run out in the order of their times.

mod death;
mod driver;
mod layout;
mod payload;
mod state;
mod summary;

use fanin_core::payload::Density;
use fanin_core::{Census, CollectiveKind, Duration, Instant, NetworkMap, Node, PacketKind};
use fanin_systems::{AnyNode, BuildError, JobSpec, build, shared};
use stateright::{Model, Property};

pub use driver::Modelled;
use driver::Step;
use layout::{Layout, Placing};
pub use payload::{Contents, Vectors};
pub use state::{Fate, Gone, Packet, State};
pub use summary::Summary;

/// How much may go wrong on any one path through the states.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Packets lost.
    pub losses: u8,
    /// Packets repeated.
    pub duplicates: u8,
    /// Timers that run out too early.
    pub early_timeouts: u8,
    /// How often all timers may run out because nothing else can happen, before that counts as no progress.
    pub rounds: u8,
}

/// Jobs in a network whose every behaviour is looked at.
pub struct NetworkModel<P: Modelled + ?Sized = Census> {
    layout: Layout<P>,
    nodes: Vec<AnyNode<P>>,
    limits: Limits,
    /// Drop repeats by the hop sequence.
    anti_replay: bool,
    /// The last worker submits when it likes; otherwise all have submitted at the start.
    late_worker: bool,
    /// Timers run out whenever they like.
    timeouts_at_any_time: bool,
    /// A job that may crash.
    may_crash: Option<usize>,
    /// A worker may be gone.
    losing: Option<Losing>,
    /// Switches are told of jobs that are over.
    jobs_end: bool,
    may_be_lost: fn(PacketKind) -> bool,
}

/// How a worker may be gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Losing {
    /// One dies at any moment, with any of its packets that are under way. Who can notice does so at any moment from then on.
    Dies,
    /// The same, but it is found out by silence: for jobs with patience, and with a clock.
    DiesUnnoticed,
    /// One is taken for dead at any moment, although it lives.
    IsTakenForDead,
}

/// Something that happens.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// The late worker submits its first operation.
    Submit,
    /// The packet at this place arrives, by one of the ways that it may take; it may overtake others.
    Deliver(usize, usize),
    /// It is lost.
    Lose(usize),
    /// It is repeated.
    Repeat(usize),
    /// A node's timer runs out, while other things could happen.
    EarlyTimeout(usize),
    /// All nodes of a job but those that others share are gone.
    Crash(usize),
    /// Switches are told that a job is over.
    End(usize),
    /// A worker dies.
    Die(usize),
    /// A worker takes another one for dead.
    TakeForDead(usize, usize),
    /// Nothing is under way: all timers run out.
    TimePasses,
}

impl NetworkModel {
    /// The job's nodes in a network, and operations of so many elements each.
    ///
    /// # Errors
    /// [`BuildError`] where the job does not fit the network.
    pub fn new(spec: &JobSpec<'_, ()>, map: NetworkMap, elements: &[u64], limits: Limits) -> Result<Self, BuildError> {
        NetworkModel::of_jobs(&[(spec.clone(), elements)], map, limits)
    }

    /// Several jobs in one network, each with operations of so many elements.
    ///
    /// # Errors
    /// [`BuildError`] where a job does not fit the network, or those before it.
    pub fn of_jobs(jobs: &[(JobSpec<'_, ()>, &[u64])], map: NetworkMap, limits: Limits) -> Result<Self, BuildError> {
        NetworkModel::carrying(jobs, map, limits)
    }
}

impl NetworkModel<[u8]> {
    /// The vectors of a job are sparse: workers read and deliver pairs ([`CensusPairs`](fanin_core::payload::CensusPairs)), and no elements.
    ///
    /// # Panics
    /// Where there is no such job: they are numbered as they were given.
    pub fn with_pairs(mut self, job: usize, density: Density) -> Self {
        self.layout.make_sparse(job, density);
        self
    }
}

impl<P: Modelled + ?Sized> NetworkModel<P> {
    /// As [`NetworkModel::of_jobs`], with payloads of any kind: `NetworkModel::<[u8]>::carrying` for real elements.
    ///
    /// # Errors
    /// As [`NetworkModel::of_jobs`]; also where the payload has no vectors for a job.
    pub fn carrying(jobs: &[(JobSpec<'_, P::Op>, &[u64])], map: NetworkMap, limits: Limits) -> Result<Self, BuildError> {
        let specs: Vec<JobSpec<'_, P::Op>> = jobs.iter().map(|(spec, _)| spec.clone()).collect();
        specs.iter().try_for_each(P::check)?;
        let shared = shared::<P>(&specs, &map).map_err(|(_, error)| error)?;
        let placing = |(spec, elements)| Ok(Placing { spec, nodes: build::<P>(spec, &map)?, elements });
        let placings = jobs.iter().map(|(spec, elements)| placing((spec, *elements))).collect::<Result<_, BuildError>>()?;
        let (layout, nodes) = Layout::new(map.clone(), placings, shared);
        Ok(NetworkModel {
            layout,
            nodes,
            limits,
            anti_replay: true,
            late_worker: false,
            timeouts_at_any_time: false,
            may_crash: None,
            losing: None,
            jobs_end: false,
            may_be_lost: |_| true,
        })
    }

    /// The operations of a job are of these kinds, in turn; they are allreduces otherwise. Vectors are as long as all shares together.
    ///
    /// # Panics
    /// Where there is no such job: they are numbered as they were given.
    pub fn with_kinds(mut self, job: usize, kinds: &[CollectiveKind]) -> Self {
        self.layout.set_kinds(job, kinds.to_vec());
        self
    }

    /// Without the hop sequence: the nodes see every repeat.
    pub fn without_anti_replay(mut self) -> Self {
        self.anti_replay = false;
        self
    }

    /// The last worker submits its first operation at any time.
    pub fn with_late_worker(mut self) -> Self {
        self.late_worker = true;
        self
    }

    /// Timers run out at any time, as often as nodes set them: for nodes that set a timer only because something has come. The limits on
    /// early timeouts and rounds do not count then.
    pub fn with_timeouts_at_any_time(mut self) -> Self {
        self.timeouts_at_any_time = true;
        self
    }

    /// The workers and servers of a job may be gone from any moment on; the others must do without it.
    pub fn with_crash_of(mut self, job: usize) -> Self {
        self.may_crash = Some(job);
        self
    }

    /// One worker, of all jobs, is gone at any moment. The others end all operations, if more than half of the job's workers are left.
    pub fn with_losing(mut self, losing: Losing) -> Self {
        self.losing = Some(losing);
        self
    }

    /// Where nothing is under way, time passes until the first timer runs out, and those that are due with it do: for nodes that compare how
    /// long they have waited for different things, and with each other. Otherwise all timers run out, whatever they were set to.
    ///
    /// What is longer ago than `remembered` counts as so long ago: longer than any timeout that is counted from something in the past.
    pub fn with_clock(mut self, remembered: Duration) -> Self {
        self.layout.clock = Some(Instant::ZERO + remembered);
        self
    }

    /// Switches that jobs share are told, at some time, that a job is over: one that has crashed, or of which all workers are done. No
    /// timer runs out while there is somebody to be told.
    pub fn with_ends(mut self) -> Self {
        self.jobs_end = true;
        self
    }

    /// Only packets of some kinds are lost or repeated, which keeps the number of states down.
    pub fn with_faults_on(mut self, kinds: fn(PacketKind) -> bool) -> Self {
        self.may_be_lost = kinds;
        self
    }

    /// Changes every node: tests of the checker plant bugs.
    pub fn altered(mut self, alter: impl Fn(&mut AnyNode<P>)) -> Self {
        self.nodes.iter_mut().for_each(alter);
        self
    }

    fn step(&self, state: &State<P>, step: Step<P>) -> State<P> {
        let mut next = state.clone();
        P::drive(&self.layout, &mut next, step);
        next.bury();
        next.packets.sort_unstable();
        next
    }

    fn submits_later(&self, state: &State<P>) -> bool {
        self.late_worker && state.results.last().is_some_and(|result| !result.has_begun())
    }

    /// Whether all workers of a job are done that are left.
    fn is_done(&self, state: &State<P>, job: usize) -> bool {
        let has_ended = |worker: usize| state.results[worker].has_given_up || state.results[worker].ended == self.layout.operations(job);
        self.layout.workers_of(job).all(|worker| state.is_dead(worker) || has_ended(worker))
    }

    /// Who may be gone now, and who takes it for dead.
    fn losses_of_workers(&self, state: &State<P>) -> Vec<Action> {
        let Some(losing) = self.losing else { return Vec::new() };
        let noticed = |gone: usize| state.witness(&self.layout, gone).map(|witness| Action::TakeForDead(witness, gone));
        match state.gone {
            Some(gone) if losing == Losing::Dies && !gone.is_noticed => noticed(gone.worker).into_iter().collect(),
            Some(_) => Vec::new(),
            None if self.is_complete(state) => Vec::new(),
            None if losing == Losing::IsTakenForDead => (0..self.layout.workers()).filter_map(noticed).collect(),
            None => (0..self.layout.workers()).map(Action::Die).collect(),
        }
    }

    /// Whether somebody is about to notice a death.
    fn is_to_be_noticed(&self, state: &State<P>) -> bool {
        self.losing == Some(Losing::Dies)
            && state.gone.is_some_and(|gone| !gone.is_noticed && state.witness(&self.layout, gone.worker).is_some())
    }

    /// Time passes until the first timer runs out.
    fn pass_time(&self, state: &State<P>) -> State<P> {
        let mut next = state.clone();
        let alive: Vec<usize> = (0..state.nodes.len()).filter(|node| self.has_timer(state, *node)).collect();
        let now = self.layout.clock.unwrap_or_default();
        let first = alive.iter().filter_map(|node| state.nodes[*node].next_timeout()).min().unwrap_or(now).max(now);
        // All clocks are put back by what has passed, so that equal situations at different times are equal states.
        next.nodes.iter_mut().for_each(|node| node.rebase(Instant::ZERO + first.since(now)));
        let due = alive.into_iter().filter(|node| state.nodes[*node].next_timeout().is_some_and(|at| at <= first));
        due.fold(next, |next, node| self.step(&next, Step::Timeout(node)))
    }

    /// Whether all jobs are done but for one that has crashed.
    fn is_complete(&self, state: &State<P>) -> bool {
        (0..self.layout.jobs()).all(|job| state.fates[job].is_gone() || self.is_done(state, job))
    }

    /// Whether switches may be told now that the job is over.
    fn may_end(&self, state: &State<P>, job: usize) -> bool {
        let is_over = state.fates[job] == Fate::Crashed || state.fates[job] == Fate::Runs && self.is_done(state, job);
        self.jobs_end && is_over
    }

    /// Whether a switch is reserved for a job none of whose workers has heard so, although nothing is under way or was lost.
    fn is_reserved_for_nobody(&self, state: &State<P>, job: usize) -> bool {
        let nothing_lost = self.limits.losses == 0 && self.limits.early_timeouts == 0 && !self.late_worker && self.may_crash.is_none();
        let nobody_has = !self.layout.workers_of(job).any(|worker| state.nodes[worker].has_reserved());
        nothing_lost && state.packets.is_empty() && nobody_has && state.has_reserved(self.layout.id(job))
    }

    /// Whether a timer of this node may run out.
    fn has_timer(&self, state: &State<P>, node: usize) -> bool {
        let lives = self.layout.job_of(node).is_none_or(|job| !state.fates[job].is_gone()) && !state.is_dead(node);
        lives && state.nodes[node].next_timeout().is_some()
    }
}

impl<P: Modelled + ?Sized> Model for NetworkModel<P> {
    type State = State<P>;
    type Action = Action;

    fn init_states(&self) -> Vec<State<P>> {
        let counts = (self.layout.jobs(), self.layout.workers());
        let mut state = State::new(self.nodes.clone(), counts, &self.limits);
        let punctual = self.layout.workers() - usize::from(self.late_worker);
        (0..punctual).for_each(|worker| state = self.step(&state, Step::Submit(worker)));
        vec![state]
    }

    fn actions(&self, state: &State<P>, actions: &mut Vec<Action>) {
        if self.submits_later(state) {
            actions.push(Action::Submit);
        }
        for (place, packet) in state.packets.iter().enumerate() {
            if place > 0 && state.packets[place - 1] == *packet {
                continue;
            }
            actions.extend((0..packet.ways.len()).map(|way| Action::Deliver(place, way)));
            if state.is_of_the_dead(packet) {
                actions.push(Action::Lose(place));
                continue;
            }
            if !(self.may_be_lost)(packet.kind()) {
                continue;
            }
            if state.losses > 0 {
                actions.push(Action::Lose(place));
            }
            if state.duplicates > 0 {
                actions.push(Action::Repeat(place));
            }
        }
        if state.early_timeouts > 0 || self.timeouts_at_any_time {
            actions.extend((0..state.nodes.len()).filter(|node| self.has_timer(state, *node)).map(Action::EarlyTimeout));
        }
        let jobs = 0..self.layout.jobs();
        actions.extend(self.may_crash.filter(|job| state.fates[*job] == Fate::Runs && !self.is_done(state, *job)).map(Action::Crash));
        actions.extend(jobs.clone().filter(|job| self.may_end(state, *job)).map(Action::End));
        actions.extend(self.losses_of_workers(state));
        let nobody_ends = jobs.clone().all(|job| !self.may_end(state, job));
        let idle = state.packets.is_empty() && !self.submits_later(state) && !self.timeouts_at_any_time && nobody_ends;
        let idle = idle && !self.is_to_be_noticed(state);
        if idle && state.rounds <= self.limits.rounds && (0..state.nodes.len()).any(|node| self.has_timer(state, node)) {
            actions.push(Action::TimePasses);
        }
    }

    fn next_state(&self, state: &State<P>, action: Action) -> Option<State<P>> {
        Some(match action {
            Action::Submit => self.step(state, Step::Submit(self.layout.workers() - 1)),
            Action::Deliver(place, way) => {
                let mut taken = state.clone();
                let packet = taken.packets.remove(place);
                self.step(&taken, Step::Deliver(packet, way))
            }
            Action::Lose(place) => {
                let mut next = state.clone();
                next.losses -= u8::from(!state.is_of_the_dead(&state.packets[place]));
                next.lose(place);
                next
            }
            Action::Repeat(place) => {
                let mut next = state.clone();
                next.duplicates -= 1;
                next.repeat(place, self.anti_replay);
                next
            }
            Action::EarlyTimeout(node) => {
                let mut next = self.step(state, Step::Timeout(node));
                if !self.timeouts_at_any_time {
                    next.early_timeouts -= 1;
                }
                next
            }
            Action::Crash(job) => {
                let mut next = state.clone();
                next.fates[job] = Fate::Crashed;
                next
            }
            Action::End(job) => {
                let mut next = self.step(state, Step::End(job));
                next.fates[job] = if next.fates[job] == Fate::Crashed { Fate::Buried } else { Fate::Over };
                next
            }
            Action::Die(worker) => {
                let mut next = state.clone();
                next.gone = Some(Gone { worker, address: self.layout.address_of(worker), is_dead: true, is_noticed: false });
                next.bury();
                next
            }
            Action::TakeForDead(witness, worker) => {
                let mut next = state.clone();
                next.gone =
                    Some(Gone { worker, address: self.layout.address_of(worker), is_dead: state.is_dead(worker), is_noticed: true });
                self.step(&next, Step::TakeForDead(witness, self.layout.rank_of(worker)))
            }
            Action::TimePasses if self.layout.clock.is_some() => State { rounds: state.rounds + 1, ..self.pass_time(state) },
            Action::TimePasses => {
                let lives = |node: &usize| self.has_timer(state, *node);
                let mut next = (0..state.nodes.len()).filter(lives).fold(state.clone(), |next, node| self.step(&next, Step::Timeout(node)));
                next.rounds += 1;
                next
            }
        })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXACT, |_, state: &State<P>| state.wrong.is_none()),
            Property::always(NEVER_STUCK, |model: &NetworkModel<P>, state: &State<P>| {
                let moves = !state.packets.is_empty() || model.submits_later(state);
                let ends = (0..model.layout.jobs()).any(|job| model.may_end(state, job));
                moves
                    || ends
                    || model.is_to_be_noticed(state)
                    || model.is_complete(state)
                    || (0..state.nodes.len()).any(|node| model.has_timer(state, node))
            }),
            Property::always(PROGRESS, |model: &NetworkModel<P>, state: &State<P>| state.rounds <= model.limits.rounds),
            Property::always(NOTHING_LEFT, |model: &NetworkModel<P>, state: &State<P>| {
                let is_left =
                    |job: &usize| matches!(state.fates[*job], Fate::Over | Fate::Buried) && state.remembers(model.layout.id(*job));
                let holds = state.packets.is_empty() && model.is_complete(state) && state.holds_something(&model.layout);
                !holds && !(0..model.layout.jobs()).any(|job| is_left(&job) || model.is_reserved_for_nobody(state, job))
            }),
            Property::sometimes(COMPLETE, |model: &NetworkModel<P>, state: &State<P>| model.is_complete(state)),
        ]
    }
}

/// Every piece that is delivered is the sum of all contributions, and delivered once; nothing fails.
pub const EXACT: &str = "every piece is the exact sum, once";
/// Where nothing is under way and no timer runs, all is done.
pub const NEVER_STUCK: &str = "never stuck";
/// Time need not pass more often than losses explain.
pub const PROGRESS: &str = "time passes only as often as losses explain";
/// When all is done and nothing is under way, no switch holds what it should have given up by itself (Canary's descriptors); a job of which
/// switches know that it is over has nothing there; nor is one reserved for a job that was refused (SHARP).
pub const NOTHING_LEFT: &str = "nothing is left behind";
/// There is a way to the end.
pub const COMPLETE: &str = "all workers complete";
