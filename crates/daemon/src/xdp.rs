//! Jobs in the kernel: with `--xdp` a program at the devices' entrance sums for jobs that it can take, and this process goes on with those that
//! it cannot, for as long as it cannot. Without the feature `xdp` there is no such program.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use fanin_control::OpenJob;
use fanin_operator::CustomOperator;
use fanin_runtime::{Snapshot, SwitchDriver};
use fanin_systems::AnyNode;

#[cfg(not(feature = "xdp"))]
pub(crate) use absent::{Plane, Seat};
#[cfg(feature = "xdp")]
pub(crate) use present::{Plane, Seat};

/// What is shown of a job's time in the kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct XdpView {
    /// The program sums for it.
    pub(crate) is_here: bool,
    /// Frames that the program has given to this process, by reason.
    pub(crate) up: BTreeMap<&'static str, u64>,
}

#[cfg(not(feature = "xdp"))]
mod absent {
    use super::*;

    /// There is none.
    #[derive(Debug)]
    pub(crate) enum Plane {}

    /// Nor of this.
    #[derive(Debug)]
    pub(crate) enum Seat {}

    impl Plane {
        pub(crate) fn start(devices: &[String]) -> Result<Option<Self>, String> {
            if devices.is_empty() {
                return Ok(None);
            }
            Err("--xdp: this program was built without it: build it with `cargo build --release --features xdp`, which needs clang, libelf and \
                 zlib (on Debian and Ubuntu: apt install clang libbpf-dev libelf-dev zlib1g-dev pkg-config)"
                .into())
        }

        pub(crate) fn seat(&self, _open: &OpenJob, _operators: &[CustomOperator], _at: (u16, &AnyNode<[u8]>)) -> Result<Seat, String> {
            match *self {}
        }
    }

    impl Seat {
        pub(crate) fn run(&self, _driver: &mut SwitchDriver<AnyNode<[u8]>>, _stop: &AtomicBool) -> std::io::Result<()> {
            match *self {}
        }

        pub(crate) fn leave(&self) {
            match *self {}
        }

        pub(crate) fn add_to(&self, _snapshot: &mut Snapshot) {
            match *self {}
        }

        pub(crate) fn view(&self) -> XdpView {
            match *self {}
        }
    }
}

#[cfg(feature = "xdp")]
mod present {
    use std::net::{IpAddr, SocketAddrV4};
    use std::sync::atomic::Ordering;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    use fanin_core::{Duration as Span, Instant, JobId};
    use fanin_runtime::LATE;
    use fanin_systems::{OfferNumbers, System};
    use fanin_xdp::job::{XdpAtp, XdpCanary, XdpRank};
    use fanin_xdp::layout::OP_REDUCES;
    use fanin_xdp::neighbours::{self, Device};
    use fanin_xdp::ops::OpTable;
    use fanin_xdp::taken::Numbers;
    use fanin_xdp::{Kernel, Refused, Taken, TakenVersion, Up, XdpCounts, XdpJob, XdpSystem, kept, ops, resume};

    use super::*;

    /// How often a job's thread looks whether it is wanted while the program sums. What comes up wakes it at once.
    const LOOK: Duration = Duration::from_millis(100);

    /// A clock packet's scan begins so often within a descriptor's time, and no more often than this.
    const SCANS: u32 = 4;
    const SCAN_MIN: Duration = Duration::from_micros(250);

    /// How long a job stays in user space at least, and at most when it has left the kernel several times.
    const REST_MIN: Duration = Duration::from_secs(1);
    const REST_MAX: Duration = Duration::from_secs(64);

    /// Uses of slots, by number and round, whose elements the program could not add, and copies only where one rank has any.
    fn foreign(versions: &[TakenVersion], ops: &OpTable) -> Vec<(u16, u32)> {
        let is_foreign = |version: &&TakenVersion| ops[usize::from(version.op)] & OP_REDUCES == 0 && !version.sum.is_empty();
        versions.iter().filter(is_foreign).map(|version| (version.slot, version.round)).collect()
    }

    /// The program, and where it is attached.
    #[derive(Debug)]
    pub(crate) struct Plane {
        kernel: Arc<Kernel>,
        devices: Vec<Device>,
    }

