//! Canary: what a switch needs, by the arithmetic of its paper (3.2.2, 3.3, 4.1, 4.2 and 5.1).

use crate::{Model, Parameter, Quantity};

/// `fanin model canary`.
pub(crate) const SWITCH: Model = Model {
    name: "canary",
    title: "Canary: memory of a switch, allreduces at a time, multicast groups, share of a frame, delay of a block begun anew",
    about: "A descriptor is in use from its block's first packet to the sum's way back, 2d(l + t) + r at the bottom (3.2.2); by Little's law\n\
            an allreduce has b times that in use. The paper says 175 KiB where 175,000 bytes come out, and at least 25 allreduces\n\
            where 24 arrays' worth fit. A multicast group is a subset of the ports of one shard (4.2). A lost block is asked for after two round\n\
            trips, and is told and sent anew in one more (3.3).",
    parameters: &[
        Parameter { key: "rate", title: "Gb/s of a host (b)", usual: 100.0, whole: false, low: 1e-3, high: 1e6, inclusive: true },
        Parameter {
            key: "hops",
            title: "diameter of the network in hops (d)",
            usual: 5.0,
            whole: true,
            low: 1.0,
            high: 1e3,
            inclusive: true,
        },
        Parameter { key: "latency", title: "us of a hop (l)", usual: 0.3, whole: false, low: 0.0, high: 1e6, inclusive: true },
        Parameter { key: "timeout", title: "us that a switch waits (t)", usual: 1.0, whole: false, low: 0.0, high: 1e6, inclusive: true },
        Parameter { key: "leader", title: "us of the leader (r)", usual: 1.0, whole: false, low: 0.0, high: 1e6, inclusive: true },
        Parameter {
            key: "descriptors",
            title: "descriptors of a switch",
            usual: 32_768.0,
            whole: true,
            low: 1.0,
            high: 1e9,
            inclusive: true,
        },
        Parameter { key: "payload", title: "bytes of a packet's data", usual: 128.0, whole: true, low: 1.0, high: 1e6, inclusive: true },
        Parameter {
            key: "overhead",
            title: "bytes of headers and framing",
            usual: 57.0,
            whole: true,
            low: 0.0,
            high: 1e4,
            inclusive: true,
        },
        Parameter { key: "ports", title: "ports of a switch (p)", usual: 64.0, whole: true, low: 1.0, high: 1e3, inclusive: true },
        Parameter {
            key: "shards",
            title: "shards of the children's bitmap (s)",
            usual: 4.0,
            whole: true,
            low: 1.0,
            high: 1e3,
            inclusive: true,
        },
        Parameter { key: "rtt", title: "us of a round trip", usual: 5.0, whole: false, low: 1e-6, high: 1e9, inclusive: true },
    ],
    choices: &[],
    quantities: &[
        Quantity { key: "descriptor_us", title: "us that a descriptor is in use", equation: "2d(l + t) + r" },
        Quantity { key: "bytes", title: "bytes of an allreduce at a switch", equation: "b (2d(l + t) + r)" },
        Quantity { key: "allreduces", title: "allreduces whose descriptors fit", equation: "descriptors payload / bytes" },
        Quantity { key: "groups", title: "multicast groups", equation: "s 2^(p / s)" },
        Quantity { key: "efficiency", title: "share of a frame that is data", equation: "payload / (payload + overhead)" },
        Quantity { key: "goodput_gbps", title: "Gb/s of data at most", equation: "b payload / (payload + overhead)" },
        Quantity { key: "anew_us", title: "us until a lost block is on its way again", equation: "3 RTT" },
    ],
    evaluate: |parameters| {
        let &[rate, hops, latency, timeout, leader, descriptors, payload, overhead, ports, shards, rtt] = parameters else {
            unreachable!("eleven parameters")
        };
        let held_us = descriptor_us(hops, latency, timeout, leader);
        let bytes = rate * 1e3 / 8.0 * held_us;
        let efficiency = payload / (payload + overhead);
        let groups = shards * libm::exp2(ports / shards);
        Ok(vec![held_us, bytes, descriptors * payload / bytes, groups, efficiency, rate * efficiency, 3.0 * rtt])
    },
};

/// 2d(l + t) + r: how long a descriptor at the bottom of the tree is in use, in the unit of its times.
pub fn descriptor_us(hops: f64, latency_us: f64, timeout_us: f64, leader_us: f64) -> f64 {
    2.0 * hops * (latency_us + timeout_us) + leader_us
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_numbers_come_out() {
        let with = |changes: &[(&str, f64)]| {
            let mut values: Vec<f64> = SWITCH.parameters.iter().map(|parameter| parameter.usual).collect();
            for (key, value) in changes {
                values[SWITCH.parameters.iter().position(|parameter| parameter.key == *key).expect("a parameter")] = *value;
            }
            SWITCH.evaluate(&values).expect("in range")
        };
        let of_paper = with(&[]);
        assert!((of_paper[0] - 14.0).abs() < 1e-9 && (of_paper[1] - 175_000.0).abs() < 1e-6, "{of_paper:?}");
        // 23.97: 24 allreduces, where the paper has at least 25.
        assert!((of_paper[2] - 23.967).abs() < 1e-3, "{of_paper:?}");
        assert_eq!((of_paper[3], of_paper[6]), (262_144.0, 15.0));
        assert!((of_paper[4] - 0.6919).abs() < 5e-5 && (with(&[("payload", 1_024.0)])[4] - 0.9473).abs() < 5e-5);
        // One shard: 2^p.
        assert_eq!(with(&[("ports", 8.0), ("shards", 1.0)])[3], 256.0);
        assert_eq!(with(&[("ports", 8.0), ("shards", 2.0)])[3], 32.0);
    }
}
