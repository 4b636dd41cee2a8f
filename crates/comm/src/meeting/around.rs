//! Which ranks of a job in a fabric are on which host of it, found out before the job is joined. Ranks of one host share its link: they sum in shared
//! memory first, and one of them goes over the fabric.
//!
//! All ranks meet at the manager in a job `NAME/ranks` that sums nothing. What they tell each other there:
//!
//! | key | whose | value |
//! |---|---|---|
//! | `port` | the first rank of a host | that it has the host's port, or why not |
//! | `local` | the first rank of a host that has others | where the host's ranks meet |
//! | `place` | rank 0, where some host's port is not to be had | where all ranks meet instead |
//! | `seen` | every rank | that it knows all of the above |

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use fanin_control::{Admitted, ByHosts, ClientMessage, ClientSession, Join, ONLY_MEETS, SwitchMessage, encode};
use fanin_core::NodeId;
use fanin_fabric::Fabric;
use fanin_systems::{RingParameters, System};

use super::fabric::{Place, locate};
use super::{SOFTWARE, Talk, Wanted, connect, resolve};
use crate::config::{Config, Meeting, TIMEOUT_MAX};
use crate::error::CommError;
use crate::host::Host;
use crate::path::fabric::port::HostPort;
use crate::reach::Reach;
use crate::runner::Runner;

const PORT: &str = "port";
const LOCAL: &str = "local";
const PLACE: &str = "place";
const SEEN: &str = "seen";
const OK: &str = "ok";

/// A host of the fabric, and the ranks of the job that are on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Neighbours {
    pub(crate) name: String,
    /// In rising order; the first one goes over the fabric for all.
    pub(crate) ranks: Vec<u32>,
}

/// What a rank has found.
pub(crate) struct Around {
    /// By the first rank of each.
    pub(crate) hosts: Vec<Neighbours>,
    /// This rank's place in the fabric, where it goes there.
    pub(crate) place: Option<Place>,
    /// Where the ranks of this host meet, if there are several.
    pub(crate) local: Option<String>,
    /// Where all ranks meet, if the fabric is not to be had, and why not.
    pub(crate) elsewhere: Option<(String, String)>,
    /// The switch in this process that others meet at.
    pub(crate) host: Option<Host>,
}

impl Around {
    /// The host that a rank is on, and its place among the ranks there.
    pub(crate) fn of(&self, rank: u32) -> (usize, usize) {
        place_of(&self.hosts, rank)
    }

    /// The ranks of a host meet on loopback, and speak plainly there. Another place can only have been made up, and nobody goes there.
    ///
    /// # Errors
    /// [`CommError::Failed`], which names who has said so, and what.
    pub(crate) fn check_local(&self, config: &Config) -> Result<(), CommError> {
        let Some(place) = &self.local else { return Ok(()) };
        if place.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback()) {
            return Ok(());
        }
        let first = self.hosts[self.of(config.rank).0].ranks[0];
        let text = format!("rank {first} says that the ranks of its host meet at {place:?}: expected an address of loopback");
        Err(CommError::Failed { job: config.job.clone(), text, suspect_rank: Some(first), kind: None })
    }
}

/// The host that a rank is on, by its number among `hosts`, and the rank's place among the ranks there.
pub(crate) fn place_of(hosts: &[Neighbours], rank: u32) -> (usize, usize) {
    let within = |(host, there): (usize, &Neighbours)| there.ranks.iter().position(|one| *one == rank).map(|place| (host, place));
    hosts.iter().enumerate().find_map(within).unwrap_or_default()
}

/// Finds out who is where. All ranks of a job do.
///
/// # Errors
/// [`CommError`], within the configured timeout.
pub(crate) fn look(config: &Config) -> Result<Around, CommError> {
    let deadline = Instant::now() + config.timeout;
    let Meeting::Fabric(text) = &config.meeting else { return Err(crate::ConfigError::NoMeeting { world: config.world }.into()) };
    let manager = resolve(text, deadline)?;
    let stream = connect(config, &Reach::of(config), (manager, "the manager of the fabric"), deadline)?;
    let local = stream.local_addr().map_err(CommError::system("the control connection"))?.ip();
    let of_ranks = Config { job: format!("{}/ranks", config.job), ..config.clone() };
    let named = |error| match error {
        CommError::Failed { text, suspect_rank, kind, .. } => CommError::Failed { job: config.job.clone(), text, suspect_rank, kind },
        other => other,
    };
    let talk = Talk::new(&of_ranks, stream, deadline, (manager, &Runner::Manager));
    Looking { config, talk, local, manager, found: Found::default() }.run().map_err(named)
}

/// What the ranks have told each other, by key and rank.
type Found = BTreeMap<(String, u32), String>;

struct Looking<'a> {
    config: &'a Config,
    talk: Talk<'a>,
    local: IpAddr,
    manager: SocketAddr,
    found: Found,
}

