//! SHARP: how long an allreduce takes in its two modes (`baselines 6`), on reliable links and with switches that keep up with them.

use crate::{Model, Parameter, Quantity};

/// `fanin model sharp`.
pub(crate) const MODES: Model = Model {
    name: "sharp",
    title: "SHARP: time of an allreduce with a quota of operations under way, and streamed",
    about: "An operation has a payload of 256 bytes (Switch-IB 2) or 2048 bytes (Quantum), and a job a quota of operations under way;\n\
            longer vectors are pipelined. Streamed, a vector is one operation at line rate, and a switch has one such operation at a time.\n\
            Headers are not counted. _bounded: not less than a round trip, nor than streaming takes, of which the formula says nothing.",
    parameters: &[
        Parameter { key: "message", title: "bytes of the vector (S)", usual: 1e6, whole: true, low: 1.0, high: 1e15, inclusive: true },
        Parameter { key: "payload", title: "bytes of an operation", usual: 2048.0, whole: true, low: 1.0, high: 1e9, inclusive: true },
        Parameter { key: "quota", title: "operations under way (OST)", usual: 16.0, whole: true, low: 1.0, high: 1e9, inclusive: true },
        Parameter { key: "rate", title: "Gb/s of a link (B)", usual: 100.0, whole: false, low: 1e-3, high: 1e6, inclusive: true },
        Parameter { key: "rtt", title: "us of a round trip (RTT)", usual: 5.0, whole: false, low: 1e-6, high: 1e9, inclusive: true },
    ],
    choices: &[],
    quantities: &[
        Quantity { key: "operations", title: "operations", equation: "ceil(S / payload)" },
        Quantity { key: "quota_us", title: "us with the quota", equation: "ceil(S / payload) / OST * RTT" },
        Quantity { key: "quota_us_bounded", title: "us with the quota, bounded", equation: "the same, at least S / B + RTT" },
        Quantity { key: "streaming_us", title: "us streamed", equation: "S / B + RTT" },
    ],
    evaluate: |parameters| {
        let &[message, payload, quota, rate, rtt] = parameters else { unreachable!("five parameters") };
        let (with_quota, streamed) = (quota_us(message, payload, quota, rtt), streaming_us(message, rate, rtt));
        Ok(vec![operations(message, payload), with_quota, with_quota.max(streamed), streamed])
    },
};

/// ceil(S / payload): operations that a vector is cut into.
pub fn operations(message_bytes: f64, payload_bytes: f64) -> f64 {
    (message_bytes / payload_bytes).ceil()
}

/// T = ceil(S / payload) / OST * RTT, in the unit of the round trip.
pub fn quota_us(message_bytes: f64, payload_bytes: f64, quota: f64, rtt_us: f64) -> f64 {
    operations(message_bytes, payload_bytes) / quota * rtt_us
}

/// T = S / B + RTT, in microseconds.
pub fn streaming_us(message_bytes: f64, rate_gbps: f64, rtt_us: f64) -> f64 {
    message_bytes * 8.0 / (rate_gbps * 1e3) + rtt_us
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_formulas() {
        let evaluate = |parameters: [f64; 5]| MODES.evaluate(&parameters).expect("in range");
        // 1 MB in 489 operations of 2048 bytes, 16 at a time, 5 us each; streamed 80 us and a round trip.
        assert_eq!(evaluate([1e6, 2048.0, 16.0, 100.0, 5.0]), [489.0, 489.0 / 16.0 * 5.0, 489.0 / 16.0 * 5.0, 85.0]);
        // One operation of a larger quota takes a round trip and its own time on the link; the formula says a 16th of that.
        assert_eq!(evaluate([256.0, 256.0, 16.0, 100.0, 5.0]), [1.0, 5.0 / 16.0, 5.0 + 256.0 * 8.0 / 1e5, 5.0 + 256.0 * 8.0 / 1e5]);
    }

    #[test]
    fn a_quota_of_the_bandwidth_delay_product_streams() {
        // 100 Gb/s times 5 us are 62,500 bytes.
        let (rtt, quota) = (5.0, 62_500.0 / 2048.0);
        let with_quota = quota_us(2048.0 * 1e6, 2048.0, quota, rtt);
        assert!((with_quota / streaming_us(2048.0 * 1e6, 100.0, rtt) - 1.0).abs() < 1e-4);
    }
}
