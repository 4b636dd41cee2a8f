//! How ranks find each other at the manager of a fabric, and which host of it each one is.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use fanin_control::{
    Admitted, ByHosts, ClientMessage, ClientSession, FabricFile, FailureKind, JobWish, Join, ResumeState, SwitchMessage, encode,
};
use fanin_core::{CollectiveKind, ElementOp, NodeId, Operator};
use fanin_fabric::Fabric;
use fanin_net::Socket;
use fanin_systems::{ExchangeParameters, RingParameters, System};

use super::{NotRejoined, Rejoined, SOFTWARE, Talk, Wanted, connect, count_job, request, resolve};
use crate::config::{Config, Fallback, Meeting};
use crate::error::CommError;
use crate::link::Opened;
use crate::lock::locked;
use crate::path::fabric::port::HostPort;
use crate::reach::Reach;
use crate::runner::Runner;

/// A frame of Ethernet, without headers of IPv6 and UDP.
const ETHERNET_DATAGRAM_BYTES: u32 = 1_452;

/// The fabric, and this process's host in it.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) fabric: Arc<Fabric>,
    /// The name of its file.
    pub(crate) file: String,
    pub(crate) node: NodeId,
    pub(crate) port: Arc<HostPort>,
}

impl Place {
    /// This host's name.
    pub(crate) fn name(&self) -> &str {
        self.fabric.name(self.node)
    }

    /// The rate of this host's link: a host has one.
    pub(crate) fn link_bits_per_second(&self) -> u64 {
        self.fabric.ports(self.node).first().map_or(0, |port| port.settings.bits_per_second)
    }

    /// The numbers of the hosts that a job's ranks are, by rank.
    ///
    /// # Errors
    /// What the manager has said makes no sense.
    pub(crate) fn hosts(&self, admitted: &Admitted) -> Result<Vec<u32>, CommError> {
        let host = |peer: &fanin_control::PeerInfo| {
            let name = peer.node.as_deref().unwrap_or_default();
            let known = self.fabric.hosts().find(|host| self.fabric.name(*host) == name);
            known.map(|host| host.0).ok_or_else(|| CommError::System {
                what: "what the manager has admitted this rank to".into(),
                reason: format!("rank {} is host {name:?}, which is none of {}", peer.rank, self.file),
            })
        };
        admitted.peers.iter().map(host).collect()
    }
}

/// What a communicator is in a fabric, also while it is not there.
#[derive(Clone)]
pub(crate) struct Home {
    pub(crate) place: Place,
    /// The name of the communicator's own job, and what it asks for.
    pub(crate) job: String,
    pub(crate) wanted: Wanted,
}

/// A job that all ranks have joined.
pub(crate) struct Joined {
    pub(crate) opened: Opened,
    pub(crate) place: Place,
    pub(crate) manager: SocketAddr,
}

/// Joins a job at the manager of a fabric; `enter` makes what the job needs of this rank's host before anybody sends a packet. `known`: where
/// this process is in the fabric, if it has been asked before.
///
/// # Errors
/// [`CommError`], within the configured timeout.
pub(crate) fn join(
    config: &Config,
    wanted: Wanted,
    known: Option<&Place>,
    enter: impl FnOnce(&Place, &Admitted) -> Result<(), CommError>,
) -> Result<Joined, CommError> {
    config.tell_unread();
    count_job();
    let deadline = Instant::now() + config.timeout;
    let Meeting::Fabric(text) = &config.meeting else { return Err(crate::ConfigError::NoMeeting { world: config.world }.into()) };
    let manager = resolve(text, deadline)?;
    let stream = connect(config, &Reach::of(config), (manager, "the manager of the fabric"), deadline)?;
    let local = stream.local_addr().map_err(CommError::system("the control connection"))?.ip();
    let mut talk = Talk::new(config, stream, deadline, (manager, &Runner::Manager));
    talk.switch_instance = wanted.switch_instance;
    talk.say(&ClientSession::greeting(SOFTWARE))?;
    let file = talk.until_greeted()?;
    let place = match known {
        Some(place) => place.clone(),
        None => find(config, file, (local, manager))?,
    };
    let join = Join {
        data: place.fabric.node(place.node).address,
        node: Some(place.name().to_owned()),
        path_datagram_bytes: super::path_datagram_bytes(local, manager).min(ETHERNET_DATAGRAM_BYTES),
        ..request(config, wanted, place.fabric.node(place.node).address, manager)
    };
    talk.say(&encode(&ClientMessage::Join(Box::new(join.clone()))))?;
    let admitted = talk.until_admitted()?;
    enter(&place, &admitted)?;
    talk.say(&encode(&ClientMessage::Ready))?;
    while !matches!(talk.hear()?, SwitchMessage::Start) {}
    Ok(Joined { opened: Opened { stream: talk.stream, session: talk.session, join, admitted }, place, manager })
}

