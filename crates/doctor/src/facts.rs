//! What was found, as plain data: everything that is decided is decided from these.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fanin_comm::{Config, ConfigError, Meeting};

/// Everything that was looked at.
#[derive(Debug)]
pub struct Facts {
    /// Variables that a rank reads and that are set, and all others that begin with `FANIN_`.
    pub variables: Vec<(String, String)>,
    /// Those that begin with `FANIN_` and that nothing reads.
    pub unknown: Vec<String>,
    /// What a rank would make of them.
    pub config: Result<Config, ConfigError>,
    /// Whether the switch was given on the command line.
    pub switch_given: bool,
    /// Where ranks meet.
    pub place: Meeting,
    /// Who answers there; `None` where there is no such place.
    pub answer: Option<Answer>,
    /// How packets leave for it; `None` where its address is not known.
    pub route: Option<Result<Route, String>>,
    /// Which lengths arrive there.
    pub path: Option<PathMtu>,
    /// Two ranks in this process sum a vector.
    pub trial: Trial,
    /// Batches on loopback.
    pub offload: Result<Offload, String>,
    /// What the kernel grants.
    pub buffers: Result<Buffers, String>,
    /// Whether processes can share memory.
    pub memory: Result<(), String>,
    /// Whether sockets can be opened at all.
    pub sockets: Result<(), String>,
    /// Cores that this process may use.
    pub cores: usize,
    /// Ranks on this host, where that is known.
    pub processes: Option<u32>,
    /// Ranks on this host, as the launcher says.
    pub local_world: Option<u32>,
    /// Open files that this process may have.
    pub files: Files,
}

/// Who answers where ranks meet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// What it was looked up as; `None` where the name is not known.
    pub address: Option<SocketAddr>,
    /// What happened.
    pub kind: AnswerKind,
}

impl Answer {
    /// Whether it can be used.
    pub fn is_switch(&self) -> bool {
        matches!(self.kind, AnswerKind::Switch { .. })
    }
}

/// What happened on connecting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AnswerKind {
    /// The name has no address.
    Unresolved(String),
    /// Nobody listens.
    Refused,
    /// Nothing came back.
    Silence,
    /// The system says that it cannot be reached.
    Unreachable(String),
    /// A switch, in `round_trip`.
    Switch {
        /// Its name and version.
        software: String,
        /// Of its greeting.
        round_trip: Duration,
    },
    /// Somebody who is not trusted, or does not trust this end, in words: control connections are TLS at one end, or by other certificates.
    Untrusted(String),
    /// Somebody, but not a switch of this version.
    Stranger(String),
    /// This is rank 0, and can listen there.
    Free,
    /// This is rank 0, and cannot listen there.
    Taken(String),
}

/// How packets leave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Where to.
    pub to: SocketAddr,
    /// The local address.
    pub local: IpAddr,
    /// The interface, where it could be found out, and its MTU in bytes.
    pub interface: Option<(String, u32)>,
    /// The MTU that the kernel takes for this destination, in bytes.
    pub mtu: u32,
}

/// What arrives at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathMtu {
    /// Packets of the interface's MTU arrive whole.
    Whole {
        /// Bytes.
        mtu: u32,
    },
    /// Somebody on the way says that they are too long.
    Shorter {
        /// What was tried, in bytes.
        tried: u32,
        /// What he says is possible.
        mtu: u32,
    },
    /// They vanish, and nobody says so.
    Hole {
        /// What was tried, in bytes.
        tried: u32,
        /// The longest that arrived.
        arrives: u32,
    },
    /// The other end says nothing to any length.
    Unknown,
}

/// Two ranks in this process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trial {
    /// The switch; `None` for one in this process.
    pub switch: Option<SocketAddr>,
    /// How vectors travelled, or why it did not work.
    pub outcome: Result<String, String>,
}

/// Batches on loopback.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offload {
    /// Datagrams that one call may send.
    pub send_segments_max: usize,
    /// Datagrams that were sent.
    pub datagrams: u64,
    /// Calls that sent them.
    pub send_calls: u64,
    /// Datagrams that arrived.
    pub received: u64,
    /// Runs that they arrived in.
    pub runs: u64,
}

/// Socket buffers, in bytes as the kernel accounts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffers {
    /// What Fanin asks for.
    pub receive_wanted: usize,
    /// What it gets.
    pub receive: usize,
    /// What Fanin asks for.
    pub send_wanted: usize,
    /// What it gets.
    pub send: usize,
    /// `net.core.rmem_max`, where it can be read.
    pub rmem_max: Option<u64>,
    /// `net.core.wmem_max`, where it can be read.
    pub wmem_max: Option<u64>,
}

/// Limits of open files; `None` is no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Files {
    /// The one that counts.
    pub soft: Option<u64>,
    /// How far it can be raised without privilege.
    pub hard: Option<u64>,
}
