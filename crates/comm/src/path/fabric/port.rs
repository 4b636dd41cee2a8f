//! This process as a host among others, in a fabric or without any switch: one socket for all of its jobs. Between calls a thread of its own answers neighbours, who would else take the
//! host for dead, and peers that have lost something.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fanin_core::NodeId;
use fanin_daemon::fabric::{driver_config, node_config};
use fanin_fabric::Fabric;
use fanin_net::shm::Waiting;
use fanin_net::{NetError, Socket, SocketConfig, Waker};
use fanin_runtime::{Watch, WorkerDriver};
use fanin_systems::AnyNode;

use crate::config::Config;
use crate::error::CommError;
use crate::lock::locked;

/// After an error of the socket the thread tries again so much later.
const RETRY: Duration = Duration::from_millis(20);

/// How long an address may be taken by a port that is about to be closed.
const CLOSING_LIMIT: Duration = Duration::from_secs(1);

/// A worker's loop over links of a fabric.
pub(crate) type HostDriver = WorkerDriver<AnyNode<[u8]>>;

/// The socket of a host, and who has it.
pub(crate) struct HostPort {
    shared: Arc<Shared>,
    waker: Waker,
    watch: Watch,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    driver: Mutex<HostDriver>,
    /// Somebody wants the driver: the thread gives it up.
    wanted: AtomicBool,
    /// How many do; and that the thread is to end.
    callers: Mutex<(u32, bool)>,
    changed: Condvar,
}

/// Ports of this process, by address and fabric: several communicators of a process are one host.
static PORTS: Mutex<BTreeMap<(SocketAddr, u32), Weak<HostPort>>> = Mutex::new(BTreeMap::new());

impl HostPort {
    /// The port of a host; it is opened where this process does not have it.
    ///
    /// # Errors
    /// [`CommError::System`] where the address cannot be had.
    pub(crate) fn open(fabric: &Fabric, node: NodeId, config: &Config) -> Result<Arc<HostPort>, CommError> {
        let address = fabric.node(node).address;
        let mut ports = locked(&PORTS);
        let key = (address, fabric.fingerprint());
        if let Some(port) = ports.get(&key).and_then(Weak::upgrade) {
            return Ok(port);
        }
        let failed = |reason: String| CommError::System { what: format!("{} of the fabric, at {address}", fabric.name(node)), reason };
        let socket = bind(address).map_err(|error| failed(error.to_string()))?;
        let (of_node, how) = (node_config(fabric, node), driver_config(config.faults, node));
        let mut driver = WorkerDriver::in_fabric(socket, &of_node, &how).map_err(|error| failed(error.to_string()))?;
        driver.set_busy(config.waiting == Waiting::Busy);
        let port = HostPort::around(driver)?;
        ports.retain(|_, port| port.strong_count() > 0);
        ports.insert(key, Arc::downgrade(&port));
        Ok(port)
    }

    /// A host whose socket is there.
    ///
    /// # Errors
    /// [`CommError::System`] where no thread is to be had.
    pub(crate) fn around(mut driver: HostDriver) -> Result<Arc<HostPort>, CommError> {
        let (waker, watch) = (driver.waker(), driver.watch());
        let shared = Arc::new(Shared {
            driver: Mutex::new(driver),
            wanted: AtomicBool::new(false),
            callers: Mutex::new((0, false)),
            changed: Condvar::new(),
        });
        let mine = shared.clone();
        let thread = thread::Builder::new().name("fanin-host".into()).spawn(move || mine.serve());
        let thread = Some(thread.map_err(CommError::system("a thread that answers other hosts"))?);
        Ok(Arc::new(HostPort { shared, waker, watch, thread }))
    }

    /// Does something with the driver, which is the caller's alone meanwhile.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut HostDriver) -> R) -> R {
        locked(&self.shared.callers).0 += 1;
        self.shared.wanted.store(true, Ordering::Release);
        self.waker.wake();
        let result = act(&mut locked(&self.shared.driver));
        let mut callers = locked(&self.shared.callers);
        callers.0 -= 1;
        if callers.0 == 0 {
            self.shared.wanted.store(false, Ordering::Release);
            self.shared.changed.notify_all();
        }
        result
    }

    /// Wakes whoever sleeps in the socket.
    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Counts that any thread may look at.
    pub(crate) fn watch(&self) -> Watch {
        self.watch.clone()
    }
}

impl Drop for HostPort {
    fn drop(&mut self) {
        locked(&self.shared.callers).1 = true;
        self.shared.wanted.store(true, Ordering::Release);
        self.waker.wake();
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // Only then is the socket closed.
            let _ = thread.join();
        }
    }
}

/// Takes the host's address; a port of this process that is about to be closed gives it back in a moment.
fn bind(address: SocketAddr) -> Result<Socket, NetError> {
    let deadline = Instant::now() + CLOSING_LIMIT;
    loop {
        match Socket::bind(&SocketConfig::new(address)) {
            Err(_) if Instant::now() < deadline => thread::sleep(RETRY),
            result => return result,
        }
    }
}

impl Shared {
    /// Answers whoever asks for as long as nobody else has the driver.
    fn serve(&self) {
        loop {
            let mut callers = locked(&self.callers);
            while callers.0 > 0 && !callers.1 {
                callers = self.changed.wait(callers).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            if callers.1 {
                return;
            }
            drop(callers);
            let served = locked(&self.driver).serve_until(&self.wanted);
            if let Err(error) = served {
                tracing::warn!(%error, "the socket towards other hosts has failed");
                thread::sleep(RETRY);
            }
        }
    }
}
