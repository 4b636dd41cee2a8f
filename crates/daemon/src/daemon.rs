//! A switch from outside: start, drain, stop.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};

use fanin_channel::Door;
use fanin_control::jobs::Packets;
use fanin_runtime::Statistics;
use fanin_trust::{NoRandomness, Secret};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{self, UnboundedSender};

use crate::config::DaemonConfig;
use crate::fabric::keys_of_hosts;
use crate::gate::Gate;
use crate::service::{Command, Service};
use crate::xdp::Plane;

/// Why a switch cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address is taken, not local, or not permitted.
    #[error("cannot listen for {what} at {address}: {source}")]
    Listen {
        /// For what.
        what: &'static str,
        /// The address asked for.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The program for the kernel is not there, or the kernel does not take it.
    #[error("{0}")]
    Xdp(String),
    /// The keys cannot be read.
    #[error("{0}")]
    Keys(String),
    /// A certificate, its key or a CA cannot be read.
    #[error("{0}")]
    Tls(String),
    /// There are no keys for packets.
    #[error("no keys for packets: {0}")]
    Randomness(#[from] NoRandomness),
    /// Packets of a fabric without a key, and those that a program in the kernel sums, have no keys.
    #[error("packets = {0}: expected none {1}")]
    NoPacketKeys(fanin_trust::Protection, &'static str),
    /// The kernel gives no thread or no event queue.
    #[error("cannot start the switch: {0}")]
    System(#[from] io::Error),
}

/// The switch service.
pub struct Daemon;

impl Daemon {
    /// Starts a switch in this process, on a thread of its own. When this returns, ranks can connect.
    ///
    /// # Errors
    /// [`StartError`] with the address and the kernel's reason.
    pub fn start(config: DaemonConfig) -> Result<DaemonHandle, StartError> {
        let control = listen("control connections", config.listen)?;
        Daemon::start_at(control, config)
    }

    /// As [`Daemon::start`], where ranks connect to this listener.
    ///
    /// # Errors
    /// As [`Daemon::start`].
    pub fn start_at(control: TcpListener, mut config: DaemonConfig) -> Result<DaemonHandle, StartError> {
        let gate = config.keys.as_deref().map(|file| Gate::open(file, config.fabric.is_some())).transpose().map_err(StartError::Keys)?;
        let door = config.tls.take().map(Door::open).transpose().map_err(StartError::Tls)?;
        if let Some(tls) = &config.to_switches {
            tls.config().map_err(StartError::Tls)?;
        }
        config.jobs.wants_pass = gate.is_some();
        if !config.packets.is_none() {
            let protection = config.packets;
            if !config.xdp.is_empty() {
                return Err(StartError::NoPacketKeys(protection, "with --xdp: programs in the kernel cannot check tags"));
            }
            let cables = match (&config.fabric, &config.fabric_key) {
                (Some(_), None) => return Err(StartError::NoPacketKeys(protection, "without the fabric's key")),
                (Some(fabric), Some(key)) => Some(Arc::new(keys_of_hosts(&fabric.0, protection, key))),
                (None, _) => None,
            };
            config.jobs.packets = Some(Packets { protection, secret: Secret::random()?, cables });
        }
        control.set_nonblocking(true)?;
        let http = config.http.map(|address| listen("HTTP", address)).transpose()?;
        let plane = Plane::start(&config.xdp).map_err(StartError::Xdp)?;
        let control_address = control.local_addr()?;
        let http_address = http.as_ref().map(TcpListener::local_addr).transpose()?;
        let (commands, told) = mpsc::unbounded_channel();
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let draining = Arc::new(AtomicBool::new(false));
        let flag = draining.clone();
        let service = move || {
            let result: io::Result<Statistics> =
                runtime.block_on(async { Service::open(config, (control, http), plane, (door, gate), flag)?.run(told).await });
            if let Err(error) = &result {
                tracing::error!(%error, "the switch has ended early");
            }
            result
        };
        let thread = thread::Builder::new().name("fanin-switch".into()).spawn(service)?;
        tracing::info!(control = %control_address, http = http_address.map(tracing::field::display), "the switch is ready");
        Ok(DaemonHandle { control_address, http_address, commands, thread: Some(thread) })
    }
}

/// Listens for TCP connections.
pub(crate) fn listen(what: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    let open = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    open().map_err(|source| StartError::Listen { what, address, source })
}

/// A running switch. Dropping it ends the switch at once, with a word to all ranks.
#[derive(Debug)]
pub struct DaemonHandle {
    control_address: SocketAddr,
    http_address: Option<SocketAddr>,
    commands: UnboundedSender<Command>,
    thread: Option<JoinHandle<io::Result<Statistics>>>,
}

impl DaemonHandle {
    /// Where ranks join.
    pub fn control_address(&self) -> SocketAddr {
        self.control_address
    }

    /// Where `/metrics` and `/healthz` are served, if anywhere.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Takes no new jobs any more; ends when the running ones have ended, or when the time for that is over. Returns at once.
    pub fn drain(&self) {
        // It may have ended already.
        let _ = self.commands.send(Command::Drain);
    }

    /// Ends at once: running jobs fail. Returns at once.
    pub fn stop(&self) {
        let _ = self.commands.send(Command::Stop);
    }

    /// Jobs whose hosts sum by themselves go on elsewhere: their ranks are told so. Returns at once.
    pub fn send_back(&self) {
        let _ = self.commands.send(Command::SendBack);
    }

    /// A way to say [`DaemonHandle::drain`] and [`DaemonHandle::stop`] from another thread, as one that waits for signals.
    pub fn remote(&self) -> DaemonRemote {
        DaemonRemote(self.commands.clone())
    }

    /// Whether the switch has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the switch has ended, that is, after [`DaemonHandle::drain`] or [`DaemonHandle::stop`]; gives what all of its jobs
    /// together have done.
    ///
    /// # Errors
    /// Where it has ended without being told to.
    pub fn wait(mut self) -> io::Result<Statistics> {
        self.join()
    }

    fn join(&mut self) -> io::Result<Statistics> {
        let Some(thread) = self.thread.take() else { return Ok(Statistics::default()) };
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the switch has ended by a bug")))
    }
}

impl Drop for DaemonHandle {
    fn drop(&mut self) {
        self.stop();
        // Whatever went wrong has been logged.
        let _ = self.join();
    }
}

/// Ends a switch from another thread.
#[derive(Clone, Debug)]
pub struct DaemonRemote(UnboundedSender<Command>);

impl DaemonRemote {
    /// As [`DaemonHandle::drain`].
    pub fn drain(&self) {
        let _ = self.0.send(Command::Drain);
    }

    /// As [`DaemonHandle::stop`].
    pub fn stop(&self) {
        let _ = self.0.send(Command::Stop);
    }

    /// As [`DaemonHandle::send_back`].
    pub fn send_back(&self) {
        let _ = self.0.send(Command::SendBack);
    }
}
