//! The process of one host of a fabric. It runs the operations of a job, is the server of others and sends background
//! traffic, as it is told on its standard input, and says on its standard output what came of it.
//!
//! | module | what it holds |
//! |---|---|
//! | `messages` | orders and events, as JSON lines |
//! | `orders` | the thread that reads orders; some are carried out there |
//! | `operations` | a job's operations, one after the other |
//! | `vectors` | their inputs, and the results that they must give |
//! | `sparse` | the same, where vectors are sparse |

pub mod messages;
mod operations;
mod orders;
mod rounded;
mod sparse;
mod vectors;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use fanin_control::JobAnnouncement;
use fanin_core::payload::Sparsity;
use fanin_core::{FixedPoint, JobId, NodeId, PayloadOp};
use fanin_daemon::fabric::{Operators, driver_config, node_config, port_status, reasons};
use fanin_fabric::Fabric;
use fanin_net::{FaultPlan, Socket, SocketConfig};
use fanin_operator::Faults;
use fanin_runtime::clock::process_cpu_time;
use fanin_runtime::fabric::{FabricStatus, TrafficCount};
use fanin_runtime::{RunError, WorkerDriver};
use fanin_systems::AnyNode;

use messages::{Event, HostCounters, HostStatus, Operations, Order, TrafficTotal};
use orders::Orders;
use vectors::VectorConfig;

/// Tells the testbed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Voice {
    leave: fn() -> !,
}

impl Voice {
    /// Says something. Where the testbed has gone, there is nothing left to do.
    pub(crate) fn say(self, event: &Event) {
        let mut line = serde_json::to_string(event).expect("events are plain data");
        line.push('\n');
        let mut out = std::io::stdout().lock();
        if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
            self.leave();
        }
    }

    /// Ends the process.
    pub(crate) fn leave(self) -> ! {
        (self.leave)()
    }
}

/// Is the host of this name in a fabric until the orders on standard input end; events go to standard output. `leave` ends the process in
/// order: it is called where the testbed has gone, from any thread.
///
/// # Errors
/// Where the host's address cannot be had, or its socket fails.
pub fn serve(fabric: Fabric, node: NodeId, faults: FaultPlan, leave: fn() -> !) -> Result<()> {
    let (mut host, orders) = Host::open(fabric, node, faults, Voice { leave })?;
    host.serve(&orders)
}

/// A job, and what is to be done for it.
struct Job {
    number: u16,
    rank: u32,
    workers: u32,
    payload_bytes: u32,
    operations: Vec<Operations>,
    vectors: VectorConfig,
    /// How elements become integers on the wire, where they do.
    fixed_point: Option<FixedPoint>,
    /// Where vectors are sparse, the share of the indices at which a worker has something.
    sparsity: Option<Sparsity>,
    /// What reduces sparse vectors: a built-in operator, or one of the fabric's own.
    reduces: PayloadOp,
}

/// The host.
struct Host {
    fabric: Arc<Fabric>,
    node: NodeId,
    voice: Voice,
    driver: WorkerDriver<AnyNode<[u8]>>,
    op: fanin_core::ElementOp,
    operators: Operators,
    /// Why an operator has failed here, if one has.
    faults: Faults,
    job: Option<Job>,
}

impl Host {
    fn open(fabric: Fabric, node: NodeId, faults: FaultPlan, voice: Voice) -> Result<(Self, Orders)> {
        let socket = Socket::bind(&SocketConfig::new(fabric.node(node).address))?;
        let mut driver = WorkerDriver::in_fabric(socket, &node_config(&fabric, node), &driver_config(faults, node))?;
        let operators = Operators::load(&fabric).map_err(anyhow::Error::msg)?;
        let fabric = Arc::new(fabric);
        voice.say(&Event::Ready { name: fabric.name(node).into(), node: node.0, address: driver.local_address().to_string() });
        driver.observe_links(Box::new(move |_, state| voice.say(&Event::Link { state: state.name().into() })));
        let orders = Orders::listen(fabric.clone(), node, voice, driver.remote(), driver.waker());
        driver.set_stop_flag(orders.orphaned.clone());
        Ok((
            Host { fabric, node, voice, driver, op: fanin_core::ElementOp::F32_SUM, operators, faults: Faults::default(), job: None },
            orders,
        ))
    }

    /// Does what it is told, until there are no orders any more.
    fn serve(&mut self, orders: &Orders) -> Result<()> {
        loop {
            match orders.take() {
                Some(Ok(Order::Job { job, operations, vector_seed, are_rounded })) => {
                    if let Err(text) = self.begin(*job, operations, (vector_seed, are_rounded)) {
                        self.voice.say(&Event::Refused { order: "job".into(), text });
                    }
                }
                Some(Ok(Order::Start { job })) => match self.job.take().filter(|own| own.number == job) {
                    Some(own) => self.run_job(&own)?,
                    None => self.voice.say(&Event::Refused { order: "start".into(), text: format!("job {job} is not ready here") }),
                },
                Some(Ok(Order::End)) => {
                    let status = self.driver.fabric_status();
                    self.voice.say(&Event::Status(Box::new(host_status(&self.fabric, self.node, &status))));
                    return Ok(());
                }
                Some(Ok(order)) => unreachable!("{order:?} is carried out where orders are read"),
                Some(Err(orders::Ended)) => return Ok(()),
                None => self.driver.serve_until(&orders.waiting).context("the socket failed")?,
            }
        }
    }

