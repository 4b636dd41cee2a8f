//! Model checking: a small network in which packets may overtake each other at will, a few are lost or repeated, and timers run out
//! whenever nothing else can happen, or a few times too early. Every state that can be reached is looked at.
//!
//! The nodes are those that run in the simulator and over sockets, driven through [`fanin_core::Tx`] by a driver that collects what
//! they send. Two states are one where nodes, packets under way and results are equal; nodes store times relative to the
//! present ([`AnyNode::rebase`]), so time that has passed makes no difference.
//!
//! Packets that aggregators may absorb on their way go from switch to switch, by any of the shortest paths.
//!
//! What is left out: how long things take. A packet takes no time, a timer runs out when the model says so, and patience never ends.

mod driver;
mod state;

use fanin_core::{Census, NetworkMap, PacketKind};
use fanin_systems::{AnyNode, BuildError, JobSpec, build, shared};
use stateright::{Model, Property};

use driver::{Layout, Step};
pub use state::{Packet, State};

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

/// A job in a network whose every behaviour is looked at.
pub struct NetworkModel {
    layout: Layout,
    nodes: Vec<AnyNode<Census>>,
    limits: Limits,
    /// Drop repeats by the hop sequence.
    anti_replay: bool,
    /// The last worker submits when it likes; otherwise all have submitted at the start.
    late_worker: bool,
    /// Timers run out whenever they like.
    timeouts_at_any_time: bool,
    may_be_lost: fn(PacketKind) -> bool,
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
    /// Nothing is under way: all timers run out.
    TimePasses,
}

impl NetworkModel {
    /// The job's nodes in a network, and operations of so many elements each.
    ///
    /// # Errors
    /// [`BuildError`] where the job does not fit the network.
    pub fn new(spec: &JobSpec<'_, ()>, map: NetworkMap, elements: &[u64], limits: Limits) -> Result<Self, BuildError> {
        let mut nodes = build::<Census>(spec, &map)?;
        let shared = shared::<Census>(std::slice::from_ref(spec), &map).map_err(|(_, error)| error)?;
        nodes.others.extend(shared.into_iter().map(|node| node.placed));
        let layout = Layout::new(spec, map, &nodes, elements);
        let nodes = nodes.workers.into_iter().chain(nodes.others).map(|placed| placed.node).collect();
        Ok(NetworkModel {
            layout,
            nodes,
            limits,
            anti_replay: true,
            late_worker: false,
            timeouts_at_any_time: false,
            may_be_lost: |_| true,
        })
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

    /// Only packets of some kinds are lost or repeated, which keeps the number of states down.
    pub fn with_faults_on(mut self, kinds: fn(PacketKind) -> bool) -> Self {
        self.may_be_lost = kinds;
        self
    }

    /// Changes every node: tests of the checker plant bugs.
    pub fn altered(mut self, alter: impl Fn(&mut AnyNode<Census>)) -> Self {
        self.nodes.iter_mut().for_each(alter);
        self
    }

    fn step(&self, state: &State, step: Step) -> State {
        let mut next = state.clone();
        driver::drive(&self.layout, &mut next, step);
        next.packets.sort_unstable();
        next
    }

    fn submits_later(&self, state: &State) -> bool {
        self.late_worker && state.results.last().is_some_and(|result| !result.has_begun())
    }

    fn is_complete(&self, state: &State) -> bool {
        state.results.iter().all(|result| result.ended == self.layout.operations())
    }
}

impl Model for NetworkModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State::new(self.nodes.clone(), self.layout.workers(), &self.limits);
        let punctual = self.layout.workers() - usize::from(self.late_worker);
        (0..punctual).for_each(|worker| state = self.step(&state, Step::Submit(worker)));
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if self.submits_later(state) {
            actions.push(Action::Submit);
        }
        for (place, packet) in state.packets.iter().enumerate() {
            if place > 0 && state.packets[place - 1] == *packet {
                continue;
            }
            actions.extend((0..packet.ways.len()).map(|way| Action::Deliver(place, way)));
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
            actions.extend((0..state.nodes.len()).filter(|node| state.has_timer(*node)).map(Action::EarlyTimeout));
        }
        let idle = state.packets.is_empty() && !self.submits_later(state) && !self.timeouts_at_any_time;
        if idle && state.rounds <= self.limits.rounds && (0..state.nodes.len()).any(|node| state.has_timer(node)) {
            actions.push(Action::TimePasses);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        Some(match action {
            Action::Submit => self.step(state, Step::Submit(self.layout.workers() - 1)),
            Action::Deliver(place, way) => {
                let mut taken = state.clone();
                let packet = taken.packets.remove(place);
                self.step(&taken, Step::Deliver(packet, way))
            }
            Action::Lose(place) => {
                let mut next = state.clone();
                next.losses -= 1;
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
            Action::TimePasses => {
                let mut next = (0..state.nodes.len()).fold(state.clone(), |next, node| self.step(&next, Step::Timeout(node)));
                next.rounds += 1;
                next
            }
        })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXACT, |_, state: &State| state.wrong.is_none()),
            Property::always(NEVER_STUCK, |model: &NetworkModel, state: &State| {
                let moves = !state.packets.is_empty() || model.submits_later(state);
                moves || model.is_complete(state) || (0..state.nodes.len()).any(|node| state.has_timer(node))
            }),
            Property::always(PROGRESS, |model: &NetworkModel, state: &State| state.rounds <= model.limits.rounds),
            Property::always(NOTHING_LEFT, |model: &NetworkModel, state: &State| {
                !(state.packets.is_empty() && model.is_complete(state) && state.holds_something())
            }),
            Property::sometimes(COMPLETE, |model: &NetworkModel, state: &State| model.is_complete(state)),
        ]
    }
}

/// Every piece that is delivered is the sum of all contributions, and delivered once; nothing fails.
pub const EXACT: &str = "every piece is the exact sum, once";
/// Where nothing is under way and no timer runs, all is done.
pub const NEVER_STUCK: &str = "never stuck";
/// Time need not pass more often than losses explain.
pub const PROGRESS: &str = "time passes only as often as losses explain";
/// When all is done and nothing is under way, no switch of Canary holds a descriptor, unless it will give it up when its time is over.
pub const NOTHING_LEFT: &str = "nothing is left behind";
/// There is a way to the end.
pub const COMPLETE: &str = "all workers complete";
