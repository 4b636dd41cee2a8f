//! What other threads may ask of a node of a fabric while its loop runs. Nothing here is on a packet's way: the loop looks at one flag a
//! turn.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fanin_core::{JobId, PortId};
use fanin_net::{SendStatistics, Waker};

use super::hello::LinkState;
use super::links::PortCounters;
use super::source::{TrafficConfig, TrafficCount};
use crate::counters::Counters;
use crate::last::Last;

/// What is told to whoever asked.
pub type Reply<T> = Box<dyn FnOnce(T) + Send>;

/// Lets a job join a node that is there: true where the node has taken it, false where the node is not of the kind that jobs share, and
/// an error where it cannot take this job.
pub type Join<N> = Box<dyn FnMut(&mut N) -> Result<bool, String> + Send>;

/// A request.
pub(crate) enum Command<N> {
    /// A job begins; the answer is whether it is new.
    Admit { job: JobId, system: u8, node: Box<N>, reply: Reply<bool> },
    /// A job begins that shares a node with those that are there, or has `node` where there is none; the answer is whether it is new.
    Share { job: JobId, system: u8, node: Box<N>, join: Join<N>, reply: Reply<Result<bool, String>> },
    /// A job ends; the answer is whether it was there.
    End { job: JobId, reply: Reply<bool> },
    /// How are things?
    Look { reply: Reply<FabricStatus> },
    /// A stream of background traffic begins.
    StartTraffic(TrafficConfig),
    /// A stream ends; the answer is what it has sent.
    StopTraffic { id: u32, reply: Reply<Option<TrafficCount>> },
}

/// What a node of a fabric has done so far, and how its links are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FabricStatus {
    /// Of all jobs, with those that have ended, and of packets of none.
    pub counters: Counters,
    /// By datagram and system call, with the injected faults.
    pub sent: SendStatistics,
    /// By port number.
    pub ports: Vec<PortStatus>,
    /// Jobs that run, by number.
    pub jobs: Vec<(JobId, Counters)>,
    /// Of jobs that run, who contributes by which port, and how often each was the last one.
    pub last: Vec<(JobId, Vec<(PortId, Last)>)>,
    /// Background traffic that started here and still runs.
    pub traffic_sent: TrafficCount,
    /// Background traffic that ended here.
    pub traffic_received: TrafficCount,
    /// Background packets that were passed on.
    pub background_forwarded: u64,
    /// Marked packets that ended here.
    pub marked_received: u64,
}

/// How a port is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortStatus {
    /// The port.
    pub port: PortId,
    /// The link.
    pub state: LinkState,
    /// Bytes in the queue.
    pub queue_bytes: u64,
    /// The most that were in it at once.
    pub queue_bytes_peak: u64,
    /// What has passed.
    pub counts: PortCounters,
}

/// Where requests wait for the loop.
pub(crate) struct Inbox<N> {
    commands: Mutex<VecDeque<Command<N>>>,
    is_waiting: AtomicBool,
}

impl<N> Inbox<N> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Inbox { commands: Mutex::new(VecDeque::new()), is_waiting: AtomicBool::new(false) })
    }

    /// The next request, if there is one.
    #[inline]
    pub(crate) fn take(&self) -> Option<Command<N>> {
        if !self.is_waiting.load(Ordering::Acquire) {
            return None;
        }
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let command = commands.pop_front();
        self.is_waiting.store(!commands.is_empty(), Ordering::Release);
        command
    }

    fn put(&self, command: Command<N>) {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.push_back(command);
        self.is_waiting.store(true, Ordering::Release);
    }
}

/// Asks a node of a fabric from another thread. Answers come on the node's thread, and never where its loop has ended: then the reply is
/// dropped.
pub struct FabricRemote<N> {
    inbox: Arc<Inbox<N>>,
    waker: Waker,
}

impl<N> Clone for FabricRemote<N> {
    fn clone(&self) -> Self {
        FabricRemote { inbox: self.inbox.clone(), waker: self.waker.clone() }
    }
}

impl<N> FabricRemote<N> {
    pub(crate) fn new(inbox: Arc<Inbox<N>>, waker: Waker) -> Self {
        FabricRemote { inbox, waker }
    }

    fn say(&self, command: Command<N>) {
        self.inbox.put(command);
        self.waker.wake();
    }

    /// Begins a job of the system with this number; the answer is whether it is new.
    pub fn admit(&self, job: JobId, system: u8, node: N, reply: Reply<bool>) {
        self.say(Command::Admit { job, system, node: Box::new(node), reply });
    }

    /// Begins a job that shares a node with the jobs that are there: `join` is asked of every node, and `node` is taken where none is
    /// shared. The answer is whether the job is new, or why the shared node does not take it.
    pub fn share(&self, job: JobId, system: u8, node: N, join: Join<N>, reply: Reply<Result<bool, String>>) {
        self.say(Command::Share { job, system, node: Box::new(node), join, reply });
    }

    /// Ends a job; the answer is whether it was there.
    pub fn end(&self, job: JobId, reply: Reply<bool>) {
        self.say(Command::End { job, reply });
    }

    /// How things are.
    pub fn look(&self, reply: Reply<FabricStatus>) {
        self.say(Command::Look { reply });
    }

    /// Begins a stream of background traffic; one with the same id is replaced.
    pub fn start_traffic(&self, config: TrafficConfig) {
        self.say(Command::StartTraffic(config));
    }

    /// Ends a stream; the answer is what it has sent, if it ran.
    pub fn stop_traffic(&self, id: u32, reply: Reply<Option<TrafficCount>>) {
        self.say(Command::StopTraffic { id, reply });
    }
}
