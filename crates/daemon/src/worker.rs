//! One job at the switch: its socket, its thread, its node.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use fanin_control::jobs::keys_at_switch;
use fanin_control::{OpenJob, header_bytes_max};
use fanin_core::{Address, Duration, ElementOp, JobId, NetworkMap, NodeId, PortId, hash};
use fanin_net::{FaultPlan, NetError, SenderConfig, Socket, SocketConfig, Waker, memory};
use fanin_operator::{CustomOperator, Faults};
use fanin_runtime::{DriverConfig, NodeConfig, PeerConfig, Snapshot, SwitchDriver, Watch};
use fanin_systems::{AnyNode, JobSpec, build, shared};
use fanin_trust::{LinkKeys, Protection};

use crate::pace::{Allowance, Used};
use crate::xdp::{Plane, Seat, XdpView};

/// The first retransmission timeout of ranks. It holds until the first answer, so it may be generous: on a link of 1 Gb/s that several
/// ranks share a full window takes about 50 ms.
pub const RTO_INITIAL: Duration = Duration::from_ms(100);
/// The shortest retransmission timeout of ranks: longer than a process waits for its turn when there are more of them than cores (2 ms
/// made needless retransmissions under load), short enough to recover quickly (20 ms halved the goodput at 1 % loss).
pub const RTO_MIN: Duration = Duration::from_ms(5);

/// A job whose thread runs.
pub(crate) struct JobWorker {
    pub(crate) instance: u64,
    pub(crate) port: u16,
    /// Where operators that the job has brought along say how they have failed.
    faults: Faults,
    watch: Watch,
    /// Where a program in the kernel sums for it, or has done so.
    seat: Option<Arc<Seat>>,
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl JobWorker {
    /// Opens a job, with the operators that it has brought along. `on_end` is called by its thread as its last act, with the reason where it has not been told to stop.
    ///
    /// # Errors
    /// Why it cannot be opened, in words.
    pub(crate) fn start(
        open: &OpenJob,
        operators: &[CustomOperator],
        (ports, plane): (&mut Ports, Option<&Plane>),
        (faults, allowance): (FaultPlan, Option<Arc<Allowance>>),
        on_end: impl FnOnce(Option<String>) + Send + 'static,
    ) -> Result<Self, String> {
        let world = open.ranks.len() as u32;
        let told_faults = Faults::default();
        let node = switch_node(open, world, operators, &told_faults)?;
        let socket = ports.bind(open.bind)?;
        let address = Address::switch(NodeId(world));
        let peer = |(rank, socket): (usize, &SocketAddr)| PeerConfig {
            address: Address::worker(NodeId(rank as u32)),
            socket: *socket,
            // The star's switch has worker r at port r.
            port: Some(PortId(rank as u16)),
        };
        let config = NodeConfig {
            address,
            job: JobId(open.job_id),
            system: open.system.number(),
            op: open.op.into(),
            peers: open.ranks.iter().enumerate().map(peer).collect(),
            routes: Vec::new(),
        };
        let faults = FaultPlan { seed: hash::derive(faults.seed, open.instance), ..faults };
        let sender = SenderConfig { faults, ..SenderConfig::default() };
        let protection = open.packets.as_ref().map_or(Protection::None, |packets| packets.protection);
        let longest = (open.payload_bytes + header_bytes_max(&open.system, open.fixed_point)) as usize;
        let datagram_bytes_max = longest + protection.tag_bytes();
        let epoch = Some(open.epoch);
        let how = DriverConfig { sender, datagram_bytes_max, epoch, peers_epoch: epoch, ..DriverConfig::default() };
        let mut driver = SwitchDriver::new(socket, node, config, &how).map_err(|error| error.to_string())?;
        if let Some(packets) = &open.packets {
            let keys = (0..world).map(|rank| LinkKeys::of_switch(&keys_at_switch(protection, &packets.secret, rank)));
            driver.protect(keys.collect());
        }
        if let Some(allowance) = allowance {
            let mut used = Used::new(allowance, told_faults.clone());
            driver.set_pace(Box::new(move |bytes| used.look(bytes)));
        }
        let (port, waker, watch) = (driver.local_address().port(), driver.waker(), driver.watch());
        let seat = plane.and_then(|plane| take_seat(plane, open, operators, (port, driver.node()))).map(Arc::new);
        let stop = Arc::new(AtomicBool::new(false));
        let (told, in_kernel) = (stop.clone(), seat.clone());
        // In a process of its own the switch gives back what a job had. In rank 0's that is for its program to say.
        let gives_back = !ports.nearby;
        #[cfg(test)]
        let name = open.name.clone();
        let run = move || {
            // A broken invariant ends this job and no other.
            let result = catch_unwind(AssertUnwindSafe(|| {
                #[cfg(test)]
                tests::panic_if_doomed(&name, &mut driver);
                if let Some(seat) = &in_kernel {
                    seat.run(&mut driver, &told)?;
                }
                driver.run(&told)
            }));
            if let Some(seat) = in_kernel {
                seat.leave();
            }
            drop(driver);
            if gives_back {
                memory::give_back();
            }
            on_end(match result {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(format!("its socket failed: {error}")),
                Err(_) => Some("it ended by a bug; the switch's log has more".into()),
            });
        };
        let thread = thread::Builder::new().name(format!("fanin-job-{}", open.job_id)).spawn(run).map_err(|error| {
            if let Some(seat) = &seat {
                seat.leave();
            }
            format!("no thread for it: {error}: wait until a job has ended, or let the switch have more (`ulimit -u`)")
        })?;
        Ok(JobWorker { instance: open.instance, port, faults: told_faults, watch, seat, stop, waker, thread: Some(thread) })
    }

    /// Makes the thread end soon.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
    }