/// Joins a job again: over its fabric, for which `enter` makes what it needs of this rank's host, or, where `at` says so, as hosts alone, at the
/// manager or at rank 0. Returns once all ranks have.
///
/// # Errors
/// As [`super::rejoin`].
pub(crate) fn rejoin(
    config: &Config,
    home: &Home,
    at: &super::Place,
    resume: &ResumeState,
    enter: impl Fn(&Config, &Place, &Admitted, ElementOp) -> Result<(), CommError>,
) -> Result<Rejoined, NotRejoined> {
    let deadline = Instant::now() + config.timeout;
    let (is_rank, by_hosts) = (at.runner.is_rank(), matches!(at.by_hosts, ByHosts::Only(_)));
    let config = &Config { job: home.job.clone(), ..config.clone() };
    let Home { place, wanted, .. } = home;
    let (ip, reach) = (place.fabric.node(place.node).address.ip(), Reach::of(config));
    loop {
        let stream = connect(config, &reach, (at.address, if is_rank { "rank 0" } else { "the manager of the fabric" }), deadline)?;
        let mut talk = Talk::new(config, stream, deadline, (at.address, &at.runner));
        let joined = (|| {
            talk.say(&ClientSession::greeting(SOFTWARE))?;
            let local = talk.stream.local_addr().map_err(CommError::system("the control connection"))?.ip();
            let socket = if by_hosts { Some(super::open_socket(if is_rank { local } else { ip }, false)?) } else { None };
            let data = socket.as_ref().map_or(place.fabric.node(place.node).address, Socket::local_address);
            let asked = request(config, *wanted, data, at.address);
            let mut join = Join {
                node: (!is_rank).then(|| place.name().to_owned()),
                path_datagram_bytes: asked.path_datagram_bytes.min(ETHERNET_DATAGRAM_BYTES),
                // Blocks must be what they were.
                wish: JobWish { payload_bytes: Some(resume.payload_bytes), ..asked.wish },
                by_hosts: at.by_hosts.clone(),
                resume: Some(resume.clone()),
                ..asked
            };
            let enter = |admitted: &Admitted| if by_hosts { Ok(()) } else { enter(config, place, admitted, wanted.op) };
            let (admitted, plans) = talk.go_on_with(&join, enter)?;
            join.resume = None;
            Ok::<_, CommError>((join, admitted, socket, plans))
        })();
        match joined {
            Ok((join, admitted, socket, plans)) => {
                return Ok(Rejoined { stream: talk.stream, session: talk.session, join, admitted, socket, plans });
            }
            Err(_) if talk.is_sent_back => return Err(NotRejoined::SentBack),
            // That was still the old manager, which had not quite ended, or the new one was restarted as well.
            Err(_) if talk.is_closed && !is_rank && Instant::now() < deadline => thread::sleep(super::RETRY),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Which host this process is, by the fabric's manager: the first one that it was.
static HERE: Mutex<BTreeMap<SocketAddr, NodeId>> = Mutex::new(BTreeMap::new());

/// As [`join`]; where switches of the fabric do not take the job, it is joined once more, as one of a ring of hosts, which needs none of them: all
/// ranks hear the same reason. Also gives what it is then.
///
/// # Errors
/// As [`join`].
pub(crate) fn join_or_fall_back(
    config: &Config,
    (wanted, kind): (Wanted, CollectiveKind),
    known: Option<&Place>,
    enter: impl Fn(&Place, &Admitted, ElementOp) -> Result<(), CommError>,
) -> Result<(Joined, Wanted), CommError> {
    let at = |config: &Config, wanted: Wanted| {
        let joined = join(config, wanted, known, |place, admitted| enter(place, admitted, wanted.op));
        joined.map(|joined| (joined, wanted))
    };
    match at(config, wanted) {
        Err(CommError::Failed { text, kind: Some(FailureKind::Switch), .. }) if config.fallback != Some(Fallback::Error) => {
            config.notices.tell(&format!("job {:?}: goes on by hosts alone, since {text}", config.job));
            let config = Config { job: format!("{}/by-hosts", config.job), ..config.clone() };
            let ring = System::Ring(RingParameters::default());
            let system = if ring.offers(kind) { ring } else { System::Exchange(ExchangeParameters::default()) };
            // Hosts only add.
            let operator = if wanted.op.operator == Operator::Avg { Operator::Sum } else { wanted.op.operator };
            at(&config, Wanted { system, op: ElementOp { operator, ..wanted.op }, ..wanted })
        }
        other => other,
    }
}

/// Reads the fabric, and takes this rank's host in it.
fn find(config: &Config, file: Option<FabricFile>, from: (IpAddr, SocketAddr)) -> Result<Place, CommError> {
    let (fabric, file, node) = locate(config, file, from)?;
    let port = HostPort::open(&fabric, node, config)?;
    Ok(Place { fabric: Arc::new(fabric), file, node, port })
}

/// Reads the fabric, and finds this rank's host in it; also gives the name of its file.
///
/// # Errors
/// There is no fabric, or none of its hosts is this rank's.
pub(super) fn locate(
    config: &Config,
    file: Option<FabricFile>,
    (local, manager): (IpAddr, SocketAddr),
) -> Result<(Fabric, String, NodeId), CommError> {
    let what = |reason: String| CommError::System { what: format!("the fabric that is managed at {manager}"), reason };
    let Some(FabricFile { name, text }) = file else {
        return Err(what("a switch answers there, and no manager of a fabric: give its address as FANIN_SWITCH".into()));
    };
    let fabric = Fabric::parse(&name, &text).map_err(|error| what(error.to_string()))?;
    let known = locked(&HERE).get(&manager).copied();
    let node = host_of(config, &fabric, local, known).map_err(what)?;
    // A group of ranks numbers its ranks anew, and they are the hosts that they were.
    locked(&HERE).entry(manager).or_insert(node);
    Ok((fabric, name, node))
}

/// The host that a rank is: the one that is named, the one that this process is already or, of those at the address that this process has towards the manager, the only one or, on
/// loopback, the one with the rank's number.
fn host_of(config: &Config, fabric: &Fabric, local: IpAddr, known: Option<NodeId>) -> Result<NodeId, String> {
    let names = |hosts: &[NodeId]| hosts.iter().take(8).map(|host| fabric.name(*host)).collect::<Vec<_>>().join(", ");
    let all: Vec<NodeId> = fabric.hosts().collect();
    if let Some(name) = &config.fabric_host {
        let named = all.iter().copied().find(|host| fabric.name(*host) == name);
        return named.ok_or_else(|| format!("FANIN_FABRIC_HOST = {name}: expected a host of the fabric: {}", names(&all)));
    }
    let here: Vec<NodeId> = all.iter().copied().filter(|host| fabric.node(*host).address.ip() == local).collect();
    if let Some(known) = known {
        return Ok(known);
    }
    match here[..] {
        [only] => Ok(only),
        [] => Err(format!(
            "no host of the fabric has the address {local} that this process has: set FANIN_FABRIC_HOST to one of {}",
            names(&all)
        )),
        _ => here.get(config.rank as usize).copied().ok_or_else(|| {
            let count = here.len();
            format!(
                "{count} hosts have the address {local}, and this is rank {}: expected at most one rank for each: {}",
                config.rank,
                names(&here)
            )
        }),
    }
}

impl Talk<'_> {
    /// What the other side has greeted with: the fabric, where it manages one.
    pub(super) fn until_greeted(&mut self) -> Result<Option<FabricFile>, CommError> {
        while self.session.switch().is_none() {
            self.hear_more()?;
            if let Some(message) = self.session.next().map_err(|error| self.refused(error))? {
                return Err(self.failed(format!("the manager has begun with {message:?}")));
            }
        }
        Ok(self.session.switch().and_then(|hello| hello.fabric.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: &str = "[defaults]\nrate = \"1Mb/s\"\n[leaf_spine]\nleaves = 1\nspines = 1\nhosts_per_leaf = 2\n";
    const APART: &str = "[defaults]\nrate = \"1Mb/s\"\n[[switch]]\nname = \"leaf\"\nlevel = 1\naddress = \"10.0.0.9:7000\"\n\
                         [[host]]\nname = \"a\"\naddress = \"10.0.0.1:7000\"\n[[host]]\nname = \"b\"\naddress = \"10.0.0.2:7000\"\n\
                         [[link]]\nends = [\"a\", \"leaf\"]\n[[link]]\nends = [\"b\", \"leaf\"]\n";

    fn found(text: &str, rank: u32, named: Option<&str>, local: &str) -> Result<String, String> {
        let fabric = Fabric::parse("f.toml", text).unwrap();
        let mut config = Config::new(rank, 2, Meeting::Fabric("m:1".into()));
        config.fabric_host = named.map(str::to_owned);
        host_of(&config, &fabric, local.parse().unwrap(), None).map(|host| fabric.name(host).to_owned())
    }

    #[test]
    fn a_rank_is_the_host_at_its_address_or_the_one_that_is_named() {
        assert_eq!(found(LOOPBACK, 1, None, "127.0.0.1"), Ok("host1".into()));
        assert_eq!(found(LOOPBACK, 1, Some("host0"), "127.0.0.1"), Ok("host0".into()));
        assert_eq!(found(APART, 1, None, "10.0.0.1"), Ok("a".into()));
        let elsewhere = found(APART, 0, None, "10.0.0.7").unwrap_err();
        assert!(elsewhere.contains("10.0.0.7") && elsewhere.ends_with("set FANIN_FABRIC_HOST to one of a, b"), "{elsewhere}");
        let unknown = found(APART, 0, Some("c"), "10.0.0.1").unwrap_err();
        assert_eq!(unknown, "FANIN_FABRIC_HOST = c: expected a host of the fabric: a, b");
        let many = found(LOOPBACK, 2, None, "127.0.0.1").unwrap_err();
        assert!(many.starts_with("2 hosts have the address 127.0.0.1, and this is rank 2"), "{many}");
    }
}
