//! Looks at the way to the other ranks.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chrono::DateTime;
use fanin_channel::show::Shown;
use fanin_channel::{ClientTls, HandshakeError, Patience, Stream};
use fanin_comm::{CommError, Communicator, Config, Meeting, Notices, Operator, Transport};
use fanin_control::{ClientError, ClientSession, Refusal, SwitchHello};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};

use super::facts::{Answer, AnswerKind, PathMtu, Route, Trial};
use super::host;

/// How long somebody may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a router or host may take to say that a datagram is too long, or that nobody listens at its port.
const ECHO: Duration = Duration::from_millis(500);
/// How long two ranks in this process may take to meet and sum.
const TRIAL: Duration = Duration::from_secs(6);
/// Elements of the vector that they sum.
const TRIAL_ELEMENTS: usize = 1 << 18;
/// MTUs to try where the interface's does not arrive: Ethernet, common tunnels, and what IPv6 guarantees.
const USUAL_MTUS: [u32; 4] = [1_500, 1_450, 1_400, 1_280];

/// Who answers where ranks meet, by TLS where that is configured. Rank 0 of a job without a switch listens there itself.
pub fn answer(place: &Meeting, rank: u32, tls: Option<&ClientTls>) -> Option<Answer> {
    let (text, listens) = match place {
        Meeting::Switch(text) | Meeting::Fabric(text) => (text, false),
        Meeting::Rendezvous(text) => (text, rank == 0),
        Meeting::Nowhere => return None,
    };
    let address = match text.to_socket_addrs().map(|mut addresses| addresses.next()) {
        Ok(Some(address)) => address,
        Ok(None) => return Some(Answer { address: None, kind: AnswerKind::Unresolved("the name has no address".into()) }),
        Err(error) => return Some(Answer { address: None, kind: AnswerKind::Unresolved(error.to_string()) }),
    };
    let host = text.rsplit_once(':').map_or(text.as_str(), |(host, _)| host);
    let kind = match greet(address, tls.map(|tls| (tls, host))) {
        // Rank 0 may be running already, and then this is a switch.
        kind @ AnswerKind::Switch { .. } => kind,
        _ if listens => match TcpListener::bind(address) {
            Ok(_) => AnswerKind::Free,
            Err(error) => AnswerKind::Taken(error.to_string()),
        },
        kind => kind,
    };
    Some(Answer { address: Some(address), kind })
}

/// Connects and waits for a switch's greeting.
fn greet(address: SocketAddr, tls: Option<(&ClientTls, &str)>) -> AnswerKind {
    let start = Instant::now();
    let tcp = match TcpStream::connect_timeout(&address, PATIENCE) {
        Ok(stream) => stream,
        Err(error) => {
            return match error.kind() {
                io::ErrorKind::ConnectionRefused => AnswerKind::Refused,
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => AnswerKind::Silence,
                _ => AnswerKind::Unreachable(error.to_string()),
            };
        }
    };
    let _ = tcp.set_nodelay(true);
    let patience = Patience { until: start + PATIENCE, gives_up: &|| false };
    let entered = match tls {
        None => Ok(Stream::plain(tcp)),
        Some((tls, host)) => tls.connect(tcp, host, &patience),
    };
    let mut stream = match entered {
        Ok(stream) => stream,
        Err(HandshakeError::Refused(why)) => return AnswerKind::Untrusted(why),
        Err(HandshakeError::Io(error)) => return AnswerKind::Stranger(format!("no TLS handshake: {error}")),
    };
    let mut session = ClientSession::new();
    let mut greeted = || -> io::Result<()> {
        stream.write_all(&ClientSession::greeting(concat!("fanin doctor ", env!("CARGO_PKG_VERSION"))))?;
        let mut bytes = [0; 4_096];
        while session.switch().is_none() {
            let left = PATIENCE.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(io::Error::other(format!("it has said nothing for {} s", PATIENCE.as_secs())));
            }
            stream.set_read_timeout(Some(left))?;
            match stream.read(&mut bytes) {
                Ok(0) => return Err(io::Error::other("it has closed the connection without a word")),
                Ok(count) => session.push(&bytes[..count]),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => continue,
                Err(error) => return Err(error),
            }
            session.next().map_err(io::Error::other)?;
        }
        Ok(())
    };
    match greeted() {
        Ok(()) => {
            let software = session.switch().map(|switch| describe(switch, stream.peer_certificate().as_ref())).unwrap_or_default();
            AnswerKind::Switch { software, round_trip: start.elapsed() }
        }
        Err(error) => match error.get_ref().and_then(|error| error.downcast_ref::<ClientError>()) {
            Some(ClientError::Refused(refused)) if refused.code == Refusal::Unauthorized => AnswerKind::Untrusted(refused.text.clone()),
            _ if stream.is_sealed() && error.kind() == io::ErrorKind::InvalidData => AnswerKind::Untrusted(error.to_string()),
            _ => AnswerKind::Stranger(error.to_string()),
        },
    }
}

