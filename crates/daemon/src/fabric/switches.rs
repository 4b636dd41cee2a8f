//! A manager's end of the control connections to all switches of a fabric, each on a thread of its own: a switch that is slow or gone holds no other
//! one up. A switch that was restarted knows nothing of the jobs that run, and is told of them again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use fanin_channel::ClientTls;
use fanin_control::JobAnnouncement;
use fanin_control::fabric::LastStatus;
use fanin_core::NodeId;
use fanin_fabric::Fabric;
use fanin_systems::System;

use super::client::{FabricClient, FabricClientError, Packets};

/// How long a switch may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How often a switch is asked whether it is the one that it was.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// What becomes of a job that is to begin: nothing, or why it cannot.
pub(crate) type Begun = Box<dyn FnOnce(Result<(), String>) + Send>;

/// What a manager sees of its switches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// By name: whether a switch answers.
    Answers(String, bool),
    /// A switch that was restarted does not take a job that runs, for this reason.
    Refuses(u16, String),
    /// By name: which jobs a switch has.
    Jobs(String, BTreeSet<u16>),
    /// At a switch, by its name: who contributes to a job, and how often each was the last one.
    Last(String, u16, Vec<LastStatus>),
    /// The operator that a job has brought along has failed at a switch, in words.
    OperatorFailed(u16, String),
}

/// Is told what is seen.
pub(crate) type Observer = Arc<dyn Fn(Seen) + Send + Sync>;

/// By switch that answers: its neighbours by links that are up, when it was last asked.
type Links = Mutex<BTreeMap<NodeId, Vec<String>>>;

/// What the thread of a switch is to do.
enum Order {
    Begin(Box<JobAnnouncement>, Arc<Beginning>),
    /// A job runs that an earlier manager has begun.
    Adopt(Box<JobAnnouncement>),
    End(u16),
}

/// A job that some switches have still to be told of.
struct Beginning {
    left: AtomicUsize,
    /// The first reason against it, and whom to tell.
    outcome: Mutex<(Option<String>, Option<Begun>)>,
}

impl Beginning {
    fn answered(&self, refused: Option<String>) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if outcome.0.is_none() {
            outcome.0 = refused;
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(tell) = outcome.1.take()
        {
            let result = outcome.0.take().map_or(Ok(()), Err);
            drop(outcome);
            tell(result);
        }
    }
}

/// All switches of a fabric. Its threads end with it.
pub(crate) struct Switches {
    fabric: Arc<Fabric>,
    orders: Vec<Sender<Order>>,
    links: Arc<Links>,
    /// Switches that have no job are asked too how they are.
    asks_all: Arc<AtomicBool>,
}

impl Switches {
    /// Begins to talk to all switches, by `tls` where that is said; none need be there yet. `observe` is told who does not answer any more, and who does again.
    ///
    /// # Errors
    /// Where the kernel gives no thread.
    pub(crate) fn new(fabric: Arc<Fabric>, (tls, packets): (Option<&ClientTls>, &Packets), observe: &Observer) -> std::io::Result<Self> {
        let (mut orders, links, asks_all) = (Vec::new(), Arc::new(Links::default()), Arc::new(AtomicBool::new(false)));
        for number in fabric.map.hosts()..fabric.map.nodes() {
            let (tell, told) = channel();
            let (node, observe) = (NodeId(number), observe.clone());
            let switch = Switch {
                fabric: fabric.clone(),
                tls: tls.cloned(),
                packets: packets.clone(),
                node,
                jobs: BTreeMap::new(),
                client: None,
                instance: None,
                answers: true,
                observe,
                links: links.clone(),
                has: BTreeSet::new(),
                asks_all: asks_all.clone(),
            };
            thread::Builder::new().name(format!("fanin-to-{}", fabric.name(NodeId(number)))).spawn(move || switch.serve(&told))?;
            orders.push(tell);
        }
        Ok(Switches { fabric, orders, links, asks_all })
    }

