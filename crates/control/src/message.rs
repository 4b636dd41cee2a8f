//! What either side says.

use std::fmt;
use std::net::SocketAddr;

use fanin_core::ReproducibleBy;
use fanin_systems::System;
use fanin_trust::{PacketKeys, Protection};
use serde::{Deserialize, Serialize};

use crate::call::{CallDescription, Op};

/// From a rank to the switch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientMessage {
    /// The first message.
    Hello(Hello),
    /// The second message: takes part in a job.
    Join(Box<Join>),
    /// The rank's socket is open and its peers are known; from now on it answers packets.
    Ready,
    /// Still here. Said every [`ALIVE_INTERVAL_MS`](crate::ALIVE_INTERVAL_MS).
    Alive {
        /// Counts up from 0.
        sequence: u64,
    },
    /// Nothing has moved for some time. May be said again while that goes on.
    Stalled {
        /// What the rank is doing.
        call: CallDescription,
        /// For how long nothing has moved here, in ms.
        idle_ms: u64,
        /// How long the rank waits in this call, in ms, where that is not [`JobWish::patience_ms`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        patience_ms: Option<u64>,
    },
    /// The answer to [`SwitchMessage::Describe`].
    Call {
        /// What the rank is doing.
        call: CallDescription,
    },
    /// Tells all ranks of the job, this one included, a value: see [`SwitchMessage::Shared`]. Allowed from [`SwitchMessage::Admitted`] on.
    Share {
        /// The value's name, at most [`SHARE_KEY_BYTES_MAX`] bytes. A second value of the same name replaces the first.
        key: String,
        /// The value, at most [`SHARE_VALUE_BYTES_MAX`] bytes.
        value: String,
    },
    /// The rank ends the job, for all ranks: its user has given up, say.
    Abort {
        /// Why, at most [`ABORT_TEXT_CHARS_MAX`] characters; the others are told.
        text: String,
    },
    /// The rank needs the job no more. The switch then closes the connection.
    Leave {
        /// How many operations the rank has finished, that is, the number of the first one that it will have no part in.
        operation: u32,
    },
}

/// From the switch to a rank.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SwitchMessage {
    /// The first message.
    Hello(SwitchHello),
    /// Not admitted; the connection is closed after that.
    Refused(Refused),
    /// The job is not complete yet. Said when that changes, and about once a second.
    Waiting {
        /// Ranks that have not joined yet, the first [`WAITING_RANKS_MAX`] of them.
        missing: Vec<u32>,
        /// How many have not joined yet.
        missing_count: u32,
    },
    /// All ranks have joined.
    Admitted(Box<Admitted>),
    /// The job goes on after a restart: what is left of the operations that were running. Comes between `Admitted` and `Start`.
    Resume {
        /// By operation, ascending, without gaps. Operations after the last one run as if nothing had happened.
        plans: Vec<OperationPlan>,
    },
    /// All ranks are ready: the first operation may begin.
    Start,
    /// Still here.
    Alive {
        /// Counts up from 0.
        sequence: u64,
    },
    /// Say what you are doing, by [`ClientMessage::Call`].
    Describe,
    /// The job has failed, at all ranks and for good. The connection is closed after that.
    Failed(Failed),
    /// What seems to be wrong; the job goes on.
    Notice {
        /// In words, for the user.
        text: String,
    },
    /// What a rank has told all others by [`ClientMessage::Share`]. All ranks get the values of one rank in the same order.
    Shared {
        /// The rank that said it.
        rank: u32,
        /// The value's name.
        key: String,
        /// The value.
        value: String,
    },
    /// The job goes on by its switch from now on, and no more by hosts alone: ranks join it there, with [`Join::resume`]. The connection is
    /// closed after that.
    Return,
    /// The switch wants to end: running jobs go on for so long and then fail.
    Draining {
        /// How long that is, in ms.
        after_ms: u64,
    },
}

/// The longest description of a fabric, in bytes.
pub const FABRIC_BYTES_MAX: usize = 512 << 10;
/// The longest name of a node of a fabric, in bytes.
pub const NODE_BYTES_MAX: usize = 64;

/// Operators that a job can bring along.
pub const OPERATORS_MAX: usize = 4;
/// The longest name of such an operator, in characters.
pub const OPERATOR_NAME_CHARS_MAX: usize = 64;
/// What the modules of a job have together at most, in bytes: with two digits for each they fit into one message.
pub const OPERATORS_BYTES_MAX: usize = 256 << 10;
/// The longest name of a shared value, in bytes.
pub const SHARE_KEY_BYTES_MAX: usize = 64;
/// The longest shared value, in bytes.
pub const SHARE_VALUE_BYTES_MAX: usize = 4_096;
/// How many values a rank can share.
pub const SHARES_MAX: usize = 16;
/// The longest reason of a rank that ends its job, in characters.
pub const ABORT_TEXT_CHARS_MAX: usize = 500;
/// How many missing ranks are named one by one.
pub const WAITING_RANKS_MAX: usize = 32;

