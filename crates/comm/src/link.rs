//! The control connection of a running job: tells the switch that this rank is alive and what it is doing, and hears why a job has failed.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fanin_control::{
    ALIVE_INTERVAL_MS, CallDescription, ClientError, ClientMessage, ClientSession, Failed, FailureKind, SwitchMessage, encode,
};
use fanin_net::Waker;

use crate::config::Notices;
use crate::error::CommError;

/// How often the thread looks at its clock while nothing comes.
const TICK: Duration = Duration::from_millis(100);

/// What the control thread and the callers of collectives share.
pub(crate) struct Link {
    job: String,
    switch: SocketAddr,
    patience: Duration,
    notices: Notices,
    /// Whether it is of interest that the switch shuts down: not where rank 0 runs it and has only left before the others.
    tells_draining: bool,
    writer: Mutex<TcpStream>,
    /// Set with `failure`, so that waiting loops need no lock.
    failed: AtomicBool,
    failure: Mutex<Option<CommError>>,
    closing: AtomicBool,
    /// What the rank is doing.
    current: Mutex<CallDescription>,
    finished_blocks: AtomicU64,
    /// Interrupts a caller that sleeps in its socket.
    waker: Mutex<Option<Waker>>,
}

/// The data behind a lock; also where a thread has panicked with it, since every value in here is whole at all times.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Takes over a connection on which the job has been started.
    ///
    /// # Errors
    /// Where no thread is to be had.
    pub(crate) fn start(
        job: String,
        stream: TcpStream,
        session: ClientSession,
        patience: Duration,
        notices: Notices,
        tells_draining: bool,
    ) -> Result<(Arc<Link>, JoinHandle<()>), CommError> {
        let broken = |error| CommError::system("the control connection")(error);
        let link = Arc::new(Link {
            job,
            switch: stream.peer_addr().map_err(broken)?,
            patience,
            notices,
            tells_draining,
            writer: Mutex::new(stream.try_clone().map_err(broken)?),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            closing: AtomicBool::new(false),
            current: Mutex::new(CallDescription::idle(0)),
            finished_blocks: AtomicU64::new(0),
            waker: Mutex::new(None),
        });
        stream.set_read_timeout(Some(TICK)).map_err(broken)?;
        let mine = link.clone();
        let thread = thread::Builder::new()
            .name("fanin-control".into())
            .spawn(move || mine.run(stream, session))
            .map_err(CommError::system("a thread for the control connection"))?;
        Ok((link, thread))
    }

    /// Whoever sleeps in this socket is woken when the job fails.
    pub(crate) fn set_waker(&self, waker: Waker) {
        *locked(&self.waker) = Some(waker);
    }

    /// Whether the job has failed.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Why the job has failed, if it has.
    pub(crate) fn failure(&self) -> Option<CommError> {
        if self.has_failed() { locked(&self.failure).clone() } else { None }
    }

    /// The job has failed for this reason; the first one stays. Gives the one that stays.
    pub(crate) fn fail(&self, error: CommError) -> CommError {
        let stays = locked(&self.failure).get_or_insert(error).clone();
        self.failed.store(true, Ordering::Release);
        if let Some(waker) = &*locked(&self.waker) {
            waker.wake();
        }
        stays
    }

    /// A failure of this job in these words.
    pub(crate) fn failed_with(&self, text: String, suspect_rank: Option<u32>, kind: Option<FailureKind>) -> CommError {
        CommError::Failed { job: self.job.clone(), text, suspect_rank, kind }
    }

    /// A call begins.
    pub(crate) fn begin(&self, call: CallDescription) {
        *locked(&self.current) = call;
        self.finished_blocks.store(0, Ordering::Relaxed);
    }

    /// A call makes progress.
    #[inline]
    pub(crate) fn progress(&self, finished_blocks: u64) {
        self.finished_blocks.store(finished_blocks, Ordering::Relaxed);
    }

    /// A call has ended; `next` is the number of the next one.
    pub(crate) fn end(&self, next: u32) {
        *locked(&self.current) = CallDescription::idle(next);
    }

    fn call(&self) -> CallDescription {
        let mut call = *locked(&self.current);
        if !call.is_idle() {
            let finished = self.finished_blocks.load(Ordering::Relaxed);
            (call.finished_blocks, call.waiting_block) = (finished, Some(finished));
        }
        call
    }

    /// Nothing moves: the switch is asked to find out why.
    pub(crate) fn report_stall(&self, still: Duration) {
        let idle_ms = still.as_millis() as u64;
        let _ = self.send(&ClientMessage::Stalled { call: self.call(), idle_ms });
    }

    fn send(&self, message: &ClientMessage) -> io::Result<()> {
        locked(&self.writer).write_all(&encode(message))
    }

    /// Says goodbye; the thread ends soon after. `next` is the number of the first operation that this rank has no part in.
    pub(crate) fn close(&self, next: u32) {
        if !self.closing.swap(true, Ordering::AcqRel) {
            let _ = self.send(&ClientMessage::Leave { operation: next });
            // Reading ends at once, and with it the thread; what was written still arrives.
            let _ = locked(&self.writer).shutdown(Shutdown::Both);
        }
    }

    fn run(&self, mut stream: TcpStream, mut session: ClientSession) {
        let mut bytes = vec![0; 16 << 10];
        let (mut heard, mut said, mut sequence) = (Instant::now(), Instant::now(), 0);
        while !self.closing.load(Ordering::Acquire) && !self.has_failed() {
            if let Err(error) = self.hear(&mut session) {
                self.fail(error);
                break;
            }
            match stream.read(&mut bytes) {
                Ok(0) => {
                    self.lost("it has closed the connection: it has ended or was restarted");
                    break;
                }
                Ok(count) => {
                    heard = Instant::now();
                    session.push(&bytes[..count]);
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.lost(&error.to_string());
                    break;
                }
            }
            if said.elapsed() >= Duration::from_millis(ALIVE_INTERVAL_MS) {
                // An error shows at the next read as well.
                let _ = self.send(&ClientMessage::Alive { sequence });
                (said, sequence) = (Instant::now(), sequence + 1);
            }
            if heard.elapsed() > self.patience {
                self.lost(&format!("nothing was heard of it for {:.1} s", heard.elapsed().as_secs_f64()));
            }
        }
        tracing::debug!(job = self.job, "the control thread ends");
    }

    /// The connection is of no use any more, unless this side has closed it.
    fn lost(&self, why: &str) {
        if !self.closing.load(Ordering::Acquire) {
            self.fail(self.failed_with(format!("the switch at {} is lost: {why}", self.switch), None, None));
        }
    }

    fn hear(&self, session: &mut ClientSession) -> Result<(), CommError> {
        loop {
            match session.next() {
                Ok(None) => return Ok(()),
                Ok(Some(SwitchMessage::Describe)) => {
                    let _ = self.send(&ClientMessage::Call { call: self.call() });
                }
                Ok(Some(SwitchMessage::Notice { text })) => self.notices.tell(&format!("job {:?}: {text}", self.job)),
                Ok(Some(SwitchMessage::Draining { after_ms })) if self.tells_draining => {
                    let seconds = after_ms as f64 / 1e3;
                    self.notices.tell(&format!("job {:?}: the switch shuts down in {seconds:.1} s", self.job));
                }
                Ok(Some(_)) => {}
                Err(ClientError::Failed(Failed { kind, text, suspect_rank })) => {
                    return Err(self.failed_with(text, suspect_rank, Some(kind)));
                }
                Err(error) => return Err(self.failed_with(error.to_string(), None, None)),
            }
        }
    }
}