    /// Whether all switches are asked how they are, also those that have no job: [`Switches::carries`] needs it.
    pub(crate) fn ask_all(&self, ask: bool) {
        self.asks_all.store(ask, Ordering::Relaxed);
    }

    /// Whether a job of these hosts would get through, as far as the switches have told last: by every switch and every link or, where the system
    /// goes on without some, by any way from each host to each other one.
    pub(crate) fn carries(&self, system: &System, hosts: &[String]) -> bool {
        let links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(hosts) = hosts.iter().map(|name| self.fabric.node_named(name)).collect::<Option<Vec<NodeId>>>() else { return false };
        let is_up = |one: NodeId, other: NodeId| {
            let hears =
                |at: NodeId, from: NodeId| links.get(&at).is_some_and(|peers| peers.iter().any(|peer| peer == self.fabric.name(from)));
            let switches = [(one, other), (other, one)].into_iter().filter(|(at, _)| !self.fabric.map.is_host(*at));
            switches.into_iter().all(|(at, from)| hears(at, from))
        };
        let switches = (self.fabric.map.hosts()..self.fabric.map.nodes()).map(NodeId);
        if !system.goes_on_without_switches() {
            let matters = |node: NodeId| !self.fabric.map.is_host(node) || hosts.contains(&node);
            return switches.into_iter().all(|switch| {
                let mut others = self.fabric.map.neighbours(switch).iter().map(|next| next.node).filter(|next| matters(*next));
                links.contains_key(&switch) && others.all(|next| is_up(switch, next))
            });
        }
        let Some(&first) = hosts.first() else { return true };
        let (mut reached, mut left) = (BTreeSet::from([first]), vec![first]);
        while let Some(node) = left.pop() {
            for next in self.fabric.map.neighbours(node) {
                if is_up(node, next.node) && reached.insert(next.node) {
                    left.push(next.node);
                }
            }
        }
        hosts.iter().all(|host| reached.contains(host))
    }

    /// Which hosts are next to a switch, or the host itself, by name.
    pub(crate) fn hosts_at(&self, name: &str) -> Vec<String> {
        let Some(node) = self.fabric.node_named(name) else { return Vec::new() };
        if self.fabric.map.is_host(node) {
            return vec![name.to_owned()];
        }
        let near = self.fabric.map.neighbours(node).iter().map(|next| next.node);
        near.filter(|node| self.fabric.map.is_host(*node)).map(|node| self.fabric.name(node).to_owned()).collect()
    }

    /// The numbers of hosts, by their names.
    ///
    /// # Errors
    /// In words, where there is no such host, or two ranks are one.
    pub(crate) fn hosts(&self, names: &[String]) -> Result<Vec<u32>, String> {
        let mut ranks = BTreeMap::new();
        let number = |(rank, name): (usize, &String)| {
            let known = self.fabric.hosts().find(|host| self.fabric.name(*host) == name);
            let Some(host) = known else {
                let all: Vec<&str> = self.fabric.hosts().take(8).map(|host| self.fabric.name(host)).collect();
                return Err(format!("rank {rank} is host {name:?}: expected a host of the fabric: {}, ...", all.join(", ")));
            };
            match ranks.insert(host, rank) {
                Some(other) => Err(format!("ranks {other} and {rank} are both host {name:?}: a host of a fabric has one rank of a job")),
                None => Ok(host.0),
            }
        };
        names.iter().enumerate().map(number).collect()
    }

    /// Tells all switches that a job begins, and then `begun` whether all have taken it; where one has not, it is ended at the others.
    pub(crate) fn begin(&self, mut job: JobAnnouncement, begun: Begun) {
        if let Err(error) = job.check(&self.fabric.map) {
            return begun(Err(error.to_string()));
        }
        // Only switches run operators.
        job.kernel = None;
        if self.orders.is_empty() {
            return begun(Ok(()));
        }
        let beginning = Arc::new(Beginning { left: AtomicUsize::new(self.orders.len()), outcome: Mutex::new((None, Some(begun))) });
        for orders in &self.orders {
            if orders.send(Order::Begin(Box::new(job.clone()), beginning.clone())).is_err() {
                beginning.answered(Some("the manager is about to end".into()));
            }
        }
    }

