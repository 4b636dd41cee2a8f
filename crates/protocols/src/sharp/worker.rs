//! The worker of a SHARP job: asks for the job's part of the switches, and has an operation done by its tree or by its hosts.

use fanin_core::hash::mix;
use fanin_core::{
    Body, Collective, DropReason, Duration, Egress, Event, FailureReason, Gauge, Ingress, Instant, Node, OperationId, Outcome, Payload,
    RetransmitReason, Suspect, Tx, Worker,
};
use fanin_wire::ring::RingHeader;
use fanin_wire::sharp::{SharpHeader, Want};

use super::config::{Mode, SharpWorkerConfig};
use crate::shared::inner::{InnerWorker, Wrapped};
use crate::shared::ledger::Ledger;
use crate::shared::repetition::Repetition;
use crate::shared::rtt::rebased;
use crate::shared::state::node_state;
use crate::shared::trees::{SelfClocked, TreeClient};

/// The wait for another question doubles so often at most.
const BACKOFF_SHIFT_MAX: u32 = 6;

type Inner<'a, T> = Wrapped<'a, T, SharpHeader>;

/// A question under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Asked {
    want: Want,
    /// It had no room yet.
    unsent: bool,
    /// How often it was sent again; stays at 255.
    attempts: u8,
    first_at: Instant,
    sent_at: Instant,
}

/// What the worker is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    /// Nothing is to be done, or the job is over.
    Idle,
    /// A question is under way.
    Asking(Asked),
    /// It was refused; another one is asked then.
    Waiting(Instant),
    /// The running operation is done by the tree.
    ByTree,
    /// By the hosts.
    ByHosts,
}

/// A worker of a job of SHARP. Where it has `hosts`, these do what its switches have refused.
pub struct SharpWorker<P: Payload + ?Sized, H: InnerWorker<P, Header = RingHeader>> {
    config: SharpWorkerConfig<P::Op>,
    ledger: Ledger,
    phase: Phase,
    /// The job has its part of the switches.
    holds: bool,
    /// Number of the next question.
    number: u32,
    /// Refusals in a row.
    refusals: u32,
    repetition: Repetition,
    tree: TreeClient<P, SelfClocked>,
    hosts: Option<H>,
}

node_state!(SharpWorker<H: InnerWorker<P, Header = RingHeader>> {
    config, ledger, phase, holds, number, refusals, repetition, tree, hosts
});

impl<P: Payload + ?Sized, H: InnerWorker<P, Header = RingHeader>> SharpWorker<P, H> {
    /// A worker with all its memory. The window of its tree is the quota where there is one. Without `hosts` the job waits where it is
    /// refused; all workers have some, or none.
    ///
    /// # Panics
    /// As [`TreeClient::with_pace`].
    pub fn new(mut config: SharpWorkerConfig<P::Op>, hosts: Option<H>) -> Self {
        if let Mode::LowLatency { quota } = config.mode {
            config.tree.window = quota;
        }
        SharpWorker {
            ledger: Ledger::new(config.tree.job),
            phase: Phase::Idle,
            holds: false,
            number: 0,
            refusals: 0,
            repetition: Repetition::new(&config.tree.reliability, 1).of(config.tree.job, config.tree.rank),
            tree: TreeClient::<P, SelfClocked>::new(config.tree.clone()),
            hosts,
            config,
        }
    }