/// How a client begins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// [`MAGIC`](crate::MAGIC).
    pub magic: String,
    /// [`VERSION`](crate::VERSION).
    pub version: u32,
    /// Name and version of the program, for people.
    pub software: String,
}

impl Hello {
    /// What this version says.
    pub fn new(software: impl Into<String>) -> Self {
        Hello { magic: crate::MAGIC.into(), version: crate::VERSION, software: software.into() }
    }
}

/// How a switch begins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SwitchHello {
    /// [`MAGIC`](crate::MAGIC).
    pub magic: String,
    /// [`VERSION`](crate::VERSION).
    pub version: u32,
    /// Name and version of the program, for people.
    pub software: String,
    /// A random number, another one each time that the switch is started.
    pub switch_instance: u64,
    /// The fabric whose manager this is; a switch that sums by itself has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<FabricFile>,
    /// Whether ranks need a token to join.
    #[serde(default)]
    pub wants_token: bool,
    /// What is done for packets.
    #[serde(default)]
    pub packets: Protection,
    /// At a switch of a fabric, which key its packets are made with ([`FabricKey::check_value`](fanin_trust::FabricKey::check_value)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric_key: Option<String>,
}

/// A fabric's description, as ranks get it from its manager.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FabricFile {
    /// The name of the file, for messages.
    pub name: String,
    /// What is in it, at most [`FABRIC_BYTES_MAX`] bytes.
    pub text: String,
}

/// Tells ranks that share a host (and may map each other's memory) from others. What it consists of is the client's affair; two ranks
/// with equal ones share a host.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostId(pub String);

/// A rank wants to take part in a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Join {
    /// The job's name: 1 to 128 printable characters. All ranks that give the same one meet.
    pub job: String,
    /// This rank.
    pub rank: u32,
    /// How many ranks the job has, at most [`WORLD_MAX`](crate::WORLD_MAX).
    pub world: u32,
    /// The rank's UDP socket. Where its IP address is unspecified (`0.0.0.0`, `::`), the one that the switch sees is meant.
    pub data: SocketAddr,
    /// The host that it runs on.
    pub host: HostId,
    /// The host of the fabric that it is, at the manager of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The longest datagram (without IP and UDP headers) that the path between rank and switch carries whole, in bytes.
    pub path_datagram_bytes: u32,
    /// What the job should be; the same at all ranks.
    pub wish: JobWish,
    /// Operators that the job brings along, at most [`OPERATORS_MAX`]; the same at all ranks, in the same order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operators: Vec<OperatorWish>,
    /// The connection of a rank that is already part of a running job was lost, and this is the new one.
    pub attach: Option<Attach>,
    /// The rank has been part of a job whose switch is gone, and wants to go on with it. Where both are given and the switch knows the
    /// instance in `attach`, this is ignored.
    pub resume: Option<ResumeState>,
    /// What the rank was admitted to by an earlier life of a fabric's manager, for one that knows nothing of the job that `attach` names; the
    /// job runs, and goes on as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopt: Option<Box<Admitted>>,
    /// Whether hosts may sum by themselves; the same at all ranks.
    #[serde(default, skip_serializing_if = "ByHosts::is_never")]
    pub by_hosts: ByHosts,
    /// What gives it the right to join, where the switch asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
    /// Whether it can make and take packets with keys ([`Admitted::keys`]): releases that know nothing of them do not say so.
    #[serde(default)]
    pub takes_keys: bool,
}

/// A token, which is not shown where a request is printed for people.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Whether the ranks of a job sum by themselves, without the switch: then it only knows who is there.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ByHosts {
    /// They do not.
    #[default]
    Never,
    /// Where the switch has no room for the job, until it has.
    WhereFull,
    /// They do, since what summed before is gone, for this reason.
    Only(String),
}

/// The reason in [`ByHosts::Only`] of a job at the manager of a fabric whose ranks only tell each other where they are.
pub const ONLY_MEETS: &str = "its ranks only see who is on which host";

impl ByHosts {
    /// Whether hosts leave it to the switch in any case.
    pub fn is_never(&self) -> bool {
        *self == ByHosts::Never
    }
}

