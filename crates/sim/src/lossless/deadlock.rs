//! Circles of links each of which waits for the next one.

use fanin_core::Wire;

use crate::net::Net;
use crate::packet::{NO_LINK, NO_PACKET};

impl<H: Wire, O: Clone> Net<H, O> {
    /// A cycle of links each of which waits for the next, if there is one: nothing on it will ever move.
    pub fn deadlock(&mut self) -> Option<Vec<u32>> {
        let waits_for = self.waits_for();
        let mut seen = vec![0u32; waits_for.len()];
        for start in 0..waits_for.len() as u32 {
            // Follows one path; marks of earlier paths end it, since they led nowhere.
            let mark = start + 1;
            let mut stack = vec![(start, 0usize)];
            let mut path = Vec::new();
            while let Some((link, next)) = stack.pop() {
                if next == 0 {
                    if seen[link as usize] != 0 {
                        continue;
                    }
                    seen[link as usize] = mark;
                    path.push(link);
                }
                let Some(&other) = waits_for[link as usize].get(next) else {
                    path.pop();
                    continue;
                };
                stack.push((link, next + 1));
                if let Some(begin) = path.iter().position(|&on_path| on_path == other) {
                    return Some(path.split_off(begin));
                }
                stack.push((other, 0));
            }
        }
        None
    }

    /// For each link that lacks credits: the links that what stands in its buffer waits for. A packet whose departure is committed
    /// waits for nobody.
    fn waits_for(&mut self) -> Vec<Vec<u32>> {
        let mut edges = vec![Vec::new(); self.links.len()];
        for (number, link) in self.links.iter().enumerate() {
            if link.waiting.is_empty() || link.credits.next_ps() != u64::MAX {
                continue;
            }
            // Output-queued: waiting packets stand in the buffers that they are charged to.
            let mut place = link.waiting.first;
            while place != NO_PACKET {
                let charged_to = self.packets.get(place).charged_to;
                if charged_to != NO_LINK && edges[charged_to as usize].last() != Some(&(number as u32)) {
                    edges[charged_to as usize].push(number as u32);
                }
                place = self.packets.get(place).next;
            }
            // Input-queued: an input's first packet waits for room in this output.
            let mut place = link.claims.first;
            while place != NO_PACKET {
                if let Some(edges) = edges.get_mut(self.packets.get(place).output as usize) {
                    edges.push(number as u32);
                }
                place = self.packets.get(place).next;
            }
        }
        edges
    }
}