    /// Looks after a job that an earlier manager has begun, and that its switches have.
    pub(crate) fn adopt(&self, job: &JobAnnouncement) {
        for orders in &self.orders {
            // A thread that has gone looks after nothing.
            let _ = orders.send(Order::Adopt(Box::new(job.clone())));
        }
    }

    /// Tells all switches that a job is over.
    pub(crate) fn end(&self, job: u16) {
        for orders in &self.orders {
            // A thread that has gone has nothing to end.
            let _ = orders.send(Order::End(job));
        }
    }
}

/// One switch, as its thread has it.
struct Switch {
    fabric: Arc<Fabric>,
    /// By what it is known.
    tls: Option<ClientTls>,
    /// What ranks are told to do for packets.
    packets: Packets,
    node: NodeId,
    /// What it is to know, and whether this life of it has been told.
    jobs: BTreeMap<u16, (Box<JobAnnouncement>, bool)>,
    client: Option<FabricClient>,
    /// Which life of the switch was talked to last.
    instance: Option<u64>,
    /// Whether it has answered last.
    answers: bool,
    observe: Observer,
    links: Arc<Links>,
    /// The jobs that it had when it was last asked.
    has: BTreeSet<u16>,
    asks_all: Arc<AtomicBool>,
}

impl Switch {
    fn serve(mut self, orders: &Receiver<Order>) {
        // It may have jobs of an earlier manager, or not be there yet.
        match self.connected() {
            Ok(_) => self.ask_how_it_is(),
            Err(error @ FabricClientError::Keys { .. }) => tracing::error!(switch = self.name(), %error, "no job gets through this switch"),
            Err(_) => {}
        }
        loop {
            match orders.recv_timeout(LOOK_INTERVAL) {
                Ok(Order::Begin(job, beginning)) => {
                    let refused = self.begin(job).err();
                    beginning.answered(refused);
                }
                Ok(Order::Adopt(job)) => self.adopt(job),
                Ok(Order::End(job)) => self.end(job),
                Err(RecvTimeoutError::Timeout) => self.look(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn name(&self) -> &str {
        self.fabric.name(self.node)
    }

    /// The connection, opened anew where there is none; a switch that has lived before is told of the jobs again.
    fn connected(&mut self) -> Result<&mut FabricClient, FabricClientError> {
        if self.client.is_none() {
            let mut client = FabricClient::connect_by(self.tls.as_ref(), self.fabric.node(self.node).address, ANSWER_LIMIT)?;
            client.agrees(&self.packets)?;
            if self.instance.replace(client.instance()).is_some_and(|known| known != client.instance()) {
                tracing::warn!(switch = self.name(), jobs = self.jobs.len(), "the switch was restarted, and is told of its jobs again");
                self.jobs.values_mut().for_each(|(_, told)| *told = false);
            }
            for (job, told) in self.jobs.values_mut().filter(|(_, told)| !*told) {
                match client.announce(job) {
                    Err(error @ FabricClientError::Refused { .. }) => {
                        // Others are not held up by it; ranks that go on and need the switch find that nothing moves.
                        tracing::error!(job = job.job, %error, "a job that runs is not taken again");
                        if !job.system.goes_on_without_switches() {
                            let text = format!("{} does not take the job again: {error}", self.fabric.name(self.node));
                            (self.observe)(Seen::Refuses(job.job, text));
                        }
                    }
                    result => drop(result?),
                }
                *told = true;
            }
            self.client = Some(client);
        }
        Ok(self.client.as_mut().expect("it is there"))
    }

    /// Asks something; a connection that fails is tried anew once.
    fn ask<R>(&mut self, ask: impl Fn(&mut FabricClient) -> Result<R, FabricClientError>) -> Result<R, FabricClientError> {
        let mut result = self.connected().and_then(&ask);
        if matches!(result, Err(FabricClientError::Connection { .. })) && self.client.take().is_some() {
            result = self.connected().and_then(&ask);
        }
        let answers = !matches!(result, Err(FabricClientError::Connection { .. }));
        if answers != self.answers {
            self.answers = answers;
            (self.observe)(Seen::Answers(self.fabric.name(self.node).to_owned(), answers));
        }
        if !answers {
            self.links.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.node);
        }
        result
    }

    fn begin(&mut self, job: Box<JobAnnouncement>) -> Result<(), String> {
        match self.ask(|client| client.announce(&job)) {
            Ok(true) => drop(self.jobs.insert(job.job, (job, true))),
            Ok(false) => {}
            // It is told when it comes back.
            Err(FabricClientError::Connection { source, .. }) if job.system.goes_on_without_switches() => {
                tracing::warn!(switch = self.name(), job = job.job, %source, "the switch does not answer; the job begins without it");
                self.client = None;
                self.jobs.insert(job.job, (job, false));
            }
            Err(error) => return Err(format!("{}: {error}", self.name())),
        }
        Ok(())
    }

    /// The switch has the job, unless it was restarted as well.
    fn adopt(&mut self, job: Box<JobAnnouncement>) {
        self.ask_how_it_is();
        if self.has.contains(&job.job) {
            self.jobs.insert(job.job, (job, true));
            return;
        }
        match self.ask(|client| client.announce(&job)) {
            Ok(true) => drop(self.jobs.insert(job.job, (job, true))),
            Ok(false) => {}
            Err(FabricClientError::Connection { source, .. }) => {
                tracing::warn!(switch = self.name(), job = job.job, %source, "the switch does not answer; it is told of the job when it does");
                self.client = None;
                self.jobs.insert(job.job, (job, false));
            }
            Err(error) => {
                tracing::error!(switch = self.name(), job = job.job, %error, "a job of an earlier manager is not taken");
                if !job.system.goes_on_without_switches() {
                    let text = format!("{} does not take the job again: {error}", self.fabric.name(self.node));
                    (self.observe)(Seen::Refuses(job.job, text));
                }
            }
        }
    }

    fn end(&mut self, job: u16) {
        if self.jobs.remove(&job).is_some()
            && let Err(error) = self.ask(|client| client.end(job))
        {
            tracing::warn!(switch = self.name(), job, %error, "the switch was not told that a job is over");
        }
    }

    /// Whether the switch is still the one that knows the jobs.
    fn look(&mut self) {
        if self.jobs.is_empty() && !self.asks_all.load(Ordering::Relaxed) {
            return;
        }
        self.ask_how_it_is();
    }

    fn ask_how_it_is(&mut self) {
        match self.ask(FabricClient::status) {
            Ok(status) => {
                let has: BTreeSet<u16> = status.jobs.iter().map(|job| job.job).collect();
                if has != self.has {
                    self.has.clone_from(&has);
                    (self.observe)(Seen::Jobs(self.fabric.name(self.node).to_owned(), has));
                }
                for job in status.jobs.iter().filter(|job| self.jobs.contains_key(&job.job)) {
                    if !job.last.is_empty() {
                        (self.observe)(Seen::Last(self.fabric.name(self.node).to_owned(), job.job, job.last.clone()));
                    }
                    if let Some(fault) = &job.operator_fault {
                        let text = format!("{}: {fault}", self.fabric.name(self.node));
                        (self.observe)(Seen::OperatorFailed(job.job, text));
                    }
                }
                let up = status.ports.into_iter().filter(fanin_control::fabric::PortStatus::is_up).map(|port| port.peer).collect();
                self.links.lock().unwrap_or_else(PoisonError::into_inner).insert(self.node, up);
            }
            Err(_) => self.client = None,
        }
    }
}