fn any(family: SocketAddr) -> IpAddr {
    if family.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// A socket that sends there, whose packets nobody may cut to pieces.
fn whole(to: SocketAddr, bind: Option<IpAddr>) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddr::new(bind.unwrap_or_else(|| any(to)), 0))?;
    if to.is_ipv4() {
        sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?;
    } else {
        sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?;
    }
    socket.connect(to)?;
    Ok(socket)
}

fn mtu(socket: &UdpSocket, to: SocketAddr) -> io::Result<u32> {
    Ok(if to.is_ipv4() { sockopt::ip_mtu(socket)? } else { sockopt::ipv6_mtu(socket)? })
}

/// How packets leave for `to`.
pub fn route(to: SocketAddr, bind: Option<IpAddr>) -> Result<Route, String> {
    let look = || -> io::Result<Route> {
        let socket = whole(to, bind)?;
        let local = socket.local_addr()?.ip();
        Ok(Route { to, local, interface: host::interface(local, to.ip()), mtu: mtu(&socket, to)? })
    };
    look().map_err(|error| error.to_string())
}

/// What a datagram comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// The host has said that nobody listens at its port: it arrived.
    Arrived,
    TooLong,
    Silence,
}

/// Finds out which lengths arrive, by datagrams to a UDP port that nobody listens at: the host says so, if they arrive. `None` where
/// there is no route at all.
pub fn path(to: SocketAddr, bind: Option<IpAddr>) -> Option<PathMtu> {
    let socket = whole(to, bind).ok()?;
    socket.set_read_timeout(Some(ECHO)).ok()?;
    let headers = if to.is_ipv4() { 28 } else { 48 };
    let interface = host::interface(socket.local_addr().ok()?.ip(), to.ip()).map(|(_, mtu)| mtu);
    let tried = interface.or_else(|| mtu(&socket, to).ok())?.min(fanin_net::DATAGRAM_BYTES_MAX as u32 + headers);
    let probe = |mtu: u32| fate(&socket, mtu.saturating_sub(headers) as usize);
    Some(conclude(tried, probe, || mtu(&socket, to).ok()))
}

/// What the fates of probes say. Few are sent: hosts answer only some of them a second.
fn conclude(tried: u32, probe: impl Fn(u32) -> Fate, learnt: impl Fn() -> Option<u32>) -> PathMtu {
    let mut fate = probe(tried);
    if fate == Fate::Silence {
        fate = probe(tried);
    }
    match fate {
        Fate::Arrived => PathMtu::Whole { mtu: tried },
        Fate::TooLong => PathMtu::Shorter { tried, mtu: learnt().filter(|mtu| *mtu < tried).unwrap_or(USUAL_MTUS[3]) },
        Fate::Silence => {
            let arrives = USUAL_MTUS.into_iter().find(|mtu| *mtu < tried && probe(*mtu) == Fate::Arrived);
            arrives.map_or(PathMtu::Unknown, |arrives| PathMtu::Hole { tried, arrives })
        }
    }
}

fn fate(socket: &UdpSocket, bytes: usize) -> Fate {
    let judge = |error: io::Error| match error.kind() {
        io::ErrorKind::ConnectionRefused => Fate::Arrived,
        _ if error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => Fate::TooLong,
        _ => Fate::Silence,
    };
    match socket.send(&vec![0; bytes]).and_then(|_| socket.recv(&mut [0; 64])) {
        Ok(_) => Fate::Arrived,
        Err(error) => judge(error),
    }
}

/// Two ranks in this process sum a vector over UDP, through the switch or through one of their own. At a switch they have the token of the configuration, and
/// are a group of its job, which that token admits as any two ranks.
pub fn trial(switch: Option<SocketAddr>, bind: Option<IpAddr>, config: Option<&Config>) -> Trial {
    let place = match switch {
        Some(switch) => Ok(Meeting::Switch(switch.to_string())),
        None => TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| listener.local_addr())
            .map(|free| Meeting::Rendezvous(free.to_string()))
            .map_err(|error| error.to_string()),
    };
    // The configured local address leads to the switch, not to this process.
    let bind = bind.filter(|_| switch.is_some());
    let config = config.filter(|_| switch.is_some());
    Trial { switch, outcome: place.and_then(|place| sum(&place, bind, config)) }
}