    impl Plane {
        /// Loads the program and attaches it; `None` where it is not wanted.
        pub(crate) fn start(names: &[String]) -> Result<Option<Self>, String> {
            if names.is_empty() {
                return Ok(None);
            }
            let devices = names.iter().map(|name| neighbours::device(name)).collect::<Result<Vec<_>, _>>();
            let devices = devices.map_err(|error| format!("--xdp: {error}"))?;
            let mut kernel = Kernel::load().map_err(|error| format!("--xdp: {error}"))?;
            for device in &devices {
                kernel.attach(&device.name, device.ifindex).map_err(|error| format!("--xdp: {error}"))?;
            }
            tracing::info!(devices = names.join(","), "a program in the kernel sums");
            Ok(Some(Plane { kernel: Arc::new(kernel), devices }))
        }

        /// Gives a job to the program, whose packets come to this port.
        ///
        /// # Errors
        /// Why it is not for the program, in words.
        pub(crate) fn seat(
            &self,
            open: &OpenJob,
            operators: &[CustomOperator],
            (port, empty): (u16, &AnyNode<[u8]>),
        ) -> Result<Seat, String> {
            self.try_seat(open, operators, (port, empty)).map_err(|refused| refused.to_string())
        }

        fn try_seat(&self, open: &OpenJob, operators: &[CustomOperator], (port, empty): (u16, &AnyNode<[u8]>)) -> Result<Seat, Refused> {
            let system = XdpSystem::of(&open.system).ok_or_else(|| Refused::System(open.system.name()))?;
            if !operators.is_empty() {
                return Err(Refused::Operators);
            }
            if open.pass.as_ref().is_some_and(|pass| pass.quota.has_rates()) {
                return Err(Refused::Rates);
            }
            let table = neighbours::table().map_err(|error| Refused::Kernel(error.to_string()))?;
            let ranks = open.ranks.iter().enumerate().map(|(rank, socket)| {
                let IpAddr::V4(ip) = socket.ip() else { return Err(Refused::Family(rank)) };
                let found = neighbours::device_of(&table, ip).and_then(|(name, ethernet)| {
                    let device = self.devices.iter().find(|device| device.name == name)?;
                    Some((device, ethernet))
                });
                let (device, ethernet) = found.ok_or_else(|| {
                    let devices: Vec<&str> = self.devices.iter().map(|device| device.name.as_str()).collect();
                    Refused::NoNeighbour { rank, ip, devices: devices.join(", ") }
                })?;
                let socket = SocketAddrV4::new(ip, socket.port());
                let from = neighbours::own_address(socket).map_err(|error| Refused::Kernel(error.to_string()))?;
                Ok(XdpRank { socket, ifindex: device.ifindex, ethernet: [ethernet, device.ethernet], from })
            });
            let canary = match &open.system {
                System::Canary(parameters) => Some(XdpCanary::new(parameters, open.ranks.len() as u32, Span::from_ms(open.patience_ms))?),
                _ => None,
            };
            let atp = match &open.system {
                System::Atp(_) | System::A2tp(_) => Some(XdpAtp::new(&open.system, open.ranks.len() as u32)?),
                _ => None,
            };
            let job = XdpJob {
                job: open.job_id,
                canary,
                atp,
                system,
                epoch: open.epoch,
                pool: open.window,
                block_bytes: open.payload_bytes,
                ops: match system {
                    XdpSystem::SwitchMl => ops::table(open.op.into(), OfferNumbers { fixed_point: open.fixed_point, customs: 0 }),
                    _ => ops::table_of_one(open.op.into()),
                },
                port,
                ranks: ranks.collect::<Result<_, _>>()?,
                late: LATE,
            };
            let place = self.kernel.open(&job)?;
            Ok(Seat {
                kernel: self.kernel.clone(),
                place,
                job: Arc::new(job),
                is_here: Arc::new(AtomicBool::new(true)),
                empty: empty.clone(),
                last: Arc::default(),
            })
        }
    }