    /// Whether the job has its part of the switches, as far as this worker knows.
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        match &mut self.phase {
            Phase::Asking(asked) => {
                asked.first_at = rebased(asked.first_at, now);
                asked.sent_at = rebased(asked.sent_at, now);
            }
            Phase::Waiting(until) => *until = rebased(*until, now),
            Phase::Idle | Phase::ByTree | Phase::ByHosts => {}
        }
        self.repetition.rebase(now);
        self.tree.rebase(now);
        self.hosts.iter_mut().for_each(|hosts| hosts.rebase(now));
    }

    fn uplink(&self) -> Egress<'static> {
        Egress::Port(self.config.tree.uplink)
    }

    /// Asks the next question.
    fn ask<T: Tx<SharpHeader, P>>(&mut self, now: Instant, want: Want, tx: &mut T) {
        self.repetition.begin(now);
        self.phase = Phase::Asking(Asked { want, unsent: true, attempts: 0, first_at: now, sent_at: now });
        self.send_first(now, tx);
    }

    /// Sends a question that had no room, where there is some.
    fn send_first<T: Tx<SharpHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let uplink = self.uplink();
        let Phase::Asking(asked) = &mut self.phase else { return };
        if !asked.unsent || !tx.room(uplink) {
            return;
        }
        (asked.unsent, asked.first_at, asked.sent_at) = (false, now, now);
        let header = SharpHeader::Ask { number: self.number, want: asked.want, refused: false, attempt: 0 };
        self.repetition.on_sent(0);
        tx.send(uplink, &header, Body::Empty);
    }

    /// Sends the question again where it is time to, and there is room.
    fn resend_due<T: Tx<SharpHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let (uplink, number) = (self.uplink(), self.number);
        let Phase::Asking(asked) = &mut self.phase else { return };
        self.repetition.retry();
        if self.repetition.next_due(now, |_| asked.sent_at, || tx.room(uplink)).is_none() {
            return;
        }
        self.repetition.on_repeated(now, 0, &mut asked.attempts, &mut asked.sent_at);
        tx.note(Event::Retransmitted { reason: RetransmitReason::Timeout, block: number });
        tx.send(uplink, &SharpHeader::Ask { number, want: asked.want, refused: false, attempt: asked.attempts }, Body::Empty);
    }

    /// All switches gave what was asked for, or one of them had none to give; the same to all workers.
    fn on_answer<T: Tx<SharpHeader, P>>(&mut self, now: Instant, number: u32, refused: bool, tx: &mut T) {
        let Phase::Asking(asked) = self.phase else { return tx.note(Event::Dropped(DropReason::Stale)) };
        if number != self.number || asked.unsent {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        self.repetition.on_answer(now, 0, asked.first_at, asked.sent_at);
        self.number = self.number.wrapping_add(1);
        self.phase = Phase::Idle;
        if asked.want == Want::GiveBack {
            self.holds = false;
            return self.go_on(now, tx);
        }
        if !refused {
            (self.holds, self.refusals) = (true, 0);
            return self.go_on(now, tx);
        }
        if self.hosts.is_some() {
            return self.begin_by_hosts(now, tx);
        }
        self.phase = Phase::Waiting(now + self.wait(number));
        self.refusals = self.refusals.saturating_add(1);
    }

    /// How long to wait after a refusal: the same at all workers, and most likely another time than that of other jobs.
    fn wait(&self, number: u32) -> Duration {
        let doubled = self.config.retry_after.times(1 << self.refusals.min(BACKOFF_SHIFT_MAX));
        doubled + doubled.times(mix(u64::from(self.config.tree.job.0), u64::from(number)) & 15).divided(16)
    }

    /// Begins the running operation where nothing else is to be done first.
    fn go_on<T: Tx<SharpHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let Some(running) = self.ledger.running().filter(|_| self.phase == Phase::Idle) else { return };
        // What needs no switch is the same at all workers, so none of them asks for it.
        let needs_nobody = self.config.tree.workers <= 1 || running.elements == 0;
        if self.holds || needs_nobody { self.begin_by_tree(now, tx) } else { self.ask(now, Want::Take, tx) }
    }

    fn begin_by_tree<T: Tx<SharpHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let Some(&collective) = self.ledger.running() else { return };
        self.phase = Phase::ByTree;
        self.hosts.iter_mut().for_each(|hosts| hosts.pass_over(collective.operation));
        self.tree.submit(now, collective, &mut Inner::new(tx));
        self.settle(now, tx);
    }

    fn begin_by_hosts<T: Tx<SharpHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let (Some(&collective), Some(hosts)) = (self.ledger.running(), &mut self.hosts) else { return };
        self.phase = Phase::ByHosts;
        self.tree.pass_over(collective.operation);
        hosts.submit(now, collective, &mut Inner::new(tx));
        self.settle(now, tx);
    }

    /// What tree or hosts have ended is ended; a streaming job gives its part back then.
    fn settle<T: Tx<SharpHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        while let Some(outcome) = self.tree.poll().or_else(|| self.hosts.as_mut().and_then(Worker::poll)) {
            let by_tree = self.phase == Phase::ByTree;
            self.phase = Phase::Idle;
            match outcome.result {
                Ok(()) => {
                    self.ledger.complete();
                    if by_tree && self.holds && self.config.mode == Mode::Streaming {
                        self.ask(now, Want::GiveBack, tx);
                    }
                }
                // Whoever failed has told the driver.
                Err(failure) => _ = self.ledger.fail(failure.block, failure.suspect, failure.reason),
            }
        }
    }

    /// Gives up the running operation, and the job with it.
    fn fail<T: Tx<SharpHeader, P>>(&mut self, suspect: Suspect, reason: FailureReason, tx: &mut T) {
        match self.ledger.fail(None, suspect, reason) {
            Some(failure) => tx.note(Event::Failed(failure)),
            // It only wanted to give something back: the job's end does that.
            None => self.ledger.close(),
        }
        self.phase = Phase::Idle;
        self.repetition.clear();
    }

    fn on_missing<T: Tx<SharpHeader, P>>(&mut self, now: Instant, number: u32, suspect: Suspect, tx: &mut T) {
        if !matches!(self.phase, Phase::Asking(_)) || number != self.number {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        self.repetition.on_waiting(now, number, suspect);
    }
}