/// What a job should be.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobWish {
    /// The system that sums.
    pub system: System,
    /// Bytes of elements in a packet, a multiple of 8; the switch chooses by path and its own limit where it is missing.
    pub payload_bytes: Option<u32>,
    /// Packets that a rank has under way at most; the switch chooses where it is missing.
    pub window: Option<u32>,
    /// How long ranks wait for one another before an operation, or the start of the job, has failed, in ms.
    pub patience_ms: u64,
    /// Sum floats as block fixed point, as hardware switches do.
    pub fixed_point: bool,
    /// Reduce floats so that the bits do not depend on the order, and on what they do depend. A matter of the ranks, which must all do the same.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "crate::call::named_if_any")]
    pub reproducible: Option<ReproducibleBy>,
    /// The system that reduces in jobs beside this one, at the same switch. A matter of the ranks, which must all ask for the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<System>,
    /// Element type and operator, for systems whose packets do not carry them.
    pub op: Op,
}

impl Join {
    /// About how much memory a request keeps that others are not there for yet, in bytes: modules and what is known of operations.
    pub(crate) fn bulk_bytes(&self) -> u64 {
        let modules = self.operators.iter().filter_map(|operator| operator.module.as_ref()).map(String::len).sum::<usize>();
        let ranges = |progress: &Progress| progress.finished.len() + progress.held.len() + progress.contributions.len();
        let progress = |state: &ResumeState| {
            state.progress.iter().map(|one| size_of::<Progress>() + ranges(one) * size_of::<BlockRange>()).sum::<usize>()
        };
        (size_of::<Join>() + modules + self.resume.as_ref().map_or(0, progress)) as u64
    }
}

/// An operator that a job brings along.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OperatorWish {
    /// Its name for messages: 1 to [`OPERATOR_NAME_CHARS_MAX`] printable characters.
    pub name: String,
    /// The SHA-256 of the module, as 64 hexadecimal digits. The switch computes that of what rank 0 sends anew.
    pub digest: String,
    /// The module, in hexadecimal digits: sent by rank 0 where it joins a job that has not begun, and by nobody else. All modules of a job
    /// have at most [`OPERATORS_BYTES_MAX`] bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
}

impl OperatorWish {
    /// A module as it is sent.
    pub fn digits(module: &[u8]) -> String {
        module.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from_digit(u32::from(digit), 16).unwrap_or('0')).collect()
    }

    /// The module that was sent; `None` where none was, or where that is nothing of the kind.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let digits = self.module.as_ref()?.as_bytes();
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let pair = |pair: &[u8; 2]| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8);
        let (pairs, rest) = digits.as_chunks::<2>();
        if rest.is_empty() { pairs.iter().map(pair).collect() } else { None }
    }

    /// Its name and the beginning of its digest.
    pub fn describe(&self) -> String {
        format!("`{}` (sha256 {}..)", self.name, self.digest.get(..16).unwrap_or(&self.digest))
    }
}

/// Takes the place of a lost connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attach {
    /// [`Admitted::instance`] of the job.
    pub instance: u64,
}

/// Blocks `first .. first + blocks` of an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(from = "(u64, u64)", into = "(u64, u64)")]
pub struct BlockRange {
    /// The first block.
    pub first: u64,
    /// How many.
    pub blocks: u64,
}

impl BlockRange {
    /// Blocks `first .. first + blocks`.
    pub const fn new(first: u64, blocks: u64) -> Self {
        BlockRange { first, blocks }
    }

    /// One past the last block; saturates.
    pub const fn end(&self) -> u64 {
        self.first.saturating_add(self.blocks)
    }
}

impl From<(u64, u64)> for BlockRange {
    fn from((first, blocks): (u64, u64)) -> Self {
        BlockRange { first, blocks }
    }
}

impl From<BlockRange> for (u64, u64) {
    fn from(range: BlockRange) -> Self {
        (range.first, range.blocks)
    }
}

/// What a rank has of the operations of a job whose switch is gone.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ResumeState {
    /// [`Admitted::instance`] of the job.
    pub instance: u64,
    /// [`Admitted::payload_bytes`] of the job: what a block is.
    pub payload_bytes: u32,
    /// All operations before this one are finished here.
    pub operation: u32,
    /// What is known of single operations, ascending: those that have been begun here and not finished, and finished ones of which the
    /// result, or parts of it, are still there.
    pub progress: Vec<Progress>,
}

/// What a rank has of one operation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// The operation, with its signature.
    pub call: CallDescription,
    /// Blocks whose result has been delivered here, and which therefore must not be summed again. A rank that gets no result of a block
    /// does not list it. Ascending, without overlaps. For operations before [`ResumeState::operation`] all blocks count as listed.
    pub finished: Vec<BlockRange>,
    /// Those of them whose result is still there. Ascending, without overlaps.
    pub held: Vec<BlockRange>,
    /// Of an operation before [`ResumeState::operation`]: blocks of which this rank got no result, and to which it can contribute once more
    /// what it has contributed. Ascending, without overlaps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contributions: Vec<BlockRange>,
}

