//! Who runs the switch at which a job meets: a process of its own, or rank 0. Where it is lost, that is who is to be named.

use std::fmt;
use std::net::SocketAddr;

use fanin_control::FailureKind;

use crate::error::CommError;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Runner {
    /// `fanin switch`.
    Switch,
    /// `fanin manager`, which knows the switches that sum.
    Manager,
    /// Rank 0 of a job, in its own process.
    Rank {
        /// The job, where it is not the one that is told of: a group of ranks meets at the switch of the job that it was made of.
        of: Option<String>,
        /// Which rank of the job that is told of it is, if it is one.
        here: Option<u32>,
    },
}

/// How a switch was lost.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Loss {
    /// The connection is gone, for this reason.
    Closed(String),
    /// Nothing was heard, for so many seconds.
    Silent(f64),
}

impl Runner {
    /// Rank 0 of the job itself.
    pub(crate) const RANK_0: Runner = Runner::Rank { of: None, here: Some(0) };

    /// Who runs the switch of a group of some of the ranks of `job`: `members` are their ranks in it.
    pub(crate) fn of_group(&self, job: &str, members: impl Iterator<Item = u32>) -> Runner {
        match self {
            Runner::Switch => Runner::Switch,
            Runner::Manager => Runner::Manager,
            Runner::Rank { of, here } => Runner::Rank {
                of: Some(of.clone().unwrap_or_else(|| job.to_owned())),
                here: here.and_then(|here| members.zip(0..).find(|(member, _)| *member == here).map(|(_, rank)| rank)),
            },
        }
    }

    /// The rank of the job that it is, where it is one.
    pub(crate) fn rank(&self) -> Option<u32> {
        if let Runner::Rank { here, .. } = self { *here } else { None }
    }

    /// Whether the switch is one rank's, and ends with it.
    pub(crate) fn is_rank(&self) -> bool {
        matches!(self, Runner::Rank { .. })
    }

    /// What is to be said where the switch at `address` is lost.
    pub(crate) fn lost(&self, address: SocketAddr, loss: &Loss) -> String {
        match (self, loss) {
            (Runner::Switch | Runner::Manager, Loss::Closed(why)) => format!("{self} at {address} is lost: {why}"),
            (Runner::Switch | Runner::Manager, Loss::Silent(seconds)) => {
                format!("{self} at {address} is lost: nothing was heard of it for {seconds:.1} s")
            }
            (_, Loss::Closed(why)) => format!("{self}, which ran the switch at {address}, has ended: {why}"),
            (_, Loss::Silent(seconds)) => {
                format!("nothing has been heard of {self}, which runs the switch at {address}, for {seconds:.1} s")
            }
        }
    }

    /// The failure of a job whose switch at `address` is lost.
    pub(crate) fn failure(&self, job: &str, address: SocketAddr, loss: &Loss) -> CommError {
        let kind = match loss {
            Loss::Closed(_) => FailureKind::RankLost,
            Loss::Silent(_) => FailureKind::RankSilent,
        };
        let text = self.lost(address, loss);
        CommError::Failed { job: job.into(), text, suspect_rank: self.rank(), kind: self.is_rank().then_some(kind) }
    }
}

/// `the switch`, `rank 0`, `rank 0 of job "train", which is rank 2 here`.
impl fmt::Display for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Runner::Switch => f.write_str("the switch"),
            Runner::Manager => f.write_str("the manager of the fabric"),
            Runner::Rank { of: None, .. } => f.write_str("rank 0"),
            Runner::Rank { of: Some(job), here: None } => write!(f, "rank 0 of job {job:?}"),
            Runner::Rank { of: Some(job), here: Some(rank) } => write!(f, "rank 0 of job {job:?} (rank {rank} of this one)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_the_switch_is_named_in_groups_too() {
        let address: SocketAddr = "127.0.0.1:7".parse().unwrap();
        let closed = Loss::Closed("it has closed the connection".into());
        let text = "rank 0, which ran the switch at 127.0.0.1:7, has ended: it has closed the connection";
        assert_eq!(Runner::RANK_0.lost(address, &closed), text);
        let group = Runner::RANK_0.of_group("train", [3, 0, 1].into_iter());
        assert_eq!((group.to_string().as_str(), group.rank()), ("rank 0 of job \"train\" (rank 1 of this one)", Some(1)));
        let smaller = group.of_group("train/1.0", [0, 2].into_iter());
        assert_eq!((smaller.to_string().as_str(), smaller.rank()), ("rank 0 of job \"train\"", None));
        let text = "nothing has been heard of rank 0 of job \"train\", which runs the switch at 127.0.0.1:7, for 5.0 s";
        assert_eq!(smaller.lost(address, &Loss::Silent(5.0)), text);
        assert_eq!(Runner::Switch.of_group("train", [0].into_iter()), Runner::Switch);
        assert!(Runner::Switch.lost(address, &closed).starts_with("the switch at 127.0.0.1:7 is lost"));
    }
}
