//! Congestion control of network cards.

use serde::{Deserialize, Serialize};

use crate::draw::Draw;
use crate::facts::{self, KeyUse, Unit};

/// What a network card does about marked packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CongestionRule {
    /// Nothing: it sends as fast as its link and window let it.
    #[default]
    None,
    /// DCQCN: the rate of a connection follows its receiver's notifications (baselines 8).
    Dcqcn,
}

/// Congestion control of network cards. The defaults are DCQCN's published ones (Zhu et al., SIGCOMM 2015), and its simulators' where the text
/// has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct CongestionParameters {
    /// How a network card reacts to marked packets (the network's `ecn`): with `"dcqcn"` its rate follows them, with the parameters that follow.
    /// Pauses (PFC) are the network's `lossless`.
    pub congestion: CongestionRule,
    /// Of DCQCN: the rate from which a connection begins.
    ///
    /// Default: that of the slowest of the workers' links.
    pub line_bps: u64,
    /// Of DCQCN: the least rate, at which a notification a gap still gets through; the paper has none.
    ///
    /// Default: a thousandth of `line_rate`.
    pub rate_min_bps: u64,
    /// Of DCQCN: 1/g, so that the estimate keeps what some hundred notifications have said.
    pub gain_inverse: u32,
    /// Of DCQCN: a receiver sends a notification at most once in this time.
    pub notification_gap_ps: u64,
    /// Of DCQCN: without a notification the estimate falls after this time, which is longer than the gap, or it would fall between two.
    pub estimate_timer_ps: u64,
    /// Of DCQCN: the rate grows once in this time.
    pub rate_timer_ps: u64,
    /// Of DCQCN: and after this many bytes.
    pub rate_bytes: u64,
    /// Of DCQCN: additive increase of the rate.
    pub additive_bps: u64,
    /// Of DCQCN: hyper increase of the rate, for which the paper has no number: ten times the additive one.
    pub hyper_bps: u64,
}

impl Default for CongestionParameters {
    fn default() -> Self {
        CongestionParameters {
            congestion: CongestionRule::None,
            line_bps: 100_000_000_000,
            rate_min_bps: 100_000_000,
            gain_inverse: 256,
            notification_gap_ps: 50_000_000,
            estimate_timer_ps: 55_000_000,
            rate_timer_ps: 55_000_000,
            rate_bytes: 10_000_000,
            additive_bps: 40_000_000,
            hyper_bps: 400_000_000,
        }
    }
}

/// Keys of a congestion control that only DCQCN has.
const DCQCN: [&str; 9] =
    ["line_rate", "rate_min", "gain_inverse", "notification_gap", "estimate_timer", "rate_timer", "rate_bytes", "additive", "hyper"];

/// Beside `rate_min` and `rate_timer`, `rate` would say nothing.
const RATE_BYTES: &str = "rate_bytes";

/// As [`Facts::key_of`](facts::Facts::key_of).
pub(crate) fn key_of(field: &str) -> &str {
    match field {
        RATE_BYTES => field,
        "line_bps" => "line_rate",
        other => facts::key_of(other),
    }
}

/// As [`Facts::unit_of`](facts::Facts::unit_of).
pub(crate) fn unit_of(field: &str, is_float: bool) -> Unit {
    if field == RATE_BYTES { Unit::Bytes(1 << 40) } else { facts::unit_of(field, is_float) }
}

impl CongestionParameters {
    /// As [`Facts::follow_rate`](facts::Facts::follow_rate): a connection begins with its card's link, and the least rate is a thousandth of it.
    pub(crate) fn follow_rate(&mut self, bits_per_second: u64, is_given: &dyn Fn(&str) -> bool) {
        if !is_given("line_rate") {
            self.line_bps = bits_per_second;
        }
        if !is_given("rate_min") {
            self.rate_min_bps = (self.line_bps / 1_000).max(1);
        }
    }

    /// As [`Facts::idle_keys`](facts::Facts::idle_keys).
    pub(crate) fn idle_keys(&self) -> Vec<KeyUse> {
        let used = self.congestion == CongestionRule::Dcqcn;
        DCQCN.map(|key| (key, used, "without congestion = \"dcqcn\"")).into()
    }
}

/// Congestion control of some jobs on network cards. Its times are shortened, as these runs are.
pub(crate) fn drawn(draw: &mut Draw) -> CongestionParameters {
    let usual = CongestionParameters::default();
    if draw.percent(50) {
        return usual;
    }
    CongestionParameters {
        congestion: CongestionRule::Dcqcn,
        line_bps: draw.scaled(1_000_000_000, 400_000_000_000),
        rate_min_bps: 1_000_000_000,
        notification_gap_ps: draw.scaled(100_000, 50_000_000),
        estimate_timer_ps: draw.scaled(100_000, 55_000_000),
        rate_timer_ps: draw.scaled(100_000, 55_000_000),
        rate_bytes: draw.scaled(10_000, 10_000_000),
        ..usual
    }
}
