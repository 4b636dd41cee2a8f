//! A switch of a fabric: forwards what is for others, and runs the nodes of its jobs, until it is told to stop.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use fanin_core::{ElementOp, Node};
use fanin_net::{Socket, Waker};

use super::config::FabricConfig;
use super::inbox::{FabricRemote, FabricStatus};
use super::links::LinkObserver;
use crate::config::ConfigError;
use crate::driver::{Driver, DriverConfig};
use crate::switch::STOP_CHECK;
use crate::tensors::Tensors;

/// A switch with ports. It knows no job until it is told of one by [`FabricSwitch::remote`].
pub struct FabricSwitch<N> {
    driver: Driver<N>,
}

impl<N: Node<[u8]>> FabricSwitch<N> {
    /// A switch behind `socket`.
    ///
    /// # Errors
    /// [`ConfigError`] where the ports make no sense.
    pub fn new(socket: Socket, config: &FabricConfig, how: &DriverConfig) -> Result<Self, ConfigError> {
        Ok(FabricSwitch { driver: Driver::in_fabric(socket, config, how)? })
    }

    /// Serves until `stop` is set. A [`FabricSwitch::waker`] makes that immediate.
    ///
    /// # Errors
    /// What the kernel reports while waiting or receiving.
    pub fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        // Nodes of switches own no vectors, and nothing else depends on the element type.
        let mut tensors = Tensors::none(ElementOp::F32_SUM);
        while !stop.load(Ordering::Relaxed) {
            self.driver.turn(&mut tensors, STOP_CHECK)?;
        }
        Ok(())
    }

    /// Asks and tells from another thread, while [`FabricSwitch::run`] runs.
    pub fn remote(&mut self) -> FabricRemote<N> {
        self.driver.remote()
    }

    /// Calls `observer` whenever a link changes, and now for each.
    pub fn observe_links(&mut self, observer: LinkObserver) {
        self.driver.observe_links(observer);
    }

    /// How things are.
    pub fn status(&mut self) -> FabricStatus {
        self.driver.fabric_status()
    }

    /// The address of the socket.
    pub fn local_address(&self) -> SocketAddr {
        self.driver.local_address()
    }

    /// Interrupts the loop from another thread.
    pub fn waker(&self) -> Waker {
        self.driver.waker()
    }
}