fn sum(place: &Meeting, bind: Option<IpAddr>, config: Option<&Config>) -> Result<String, String> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let own = format!("doctor-{}-{time}", std::process::id());
    // A token is for some jobs, and for the groups of these.
    let group = config.filter(|config| config.token.is_some());
    // The trial goes to the address that was found, and the switch is still known by the name that ranks know it by.
    let tls = config.and_then(|config| Some(ClientTls { name: Some(config.known_as()), ..config.tls.clone()? }));
    let job = group.map_or(own.clone(), |config| format!("{}/{own}", config.job));
    let part = |rank: u32| -> Result<String, CommError> {
        let mut config = Config::new(rank, 2, place.clone());
        (config.job, config.bind, config.transport, config.timeout) = (job.clone(), bind, Transport::Udp, TRIAL);
        config.token = group.and_then(|config| config.token.clone());
        config.tls.clone_from(&tls);
        config.notices = Notices::to(|_| {});
        let communicator = Communicator::join(config)?;
        let mut vector = vec![rank as f32 + 1.0; TRIAL_ELEMENTS];
        communicator.allreduce(&mut vector, Operator::Sum)?;
        let wrong = vector.iter().filter(|element| **element != 3.0).count();
        // That shared memory was not wanted here needs not be told.
        let path = communicator.path().to_string().split(" (no ").next().unwrap_or_default().to_string();
        // Nobody leaves before the other has its result.
        communicator.barrier()?;
        if wrong == 0 { Ok(path) } else { Err(CommError::Arguments(format!("{wrong} of {TRIAL_ELEMENTS} elements are wrong"))) }
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| part(1));
        let mine = part(0);
        let other = other.join().map_err(|_| "the thread of rank 1 has ended")?;
        mine.and_then(|path| other.map(|_| path)).map_err(|error| error.to_string())
    })
}

/// Its release, and who may join it and alter its packets.
fn describe(switch: &SwitchHello, certificate: Option<&Shown>) -> String {
    let SwitchHello { software, wants_token, packets, .. } = switch;
    let token = if *wants_token { "a token is needed to join" } else { "everybody may join" };
    let protection = if packets.is_none() { "packets have no keys".to_owned() } else { format!("packets have keys: {packets}") };
    let control = match certificate {
        None => "the control connection is not encrypted".to_owned(),
        Some(Shown { fingerprint, until_s, .. }) => {
            let until = DateTime::from_timestamp(*until_s, 0)
                .map_or_else(String::new, |until| format!(", good until {}", until.format("%Y-%m-%d")));
            format!("the control connection is TLS 1.3, by certificate {fingerprint}{until}")
        }
    };
    format!("{software} ({token}; {protection}; {control})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_answers_is_told_apart() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(greet(closed, None), AnswerKind::Refused);
        let web = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = web.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = web.accept().unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
            // Until the other side has had enough.
            let _ = io::copy(&mut stream, &mut io::sink());
        });
        assert!(matches!(greet(address, None), AnswerKind::Stranger(text) if text.contains("not a Fanin switch")));
        server.join().unwrap();
    }

    #[test]
    fn a_name_without_an_address_and_rank_0s_own_place_are_understood() {
        let unresolved = answer(&Meeting::Switch("no-such-host.invalid:1".into()), 0, None).unwrap();
        assert!(unresolved.address.is_none() && matches!(unresolved.kind, AnswerKind::Unresolved(_)));
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let place = Meeting::Rendezvous(free.to_string());
        assert_eq!(answer(&place, 0, None).unwrap().kind, AnswerKind::Free);
        assert_eq!(answer(&place, 1, None).unwrap().kind, AnswerKind::Refused);
        // 192.0.2.1 is for documents, and so nobody's.
        assert!(matches!(answer(&Meeting::Rendezvous("192.0.2.1:1".into()), 0, None).unwrap().kind, AnswerKind::Taken(_)));
        assert_eq!(answer(&Meeting::Nowhere, 0, None), None);
    }

    #[test]
    fn probes_are_understood() {
        let arrives_up_to = |limit: u32| move |mtu: u32| if mtu <= limit { Fate::Arrived } else { Fate::Silence };
        assert_eq!(conclude(9_000, arrives_up_to(9_000), || None), PathMtu::Whole { mtu: 9_000 });
        assert_eq!(conclude(9_000, arrives_up_to(1_420), || None), PathMtu::Hole { tried: 9_000, arrives: 1_400 });
        assert_eq!(conclude(1_500, arrives_up_to(0), || None), PathMtu::Unknown);
        assert_eq!(conclude(1_500, |_| Fate::TooLong, || Some(1_420)), PathMtu::Shorter { tried: 1_500, mtu: 1_420 });
    }

    #[test]
    fn on_loopback_the_whole_mtu_arrives() {
        let closed = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let route = route(closed, None).unwrap();
        assert_eq!((route.local, route.to), (closed.ip(), closed));
        assert!(matches!(path(closed, None), Some(PathMtu::Whole { mtu }) if mtu >= 1_280 && mtu <= route.mtu));
    }

    #[test]
    fn two_ranks_of_this_process_sum() {
        let alone = trial(None, None, None);
        assert!(alone.outcome.as_ref().is_ok_and(|path| path.contains("UDP")), "{alone:?}");
    }
}
