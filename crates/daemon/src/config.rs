//! Where a switch listens, and how much it takes upon itself.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fanin_channel::{ClientTls, ServerTls};
use fanin_control::{FABRIC_BYTES_MAX, FabricFile, JobsConfig, PATIENCE_MS_MAX};
use fanin_fabric::Fabric;
use fanin_net::FaultPlan;
use fanin_trust::{FabricKey, Protection};

/// A fabric that is managed; equal to itself only.
#[derive(Clone, Debug)]
pub struct Managed(pub Arc<Fabric>);

impl PartialEq for Managed {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What a switch is started with.
#[derive(Clone, PartialEq, Debug)]
pub struct DaemonConfig {
    /// Where ranks join: TCP. Port 0 lets the kernel choose. Sockets for vectors are opened at the same IP address or, where that is
    /// unspecified, at the ones that ranks come to.
    pub listen: SocketAddr,
    /// Where `/metrics` and `/healthz` are served, if anywhere.
    pub http: Option<SocketAddr>,
    /// UDP ports for jobs; the kernel chooses where they are not given.
    pub data_ports: Option<RangeInclusive<u16>>,
    /// Limits, and seed of all random numbers.
    pub jobs: JobsConfig,
    /// Injected faults of what jobs send by UDP: for tests and demonstrations.
    pub faults: FaultPlan,
    /// The file of the keys whose tokens admit ranks; without one everybody may join.
    pub keys: Option<PathBuf>,
    /// The certificate by which control connections are TLS; without one they are as they are, and everybody on the way can read them.
    pub tls: Option<ServerTls>,
    /// What is done for packets of jobs that this switch sums for. Their keys are of one life of the switch.
    pub packets: Protection,
    /// The fabric's secret, where this is its manager and packets have keys: its switches have the same.
    pub fabric_key: Option<FabricKey>,
    /// The fabric whose switches sum, where this is its manager: it sums nothing by itself, and opens no sockets for vectors.
    pub fabric: Option<Managed>,
    /// By what the manager of a fabric knows its switches, where it talks to them by TLS.
    pub to_switches: Option<ClientTls>,
    /// A rank of this process whose socket says the same ([`fanin_net::SocketConfig::nearby`]) is reached through memory.
    pub nearby: bool,
    /// Devices at whose entrance a program in the kernel sums for jobs that it can take; none without. Packets are no longer than such a
    /// program takes then ([`DaemonConfig::in_kernel`]).
    pub xdp: Vec<String>,
}

impl DaemonConfig {
    /// A switch with default limits at this address, without HTTP.
    pub fn new(listen: SocketAddr) -> Self {
        let jobs = JobsConfig { seed: fresh_seed(), ..JobsConfig::default() };
        DaemonConfig {
            listen,
            http: None,
            data_ports: None,
            jobs,
            faults: FaultPlan::default(),
            keys: None,
            tls: None,
            packets: Protection::None,
            fabric_key: None,
            fabric: None,
            to_switches: None,
            nearby: false,
            xdp: Vec::new(),
        }
    }

    /// Lets a program in the kernel sum at these devices.
    pub fn in_kernel(&mut self, devices: Vec<String>) {
        self.xdp = devices;
        self.jobs.payload_bytes_max = FABRIC_PAYLOAD_BYTES_MAX;
    }

    /// The manager of a fabric, which is described by `file`, at this address.
    ///
    /// # Errors
    /// In words, where the description is too long to be told to ranks.
    pub fn manager(listen: SocketAddr, fabric: Fabric, file: FabricFile) -> Result<Self, String> {
        if file.text.len() > FABRIC_BYTES_MAX {
            return Err(format!("{} has {} bytes: expected at most {FABRIC_BYTES_MAX}", file.name, file.text.len()));
        }
        let mut config = DaemonConfig::new(listen);
        config.fabric = Some(Managed(Arc::new(fabric)));
        config.jobs.fabric = Some(file);
        // Switches look after their own memory.
        config.jobs.memory_bytes_max = u64::MAX;
        config.jobs.payload_bytes_max = FABRIC_PAYLOAD_BYTES_MAX;
        config.jobs.window_bytes = FABRIC_WINDOW_BYTES;
        Ok(config)
    }

    /// A switch inside of rank 0's process: for its own jobs, and gone with it.
    pub fn embedded(listen: SocketAddr) -> Self {
        let mut config = DaemonConfig { nearby: true, ..DaemonConfig::new(listen) };
        // Rank 0's program says itself how many groups it has and how long they wait. What bounds them is this machine.
        config.jobs.jobs_max = usize::from(u16::MAX);
        config.jobs.connections_max = EMBEDDED_CONNECTIONS_MAX;
        config.jobs.memory_bytes_max = config.jobs.memory_bytes_max.max(physical_memory_bytes() / 2);
        config.jobs.patience_ms_max = PATIENCE_MS_MAX;
        config
    }

    /// How long running jobs may go on when the switch drains.
    pub fn drain_timeout(&self) -> Duration {
        Duration::from_millis(self.jobs.drain_ms)
    }
}

/// Packets of jobs in a fabric, and in the kernel, fit an Ethernet frame, and queues of 64 KiB and more hold a window.
const FABRIC_PAYLOAD_BYTES_MAX: u32 = 1_408;
const FABRIC_WINDOW_BYTES: u32 = 64 * FABRIC_PAYLOAD_BYTES_MAX;

/// Connections of a switch inside of rank 0's process: more than descriptors that a process can have.
const EMBEDDED_CONNECTIONS_MAX: usize = 1 << 20;

/// Memory of this machine, in bytes; 0 where that is not known.
fn physical_memory_bytes() -> u64 {
    let said = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = said.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// A seed that two switches, and two lives of one, do not share: time and process. It keeps jobs apart and keeps no secret.
fn fresh_seed() -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    fanin_core::hash::mix(time, u64::from(std::process::id()))
}
