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

/// How long windows of Canary's hosts are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CanaryWindows {
    /// As long as the job's `window`.
    #[default]
    Fixed,
    /// At most so long, and as A2TP's control law has it: one window follows collisions, one follows marks, and the smaller one counts.
    A2tp,
}

/// What counts as a collision for windows of Canary's hosts that follow them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CanaryCollisions {
    /// A block that found its place in a switch taken, and one whose place another block wanted.
    #[default]
    Places,
    /// These, and a contribution that came to a switch when its block's sum had left.
    Stragglers,
}

/// The parameters of Canary.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct CanaryParameters {
    /// How long a switch collects a block's packets. The default is the paper's, and follows the slowest of the workers' links: `"10us"` at 10
    /// Gb/s. By default a root waits longer, for d (l + t), the links of the network's longest way times this timeout and their delays: `"5.2us"`
    /// with four links of 300 ns at 100 Gb/s. A time that is given holds for roots as well, as in the paper, and long sums are slow
    /// then (docs/when-it-pays.md). `"adaptive"`: each switch learns it; `{ leaf = "1us", spine = "1us", root = "3us" }`:
    /// at switches next to hosts, at other switches, and at the switch of a block's leader (`leaf` defaults to 1 us, the others to `leaf`). A
    /// root's timer starts with the first packet from below, so it must be longer than the others together for the leader to get one packet per
    /// block (`canary 7`).
    ///
    /// Default: `"1us"` at 100 Gb/s, and longer at roots.
    pub timeout_ps: u64,
    /// Each switch learns what to expect, and how long it pays to wait for the rest, between the two bounds that follow.
    pub timeout_adaptive: bool,
    /// The shortest adaptive timeout, with which a switch begins. The default follows the slowest of the workers' links, as that of `timeout` does:
    /// `"5us"` at 10 Gb/s.
    ///
    /// Default: `"500ns"` at 100 Gb/s.
    pub timeout_min_ps: u64,
    /// The longest adaptive timeout. The default follows the slowest of the workers' links: `"160us"` at 10 Gb/s.
    ///
    /// Default: `"16us"` at 100 Gb/s.
    pub timeout_max_ps: u64,
    /// Timeout of switches without hosts, in ps, where it is another one.
    pub timeout_spine_ps: Option<u64>,
    /// Timeout of a block at the switch of its leader, in ps, where it is another one.
    pub timeout_root_ps: Option<u64>,
    /// Makes timers inexact: a switch scans its descriptors once per this period, as the prototype does with clock packets, and detects a timeout
    /// up to this much later. Drawn uniformly for each block and switch from the seed, in 32 steps (`canary 8, 8`).
    pub scan_ps: u64,
    /// What switches know about how many contributions to expect: nothing, as in the paper, so that they wait for the timeout; or `"known"`: how
    /// many workers have a shortest path to the leader through the switch. A sum with that many is sent at once. This is only an early timeout: if
    /// paths meet elsewhere, the timeout decides. See "Small messages, and what switches know" in examples/README.md.
    pub fan_in: FanInRule,
    /// Which worker leads a block of an allreduce; the block's root is the leader's switch. One worker after the other; `"random"`: drawn for each
    /// block from the job's seed; `"fixed:3"`: always rank 3, whose link then carries every part of every block. Other collectives have leaders by
    /// their root or shares, and the testbed refuses the key with them. There is no key for the root: packets name only their leader, so a spine
    /// cannot be one.
    pub leader: LeaderRule,
    /// The time from a sum's completion until it leaves its leader, r in 3.2.2 of the paper. A delay, not a rate: a leader works on many blocks at
    /// once. For rates, use `[[limits]]`.
    pub leader_time_ps: u64,
    /// Length of the array of descriptors at each switch, the job's own or the shared one; or set `network.aggregators` (`canary 3`).
    pub descriptors: u32,
    /// All jobs with this key share one array, where a descriptor belongs to the first block that arrives; they must agree on `descriptors` and
    /// `table`.
    pub shared: bool,
    /// How a block finds its place there: `"hash"`; `"d-choice"`: one of two places; `"static"`: in turn, round an array of the job's own, without
    /// collisions (3.2.1). `"auto"` is static in the job's own array and a hash in a shared one.
    pub placement: Placement,
    /// When a leader starts an incomplete block again: when all other workers have asked for its sum; `"hold"`: this long after the first request;
    /// `"first-request"`: the paper's rule.
    pub failure: FailureRule,
    /// The delay for `"hold"`.
    pub hold_ps: u64,
    /// How often switches sum a block before workers contribute to its leader directly; 1 to 15.
    pub generations: u8,
    /// A switch gives up a descriptor after this time without a sum; `"0us"` for the default.
    ///
    /// Default: half of `patience`.
    pub lifetime_ps: u64,
    /// How many blocks a worker has under way: always `window`; or `"a2tp"`: at most, and as A2TP's control law has it. Switches then mark blocks that
    /// collide, and blocks that pass long queues (the network's `ecn`), in two bits of Canary's header that are zero otherwise; sums bring the
    /// marks to all workers, and each makes two windows of them, of which the smaller one counts. See docs/systems/canary.md.
    pub windows: CanaryWindows,
    /// With `windows = "a2tp"`: the initial window in blocks; 0 for the default.
    ///
    /// Default: half of `window`.
    pub initial: u32,
    /// With `windows = "a2tp"`: the least window in blocks; 0 for the default. Marks are those of all workers' ways together, so where other traffic keeps one link full and
    /// does not yield, nothing else keeps windows from closing.
    ///
    /// Default: 8, and `window` where that is less.
    pub window_min: u32,
    /// With `windows = "a2tp"`: the share of blocks, H, that may collide before windows shrink for it.
    pub threshold: f64,
    /// With `windows = "a2tp"`: the weight, w, of the latest round in the average of collisions.
    ///
    /// Default: 1/16.
    pub collision_weight: f64,
    /// With `windows = "a2tp"`: the weight, g, of the latest round in the average of marks.
    ///
    /// Default: 1/16.
    pub mark_weight: f64,
    /// With `windows = "a2tp"`, what counts as a collision: a block that found its place taken, and one whose place another block wanted;
    /// `"stragglers"`: these, and one of which a contribution came to a switch when its sum had left.
    pub collisions: CanaryCollisions,
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
            windows: CanaryWindows::Fixed,
            initial: 0,
            window_min: 0,
            threshold: 0.15,
            collision_weight: 1.0 / 16.0,
            mark_weight: 1.0 / 16.0,
            collisions: CanaryCollisions::Places,
        }
    }
}

/// The least window in blocks where windows follow the network and none is given.
const WINDOW_MIN: u32 = 8;

impl CanaryParameters {
    /// The least window of a job whose longest is `window`, both in blocks.
    pub fn shortest_window(&self, window: u32) -> u32 {
        if self.window_min == 0 { WINDOW_MIN.min(window) } else { self.window_min }
    }

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
