//! A switch: serves its job until it is told to stop.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fanin_core::Node;
use fanin_net::{Socket, Waker};
use fanin_trust::LinkKeys;

use crate::config::{ConfigError, NodeConfig};
use crate::driver::{Driver, DriverConfig, Statistics};
use crate::tensors::Tensors;
use crate::watch::Watch;

/// How long a loop sleeps at most before it looks at its stop flag. With a [`Waker`] the flag is seen at once.
pub(crate) const STOP_CHECK: Duration = Duration::from_millis(100);

/// How soon a switch that rests sees that it is to end.
const REST_STEP: Duration = Duration::from_millis(20);

/// Longer than any time that a switch's node sets itself.
const LONG: fanin_core::Duration = fanin_core::Duration::from_ms(86_400_000);

/// Runs the node of a switch, or any other node that owns no vector.
pub struct SwitchDriver<N> {
    driver: Driver<N>,
    config: NodeConfig,
    pace: Option<Pace>,
}

/// Says how long a switch is to rest, by how many bytes its peers have sent up to now.
pub type Pace = Box<dyn FnMut(u64) -> Duration + Send>;

impl<N: Node<[u8]>> SwitchDriver<N> {
    /// Puts `node` behind `socket`.
    ///
    /// # Errors
    /// [`ConfigError`] where the peers make no sense.
    pub fn new(socket: Socket, node: N, config: NodeConfig, how: &DriverConfig) -> Result<Self, ConfigError> {
        Ok(SwitchDriver { driver: Driver::new(socket, node, &config, how)?, config, pace: None })
    }

    /// Packets between this node and its peers are made with these keys, in the order in which peers were configured; any other is dropped
    /// ([`DropReason::Unauthenticated`](fanin_core::DropReason::Unauthenticated)). Before the first packet.
    pub fn protect(&mut self, keys: Vec<LinkKeys>) {
        self.driver.protect(keys);
    }

    /// Asks `pace` after each turn how long to rest, and reads nothing meanwhile: what comes waits in the socket.
    pub fn set_pace(&mut self, pace: Pace) {
        self.pace = Some(pace);
    }

    /// One turn of the loop, and a rest where it has been too fast.
    fn turn(&mut self, tensors: &mut Tensors<'_>, stop: &AtomicBool) -> io::Result<()> {
        self.driver.turn(tensors, STOP_CHECK)?;
        let Some(pace) = &mut self.pace else { return Ok(()) };
        let mut rest = pace(self.driver.received_bytes);
        while !rest.is_zero() && !stop.load(Ordering::Relaxed) {
            let step = rest.min(REST_STEP);
            std::thread::sleep(step);
            rest -= step;
        }
        Ok(())
    }

    /// Serves until `stop` is set. A [`SwitchDriver::waker`] makes that immediate.
    ///
    /// # Errors
    /// What the kernel reports while waiting or receiving.
    pub fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        let mut tensors = Tensors::none(self.config.op);
        while !stop.load(Ordering::Relaxed) {
            self.turn(&mut tensors, stop)?;
        }
        self.driver.publish_last();
        Ok(())
    }

    /// Waits until something has come or [`SwitchDriver::waker`] is used, but for no longer than `limit`; reads nothing. Says whether
    /// something has come.
    ///
    /// # Errors
    /// What the kernel reports while waiting.
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        self.driver.wait(limit)
    }

    /// Serves until `stop` is set, as [`SwitchDriver::run`] does, but for no longer than `limit`, or 100 ms more where nothing comes.
    ///
    /// # Errors
    /// As [`SwitchDriver::run`].
    pub fn run_for(&mut self, stop: &AtomicBool, limit: Duration) -> io::Result<()> {
        let mut tensors = Tensors::none(self.config.op);
        let begin = std::time::Instant::now();
        while !stop.load(Ordering::Relaxed) && begin.elapsed() < limit {
            self.turn(&mut tensors, stop)?;
        }
        Ok(())
    }

    /// Reads what has come, and counts why it goes no further: a program in the kernel sums, and the node knows nothing. Contributions among it
    /// came before the program went on with the job, and are sent again ([`DropReason::InProgress`](fanin_core::DropReason::InProgress)).
    ///
    /// # Errors
    /// What the kernel reports while receiving.
    pub fn turn_away(&mut self) -> io::Result<()> {
        self.driver.turn_away()
    }

    /// Where links are, for a program in the kernel that goes on with them, and for [`SwitchDriver::go_on`]: for each peer the number of the next
    /// packet to it, and one near those that came last from it.
    pub fn links(&self) -> Vec<(u32, u32)> {
        self.driver.links()
    }

    /// For each peer, a number that all are below that have come from it, where sums would count again what comes twice; `None` while no such number
    /// is known, since a peer's numbers have jumped.
    pub fn past(&self) -> Option<Vec<u32>> {
        self.driver.past()
    }

    /// Lets the node act as if all times were over that it has set itself: what it only keeps for a while leaves, or is given up.
    pub fn expire(&mut self) {
        let mut tensors = Tensors::none(self.config.op);
        let _ = self.driver.call(&mut tensors, |node, now, tx| node.on_timeout(now + LONG, tx));
    }

    /// Goes on with links that a program in the kernel has used up to now: for each peer, in the order in which they were configured, the
    /// number of the next packet to it, and a number that it has used. Only where the epoch was agreed ([`DriverConfig::peers_epoch`]).
    pub fn go_on(&mut self, links: &[(u32, u32)]) {
        self.driver.go_on(links);
    }

    /// The node, to be told what the program in the kernel knows.
    pub fn node_mut(&mut self) -> &mut N {
        self.driver.node_mut().expect("it was given one, and keeps it")
    }

    /// What is done, for another thread to look at while [`SwitchDriver::run`] runs: written down a few times a second.
    pub fn watch(&mut self) -> Watch {
        self.driver.watch()
    }

    /// The address of the socket.
    pub fn local_address(&self) -> SocketAddr {
        self.driver.local_address()
    }

    /// Interrupts the loop from another thread.
    pub fn waker(&self) -> Waker {
        self.driver.waker()
    }

    /// The node, to be looked at.
    pub fn node(&self) -> &N {
        self.driver.node().expect("it was given one, and keeps it")
    }

    /// What has been done so far.
    pub fn statistics(&self) -> Statistics {
        self.driver.statistics()
    }
}
