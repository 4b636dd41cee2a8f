//! A worker of a job with several servers: fragments are dealt out to them in turn, and what goes to each is a stream of its own, with its own
//! numbers, windows and timers. An operation is done when all streams have done their part; when one fails, all do.

use fanin_core::{Collective, DropReason, Event, Gauge, Ingress, Instant, Node, OperationId, Outcome, Payload, Rank, Tx, Worker};
use fanin_wire::atp::AtpHeader;

use super::config::WorkerConfig;
use super::worker::{AggregationWorker, Windows};
use crate::shared::state::node_state;

/// A worker: a node for each server.
pub struct Streams<P: Payload + ?Sized, W: Windows> {
    /// By the server's number.
    streams: Vec<AggregationWorker<P, W>>,
    /// How many of them have done their part of the operation that is running.
    done: usize,
    /// The one that sends first the next time that there is room.
    turn: usize,
}

node_state!(Streams<W: Windows> { streams, done, turn });

impl<P: Payload + ?Sized, W: Windows> Streams<P, W> {
    /// A worker with one server.
    ///
    /// # Panics
    /// As [`AggregationWorker::new`].
    pub fn new(config: WorkerConfig<P::Op>, windows: W) -> Self {
        Streams::to_servers([(config, windows)])
    }

    /// A worker with these servers, in the order of their numbers.
    ///
    /// # Panics
    /// As [`AggregationWorker::new`], and where there is no server, or the numbers are not 0, 1, 2 and so on.
    pub fn to_servers(servers: impl IntoIterator<Item = (WorkerConfig<P::Op>, W)>) -> Self {
        let stream = |(number, (config, windows)): (usize, (WorkerConfig<P::Op>, W))| {
            assert!(usize::from(config.number) == number, "servers in the order of their numbers");
            AggregationWorker::new(config, windows)
        };
        let streams: Vec<_> = servers.into_iter().enumerate().map(stream).collect();
        assert!(!streams.is_empty(), "at least one server");
        Streams { streams, done: 0, turn: 0 }
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        self.streams.iter_mut().for_each(|stream| stream.rebase(now));
    }

    /// The worker's windows for its first server.
    pub fn windows(&self) -> &W {
        self.streams[0].windows()
    }

    /// The worker's windows for its first server, to be changed: tests make workers disagree.
    pub fn windows_mut(&mut self) -> &mut W {
        self.streams[0].windows_mut()
    }

    /// The worker's rank.
    pub fn rank(&self) -> Rank {
        self.streams[0].rank()
    }

    /// What a stream says of its part: gives the end of the operation, where that was the last part, or one that has failed.
    fn gather(&mut self, of: usize, outcome: Outcome) -> Option<Outcome> {
        if outcome.result.is_err() {
            for (number, stream) in self.streams.iter_mut().enumerate() {
                if number != of {
                    stream.abandon();
                    while stream.poll().is_some() {}
                }
            }
            self.done = 0;
            return Some(outcome);
        }
        self.done += 1;
        let is_last = self.done == self.streams.len();
        self.done = if is_last { 0 } else { self.done };
        is_last.then_some(outcome)
    }
}

impl<P: Payload + ?Sized, W: Windows> Node<P> for Streams<P, W> {
    type Header = AtpHeader;

    #[inline]
    fn on_packet<T: Tx<AtpHeader, P>>(&mut self, now: Instant, from: Ingress, header: &AtpHeader, payload: &P, tx: &mut T) {
        match self.streams.get_mut(usize::from(header.at().server())) {
            Some(stream) => stream.on_packet(now, from, header, payload, tx),
            None => tx.note(Event::Dropped(DropReason::NotAMember)),
        }
    }

    fn on_timeout<T: Tx<AtpHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        for stream in &mut self.streams {
            if stream.next_timeout().is_some_and(|due| due <= now) {
                stream.on_timeout(now, tx);
            }
        }
    }

    #[inline]
    fn next_timeout(&self) -> Option<Instant> {
        match &self.streams[..] {
            [only] => only.next_timeout(),
            all => all.iter().filter_map(Node::next_timeout).min(),
        }
    }

    /// Each stream is first in its turn: what room there is might else be the first one's only.
    fn on_tx_ready<T: Tx<AtpHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let (before, rest) = self.streams.split_at_mut(self.turn);
        rest.iter_mut().chain(before).for_each(|stream| stream.on_tx_ready(now, tx));
        self.turn = (self.turn + 1) % self.streams.len();
    }

    fn on_job_end<T: Tx<AtpHeader, P>>(&mut self, now: Instant, job: fanin_core::JobId, tx: &mut T) {
        self.streams.iter_mut().for_each(|stream| stream.on_job_end(now, job, tx));
    }

    /// Windows and fragments under way are those of all servers together; other gauges are the first one's.
    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        if let [only] = &self.streams[..] {
            return only.gauges(report);
        }
        let mut first: Vec<(Gauge, f64)> = Vec::new();
        for stream in &self.streams {
            stream.gauges(&mut |gauge, value| match first.iter_mut().find(|(known, _)| *known == gauge) {
                None => first.push((gauge, value)),
                Some((Gauge::AggregatorWindow | Gauge::LinkWindow | Gauge::Outstanding, sum)) => *sum += value,
                Some(_) => {}
            });
        }
        first.into_iter().for_each(|(gauge, value)| report(gauge, value));
    }
}

impl<P: Payload + ?Sized, W: Windows> Worker<P> for Streams<P, W> {
    fn submit<T: Tx<AtpHeader, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        self.streams.iter_mut().for_each(|stream| stream.submit(now, collective, tx));
    }

    #[inline]
    fn poll(&mut self) -> Option<Outcome> {
        if let [only] = &mut self.streams[..] {
            return only.poll();
        }
        for number in 0..self.streams.len() {
            while let Some(outcome) = self.streams[number].poll() {
                if let Some(outcome) = self.gather(number, outcome) {
                    return Some(outcome);
                }
            }
        }
        None
    }

    fn remaining(&self) -> Option<u32> {
        let parts = self.streams.iter().filter_map(Worker::remaining);
        parts.fold(None, |sum: Option<u32>, part| Some(sum.unwrap_or(0).saturating_add(part)))
    }

    fn cancel<T: Tx<AtpHeader, P>>(&mut self, now: Instant, operation: OperationId, tx: &mut T) {
        if let Some(running) = self.streams.iter_mut().find(|stream| stream.remaining().is_some()) {
            running.cancel(now, operation, tx);
        }
    }
}
