//! A switch of a fabric from outside: start, stop.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use fanin_channel::{Door, ServerTls};
use fanin_control::JobsConfig;
use fanin_core::{NodeId, PortId};
use fanin_fabric::Fabric;
use fanin_net::{FaultPlan, Socket, SocketConfig, Waker};
use fanin_runtime::fabric::{FabricConfig, FabricStatus, FabricSwitch, LinkState};
use fanin_systems::AnyNode;
use fanin_trust::{FabricKey, Protection};
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::control::Control;
use super::memory::Memory;
use super::metrics::render;
use super::nodes::{driver_config, keys_of_node, node_config};
use super::operators::Operators;
use crate::daemon::{StartError, listen};
use crate::http::{Http, well_until};

/// What a switch of a fabric is started with.
#[derive(Clone, Debug)]
pub struct FabricDaemonConfig {
    /// The fabric.
    pub fabric: Fabric,
    /// Which of its switches.
    pub node: NodeId,
    /// Where `/metrics` and `/healthz` are served, if anywhere.
    pub http: Option<SocketAddr>,
    /// Injected into everything that this switch sends, hellos too.
    pub faults: FaultPlan,
    /// Jobs at once.
    pub jobs_max: usize,
    /// Memory of their slots together, in bytes.
    pub memory_bytes_max: u64,
    /// Its certificate, and by what managers are known, where control connections go by TLS. Without it, whoever reaches the port may begin and end jobs.
    pub tls: Option<ServerTls>,
    /// What is done for packets, and the fabric's secret, which its manager and all its switches have; without it, whoever can forge a packet of a job can
    /// change its sums.
    pub packets: Option<(Protection, FabricKey)>,
}

impl FabricDaemonConfig {
    /// A switch with default limits: 1,024 jobs, and as much memory as a switch that is alone has ([`JobsConfig`]).
    pub fn new(fabric: Fabric, node: NodeId) -> Self {
        let JobsConfig { jobs_max, memory_bytes_max, .. } = JobsConfig::default();
        FabricDaemonConfig { fabric, node, http: None, faults: FaultPlan::default(), jobs_max, memory_bytes_max, tls: None, packets: None }
    }
}

/// The service.
pub struct FabricDaemon;

impl FabricDaemon {
    /// Starts a switch of a fabric in this process, on threads of its own. When this returns, it forwards packets and takes control
    /// connections at its address in the fabric.
    ///
    /// # Errors
    /// [`StartError`] with the address and the kernel's reason.
    pub fn start(config: FabricDaemonConfig) -> Result<FabricDaemonHandle, StartError> {
        let FabricDaemonConfig { fabric, node, http, faults, jobs_max, memory_bytes_max, tls, packets } = config;
        let door = tls.map(Door::open).transpose().map_err(StartError::Tls)?;
        let operators = Operators::load(&fabric).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        let address = fabric.node(node).address;
        let control = listen("control connections", address)?;
        let http = http.map(|address| listen("HTTP", address)).transpose()?;
        let http_address = http.as_ref().map(TcpListener::local_addr).transpose()?;
        let socket = Socket::bind(&SocketConfig::new(address)).map_err(io::Error::other)?;
        let keys = packets.as_ref().map_or_else(Vec::new, |(protection, key)| keys_of_node(&fabric, node, *protection, key));
        let ports = FabricConfig { keys, ..node_config(&fabric, node) };
        let mut switch: FabricSwitch<AnyNode<[u8]>> =
            FabricSwitch::new(socket, &ports, &driver_config(faults, node)).map_err(io::Error::other)?;
        let packets = packets.map(|(protection, key)| (protection, key.check_value()));
        let names: Vec<String> = fabric.map.neighbours(node).iter().map(|next| fabric.name(next.node).to_owned()).collect();
        switch.observe_links(Box::new(move |port: PortId, state: LinkState| {
            let peer = names.get(port.index()).map_or("", String::as_str);
            tracing::info!(peer, state = state.name(), "link");
        }));
        let (remote, waker) = (switch.remote(), switch.waker());
        let instance = u64::from(fanin_runtime::clock::fresh_epoch());
        let memory = Memory::new(memory_bytes_max);
        let (faults, compiles) = (Mutex::default(), Semaphore::new(1));
        let service = Control { fabric: Arc::new(fabric), node, remote, instance, jobs_max, memory, operators, faults, compiles, packets };
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let loop_thread = thread::Builder::new().name("fanin-fabric".into()).spawn(move || {
            let ended = switch.run(&told);
            ended.map(|()| switch.status())
        })?;
        let (end, ending) = oneshot::channel();
        // Nodes are made by so few threads, however many jobs are announced at once.
        let runtime = Builder::new_current_thread().enable_io().enable_time().max_blocking_threads(2).build()?;
        let control_thread = thread::Builder::new().name("fanin-control".into()).spawn(move || {
            let result = runtime.block_on(serve(service, (control, door), http, ending));
            if let Err(error) = result {
                tracing::error!(%error, "control connections are not served any more");
            }
            // A node that is being made for a job is nobody's any more.
            runtime.shutdown_background();
        })?;
        Ok(FabricDaemonHandle { address, http_address, stop, waker, end: Some(end), threads: Some((loop_thread, control_thread)) })
    }
}

