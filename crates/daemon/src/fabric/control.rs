//! Control connections of a switch of a fabric.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fanin_channel::Door;
use fanin_control::fabric::{JobStatus, LastStatus};
use fanin_control::{Decoder, FabricReply, FabricRequest, JobAnnouncement, MAGIC, SwitchHello, SwitchStatus, VERSION, encode};
use fanin_core::{JobId, NodeId, PortId};
use fanin_fabric::Fabric;
use fanin_operator::Faults;
use fanin_runtime::Last;
use fanin_runtime::fabric::{FabricRemote, FabricStatus};
use fanin_systems::AnyNode;
use fanin_trust::Protection;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::memory::Memory;
use super::nodes::{neighbour, port_status, reasons};
use super::operators::{Operators, bring};
use crate::accept::{ACCEPT_PAUSE, EMFILE, ENFILE};
use crate::entrance::{Arrived, Entered};

/// Connections at once; beyond that, the one that has asked nothing for longest makes room.
const CONNECTIONS_MAX: usize = 64;

/// How long a connection may take for its first message.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(5);

/// As good as no limit: who has greeted may have nothing to ask for as long as it likes.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);

/// A number of requests.
type Activity = Arc<AtomicU64>;

/// What a control connection may ask.
pub(crate) struct Control {
    pub(crate) fabric: Arc<Fabric>,
    pub(crate) node: NodeId,
    pub(crate) remote: FabricRemote<AnyNode<[u8]>>,
    /// Tells this process from an earlier one.
    pub(crate) instance: u64,
    /// Jobs at once, and their memory.
    pub(crate) jobs_max: usize,
    pub(super) memory: Memory,
    pub(super) operators: Operators,
    /// Why operators of jobs have failed, by job.
    pub(super) faults: Mutex<BTreeMap<u16, Faults>>,
    /// Operators that jobs bring along are compiled one at a time.
    pub(super) compiles: Semaphore,
    /// What is done for packets, and which key they are made with.
    pub(super) packets: Option<(Protection, String)>,
}