    /// A job's place in the kernel.
    #[derive(Clone, Debug)]
    pub(crate) struct Seat {
        kernel: Arc<Kernel>,
        place: u32,
        job: Arc<XdpJob>,
        is_here: Arc<AtomicBool>,
        /// A node that knows nothing.
        empty: AnyNode<[u8]>,
        /// What was counted, when the job has left its place.
        last: Arc<Mutex<Option<XdpCounts>>>,
    }

    impl Seat {
        /// Serves the job until its thread is told to stop: the program does, and this process where packets have come that only it can add,
        /// until none come any more.
        pub(crate) fn run(&self, driver: &mut SwitchDriver<AnyNode<[u8]>>, stop: &AtomicBool) -> std::io::Result<()> {
            let mut rest = REST_MIN;
            let mut before = XdpCounts::default();
            loop {
                let came = std::time::Instant::now();
                if !self.stay(driver, stop, &before)? {
                    return Ok(());
                }
                // A job that leaves again and again is left in peace.
                rest = if came.elapsed() > REST_MAX { REST_MIN } else { rest };
                let Some(counts) = self.go_back(driver, stop, rest)? else { return Ok(()) };
                before = counts;
                rest = (2 * rest).min(REST_MAX);
            }
        }

        /// The program sums. True when the job has left the kernel, whose node then knows what the program knew; false when the thread is told
        /// to stop.
        fn stay(&self, driver: &mut SwitchDriver<AnyNode<[u8]>>, stop: &AtomicBool, before: &XdpCounts) -> std::io::Result<bool> {
            let begin = std::time::Instant::now();
            let scan = self.job.canary.map(|canary| Duration::from_nanos(canary.timeout.as_ps() / 1_000) / SCANS);
            let look = scan.map_or(LOOK, |scan| scan.clamp(SCAN_MIN, LOOK));
            let mut scanned = Duration::ZERO;
            while !stop.load(Ordering::Relaxed) {
                let has_come = driver.wait(look)?;
                let now = begin.elapsed();
                if scan.is_some() && now >= scanned + look {
                    scanned = now;
                    self.kernel.tick(self.place, now.as_nanos() as u64).map_err(std::io::Error::other)?;
                }
                if !has_come {
                    continue;
                }
                let why = self.counts().takes_job(before);
                if why.is_empty() {
                    // Strangers and what is damaged: counted by reason, as ever.
                    driver.turn_away()?;
                    continue;
                }
                let taken = self.kernel.hand_over(self.place).map_err(std::io::Error::other)?;
                self.is_here.store(false, Ordering::Relaxed);
                let links: Vec<(u32, u32)> = taken.numbers.iter().map(|numbers| (numbers.next, numbers.heard)).collect();
                driver.go_on(&links);
                *driver.node_mut() = self.empty.clone();
                resume(driver.node_mut(), Instant::ZERO, (self.job.system, JobId(self.job.job)), &self.job.ops, &taken);
                let why: Vec<&str> = why.iter().map(|up| up.name()).collect();
                tracing::info!(job_id = self.job.job, why = why.join(","), versions = taken.versions.len(), "goes on in user space");
                return Ok(true);
            }
            Ok(false)
        }

        /// This process sums, until for `rest` nothing has begun that the program could not add; then the program goes on. Gives what was
        /// counted up to then; `None` when the thread is told to stop.
        fn go_back(
            &self,
            driver: &mut SwitchDriver<AnyNode<[u8]>>,
            stop: &AtomicBool,
            rest: Duration,
        ) -> std::io::Result<Option<XdpCounts>> {
            let mut last = None;
            loop {
                driver.run_for(stop, rest)?;
                if stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                let taken = match self.job.system {
                    XdpSystem::Canary => Self::without_descriptors(driver),
                    XdpSystem::Atp | XdpSystem::A2tp => Self::without_aggregators(driver),
                    XdpSystem::SwitchMl | XdpSystem::Tree => self.with_versions(driver, &mut last),
                };
                let Some(taken) = taken else { continue };
                let counts = self.counts();
                if let Err(error) = self.kernel.take_back(self.place, self.job.system, &taken) {
                    tracing::warn!(job_id = self.job.job, %error, "stays in user space");
                    continue;
                }
                self.is_here.store(true, Ordering::Relaxed);
                tracing::info!(job_id = self.job.job, versions = taken.versions.len(), "goes on in the kernel");
                return Ok(Some(counts));
            }
        }

