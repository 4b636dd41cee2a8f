//! Calls in the background.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fanin_core::CollectiveKind;

use crate::call::{Buffers, CallOp};
use crate::core::Core;
use crate::element::Element;
use crate::error::CommError;
use crate::sparse::{Entries, Given, SparseReport};

/// A vector that is lent to a call in the background.
pub trait Lent: Send + 'static {
    /// Its bytes.
    fn bytes(&mut self) -> &mut [u8];

    /// Input and output, where the result does not take the input's place; then [`Lent::bytes`] is not asked for.
    fn apart(&mut self) -> Option<(&[u8], &mut [u8])> {
        None
    }
}

impl<T: Element> Lent for Vec<T> {
    fn bytes(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(self)
    }
}

/// The vector, and how the call has ended.
type Answer<B> = (B, Result<(), CommError>);

/// A call in the background.
#[derive(Debug)]
pub struct Handle<B> {
    answer: Receiver<Answer<B>>,
    early: Option<Answer<B>>,
}

impl<B> Handle<B> {
    pub(crate) fn new() -> (Self, Sender<Answer<B>>) {
        let (sender, answer) = channel();
        (Handle { answer, early: None }, sender)
    }

    /// Whether the call has ended.
    pub fn is_done(&mut self) -> bool {
        if self.early.is_none() {
            self.early = match self.answer.try_recv() {
                Ok(answer) => Some(answer),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => return true,
            };
        }
        self.early.is_some()
    }

    /// Waits for the end of the call and gives the vector back.
    ///
    /// # Errors
    /// What went wrong; the vector is lost then.
    pub fn wait(self) -> Result<B, CommError> {
        let answer = match self.early {
            Some(answer) => Ok(answer),
            None => self.answer.recv(),
        };
        match answer {
            Ok((vector, result)) => result.map(|()| vector),
            Err(_) => Err(CommError::Closed { job: String::new() }),
        }
    }
}

/// Why a job ends by a bug of a caller, or ours.
const PANICKED: &str = "a call in the background has panicked";

/// Something to run in the background.
pub(crate) trait Run: Send {
    fn run(self: Box<Self>, core: &Core);
}

/// What is called at the end of a call in the background, with its vector.
pub(crate) type Done<B> = Box<dyn FnOnce(B, Result<(), CommError>) + Send>;

pub(crate) struct Task<B> {
    ticket: u64,
    timeout: Duration,
    what: (CollectiveKind, CallOp),
    elements: u64,
    vector: B,
    done: Done<B>,
}

impl<B: Lent> Task<B> {
    pub(crate) fn new(ticket: u64, timeout: Duration, what: (CollectiveKind, CallOp), elements: u64, vector: B, done: Done<B>) -> Self {
        Task { ticket, timeout, what, elements, vector, done }
    }
}

impl<B: Lent> Run for Task<B> {
    fn run(self: Box<Self>, core: &Core) {
        let turn = core.turns.wait(self.ticket, || ());
        core.timeouts.begin(self.timeout);
        // A panic, in a caller's `Lent` or by a bug, ends the job with an error, before the next call begins.
        let Task { what: (kind, op), elements, mut vector, done, .. } = *self;
        let run = AssertUnwindSafe(|| {
            // Asked twice, as what is lent by the first answer is lent to its end.
            match vector.apart().is_some() {
                true => {
                    vector.apart().map_or(Ok(()), |(input, output)| core.run(kind, op, elements, &mut Buffers::Apart { input, output }))
                }
                false => core.run(kind, op, elements, &mut Buffers::InPlace(vector.bytes())),
            }
        });
        let result = catch_unwind(run).unwrap_or_else(|_| Err(core.fail(PANICKED)));
        // Told before the next call begins, so that whoever has seen that end finds this one done.
        if catch_unwind(AssertUnwindSafe(|| done(vector, result))).is_err() {
            core.fail(PANICKED);
        }
        drop(turn);
    }
}

/// A sparse allreduce in the background.
pub(crate) struct SparseTask<F> {
    pub(crate) ticket: u64,
    pub(crate) timeout: Duration,
    pub(crate) given: Given,
    pub(crate) done: F,
}

impl<F: FnOnce(Result<(Entries, SparseReport), CommError>) + Send> Run for SparseTask<F> {
    fn run(self: Box<Self>, core: &Core) {
        let turn = core.turns.wait(self.ticket, || ());
        core.timeouts.begin(self.timeout);
        let SparseTask { given, done, .. } = *self;
        let result = catch_unwind(AssertUnwindSafe(|| core.run_sparse(given))).unwrap_or_else(|_| Err(core.fail(PANICKED)));
        if catch_unwind(AssertUnwindSafe(|| done(result))).is_err() {
            core.fail(PANICKED);
        }
        drop(turn);
    }
}

/// The thread that runs calls in the background; ends when dropped, after its last call.
pub(crate) struct Queue {
    tasks: Option<Sender<Box<dyn Run>>>,
    thread: Option<JoinHandle<()>>,
}

impl Queue {
    pub(crate) fn start(core: Arc<Core>) -> Result<Self, CommError> {
        let (tasks, receiver) = channel::<Box<dyn Run>>();
        let thread = thread::Builder::new()
            .name("fanin-calls".into())
            .spawn(move || receiver.into_iter().for_each(|task| task.run(&core)))
            .map_err(CommError::system("a thread for calls in the background"))?;
        Ok(Queue { tasks: Some(tasks), thread: Some(thread) })
    }

    pub(crate) fn push(&self, task: Box<dyn Run>) {
        if let Some(tasks) = &self.tasks {
            // The thread lives as long as the sender.
            let _ = tasks.send(task);
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        drop(self.tasks.take());
        // Where the thread itself drops the communicator, at the end of a call, it ends right after that.
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }
}
