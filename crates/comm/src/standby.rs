//! Where ranks meet when their switch is gone: at rank 0, which keeps an address for that from the beginning and tells it to the others.
//!
//! Nobody listens there as long as the switch lives. What then listens knows who is there, and sums nothing; it looks for the switch, and
//! sends the ranks back when that answers again.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fanin_daemon::{Daemon, DaemonHandle};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with, sockopt};

use crate::config::TIMEOUT_MAX;
use crate::error::CommError;
use crate::meeting::{embedded_config, knock};
use crate::reach::Reach;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1_024;
/// How often the switch is looked for at first; twice as long after each time that the ranks could not go back.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_MAX: Duration = Duration::from_secs(60);
/// How long an attempt to reach it takes at most.
const KNOCK_LIMIT: Duration = Duration::from_millis(500);
/// How soon a thread that waits sees that it is to end.
const TICK: Duration = Duration::from_millis(50);

/// Rank 0's place for the others.
pub(crate) enum Standby {
    /// An address that nobody listens at yet.
    Reserved(OwnedFd, SocketAddr),
    Running(Running),
}

/// Ranks meet here.
pub(crate) struct Running {
    daemon: Arc<DaemonHandle>,
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    watcher: Option<JoinHandle<()>>,
}

impl Standby {
    /// Keeps an address.
    ///
    /// # Errors
    /// [`CommError::System`], where there is none.
    pub(crate) fn reserve(ip: IpAddr) -> Result<Self, CommError> {
        let failed = |reason: std::io::Error| CommError::system("an address where ranks meet without their switch")(reason);
        let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let open = || -> rustix::io::Result<(OwnedFd, SocketAddr)> {
            let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            sockopt::set_socket_reuseaddr(&socket, true)?;
            bind(&socket, &SocketAddr::new(ip, 0))?;
            let address = SocketAddr::try_from(getsockname(&socket)?)?;
            Ok((socket, address))
        };
        let (socket, address) = open().map_err(|error| failed(error.into()))?;
        Ok(Standby::Reserved(socket, address))
    }

    /// Where it is.
    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Standby::Reserved(_, address) | Standby::Running(Running { address, .. }) => *address,
        }
    }

    /// From now on ranks can meet here; `switch` is looked for meanwhile.
    ///
    /// # Errors
    /// [`CommError::System`], where the kernel has no room for it.
    pub(crate) fn start(self, (reach, switch): (&Reach, SocketAddr), timeout: Duration, looks: u32) -> Result<Self, CommError> {
        let (socket, address) = match self {
            running @ Standby::Running(_) => return Ok(running),
            Standby::Reserved(socket, address) => (socket, address),
        };
        let failed =
            |reason: String| CommError::System { what: format!("rank 0 cannot take the place of the switch, at {address}"), reason };
        listen(&socket, BACKLOG).map_err(|error| failed(error.to_string()))?;
        let daemon = Daemon::start_at(TcpListener::from(socket), embedded_config(address, timeout.min(TIMEOUT_MAX)));
        let daemon = Arc::new(daemon.map_err(|error| failed(error.to_string()))?);
        let ends = Arc::new(AtomicBool::new(false));
        let (told, over, reach) = (daemon.remote(), ends.clone(), reach.clone());
        let watcher = thread::Builder::new()
            .name("fanin-standby".into())
            .spawn(move || look_for((&reach, switch), looks, &over, || told.send_back()))
            .map_err(CommError::system("a thread that looks for the switch"))?;
        Ok(Standby::Running(Running { daemon, address, ends, watcher: Some(watcher) }))
    }

    /// What runs in this process, if it does.
    pub(crate) fn daemon(&self) -> Option<Arc<DaemonHandle>> {
        if let Standby::Running(Running { daemon, .. }) = self { Some(daemon.clone()) } else { None }
    }
}

/// Calls `found` whenever the switch answers, again and again, until it is over.
fn look_for((reach, switch): (&Reach, SocketAddr), looks: u32, over: &AtomicBool, found: impl Fn()) {
    let mut pause = LOOK.saturating_mul(1 << looks.min(6)).min(LOOK_MAX);
    loop {
        let begun = Instant::now();
        while begun.elapsed() < pause {
            if over.load(Ordering::Acquire) {
                return;
            }
            thread::sleep(TICK);
        }
        if knock(reach, switch, KNOCK_LIMIT, &|| over.load(Ordering::Acquire)).is_ok() {
            found();
            pause = (pause * 2).min(LOOK_MAX);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}