    /// Waits for the end of the thread.
    pub(crate) fn join(mut self) -> Snapshot {
        if let Some(thread) = self.thread.take() {
            // A panic was caught and told already.
            let _ = thread.join();
        }
        self.read()
    }

    /// How an operator that the job has brought along has failed, if one has; the counts say on whose contribution.
    pub(crate) fn operator_fault(&self) -> Option<&str> {
        self.faults.first()
    }

    /// What has been done up to now.
    pub(crate) fn read(&self) -> Snapshot {
        let mut snapshot = self.watch.read();
        if let Some(seat) = &self.seat {
            seat.add_to(&mut snapshot);
        }
        snapshot
    }

    /// Of its time in the kernel, if it has had any.
    pub(crate) fn in_kernel(&self) -> Option<XdpView> {
        self.seat.as_ref().map(|seat| seat.view())
    }
}

/// No thread is left behind, whatever happens to the service.
impl Drop for JobWorker {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Gives a job to the program in the kernel, if that takes it; says why not.
fn take_seat(plane: &Plane, open: &OpenJob, operators: &[CustomOperator], at: (u16, &AnyNode<[u8]>)) -> Option<Seat> {
    match plane.seat(open, operators, at) {
        Ok(seat) => Some(seat),
        Err(why) => {
            tracing::info!(job = open.name, job_id = open.job_id, why, "sums in user space");
            None
        }
    }
}

/// The node of a job's only switch.
fn switch_node(open: &OpenJob, world: u32, operators: &[CustomOperator], faults: &Faults) -> Result<AnyNode<[u8]>, String> {
    let op = ElementOp::from(open.op);
    let hosts: Vec<NodeId> = (0..world).map(NodeId).collect();
    let spec = JobSpec {
        id: JobId(open.job_id),
        hosts: &hosts,
        servers: &[],
        system: open.system,
        op: op.into(),
        element_bytes: op.dtype.bytes() as u32,
        payload_bytes: open.payload_bytes,
        window: open.window,
        reliable: true,
        rto_initial: RTO_INITIAL,
        rto_min: RTO_MIN,
        patience: Duration::from_ms(open.patience_ms),
        seed: open.seed,
    };
    let (map, at) = (NetworkMap::star(world), Address::switch(NodeId(world)));
    let nodes = build::<[u8]>(&spec, &map).map_err(|error| error.to_string())?;
    let own = nodes.others.into_iter().find(|placed| placed.at == at).map(|placed| placed.node);
    // Jobs of ATP and A2TP share aggregators where they share a thread, as in a fabric; here each job has its own.
    let shares = shared::<[u8]>(&[spec], &map).map_err(|(_, error)| error.to_string())?;
    let placed = own.or_else(|| shares.into_iter().find(|shared| shared.placed.at == at).map(|shared| shared.placed.node));
    let mut node = placed.ok_or_else(|| format!("the system {} has nothing to do at a switch", open.system.name()))?;
    check_lengths(open, operators)?;
    let custom = operators.iter().map(|operator| operator.payload_op(faults)).collect();
    // Systems with one element type and operator leave it at that.
    if !node.offer_with(open.fixed_point, custom) && !operators.is_empty() {
        return Err(format!("the system {} reduces by built-in operators only", open.system.name()));
    }
    Ok(node)
}

/// The most that accumulators of a job may need where they are longer than elements, in bytes.
const ACCUMULATORS_BYTES_MAX: usize = 64 << 20;

/// Whether packets have room for an element, and the switch for what accumulates.
fn check_lengths(open: &OpenJob, operators: &[CustomOperator]) -> Result<(), String> {
    let (payload, slots) = (open.payload_bytes as usize, 2 * open.window as usize);
    for operator in operators {
        let (name, layout) = (operator.name(), operator.layout());
        if layout.element_bytes > payload {
            return Err(format!(
                "operator `{name}`: element_bytes = {}: expected at most {payload}, what a packet carries",
                layout.element_bytes
            ));
        }
        let bytes = slots * (payload / layout.element_bytes) * layout.accumulator_bytes;
        if layout.is_beside() && bytes > ACCUMULATORS_BYTES_MAX {
            return Err(format!(
                "operator `{name}`: accumulators for a window of {} packets need {bytes} bytes: expected at most {ACCUMULATORS_BYTES_MAX}; \
                 a smaller window will do",
                open.window
            ));
        }
    }
    Ok(())
}

/// The UDP ports for jobs.
pub(crate) struct Ports {
    range: Option<RangeInclusive<u16>>,
    nearby: bool,
    /// Goes round, so that a port rests for as long as possible before it gets another job.
    next: u16,
}

impl Ports {
    pub(crate) fn new(range: Option<RangeInclusive<u16>>, nearby: bool) -> Self {
        let next = range.as_ref().map_or(0, |range| *range.start());
        Ports { range, nearby, next }
    }

    fn bind(&mut self, ip: std::net::IpAddr) -> Result<Socket, String> {
        let nearby = self.nearby;
        let open = |port| Socket::bind(&SocketConfig { nearby, ..SocketConfig::new(SocketAddr::new(ip, port)) });
        let Some(range) = self.range.clone() else { return open(0).map_err(|error| error.to_string()) };
        for _ in range.clone() {
            let port = self.next;
            self.next = if port == *range.end() { *range.start() } else { port + 1 };
            match open(port) {
                Err(NetError::Bind { source, .. }) if source.kind() == std::io::ErrorKind::AddrInUse => {}
                result => return result.map_err(|error| error.to_string()),
            }
        }
        Err(format!(
            "no UDP port is free at {ip} from {} to {}: each job has one; wait until a job has ended, or start the switch with more `--data-ports`",
            range.start(),
            range.end()
        ))
    }
}

/// Jobs by number.
pub(crate) type JobWorkers = BTreeMap<u16, JobWorker>;

#[cfg(test)]
mod tests;