impl Control {
    /// Serves for ever; ends when the runtime does.
    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener, mut door: Option<Door>) {
        let mut open: Vec<(Activity, AbortHandle)> = Vec::new();
        let requests = Activity::default();
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    open.retain(|(_, task)| !task.is_finished());
                    if open.len() >= CONNECTIONS_MAX {
                        // Nobody keeps others out by doing nothing: first goes who has not even said what it is, the oldest of these, and then
                        // who has asked for nothing for longest.
                        let idle = (0..open.len()).min_by_key(|index| open[*index].0.load(Ordering::Relaxed)).unwrap_or(0);
                        open.remove(idle).1.abort();
                    }
                    let (control, requests, last) = (self.clone(), requests.clone(), Activity::default());
                    let mine = last.clone();
                    let arrived = Arrived::at(door.as_mut(), stream);
                    let task = tokio::spawn(async move {
                        if let Err(error) = control.enter(arrived, (&requests, &mine)).await {
                            tracing::warn!(%peer, %error, "a control connection ended early");
                        }
                    });
                    open.push((last, task.abort_handle()));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a control connection");
                    if let Some((_, task)) = open.pop_if(|_| matches!(error.raw_os_error(), Some(EMFILE | ENFILE))) {
                        task.abort();
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Lets a connection in, by TLS where the switch has a certificate.
    async fn enter(&self, arrived: Arrived, activity: (&Activity, &Activity)) -> io::Result<()> {
        match arrived.enter().await {
            Entered::Plain(stream) => self.converse(stream, activity).await,
            Entered::Sealed(stream) => self.converse(stream, activity).await,
            Entered::Unsealed(mut stream, why) => refuse(&mut stream, why).await,
            Entered::Not(why) => Err(io::Error::other(why)),
            Entered::Gone => Ok(()),
        }
    }

    /// `requests` counts those of all connections, and `last` is the number of this one's last.
    async fn converse<S: AsyncRead + AsyncWrite + Unpin>(&self, mut stream: S, (requests, last): (&Activity, &Activity)) -> io::Result<()> {
        let (mut decoder, mut greeted) = (Decoder::new(), false);
        let mut buffer = vec![0; 4_096];
        loop {
            let request = match decoder.next::<FabricRequest>() {
                Ok(Some(request)) => request,
                Ok(None) => {
                    let limit = if greeted { FOREVER } else { HANDSHAKE_LIMIT };
                    let bytes = timeout(limit, stream.read(&mut buffer)).await.map_err(|_| io::ErrorKind::TimedOut)??;
                    if bytes == 0 {
                        return Ok(());
                    }
                    decoder.push(&buffer[..bytes]);
                    continue;
                }
                Err(error) => return refuse(&mut stream, error.to_string()).await,
            };
            last.store(requests.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            let reply = match request {
                FabricRequest::Hello(hello) if hello.magic == MAGIC && hello.version == VERSION => {
                    greeted = true;
                    FabricReply::Hello(self.hello())
                }
                FabricRequest::Hello(hello) => {
                    let text = format!("this switch speaks version {VERSION} of {MAGIC}, not version {} of {}", hello.version, hello.magic);
                    return refuse(&mut stream, text).await;
                }
                _ if !greeted => return refuse(&mut stream, "the first message is not a hello".into()).await,
                FabricRequest::Announce(job) => self.announce(*job).await,
                FabricRequest::End { job } => self.end(job).await,
                FabricRequest::Status => self.status().await,
            };
            stream.write_all(&encode(&reply)).await?;
            stream.flush().await?;
        }
    }

    fn hello(&self) -> SwitchHello {
        SwitchHello {
            magic: MAGIC.into(),
            version: VERSION,
            software: concat!("fanin ", env!("CARGO_PKG_VERSION")).into(),
            switch_instance: self.instance,
            fabric: None,
            wants_token: false,
            packets: self.packets.as_ref().map_or(Protection::None, |(protection, _)| *protection),
            fabric_key: self.packets.as_ref().map(|(_, key)| key.clone()),
        }
    }

    async fn announce(&self, mut job: JobAnnouncement) -> FabricReply {
        let number = job.job;
        let faults = match self.attach(&mut job).await {
            Ok(faults) => faults,
            Err(text) => return FabricReply::Refused { text },
        };
        let running = self.look().await.map_or(0, |status| status.jobs.len());
        if running >= self.jobs_max {
            return FabricReply::Refused { text: format!("{running} jobs run here, and no more may (--jobs-max)") };
        }
        // Before anything is made: memory that a system asks the kernel for in vain ends the process.
        let wants = match job.switch_memory(self.node, &self.fabric.map) {
            Ok(wants) => wants,
            Err(error) => return FabricReply::Refused { text: error.to_string() },
        };
        if let Err(text) = self.memory.could_hold(number, &wants) {
            return FabricReply::Refused { text };
        }
        let (fabric, at) = (self.fabric.clone(), self.node);
        // Nodes have memory for all their slots, which takes a moment to make.
        let made = tokio::task::spawn_blocking(move || {
            let node = job.node_at(at, &fabric.map).map_err(|error| error.to_string())?;
            Ok::<_, String>((job, node))
        });
        let (job, node) = match made.await {
            Ok(Ok((job, Some(node)))) => (job, node),
            Ok(Ok((_, None))) => return FabricReply::Announced { job: number, takes_part: false },
            Ok(Err(text)) => return FabricReply::Refused { text },
            Err(error) => return FabricReply::Refused { text: format!("its node cannot be made: {error}") },
        };
        let took = match self.memory.take(number, &wants) {
            Ok(took) => took,
            Err(text) => return FabricReply::Refused { text },
        };
        let reply = self.begin(job, node).await;
        let is_announced = matches!(reply, FabricReply::Announced { .. });
        if took && !is_announced {
            self.memory.give_back(number);
        }
        if let Some(faults) = faults.filter(|_| is_announced) {
            self.faults().insert(number, faults);
        }
        reply
    }

    /// Gives a job what its operator does, where it names or brings one, and what is told why that fails.
    async fn attach(&self, job: &mut JobAnnouncement) -> Result<Option<Faults>, String> {
        let Some(wanted) = &job.operator else { return Ok(None) };
        let faults = Faults::default();
        if wanted.module.is_none() {
            self.operators.attach(job, &faults)?;
            return Ok(Some(faults));
        }
        let _one = self.compiles.acquire().await.map_err(|_| "the switch is about to end".to_owned())?;
        let (mut brought, told) = (job.clone(), faults.clone());
        let made = tokio::task::spawn_blocking(move || bring(&mut brought, &told).map(|()| brought));
        *job = made.await.map_err(|error| format!("its operator cannot be compiled: {error}"))??;
        Ok(Some(faults))
    }

    async fn begin(&self, job: JobAnnouncement, node: AnyNode<[u8]>) -> FabricReply {
        let (number, system, at) = (job.job, job.system, self.node);
        let (tell, told) = oneshot::channel();
        let fabric = self.fabric.clone();
        self.remote.share(
            JobId(number),
            system.number(),
            node,
            Box::new(move |shared| job.join(shared, at, &fabric.map).map_err(|error| error.to_string())),
            Box::new(|is_new| {
                // Whoever asked may have gone.
                let _ = tell.send(is_new);
            }),
        );
        match told.await {
            Ok(Ok(true)) => {
                tracing::info!(job = number, system = system.name(), "a job begins");
                FabricReply::Announced { job: number, takes_part: true }
            }
            Ok(Err(text)) => FabricReply::Refused { text },
            Ok(Ok(false)) => FabricReply::Refused { text: format!("job {number} runs here already; end it first") },
            Err(_) => FabricReply::Refused { text: "the switch is about to end".into() },
        }
    }

    fn faults(&self) -> MutexGuard<'_, BTreeMap<u16, Faults>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn end(&self, job: u16) -> FabricReply {
        if let Some(fault) = self.faults().remove(&job).as_ref().and_then(Faults::first) {
            tracing::error!(job, fault, "the job's operator has failed");
        }
        let (tell, told) = oneshot::channel();
        self.remote.end(
            JobId(job),
            Box::new(|was_there| {
                // Whoever asked may have gone.
                let _ = tell.send(was_there);
            }),
        );
        match told.await {
            Ok(was_there) => {
                self.memory.give_back(job);
                tracing::info!(job, was_there, "a job ends");
                FabricReply::Ended { job }
            }
            Err(_) => FabricReply::Refused { text: "the switch is about to end".into() },
        }
    }

    /// How things are; `None` where the loop has ended.
    pub(crate) async fn look(&self) -> Option<FabricStatus> {
        let (tell, told) = oneshot::channel();
        self.remote.look(Box::new(|status| drop(tell.send(status))));
        told.await.ok()
    }

    async fn status(&self) -> FabricReply {
        match self.look().await {
            Some(status) => FabricReply::Status(Box::new(self.describe(&status))),
            None => FabricReply::Refused { text: "the switch is about to end".into() },
        }
    }

    /// How often each contributor of a job was the last one.
    fn last_of(&self, job: JobId, status: &FabricStatus) -> Vec<LastStatus> {
        let told = |(port, last): &(PortId, Last)| LastStatus {
            contributor: neighbour(&self.fabric, self.node, *port).to_owned(),
            completed: last.completed,
            awaited_us: last.awaited_ps / 1_000_000,
        };
        status.last.iter().filter(|(of, _)| *of == job).flat_map(|(_, ports)| ports.iter().map(told)).collect()
    }

    /// The status for others.
    fn describe(&self, status: &FabricStatus) -> SwitchStatus {
        let job = |(job, counters): &(JobId, fanin_runtime::Counters)| JobStatus {
            job: job.0,
            packets_received: counters.packets_received,
            packets_sent: counters.packets_sent,
            payload_bytes_to_workers: counters.payload_bytes_to_workers,
            dropped: reasons::dropped(&counters.dropped),
            retransmitted: reasons::retransmitted(&counters.retransmitted),
            counted: reasons::counted(&counters.tallies),
            slot_bytes: counters.slot_bytes,
            slot_bytes_peak: counters.slot_bytes_peak,
            last: self.last_of(*job, status),
            operator_fault: self.faults().get(&job.0).and_then(Faults::first).map(str::to_owned),
        };
        SwitchStatus {
            name: self.fabric.name(self.node).to_owned(),
            ports: status.ports.iter().map(|port| port_status(&self.fabric, self.node, port)).collect(),
            jobs: status.jobs.iter().map(job).collect(),
            dropped: reasons::dropped(&status.counters.dropped),
            forwarded: status.counters.packets_forwarded,
            background_forwarded: status.background_forwarded,
            peers_restarted: status.counters.peers_restarted,
            cpu_seconds: fanin_runtime::clock::process_cpu_time().as_secs_f64(),
            injected: reasons::injected(&status.sent.injected),
            counted: reasons::counted(&status.counters.tallies),
        }
    }
}

/// Says what is wrong, and ends the connection.
async fn refuse<S: AsyncWrite + Unpin>(stream: &mut S, text: String) -> io::Result<()> {
    stream.write_all(&encode(&FabricReply::Refused { text })).await?;
    stream.shutdown().await
}
