//! What a worker is asked to do, and how it ends.

use std::fmt;

use crate::names::{JobId, NodeId, OperationId, Rank};

/// The kinds of collective. A system that cannot do one refuses it ([`FailureReason::Refused`]).
///
/// All are one scheme: a vector of [`shares`](CollectiveKind::shares) of equal length, and for each share the ranks that
/// [contribute](CollectiveKind::contributes) to its reduction and those that [receive](CollectiveKind::receives) it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CollectiveKind {
    /// Every worker gets the reduction of all vectors.
    #[default]
    Allreduce,
    /// One worker gets the reduction of all vectors.
    Reduce {
        /// The worker that gets it.
        root: Rank,
    },
    /// Every worker gets one worker's vector.
    Broadcast {
        /// The worker whose vector it is.
        root: Rank,
    },
    /// Nobody goes on before all have come; there is no vector.
    Barrier,
    /// The vector has a share for each worker, which gets the reduction of all workers' vectors there.
    ReduceScatter,
    /// Every worker gets the shares of all workers, in the order of ranks.
    AllGather,
    /// Every worker has a share for each worker, itself included. The vector is that of all of them: first what the worker of rank 0 gets, from
    /// rank 0, 1, ...; then what that of rank 1 gets; and so on.
    AllToAll {
        /// How many workers there are, by which shares are numbered.
        workers: u32,
    },
}

impl CollectiveKind {
    /// In how many parts of equal length the vector is divided.
    pub const fn shares(self, workers: u32) -> u32 {
        match self {
            CollectiveKind::ReduceScatter | CollectiveKind::AllGather => workers,
            CollectiveKind::AllToAll { workers } => workers.saturating_mul(workers),
            _ => 1,
        }
    }

    /// Whether the worker's vector is part of the reduction of a share.
    #[inline]
    pub const fn contributes(self, rank: Rank, share: u32) -> bool {
        match self {
            CollectiveKind::Allreduce | CollectiveKind::Reduce { .. } | CollectiveKind::ReduceScatter => true,
            CollectiveKind::Broadcast { root } => rank.0 == root.0,
            CollectiveKind::AllGather => rank.0 == share,
            CollectiveKind::AllToAll { workers } => rank.0 == share % workers,
            CollectiveKind::Barrier => false,
        }
    }

    /// Whether the worker gets the reduction of a share.
    #[inline]
    pub const fn receives(self, rank: Rank, share: u32) -> bool {
        match self {
            CollectiveKind::Allreduce | CollectiveKind::Broadcast { .. } | CollectiveKind::AllGather => true,
            CollectiveKind::Reduce { root } => rank.0 == root.0,
            CollectiveKind::ReduceScatter => rank.0 == share,
            CollectiveKind::AllToAll { workers } => rank.0 == share / workers,
            CollectiveKind::Barrier => false,
        }
    }

    /// One of each name, whatever else belongs to it.
    pub const ONE_OF_EACH: [CollectiveKind; 7] = [
        CollectiveKind::Allreduce,
        CollectiveKind::Reduce { root: Rank(0) },
        CollectiveKind::Broadcast { root: Rank(0) },
        CollectiveKind::Barrier,
        CollectiveKind::ReduceScatter,
        CollectiveKind::AllGather,
        CollectiveKind::AllToAll { workers: 1 },
    ];

    /// The name in messages and tables.
    pub const fn name(self) -> &'static str {
        match self {
            CollectiveKind::Allreduce => "allreduce",
            CollectiveKind::Reduce { .. } => "reduce",
            CollectiveKind::Broadcast { .. } => "broadcast",
            CollectiveKind::Barrier => "barrier",
            CollectiveKind::ReduceScatter => "reduce-scatter",
            CollectiveKind::AllGather => "all-gather",
            CollectiveKind::AllToAll { .. } => "all-to-all",
        }
    }
}

/// One collective operation. All workers of a job submit the same sequence of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Collective {
    /// The operation's number in its job: 0, 1, 2, ...
    pub operation: OperationId,
    /// What is computed.
    pub kind: CollectiveKind,
    /// Length of the whole vector in elements, all shares together; 0 is legal.
    pub elements: u64,
    /// Which of the job's element types and operators; 0 where there is only one.
    pub op: u8,
    /// What all workers must agree on, as one number: a system that carries it in its packets rejects contributions to another call.
    pub fingerprint: u32,
}

impl Collective {
    /// An allreduce in a job with one operator.
    pub const fn allreduce(operation: OperationId, elements: u64) -> Self {
        Collective { operation, kind: CollectiveKind::Allreduce, elements, op: 0, fingerprint: 0 }
    }
}

/// A run of consecutive elements of an operation's vector that travels in one packet. A worker cuts a vector into the same pieces at
/// every rank, numbered from 0 without gaps, so that a driver can keep one cell per piece.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Piece {
    /// The operation whose vector this is a piece of.
    pub operation: OperationId,
    /// The piece's number, from 0.
    pub index: u32,
    /// The first element.
    pub start: u64,
    /// Length in elements.
    pub elements: u32,
}

impl Piece {
    /// One past the last element.
    pub const fn end(&self) -> u64 {
        self.start + self.elements as u64
    }
}

/// How an operation ended at one worker.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Outcome {
    /// The operation.
    pub operation: OperationId,
    /// Done, or why not.
    pub result: Result<(), Failure>,
}

/// Why an operation could not be completed, in terms that lead to the cause.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Failure {
    /// The job.
    pub job: JobId,
    /// The operation.
    pub operation: OperationId,
    /// The first block (tree) or step (ring) that could not be completed.
    pub block: Option<u32>,
    /// Who is missing, as far as is known.
    pub suspect: Suspect,
    /// What went wrong.
    pub reason: FailureReason,
}

/// Who is missing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Suspect {
    /// Nothing was heard that points to anybody.
    Unknown,
    /// A worker did not contribute or does not answer.
    Rank(Rank),
    /// A switch (or what is below it) does not contribute or does not answer.
    Switch(NodeId),
}

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FailureReason {
    /// No progress within the job's patience.
    NoProgress,
    /// A peer reported the failure first.
    PeerAborted,
    /// The caller gave up.
    Cancelled,
    /// The worker cannot do this now: an earlier operation is still running or has failed.
    Refused,
    /// A packet's contents do not fit the operation (length or type differ between ranks).
    Mismatch,
    /// Data arrived of an operation that is not the worker's next one: ranks disagree about the order of calls.
    OutOfOrder,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {}, operation {}", self.job, self.operation)?;
        if let Some(block) = self.block {
            write!(f, ", block {block}")?;
        }
        f.write_str(match self.reason {
            FailureReason::NoProgress => ": no progress within the time allowed",
            FailureReason::PeerAborted => ": given up by another worker",
            FailureReason::Cancelled => ": cancelled by the caller",
            FailureReason::Refused => ": refused, another operation is running or the job has failed",
            FailureReason::Mismatch => ": a packet does not fit the operation",
            FailureReason::OutOfOrder => ": ranks disagree about the order of operations",
        })?;
        match self.suspect {
            Suspect::Unknown => Ok(()),
            Suspect::Rank(rank) => write!(f, "; waiting for rank {rank}"),
            Suspect::Switch(node) => write!(f, "; waiting for switch {node}"),
        }
    }
}

impl std::error::Error for Failure {}
