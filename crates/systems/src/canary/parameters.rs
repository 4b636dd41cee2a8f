//! The parameters of a job of Canary, as everybody names them who describes jobs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// When a leader gives up what it has of a block of which something is missing (Canary).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureRule {
    /// At the first request for its sum: the paper's text. Every slow worker has blocks begun anew.
    FirstRequest,
    /// `hold` after the first request, or when all other workers have asked.
    Hold,
    /// When all other workers have asked, which says that all have contributed; who has not asked is asked.
    #[default]
    AllAsked,
}

/// How a block finds its place in a switch's array of descriptors (Canary).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Static in an array of the job's own, where it costs nothing and no block collides, and by a hash in one that jobs share.
    #[default]
    Auto,
    /// By a hash: two blocks may want the same place.
    Hash,
    /// At one of two places that two hashes give: a block collides only where both are another block's.
    #[serde(rename = "d-choice")]
    TwoPlaces,
    /// One block after the other, round the array: none collide while fewer are under way than it has places.
    Static,
}

/// What Canary's switches know of how many contributions of a block can come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FanInRule {
    /// Nothing but the number of workers: they wait for their timeouts (3.1.1 of the paper).
    #[default]
    Unknown,
    /// How many of the job's workers have a shortest way to the leader that passes them: a sum that has so many is sent at once.
    Known,
}

/// Who leads the blocks of Canary's allreduces; a block's root is the switch of its leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum LeaderRule {
    /// One worker after the other, "in a round-robin way" (3.1.3 of the paper).
    #[default]
    Rotating,
    /// The worker of this rank, always.
    Fixed(u32),
    /// Drawn for each block by the job's seed.
    Random,
}

impl LeaderRule {
    /// What is understood.
    pub const EXPECTED: &str = "\"rotating\", \"random\", or \"fixed:\" and a rank, as in \"fixed:0\"";
}

impl fmt::Display for LeaderRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeaderRule::Rotating => f.write_str("rotating"),
            LeaderRule::Fixed(rank) => write!(f, "fixed:{rank}"),
            LeaderRule::Random => f.write_str("random"),
        }
    }
}

impl FromStr for LeaderRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "rotating" => Ok(LeaderRule::Rotating),
            "random" => Ok(LeaderRule::Random),
            _ => {
                let digits = text.strip_prefix("fixed:").filter(|rank| rank.bytes().all(|byte| byte.is_ascii_digit()));
                let rank = digits.and_then(|rank| rank.parse().ok());
                rank.map(LeaderRule::Fixed).ok_or_else(|| format!("expected {}", LeaderRule::EXPECTED))
            }
        }
    }
}

impl TryFrom<String> for LeaderRule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<LeaderRule> for String {
    fn from(rule: LeaderRule) -> String {
        rule.to_string()
    }
}

/// The parameters of Canary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct CanaryParameters {
    /// How long a switch collects a block's packets, in ps, unless the timeout is adaptive; 1 us in the paper's model of memory (canary 7).
    pub timeout_ps: u64,
    /// Each switch learns what to expect, and how long it pays to wait for the rest, between the two bounds that follow.
    pub timeout_adaptive: bool,
    /// Shortest adaptive timeout, in ps: the one that a switch begins with.
    pub timeout_min_ps: u64,
    /// Longest adaptive timeout, in ps.
    pub timeout_max_ps: u64,
    /// Timeout of switches without hosts, in ps, where it is another one.
    pub timeout_spine_ps: Option<u64>,
    /// Timeout of a block at the switch of its leader, in ps, where it is another one.
    pub timeout_root_ps: Option<u64>,
    /// Not adaptive ones: a switch finds by scans of its descriptors, each so long in ps, which timeouts are over; 0: at once (canary 8, 8).
    pub scan_ps: u64,
    /// Switches know how many of the job's workers can send to them, and send what has all of them at once.
    pub fan_in: FanInRule,
    /// Who leads the blocks of allreduces.
    pub leader: LeaderRule,
    /// How long a leader works on a sum before it sends it, in ps: r in 3.2.2 of the paper.
    pub leader_time_ps: u64,
    /// Length of the array of descriptors at each switch, this job's own or the one that it shares; the paper's switch has 32 Ki (canary 3).
    pub descriptors: u32,
    /// The array is one for all jobs that say so: a descriptor is whose block comes first (3.2 and 3.4 of the paper).
    pub shared: bool,
    /// How a block finds its place in it.
    pub placement: Placement,
    /// With loss recovery: when a block is begun anew.
    pub failure: FailureRule,
    /// For [`FailureRule::Hold`]: how long, in ps.
    pub hold_ps: u64,
    /// With loss recovery: how often switches sum a block, at most, before workers contribute to its leader directly; 1 to 15.
    pub generations: u8,
    /// With loss recovery: after how long a switch gives up a descriptor whose sum does not come, in ps; 0 for half of the job's patience.
    pub lifetime_ps: u64,
}

impl Default for CanaryParameters {
    fn default() -> Self {
        CanaryParameters {
            timeout_ps: 1_000_000,
            timeout_adaptive: false,
            timeout_min_ps: 500_000,
            timeout_max_ps: 16_000_000,
            timeout_spine_ps: None,
            timeout_root_ps: None,
            scan_ps: 0,
            fan_in: FanInRule::Unknown,
            leader: LeaderRule::Rotating,
            leader_time_ps: 0,
            descriptors: 32_768,
            shared: false,
            placement: Placement::Auto,
            failure: FailureRule::AllAsked,
            hold_ps: 20_000_000,
            generations: 3,
            lifetime_ps: 0,
        }
    }
}

impl CanaryParameters {
    /// The longest that a switch waits, in ps.
    pub fn timeout_longest_ps(&self) -> u64 {
        if self.timeout_adaptive {
            return self.timeout_max_ps;
        }
        let others = [self.timeout_spine_ps, self.timeout_root_ps].into_iter().flatten();
        others.fold(self.timeout_ps, u64::max).saturating_add(self.scan_ps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaders_are_read_as_they_are_written() {
        for text in ["rotating", "random", "fixed:0", "fixed:4294967295"] {
            assert_eq!(text.parse::<LeaderRule>().unwrap().to_string(), text);
        }
        for text in ["", "fixed", "fixed:", "fixed:-1", "fixed:+1", "fixed:4294967296", "Random"] {
            assert!(text.parse::<LeaderRule>().is_err(), "{text}");
        }
    }
}
