//! How much senders may send. The switch keeps what all have sent until all have received it, so that nobody may be further ahead than its
//! memory reaches: the windows that receivers announce are cut to that where they pass, and once there is room again, senders are told.

use fanin_net::Offload;

use super::stream::Stream;
use crate::segment::{Segment, turned, window_update};

impl Stream {
    /// By how many bits the receiver's windows are shifted (RFC 7323: where both SYNs say so).
    pub fn shift(&self) -> u8 {
        if let [Some(_), Some(bits)] = self.answers.scale { bits } else { 0 }
    }

    /// An answer of the receiver passes: what lies beyond `limit` is not allowed to the sender yet.
    pub fn limit_window(&mut self, segment: &mut Segment, frame: &mut [u8], offload: &Offload, limit: u64) {
        let Some(at) = self.offset_of(segment.acknowledged).filter(|_| segment.flags.ack && !segment.flags.rst) else { return };
        let shift = if segment.flags.syn { 0 } else { self.shift() };
        let mut allowed = at + (u64::from(segment.window) << shift);
        self.answers.takes = self.answers.takes.max(allowed);
        if allowed > limit {
            let window = limit.saturating_sub(at) >> shift;
            segment.set_window(frame, offload, window as u16);
            allowed = at + (window << shift);
        }
        self.answers.told = self.answers.told.max(allowed);
    }

    /// A word to the sender where it may send so much more that it is worth a segment: a quarter of the memory, or all that there is.
    pub fn more_room(&mut self, limit: u64, memory: u64) -> Option<(Offload, Vec<u8>)> {
        let answers = &self.answers;
        let gain = answers.takes.min(limit).checked_sub(answers.told).filter(|&gain| gain > 0)?;
        if gain < memory / 4 && limit < answers.takes {
            return None;
        }
        let shift = self.shift();
        let window = ((answers.told + gain).checked_sub(self.told_to())? >> shift).min(u64::from(u16::MAX));
        let (template, segment) = self.template.as_ref()?;
        let (turned, turned_segment) = turned(template, segment);
        let (_, to_sender) = self.places();
        self.answers.told = self.told_to() + (window << shift);
        Some(window_update(&turned, &turned_segment, to_sender, window as u16))
    }
}
