//! What can go wrong, told so that the reader knows what to do.

use std::net::SocketAddr;

use fanin_control::FailureKind;

use crate::config::ConfigError;

/// Why a call of a communicator did not succeed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommError {
    /// The configuration makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The arguments of a call do not fit; nothing was done, and the communicator is as before.
    #[error("{0}")]
    Arguments(String),
    /// The switch, or rank 0 in its place, cannot be reached.
    #[error("rank {rank} cannot reach {whom} at {address} within {seconds} s: {reason}")]
    Unreachable {
        /// This rank.
        rank: u32,
        /// "the switch" or "rank 0".
        whom: &'static str,
        /// Where.
        address: SocketAddr,
        /// For how long it was tried.
        seconds: f64,
        /// What happened last.
        reason: String,
    },
    /// The switch does not admit this rank.
    #[error("rank {rank} is not admitted: {text}")]
    Refused {
        /// This rank.
        rank: u32,
        /// The switch's words.
        text: String,
    },
    /// The job has failed; every rank gets an error. The communicator is of no use any more.
    #[error("job {job:?}: {text}")]
    Failed {
        /// The job's name.
        job: String,
        /// What happened, in the same words at all ranks where the switch could tell them.
        text: String,
        /// The rank that is missing or wrong, where that is known.
        suspect_rank: Option<u32>,
        /// What kind of reason, where the switch or the other ranks know it.
        kind: Option<FailureKind>,
    },
    /// Sockets, threads or memory are not to be had.
    #[error("{what}: {reason}")]
    System {
        /// What was tried.
        what: String,
        /// What the kernel said.
        reason: String,
    },
    /// The communicator was closed.
    #[error("the communicator of job {job:?} was closed")]
    Closed {
        /// The job's name.
        job: String,
    },
}

impl CommError {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> CommError {
        let what = what.into();
        move |error| CommError::System { what, reason: error.to_string() }
    }

    /// The rank that is missing or wrong, where that is known.
    pub fn suspect_rank(&self) -> Option<u32> {
        match self {
            CommError::Failed { suspect_rank, .. } => *suspect_rank,
            CommError::Unreachable { whom: "rank 0", .. } => Some(0),
            _ => None,
        }
    }
}