impl Looking<'_> {
    fn run(mut self) -> Result<Around, CommError> {
        self.talk.say(&ClientSession::greeting(SOFTWARE))?;
        let file = self.talk.until_greeted()?;
        let (fabric, file, node) = locate(self.config, file, (self.local, self.manager))?;
        // It is never sent to: all that it says is that it is this rank's alone.
        let socket = UdpSocket::bind(SocketAddr::new(self.local, 0)).map_err(CommError::system("a socket"))?;
        let data = socket.local_addr().map_err(CommError::system("a socket"))?;
        let wanted = Wanted { system: System::Ring(RingParameters::default()), ..Wanted::DENSE };
        let join = Join {
            node: Some(fabric.name(node).to_owned()),
            by_hosts: ByHosts::Only(ONLY_MEETS.into()),
            ..super::request(self.talk.config, wanted, data, self.manager)
        };
        self.talk.say(&encode(&ClientMessage::Join(Box::new(join))))?;
        let admitted = self.talk.until_admitted()?;
        let hosts = hosts_of(&admitted);
        let around = self.agree(hosts, (&Arc::new(fabric), file, node))?;
        self.talk.say(&encode(&ClientMessage::Ready))?;
        while !matches!(self.talk.hear()?, SwitchMessage::Start) {}
        self.talk.say(&encode(&ClientMessage::Leave { operation: 0 }))?;
        Ok(around)
    }

    /// Tells the others what this rank has, and hears what they have.
    fn agree(&mut self, hosts: Vec<Neighbours>, (fabric, file, node): (&Arc<Fabric>, String, NodeId)) -> Result<Around, CommError> {
        let rank = self.config.rank;
        let (mine, place_here) = place_of(&hosts, rank);
        let mut around = Around { hosts, place: None, local: None, elsewhere: None, host: None };
        let firsts: Vec<u32> = around.hosts.iter().map(|host| host.ranks[0]).collect();
        if place_here == 0 {
            let port = HostPort::open(fabric, node, self.config);
            let said = port.as_ref().map_or_else(ToString::to_string, |_| OK.to_string());
            around.place = port.ok().map(|port| Place { fabric: fabric.clone(), file, node, port });
            if around.hosts[mine].ranks.len() > 1 {
                let host = self.host(IpAddr::V4(Ipv4Addr::LOCALHOST))?;
                self.share(LOCAL, host.address().to_string())?;
                around.host = Some(host);
            }
            self.share(PORT, said)?;
        }
        self.until(|found| firsts.iter().all(|first| found.contains_key(&(PORT.into(), *first))))?;
        let refused = firsts.iter().find_map(|first| self.found.get(&(PORT.into(), *first)).filter(|said| *said != OK).cloned());
        if let Some(why) = refused {
            if rank == 0 {
                let host = self.host(self.local)?;
                self.share(PLACE, host.address().to_string())?;
                around.host = Some(host);
            }
            self.until(|found| found.contains_key(&(PLACE.into(), 0)))?;
            around.elsewhere = self.found.get(&(PLACE.into(), 0)).map(|place| (place.clone(), why));
        } else if around.hosts[mine].ranks.len() > 1 {
            let first = around.hosts[mine].ranks[0];
            self.until(|found| found.contains_key(&(LOCAL.into(), first)))?;
            around.local = self.found.get(&(LOCAL.into(), first)).cloned();
        }
        self.share(SEEN, OK.into())?;
        let world = self.config.world;
        self.until(|found| (0..world).all(|rank| found.contains_key(&(SEEN.into(), rank))))?;
        Ok(around)
    }

    /// A switch in this process, which stays for those who have not left.
    fn host(&self, ip: IpAddr) -> Result<Host, CommError> {
        let (listen, linger) = (SocketAddr::new(ip, 0), self.config.timeout.min(TIMEOUT_MAX));
        // Nobody on a network sees what the ranks of one host say to each other.
        if ip.is_loopback() { Host::start(listen, linger) } else { Host::start_as(self.config.tls.as_ref(), listen, linger) }
    }

    fn share(&mut self, key: &str, value: String) -> Result<(), CommError> {
        let value = value.chars().take(500).collect();
        self.talk.say(&encode(&ClientMessage::Share { key: key.into(), value }))
    }

    fn until(&mut self, is_enough: impl Fn(&Found) -> bool) -> Result<(), CommError> {
        while !is_enough(&self.found) {
            if let SwitchMessage::Shared { rank, key, value } = self.talk.hear()? {
                self.found.insert((key, rank), value);
            }
        }
        Ok(())
    }
}

/// The hosts that the ranks of a job have named, with their ranks.
fn hosts_of(admitted: &Admitted) -> Vec<Neighbours> {
    let mut named: Vec<(u32, String)> = admitted.peers.iter().map(|peer| (peer.rank, peer.node.clone().unwrap_or_default())).collect();
    named.sort_unstable();
    let mut hosts: Vec<Neighbours> = Vec::new();
    for (rank, name) in named {
        match hosts.iter_mut().find(|host| host.name == name) {
            Some(host) => host.ranks.push(rank),
            None => hosts.push(Neighbours { name, ranks: vec![rank] }),
        }
    }
    hosts
}