        /// What slots hold; `None` where some have been used since for what the program cannot add, or something waits for room, which will have
        /// gone soon. `last`: what of that kind there was when it was last looked.
        fn with_versions(&self, driver: &SwitchDriver<AnyNode<[u8]>>, last: &mut Option<Vec<(u16, u32)>>) -> Option<Taken> {
            let versions = kept(driver.node())?;
            let foreign = foreign(&versions, &self.job.ops);
            if last.as_ref() != Some(&foreign) {
                *last = Some(foreign);
                return None;
            }
            let numbers = driver.links().into_iter().map(|(next, heard)| Numbers { next, heard }).collect();
            Some(Taken { versions, numbers })
        }

        /// What descriptors of Canary hold leaves, as it does when the job leaves the kernel: who was a child asks the leader. `None` where the program
        /// could not tell which numbers of a rank have come, and where something waits for room.
        fn without_descriptors(driver: &mut SwitchDriver<AnyNode<[u8]>>) -> Option<Taken> {
            let past = driver.past()?;
            driver.expire();
            let is_empty = matches!(driver.node(), AnyNode::CanarySwitch(node) if !node.waits_for_room());
            is_empty.then(|| Self::with_numbers(driver, past))
        }

        /// What aggregators hold is lost, as packets are: workers and the server send again what was in them. `None` as of Canary.
        fn without_aggregators(driver: &SwitchDriver<AnyNode<[u8]>>) -> Option<Taken> {
            driver.past().map(|past| Self::with_numbers(driver, past))
        }

        /// Nothing but where numbers of links are; `past` all that have come.
        fn with_numbers(driver: &SwitchDriver<AnyNode<[u8]>>, past: Vec<u32>) -> Taken {
            let numbers = driver.links().into_iter().zip(past).map(|((next, _), heard)| Numbers { next, heard }).collect();
            Taken { versions: Vec::new(), numbers }
        }

        /// The job is over.
        pub(crate) fn leave(&self) {
            let counts = self.kernel.counts(self.place);
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_none() {
                *last = Some(counts);
                self.is_here.store(false, Ordering::Relaxed);
                self.kernel.close(self.place);
            }
        }

        fn counts(&self) -> XdpCounts {
            let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            last.clone().unwrap_or_else(|| self.kernel.counts(self.place))
        }

        /// Adds what the program has done to what this process has done.
        pub(crate) fn add_to(&self, snapshot: &mut Snapshot) {
            let counts = self.counts();
            let all = &mut snapshot.counters;
            all.dropped.iter_mut().zip(&counts.dropped).for_each(|(to, count)| *to += count);
            all.tallies.iter_mut().zip(&counts.tallies).for_each(|(to, count)| *to += count);
            all.retransmitted.iter_mut().zip(&counts.retransmitted).for_each(|(to, count)| *to += count);
            for (peer, rank) in snapshot.peers.iter_mut().zip(&counts.ranks) {
                peer.packets_received += rank.packets_received;
                peer.payload_bytes_received += rank.payload_bytes_received;
                peer.packets_dropped += rank.packets_dropped;
                peer.packets_sent += rank.packets_sent;
                peer.payload_bytes_sent += rank.payload_bytes_sent;
                peer.last.completed += rank.completed;
                peer.last.awaited_ps += rank.awaited.as_ps();
                peer.last.late.iter_mut().zip(rank.late).for_each(|(to, count)| *to += count);
                all.packets_received += rank.packets_received;
                all.payload_bytes_received += rank.payload_bytes_received;
                all.packets_sent += rank.packets_sent;
                all.payload_bytes_sent += rank.payload_bytes_sent;
                all.payload_bytes_to_workers += rank.payload_bytes_sent;
            }
        }

        pub(crate) fn view(&self) -> XdpView {
            let counts = self.counts();
            let up = Up::ALL.iter().map(|up| (up.name(), counts.up_for(*up)));
            XdpView { is_here: self.is_here.load(Ordering::Relaxed), up: up.collect() }
        }
    }
}
