//! The control protocol between a communicator and a switch: who takes part in a job, whether all are alive, what each is doing when
//! nothing moves, and how a job goes on after the switch was restarted. One TCP connection for each rank of each job; no element of a
//! vector travels on it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`message`] | what either side says |
//! | [`call`] | what a rank is doing: [`CallDescription`] |
//! | [`frame`] | messages to bytes and back: [`encode`], [`Decoder`] |
//! | [`jobs`] | the switch's side: all its jobs, as a state machine |
//! | [`resume`] | what is left of a job's operations after a restart of the switch |
//! | [`client`] | the client's side of the handshake: [`ClientSession`] |
//! | [`fabric`] | what is said to a switch of a fabric of several: [`FabricRequest`], [`JobAnnouncement`] |
//!
//! Nothing here reads a clock, opens a socket or draws a random number: bytes, times and seeds come from the caller.
//!
//! # A job's life
//!
//! ```text
//!   rank                             switch
//!    | Hello{version} -------------->  |
//!    | <--------------- Hello{version} |  another version: an error that names both, and the end
//!    | Join{job, rank, world, ...} ->  |
//!    | <------------- Waiting{missing} |  again and again, until all ranks are there
//!    | <-- Admitted{data, peers, ...}  |
//!    | <---------------- Resume{plans} |  only where the job goes on after a restart of the switch
//!    | Ready ----------------------->  |  the rank's sockets are open
//!    | <------------------------ Start |  all ranks are ready
//!    | Alive <-------------------> Alive, every [`ALIVE_INTERVAL_MS`]
//!    | Stalled{call} --------------->  |  nothing moves
//!    | <--------------------- Describe |  to all ranks
//!    | Call{call} ------------------>  |
//!    | <-------------- Notice | Failed |  what is wrong
//!    | <----------------------- Return |  hosts have summed by themselves, and need not any more
//!    | Abort{text} ----------------->  |  a rank ends the job for all
//!    | Leave ----------------------->  |
//! ```
#![forbid(unsafe_code)]

pub mod call;
pub mod client;
pub mod fabric;
pub mod frame;
pub mod jobs;
pub mod message;
pub mod resume;

pub use call::{CallDescription, CallKind, CustomCall, Op, Part, Signature};
pub use client::{ClientError, ClientSession};
pub use fabric::{FabricReply, FabricRequest, JobAnnouncement, OperatorName, RanksJob, SwitchStatus};
pub use frame::{Decoder, FRAME_BYTES_MAX, FrameError, encode};
pub use jobs::{Action, ConnectionId, Jobs, JobsConfig, Note, OpenJob, PAYLOAD_STEP_BYTES, Pass};
pub use message::{
    Admitted, Attach, BlockRange, ByHosts, ClientMessage, FABRIC_BYTES_MAX, FabricFile, Failed, FailureKind, Hello, HostId, JobWish, Join,
    ONLY_MEETS, OPERATORS_BYTES_MAX, OPERATORS_MAX, OperationPlan, OperatorWish, PeerInfo, Progress, Refusal, Refused, ResumeState,
    Segment, Source, SwitchHello, SwitchMessage, Token,
};

use fanin_core::Wire;
use fanin_systems::{AnyHeader, System};
use fanin_wire::hop::HopHeader;

/// What every connection begins with, so that a stranger on the port is told apart from an old version.
pub const MAGIC: &str = "fanin-control";

/// Version of the control protocol. Sides with different versions do not talk.
pub const VERSION: u32 = 4;

/// How often either side says [`Alive`](ClientMessage::Alive), in ms. Any other message counts as well.
pub const ALIVE_INTERVAL_MS: u64 = 250;
/// The longest patience that makes sense, in ms: a hundred years, so that no sum of times is ever too large.
pub const PATIENCE_MS_MAX: u64 = 36_500 * 86_400_000;

/// Nobody is taken for gone who has been silent for less than this, in ms, however short a job's patience is: a thread that says
/// [`Alive`](ClientMessage::Alive) may have to wait for its turn on a busy machine.
pub const SILENCE_MS_MIN: u64 = 2_000;

/// The most ranks that a job can have.
pub const WORLD_MAX: u32 = 1_024;

/// The most bytes of a system's datagram that are not elements, in whole steps of payloads: the hop header and the longest header.
/// `fixed_point` says that the job's calls may send floats as integers ([`JobWish::fixed_point`]).
pub fn header_bytes_max(system: &System, fixed_point: bool) -> u32 {
    let hop = if system.stays_next_door() { HopHeader::NEIGHBOUR_LEN } else { HopHeader::MAX_LEN };
    (hop + AnyHeader::max_len_of(system, fixed_point || system.fixed_point())).next_multiple_of(PAYLOAD_STEP_BYTES as usize) as u32
}

/// The same for all systems: the hop header and the longest header of any.
pub const HEADER_BYTES_MAX: u32 = (HopHeader::MAX_LEN + <AnyHeader as Wire>::MAX_LEN).next_multiple_of(PAYLOAD_STEP_BYTES as usize) as u32;