/// Serves control connections and metrics until it is told to end.
async fn serve(
    control: Control,
    (listener, door): (TcpListener, Option<Door>),
    http: Option<TcpListener>,
    ending: oneshot::Receiver<()>,
) -> io::Result<()> {
    let control = Arc::new(control);
    let (ask, mut scrapes) = mpsc::channel::<crate::http::Scrape>(16);
    if let Some(listener) = http {
        let http = Http { scrapes: ask.clone(), health: well_until(Arc::default()) };
        tokio::spawn(http.serve(tokio::net::TcpListener::from_std(listener)?));
    }
    tokio::spawn(control.clone().serve(tokio::net::TcpListener::from_std(listener)?, door));
    let answer = async {
        while let Some(scrape) = scrapes.recv().await {
            if let Some(status) = control.look().await {
                // Whoever asked may have gone.
                let _ = scrape.send(render(&control.fabric, control.node, &status));
            }
        }
    };
    tokio::select! {
        () = answer => {}
        // Also where the handle is gone.
        _ = ending => {}
    }
    Ok(())
}

/// A running switch of a fabric. Dropping it ends the switch.
#[derive(Debug)]
pub struct FabricDaemonHandle {
    address: SocketAddr,
    http_address: Option<SocketAddr>,
    stop: Arc<AtomicBool>,
    waker: Waker,
    end: Option<oneshot::Sender<()>>,
    threads: Option<(JoinHandle<io::Result<FabricStatus>>, JoinHandle<()>)>,
}

impl FabricDaemonHandle {
    /// The switch's UDP socket, and where it takes control connections (TCP).
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where `/metrics` and `/healthz` are served, if anywhere.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Whether the switch's loop has ended.
    pub fn has_ended(&self) -> bool {
        self.threads.as_ref().is_none_or(|(switch, _)| switch.is_finished())
    }

    /// Ends the switch; gives what it has done.
    ///
    /// # Errors
    /// Where it has ended without being told to.
    pub fn stop(mut self) -> io::Result<FabricStatus> {
        self.join()
    }

    fn join(&mut self) -> io::Result<FabricStatus> {
        let Some((switch, control)) = self.threads.take() else { return Ok(FabricStatus::default()) };
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        let status = switch.join().unwrap_or_else(|_| Err(io::Error::other("the switch has ended by a bug")));
        drop(self.end.take());
        // It only answers, and nobody asks any more.
        let _ = control.join();
        status
    }
}

impl Drop for FabricDaemonHandle {
    fn drop(&mut self) {
        // Whatever went wrong has been logged.
        let _ = self.join();
    }
}
