//! A switch in this process for jobs of which it is rank 0, where the port is not known beforehand.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fanin_channel::{ClientTls, ServerTls};
use fanin_daemon::DaemonHandle;
use fanin_net::FaultPlan;

use crate::config::{self, Config};
use crate::error::CommError;
use crate::meeting;
use crate::reach;

/// How often it is looked whether ranks have left.
const LOOK: Duration = Duration::from_millis(1);

/// A switch in this process.
///
/// Communicators of rank 0 whose [`Meeting::Rendezvous`](crate::Meeting::Rendezvous) is its [`Host::address`] use it, in place of one of
/// their own, and so several jobs can share one. Dropping it waits until other ranks have left the jobs, but not longer than it lingers.
pub struct Host {
    daemon: Option<Arc<DaemonHandle>>,
    address: SocketAddr,
    linger: Duration,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Host {
    /// Starts a switch at `listen`; with port 0 the kernel chooses one.
    ///
    /// # Errors
    /// [`CommError::System`], where nobody can listen there.
    pub fn start(listen: SocketAddr, linger: Duration) -> Result<Self, CommError> {
        Host::start_with(listen, linger, None)
    }

    /// As [`Host::start`], for ranks that go to it by TLS where settings of these names, or the environment behind them, say so: `FANIN_TLS` and its
    /// like. It is known by this process's identity, and knows ranks by what they know it by.
    ///
    /// # Errors
    /// As [`Host::start`]; what is said of TLS makes no sense, or there is no identity.
    pub fn start_by(given: &BTreeMap<&'static str, String>, listen: SocketAddr, linger: Duration) -> Result<Self, CommError> {
        let variable = |name: &str| given.get(name).cloned().or_else(|| std::env::var(name).ok());
        Host::start_as(config::tls_of(variable)?.as_ref(), listen, linger)
    }

    /// As [`Host::start_by`], with settings that were read.
    pub(crate) fn start_as(tls: Option<&ClientTls>, listen: SocketAddr, linger: Duration) -> Result<Self, CommError> {
        let server = tls.and_then(reach::server_of);
        if tls.is_some() && server.is_none() {
            return Err(Config::no_identity().into());
        }
        Host::start_with(listen, linger, server)
    }

    fn start_with(listen: SocketAddr, linger: Duration, tls: Option<ServerTls>) -> Result<Self, CommError> {
        let daemon = meeting::embedded_switch(listen, linger, (FaultPlan::default(), tls))?;
        Ok(Host { address: daemon.control_address(), daemon: Some(daemon), linger })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A communicator that still uses it waits in this place.
        let Some(daemon) = self.daemon.take().and_then(Arc::into_inner) else { return };
        daemon.drain();
        let start = Instant::now();
        while !daemon.has_ended() && start.elapsed() < self.linger {
            thread::sleep(LOOK);
        }
    }
}