impl<P: Payload + ?Sized, H: InnerWorker<P, Header = RingHeader>> Node<P> for SharpWorker<P, H> {
    type Header = SharpHeader;

    #[inline]
    fn on_packet<T: Tx<SharpHeader, P>>(&mut self, now: Instant, from: Ingress, header: &SharpHeader, payload: &P, tx: &mut T) {
        match *header {
            SharpHeader::Data(ref data) => {
                self.tree.on_packet(now, from, data, payload, &mut Inner::new(tx));
                self.settle(now, tx);
            }
            SharpHeader::Host(ref packet) => {
                let Some(hosts) = &mut self.hosts else { return tx.note(Event::Dropped(DropReason::NotAMember)) };
                hosts.on_packet(now, from, packet, payload, &mut Inner::new(tx));
                self.settle(now, tx);
            }
            SharpHeader::Answer { number, refused } => self.on_answer(now, number, refused, tx),
            SharpHeader::Missing { number, suspect } => self.on_missing(now, number, suspect, tx),
            SharpHeader::Ask { .. } => tx.note(Event::Dropped(DropReason::NotAMember)),
        }
    }

    fn on_timeout<T: Tx<SharpHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        match self.phase {
            Phase::Waiting(until) if now >= until => {
                self.phase = Phase::Idle;
                self.go_on(now, tx);
            }
            Phase::Asking(_) if self.repetition.is_reliable() => {
                if self.repetition.has_lost_patience(now) {
                    let suspect = self.repetition.culprit(now).map_or(Suspect::Switch(self.config.tree.leaf), |(_, suspect)| suspect);
                    self.fail(suspect, FailureReason::NoProgress, tx);
                } else {
                    self.resend_due(now, tx);
                }
            }
            _ => {}
        }
        self.tree.on_timeout(now, &mut Inner::new(tx));
        if let Some(hosts) = &mut self.hosts {
            hosts.on_timeout(now, &mut Inner::new(tx));
        }
        self.settle(now, tx);
    }

    #[inline]
    fn next_timeout(&self) -> Option<Instant> {
        let own = match self.phase {
            Phase::Asking(asked) => self.repetition.next_timeout(|_| asked.sent_at),
            Phase::Waiting(until) => Some(until),
            Phase::Idle | Phase::ByTree | Phase::ByHosts => None,
        };
        [own, self.tree.next_timeout(), self.hosts.as_ref().and_then(Node::next_timeout)].into_iter().flatten().min()
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        match (self.phase, &self.hosts) {
            (Phase::ByHosts, Some(hosts)) => hosts.gauges(report),
            _ => self.tree.gauges(report),
        }
    }

    fn on_tx_ready<T: Tx<SharpHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.send_first(now, tx);
        if self.repetition.is_held_up() {
            self.resend_due(now, tx);
        }
        self.tree.on_tx_ready(now, &mut Inner::new(tx));
        if let Some(hosts) = &mut self.hosts {
            hosts.on_tx_ready(now, &mut Inner::new(tx));
        }
        self.settle(now, tx);
    }
}

impl<P: Payload + ?Sized, H: InnerWorker<P, Header = RingHeader>> Worker<P> for SharpWorker<P, H> {
    fn submit<T: Tx<SharpHeader, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        if u32::try_from(collective.elements.div_ceil(u64::from(self.config.tree.block_elements))).is_err() {
            return self.ledger.refuse(collective.operation);
        }
        if !self.ledger.begin(collective) {
            return;
        }
        self.go_on(now, tx);
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.ledger.poll()
    }

    fn cancel<T: Tx<SharpHeader, P>>(&mut self, now: Instant, operation: OperationId, tx: &mut T) {
        if self.ledger.running().is_none_or(|running| running.operation != operation) {
            return;
        }
        match (self.phase, &mut self.hosts) {
            (Phase::ByTree, _) => self.tree.cancel(now, operation, &mut Inner::new(tx)),
            (Phase::ByHosts, Some(hosts)) => hosts.cancel(now, operation, &mut Inner::new(tx)),
            _ => return self.fail(Suspect::Unknown, FailureReason::Cancelled, tx),
        }
        self.settle(now, tx);
    }
}
