//! Background flows: one host sends to another at a given rate that changes at given times, whatever becomes of its packets.

use fanin_core::{Instant, NodeId};

use crate::setup::SetupError;

/// The rate of a flow from a time on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowStep {
    /// From when.
    pub at: Instant,
    /// Bits a second on the wire, frame overhead included; 0: it pauses.
    pub bits_per_second: u64,
}

/// One flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowConfig {
    /// The sending host.
    pub from: NodeId,
    /// The receiving host.
    pub to: NodeId,
    /// Payload of a packet in bytes.
    pub payload_bytes: u32,
    /// Rates, in order of time. It begins with the first.
    pub steps: Vec<FlowStep>,
}

impl FlowConfig {
    /// Checks sizes and times. `link_bits_per_second` is the rate of its host's link.
    ///
    /// # Errors
    /// [`SetupError`] names the field.
    pub fn check(&self, index: usize, link_bits_per_second: u64) -> Result<(), SetupError> {
        let field = |name: &str| format!("flows[{index}].{name}");
        if self.from == self.to {
            return Err(SetupError::new(field("to"), self.to, "another host than from"));
        }
        if self.payload_bytes == 0 || self.payload_bytes > 65_000 {
            return Err(SetupError::new(field("payload"), self.payload_bytes, "1 to 65000 bytes"));
        }
        if self.steps.is_empty() {
            return Err(SetupError::new(field("steps"), "[]", "at least 1 step"));
        }
        for (place, step) in self.steps.iter().enumerate() {
            if step.bits_per_second > link_bits_per_second {
                let expected = format!("at most {link_bits_per_second} b/s, the rate of the host's link");
                return Err(SetupError::new(field(&format!("steps[{place}].rate")), step.bits_per_second, expected));
            }
            if place > 0 && self.steps[place - 1].at >= step.at {
                return Err(SetupError::new(field(&format!("steps[{place}].at")), step.at, "a time after that of the step before"));
            }
        }
        Ok(())
    }

    /// Whether it ends by itself.
    pub fn ends(&self) -> bool {
        self.steps.last().is_some_and(|step| step.bits_per_second == 0)
    }
}

/// What a flow does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Sends a packet now, and asks again at this time.
    Send(u64),
    /// Asks again at this time.
    Wait(u64),
    /// Has ended.
    End,
}

/// The state of a flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    /// The step that holds.
    step: usize,
    /// Packets under way.
    pub in_flight: u32,
    /// Payload bytes that have arrived.
    pub bytes_delivered: u64,
    /// Census: sum of the weights sent, less those that arrived or were lost.
    pub balance: u64,
    /// Number of the next packet, whose hash is its weight.
    pub packet_count: u64,
}

impl Flow {
    /// What it does at `now_ps` with packets of `frame_bytes` bytes.
    pub fn next(&mut self, config: &FlowConfig, frame_bytes: u32, now_ps: u64) -> Next {
        while config.steps.get(self.step + 1).is_some_and(|step| step.at.as_ps() <= now_ps) {
            self.step += 1;
        }
        let following = config.steps.get(self.step + 1).map(|step| step.at.as_ps());
        let rate = config.steps[self.step].bits_per_second;
        if rate == 0 {
            return following.map_or(Next::End, Next::Wait);
        }
        let gap_ps = (u128::from(frame_bytes) * 8 * 1_000_000_000_000 / u128::from(rate)) as u64;
        let again = now_ps.saturating_add(gap_ps.max(1));
        Next::Send(following.map_or(again, |following| following.min(again)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::Duration;

    fn config(steps: &[(u64, u64)]) -> FlowConfig {
        let step = |&(us, bits_per_second): &(u64, u64)| FlowStep { at: Instant::ZERO + Duration::from_us(us), bits_per_second };
        FlowConfig { from: NodeId(0), to: NodeId(1), payload_bytes: 943, steps: steps.iter().map(step).collect() }
    }

    #[test]
    fn a_flow_keeps_its_rate_in_each_step_and_ends_after_the_last() {
        // 1000 bytes are 8000 bits: 8 us at 1 Gb/s, 0.4 us at 20 Gb/s.
        let config = config(&[(0, 1_000_000_000), (80, 20_000_000_000), (100, 0), (200, 1_000_000_000), (216, 0)]);
        let (mut flow, mut now, mut sent) = (Flow::default(), 0, Vec::new());
        loop {
            match flow.next(&config, 1_000, now) {
                Next::Send(again) => {
                    sent.push(now);
                    now = again;
                }
                Next::Wait(until) => now = until,
                Next::End => break,
            }
        }
        let within = |from: u64, to: u64| sent.iter().filter(|at| (from * 1_000_000..to * 1_000_000).contains(*at)).count();
        assert_eq!((within(0, 80), within(80, 100), within(100, 200), within(200, 216), sent.len()), (10, 50, 0, 2, 62));
        assert_eq!(now, 216_000_000);
    }

    #[test]
    fn impossible_flows_are_named() {
        let error = |config: &FlowConfig| config.check(3, 100_000_000_000).unwrap_err().to_string();
        let good = config(&[(0, 1_000_000_000), (5, 0)]);
        assert!(good.check(3, 100_000_000_000).is_ok() && good.ends());
        assert_eq!(error(&FlowConfig { to: NodeId(0), ..good.clone() }), "flows[3].to = 0: expected another host than from");
        assert_eq!(error(&FlowConfig { steps: Vec::new(), ..good }), "flows[3].steps = []: expected at least 1 step");
        let fast = config(&[(0, 1), (5, 200_000_000_000)]);
        let expected = "flows[3].steps[1].rate = 200000000000: expected at most 100000000000 b/s, the rate of the host's link";
        assert_eq!(error(&fast), expected);
        assert!(error(&config(&[(5, 1), (5, 2)])).starts_with("flows[3].steps[1].at = "));
    }
}