/// What is left of one operation after a restart.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OperationPlan {
    /// The operation.
    pub operation: u32,
    /// What is to be done with which blocks, ascending. Blocks that are not listed are finished everywhere.
    pub segments: Vec<Segment>,
}

/// Blocks with the same fate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Segment {
    /// The first block.
    pub first_block: u64,
    /// How many.
    pub blocks: u64,
    /// Where their result comes from.
    pub source: Source,
}

/// Where the result of a block comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// This rank has it and sends it to those that lack it. It is not summed again: another order of summands would give other bits.
    Holder(u32),
    /// Nobody has it: it is summed anew.
    Sum,
}

/// All ranks are there.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Admitted {
    /// A random number that names this job, for [`Attach`] and [`ResumeState`].
    pub instance: u64,
    /// The job's number in packets.
    pub job_id: u16,
    /// The switch's socket for this job.
    pub data: SocketAddr,
    /// The system that sums.
    pub system: System,
    /// Bytes of elements in a full packet.
    pub payload_bytes: u32,
    /// Packets that a rank may have under way.
    pub window: u32,
    /// How long ranks wait for one another, in ms.
    pub patience_ms: u64,
    /// Seed of the job's random choices, where the system makes any.
    pub seed: u64,
    /// The link epoch to be used by all.
    pub epoch: u32,
    /// All ranks, ascending, this one included.
    pub peers: Vec<PeerInfo>,
    /// Why hosts sum by themselves, where they do: then there is no socket at the switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_hosts: Option<String>,
    /// The keys of this rank's packets, where they have any: of its hop to the switch or, where hosts sum by themselves, of its hop to each of
    /// the others, by rank. Nobody else is told these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<PacketKeys>,
}

/// One rank of an admitted job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerInfo {
    /// The rank.
    pub rank: u32,
    /// The host that it runs on.
    pub host: HostId,
    /// Its UDP socket.
    pub address: SocketAddr,
    /// The host of the fabric that it is, in a fabric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// Why a rank is not admitted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refused {
    /// What kind of reason.
    pub code: Refusal,
    /// In words, for the user.
    pub text: String,
}

macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The name in messages, logs and metrics.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

kinds! {
    /// Kinds of refusal.
    Refusal {
        /// The versions of the control protocol differ.
        Version = "version",
        /// What came is not the protocol, or not in its order.
        Protocol = "protocol",
        /// A field has a value that makes no sense or is over a limit.
        Invalid = "invalid",
        /// The token that this switch asks for is missing, or gives no right to what was asked.
        Unauthorized = "unauthorized",
        /// The rank is taken by somebody who is alive.
        DuplicateRank = "duplicate_rank",
        /// Ranks want different things.
        Disagreement = "disagreement",
        /// The switch has no room for another job.
        Full = "full",
        /// The switch is about to end.
        Draining = "draining",
        /// There is no such job to attach to.
        UnknownInstance = "unknown_instance",
        /// Nothing was said for too long before a job was joined.
        TooSlow = "too_slow",
    }
}

/// A job has failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failed {
    /// What kind of reason.
    pub kind: FailureKind,
    /// In words, for the user; the same at all ranks.
    pub text: String,
    /// The rank that caused it, where one did.
    pub suspect_rank: Option<u32>,
}

kinds! {
    /// Kinds of failure of a job.
    FailureKind {
        /// Not all ranks joined, or were ready, in time.
        Incomplete = "incomplete",
        /// Ranks want different things.
        Disagreement = "disagreement",
        /// The connection of a rank was closed, as when its process dies.
        RankLost = "rank_lost",
        /// Nothing was heard of a rank for too long.
        RankSilent = "rank_silent",
        /// A rank has left while others need it.
        RankLeft = "rank_left",
        /// A rank has ended the job for all.
        Aborted = "aborted",
        /// An operator that the job has brought along was refused, or has failed.
        Operator = "operator",
        /// A rank said what makes no sense.
        Protocol = "protocol",
        /// Ranks call different operations.
        Mismatch = "mismatch",
        /// A rank did not come to an operation in time.
        RankLate = "rank_late",
        /// All ranks are in the same operation, and nothing moves.
        NoProgress = "no_progress",
        /// A result that somebody needs has been lost with the switch.
        ResultLost = "result_lost",
        /// The switch has no room for the job.
        Full = "full",
        /// The switch could not open what the job needs.
        Switch = "switch",
        /// The switch shuts down.
        Shutdown = "shutdown",
    }
}