    /// Takes up what a job has here: its worker, its server or both.
    fn begin(
        &mut self,
        mut job: JobAnnouncement,
        operations: Vec<Operations>,
        (vector_seed, are_rounded): (u64, bool),
    ) -> Result<(), String> {
        self.operators.attach(&mut job, &self.faults)?;
        let job = &job;
        let (number, rank, server) = (job.job, job.rank_of(self.node), job.server_at(self.node));
        if rank.is_none() && server.is_none() {
            return Err(format!("job {number} has neither a worker nor a server here"));
        }
        check(job, &operations)?;
        let fanin_core::JobNodes { workers, others } = job.nodes(&self.fabric.map).map_err(|error| error.to_string())?;
        if let Some(server) = server {
            let placed = others.into_iter().find(|placed| placed.at == server).ok_or("the job has no server")?;
            if !self.driver.add_server(JobId(number), job.system.number(), placed.node) {
                return Err(format!("the server of job {number} is here already"));
            }
        }
        if let Some(rank) = rank {
            let node = workers.into_iter().nth(rank as usize).ok_or("the job has no such rank")?.node;
            self.op = job.op.into();
            self.driver.set_job(JobId(number), job.system.number(), self.op, node);
            let fixed_point = job.fixed_point();
            if let Some(fixed_point) = fixed_point {
                self.driver.set_fixed_point(fixed_point);
            }
            let (workers, payload_bytes) = (job.hosts.len() as u32, job.payload_bytes);
            let vectors = VectorConfig { seed: vector_seed, scale: vectors::Scale::of(job), are_rounded };
            let sparsity = job.system.sparsity();
            let reduces = job.kernel.clone().unwrap_or_else(|| self.op.into());
            self.job = Some(Job { number, rank, workers, payload_bytes, operations, vectors, fixed_point, sparsity, reduces });
        }
        self.voice.say(&Event::JobReady { job: number, rank, server: server.is_some() });
        Ok(())
    }

    /// Goes on answering peers and neighbours while `work` is done on another thread.
    fn meanwhile<R: Send>(&mut self, work: impl FnOnce() -> R + Send) -> Result<R, RunError> {
        let done = std::sync::atomic::AtomicBool::new(false);
        let waker = self.driver.waker();
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let result = work();
                done.store(true, std::sync::atomic::Ordering::Relaxed);
                waker.wake();
                result
            });
            self.driver.serve_until(&done)?;
            Ok(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }
}

/// Whether a job's operations can be run.
fn check(job: &JobAnnouncement, operations: &[Operations]) -> Result<(), String> {
    let workers = job.hosts.len() as u32;
    for operation in operations {
        let shares = u64::from(fanin_core::CollectiveKind::from(operation.call()).shares(workers));
        if !operation.elements.is_multiple_of(shares) {
            return Err(format!("elements = {}: expected a multiple of {shares}, the number of workers", operation.elements));
        }
        if operation.root >= workers {
            return Err(format!("root = {}: expected a rank below {workers}", operation.root));
        }
    }
    Ok(())
}

fn traffic(count: TrafficCount) -> TrafficTotal {
    TrafficTotal { packets: count.packets, bytes: count.bytes }
}

fn host_counters(status: &FabricStatus) -> HostCounters {
    let counters = &status.counters;
    HostCounters {
        packets_sent: counters.packets_sent,
        packets_received: counters.packets_received,
        payload_bytes_sent: counters.payload_bytes_sent,
        payload_bytes_received: counters.payload_bytes_received,
        marked_received: status.marked_received,
        retransmitted: reasons::retransmitted(&counters.retransmitted),
        begun_anew: (0..)
            .zip(counters.begun_anew)
            .filter(|(_, count)| *count > 0)
            .map(|(generation, count): (u8, _)| (generation.to_string(), count))
            .collect(),
        counted: reasons::counted(&counters.tallies),
        block_ns: counters.block_times.counts().map(|(time, count)| ((time.as_ps() / 1_000).to_string(), count)).collect(),
        dropped: reasons::dropped(&counters.dropped),
        injected: reasons::injected(&status.sent.injected),
    }
}

fn host_status(fabric: &Fabric, node: NodeId, status: &FabricStatus) -> HostStatus {
    let port = status.ports.first().map(|port| port_status(fabric, node, port)).unwrap_or_default();
    HostStatus {
        name: fabric.name(node).into(),
        link: port.state.clone(),
        cpu_seconds: seconds(process_cpu_time()),
        counters: host_counters(status),
        port,
        traffic_sent: traffic(status.traffic_sent),
        traffic_received: traffic(status.traffic_received),
    }
}

fn seconds(span: Duration) -> f64 {
    span.as_secs_f64()
}
